// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// For each number on stdin calls `end_of_path` so often, each time by another path through
// DEPTH calls, of which each is one of two: the bits of the call's number say which. Prints
// how many calls it has made in all.
//
//   many_stacks DEPTH
#include "orders.h"

#include <stdlib.h>

static volatile long sum;
static unsigned long path;

__attribute__((noipa)) long end_of_path(long n)
{
	return sum = sum + n;
}

__attribute__((noipa)) static long go(long depth);

__attribute__((noipa)) static long left(long depth)
{
	return go(depth - 1) + 1;
}

__attribute__((noipa)) static long right(long depth)
{
	return go(depth - 1) + 2;
}

__attribute__((noipa)) static long go(long depth)
{
	if (depth == 0)
		return end_of_path(depth) + 1;
	return (path >> (depth & 63) & 1 ? left(depth) : right(depth)) + 1;
}

int main(int argc, char **argv)
{
	long depth = argc == 2 ? atol(argv[1]) : 0, called = 0;

	if (depth <= 0)
		return 2;
	say_ready();
	for (long count; is_told(&count);) {
		while (count-- > 0) {
			path = called++;
			go(depth);
		}
		say_called(called);
	}
	return 0;
}
