// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// For each line of stdin, a number, calls in_frame that often: on a stack of its own, above
// which its frame pointer leads to a page that was never touched.
//
// Prints "ready PID" first and "called N" (in all) when the calls of a line are done.
#include <err.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul

/* The function keeps what the caller put into rbp until it returns. */
__asm__(".text\n.globl in_frame\n.type in_frame, @function\nin_frame:\nlea 1(%rdi), %rax\nret\n"
	".size in_frame, . - in_frame\n");

__attribute__((noinline)) static long call_in(char *frame, long argument)
{
	long result;

	__asm__ volatile("push %%rbp\nmov %%rsp, %%rbx\nmov %1, %%rsp\nmov %1, %%rbp\n"
			 "call in_frame\nmov %%rbx, %%rsp\npop %%rbp\n"
			 : "=a"(result) : "S"(frame), "D"(argument)
			 : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
	return result;
}

int main(void)
{
	long called = 0;

	printf("ready %d\n", getpid());
	fflush(stdout);
	for (long count; scanf("%ld", &count) == 1;) {
		for (; count > 0; count--) {
			char *stack = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (stack == MAP_FAILED)
				err(1, "mmap");
			called = call_in(stack + PAGE, called);
			munmap(stack, 2 * PAGE);
		}
		printf("called %ld\n", called);
		fflush(stdout);
	}
	return 0;
}
