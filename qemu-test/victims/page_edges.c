// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Calls functions that begin at the last byte of a page, with an instruction of one byte and
// with one that goes on in the next page.
//
// For each line of stdin, a number, it calls both that often, and prints "called N" (in all).
// "ready PID" comes first.
#include "orders.h"

#define AT_LAST_BYTE(name, first)                                               \
	__asm__(".text\n.p2align 12\n.skip 4095, 0xcc\n.globl " #name "\n"         \
		".type " #name ", @function\n" #name ":\n" first                   \
		"lea 1(%rdi), %rax\nret\n.size " #name ", . - " #name "\n");       \
	long name(long);

AT_LAST_BYTE(one_byte, "nop\n")
AT_LAST_BYTE(goes_on, "")

int main(void)
{
	long called = 0, count;

	say_ready();
	while (is_told(&count)) {
		for (; count > 0; count--, called++)
			if (one_byte(called) != called + 1 || goes_on(called) != called + 1)
				return 1;
		say_called(called);
	}
	return 0;
}
