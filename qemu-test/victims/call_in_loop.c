// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// Calls one function again and again and tells how often it did: the oracle of
// every test that counts.
//
//   call_in_loop FUNCTION COUNT PAUSE_US   COUNT 0: for ever
//   call_in_loop FUNCTION                  a number of calls per line of stdin
//
// Prints "ready PID" first and "called N" when N calls are done (in all). Each
// FUNCTION begins with the instruction of its name; the chain of callers is
// FUNCTION, call_FUNCTION, work, main.
#include "orders.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTION(name, body)                                                    \
	__asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" \
		#name ":\n.cfi_startproc\n" body ".cfi_endproc\n"                  \
		".size " #name ", . - " #name "\n");                               \
	long name(long);                                                          \
	__attribute__((noinline)) static long call_##name(long n)                 \
	{                                                                         \
		return name(n) + 1;                                               \
	}

#define FRAME                                                                   \
	"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\nmov %rsp, %rbp\n"   \
	"lea 1(%rdi), %rax\npop %rbp\n.cfi_def_cfa 7, 8\nret\n"

FUNCTION(begins_with_push, FRAME)
FUNCTION(begins_with_endbr64, "endbr64\n" FRAME)
FUNCTION(begins_with_sub, "sub $24, %rsp\n.cfi_def_cfa_offset 32\nlea 1(%rdi), %rax\n"
	"add $24, %rsp\n.cfi_def_cfa_offset 8\nret\n")
FUNCTION(begins_with_mov, "mov %rdi, %rax\nadd $1, %rax\nret\n")
FUNCTION(begins_with_lea, "lea 1(%rdi), %rax\nret\n")
FUNCTION(begins_with_nop, "nop\n" FRAME)
/* The ten bytes that the kernel replaces by a call once they were hit. */
FUNCTION(begins_with_nop10, ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n" FRAME)

static const struct {
	const char *name;
	long (*call)(long);
} functions[] = {
	{ "begins_with_push", call_begins_with_push },
	{ "begins_with_endbr64", call_begins_with_endbr64 },
	{ "begins_with_sub", call_begins_with_sub },
	{ "begins_with_mov", call_begins_with_mov },
	{ "begins_with_lea", call_begins_with_lea },
	{ "begins_with_nop", call_begins_with_nop },
	{ "begins_with_nop10", call_begins_with_nop10 },
};

static volatile long sum;

__attribute__((noinline)) static void work(long (*call)(long), long count, long pause_us)
{
	for (long i = 0; count == 0 || i < count; i++) {
		sum = sum + call(i);
		if (pause_us)
			usleep(pause_us);
	}
}

int main(int argc, char **argv)
{
	long (*call)(long) = NULL;
	long called = 0;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (argc > 1 && !strcmp(argv[1], functions[i].name))
			call = functions[i].call;
	if (!call || (argc != 2 && argc != 4)) {
		fprintf(stderr, "usage: call_in_loop FUNCTION [COUNT PAUSE_US]\n");
		return 2;
	}
	say_ready();
	if (argc == 4) {
		work(call, called = atol(argv[2]), atol(argv[3]));
		say_called(called);
		return 0;
	}
	for (long count; is_told(&count);) {
		if (count > 0)
			work(call, count, 0);
		say_called(called += count);
	}
	return 0;
}
