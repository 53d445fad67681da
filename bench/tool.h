/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A tracer that is measured: started as a user would, awaited, ended by SIGINT. */
#ifndef NSPROBE_TOOL_H
#define NSPROBE_TOOL_H

#include "spent.h"
#include <stdbool.h>
#include <sys/types.h>

/* How long a tool may take to attach, and to end. */
#define ATTACH_SECONDS 120
#define END_SECONDS 120
/* Calls before those that are measured: the first hit of a place costs more. */
#define WARM_UP 100
/* perf and SystemTap put in their breakpoints before they enable them. */
#define SETTLE_SECONDS 2
/*
 * Calls between two pauses, and a pause's length: in between every tracer's reader gets
 * through what is in the buffers. 25 stacks of 8 KB, which perf copies, are less than half
 * of its default buffer. A figure of a tracer that loses events would be that of a loss.
 */
#define PART_CALLS 25
#define PAUSE_US 5000

struct tool {
	pid_t pid;
	double started;
};

/* How a tool ended: when, after SIGINT, and what it took. */
struct end {
	double seconds;
	long peak_kb;
	int status;
	bool killed; /* it did not end in END_SECONDS */
};

/* The result, if it is no failure; else the end, with the reason. */
long must(long result, const char *what);
/* Seconds of the clock that never jumps. */
double now(void);
void nap(void);
/* A number of the environment. */
long number(const char *name, long otherwise);
/* On the first CPU from now on. */
void pin(void);

/* Calls in parts, with pauses between them that are not counted. */
struct spent in_parts(struct spent (*part)(void *what, long calls), void *what, long calls);

/*
 * Runs a shell command with its output in $OUT, and this process's id in $SUBJECT; in the
 * control group whose folder $TOOL_CGROUP names, if any.
 */
struct tool start_tool(const char *command);
/* Until that many probes are in, in seconds; exits with 3 when the tool never gets there. */
double wait_armed(struct tool tool, int (*armed)(void), int wanted);
/* Until none is left, in seconds, or END_SECONDS are over. */
double wait_disarmed(int (*armed)(void));
struct end end_tool(struct tool tool);

/* Puts the bare consumer at a place of this program's own file; the descriptor holds it. */
int attach_bare(unsigned int flags, unsigned long offset);
/* The same, of the file at a path. */
int attach_bare_to(const char *path, unsigned int flags, unsigned long offset);

#endif
