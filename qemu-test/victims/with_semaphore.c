// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A USDT point with a semaphore, as <sys/sdt.h> makes them, by hand: the point is
// passed only while somebody has counted the semaphore up.
//
//   with_semaphore [spoiled]
//
// Prints "ready PID" first. For each line of stdin it comes that often to the
// point, and then prints "called N", where N is the value of the semaphore. A spoiled one is such
// that the kernel counts it no more.
#include "orders.h"

__attribute__((section(".probes"), used)) volatile unsigned short demo_step_semaphore;

void step(long n);
/* https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation */
__asm__(".text\n.p2align 4\n.globl step\n.type step, @function\nstep:\n"
	"990: nop\nret\n.size step, . - step\n"
	".pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n"
	".4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n"
	"993: .8byte 990b, _.stapsdt.base, demo_step_semaphore\n"
	".asciz \"demo\"\n.asciz \"step\"\n.asciz \"-8@%rdi\"\n994: .balign 4\n.popsection\n"
	".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
	".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n"
	".size _.stapsdt.base, 1\n.popsection\n");

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		demo_step_semaphore = 0x8000;
	say_ready();
	for (long count; is_told(&count);) {
		for (long i = 0; i < count; i++)
			if (demo_step_semaphore)
				step(i);
		say_called(demo_step_semaphore);
	}
	return 0;
}
