// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a hit costs: the time of a call of a probed function, for the bare
 * consumer and for nsprobe, in one boot. Under QEMU's -icount a nanosecond of
 * the guest's clock is an instruction.
 *
 * usage: cost CALLS ROUNDS
 * Prints one line a case: function, consumer, the least nanoseconds a call of
 * all rounds, the most, and bytes of ring a hit.
 */
#define _GNU_SOURCE
#include "../include/nsprobe.h"
#include "bare/bare.h"
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS(thing) ((__u64)(unsigned long)(thing))
#define RING_BYTES (64u << 20)

/*
 * The probed functions: how they begin decides how the kernel gets over the
 * breakpoint (emulated, or single-stepped out of line).
 */
asm(".text\n"
    ".balign 16\n.type begins_with_push,@function\nbegins_with_push:\n"
    "push %rbp\nmov %rsp,%rbp\npop %rbp\nret\n"
    ".balign 16\n.type begins_with_endbr,@function\nbegins_with_endbr:\n"
    "endbr64\npush %rbp\nmov %rsp,%rbp\npop %rbp\nret\n"
    ".balign 16\n.type begins_with_lea,@function\nbegins_with_lea:\n"
    "lea 1(%rdi),%eax\nret\n");
void begins_with_push(void);
void begins_with_endbr(void);
void begins_with_lea(void);
extern char __executable_start[];

static long must(long result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static double now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

/* Calls `function` from `depth` frames down, each with a frame pointer. */
__attribute__((noipa, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))
static double descend(int depth, void (*function)(void), long calls, int turns)
{
	double spent;

	if (depth > 0) {
		spent = descend(depth - 1, function, calls, turns);
		asm volatile("" : "+m"(spent));
		return spent;
	}
	spent = now_ns();
	if (!turns) {
		for (long i = 0; i < calls; i++)
			function();
	} else {
		/* From two places in turn: no stack is the one before. */
		for (long i = 0; i < calls; i += 2) {
			function();
			asm volatile("");
			function();
		}
	}
	return now_ns() - spent;
}

struct subject {
	const char *name;
	void (*function)(void);
};

enum consumer {
	NONE, BARE, COUNT, RECORD, STACK, STACK_TURNS, STACK_ID, STACK_ID_TURNS, PREDICATE,
	REJECTED, CONSUMERS
};
static const char *const NAMES[] = {
	"none", "bare", "count", "record", "record-stack16", "record-stack16-turns",
	"record-stack16-id", "record-stack16-id-turns", "predicate", "bare+rejected",
};

static int has_stack(enum consumer consumer)
{
	return consumer >= STACK && consumer <= STACK_ID_TURNS;
}

static int by_id(enum consumer consumer)
{
	return consumer == STACK_ID || consumer == STACK_ID_TURNS;
}

/* The session's ring bytes in use, over all CPUs. */
static unsigned long long session_used(int fd, const struct nsprobe_setup *setup)
{
	unsigned long long used = 0;

	for (unsigned i = 0; i < setup->rings; i++) {
		off_t at = i * setup->mmap_stride + getpagesize();
		size_t bytes = getpagesize() + setup->ring_bytes;
		struct nsprobe_producer_page *page =
			mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, at);

		if (page == MAP_FAILED)
			err(1, "mmap");
		used += page->position;
		if (page->lost)
			errx(1, "%llu records lost: the ring is too small", page->lost);
		munmap(page, bytes);
	}
	return used;
}

static int attach_nsprobe(int file, __u64 offset, enum consumer consumer,
			  struct nsprobe_setup *setup)
{
	int fd = must(open("/dev/nsprobe", O_RDWR | O_CLOEXEC), "/dev/nsprobe");
	__u32 self = getpid();
	struct nsprobe_filter filter = {
		.size = sizeof(filter), .flags = NSPROBE_FILTER_PIDS,
		.pids = ADDRESS(&self), .pid_count = 1,
	};
	struct nsprobe_probe probe = {
		.fd = file, .kind = NSPROBE_PROBE_ENTRY, .offset = offset, .max_frames = 17,
		.flags = NSPROBE_PROBE_AT_ENTRY |
			 (has_stack(consumer) ? NSPROBE_PROBE_STACK : 0) |
			 (by_id(consumer) ? NSPROBE_PROBE_STACK_IDS : 0),
	};
	/* `if %sp == 1`: never. */
	struct nsprobe_step steps[] = {
		{ .operation = NSPROBE_OPERATION_REGISTER, .small = NSPROBE_REGISTER_RSP },
		{ .operation = NSPROBE_OPERATION_CONSTANT, .to = 1, .large = 1 },
		{ .operation = NSPROBE_OPERATION_EQUAL, .to = 2, .a = 0, .b = 1 },
		{ .operation = NSPROBE_OPERATION_REQUIRE, .a = 2 },
	};
	struct nsprobe_program program = {
		.size = sizeof(program), .steps = ADDRESS(steps), .step_count = 4,
	};
	struct nsprobe_attach attach = {
		.size = sizeof(attach), .probes = ADDRESS(&probe), .count = 1,
		.probe_size = sizeof(probe),
	};

