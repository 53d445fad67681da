// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a call costs when threads meet at one probe, and when its probe is one of many.
 *
 * Results, one line a round:
 *   threads PEER ROW COUNT thread-ns wall-ns   of a call: CPU time; by the clock, all threads
 *                                              together (fewer when they run side by side)
 *   crowd PEER COUNT thread-ns wall-ns
 */
#define _GNU_SOURCE
#include "subject.h"
#include "tool.h"
#include "under.h"
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 64

static pthread_barrier_t begins;

struct caller {
	pthread_t thread;
	long calls;
	struct spent spent;
};

static void *calls_on(void *of)
{
	struct caller *caller = of;

	call(SUBJECTS[0].function, 0, WARM_UP);
	pthread_barrier_wait(&begins);
	caller->spent = call(SUBJECTS[0].function, 0, caller->calls);
	return NULL;
}

static void one_round(const char *peer, const char *row, int count, long calls)
{
	static struct caller all[THREADS_MAX];
	double thread_ns = 0, wall_ns;

	pthread_barrier_init(&begins, NULL, count + 1);
	for (int i = 0; i < count; i++) {
		all[i].calls = calls / count;
		if (pthread_create(&all[i].thread, NULL, calls_on, &all[i]))
			errx(1, "pthread_create");
	}
	pthread_barrier_wait(&begins);
	wall_ns = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < count; i++) {
		pthread_join(all[i].thread, NULL);
		thread_ns += all[i].spent.thread_ns;
	}
	wall_ns = clock_ns(CLOCK_MONOTONIC) - wall_ns;
	pthread_barrier_destroy(&begins);
	printf("threads %s %s %d %.1f %.1f\n", peer, row, count, thread_ns / (calls / count * count),
	       wall_ns / (calls / count * count));
}

static int armed_any(void) { return armed_subjects() > 0; }

int threads(const char *peer, const char *row, int count, const char *command)
{
	long calls = number("CALLS", 16000), rounds = number("ROUNDS", 3);
	struct tool tool = {};

	if (count < 1 || count > THREADS_MAX || calls < count)
		errx(2, "1 to %d threads, and as many calls", THREADS_MAX);
	if (!strcmp(command, "bare"))
		attach_bare(0, file_offset(SUBJECTS[0].function));
	else if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, armed_any, 1);
		sleep(SETTLE_SECONDS);
	}
	for (long round = 0; round < rounds; round++) {
		one_round(peer, row, count, calls);
		/* For the reader: no pauses while threads are to meet. */
		sleep(1);
	}
	printf("due %s threads-%s-%d %ld\n", peer, row, count,
	       rounds * (calls / count * count + count * WARM_UP));
	if (tool.pid)
		end_tool(tool);
	return 0;
}

static int wanted;
static int armed_wanted(void) { return armed_many(wanted); }

int crowd(const char *peer, int count, const char *command)
{
	long calls = number("CALLS", 3000), rounds = number("ROUNDS", 3);
	struct tool tool = {};

	wanted = count;
	if (!strcmp(command, "bare"))
		for (int i = 0; i < count; i++)
			attach_bare(0, file_offset(one_of_many(i)));
	else if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, armed_wanted, count);
		sleep(SETTLE_SECONDS);
	}
	pin();
	for (long round = 0; round < rounds; round++) {
		struct spent spent;

		call_in_parts(one_of_many(0), 0, WARM_UP);
		spent = call_in_parts(one_of_many(0), 0, calls);
		printf("crowd %s %d %.1f %.1f\n", peer, count, spent.thread_ns / calls,
		       spent.wall_ns / calls);
	}
	printf("due %s crowd-%d %ld\n", peer, count, rounds * (calls + WARM_UP));
	if (tool.pid)
		end_tool(tool);
	return 0;
}
