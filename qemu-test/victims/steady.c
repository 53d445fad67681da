// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -shared -fPIC
//
// Preloaded into a program, makes each of its runs the same: the time goes on by a microsecond
// whenever it is asked for, timers never end, numbers that look random are the same ones, so
// is the process's own number, and the end of a child comes as no signal.
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int64_t microseconds(void)
{
	static int64_t asked;

	return 1700000000000000 + __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int64_t us = microseconds();

	(void)clock;
	now->tv_sec = us / 1000000;
	now->tv_nsec = us % 1000000 * 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int64_t us = microseconds();

	(void)zone;
	now->tv_sec = us / 1000000;
	now->tv_usec = us % 1000000;
	return 0;
}

time_t time(time_t *now)
{
	time_t seconds = microseconds() / 1000000;

	if (now != NULL)
		*now = seconds;
	return seconds;
}

int setitimer(__itimer_which_t which, const struct itimerval *restrict next,
	      struct itimerval *restrict before)
{
	(void)which;
	(void)next;
	if (before != NULL)
		memset(before, 0, sizeof(*before));
	return 0;
}

/* gdb comes to a breakpoint twice, and counts both, when a signal comes as it steps over it. */
__attribute__((constructor)) static void block_end_of_child(void)
{
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
}

static void fill(unsigned char *out, size_t bytes)
{
	static uint64_t state = 1;

	for (size_t i = 0; i < bytes; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		out[i] = state >> 56;
	}
}

ssize_t getrandom(void *out, size_t bytes, unsigned int flags)
{
	(void)flags;
	fill(out, bytes);
	return bytes;
}

int getentropy(void *out, size_t bytes)
{
	fill(out, bytes);
	return 0;
}

/* Those of libcrypto, which mix in what the processor counts. */
int RAND_status(void)
{
	return 1;
}

int RAND_poll(void)
{
	return 1;
}

int RAND_bytes(unsigned char *out, int bytes)
{
	fill(out, bytes);
	return 1;
}

pid_t getpid(void)
{
	return 4242;
}
