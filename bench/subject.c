// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "subject.h"
#include <stdint.h>
#include <string.h>

#define TEXT_BYTES 16 /* of each function: the distance from one to the next */

/*
 * How a function begins decides how the kernel gets over the breakpoint: push is
 * emulated, endbr64 and mov are run out of line, the nop of ten bytes becomes a
 * call. The size is what a compiler would tell: tracers look at it.
 */
#define FUNCTION(name, body)                                           \
	".balign 16\n.globl " name "\n.type " name ",@function\n" name \
	":\n" body "ret\n.size " name ", . - " name "\n"
#define FRAME "push %rbp\nmov %rsp,%rbp\npop %rbp\n"

asm(".text\n"
    FUNCTION("begins_with_push", FRAME)
    FUNCTION("begins_with_endbr", "endbr64\n" FRAME)
    FUNCTION("begins_with_mov", "mov %rdi,%rax\n" FRAME)
    FUNCTION("begins_with_nop", ".byte 0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0\n")
    /* The end of the chain of frame pointers, for all who follow it. */
    FUNCTION("outermost", "push %rbp\nxor %ebp,%ebp\ncall descend\npop %rbp\n")
    ".altmacro\n"
    ".macro one_of_many number\n"
    FUNCTION("many_\\number", "push %rbp\nmov %rsp,%rbp\npop %rbp\n")
    ".endm\n"
    ".balign 16\nmany:\n"
    ".set index, 10000\n"
    ".rept 10000\none_of_many %index\n.set index, index + 1\n.endr\n"
    ".noaltmacro\n");
void begins_with_push(long argument);
void begins_with_endbr(long argument);
void begins_with_mov(long argument);
void begins_with_nop(long argument);
void outermost(int depth, void (*function)(long), long calls, struct spent *spent);
extern const char __executable_start[];
extern const uint8_t many[];

const struct subject SUBJECTS[SUBJECT_COUNT] = {
	{ "push", begins_with_push },
	{ "endbr64", begins_with_endbr },
	{ "mov", begins_with_mov },
	{ "nop10", begins_with_nop },
};
static uint8_t text[SUBJECT_COUNT][TEXT_BYTES];

__attribute__((noipa, used, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))
void descend(int depth, void (*function)(long), long calls, struct spent *spent)
{
	if (depth > 0) {
		descend(depth - 1, function, calls, spent);
		asm volatile("" ::: "memory");
		return;
	}
	begin(spent);
	for (long i = 0; i < calls; i++)
		function(0);
	finish(spent);
}

struct spent call(void (*function)(long), long calls)
{
	struct spent spent;

	outermost(13, function, calls, &spent);
	return spent;
}

void remember_text(void)
{
	for (int i = 0; i < SUBJECT_COUNT; i++)
		memcpy(text[i], SUBJECTS[i].function, TEXT_BYTES);
}

int armed_subjects(void)
{
	int armed = 0;

	for (int i = 0; i < SUBJECT_COUNT; i++)
		armed += memcmp(text[i], SUBJECTS[i].function, TEXT_BYTES) != 0;
	return armed;
}

int armed_many(int count)
{
	int armed = 0;

	for (int i = 0; i < count; i++)
		armed += ((const volatile uint8_t *)many)[i * TEXT_BYTES] == 0xcc;
	return armed;
}

unsigned long file_offset(const void *function)
{
	return (const char *)function - __executable_start;
}
