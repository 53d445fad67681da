// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A reader of /dev/nsprobe with nothing but libc and nsprobe.h:
//   reader FILE OFFSET [PID]   maps the rings and prints their records
#define _GNU_SOURCE
#include "../include/nsprobe.h"
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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

static void print_escaped(const __u8 *name, size_t bytes)
{
	for (; bytes && *name; bytes--, name++)
		if (*name > ' ' && *name <= '~' && *name != '\\')
			putchar(*name);
		else
			printf("\\x%02x", *name);
}

static void print_hit(const struct nsprobe_hit *hit, size_t bytes)
{
	const __u64 *word = (const void *)(hit + 1), *end;

	if (bytes < sizeof(*hit))
		errx(1, "a hit of %zu bytes", bytes);
	word += !!(hit->flags & NSPROBE_HIT_RETURN); /* the time since the call */
	end = word + hit->words;
	if ((size_t)((const char *)end - (const char *)hit) > bytes)
		errx(1, "a hit of %zu bytes with %u words", bytes, hit->words);
	printf("%llu.%09llu cpu %u ", hit->time_ns / 1000000000, hit->time_ns % 1000000000,
	       hit->cpu);
	print_escaped(hit->comm, sizeof(hit->comm));
	printf(" pid %u tid %u (%u in its namespace):", hit->pid, hit->tid, hit->ns_pid);
	for (; word < end; word++) {
		__u32 object = NSPROBE_FRAME_OBJECT(*word);

		if (object)
			printf(" %u+0x%llx", object, NSPROBE_FRAME_OFFSET(*word));
		else if (++word < end) /* a bare address is a word of its own */
			printf(" 0x%llx", *word);
	}
	puts("");
}

static void print(const void *record, size_t bytes)
{
	const struct nsprobe_header *header = record;
	const struct nsprobe_object_record *object = record;
	const struct nsprobe_lost *lost = record;

	if (header->kind == NSPROBE_KIND_HIT)
		print_hit(record, bytes);
	else if (header->kind == NSPROBE_KIND_OBJECT && bytes >= sizeof(*object))
		printf("object %u: inode %llu\n", object->id, object->identity.ino);
	else if (header->kind == NSPROBE_KIND_LOST && bytes >= sizeof(*lost))
		printf("lost %llu\n", lost->count);
	else
		printf("record of kind %u\n", header->kind);
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
		__u32 bytes = word & NSPROBE_LENGTH;
		if (bytes < sizeof(struct nsprobe_header) || bytes > sizeof(copy) || bytes % 8)
			errx(1, "a record of %u bytes", bytes);
		for (__u32 i = 0; i < bytes / 8; i++)
			copy[i] = data[(at / 8 + i) & mask];
		if (!(word & NSPROBE_DISCARD))
			print(copy, bytes);
		at += bytes;
		__atomic_store_n(consumer, at, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	if (argc < 3)
		errx(2, "usage: reader FILE OFFSET [PID]");
	__u32 pid = argc > 3 ? atoi(argv[3]) : 0;
	int fd = must(open(NSPROBE_DEVICE, O_RDWR), NSPROBE_DEVICE);
	struct nsprobe_setup setup = { .size = sizeof(setup), .ring_bytes = 1 << 18 };
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
