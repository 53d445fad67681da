// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs one tracer and, under its probes, calls of this program's own functions.
 *
 * usage: under cost  PEER ROW TOOL           what a call costs, for each function
 *        under burst PEER CALLS TOOL         calls at full speed, then the end
 *        under many  PEER COUNT TOOL         attach and detach of COUNT probes
 *        under one   PEER TOOL               a session of one probe, start to end
 *        under work  PEER ROW TOOL           CPU time of all who have to do with records
 *        under threads PEER ROW COUNT TOOL   what a call costs when COUNT threads make it
 *        under crowd PEER COUNT TOOL         what a call costs when COUNT probes are there
 *        under places                        functions and their offsets in this file
 *
 * TOOL is a shell command, or "none", "bare" or "bare-session". When its
 * probes are in the text of this program it has attached; SIGINT ends it. The
 * command finds the process id of a second process of this program in $OTHER; a
 * ROW that begins with "filter" waits for the probes there, and puts the bare
 * consumer here. For the ROW "container" each of 200 processes is in a pid namespace of its
 * own, and one of them makes the measured calls.
 *
 * That a row is what its name says can be seen from what the tool reports in the end:
 * calls before the measured ones have the argument 1, which "predicate" lets through, and
 * the second process calls each function, which "filter" lets through.
 *
 * Environment: CALLS and ROUNDS; OUT, the file for TOOL's output; AFTER, the command of
 * 'work' that makes text of what TOOL has stored.
 * Results: lines
 *   cost PEER ROW FUNCTION thread-ns wall-ns      of a call; one line a round
 *   due PEER ROW events                           what the tool has to report in the end
 *   burst PEER CALLS seconds end-seconds
 *   many PEER COUNT attach-seconds disarmed-seconds end-seconds peak-KB killed
 *   one PEER attach-seconds seconds peak-KB
 *   work PEER ROW CALLS ...                       see work.c
 *   threads|crowd PEER ...                        see crowd.c
 * Exit status 3: no probes in time.
 */
#define _GNU_SOURCE
#include "under.h"
#include "bare/bare.h"
#include "subject.h"
#include "tool.h"
#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The pid namespaces that the row "container" has, one process in each. */
#define CONTAINERS 200

/* What the processes tell each other. */
static volatile struct {
	int armed; /* places that are armed in the second */
	int calls; /* what it is to call */
	bool measures; /* whether it is to make the measured calls */
} *other;

static void measure_calls(const char *peer, const char *row);

static bool is_contained(const char *row)
{
	return !strcmp(row, "container");
}

/* Says how many places are armed here, and calls when told. */
static void be_other(const char *peer, const char *row)
{
	for (;; nap()) {
		other->armed = armed_subjects();
		for (int i = 0; other->calls && i < SUBJECT_COUNT; i++)
			call(SUBJECTS[i].function, 0, other->calls);
		other->calls = 0;
		if (other->measures)
			measure_calls(peer, row);
		other->measures = false;
	}
}

/* A second process of this program; where it is contained, with other processes that are. */
static void start_other(const char *peer, const char *row)
{
	bool contained = is_contained(row);
	char text[16];
	pid_t pid;

	for (int i = 1; contained && i < CONTAINERS; i++)
		if (must(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0), "clone") == 0)
			for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
				pause();
	pid = must(syscall(SYS_clone, (contained ? CLONE_NEWPID : 0) | SIGCHLD, 0, 0, 0, 0), "clone");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		be_other(peer, row);
	}
	snprintf(text, sizeof(text), "%d", pid);
	setenv("OTHER", text, 1);
}

static void let_other_call(int calls)
{
	for (other->calls = calls; other->calls;)
		nap();
}

static void attach_bare_everywhere(__u32 flags)
{
	for (int i = 0; i < SUBJECT_COUNT; i++)
		attach_bare(flags, file_offset(SUBJECTS[i].function));
}

static int armed_other(void) { return other->armed; }
static int many_wanted;
static int armed_wanted(void) { return armed_many(many_wanted); }
static int armed_any(void) { return armed_subjects() > 0; }

struct what {
	void (*function)(long);
	long argument;
};

static struct spent part_of(void *of, long calls)
{
	struct what *what = of;

	return call(what->function, what->argument, calls);
}

struct spent call_in_parts(void (*function)(long), long argument, long calls)
{
	struct what what = { function, argument };

	return in_parts(part_of, &what, calls);
}

