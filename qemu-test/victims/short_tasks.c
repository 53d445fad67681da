// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -pthread
//
// Tasks that call `in_task` once, and end.
//
// Lines of stdin: "N thread" or "N vfork", N of them, one after the other. Prints "ready PID"
// first and "called N" (in all) after each line.
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long called;

__attribute__((noipa)) long in_task(void)
{
	return called++;
}

static void *thread(void *nothing)
{
	in_task();
	return nothing;
}

static void one_thread(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, thread, NULL) != 0 || pthread_join(id, NULL) != 0)
		errx(1, "pthread_create");
}

/* It has our memory, and so our count. */
static void one_child(void)
{
	int status;
	pid_t child = vfork();

	if (child == 0) {
		in_task();
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		err(1, "vfork");
}

int main(void)
{
	char what[16];
	long count;

	setlinebuf(stdout);
	printf("ready %d\n", getpid());
	while (scanf("%ld %15s", &count, what) == 2) {
		for (; count > 0; count--)
			strcmp(what, "vfork") ? one_thread() : one_child();
		printf("called %ld\n", called);
	}
	return 0;
}
