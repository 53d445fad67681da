// SPDX-License-Identifier: MIT OR Apache-2.0
// A 64-bit program whose 32-bit code is probed, and that dies of it: docs/upstream/compat-code.md.
//
// Without an argument it runs without the probe, and lives.
#include "probe.h"

/* Gives back its argument by way of 32-bit code, whose first instruction is stepped out of line.
 * 0x23 and 0x33 are the code segments of 32-bit and 64-bit programs. The program is linked below
 * 4 GiB (-no-pie). */
__asm__(".text\n.globl by_compat\nby_compat:\n"
	"\tmov %rsp, saved(%rip)\n\tljmp *into_compat(%rip)\n"
	".code32\n.globl compat\ncompat:\n"
	"\tmov %edi, %eax\n\tljmp $0x33, $back\n"
	".code64\nback:\n"
	"\tmov saved(%rip), %rsp\n\tret\n"
	".data\ninto_compat:\n\t.long compat\n\t.word 0x23\n"
	"\t.balign 8\nsaved:\n\t.quad 0\n.text\n");
unsigned int by_compat(unsigned int argument);
extern char compat[];

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		probe(compat);
	printf("32-bit code gave %u\n", by_compat(7));
	return 0;
}
