// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A reader of /dev/nsprobe with nothing but libc and nsprobe.h:
//   reader FILE OFFSET [PID]         maps the rings and prints their records
//   reader --cat FILE OFFSET [PID]   configures the session and leaves it to cat
#define _GNU_SOURCE
#include "../include/nsprobe.h"
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define ADDRESS(thing) ((__u64)(unsigned long)(thing))

static long must(long result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static void print(const struct nsprobe_hit *hit, const __u64 *words)
{
	if (hit->header.kind != NSPROBE_KIND_HIT) {
		printf("record of kind %u\n", hit->header.kind);
		return;
	}
	printf("%.16s %u (%u in its namespace):", hit->comm, hit->pid, hit->ns_pid);
	for (int i = 0; i < hit->words; i++) {
		__u32 object = NSPROBE_FRAME_OBJECT(words[i]);

		if (object)
			printf(" %u+0x%llx", object, NSPROBE_FRAME_OFFSET(words[i]));
		else
			printf(" 0x%llx", words[++i]);
	}
	puts("");
}

static void drain(__u64 *consumer, const struct nsprobe_producer_page *producer)
{
	static __u64 copy[NSPROBE_RECORD_BYTES_MAX / 8]; /* a record may wrap */
	const __u64 *data = (void *)((char *)producer + getpagesize());
	__u64 at = *consumer, mask = producer->data_bytes / 8 - 1;

	while (at != __atomic_load_n(&producer->position, __ATOMIC_ACQUIRE)) {
		__u32 word = __atomic_load_n((__u32 *)&data[at / 8 & mask], __ATOMIC_ACQUIRE);

		if (word & NSPROBE_BUSY)
			return;
		for (__u64 i = 0; i < (word & NSPROBE_LENGTH) / 8; i++)
			copy[i] = data[(at / 8 + i) & mask];
		if (!(word & NSPROBE_DISCARD))
			print((void *)copy, copy + sizeof(struct nsprobe_hit) / 8);
		at += word & NSPROBE_LENGTH;
		__atomic_store_n(consumer, at, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	int cat = argc > 1 && !strcmp(argv[1], "--cat");

	if ((argc -= cat) < 3)
		errx(2, "usage: reader [--cat] FILE OFFSET [PID]");
	argv += cat;
	__u32 pid = argc > 3 ? atoi(argv[3]) : 0;
	int fd = must(open(NSPROBE_DEVICE, O_RDWR), NSPROBE_DEVICE);
	struct nsprobe_setup setup = { .size = sizeof(setup), .ring_bytes = 1 << 18,
		.flags = cat ? NSPROBE_SETUP_TEXT : 0 };
	struct nsprobe_filter filter = { .size = sizeof(filter), .flags = NSPROBE_FILTER_PIDS,
		.pids = ADDRESS(&pid), .pid_count = 1 };
	struct nsprobe_probe probe = { .fd = must(open(argv[1], O_RDONLY), argv[1]),
		.kind = NSPROBE_PROBE_ENTRY, .offset = strtoull(argv[2], NULL, 0),
		.flags = NSPROBE_PROBE_STACK | NSPROBE_PROBE_AT_ENTRY };
	struct nsprobe_attach attach = { .size = sizeof(attach), .probes = ADDRESS(&probe),
		.count = 1, .probe_size = sizeof(probe) };

	must(ioctl(fd, NSPROBE_IOC_SETUP, &setup), "setup");
	if (pid)
		must(ioctl(fd, NSPROBE_IOC_FILTER, &filter), "filter");
	must(ioctl(fd, NSPROBE_IOC_ATTACH, &attach), "attach");
	if (cat)
		must(dup2(fd, STDIN_FILENO) < 0 ? -1 : execlp("cat", "cat", NULL), "cat");

	void *consumer[setup.rings], *producer[setup.rings];
	for (__u32 i = 0; i < setup.rings; i++) {
		long page = getpagesize(), at = i * setup.mmap_stride;

		consumer[i] = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
		producer[i] = mmap(NULL, page + setup.ring_bytes, PROT_READ, MAP_SHARED, fd, at + page);
		must(consumer[i] == MAP_FAILED || producer[i] == MAP_FAILED ? -1 : 0, "mmap");
	}
	setlinebuf(stdout);
	for (struct pollfd ready = { .fd = fd, .events = POLLIN };; must(poll(&ready, 1, -1), "poll"))
		for (__u32 i = 0; i < setup.rings; i++)
			drain(consumer[i], producer[i]);
}
