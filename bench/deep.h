/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls of a function through stacks of a given depth. deep.c is built with frame
 * pointers and without; either way stacks end with a function of its own, by the chain of
 * frame pointers as by what .eh_frame says.
 */
#ifndef NSPROBE_DEEP_H
#define NSPROBE_DEEP_H

#include "spent.h"

/* How the stacks of calls, one after the other, differ. */
enum order {
	SAME,	/* not at all */
	REGISTER, /* not in their frames, but rbp has another value each time, which it may
		     have where it is no frame pointer: in the build without these only */
	TURNS,	/* the function is called from two places in turn */
	NEW,	/* each is one that has not been: another inner and another outer frame, and
		   elsewhere in memory; after 65,536 they come again */
	ORDERS
};
extern const char *const ORDER_NAMES[ORDERS];

/* Whether this build has stacks of that order. */
#ifdef FRAME_POINTERS
#define HAS_ORDER(order) ((order) != REGISTER)
#else
#define HAS_ORDER(order) 1
#endif

/* Frames that are no recursion: the function's own and four more. */
#define DEEP_LEAST 5

/* The function to be probed; it begins with push. */
void deep_probed(long argument);

/* Calls a function as the innermost of so many frames; what that costs. */
struct spent call_deep(void (*function)(long), int frames, enum order order, long calls);

/* Whether deep_probed has a breakpoint. */
int armed_deep(void);
/* Where it stands in this program's file. */
unsigned long deep_offset(void);

#endif
