// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a hit costs: the time of a call of a probed function, for the bare
 * consumer and for nsprobe, in one boot, with rings that nobody reads. Under QEMU's
 * -icount a nanosecond of the guest's clock is an instruction.
 *
 * usage: cost CALLS ROUNDS
 *        cost CALLS ROUNDS stacks [TABLE]
 * 'stacks' is of stacks alone: of 17 and of 64 frames, in each order (deep.h), and by
 * the unwind rows in TABLE (userland/unwind/examples/table.rs), else by frame pointers.
 *
 * Prints one line a case: function, consumer, frames, order; the median
 * nanoseconds a call of all rounds, the least and the most; bytes of ring a hit, and
 * bytes that the stack table takes in all.
 */
#define _GNU_SOURCE
#include "../include/nsprobe.h"
#include "bare/bare.h"
#include "deep.h"
#include "tool.h"
#include "used.h"
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDRESS(thing) ((__u64)(unsigned long)(thing))
#define RING_BYTES (64u << 20)
#define ROUNDS_MAX 99

/*
 * The probed functions, and deep_probed: how they begin decides how the kernel gets over
 * the breakpoint (emulated, or single-stepped out of line).
 */
asm(".text\n"
    ".balign 16\n.type begins_with_endbr,@function\nbegins_with_endbr:\n"
    "endbr64\npush %rbp\nmov %rsp,%rbp\npop %rbp\nret\n"
    ".balign 16\n.type begins_with_lea,@function\nbegins_with_lea:\n"
    "lea 1(%rdi),%eax\nret\n");
void begins_with_endbr(long argument);
void begins_with_lea(long argument);
extern char __executable_start[];

struct subject {
	const char *name;
	void (*function)(long);
};
static const struct subject SUBJECTS[] = {
	{ "push", deep_probed },
	{ "endbr64", begins_with_endbr },
	{ "lea", begins_with_lea },
};

/* What is at the probed function. */
struct consumer {
	const char *name;
	int bare, nsprobe;
	__u32 flags, sink;
	int predicate; /* with a condition that no hit meets */
	int rejected;  /* by the filter: another process alone is traced */
};
#define STACK NSPROBE_PROBE_STACK
#define STACK_ID (NSPROBE_PROBE_STACK | NSPROBE_PROBE_STACK_IDS)
static const struct consumer CONSUMERS[] = {
	{ .name = "none" },
	{ .name = "bare", .bare = 1 },
	{ .name = "count", .nsprobe = 1, .sink = NSPROBE_SINK_COUNT },
	{ .name = "record", .nsprobe = 1 },
	{ .name = "stack", .nsprobe = 1, .flags = STACK },
	{ .name = "stack-id", .nsprobe = 1, .flags = STACK_ID },
	{ .name = "predicate", .nsprobe = 1, .predicate = 1 },
	{ .name = "bare+rejected", .bare = 1, .nsprobe = 1, .rejected = 1 },
};

/* How the function is called. */
struct shape {
	int frames;
	enum order order;
};

/* The unwind rows of this program, as examples/table.rs writes them. */
struct table {
	__u64 first;
	__u32 blocks, rows, rules, reserved;
	__u32 words[];
};
static const struct table *table;

static void give_rows(int fd, int file)
{
	struct nsprobe_unwind unwind = {
		.size = sizeof(unwind), .fd = file, .first = table->first,
		.block_count = table->blocks, .row_count = table->rows,
		.rule_count = table->rules, .blocks = ADDRESS(table->words),
		.rows = ADDRESS(table->words + table->blocks),
		.rules = ADDRESS(table->words + table->blocks + table->rows),
	};

	must(ioctl(fd, NSPROBE_IOC_UNWIND, &unwind), "UNWIND");
}

