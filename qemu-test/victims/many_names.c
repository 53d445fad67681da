// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Calls usleep of the C library from a thousand functions in turn, each of which has a
// name of its own: who names stacks has something to look up all the time.
#include <unistd.h>

static volatile long sum;

#define ONE(n)                                       \
	__attribute__((noipa)) long from_##n(long x) \
	{                                            \
		return usleep(20000) + x + 1##n;     \
	}
#define TEN(with, n)                                                     \
	with(n##0) with(n##1) with(n##2) with(n##3) with(n##4) with(n##5) \
	with(n##6) with(n##7) with(n##8) with(n##9)
#define HUNDRED(with, n)                                                       \
	TEN(with, n##0) TEN(with, n##1) TEN(with, n##2) TEN(with, n##3)         \
	TEN(with, n##4) TEN(with, n##5) TEN(with, n##6) TEN(with, n##7)         \
	TEN(with, n##8) TEN(with, n##9)
#define ALL(with)                                                               \
	HUNDRED(with, 0) HUNDRED(with, 1) HUNDRED(with, 2) HUNDRED(with, 3)      \
	HUNDRED(with, 4) HUNDRED(with, 5) HUNDRED(with, 6) HUNDRED(with, 7)      \
	HUNDRED(with, 8) HUNDRED(with, 9)

ALL(ONE)

#define NAME(n) from_##n,
static long (*const all[])(long) = { ALL(NAME) };

int main(void)
{
	for (unsigned long i = 0;; i++)
		sum = all[i % (sizeof(all) / sizeof(*all))](sum);
}
