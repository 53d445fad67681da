// SPDX-License-Identifier: MIT OR Apache-2.0
// Spends its time in ten functions, in share_N N of 55 parts, as often as it is told.
//
//	shares ROUNDS
//
// flags: -O2 -fomit-frame-pointer
#include <stdint.h>
#include <stdlib.h>

static volatile uint64_t sink;

#define SHARE(n)                                                        \
	__attribute__((noinline, noclone)) static void share_##n(void)  \
	{                                                               \
		uint64_t x = sink + n;                                  \
		for (int i = 0; i < n * 1000; i++)                      \
			x = x * 6364136223846793005u + 1;               \
		sink = x;                                               \
	}
SHARE(1) SHARE(2) SHARE(3) SHARE(4) SHARE(5) SHARE(6) SHARE(7) SHARE(8) SHARE(9) SHARE(10)

__attribute__((noinline)) static void first_five(void)
{
	share_1(), share_2(), share_3(), share_4(), share_5();
	sink++;
}

int main(int argc, char **argv)
{
	for (int rounds = argc > 1 ? atoi(argv[1]) : 0; rounds > 0; rounds--) {
		first_five();
		share_6(), share_7(), share_8(), share_9(), share_10();
	}
}
