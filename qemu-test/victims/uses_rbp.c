// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls
//
// Calls leaf() with the same instruction and stack pointers, but other values in rbp: where
// that leads to the caller, from two callers in turn; and where it is a number as any other.
//
//   uses_rbp TIMES
#include <stdint.h>
#include <stdlib.h>

static volatile long sum;

__attribute__((noipa)) void leaf(void)
{
	sum++;
}

/* Goes on at the given stack pointer, and finds its own frame by rbp. */
void low(uintptr_t stack);
/* Has a number in rbp. */
void counting(long number);

asm(".text\n"
    ".globl low\n"
    ".type low, @function\n"
    "low:	.cfi_startproc\n"
    "	push %rbp\n"
    "	.cfi_def_cfa_offset 16\n"
    "	.cfi_offset 6, -16\n"
    "	mov %rsp, %rbp\n"
    "	.cfi_def_cfa_register 6\n"
    "	mov %rdi, %rsp\n"
    "	call leaf\n"
    "	mov %rbp, %rsp\n"
    "	pop %rbp\n"
    "	.cfi_def_cfa 7, 8\n"
    "	ret\n"
    "	.cfi_endproc\n"
    ".size low, . - low\n"
    ".globl counting\n"
    ".type counting, @function\n"
    "counting:	.cfi_startproc\n"
    "	push %rbp\n"
    "	.cfi_def_cfa_offset 16\n"
    "	.cfi_offset 6, -16\n"
    "	mov %rdi, %rbp\n"
    "	call leaf\n"
    "	pop %rbp\n"
    "	.cfi_def_cfa_offset 8\n"
    "	ret\n"
    "	.cfi_endproc\n"
    ".size counting, . - counting\n");

__attribute__((noipa)) static long one(long stack)
{
	low(stack);
	return sum;
}

__attribute__((noipa)) static long two(long stack)
{
	volatile char kept[100];

	kept[5] = 1;
	low(stack);
	return sum + kept[5];
}

__attribute__((noipa)) static long three(long number)
{
	counting(number);
	return sum;
}

int main(int argc, char **argv)
{
	/* Below all frames that are in use. */
	uintptr_t stack = ((uintptr_t)__builtin_frame_address(0) - 32768) & ~15ul;

	/* All by one call: what is on the stack above is the same each time. */
	for (volatile long i = 0; argc > 1 && i < 4 * atol(argv[1]); i++) {
		static long (*const CALLS[])(long) = { one, two, three, three };

		sum += CALLS[i % 4](i % 4 < 2 ? (long)stack : i);
	}
	return 0;
}
