// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -g -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls -pthread
//
// Calls `leaf` from frames of all kinds that compilers make, none with a frame pointer
// unless it must have one.
//
//   no_frame_pointers HOW TIMES
//
// HOW is `plain`, `vla` (a frame of a size that is not known before), `aligned` (a frame
// on a boundary of 64 bytes), `sort` (a callback from the C library), `signal` (a handler
// on a stack of its own), `thread`, `vfork` (a child that shares the memory), `context`
// (a coroutine on a stack of its own), `generated` (code in no file, with a frame pointer)
// or `write` (which calls the C library instead).
// Prints "called N" in the end.
#include <signal.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long sum;
static long called;

__attribute__((noipa)) long leaf(long n)
{
	called++;
	return sum = sum + n;
}

__attribute__((noipa)) long plain(long n, long more)
{
	long kept[5] = { n, more, n + more, n - more, n * more };

	sum += kept[n & 3];
	return leaf(kept[more & 3]) + more + kept[(n + 1) & 3];
}

__attribute__((noipa)) long with_vla(long n)
{
	volatile char room[n % 50 + 1];

	room[n % 50] = 1;
	return plain(n, 2) + room[n % 50];
}

__attribute__((noipa)) long with_alignment(long n)
{
	_Alignas(64) volatile char room[128];

	room[n & 63] = 1;
	return plain(n, 3) + room[n & 63];
}

/* Both at once: the frame is found by what was pushed in front of it. */
__attribute__((noipa)) long with_both(long n)
{
	_Alignas(64) volatile char room[n % 50 + 64];

	room[n % 50] = 1;
	return with_alignment(n) + room[n % 50];
}

__attribute__((noipa)) static int compare(const void *a, const void *b)
{
	plain(*(const int *)a, *(const int *)b);
	return *(const int *)a - *(const int *)b;
}

__attribute__((noipa)) static long with_sort(long n)
{
	int two[2] = { n & 1, ~n & 1 };

	qsort(two, 2, sizeof(*two), compare);
	return two[0];
}

static void on_signal(int number)
{
	plain(number, 5);
}

__attribute__((noipa)) static long with_signal(long n)
{
	static char stack[64 << 10];
	stack_t own = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };

	if (sigaltstack(&own, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
		abort();
	raise(SIGUSR1);
	return n;
}

static void *in_thread(void *n)
{
	return (void *)plain((long)n, 6);
}

__attribute__((noipa)) static long with_thread(long n)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, in_thread, (void *)n) != 0)
		abort();
	return pthread_join(thread, NULL);
}

__attribute__((noipa)) static long with_vfork(long n)
{
	pid_t child = vfork();
	int status;

	if (child == 0) {
		plain(n, 7);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		abort();
	return n;
}

/* Calls the C library, in place of `leaf`. */
__attribute__((noipa)) static long with_write(long n)
{
	volatile char room[n % 50 + 1];

	room[n % 50] = 1;
	if (write(STDOUT_FILENO, "written\n", 8) != 8)
		abort();
	return n + room[n % 50];
}

static ucontext_t outside, inside;

static void coroutine(void)
{
	plain(8, 8);
}

__attribute__((noipa)) static long with_context(long n)
{
	static char stack[64 << 10];

	if (getcontext(&inside) != 0)
		abort();
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof(stack);
	inside.uc_link = &outside;
	makecontext(&inside, coroutine, 0);
	if (swapcontext(&outside, &inside) != 0)
		abort();
	return n;
}

/* push %rbp; mov %rsp, %rbp; call *%rdx; pop %rbp; ret */
static const unsigned char CODE[] = {
	0x55, 0x48, 0x89, 0xe5, 0xff, 0xd2, 0x5d, 0xc3,
};

__attribute__((noipa)) static long with_generated(long n)
{
	static long (*generated)(long, long, long (*)(long, long));

	if (generated == NULL) {
		void *room = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (room == MAP_FAILED)
			abort();
		memcpy(room, CODE, sizeof(CODE));
		generated = (long (*)(long, long, long (*)(long, long)))room;
	}
	return generated(n, 9, plain) + 1;
}

__attribute__((noipa)) static long chosen(const char *how, long n)
{
	static const struct {
		const char *name;
		long (*call)(long);
	} ALL[] = {
		{ "vla", with_vla }, { "aligned", with_both }, { "sort", with_sort },
		{ "signal", with_signal }, { "thread", with_thread }, { "vfork", with_vfork },
		{ "context", with_context }, { "write", with_write },
		{ "generated", with_generated },
	};

	for (size_t i = 0; i < sizeof(ALL) / sizeof(*ALL); i++)
		if (strcmp(ALL[i].name, how) == 0)
			return ALL[i].call(n) + 1;
	return plain(n, 1) + 1;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	for (long i = 0; i < atol(argv[2]); i++)
		sum += chosen(argv[1], i);
	printf("called %ld\n", called);
	return 0;
}
