// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -fno-ipa-icf -fno-inline-small-functions
//
// Functions of which the compiler makes copies and pieces, as it does in C++: one in three
// calls of `shop::check_quota` goes on in its `.cold` part.
//
//   copies TIMES
//
// Prints "checked N", "failed N" and "scaled N".
#include <stdio.h>
#include <stdlib.h>

static volatile long sum;
static long checked, failed, scaled_calls;

static __attribute__((cold, noinline)) void fail(long user)
{
	failed++;
	sum = sum - user;
}

/* As a C++ compiler calls shop::check_quota(long). */
long check_quota(long user) __asm__("_ZN4shop11check_quotaEl");

__attribute__((noinline)) long check_quota(long user)
{
	checked++;
	if (user % 3 == 0) {
		fail(user);
		sum = sum * 3;
		fail(user + 1);
	}
	sum = sum + user;
	return user * 2;
}

/* Always called with the same factor: the copy for that is all that there is. */
static __attribute__((noinline)) long scaled(long n, long factor)
{
	scaled_calls++;
	for (long i = 0; i < n % 10; i++)
		sum = sum + i * factor + (factor > 2 ? sum * 3 : sum / 5);
	if (n % 3 == 1) {
		fail(n);
		sum = sum / 3;
	}
	return sum;
}

int main(int argc, char **argv)
{
	long times = argc > 1 ? atol(argv[1]) : 10;
	for (long i = 0; i < times; i++) {
		sum = sum + check_quota(i);
		sum = sum + scaled(i, 3);
	}
	printf("checked %ld\nfailed %ld\nscaled %ld\n", checked, failed, scaled_calls);
}
