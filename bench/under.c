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
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_SECONDS 120
#define END_SECONDS 120
#define WARM_UP 100
/* Whoever puts in the breakpoints is not ready yet: perf and SystemTap enable later. */
#define SETTLE_SECONDS 2

/* What the processes tell each other. */
static volatile int *other_armed;

static long must(long result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static void nap(void) { usleep(2000); }

static long number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

static void pin(void)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	must(sched_setaffinity(0, sizeof(first), &first), "sched_setaffinity");
}

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

static void attach_bare(__u32 flags)
{
	int file = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "exe");

	for (int i = 0; i < SUBJECT_COUNT; i++) {
		int fd = must(open("/dev/nsprobe-bare", O_RDWR | O_CLOEXEC), "/dev/nsprobe-bare");
		struct bare_attach attach = {
			.fd = file, .flags = flags,
			.offset = file_offset(SUBJECTS[i].function),
		};

		must(ioctl(fd, BARE_ATTACH, &attach), "BARE_ATTACH");
	}
}

struct tool {
	pid_t pid;
	double started;
};

static struct tool start_tool(const char *command)
{
	struct tool tool = { .started = now() };

	tool.pid = must(fork(), "fork");
	if (tool.pid == 0) {
		const char *out = getenv("OUT");
		int fd = must(open(out ? out : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0644), "OUT");

		dup2(fd, 1);
		dup2(fd, 2);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	return tool;
}

static bool gone(pid_t pid)
{
	siginfo_t info = {};

	return waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Until the probes are in; exits with 3 when the tool ends before or never gets there. */
static double wait_armed(struct tool tool, int (*armed)(void), int wanted)
{
	while (armed() < wanted) {
		if (gone(tool.pid))
			fprintf(stderr, "the tool ended with %d of %d probes in\n", armed(), wanted);
		else if (now() - tool.started > ATTACH_SECONDS)
			fprintf(stderr, "%d of %d probes in after %d s\n", armed(), wanted, ATTACH_SECONDS);
		else {
			nap();
			continue;
		}
		kill(tool.pid, SIGKILL);
		exit(3);
	}
	return now() - tool.started;
}

struct end {
	double seconds;
	long peak_kb;
	int status;
};

static struct end end_tool(struct tool tool)
{
	double begun = now();
	struct rusage usage;
	struct end end = {};

	kill(tool.pid, SIGINT);
	while (!gone(tool.pid)) {
		if (now() - begun > END_SECONDS) {
			fprintf(stderr, "does not end in %d s\n", END_SECONDS);
			kill(tool.pid, SIGKILL);
		}
		nap();
	}
	must(wait4(tool.pid, &end.status, 0, &usage), "wait4");
	end.peak_kb = usage.ru_maxrss;
	end.seconds = now() - begun;
	return end;
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
		attach_bare(0);
	else if (!strcmp(command, "bare-session"))
		attach_bare(BARE_SESSION);
	else if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, filter ? armed_other : armed_subjects, SUBJECT_COUNT);
		sleep(SETTLE_SECONDS);
		if (filter)
			attach_bare(0);
	}
	pin();
	for (long round = 0; round < rounds; round++)
		for (int i = 0; i < SUBJECT_COUNT; i++) {
			struct spent spent;

			call(SUBJECTS[i].function, WARM_UP); /* the first hit of a place costs more */
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
