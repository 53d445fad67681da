// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -m32 -O1 -Wall -Wextra -static -nostdlib -fno-pic -no-pie -fno-stack-protector -fno-omit-frame-pointer -idirafter /usr/include/x86_64-linux-gnu
//
//   caller_32 OFFSET
//
// A 32-bit program, without a C library: opens a session, probes its own
// function in_32_bits at OFFSET, calls it three times and reads the records; then asks for
// tasks.
// Exits with 0 when everything was as it is for 64-bit callers, else with the
// number of the step that was not.
#include "../../include/nsprobe.h"
#include "call_32.h"


static void step(int number, int good)
{
	if (!good)
		call(EXIT, number, 0, 0);
}

__attribute__((noinline)) void in_32_bits(void)
{
	__asm__ volatile("");
}

static unsigned long number(const char *text)
{
	unsigned long value = 0;

	while (*text)
		value = value * 10 + (unsigned long)(*text++ - '0');
	return value;
}

/* Asks for tasks and their times, and goes through a dump. */
static void ask_for_tasks(long fd)
{
	static struct nsprobe_tasks tasks = { .size = sizeof(tasks), .cpu_rows = 16,
		.flags = NSPROBE_TASKS_LIFE | NSPROBE_TASKS_CPU | NSPROBE_TASKS_UNFILTERED };
	static __u64 room[NSPROBE_DUMP_BYTES_MIN / 8 + 1];
	static struct nsprobe_task_dump dump = { .size = sizeof(dump),
		.buffer_bytes = sizeof(room) };
	static struct nsprobe_cpu_times times = { .size = sizeof(times),
		.buffer_bytes = sizeof(room) };
	static struct nsprobe_task_counters counters = { .size = sizeof(counters),
		.cpu = NSPROBE_CPU_ALL };
	struct nsprobe_task_record *first = (void *)room;

	step(14, call(IOCTL, fd, NSPROBE_IOC_TASKS, (long)&tasks) == 0);
	dump.buffer = times.buffer = (unsigned long)room;
	step(15, call(IOCTL, fd, NSPROBE_IOC_TASK_DUMP, (long)&dump) == 0);
	step(16, dump.count > 2 && dump.written <= sizeof(room) && dump.next > 2);
	step(17, first->header.kind == NSPROBE_KIND_TASK && first->what == NSPROBE_TASK_ALIVE);
	step(18, call(IOCTL, fd, NSPROBE_IOC_CPU_TIMES, (long)&times) == 0 && times.count > 0);
	step(19, call(IOCTL, fd, NSPROBE_IOC_TASK_COUNTERS, (long)&counters) == 0);
}

__attribute__((used)) static void program(long *stack)
{
	static struct nsprobe_info info = { .size = sizeof(info) };
	static struct nsprobe_setup setup = { .size = sizeof(setup), .ring_bytes = 65536 };
	static struct nsprobe_filter filter = { .size = sizeof(filter), .flags = NSPROBE_FILTER_SELF };
	static struct nsprobe_probe probe = { .kind = NSPROBE_PROBE_ENTRY };
	static struct nsprobe_attach attach = { .size = sizeof(attach), .count = 1,
		.probe_size = sizeof(probe) };
	static struct nsprobe_counters counters = { .size = sizeof(counters), .cpu = NSPROBE_CPU_ALL };
	static __u64 records[8192];
	long fd = call(OPEN, (long)NSPROBE_DEVICE, 2, 0), length, hits = 0;

	step(1, fd >= 0);
	step(2, call(IOCTL, fd, NSPROBE_IOC_INFO, (long)&info) == 0);
	step(3, info.version >= NSPROBE_VERSION_V1 && info.sessions > 0 && info.page_size == 4096);
	step(4, call(IOCTL, fd, NSPROBE_IOC_SETUP, (long)&setup) == 0);
	step(5, setup.rings > 0 && setup.mmap_stride > setup.ring_bytes);
	step(6, call(IOCTL, fd, NSPROBE_IOC_FILTER, (long)&filter) == 0);
	probe.fd = call(OPEN, (long)"/proc/self/exe", 0, 0);
	probe.offset = stack[0] > 1 ? number((const char *)stack[2]) : 0;
	attach.probes = (unsigned long)&probe;
	step(7, call(IOCTL, fd, NSPROBE_IOC_ATTACH, (long)&attach) == 0);
	for (int i = 0; i < 3; i++)
		in_32_bits();
	counters.probe = probe.id;
	step(8, call(IOCTL, fd, NSPROBE_IOC_COUNTERS, (long)&counters) == 0);
	step(9, counters.hits == 3 && counters.recorded == 3);
	while (hits < 3) {
		length = call(READ, fd, (long)records, sizeof(records));
		step(10, length > 0);
		for (long at = 0; at < length / 8;) {
			struct nsprobe_hit *hit = (void *)&records[at];

			if (hit->header.kind == NSPROBE_KIND_HIT)
				hits++;
			step(12, (hit->header.word & NSPROBE_LENGTH) >= 8);
			at += (hit->header.word & NSPROBE_LENGTH) / 8;
		}
	}
	step(13, hits == 3);
	ask_for_tasks(fd);
	call(EXIT, 0, 0, 0);
}

__asm__(".globl _start\n_start:\nmov %esp, %eax\nand $-16, %esp\nsub $12, %esp\npush %eax\ncall program\n");