static int attach_nsprobe(int file, __u64 offset, const struct consumer *consumer,
			  struct nsprobe_setup *setup)
{
	int fd = must(open("/dev/nsprobe", O_RDWR | O_CLOEXEC), "/dev/nsprobe");
	__u32 self = getpid();
	struct nsprobe_filter filter = {
		.size = sizeof(filter), .flags = NSPROBE_FILTER_PIDS,
		.pids = ADDRESS(&self), .pid_count = 1,
	};
	struct nsprobe_probe probe = {
		.fd = file, .kind = NSPROBE_PROBE_ENTRY, .offset = offset,
		.flags = NSPROBE_PROBE_AT_ENTRY | consumer->flags, .sink = consumer->sink,
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
	if (!consumer->rejected)
		filter = (struct nsprobe_filter){ .size = sizeof(filter),
						  .flags = NSPROBE_FILTER_SELF };
	must(ioctl(fd, NSPROBE_IOC_FILTER, &filter), "FILTER");
	if (table && consumer->flags & STACK)
		give_rows(fd, file);
	if (consumer->predicate) {
		must(ioctl(fd, NSPROBE_IOC_PROGRAM, &program), "PROGRAM");
		probe.entry_program = program.id;
	}
	must(ioctl(fd, NSPROBE_IOC_ATTACH, &attach), "ATTACH");
	return fd;
}

/* What was measured of one round. */
struct round {
	double ns, bytes, table_bytes;
};

static double calls_in_child(const struct subject *subject, struct shape shape, long calls)
{
	int pipes[2];
	double ns;

	must(pipe(pipes), "pipe");
	if (must(fork(), "fork") == 0) {
		struct spent spent;

		call_deep(subject->function, shape.frames, shape.order, WARM_UP);
		spent = call_deep(subject->function, shape.frames, shape.order, calls);
		must(write(pipes[1], &spent.thread_ns, sizeof(ns)), "write");
		_exit(0);
	}
	must(read(pipes[0], &ns, sizeof(ns)), "read");
	wait(NULL);
	close(pipes[0]);
	close(pipes[1]);
	return ns / calls;
}

/* One round in a child of its own. */
static struct round round_of(const struct subject *subject, const struct consumer *consumer,
			     struct shape shape, long calls)
{
	int file = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "exe");
	__u64 offset = (char *)subject->function - __executable_start;
	struct nsprobe_setup setup = {};
	struct round round = {};
	int nsprobe = -1, bare = -1;

	if (consumer->bare)
		bare = attach_bare(0, offset);
	if (consumer->nsprobe)
		nsprobe = attach_nsprobe(file, offset, consumer, &setup);
	round.ns = calls_in_child(subject, shape, calls);
	if (nsprobe >= 0) {
		struct used used = session_used(nsprobe, setup.rings, setup.ring_bytes);

		if (used.lost)
			errx(1, "%llu records lost: the ring is too small", used.lost);
		round.bytes = (double)used.ring_bytes / (calls + WARM_UP);
		round.table_bytes = used.table_bytes;
		close(nsprobe);
	}
	if (bare >= 0)
		close(bare);
	close(file);
	return round;
}

static int by_ns(const void *a, const void *b)
{
	const struct round *one = a, *other = b;

	return (one->ns > other->ns) - (one->ns < other->ns);
}

static void measure(const struct subject *subject, const struct consumer *consumer,
		    struct shape shape, long calls, int rounds)
{
	struct round all[ROUNDS_MAX], *median = &all[rounds / 2];

	for (int i = 0; i < rounds; i++)
		all[i] = round_of(subject, consumer, shape, calls);
	qsort(all, rounds, sizeof(*all), by_ns);
	printf("%s %s %d %s %.0f %.0f %.0f %.0f %.0f\n", subject->name, consumer->name,
	       shape.frames, ORDER_NAMES[shape.order], median->ns, all[0].ns,
	       all[rounds - 1].ns, median->bytes, median->table_bytes);
	fflush(stdout);
}

static void map_table(const char *path)
{
	int fd = must(open(path, O_RDONLY | O_CLOEXEC), path);
	struct stat stat;

	must(fstat(fd, &stat), path);
	table = mmap(NULL, stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (table == MAP_FAILED)
		err(1, "%s", path);
	close(fd);
}

/* Everything, with stacks of 17 frames. */
static void measure_all(long calls, int rounds)
{
	for (size_t s = 0; s < sizeof(SUBJECTS) / sizeof(*SUBJECTS); s++)
		for (size_t c = 0; c < sizeof(CONSUMERS) / sizeof(*CONSUMERS); c++)
			for (enum order order = SAME; order < ORDERS; order++)
				if (order == SAME || (CONSUMERS[c].flags & STACK && HAS_ORDER(order)))
					measure(&SUBJECTS[s], &CONSUMERS[c],
						(struct shape){ 17, order }, calls, rounds);
}

static void measure_stacks(long calls, int rounds)
{
	static const int FRAMES[] = { 17, 64 };

	for (size_t c = 0; c < sizeof(CONSUMERS) / sizeof(*CONSUMERS); c++) {
		const struct consumer *consumer = &CONSUMERS[c];
		int alone = consumer->bare || !consumer->nsprobe;

		if (!(consumer->flags & STACK) && (!alone || consumer->rejected))
			continue;
		for (int f = 0; f < 2; f++)
			for (enum order order = SAME; order < ORDERS; order++)
				if (HAS_ORDER(order))
					measure(&SUBJECTS[0], consumer,
						(struct shape){ FRAMES[f], order }, calls, rounds);
	}
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 20000;
	int rounds = argc > 2 ? atoi(argv[2]) : 5;

	if (calls < 1 || rounds < 1 || rounds > ROUNDS_MAX)
		errx(2, "usage: cost CALLS ROUNDS [stacks [TABLE]]");
	if (argc > 4)
		map_table(argv[4]);
	printf("function consumer frames order median least most bytes table-bytes\n");
	if (argc > 3)
		measure_stacks(calls, rounds);
	else
		measure_all(calls, rounds);
	return 0;
}
