// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -pthread -rdynamic
// musl: -pthread -rdynamic -Wl,--dynamic-linker=/payload/victims/ld-musl-x86_64.so.1
// Leaks blocks in functions named leak_*, in a way that the argument names (plain, chains, threads,
// forks or all), and says how many and how many bytes: `truth FUNCTION BLOCKS BYTES`. What it does
// not leak it frees, also in other threads and processes. With `orders` it leaks as many blocks of
// 100 bytes as a line of stdin says; below zero, it frees as many.
#define _GNU_SOURCE
#include "orders.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define NOINLINE __attribute__((noipa))

static unsigned seed = 1;

static unsigned next(unsigned most)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % most + 1;
}

static void told(const char *function, long blocks, long bytes)
{
	char line[100];
	int length = snprintf(line, sizeof(line), "truth %s %ld %ld\n", function, blocks, bytes);

	if (write(1, line, length) != length)
		_exit(3);
}

// Keeps the compiler from dropping calls.
static void *volatile kept;

#define LEAK(name, bytes, call)                                 \
	static NOINLINE long leak_##name(long size)             \
	{                                                       \
		kept = call;                                    \
		if (!kept)                                      \
			_exit(4);                               \
		return bytes;                                   \
	}                                                       \
	static NOINLINE void free_##name(long size)             \
	{                                                       \
		void *block = call;                             \
		kept = block;                                   \
		free(block);                                    \
	}                                                       \
	static void run_##name(void)                            \
	{                                                       \
		long blocks = 0, sum = 0;                       \
		for (int i = 0; i < 60; i++) {                  \
			long size = next(3000);                 \
			if (i % 3) {                            \
				free_##name(size);              \
				continue;                       \
			}                                       \
			sum += leak_##name(size);               \
			blocks++;                               \
		}                                               \
		told("leak_" #name, blocks, sum);               \
	}

static void *by_pointer(long size)
{
	void *block = NULL;

	return posix_memalign(&block, 64, size) ? NULL : block;
}

static void *text(long size)
{
	static char letters[3002];

	memset(letters, 'a', sizeof(letters));
	letters[size] = 0;
	return strdup(letters);
}

LEAK(malloc, size, malloc(size))
LEAK(calloc, 3 * size, calloc(3, size))
LEAK(aligned, size * 16, aligned_alloc(64, size * 16))
LEAK(memalign, size, memalign(256, size))
LEAK(pointer, size, by_pointer(size))
LEAK(valloc, size, valloc(size))
LEAK(strdup, size + 1, text(size))
LEAK(array, 5 * size, reallocarray(NULL, 5, size))

static void plain(void)
{
	run_malloc();
	run_calloc();
	run_aligned();
	run_memalign();
	run_pointer();
	run_valloc();
	run_strdup();
	run_array();
}

static NOINLINE void *grown(void *block, size_t size)
{
	block = realloc(block, size);
	kept = block;
	return block;
}

static NOINLINE void *leak_chain(void *block, size_t size)
{
	block = grown(block, size);
	kept = block;
	return block;
}

// A volatile size, so that the compiler does not see that it is too much.
static volatile size_t too_much = PTRDIFF_MAX;

static void chains(void)
{
	long blocks = 0, sum = 0;

	for (int i = 0; i < 60; i++) {
		size_t size = next(100);
		void *block = NULL, *between;

		for (int step = 0; step < 6; step++) {
			between = malloc(next(500));
			block = grown(block, size);
			// One that fails leaves the block as it is.
			if (grown(block, too_much))
				_exit(5);
			free(between);
			size = step % 2 ? size * 3 : size / 2 + 1;
		}
		switch (i % 4) {
		case 0:
			free(block);
			break;
		case 1:
			grown(block, 0);
			break;
		case 2:
			block = leak_chain(block, size);
			// In place.
			block = leak_chain(block, size);
			blocks++, sum += size;
			break;
		default:
			block = leak_chain(block, 100000 + size);
			blocks++, sum += 100000 + size;
		}
	}
	told("leak_chain", blocks, sum);
}

enum { SLOTS = 64, HANDED = 300 };
static void *_Atomic slots[SLOTS];
static _Atomic long thread_blocks, thread_bytes;

static NOINLINE void *leak_thread(size_t size)
{
	void *block = malloc(size);

	kept = block;
	return block;
}

static void *produces(void *arg)
{
	unsigned own = (uintptr_t)arg;

	for (int i = 0; i < HANDED; i++) {
		own = own * 1103515245 + 12345;
		size_t size = (own >> 16) % 300 + 1;
		void *block = leak_thread(size), *others = NULL;

		if (i % 10 == 0) {
			thread_blocks++;
			thread_bytes += size;
			continue;
		}
		if (i % 3 == 0)
			block = grown(block, size * 2);
		// Takes what another thread has put there.
		others = __atomic_exchange_n(&slots[own % SLOTS], block, __ATOMIC_ACQ_REL);
		free(others);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[4];

	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&all[i], NULL, produces, (void *)(i * 77 + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
	for (int i = 0; i < SLOTS; i++)
		free(slots[i]);
	told("leak_thread", thread_blocks, thread_bytes);
}

static NOINLINE void *leak_parent(size_t size)
{
	void *block = malloc(size);

	kept = block;
	return block;
}

static NOINLINE void *leak_child(size_t size)
{
	void *block = malloc(size);

	kept = block;
	return block;
}

static void child(void **blocks, int count, int number)
{
	long sum = 0;

	// Copies: the parent's are still there.
	for (int i = 0; i < count; i++)
		free(blocks[i]);
	for (int i = 0; i < 10; i++) {
		size_t size = next(1000) * number;

		free(leak_child(size));
		leak_child(size);
		sum += size;
	}
	told("leak_child", 10, sum);
}

static void forks(void)
{
	void *blocks[50];
	long sum = 0;

	for (int i = 0; i < 50; i++) {
		size_t size = next(1000);

		blocks[i] = leak_parent(size);
		sum += size;
	}
	for (int number = 1; number <= 4; number++) {
		pid_t pid = fork();

		if (pid == 0) {
			child(blocks, 50, number);
			if (number == 2)
				execl("/bin/true", "true", NULL);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	told("leak_parent", 50, sum);
}

static NOINLINE void *leak_ordered(void)
{
	void *block = malloc(100);

	kept = block;
	return block;
}

static void orders(void)
{
	static void *blocks[10000];
	long there = 0, called = 0;

	say_ready();
	for (long count; is_told(&count);) {
		for (long i = 0; i < count; i++)
			blocks[there++] = leak_ordered();
		for (long i = 0; i > count; i--)
			free(blocks[--there]);
		say_called(called += labs(count));
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "plain";

	if (!strcmp(how, "plain") || !strcmp(how, "all"))
		plain();
	if (!strcmp(how, "chains") || !strcmp(how, "all"))
		chains();
	if (!strcmp(how, "threads") || !strcmp(how, "all"))
		threads();
	if (!strcmp(how, "forks") || !strcmp(how, "all"))
		forks();
	if (!strcmp(how, "orders"))
		orders();
	return 0;
}
