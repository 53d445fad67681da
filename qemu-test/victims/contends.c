// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls -pthread
//
// One thread waits for locks that two others hold in turn: mutexes of each type, a rwlock, and a lock
// of its own, which has the number of a thread where a mutex has its owner's. It prints for each:
// name, and how often.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

/* Laid out as a pthread_mutex_t up to its owner. */
struct own_lock {
	int word, count, looks_like_owner;
};

static pthread_mutex_t mutexes[5];
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static struct own_lock decoy;
static int turn, tids[2];

static void check(int is_well, const char *what)
{
	if (!is_well) {
		perror(what);
		exit(1);
	}
}

static int see(const int *of)
{
	return __atomic_load_n(of, __ATOMIC_SEQ_CST);
}

static void set(int *of, int to)
{
	__atomic_store_n(of, to, __ATOMIC_SEQ_CST);
}

/* How often the first thread has gone to sleep. */
static long sleeps(void)
{
	char path[64], line[128];
	long count = -1;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", getpid());
	status = fopen(path, "r");
	check(status != NULL, path);
	while (fgets(line, sizeof(line), status))
		sscanf(line, "voluntary_ctxt_switches: %ld", &count);
	fclose(status);
	return count;
}

/* Lets the first thread go for the lock, and works for a while when it sleeps. */
static void let_wait(void)
{
	struct timespec span = { 0, 1000000 };
	long before = sleeps();

	set(&turn, 2);
	while (sleeps() == before)
		sched_yield();
	nanosleep(&span, NULL);
}

NOINLINE void wait_for_mutex(pthread_mutex_t *mutex)
{
	check(pthread_mutex_lock(mutex) == 0, "lock");
}

NOINLINE void wait_for_rwlock(void)
{
	check(pthread_rwlock_wrlock(&rwlock) == 0, "rwlock");
}

NOINLINE void wait_for_decoy(void)
{
	while (see(&decoy.word) == 2)
		syscall(SYS_futex, &decoy.word, FUTEX_WAIT_PRIVATE, 2, NULL);
}

NOINLINE void hold_as_alice(int kind)
{
	pthread_mutex_lock(&mutexes[kind]);
	let_wait();
	pthread_mutex_unlock(&mutexes[kind]);
}

NOINLINE void hold_as_bob(int kind)
{
	pthread_mutex_lock(&mutexes[kind]);
	let_wait();
	pthread_mutex_unlock(&mutexes[kind]);
}

NOINLINE void hold_others(int kind)
{
	if (kind == 5) {
		pthread_rwlock_wrlock(&rwlock);
		let_wait();
		pthread_rwlock_unlock(&rwlock);
		return;
	}
	decoy.looks_like_owner = tids[0];
	set(&decoy.word, 2);
	let_wait();
	set(&decoy.word, 0);
	syscall(SYS_futex, &decoy.word, FUTEX_WAKE_PRIVATE, 1);
}

/* What is held next, and by which of the two. */
static int kind, holder;

static void *holds(void *number)
{
	int self = (long)number;

	pthread_setname_np(pthread_self(), self ? "bob" : "alice");
	set(&tids[self], gettid());
	for (;;) {
		while (see(&turn) != 1 || see(&holder) != self)
			sched_yield();
		if (see(&kind) > 4)
			hold_others(kind);
		else if (self)
			hold_as_bob(kind);
		else
			hold_as_alice(kind);
	}
	return NULL;
}

static void contend(const char *name, int of, int count)
{
	for (int i = 0; i < count; i++) {
		set(&kind, of);
		set(&holder, of == 6 ? 1 : i % 2);
		set(&turn, 1);
		while (see(&turn) != 2)
			sched_yield();
		if (of == 5) {
			wait_for_rwlock();
			pthread_rwlock_unlock(&rwlock);
		} else if (of == 6) {
			wait_for_decoy();
		} else {
			wait_for_mutex(&mutexes[of]);
			pthread_mutex_unlock(&mutexes[of]);
		}
		set(&turn, 0);
	}
	printf("%s %d\n", name, count);
}

int main(void)
{
	static const int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
		PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_NORMAL };
	pthread_t thread;

	for (int i = 0; i < 5; i++) {
		pthread_mutexattr_t attr;

		pthread_mutexattr_init(&attr);
		pthread_mutexattr_settype(&attr, types[i]);
		if (i == 3)
			pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
		if (i == 4)
			pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
		check(pthread_mutex_init(&mutexes[i], &attr) == 0, "mutex");
	}
	for (long i = 0; i < 2; i++)
		check(pthread_create(&thread, NULL, holds, (void *)i) == 0, "thread");
	while (see(&tids[0]) == 0 || see(&tids[1]) == 0)
		sched_yield();
	contend("normal", 0, 100);
	contend("recursive", 1, 10);
	contend("errorcheck", 2, 10);
	contend("pi", 3, 10);
	contend("robust", 4, 10);
	contend("rwlock", 5, 4);
	contend("decoy", 6, 4);
	return 0;
}
