// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// What a container serves at a path where the host has served_on_host.c: the same code
// at the same offsets, other names. With a number it makes that many calls and ends; with 0
// it only waits.
#include <stdlib.h>
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

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : -1;

	for (long i = 0; i != calls; i++) {
		sum = real_caller(i) + 1;
		if (calls < 0)
			usleep(10000);
	}
	if (calls == 0)
		pause();
	return 0;
}
