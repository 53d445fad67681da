// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Calls of `followed` that are under way for long, honest or forged.
//
//	forges_calls honest   for each number on stdin, that many calls within each other, which
//	                      return on the next one
//	forges_calls forger   that many times, goes to the function's first instruction with another
//	                      stack pointer each time, and never to its end
//
// Prints "ready PID" first, and "called N" after each number: in the middle of the calls.
#include "orders.h"

#include <stdlib.h>
#include <string.h>

long followed(long depth, void *then);
void forge(char *stack, long count);
extern char deeper[];

/* The exit is `followed_exit`. %rsi: where to go after the entry. */
__asm__(".text\n.globl followed, followed_exit, deeper, forge\n"
	".type followed, @function\n.type followed_exit, @function\n"
	".type deeper, @function\n.type forge, @function\n"
	"followed: push %rbx\nmov %rdi, %rbx\njmp *%rsi\n"
	".size followed, . - followed\n"
	"deeper: test %rbx, %rbx\njz 1f\nlea -1(%rbx), %rdi\nlea deeper(%rip), %rsi\n"
	"call followed\njmp 2f\n1: call in_the_middle\n2: pop %rbx\n"
	".size deeper, . - deeper\n"
	"followed_exit: ret\n.size followed_exit, . - followed_exit\n"
	"forge: push %rbx\npush %rbp\npush %r12\npush %r13\nmov %rsp, %rbp\nmov %rdi, %r12\n"
	"mov %rsi, %r13\nlea 1f(%rip), %rsi\n"
	"0: add $8, %r12\nmov %r12, %rsp\nxor %edi, %edi\njmp followed\n"
	"1: dec %r13\njnz 0b\nmov %rbp, %rsp\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
	".size forge, . - forge\n");

void in_the_middle(void)
{
	long ignored;

	say_called(0);
	if (!is_told(&ignored))
		exit(0);
}

int main(int argc, char **argv)
{
	int forges = argc > 1 && strcmp(argv[1], "forger") == 0;
	long called = 0, count;

	say_ready();
	while (is_told(&count)) {
		if (forges) {
			char *stack = malloc((count + 64) * 8);
			memset(stack, 0, (count + 64) * 8);
			forge(stack + 256, count);
			free(stack);
		} else {
			followed(count - 1, deeper);
		}
		say_called(called += count);
	}
}
