// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-optimize-sibling-calls -fno-ipa-cp -pthread
//
// Functions that are left in other ways than by a plain return.
//
//   leaves WHAT TIMES
//
// WHAT is `jump` (longjmp over `passed`), `deep` (`recurse` calls itself 100 deep),
// `vfork` (`passed` runs in a child of vfork, which then execs), `threads` (`passed`
// runs in four threads at once), `exec` (a child execs within `passed`, and calls it once
// more then: `once`) or `clone` (two processes in one memory run `passed` at once). Prints "called N" in the end, with the calls of
// `passed` or `recurse` that began, and "returned N", with those that returned.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls that began, and that returned. */
struct calls {
	long began, returned;
};

static volatile long sum;
static jmp_buf back;

__attribute__((noipa)) long leaf(long how)
{
	if (how == 2)
		longjmp(back, 1);
	if (how == 4)
		execl("/proc/self/exe", "leaves", "once", "1", (char *)NULL);
	return sum = sum + how;
}

__attribute__((noipa)) long passed(long how)
{
	long result = leaf(how);

	sum = sum + result;
	return how + 1;
}

__attribute__((noipa)) long recurse(long depth)
{
	if (depth == 0)
		return 0;
	return recurse(depth - 1) + 1;
}

static struct calls jumps(void)
{
	if (setjmp(back) == 0) {
		passed(2);
		abort();
	}
	return (struct calls){ 2, passed(3) == 4 };
}

static struct calls deep(void)
{
	if (recurse(99) != 99)
		abort();
	return (struct calls){ 100, 100 };
}

static void wait_for(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		abort();
}

static struct calls vforks(void)
{
	pid_t child = vfork();

	if (child == 0) {
		passed(3);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	wait_for(child);
	return (struct calls){ 1, 1 };
}

static void *in_thread(void *unused)
{
	(void)unused;
	for (int i = 0; i < 25; i++)
		if (passed(3) != 4)
			abort();
	return NULL;
}

static struct calls threads(void)
{
	pthread_t all[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&all[i], NULL, in_thread, NULL))
			abort();
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
	return (struct calls){ 100, 100 };
}

static struct calls execs(void)
{
	pid_t child = fork();

	if (child == 0) {
		passed(4);
		_exit(1);
	}
	wait_for(child);
	return (struct calls){ 2, 1 };
}

static struct calls once(void)
{
	_exit(passed(3) != 4);
}

static int in_clone(void *unused)
{
	in_thread(unused);
	return 0;
}

static struct calls clones(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t child = clone(in_clone, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);

	in_thread(NULL);
	wait_for(child);
	return (struct calls){ 50, 50 };
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		struct calls (*run)(void);
	} ways[] = {
		{ "jump", jumps }, { "deep", deep }, { "vfork", vforks }, { "threads", threads },
		{ "exec", execs }, { "once", once }, { "clone", clones },
	};
	struct calls all = { 0, 0 };

	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (argc != 3 || strcmp(argv[1], ways[i].name))
			continue;
		for (long times = atol(argv[2]); times > 0; times--) {
			struct calls more = ways[i].run();

			all.began += more.began;
			all.returned += more.returned;
		}
		printf("called %ld\nreturned %ld\n", all.began, all.returned);
		return 0;
	}
	fprintf(stderr, "usage: leaves jump|deep|vfork|threads|exec|clone TIMES\n");
	return 2;
}
