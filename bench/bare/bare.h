/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The request of the bare consumer, for bare.c and cost.c. */
#ifndef NSPROBE_BARE_H
#define NSPROBE_BARE_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct bare_attach {
	__s32 fd;
	__u32 reserved;
	__u64 offset;
};

#define BARE_ATTACH _IOW(0xe9, 0x40, struct bare_attach)

#endif
