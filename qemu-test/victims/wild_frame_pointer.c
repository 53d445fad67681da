// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// For each line of stdin calls with_wild_frame_pointer once with each of a
// list of frame pointers that no compiler makes, and prints how many.
#include "orders.h"

#include <sys/mman.h>

long with_wild_frame_pointer(long);

/* The function keeps what the caller put into rbp until it returns. */
__asm__(".text\n.globl with_wild_frame_pointer\n.type with_wild_frame_pointer, @function\n"
	"with_wild_frame_pointer:\nlea 1(%rdi), %rax\nret\n"
	".size with_wild_frame_pointer, . - with_wild_frame_pointer\n");

__attribute__((noinline)) static long call_with(unsigned long frame_pointer)
{
	long result;

	/* Below the red zone, so that the call overwrites nothing. */
	__asm__ volatile("push %%rbp\nsub $128, %%rsp\nmov %1, %%rbp\n"
			 "call with_wild_frame_pointer\nadd $128, %%rsp\npop %%rbp\n"
			 : "=a"(result) : "r"(frame_pointer), "D"(0L)
			 : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return result;
}

int main(void)
{
	static unsigned long self[2], loop_a[2], loop_b[2], chain[300][2];
	unsigned long code = (unsigned long)main + 4;
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long called = 0;

	self[0] = (unsigned long)self;
	self[1] = code;
	loop_a[0] = (unsigned long)loop_b;
	loop_b[0] = (unsigned long)loop_a;
	loop_a[1] = loop_b[1] = code;
	for (int i = 0; i < 300; i++) {
		chain[i][0] = i < 299 ? (unsigned long)chain[i + 1] : 0;
		chain[i][1] = code;
	}
	munmap(page + 4096, 4096);

	unsigned long here = (unsigned long)__builtin_frame_address(0);
	unsigned long wild[] = {
		0, 1, 7, 8, 16, 4096, here + 1, here + 4, here - 4096, here + (64UL << 20),
		(unsigned long)self, (unsigned long)loop_a, (unsigned long)loop_b,
		(unsigned long)chain, (unsigned long)chain[298], (unsigned long)main,
		(unsigned long)page, (unsigned long)(page + 4096), (unsigned long)(page + 4088),
		0x7ffffffff000, 0x7ffffffffff8, 0x7fffffffffff, 0x800000000000,
		0xffff800000000000, 0xffffffff81000000, 0xffffffffff600000,
		0xfffffffffffffff8, 0xffffffffffffffff, 0x8000000000000000, 0x4141414141414141,
	};

	say_ready();
	for (long count; is_told(&count);) {
		for (unsigned long i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
			called += call_with(wild[i]);
		say_called(called);
	}
	return 0;
}
