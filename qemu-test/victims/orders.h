/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What programs say that take orders of tests: "ready PID", and after each order "called N".
 * Most orders are a number of calls, on a line of stdin. The calls themselves are made by the
 * program's own functions, so that nothing of this is in their stacks.
 */
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static inline void say_ready(void)
{
	setlinebuf(stdout);
	printf("ready %d\n", getpid());
}

static inline void say_called(long count)
{
	printf("called %ld\n", count);
}

/* The next number of stdin; false at its end. */
static inline bool is_told(long *count)
{
	return scanf("%ld", count) == 1;
}
