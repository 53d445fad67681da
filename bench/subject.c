// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "subject.h"
#include <stdint.h>
#include <string.h>

#define TEXT_BYTES 16 /* of each function: the distance from one to the next */

/*
 * How a function begins decides how the kernel gets over the breakpoint: push is
 * emulated, endbr64 and mov are run out of line, the nop of ten bytes becomes a
 * call. Size and frame are told as a compiler would: tracers look at them.
 */
#define FUNCTION(name, body)                                           \
	".balign 16\n.globl " name "\n.type " name ",@function\n" name \
	":\n" body "ret\n.size " name ", . - " name "\n"
#define TOLD(name, body)                                                            \
	".balign 16\n.globl " name "\n.type " name ",@function\n" name              \
	":\n.cfi_startproc\n" body "ret\n.cfi_endproc\n.size " name ", . - " name "\n"
#define FRAME                                                         \
	"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\n"      \
	"mov %rsp,%rbp\n"                                             \
	"pop %rbp\n.cfi_def_cfa_offset 8\n.cfi_restore 6\n"

asm(".text\n"
    TOLD("begins_with_push", FRAME)
    TOLD("begins_with_endbr", "endbr64\n" FRAME)
    TOLD("begins_with_mov", "mov %rdi,%rax\n" FRAME)
    TOLD("begins_with_nop", ".byte 0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0\n")
    /* The end of all stacks: of the chain of frame pointers, and of what .eh_frame says. */
    TOLD("outermost",
	 ".cfi_undefined 16\n"
	 "push %rbp\n.cfi_def_cfa_offset 16\n"
	 "xor %ebp,%ebp\ncall descend\n"
	 "pop %rbp\n.cfi_def_cfa_offset 8\n")
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
void outermost(int depth, void (*function)(long), long calls, struct spent *spent, long argument);
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
void descend(int depth, void (*function)(long), long calls, struct spent *spent, long argument)
{
	if (depth > 0) {
		descend(depth - 1, function, calls, spent, argument);
		asm volatile("" ::: "memory");
		return;
	}
	begin(spent);
	for (long i = 0; i < calls; i++)
		function(argument);
	finish(spent);
}

struct spent call(void (*function)(long), long argument, long calls)
{
	struct spent spent;

	outermost(13, function, calls, &spent, argument);
	return spent;
}

void (*one_of_many(int number))(long)
{
	return (void (*)(long))(many + number * TEXT_BYTES);
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
