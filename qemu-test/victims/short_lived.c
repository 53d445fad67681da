// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -fno-optimize-sibling-calls
//
// Calls getppid through an inlined function, six times in some fifty milliseconds, and ends.
//
//   short_lived [remove FILE | replace FILE BY]
//
// `remove` and `replace` do that to a file first: it may be this program's own.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile long total;

__attribute__((noinline)) long ask(long n)
{
	return total += getppid() + n;
}

static inline __attribute__((always_inline)) long ask_twice(long n)
{
	return ask(n) + ask(n + 1);
}

__attribute__((noinline)) long live(long rounds)
{
	long sum = 0;

	for (long n = 0; n < rounds; n++) {
		usleep(16000);
		sum += ask_twice(n);
	}
	return sum + 1;
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "remove") == 0 && unlink(argv[2]) != 0)
		return 1;
	if (argc > 3 && strcmp(argv[1], "replace") == 0 && rename(argv[3], argv[2]) != 0)
		return 1;
	total = live(3);
	return total == 0;
}
