// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -pthread
//
//   task_steps STEP
//
// Does something that happens to tasks seldom, and prints the numbers that tell it:
//
//   exec-in-thread   a second thread executes /bin/true: "PID TID"
//   leader-first     the first thread ends with 3, then a second one the process with 5
//   other-exit       a second thread ends with 3, then the process with 6: "PID TID"
//   rename-sibling   the first thread names a second one "renamed-one": "PID TID"
//   many N           N threads, and "ready"; waits for the end of stdin
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static sem_t begun, over;
static pthread_t first;
static pid_t tid;

static void *executes(void *nothing)
{
	printf("%d %d\n", getpid(), gettid());
	fflush(stdout);
	execl("/bin/true", "true", NULL);
	return nothing;
}

static void *ends_all(void *nothing)
{
	// The kernel says so after its tracepoint: that end certainly is before this one.
	pthread_join(first, NULL);
	syscall(SYS_exit_group, 5);
	return nothing;
}

static void *ends_itself(void *nothing)
{
	tid = gettid();
	sem_post(&begun);
	syscall(SYS_exit, 3);
	return nothing;
}

static void *waits(void *nothing)
{
	tid = gettid();
	sem_post(&begun);
	sem_wait(&over);
	return nothing;
}

static int rename_sibling(void)
{
	pthread_t other;
	char path[64];

	if (pthread_create(&other, NULL, waits, NULL))
		return 1;
	sem_wait(&begun);
	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
	int file = open(path, O_WRONLY);
	if (file < 0 || write(file, "renamed-one", 11) != 11)
		return 1;
	printf("%d %d\n", getpid(), tid);
	sem_post(&over);
	return pthread_join(other, NULL);
}

static int many(int count)
{
	pthread_t other;

	for (int i = 0; i < count; i++) {
		if (pthread_create(&other, NULL, waits, NULL))
			return 1;
		sem_wait(&begun);
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

int main(int argc, char **argv)
{
	const char *step = argc > 1 ? argv[1] : "";
	pthread_t other;

	first = pthread_self();
	sem_init(&begun, 0, 0);
	sem_init(&over, 0, 0);
	if (!strcmp(step, "rename-sibling"))
		return rename_sibling();
	if (!strcmp(step, "many"))
		return many(argc > 2 ? atoi(argv[2]) : 1);
	if (!strcmp(step, "exec-in-thread") && !pthread_create(&other, NULL, executes, NULL))
		for (;;)
			pause();
	if (!strcmp(step, "leader-first") && !pthread_create(&other, NULL, ends_all, NULL))
		syscall(SYS_exit, 3);
	if (!strcmp(step, "other-exit") && !pthread_create(&other, NULL, ends_itself, NULL)) {
		sem_wait(&begun);
		printf("%d %d\n", getpid(), tid);
		fflush(stdout);
		pthread_join(other, NULL);
		return 6;
	}
	return 1;
}
