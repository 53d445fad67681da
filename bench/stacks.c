// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs one tracer that takes stacks and, under its probe, calls of this program's own
 * function through stacks that it knows. There are two builds: with frame pointers and
 * without.
 *
 * usage: stacks cost PEER ROW TOOL             what a call costs, for each shape of stack
 *        stacks bytes PEER ROW ORDER CALLS TOOL  calls at full speed, and what it filled
 *        stacks libraries ROW COUNT TOOL       its start, with that many libraries mapped
 *
 * TOOL is a shell command, or "none" or "bare"; see under.c, also for the environment and
 * the exit status. The command finds this process's id in $SUBJECT. The program is to be
 * probed at deep_probed.
 *
 * Results: lines
 *   stack PEER ROW FRAMES ORDER thread-ns wall-ns
 *   due PEER ROW events                         what the tool has to report in the end
 *   bytes PEER ROW ORDER CALLS seconds ring-bytes table-bytes   (of nsprobe's session, or
 *                                                                of BPF ring buffers)
 *   libraries ROW libraries attach-seconds rows-seconds unwind-bytes peak-KB
 */
#define _GNU_SOURCE
#include "deep.h"
#include "libraries.h"
#include "tool.h"
#include "used.h"
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* When no more unwind rows have come for so long, there are all. */
#define QUIET_SECONDS 5

static const int FRAMES[] = { 17, 64 };

static struct tool armed_tool(const char *command)
{
	struct tool tool = start_tool(command);

	wait_armed(tool, armed_deep, 1);
	sleep(SETTLE_SECONDS);
	return tool;
}

/* A shape of stacks. */
struct shape {
	int frames;
	enum order order;
};

static struct spent part_of(void *of, long calls)
{
	struct shape *shape = of;

	return call_deep(deep_probed, shape->frames, shape->order, calls);
}

static void cost_of(const char *peer, const char *row, int frames, enum order order, long calls)
{
	struct shape shape = { frames, order };
	struct spent spent;

	in_parts(part_of, &shape, WARM_UP);
	spent = in_parts(part_of, &shape, calls);
	printf("stack %s %s %d %s %.1f %.1f\n", peer, row, frames, ORDER_NAMES[order],
	       spent.thread_ns / calls, spent.wall_ns / calls);
}

static int cost(const char *peer, const char *row, const char *command)
{
	long calls = number("CALLS", 1000), rounds = number("ROUNDS", 3), due = 0;
	struct tool tool = {};

	if (!strcmp(command, "bare"))
		attach_bare(0, deep_offset());
	else if (strcmp(command, "none"))
		tool = armed_tool(command);
	pin();
	for (long round = 0; round < rounds; round++)
		for (int f = 0; f < 2; f++)
			for (enum order order = SAME; order < ORDERS; order++)
				if (HAS_ORDER(order)) {
					cost_of(peer, row, FRAMES[f], order, calls);
					due += WARM_UP + calls;
				}
	printf("due %s %s %ld\n", peer, row, due);
	if (tool.pid)
		end_tool(tool);
	return 0;
}

static int bytes(const char *peer, const char *row, const char *order, long calls,
		 const char *command)
{
	enum order which = !strcmp(order, ORDER_NAMES[NEW]) ? NEW : SAME;
	struct tool tool = armed_tool(command);
	struct spent spent;
	struct used used;

	pin();
	spent = call_deep(deep_probed, FRAMES[0], which, calls);
	used = used_by(tool.pid);
	end_tool(tool);
	printf("bytes %s %s %s %ld %.2f %llu %llu\n", peer, row, order, calls,
	       spent.wall_ns / 1e9, used.ring_bytes, used.table_bytes);
	return 0;
}

static int libraries(const char *row, int count, const char *command)
{
	int mapped = map_libraries(count);
	struct tool tool = start_tool(command);
	double seconds = wait_armed(tool, armed_deep, 1), last = seconds;
	unsigned long long rows = 0;
	struct end end;

	call_deep(deep_probed, FRAMES[0], SAME, 1);
	/* Rows go on coming while it traces, until there are those of all files. */
	for (double at = last; at - last < QUIET_SECONDS; nap(), at = now() - tool.started) {
		unsigned long long there = unwind_bytes(tool.pid);

		if (there != rows)
			last = at;
		rows = there;
	}
	end = end_tool(tool);
	printf("libraries %s %d %.3f %.3f %llu %ld\n", row, mapped, seconds, last, rows, end.peak_kb);
	fflush(stdout);
	_exit(0); /* what the libraries do at an exit is no concern of ours */
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(verb, "cost") && argc == 5)
		return cost(argv[2], argv[3], argv[4]);
	if (!strcmp(verb, "bytes") && argc == 7)
		return bytes(argv[2], argv[3], argv[4], atol(argv[5]), argv[6]);
	if (!strcmp(verb, "libraries") && argc == 5)
		return libraries(argv[2], atoi(argv[3]), argv[4]);
	errx(2, "see the top of stacks.c");
}