	*setup = (struct nsprobe_setup){ .size = sizeof(*setup), .ring_bytes = RING_BYTES };
	must(ioctl(fd, NSPROBE_IOC_SETUP, setup), "SETUP");
	/*
	 * The children that call are forked from this process, with its text as it
	 * is: it must carry the breakpoint, too, or be the only one that counts.
	 */
	if (consumer != REJECTED)
		filter = (struct nsprobe_filter){ .size = sizeof(filter),
						  .flags = NSPROBE_FILTER_SELF };
	must(ioctl(fd, NSPROBE_IOC_FILTER, &filter), "FILTER");
	if (consumer == COUNT)
		probe.sink = NSPROBE_SINK_COUNT;
	if (consumer == PREDICATE) {
		must(ioctl(fd, NSPROBE_IOC_PROGRAM, &program), "PROGRAM");
		probe.entry_program = program.id;
	}
	must(ioctl(fd, NSPROBE_IOC_ATTACH, &attach), "ATTACH");
	return fd;
}

static int attach_bare(int file, __u64 offset)
{
	int fd = must(open("/dev/nsprobe-bare", O_RDWR | O_CLOEXEC), "/dev/nsprobe-bare");
	struct bare_attach attach = { .fd = file, .offset = offset };

	must(ioctl(fd, BARE_ATTACH, &attach), "BARE_ATTACH");
	return fd;
}

/* One round in a child of its own; nanoseconds a call. */
static double round_of(const struct subject *subject, enum consumer consumer, long calls,
		       double *bytes)
{
	int file = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "exe");
	__u64 offset = (char *)subject->function - __executable_start;
	struct nsprobe_setup setup = {};
	int nsprobe = -1, bare = -1, pipes[2];
	double spent = 0;

	if (consumer == BARE || consumer == REJECTED)
		bare = attach_bare(file, offset);
	if (consumer >= COUNT)
		nsprobe = attach_nsprobe(file, offset, consumer, &setup);
	must(pipe(pipes), "pipe");
	if (must(fork(), "fork") == 0) {
		int turns = consumer == STACK_TURNS || consumer == STACK_ID_TURNS;

		/* The first hit of a place costs more. */
		descend(15, subject->function, 100, turns);
		spent = descend(15, subject->function, calls, turns);
		must(write(pipes[1], &spent, sizeof(spent)), "write");
		_exit(0);
	}
	must(read(pipes[0], &spent, sizeof(spent)), "read");
	wait(NULL);
	*bytes = 0;
	if (consumer == RECORD || has_stack(consumer))
		*bytes = (double)session_used(nsprobe, &setup) / (calls + 100);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
	if (nsprobe >= 0)
		close(nsprobe);
	if (bare >= 0)
		close(bare);
	return spent / calls;
}

int main(int argc, char **argv)
{
	static const struct subject SUBJECTS[] = {
		{ "push", begins_with_push },
		{ "endbr64", begins_with_endbr },
		{ "lea", begins_with_lea },
	};
	long calls = argc > 1 ? atol(argv[1]) : 20000;
	int rounds = argc > 2 ? atoi(argv[2]) : 5;

	printf("function consumer least most bytes\n");
	for (size_t s = 0; s < sizeof(SUBJECTS) / sizeof(*SUBJECTS); s++)
		for (enum consumer consumer = NONE; consumer < CONSUMERS; consumer++) {
			double least = 1e18, most = 0, bytes = 0;

			for (int i = 0; i < rounds; i++) {
				double ns = round_of(&SUBJECTS[s], consumer, calls, &bytes);

				least = ns < least ? ns : least;
				most = ns > most ? ns : most;
			}
			printf("%s %s %.0f %.0f %.0f\n", SUBJECTS[s].name, NAMES[consumer], least,
			       most, bytes);
			fflush(stdout);
		}
	return 0;
}
