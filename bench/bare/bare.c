// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bare consumer: a uprobe whose handler counts and does nothing else. What
 * a hit costs with it is what the kernel and the trap cost; bench/cost.c gives
 * all other figures as multiples of it.
 *
 * One file, one probe: ioctl(BARE_ATTACH) takes a file descriptor and an offset.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/uaccess.h>
#include <linux/uprobes.h>
#include "bare.h"

static DEFINE_PER_CPU(u64, hits);
static struct uprobe *uprobe;
static struct file *target;

static int count(struct uprobe_consumer *self, struct pt_regs *regs, __u64 *data)
{
	this_cpu_inc(hits);
	return 0;
}

static struct uprobe_consumer consumer = { .handler = count };

static void detach(void)
{
	if (!uprobe)
		return;
	uprobe_unregister_nosync(uprobe, &consumer);
	uprobe_unregister_sync();
	uprobe = NULL;
	fput(target);
}

static long bare_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct bare_attach attach;

	if (cmd != BARE_ATTACH || uprobe)
		return -EINVAL;
	if (copy_from_user(&attach, (void __user *)arg, sizeof(attach)))
		return -EFAULT;
	target = fget(attach.fd);
	if (!target)
		return -EBADF;
	uprobe = uprobe_register(file_inode(target), attach.offset, 0, &consumer);
	if (IS_ERR(uprobe)) {
		long error = PTR_ERR(uprobe);

		uprobe = NULL;
		fput(target);
		return error;
	}
	return 0;
}

static int bare_release(struct inode *inode, struct file *file)
{
	detach();
	return 0;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = bare_ioctl,
	.release = bare_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR, .name = "nsprobe-bare", .fops = &fops, .mode = 0600,
};

module_misc_device(device);
MODULE_DESCRIPTION("The bare uprobe consumer that nsprobe is measured against");
MODULE_LICENSE("GPL");
