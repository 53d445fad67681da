// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer -pthread
//
//   many_threads THREADS CALLS
//
// Prints "ready PID", waits for a line of stdin, has every thread call
// in_thread CALLS times, prints "called N" and waits for the end of stdin.
#include "orders.h"

#include <pthread.h>
#include <stdlib.h>

static long calls;

__attribute__((noinline)) void in_thread(void)
{
	__asm__ volatile("");
}

static void *thread(void *nothing)
{
	for (long i = 0; i < calls; i++)
		in_thread();
	return nothing;
}

int main(int argc, char **argv)
{
	long threads = argc > 2 ? atol(argv[1]) : 1;
	pthread_t ids[threads];

	calls = argc > 2 ? atol(argv[2]) : 1;
	say_ready();
	getchar();
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, thread, NULL))
			return 1;
	for (long i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	say_called(threads * calls);
	while (getchar() != EOF)
		;
	return 0;
}
