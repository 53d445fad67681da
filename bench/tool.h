/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A tracer that is measured: started as a user would, awaited, ended by SIGINT. */
#ifndef NSPROBE_TOOL_H
#define NSPROBE_TOOL_H

#include <sys/types.h>

/* How long whoever was started may take. */
#define ATTACH_SECONDS 120
#define END_SECONDS 120
/* Calls before those that are measured: the first hit of a place costs more. */
#define WARM_UP 100
/* Whoever puts in the breakpoints is not ready yet: perf and SystemTap enable later. */
#define SETTLE_SECONDS 2

struct tool {
	pid_t pid;
	double started;
};

/* How a tool ended: when, after SIGINT, and what it took. */
struct end {
	double seconds;
	long peak_kb;
	int status;
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

/* Runs a shell command with its output in $OUT, and this process's id in $SUBJECT. */
struct tool start_tool(const char *command);
/* Until so many probes are in, in seconds; exits with 3 when the tool never gets there. */
double wait_armed(struct tool tool, int (*armed)(void), int wanted);
struct end end_tool(struct tool tool);

/* Puts the bare consumer at a place of this program's own file; the descriptor holds it. */
int attach_bare(unsigned int flags, unsigned long offset);

#endif
