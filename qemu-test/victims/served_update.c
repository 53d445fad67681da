// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls
//
// The next version of what a container serves: another function on the way, and frames of
// other sizes, without frame pointers.
#include <unistd.h>

static volatile long sum;

__attribute__((noinline)) long real_function(long n)
{
	volatile long kept[7] = { n };

	return sum = sum + kept[0];
}

__attribute__((noinline)) long real_caller(long n)
{
	volatile char room[n % 60 + 1];

	room[n % 60] = 1;
	return real_function(n) + room[n % 60];
}

__attribute__((noinline)) long added_caller(long n)
{
	volatile long kept[21] = { n };

	return real_caller(kept[0]) + 1;
}

int main(void)
{
	for (long i = 0;; i++) {
		sum = added_caller(i) + 1;
		usleep(10000);
	}
}
