// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "used.h"
#include "../include/nsprobe.h"
#include "tool.h"
#include <dirent.h>
#include <err.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The number of the tool's descriptor of a session; -1 when there is none. */
static int session_of(pid_t tool)
{
	char path[64], target[64];
	int found = -1;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", tool);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

		if (length > 0 && (target[length] = 0, !strcmp(target, NSPROBE_DEVICE)))
			found = atoi(entry->d_name);
	}
	if (folder)
		closedir(folder);
	return found;
}

/* A number of a session's fdinfo. */
static unsigned long long told(pid_t tool, const char *name)
{
	unsigned long long value = 0;
	char path[64], line[512];
	FILE *info;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", tool, session_of(tool));
	info = fopen(path, "r");
	while (info && fgets(line, sizeof(line), info))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			value = strtoull(line + strlen(name) + 1, NULL, 10);
	if (info)
		fclose(info);
	return value;
}

unsigned long long unwind_bytes(pid_t tool) { return told(tool, "unwind-bytes"); }

/* A ring, from its producer's page on: BPF's begins with the position, too. */
static const struct nsprobe_producer_page *map_ring(int fd, off_t at, size_t bytes)
{
	const void *page = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, at);

	if (page == MAP_FAILED)
		err(1, "mmap of a ring");
	return page;
}

struct used session_used(int fd, unsigned long long rings, unsigned long long ring_bytes)
{
	/* The rings stand one after the other, each with two pages in front. */
	unsigned long long page_bytes = getpagesize(), stride = 2 * page_bytes + ring_bytes;
	struct nsprobe_stack stack = { .size = sizeof(stack), .id = 1 };
	struct used used = {};

	for (unsigned long long i = 0; i < rings; i++) {
		const struct nsprobe_producer_page *ring =
			map_ring(fd, i * stride + page_bytes, page_bytes + ring_bytes);

		used.ring_bytes += ring->position;
		used.lost += ring->lost;
		munmap((void *)ring, page_bytes + ring_bytes);
	}
	/* It says that there is too little room for the first stack, and what all take. */
	ioctl(fd, NSPROBE_IOC_STACK, &stack);
	used.table_bytes = 8ull * stack.used;
	return used;
}

static struct used of_session(pid_t tool)
{
	int pidfd = must(syscall(SYS_pidfd_open, tool, 0), "pidfd_open");
	int fd = must(syscall(SYS_pidfd_getfd, pidfd, session_of(tool), 0), "pidfd_getfd");
	struct used used = session_used(fd, told(tool, "rings"), told(tool, "ring-bytes"));

	close(fd);
	close(pidfd);
	return used;
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* All ring buffers: the page after the consumer's says how far one was written. */
static struct used of_bpf(void)
{
	union bpf_attr next, by_id, about;
	struct used used = {};

	memset(&next, 0, sizeof(next));
	while (bpf(BPF_MAP_GET_NEXT_ID, &next) == 0) {
		struct bpf_map_info info = {};
		int fd;

		next.start_id = next.next_id;
		memset(&by_id, 0, sizeof(by_id));
		by_id.map_id = next.next_id;
		fd = bpf(BPF_MAP_GET_FD_BY_ID, &by_id);
		if (fd < 0)
			continue;
		memset(&about, 0, sizeof(about));
		about.info.bpf_fd = fd;
		about.info.info_len = sizeof(info);
		about.info.info = (unsigned long)&info;
		if (bpf(BPF_OBJ_GET_INFO_BY_FD, &about) == 0 && info.type == BPF_MAP_TYPE_RINGBUF)
			used.ring_bytes += map_ring(fd, getpagesize(), getpagesize())->position;
		close(fd);
	}
	return used;
}

struct used used_by(pid_t tool)
{
	return session_of(tool) >= 0 ? of_session(tool) : of_bpf();
}
