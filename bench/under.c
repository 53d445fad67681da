// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs one tracer and, under its probes, calls of this program's own functions.
 *
 * usage: under cost  PEER ROW TOOL     what a call costs, for each function
 *        under burst PEER CALLS TOOL   calls at full speed, then the end
 *        under many  PEER COUNT TOOL   attach and detach of COUNT probes
 *        under one   PEER TOOL         a session of one probe, start to end
 *        under places                  functions and their offsets in this file
 *
 * TOOL is a shell command, or "none", "bare" or "bare-session". When its
 * probes are in the text of this program it has attached; SIGINT ends it. The
 * command finds the process id of an idle process of this program in $OTHER; a
 * ROW that begins with "filter" waits for the probes there, and puts the bare
 * consumer here.
 *
 * Environment: CALLS and ROUNDS of 'cost'; OUT, the file for TOOL's output.
 * Results: lines "cost PEER ROW FUNCTION thread-ns wall-ns", and of the others
 * "many|one|burst PEER …" as printed below. Exit status 3: no probes in time.
 */
#define _GNU_SOURCE
#include "bare/bare.h"
#include "subject.h"
#include "tool.h"
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* What the processes tell each other. */
static volatile int *other_armed;

/* Another process of this program that only says how many of its places are armed. */
static pid_t start_other(void)
{
	pid_t pid = must(fork(), "fork");
	char text[16];

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;; nap())
			*other_armed = armed_subjects();
	}
	snprintf(text, sizeof(text), "%d", pid);
	setenv("OTHER", text, 1);
	return pid;
}

static void attach_bare_everywhere(__u32 flags)
{
	for (int i = 0; i < SUBJECT_COUNT; i++)
		attach_bare(flags, file_offset(SUBJECTS[i].function));
}

static int armed_other(void) { return *other_armed; }
static int many_wanted;
static int armed_wanted(void) { return armed_many(many_wanted); }
static int armed_any(void) { return armed_subjects() > 0; }

static int cost(const char *peer, const char *row, const char *command)
{
	bool filter = strncmp(row, "filter", 6) == 0;
	long calls = number("CALLS", 5000), rounds = number("ROUNDS", 3);
	struct tool tool = {};

	start_other();
	if (!strcmp(command, "bare"))
		attach_bare_everywhere(0);
	else if (!strcmp(command, "bare-session"))
		attach_bare_everywhere(BARE_SESSION);
	else if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, filter ? armed_other : armed_subjects, SUBJECT_COUNT);
		sleep(SETTLE_SECONDS);
		if (filter)
			attach_bare_everywhere(0);
	}
	pin();
	for (long round = 0; round < rounds; round++)
		for (int i = 0; i < SUBJECT_COUNT; i++) {
			struct spent spent;

			call(SUBJECTS[i].function, WARM_UP);
			spent = call(SUBJECTS[i].function, calls);
			printf("cost %s %s %s %.1f %.1f\n", peer, row, SUBJECTS[i].name,
			       spent.thread_ns / calls, spent.wall_ns / calls);
		}
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
	spent = call(SUBJECTS[0].function, calls);
	struct end end = end_tool(tool);
	printf("burst %s %ld %.2f %.2f\n", peer, calls, spent.wall_ns / 1e9, end.seconds);
	return 0;
}

static int attach_many(const char *peer, int count, const char *command)
{
	many_wanted = count;
	struct tool tool = start_tool(command);
	double attach = wait_armed(tool, armed_wanted, count);
	double begun = now(), last;

	kill(tool.pid, SIGINT);
	while (armed_wanted() > 0 && now() - begun < END_SECONDS)
		nap();
	last = now() - begun;
	struct end end = end_tool(tool);
	/* Until it has attached; from SIGINT to the last breakpoint, and to its end. */
	printf("many %s %d %.3f %.3f %.3f %ld\n", peer, count, attach, last, last + end.seconds,
	       end.peak_kb);
	return 0;
}

static int one(const char *peer, const char *command)
{
	struct tool tool = start_tool(command);
	double attach = wait_armed(tool, armed_any, 1);

	call(SUBJECTS[0].function, 1);
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
	other_armed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (other_armed == MAP_FAILED)
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
	errx(2, "see the top of under.c");
}
