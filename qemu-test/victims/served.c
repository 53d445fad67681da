// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// What a container serves at a path where the host has served_on_host.c: the same code
// at the same offsets, other names.
#include <unistd.h>

static volatile long sum;

__attribute__((noinline)) long real_function(long n)
{
	return sum = sum + n;
}

__attribute__((noinline)) long real_caller(long n)
{
	return real_function(n) + 1;
}

int main(void)
{
	for (long i = 0;; i++) {
		sum = real_caller(i) + 1;
		usleep(10000);
	}
}
