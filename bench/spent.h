/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What some calls cost: in the thread's own time and by the clock. */
#ifndef NSPROBE_SPENT_H
#define NSPROBE_SPENT_H

#include <time.h>

struct spent {
	double thread_ns;
	double wall_ns;
};

static inline double clock_ns(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

/* Before the calls. */
static inline void begin(struct spent *spent)
{
	spent->wall_ns = clock_ns(CLOCK_MONOTONIC);
	spent->thread_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* After them. */
static inline void finish(struct spent *spent)
{
	spent->thread_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - spent->thread_ns;
	spent->wall_ns = clock_ns(CLOCK_MONOTONIC) - spent->wall_ns;
}

#endif
