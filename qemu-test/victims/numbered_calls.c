// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls -pthread
//
// Threads that call a function on arguments from which each call can be told: the
// thread's index, the call's number in its thread (from 0 on, over all lines), and a
// hash of both.
//
//   numbered_calls THREADS FUNCTION
//
// For each line of stdin every thread calls FUNCTION that often. Prints "ready PID" first
// and "called N" when N calls are done (in all, of all threads). Each FUNCTION begins with
// the instruction of its name.
#include "orders.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(name, body)                                                    \
	__asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" \
		#name ":\n.cfi_startproc\n" body ".cfi_endproc\n"                  \
		".size " #name ", . - " #name "\n");                               \
	void name(uint64_t, uint64_t, uint64_t);

#define FRAME                                                                   \
	"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\nmov %rsp, %rbp\n"   \
	"pop %rbp\n.cfi_def_cfa 7, 8\nret\n"

FUNCTION(begins_with_push, FRAME)
FUNCTION(begins_with_mov, "mov %rdi, %rax\n" FRAME)
/* The ten bytes that the kernel replaces by a call once they were hit. */
FUNCTION(begins_with_nop10, ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n" FRAME)

static const struct {
	const char *name;
	void (*call)(uint64_t, uint64_t, uint64_t);
} functions[] = {
	{ "begins_with_push", begins_with_push },
	{ "begins_with_mov", begins_with_mov },
	{ "begins_with_nop10", begins_with_nop10 },
};

static pthread_barrier_t begin, end;
static void (*function)(uint64_t, uint64_t, uint64_t);
static long count;

/* The end of SplitMix64, on a number that no two calls share. */
static uint64_t hash(uint64_t thread, uint64_t number)
{
	uint64_t x = (thread << 40 | number) + 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void *thread(void *index)
{
	uint64_t number = 0;

	for (;;) {
		pthread_barrier_wait(&begin);
		for (long i = 0; i < count; i++, number++)
			function((uint64_t)index, number, hash((uint64_t)index, number));
		pthread_barrier_wait(&end);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc == 3 ? atol(argv[1]) : 0;
	long called = 0;
	pthread_t id;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (argc == 3 && !strcmp(argv[2], functions[i].name))
			function = functions[i].call;
	if (!function || threads < 1) {
		fprintf(stderr, "usage: numbered_calls THREADS FUNCTION\n");
		return 2;
	}
	pthread_barrier_init(&begin, NULL, threads + 1);
	pthread_barrier_init(&end, NULL, threads + 1);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&id, NULL, thread, (void *)i))
			return 1;
	say_ready();
	while (is_told(&count)) {
		pthread_barrier_wait(&begin);
		pthread_barrier_wait(&end);
		say_called(called += threads * count);
	}
	return 0;
}