static void measure_calls(const char *peer, const char *row)
{
	long calls = number("CALLS", 5000), rounds = number("ROUNDS", 3);

	pin();
	for (long round = 0; round < rounds; round++)
		for (int i = 0; i < SUBJECT_COUNT; i++) {
			struct spent spent;

			call_in_parts(SUBJECTS[i].function, 1, WARM_UP);
			spent = call_in_parts(SUBJECTS[i].function, 0, calls);
			printf("cost %s %s %s %.1f %.1f\n", peer, row, SUBJECTS[i].name,
			       spent.thread_ns / calls, spent.wall_ns / calls);
		}
}

static int cost(const char *peer, const char *row, const char *command)
{
	bool filter = strncmp(row, "filter", 6) == 0, predicate = !strcmp(row, "predicate");
	bool contained = is_contained(row);
	long calls = number("CALLS", 5000), rounds = number("ROUNDS", 3);
	long each = WARM_UP + (predicate ? 0 : calls);
	struct tool tool = {};

	start_other(peer, row);
	if (!strcmp(command, "bare"))
		attach_bare_everywhere(0);
	else if (!strcmp(command, "bare-session"))
		attach_bare_everywhere(BARE_SESSION);
	else if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, filter || contained ? armed_other : armed_subjects, SUBJECT_COUNT);
		sleep(SETTLE_SECONDS);
		if (filter)
			attach_bare_everywhere(0);
	}
	if (contained)
		for (other->measures = true; other->measures;)
			nap();
	else
		measure_calls(peer, row);
	let_other_call(filter ? WARM_UP : 0);
	printf("due %s %s %ld\n", peer, row,
	       SUBJECT_COUNT * (filter ? WARM_UP : rounds * each));
	if (tool.pid)
		end_tool(tool);
	return 0;
}

static int burst(const char *peer, long calls, const char *command)
{
	struct tool tool = start_tool(command);
	struct spent spent;

	wait_armed(tool, armed_any, 1);
	sleep(SETTLE_SECONDS);
	pin();
	spent = call(SUBJECTS[0].function, 0, calls);
	struct end end = end_tool(tool);
	printf("burst %s %ld %.2f %.2f\n", peer, calls, spent.wall_ns / 1e9, end.seconds);
	return 0;
}

static int attach_many(const char *peer, int count, const char *command)
{
	many_wanted = count;
	struct tool tool = start_tool(command);
	double attach = wait_armed(tool, armed_wanted, count), last;

	kill(tool.pid, SIGINT);
	last = wait_disarmed(armed_wanted);
	struct end end = end_tool(tool);
	/* Until it has attached; from SIGINT to the last breakpoint, and to its end. */
	printf("many %s %d %.3f %.3f %.3f %ld %d\n", peer, count, attach, last, last + end.seconds,
	       end.peak_kb, end.killed);
	return 0;
}

static int one(const char *peer, const char *command)
{
	struct tool tool = start_tool(command);
	double attach = wait_armed(tool, armed_any, 1);

	call(SUBJECTS[0].function, 0, 1);
	struct end end = end_tool(tool);
	printf("one %s %.3f %.3f %ld\n", peer, attach, attach + end.seconds, end.peak_kb);
	return 0;
}

static int places(void)
{
	for (int i = 0; i < SUBJECT_COUNT; i++)
		printf("%s 0x%lx\n", SUBJECTS[i].name, file_offset(SUBJECTS[i].function));
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (other == MAP_FAILED)
		err(1, "mmap");
	remember_text();
	if (!strcmp(verb, "places"))
		return places();
	if (!strcmp(verb, "cost") && argc == 5)
		return cost(argv[2], argv[3], argv[4]);
	if (!strcmp(verb, "burst") && argc == 5)
		return burst(argv[2], atol(argv[3]), argv[4]);
	if (!strcmp(verb, "many") && argc == 5)
		return attach_many(argv[2], atoi(argv[3]), argv[4]);
	if (!strcmp(verb, "one") && argc == 4)
		return one(argv[2], argv[3]);
	if (!strcmp(verb, "work") && argc == 5)
		return work(argv[2], argv[3], argv[4]);
	if (!strcmp(verb, "threads") && argc == 6)
		return threads(argv[2], argv[3], atoi(argv[4]), argv[5]);
	if (!strcmp(verb, "crowd") && argc == 5)
		return crowd(argv[2], atoi(argv[3]), argv[4]);
	errx(2, "see the top of under.c");
}
