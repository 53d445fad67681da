// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// What the host has at a path where a container has served.c: the same code
// at the same offsets, other names.
#include <unistd.h>

static volatile long sum;

__attribute__((noinline)) long decoy_function(long n)
{
	return sum = sum + n;
}

__attribute__((noinline)) long decoy_caller(long n)
{
	return decoy_function(n) + 1;
}

int main(void)
{
	for (long i = 0;; i++) {
		sum = decoy_caller(i) + 1;
		usleep(10000);
	}
}
