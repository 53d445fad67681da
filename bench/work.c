// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * CPU time that records cost beyond the traced thread: of the tool's processes with all that
 * they start, and of the machine as a whole.
 *
 * Prints "work PEER ROW CALLS thread-s tool-s machine-s start-s": of the calling process; of
 * the tool's processes, from when it has attached until it has ended and $AFTER is done; of
 * the machine meanwhile, all in all; of the tool's processes until it had attached.
 * The machine's time is what its CPUs had a task for (bare/bare.c): interrupts while they had
 * none are not in it.
 */
#define _GNU_SOURCE
#include "bare/bare.h"
#include "subject.h"
#include "tool.h"
#include "under.h"
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CGROUP "/sys/fs/cgroup/bench-tool"

/* Seconds of the processes in the tool's control group, those that have ended, too. */
static double tool_seconds(void)
{
	FILE *stat = fopen(CGROUP "/cpu.stat", "r");
	unsigned long long us;

	if (!stat || fscanf(stat, "usage_usec %llu", &us) != 1)
		err(1, CGROUP "/cpu.stat");
	fclose(stat);
	return us / 1e6;
}

/* Seconds in which the machine's CPUs had a task, since some moment. */
static double machine_seconds(int bare)
{
	__u64 idle_ns;

	must(ioctl(bare, BARE_IDLE, &idle_ns), "BARE_IDLE");
	return now() * sysconf(_SC_NPROCESSORS_ONLN) - idle_ns / 1e9;
}

static double own_seconds(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

static int armed_any(void) { return armed_subjects() > 0; }

int work(const char *peer, const char *row, const char *command)
{
	long calls = number("CALLS", 20000);
	const char *after = getenv("AFTER");
	int bare = must(open("/dev/nsprobe-bare", O_RDWR | O_CLOEXEC), "/dev/nsprobe-bare");
	double before, start, machine, own;
	struct tool tool = {};

	mkdir(CGROUP, 0755);
	before = tool_seconds();
	setenv("TOOL_CGROUP", CGROUP, 1);
	if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, armed_any, 1);
	}
	sleep(SETTLE_SECONDS);
	start = tool_seconds();
	machine = machine_seconds(bare);
	own = own_seconds();
	call_in_parts(SUBJECTS[0].function, 0, calls);
	own = own_seconds() - own;
	if (tool.pid)
		end_tool(tool);
	if (after && *after) {
		setenv("OUT", "/tmp/after.out", 1);
		tool = start_tool(after);
		must(waitpid(tool.pid, NULL, 0), "waitpid");
	}
	machine = machine_seconds(bare) - machine;
	printf("work %s %s %ld %.4f %.4f %.4f %.4f\n", peer, row, calls, own,
	       tool_seconds() - start, machine, start - before);
	printf("due %s work-%s %ld\n", peer, row, calls);
	fflush(stdout);
	/* What is in $AFTER's place now has ended: there is nothing left to end. */
	_exit(0);
}
