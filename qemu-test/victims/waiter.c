// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fomit-frame-pointer -pthread
//
// Waits in each way that has a name, and prints for each by its own clock: name, waits, nanoseconds.
// The argument is the folder of a control group that it may throttle itself in. Or it is "herd" and a
// number of threads, each of which sleeps for three seconds, again and again; then it prints "ready",
// and waits in a call that a timer interrupts.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 6
#define WAIT_NS 40000000
#define NOINLINE __attribute__((noinline, noclone))

static int pipes[2], sockets[2], epoll_fd, file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static long read_ns(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static long now_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

/* How long this thread was off its CPU. What a virtual CPU's host takes from it is no such time. */
static long off_cpu_ns(void)
{
	return now_ns() - read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void pause_ns(long ns)
{
	struct timespec span = { ns / 1000000000L, ns % 1000000000L };

	nanosleep(&span, NULL);
}

/* What all waits of a kind have taken. */
static long waited_ns;

#define WAITED(call) do { \
	long before_ns = off_cpu_ns(); \
	call; \
	waited_ns += off_cpu_ns() - before_ns; \
} while (0)

static void check(int is_well, const char *what)
{
	if (!is_well) {
		perror(what);
		exit(1);
	}
}

NOINLINE void wait_sleep(void)
{
	WAITED(pause_ns(WAIT_NS));
}

NOINLINE void wait_pipe(void)
{
	char byte;

	WAITED(check(read(pipes[0], &byte, 1) == 1, "pipe"));
}

NOINLINE void wait_socket(void)
{
	char byte;

	WAITED(check(recv(sockets[0], &byte, 1, 0) == 1, "socket"));
}

NOINLINE void wait_poll(void)
{
	struct epoll_event event;

	WAITED(check(epoll_wait(epoll_fd, &event, 1, WAIT_NS / 1000000) >= 0, "epoll"));
}

NOINLINE void wait_lock(void)
{
	WAITED(check(pthread_mutex_lock(&mutex) == 0, "lock"));
	check(pthread_mutex_unlock(&mutex) == 0, "unlock");
}

NOINLINE void wait_file(void)
{
	static char block[1 << 20];

	memset(block, rand(), sizeof(block));
	check(pwrite(file, block, sizeof(block), 0) == sizeof(block), "write");
	WAITED(check(fsync(file) == 0, "fsync"));
}

NOINLINE void wait_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		pause_ns(WAIT_NS);
		_exit(0);
	}
	WAITED(check(waitpid(child, NULL, 0) == child, "child"));
}

NOINLINE void wait_stopped(void)
{
	pid_t self = getpid(), waker = fork();

	/* Again and again: the first may come before the stop. */
	while (waker == 0) {
		pause_ns(WAIT_NS);
		kill(self, SIGCONT);
	}
	WAITED(raise(SIGSTOP));
	kill(waker, SIGKILL);
	waitpid(waker, NULL, 0);
}

/* Looks at the clock for so long. */
static void spin(long ns)
{
	long until_ns = now_ns() + ns;

	while (now_ns() < until_ns)
		;
}

NOINLINE void wait_cpu(void)
{
	WAITED(spin(15 * WAIT_NS));
}

NOINLINE void wait_quota(void)
{
	WAITED(spin(15 * WAIT_NS));
}

static void *feed_pipe(void *unused)
{
	for (int i = 0; i < COUNT; i++) {
		pause_ns(WAIT_NS);
		check(write(pipes[1], "x", 1) == 1, "feed");
	}
	return unused;
}

static void *feed_socket(void *unused)
{
	for (int i = 0; i < COUNT; i++) {
		pause_ns(WAIT_NS);
		check(send(sockets[1], "x", 1, 0) == 1, "feed");
	}
	return unused;
}

static void timed(const char *name, void (*wait)(void), int count)
{
	waited_ns = 0;
	for (int i = 0; i < count; i++)
		wait();
	printf("%s %d %ld\n", name, count, waited_ns);
	fflush(stdout);
}

static void fed(const char *name, void (*wait)(void), void *(*feed)(void *))
{
	pthread_t feeder;

	check(pthread_create(&feeder, NULL, feed, NULL) == 0, "thread");
	timed(name, wait, COUNT);
	pthread_join(feeder, NULL);
}

static int taken;

/* Has the mutex each time that the other asks for it. */
static void *hold_lock(void *unused)
{
	for (int i = 1; i <= COUNT; i++) {
		pthread_mutex_lock(&mutex);
		__atomic_store_n(&taken, i, __ATOMIC_SEQ_CST);
		pause_ns(WAIT_NS);
		pthread_mutex_unlock(&mutex);
		while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) == i)
			sched_yield();
	}
	return unused;
}

static void lock_once(void)
{
	while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) == 0)
		sched_yield();
	wait_lock();
	__atomic_store_n(&taken, 0, __ATOMIC_SEQ_CST);
}

static void write_to(const char *folder, const char *name, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY);
	check(fd >= 0 && write(fd, text, strlen(text)) > 0, path);
	close(fd);
}

static void on_one_cpu(void)
{
	cpu_set_t one;
	pid_t spinner;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	check(sched_setaffinity(0, sizeof(one), &one) == 0, "affinity");
	spinner = fork();
	if (spinner == 0)
		for (;;)
			;
	timed("cpu", wait_cpu, 1);
	kill(spinner, SIGKILL);
	waitpid(spinner, NULL, 0);
}

static void *one_of_herd(void *by_epoll)
{
	struct epoll_event event;

	for (;;) {
		if (by_epoll)
			epoll_wait(epoll_fd, &event, 1, 3000);
		else
			pause_ns(3000000000);
	}
	return NULL;
}

static void ignore(int signal)
{
	(void)signal;
}

/* Waits for ever, in a call that signals interrupt and that begins again each time. */
static void wait_interrupted(void)
{
	struct sigaction action = { .sa_handler = ignore, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	char byte;

	check(pipe(pipes) == 0 && sigaction(SIGALRM, &action, NULL) == 0, "signal");
	check(setitimer(ITIMER_REAL, &often, NULL) == 0, "timer");
	check(read(pipes[0], &byte, 1) == 1, "read");
}

static int herd(long count)
{
	sigset_t alarm;
	pthread_attr_t small;
	pthread_t one;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);

	epoll_fd = epoll_create1(0);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (long i = 0; i < count; i++)
		check(pthread_create(&one, &small, one_of_herd, i % 2 ? &epoll_fd : NULL) == 0, "thread");
	puts("ready");
	fflush(stdout);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	wait_interrupted();
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "herd") == 0)
		return herd(atol(argv[2]));
	signal(SIGCHLD, SIG_DFL);
	check(argc == 2 && pipe(pipes) == 0, "pipe");
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
	epoll_fd = epoll_create1(0);
	file = open("waiter.file", O_RDWR | O_CREAT, 0600);
	check(epoll_fd >= 0 && file >= 0, "file");
	timed("sleep", wait_sleep, COUNT);
	fed("pipe", wait_pipe, feed_pipe);
	fed("socket", wait_socket, feed_socket);
	timed("poll", wait_poll, COUNT);
	fed("lock", lock_once, hold_lock);
	timed("file", wait_file, COUNT);
	timed("child", wait_child, COUNT);
	timed("stopped", wait_stopped, 3);
	on_one_cpu();
	write_to(argv[1], "cgroup.procs", "0");
	write_to(argv[1], "cpu.max", "10000 100000");
	timed("quota", wait_quota, 1);
	return 0;
}
