/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a tracer's buffers have taken so far, seen from outside of it. */
#ifndef NSPROBE_USED_H
#define NSPROBE_USED_H

#include <sys/types.h>

struct used {
	/* Bytes that were written to nsprobe's rings, or to all BPF ring buffers. */
	unsigned long long ring_bytes;
	/* Bytes of nsprobe's table of stacks. */
	unsigned long long table_bytes;
	/* Records that nsprobe's rings had no room for. */
	unsigned long long lost;
};

/* By an nsprobe session with so many rings of so many bytes. */
struct used session_used(int fd, unsigned long long rings, unsigned long long ring_bytes);

/* By a tracer, which may be nsprobe. */
struct used used_by(pid_t tool);

/* What nsprobe's unwind rows take in the kernel. */
unsigned long long unwind_bytes(pid_t tool);

#endif
