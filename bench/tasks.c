// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What events of tasks cost.
 *
 *   tasks cost NAME lives COUNT ROUNDS        forks, program starts and ends
 *   tasks cost NAME switches COUNT ROUNDS     switches between two processes on one CPU
 *   tasks dump TASKS ROUNDS                   dumps of so many threads, by nsprobe
 *
 * NAME is what is measured. "module" opens a session of its own, whose rings nothing reads
 * meanwhile, and "module-cpu" one that keeps CPU times; with any other name the tracer runs
 * beside it, with its reader. Prints "task NAME WHAT NANOSECONDS BYTES LOST" for the work of
 * each round: CPU time of all processes that have a part in it, by their own account, which is
 * what tracepoints add to; bytes an event, and what was lost, of the module's own. "due NAME
 * WHAT EVENTS" is what a tracer must have in the end, at least. Of dumps it prints
 * "dump TASKS NANOSECONDS BYTES".
 *
 * A tracer that has to have a probe gets never_called().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../include/nsprobe.h"

static void fail(const char *what)
{
	fprintf(stderr, "tasks: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

/* Of this process and all that have ended, in nanoseconds. */
static double spent(void)
{
	struct rusage all;
	struct timespec own;
	double sum;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	if (getrusage(RUSAGE_CHILDREN, &all))
		fail("getrusage");
	sum = (all.ru_utime.tv_sec + all.ru_stime.tv_sec) * 1e9;
	sum += (all.ru_utime.tv_usec + all.ru_stime.tv_usec) * 1e3;
	return sum + own.tv_sec * 1e9 + own.tv_nsec;
}

/* A session that records FLAGS of all tasks. */
static int session(__u32 flags)
{
	struct nsprobe_setup setup = { .size = sizeof(setup), .ring_bytes = 64 << 20 };
	struct nsprobe_tasks tasks = { .size = sizeof(tasks),
		.flags = flags | NSPROBE_TASKS_UNFILTERED,
		.cpu_rows = flags & NSPROBE_TASKS_CPU ? 1024 : 0 };
	int fd = open(NSPROBE_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, NSPROBE_IOC_SETUP, &setup) || ioctl(fd, NSPROBE_IOC_TASKS, &tasks))
		fail("the session");
	return fd;
}

static struct nsprobe_task_counters counted(int fd)
{
	struct nsprobe_task_counters counters = { .size = sizeof(counters),
		.cpu = NSPROBE_CPU_ALL };

	if (ioctl(fd, NSPROBE_IOC_TASK_COUNTERS, &counters))
		fail("TASK_COUNTERS");
	return counters;
}

/* Bytes in all records that wait in the rings. */
static double waiting(int fd)
{
	static char bytes[1 << 20];
	double sum = 0;
	long got;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while ((got = read(fd, bytes, sizeof(bytes))) > 0)
		sum += got;
	return sum;
}

/* For nsprobe record, which records events of tasks beside those of probes. */
__attribute__((noipa, used)) void never_called(void) { asm volatile("nop\nnop\nnop\nnop\n"); }

static void lives(long count)
{
	static char *const arguments[] = { "true", NULL };
	extern char **environ;
	pid_t child;

	for (long i = 0; i < count; i++) {
		if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ))
			fail("/bin/true");
		waitpid(child, NULL, 0);
	}
}

/* Each round trip is two switches. */
static void switches(long count)
{
	int to[2], from[2];
	char byte = 0;
	pid_t other;

	if (pipe(to) || pipe(from))
		fail("pipe");
	other = fork();
	if (other == 0) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1)
			if (write(from[1], &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	for (long i = 0; i < count / 2; i++)
		if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
			fail("the other process");
	close(to[1]);
	waitpid(other, NULL, 0);
	close(to[0]);
	close(from[0]);
	close(from[1]);
}

static int cost(const char *name, const char *what, long count, int rounds)
{
	int is_lives = !strcmp(what, "lives"), fd = -1;
	void (*work)(long) = is_lives ? lives : switches;
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first))
		fail("CPU 0");
	work(count / 10 + 2);
	printf("due %s %s %ld least\n", name, what, rounds * count * (is_lives ? 3 : 1));
	for (int round = 0; round < rounds; round++) {
		double begun, took, bytes = 0, lost = 0, events = 0;

		if (!strcmp(name, "module"))
			fd = session(is_lives ? NSPROBE_TASKS_LIFE : NSPROBE_TASKS_SWITCHES);
		if (!strcmp(name, "module-cpu"))
			fd = session(NSPROBE_TASKS_CPU);
		begun = spent();
		work(count);
		took = spent() - begun;
		if (fd >= 0) {
			struct nsprobe_task_counters all = counted(fd);

			for (int kind = 0; kind < NSPROBE_TASK_KINDS; kind++) {
				events += all.kinds[kind].recorded;
				lost += all.kinds[kind].lost;
			}
			bytes = events > 0 ? waiting(fd) / events : 0;
			close(fd);
			fd = -1;
		}
		printf("task %s %s %.0f %.1f %.0f\n", name, what, took / count, bytes, lost);
		fflush(stdout);
	}
	return 0;
}

static void *waits(void *nothing)
{
	pause();
	return nothing;
}

static int dump(long tasks, int rounds)
{
	static __u64 room[1 << 17];
	pthread_attr_t small;
	pthread_t thread;
	int fd = session(NSPROBE_TASKS_LIFE);

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (long i = 0; i < tasks; i++)
		if (pthread_create(&thread, &small, waits, NULL))
			fail("pthread_create");
	for (int round = 0; round < rounds; round++) {
		struct nsprobe_task_dump ask = { .size = sizeof(ask),
			.buffer = (unsigned long)room, .buffer_bytes = sizeof(room) };
		double begun = now(), count = 0, bytes = 0;

		do {
			if (ioctl(fd, NSPROBE_IOC_TASK_DUMP, &ask))
				fail("TASK_DUMP");
			count += ask.count;
			bytes += ask.written;
		} while (ask.next);
		printf("dump %.0f %.0f %.1f\n", count, now() - begun, bytes / count);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "cost"))
		return cost(argv[2], argv[3], atol(argv[4]), atoi(argv[5]));
	if (argc == 4 && !strcmp(argv[1], "dump"))
		return dump(atol(argv[2]), atoi(argv[3]));
	fprintf(stderr, "usage: tasks cost NAME lives|switches COUNT ROUNDS | dump TASKS ROUNDS\n");
	return 2;
}
