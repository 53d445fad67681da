// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "tool.h"
#include "bare/bare.h"
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

long must(long result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

void nap(void) { usleep(2000); }

long number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

void pin(void)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	must(sched_setaffinity(0, sizeof(first), &first), "sched_setaffinity");
}

struct spent in_parts(struct spent (*part)(void *what, long calls), void *what, long calls)
{
	struct spent all = {};

	for (long left = calls; left > 0; left -= PART_CALLS) {
		struct spent spent = part(what, left < PART_CALLS ? left : PART_CALLS);

		all.thread_ns += spent.thread_ns;
		all.wall_ns += spent.wall_ns;
		usleep(PAUSE_US);
	}
	return all;
}

/* This process, which is to become the tool, and all that it starts. */
static void enter_cgroup(const char *folder)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	fd = must(open(path, O_WRONLY | O_CLOEXEC), path);
	must(write(fd, "0", 1), path);
	close(fd);
}

/* The tool that runs now, and whose child it is. */
static struct tool running;
static pid_t runner;

/* A failure ends it, too, in its own way: a tool that goes on would be measured with the next. */
static void end_running(void)
{
	if (running.pid && getpid() == runner)
		end_tool(running);
}

struct tool start_tool(const char *command)
{
	struct tool tool = { .started = now() };
	char subject[16];

	if (!runner)
		atexit(end_running);
	runner = getpid();
	snprintf(subject, sizeof(subject), "%d", runner);
	tool.pid = must(fork(), "fork");
	if (tool.pid == 0) {
		const char *out = getenv("OUT");
		int fd = must(open(out ? out : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0644), "OUT");

		/*
		 * Not SIGKILL: what is killed while it holds probes cannot take them out, and
		 * the kernel leaves them there for good.
		 */
		prctl(PR_SET_PDEATHSIG, SIGINT);
		if (getenv("TOOL_CGROUP"))
			enter_cgroup(getenv("TOOL_CGROUP"));
		setenv("SUBJECT", subject, 1);
		dup2(fd, 1);
		dup2(fd, 2);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	running = tool;
	return tool;
}

static bool gone(pid_t pid)
{
	siginfo_t info = {};

	return waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

double wait_armed(struct tool tool, int (*armed)(void), int wanted)
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
		end_tool(tool);
		exit(3);
	}
	return now() - tool.started;
}

double wait_disarmed(int (*armed)(void))
{
	double begun = now();

	while (armed() > 0 && now() - begun < END_SECONDS)
		nap();
	return now() - begun;
}

struct end end_tool(struct tool tool)
{
	double begun = now();
	struct rusage usage;
	struct end end = {};

	kill(tool.pid, SIGINT);
	while (!gone(tool.pid)) {
		if (!end.killed && now() - begun > END_SECONDS) {
			fprintf(stderr, "does not end in %d s\n", END_SECONDS);
			kill(tool.pid, SIGKILL);
			end.killed = true;
		}
		nap();
	}
	running.pid = 0;
	must(wait4(tool.pid, &end.status, 0, &usage), "wait4");
	end.peak_kb = usage.ru_maxrss;
	end.seconds = now() - begun;
	return end;
}

int attach_bare(unsigned int flags, unsigned long offset)
{
	return attach_bare_to("/proc/self/exe", flags, offset);
}

int attach_bare_to(const char *path, unsigned int flags, unsigned long offset)
{
	int file = must(open(path, O_RDONLY | O_CLOEXEC), path);
	int fd = must(open("/dev/nsprobe-bare", O_RDWR | O_CLOEXEC), "/dev/nsprobe-bare");
	struct bare_attach attach = { .fd = file, .flags = flags, .offset = offset };

	must(ioctl(fd, BARE_ATTACH, &attach), "BARE_ATTACH");
	close(file);
	return fd;
}
