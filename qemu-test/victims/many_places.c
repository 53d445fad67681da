// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A function of 65,536 one-byte instructions at places sixteen bytes apart, for
// tests that probe a lot. For each line of stdin it is called that often.
//
//   many_places
//
// Prints "ready PID" first and "called N" when N calls are done (in all). After
// the function lies "trap", which is never run: the kernel puts no probe there.
#include "orders.h"

__asm__(".text\n.p2align 4\n.globl places\n.type places, @function\nplaces:\n"
	".rept 65536\n.p2align 4\nnop\n.endr\n"
	"ret\n.size places, . - places\n"
	".p2align 4\n.globl trap\n.type trap, @function\ntrap:\nint3\nret\n.size trap, . - trap\n");
void places(void);

int main(void)
{
	long called = 0;

	say_ready();
	for (long count; is_told(&count);) {
		for (long i = 0; i < count; i++)
			places();
		say_called(called += count);
	}
	return 0;
}
