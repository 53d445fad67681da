// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bare consumers: uprobe handlers that count and do nothing else. What a
 * hit costs with them is what the kernel and the trap cost; all other figures
 * are given as multiples of it.
 *
 * One file, one probe: ioctl(BARE_ATTACH) takes a file descriptor and an offset.
 * With BARE_SESSION the consumer has a handler for returns and a cookie, too.
 *
 * ioctl(BARE_IDLE) returns the idle time: the kernel's own account, /proc/stat, has hundredths
 * of a second, which are more than some tracers take for all records of a round; and in 7.2 it
 * exceeds the elapsed time.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/uprobes.h>
#include "bare.h"

static DEFINE_PER_CPU(u64, hits);
/* Since when the CPU is idle, or 0; and how long it was before. Nanoseconds. */
static DEFINE_PER_CPU(u64, idle_since);
static DEFINE_PER_CPU(u64, idle_ns);

struct bare {
	struct uprobe_consumer consumer;
	struct uprobe *uprobe;
	struct file *target;
	struct tracepoint *switches;
};

static int count(struct uprobe_consumer *self, struct pt_regs *regs, __u64 *data)
{
	this_cpu_inc(hits);
	return 0;
}

static int count_and_keep(struct uprobe_consumer *self, struct pt_regs *regs, __u64 *data)
{
	this_cpu_inc(hits);
	*data = 1;
	return 0;
}

static int returned(struct uprobe_consumer *self, unsigned long function, struct pt_regs *regs,
		    __u64 *data)
{
	this_cpu_add(hits, *data);
	return 0;
}

static int bare_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(sizeof(struct bare), GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static void switched(void *data, bool preempt, struct task_struct *from, struct task_struct *to,
		     unsigned int state)
{
	u64 now = ktime_get_ns(), since = this_cpu_read(idle_since);

	if (is_idle_task(from) && since)
		this_cpu_add(idle_ns, now - since);
	this_cpu_write(idle_since, is_idle_task(to) ? now : 0);
}

static void find_switches(struct tracepoint *point, void *found)
{
	if (!strcmp(point->name, "sched_switch"))
		*(struct tracepoint **)found = point;
}

/* The first call on a descriptor begins the count. */
static long put_idle(struct bare *bare, __u64 __user *to)
{
	u64 ns = 0;
	int cpu;

	if (!bare->switches) {
		struct tracepoint *found = NULL;
		int error;

		/* A CPU that was idle at the end of an earlier count may not be now. */
		for_each_possible_cpu(cpu)
			per_cpu(idle_since, cpu) = 0;
		for_each_kernel_tracepoint(find_switches, &found);
		error = found ? tracepoint_probe_register(found, switched, bare) : -ENOENT;
		if (error)
			return error;
		bare->switches = found;
	}
	for_each_online_cpu(cpu) {
		u64 since = per_cpu(idle_since, cpu);

		ns += per_cpu(idle_ns, cpu) + (since ? ktime_get_ns() - since : 0);
	}
	return put_user(ns, to);
}

static long bare_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct bare *bare = file->private_data;
	struct bare_attach attach;
	struct uprobe *uprobe;

	if (cmd == BARE_IDLE)
		return put_idle(bare, (__u64 __user *)arg);
	if (cmd != BARE_ATTACH || bare->uprobe)
		return -EINVAL;
	if (copy_from_user(&attach, (void __user *)arg, sizeof(attach)))
		return -EFAULT;
	bare->consumer = (struct uprobe_consumer){ .handler = count };
	if (attach.flags & BARE_SESSION)
		bare->consumer = (struct uprobe_consumer){ .handler = count_and_keep,
							   .ret_handler = returned };
	bare->target = fget(attach.fd);
	if (!bare->target)
		return -EBADF;
	uprobe = uprobe_register(file_inode(bare->target), attach.offset, 0, &bare->consumer);
	if (IS_ERR(uprobe)) {
		fput(bare->target);
		return PTR_ERR(uprobe);
	}
	bare->uprobe = uprobe;
	return 0;
}

static int bare_release(struct inode *inode, struct file *file)
{
	struct bare *bare = file->private_data;

	if (bare->uprobe) {
		uprobe_unregister_nosync(bare->uprobe, &bare->consumer);
		uprobe_unregister_sync();
		fput(bare->target);
	}
	if (bare->switches) {
		tracepoint_probe_unregister(bare->switches, switched, bare);
		tracepoint_synchronize_unregister();
	}
	kfree(bare);
	return 0;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.open = bare_open,
	.unlocked_ioctl = bare_ioctl,
	.release = bare_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR, .name = "nsprobe-bare", .fops = &fops, .mode = 0600,
};

module_misc_device(device);
MODULE_DESCRIPTION("The bare uprobe consumers that nsprobe is measured against");
MODULE_LICENSE("GPL");
