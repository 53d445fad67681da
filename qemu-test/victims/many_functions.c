// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A hundred thousand functions, many_100000 to many_199999, sixteen bytes each, for
// tests of wildcards. For each line of stdin the first ten thousand are called that
// often.
//
//   many_functions
//
// Prints "ready PID" first and "called N" when N rounds are done (in all).
#include "orders.h"

__asm__(".text\n.altmacro\n"
	".macro function number\n.p2align 4\n.globl many_\\number\n"
	".type many_\\number, @function\nmany_\\number:\nnop\nret\n"
	".size many_\\number, 2\n.endm\n"
	".set number, 100000\n.rept 100000\nfunction %number\n.set number, number + 1\n.endr\n"
	".noaltmacro\n");
void many_100000(void);

int main(void)
{
	char *volatile first = (char *)many_100000;
	long called = 0;

	say_ready();
	for (long count; is_told(&count);) {
		for (long round = 0; round < count; round++)
			for (long i = 0; i < 10000; i++)
				((void (*)(void))(first + 16 * i))();
		say_called(called += count);
	}
	return 0;
}
