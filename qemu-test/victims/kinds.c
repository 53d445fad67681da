// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O1 -g -fno-omit-frame-pointer
//
// Comes to a line and to an inlined function, and counts both itself: the oracle of
// tests of places that are no function.
//
//   kinds          a number of rounds, and a word, per line of stdin
//
// Prints "ready PID" first; "called N" when the rounds are done, where N is how often
// it came, in all, to what the word names: line, inlined or setjmp.
#include "orders.h"

#include <setjmp.h>
#include <string.h>

static volatile long sink, lines, inlined, jumps;
static sigjmp_buf buffer;

static inline __attribute__((always_inline)) long doubled(long value)
{
	inlined = inlined + 1;
	return value * 2;
}

__attribute__((noinline)) long odd_or_even(long n)
{
	if (n % 2) {
		lines = lines + 1; /* the marked line: 28 */
		sink = sink + n;
	}
	return doubled(n) + n;
}

__attribute__((noinline)) long every_third(long n)
{
	return n % 3 ? n : doubled(n) - 1;
}

int main(void)
{
	char word[16];

	say_ready();
	for (long count; scanf("%ld %15s", &count, word) == 2;) {
		for (long i = 0; i < count; i++) {
			sink = sink + odd_or_even(i) + every_third(i);
			jumps = jumps + 1;
			sigsetjmp(buffer, 0);
		}
		say_called(!strcmp(word, "line") ? lines :
			   !strcmp(word, "inlined") ? inlined : jumps);
	}
	return 0;
}
