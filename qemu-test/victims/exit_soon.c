// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// Calls short_work as often as its argument says (once without) and ends.
#include <stdlib.h>

__attribute__((noinline)) void short_work(void)
{
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	for (long i = argc > 1 ? atol(argv[1]) : 1; i > 0; i--)
		short_work();
	return 0;
}
