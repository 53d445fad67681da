// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -pthread
//
//   task_storm NAMESPACES PROCESSES THREADS
//
// In each of so many pid namespaces, one after the other in twos, makes so many processes,
// every fourth by a child of its own, and so many threads in one of them. Names its tasks
// "storm". At the end prints how many of both it has made in all, without the makers of
// namespaces: "PROCESSES THREADS".
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static long *made;

static void fail(const char *what)
{
	perror(what);
	_exit(9);
}

static void *thread(void *nothing)
{
	return nothing;
}

static void make_threads(int count)
{
	pthread_t ids[16];

	for (int done = 0; done < count;) {
		int now = count - done < 16 ? count - done : 16;

		for (int i = 0; i < now; i++) {
			if (pthread_create(&ids[i], NULL, thread, NULL))
				fail("pthread_create");
			__atomic_add_fetch(&made[1], 1, __ATOMIC_RELAXED);
		}
		for (int i = 0; i < now; i++)
			pthread_join(ids[i], NULL);
		done += now;
	}
}

static void make_processes(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (child == 0) {
			if (i % 4 == 3) {
				pid_t grandchild = fork();

				if (grandchild < 0)
					fail("fork");
				if (grandchild == 0)
					_exit(0);
				__atomic_add_fetch(&made[0], 1, __ATOMIC_RELAXED);
			}
			_exit(0);
		}
		__atomic_add_fetch(&made[0], 1, __ATOMIC_RELAXED);
		/* Init of the namespace reaps grandchildren as well. */
		if (i % 8 == 7)
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
	}
	while (wait(NULL) > 0)
		;
}

/* The first process of a namespace. */
static int begin(void *counts)
{
	int *count = counts;

	prctl(PR_SET_NAME, "storm");
	make_processes(count[0]);
	make_threads(count[1]);
	_exit(0);
}

int main(int argc, char **argv)
{
	int namespaces = argc > 3 ? atoi(argv[1]) : 1;
	int count[2] = { argc > 3 ? atoi(argv[2]) : 1, argc > 3 ? atoi(argv[3]) : 1 };
	int running = 0;

	made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		fail("mmap");
	for (int i = 0; i < namespaces; i++) {
		char *stack = malloc(65536);

		if (!stack || clone(begin, stack + 65536, CLONE_NEWPID | SIGCHLD, count) < 0)
			fail("clone");
		if (++running == 2 && wait(NULL) > 0)
			running--;
	}
	while (wait(NULL) > 0)
		;
	printf("%ld %ld\n", made[0], made[1]);
	return 0;
}
