/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The request of the bare consumers, for bare.c and those who measure. */
#ifndef NSPROBE_BARE_H
#define NSPROBE_BARE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* bare_attach.flags: a session consumer, called at the return, too. */
#define BARE_SESSION 1u

struct bare_attach {
	__s32 fd;
	__u32 flags;
	__u64 offset;
};

#define BARE_ATTACH _IOW(0xe9, 0x40, struct bare_attach)
/* Nanoseconds in which the machine's CPUs had no task, since some moment. */
#define BARE_IDLE _IOR(0xe9, 0x41, __u64)

#endif
