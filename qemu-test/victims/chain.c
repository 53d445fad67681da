// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// A call chain of known names: main calls level_01, that level_02, and so on
// to level_15, which calls bottom. A line of stdin is a number of calls.
#include "orders.h"

static volatile long sum;

__attribute__((noinline)) long bottom(long n)
{
	return sum = sum + n;
}

#define LEVEL(name, next)                          \
	__attribute__((noinline)) long name(long n) \
	{                                          \
		return next(n + 1) + 1;            \
	}
LEVEL(level_15, bottom)
LEVEL(level_14, level_15)
LEVEL(level_13, level_14)
LEVEL(level_12, level_13)
LEVEL(level_11, level_12)
LEVEL(level_10, level_11)
LEVEL(level_09, level_10)
LEVEL(level_08, level_09)
LEVEL(level_07, level_08)
LEVEL(level_06, level_07)
LEVEL(level_05, level_06)
LEVEL(level_04, level_05)
LEVEL(level_03, level_04)
LEVEL(level_02, level_03)
LEVEL(level_01, level_02)

int main(void)
{
	long called = 0;

	say_ready();
	for (long count; is_told(&count);) {
		for (long i = 0; i < count; i++)
			sum = level_01(i) + 1;
		say_called(called += count);
	}
	return 0;
}
