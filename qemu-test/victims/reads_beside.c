// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
//   reads_beside
//
// Prints "ready PID" first. For each line of stdin it calls a function that often whose first
// instruction reads memory beside itself, and prints "called N", where N is what it has read.
#include "orders.h"

long reads_beside(void);
__asm__(".text\n.p2align 4\n.globl reads_beside\n.type reads_beside, @function\nreads_beside:\n"
	"mov beside(%rip), %rax\nret\n.size reads_beside, . - reads_beside\n"
	".section .rodata\n.p2align 3\nbeside: .quad 42\n.text\n");

int main(void)
{
	long read = 0;

	say_ready();
	for (long count; is_told(&count);) {
		for (long i = 0; i < count; i++)
			read = reads_beside();
		say_called(read);
	}
	return 0;
}
