// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "deep.h"
#include <alloca.h>
#include <stdint.h>

#define SITES 256
/*
 * With NEW each stack begins elsewhere, so that none lies where one of the last lay: both
 * are primes, and a step is more than 64 frames are long.
 */
#define PLACES 4093
#define PLACE_STEP 563
#define PLACE_BYTES 16

#define PUSH_RBP 0x55

const char *const ORDER_NAMES[ORDERS] = { "same", "register", "turns", "new" };

/* What the frames of a stack hand down to the innermost. */
struct descent {
	void (*function)(long);
	long calls;
	int depth;
	unsigned int inner; /* where the function is called from */
	unsigned int turn;  /* is changed in it from call to call */
	unsigned int outer;
	unsigned long value; /* of rbp, where that is no frame pointer */
	unsigned long change; /* is added to it from call to call */
	unsigned long room; /* bytes between the stack's end and its other frames */
};

typedef void site(struct descent *to);
void deep_outermost(struct descent *to);

asm(".text\n"
    ".balign 16\n.globl deep_probed\n.type deep_probed,@function\ndeep_probed:\n"
    ".cfi_startproc\n"
    "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\n"
    "mov %rsp,%rbp\n"
    "pop %rbp\n.cfi_def_cfa_offset 8\n.cfi_restore 6\n"
    "ret\n.cfi_endproc\n.size deep_probed, . - deep_probed\n"
    /* The end, for all who follow the stack. */
    ".balign 16\n.type deep_outermost,@function\ndeep_outermost:\n"
    ".cfi_startproc\n.cfi_undefined 16\n"
    "push %rbp\n.cfi_def_cfa_offset 16\n"
    "xor %ebp,%ebp\n"
    "call deep_room\n"
    "pop %rbp\n.cfi_def_cfa_offset 8\n"
    "ret\n.cfi_endproc\n.size deep_outermost, . - deep_outermost\n");
extern const char __executable_start[];

/* What follows a call keeps it from becoming a jump. */
#define NO_TAIL_CALL() asm volatile("" ::: "memory")
#define FRAME __attribute__((noipa)) static void

FRAME descend(struct descent *to, int depth);

/* Places that call, each a function: their return addresses tell stacks apart. */
#define SITE(n)                                                                            \
	FRAME inner_##n(struct descent *to) { to->function(0); NO_TAIL_CALL(); }           \
	FRAME outer_##n(struct descent *to) { descend(to, to->depth); NO_TAIL_CALL(); }
#define EIGHT(of, n) of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7)
#define ALL(of)                                                                           \
	EIGHT(of, 0) EIGHT(of, 1) EIGHT(of, 2) EIGHT(of, 3)                               \
	EIGHT(of, 4) EIGHT(of, 5) EIGHT(of, 6) EIGHT(of, 7)                               \
	EIGHT(of, 10) EIGHT(of, 11) EIGHT(of, 12) EIGHT(of, 13)                           \
	EIGHT(of, 14) EIGHT(of, 15) EIGHT(of, 16) EIGHT(of, 17)                           \
	EIGHT(of, 20) EIGHT(of, 21) EIGHT(of, 22) EIGHT(of, 23)                           \
	EIGHT(of, 24) EIGHT(of, 25) EIGHT(of, 26) EIGHT(of, 27)                           \
	EIGHT(of, 30) EIGHT(of, 31) EIGHT(of, 32) EIGHT(of, 33)                           \
	EIGHT(of, 34) EIGHT(of, 35) EIGHT(of, 36) EIGHT(of, 37)
ALL(SITE)
#define INNER(n) inner_##n,
#define OUTER(n) outer_##n,
static site *const INNER_SITES[SITES] = { ALL(INNER) };
static site *const OUTER_SITES[SITES] = { ALL(OUTER) };

static inline void set_rbp(unsigned long value)
{
#ifdef FRAME_POINTERS
	(void)value;
#else
	asm volatile("mov %0, %%rbp" : : "r"(value) : "rbp");
#endif
}

FRAME descend(struct descent *to, int depth)
{
	if (depth > 0) {
		descend(to, depth - 1);
		NO_TAIL_CALL();
		return;
	}
	/* All that changes from call to call is in memory, so that no register tells calls apart. */
	for (long left = to->calls; left > 0; left = --to->calls) {
		set_rbp(to->value += to->change);
		INNER_SITES[to->inner % SITES](to);
		to->inner ^= to->turn;
	}
}

__attribute__((noipa, used)) void deep_room(struct descent *to)
{
	char *room = alloca(to->room);

	asm volatile("" : : "r"(room) : "memory");
	OUTER_SITES[to->outer % SITES](to);
	NO_TAIL_CALL();
}

/* Each call comes down from the outermost frame, by the next way. */
static void call_new(struct descent *to, long calls)
{
	static unsigned int next;

	for (long i = 0; i < calls; i++, next++) {
		to->calls = 1;
		to->inner = next;
		to->outer = next + next / SITES;
		to->room = next * PLACE_STEP % PLACES * PLACE_BYTES;
		deep_outermost(to);
	}
}

struct spent call_deep(void (*function)(long), int frames, enum order order, long calls)
{
	/* Calls in parts are to differ as those in one go: no value of rbp comes again. */
	static unsigned long value;
	struct descent to = {
		.function = function, .calls = calls, .depth = frames - DEEP_LEAST - 1, .turn = order == TURNS,
		.change = order == REGISTER, .value = value,
	};
	struct spent spent;

	begin(&spent);
	if (order == NEW)
		call_new(&to, calls);
	else
		deep_outermost(&to);
	finish(&spent);
	value = to.value;
	return spent;
}

int armed_deep(void)
{
	return *(const volatile uint8_t *)deep_probed != PUSH_RBP;
}

unsigned long deep_offset(void)
{
	return (const char *)deep_probed - __executable_start;
}
