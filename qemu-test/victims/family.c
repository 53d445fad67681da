// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer -pthread
//
// Calls member() from where it is told to. Each line of stdin is a letter and a
// number of calls:
//
//   m  the main thread              t  a second thread that was there from the start
//   n  a new thread                 c  a child of the main thread
//   d  a child of the second        g  a grandchild of the main thread
//   e  a child that runs this program anew
//   x  a new thread of the second
//   s  as many new threads, one after the other: a call of each
//
// Prints "ready PID" first, and "called N" when N calls are done in all.
#include "orders.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static char what;
static long count;
static sem_t wanted, done;
static char *program;

__attribute__((noinline)) void member(void)
{
	__asm__ volatile("");
}

static void calls(void)
{
	for (long i = 0; i < count; i++)
		member();
}

static void fork_and_call(int generations)
{
	char number[24];
	pid_t child = fork();

	if (child == 0) {
		if (what == 'e') {
			snprintf(number, sizeof(number), "%ld", count);
			execl(program, program, number, NULL);
			_exit(1);
		}
		if (generations > 1)
			fork_and_call(generations - 1);
		else
			calls();
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void *fresh(void *nothing)
{
	calls();
	return nothing;
}

static void make_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fresh, NULL))
		exit(1);
	pthread_join(thread, NULL);
}

static void make_threads(long threads)
{
	count = 1;
	for (long i = 0; i < threads; i++)
		make_thread();
	count = threads;
}

static void *second(void *nothing)
{
	for (;;) {
		while (sem_wait(&wanted))
			;
		if (what == 'd')
			fork_and_call(1);
		else if (what == 'x')
			make_thread();
		else
			calls();
		sem_post(&done);
	}
	return nothing;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	long called = 0;

	program = argv[0];
	if (argc > 1) {
		count = atol(argv[1]);
		calls();
		return 0;
	}
	sem_init(&wanted, 0, 0);
	sem_init(&done, 0, 0);
	if (pthread_create(&thread, NULL, second, NULL))
		return 1;
	say_ready();
	while (scanf(" %c %ld", &what, &count) == 2) {
		switch (what) {
		case 'm':
			calls();
			break;
		case 't':
		case 'd':
		case 'x':
			sem_post(&wanted);
			while (sem_wait(&done))
				;
			break;
		case 'n':
			make_thread();
			break;
		case 's':
			make_threads(count);
			break;
		default:
			fork_and_call(what == 'g' ? 2 : 1);
		}
		say_called(called += count);
	}
	return 0;
}
