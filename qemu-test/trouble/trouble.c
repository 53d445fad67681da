// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module that harms the kernel on purpose, in the ways in which nsprobe could: the runner
 * must call each a failed run, for the right reason (qemu-test/run/src/controls.rs).
 *
 * What is left behind at unload is allocated, so that its code is gone and not its data: a
 * late call then runs the text of an unloaded module.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/irq_work.h>
#include <linux/kfence.h>
#include <linux/kthread.h>
#include <linux/math.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/tracepoint.h>
#include <linux/vmalloc.h>

static char *what = "";
module_param(what, charp, 0444);
MODULE_PARM_DESC(what, "breakpoint, tracepoint, timer, irq_work, warning, stall, hang, "
		       "freed_object, guarded_object, freed_page or name");

/* Not inlined, so that it is in the module's own text. */
static noinline void late_timer(struct timer_list *timer)
{
	pr_info("trouble: the timer's code is still there\n");
}

/* Again at each tick, so that one comes behind the unload. */
static noinline void late_work(struct irq_work *work)
{
	irq_work_queue(work);
}

static noinline void late_probe(void *data, struct task_struct *task, u64 clone_flags)
{
}

static void find_newtask(struct tracepoint *point, void *found)
{
	if (!strcmp(point->name, "task_newtask"))
		*(struct tracepoint **)found = point;
}

static int leave_tracepoint(void)
{
	struct tracepoint *point = NULL;

	for_each_kernel_tracepoint(find_newtask, &point);
	return point ? tracepoint_probe_register(point, late_probe, NULL) : -ENOENT;
}

static int leave_timer(void)
{
	struct timer_list *late = kzalloc(sizeof(*late), GFP_KERNEL);

	if (!late)
		return -ENOMEM;
	timer_setup(late, late_timer, 0);
	mod_timer(late, jiffies + 2 * HZ);
	return 0;
}

static int leave_irq_work(void)
{
	struct irq_work *late = kmalloc(sizeof(*late), GFP_KERNEL);

	if (!late)
		return -ENOMEM;
	*late = IRQ_WORK_INIT_LAZY(late_work);
	irq_work_queue(late);
	return 0;
}

/* A breakpoint in the kernel's own text, as a kprobe that was forgotten leaves one. */
static int leave_breakpoint(void)
{
	unsigned long at = (unsigned long)int_sqrt;
	struct page *page = pfn_to_page(__pa_symbol(at) >> PAGE_SHIFT);
	u8 *alias = vmap(&page, 1, VM_MAP, PAGE_KERNEL);

	if (!alias)
		return -ENOMEM;
	alias[offset_in_page(at)] = 0xcc;
	vunmap(alias);
	return int_sqrt(4) == 2 ? 0 : -EIO;
}

static int hang(void *unused)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule();
	return 0;
}

static void done(struct rcu_head *head)
{
}

/* A reader that a grace period waits for; it may be preempted, so that one can begin. */
static void stall(void)
{
	static struct rcu_head head;

	rcu_read_lock();
	call_rcu(&head, done);
	mdelay(20000);
	rcu_read_unlock();
}

/* Seen by slab debugging when the object is given out again. Not one that KFENCE guards. */
static int write_freed_object(void)
{
	struct kmem_cache *cache = kmem_cache_create("trouble", 64, 0, 0, NULL);
	u8 *objects[8], *freed = NULL;
	int i;

	if (!cache)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		if (!is_kfence_address(objects[i]))
			freed = objects[i];
	}
	for (i = 0; i < ARRAY_SIZE(objects); i++)
		kmem_cache_free(cache, objects[i]);
	if (freed)
		WRITE_ONCE(freed[32], 1);
	for (i = 0; i < ARRAY_SIZE(objects); i++)
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (i = 0; i < ARRAY_SIZE(objects); i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_destroy(cache);
	return 0;
}

/* Allocates from a call chain of that many frames. */
static noinline u8 *allocate_behind(int calls)
{
	u8 *object;

	if (calls)
		object = allocate_behind(calls - 1);
	else
		object = kmalloc(64, GFP_KERNEL);
	/* No jump in place of a call. */
	barrier();
	return object;
}

/*
 * Seen by KFENCE, which guards one object now and then; slab debugging is blind to it. KFENCE
 * does not guard what has the stack of an object that it guards; it knows stacks by a hash, and
 * takes one in six for another one as long as that lives: so there are several.
 */
static int read_guarded_object(void)
{
	int i;

	for (i = 0; i < 2000; i++) {
		u8 *object = allocate_behind(i % 8);

		if (!object)
			return -ENOMEM;
		kfree(object);
		READ_ONCE(object[32]);
		msleep(2);
	}
	return 0;
}

/* Seen by page poisoning when the page is given out again. */
static int write_freed_page(void)
{
	struct page *pages[64];
	int i;

	pages[0] = alloc_page(GFP_KERNEL);
	if (!pages[0])
		return -ENOMEM;
	__free_page(pages[0]);
	memset(page_address(pages[0]), 1, 64);
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = alloc_page(GFP_KERNEL);
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i])
			__free_page(pages[i]);
	return 0;
}

/* A device that has our device's name already. */
static const struct file_operations no_operations = { .owner = THIS_MODULE };
static struct miscdevice squatter = {
	.minor = MISC_DYNAMIC_MINOR, .name = "nsprobe", .fops = &no_operations
};

static int __init trouble_init(void)
{
	if (!strcmp(what, "name"))
		return misc_register(&squatter);
	if (!strcmp(what, "freed_object"))
		return write_freed_object();
	if (!strcmp(what, "guarded_object"))
		return read_guarded_object();
	if (!strcmp(what, "freed_page"))
		return write_freed_page();
	if (!strcmp(what, "tracepoint"))
		return leave_tracepoint();
	if (!strcmp(what, "timer"))
		return leave_timer();
	if (!strcmp(what, "breakpoint"))
		return leave_breakpoint();
	if (!strcmp(what, "irq_work"))
		return leave_irq_work();
	if (!strcmp(what, "warning"))
		return WARN(1, "trouble: on purpose\n") ? 0 : -EIO;
	if (!strcmp(what, "hang"))
		return PTR_ERR_OR_ZERO(kthread_run(hang, NULL, "trouble"));
	if (!strcmp(what, "stall")) {
		stall();
		return 0;
	}
	return -EINVAL;
}

static void __exit trouble_exit(void)
{
	if (!strcmp(what, "name"))
		misc_deregister(&squatter);
}

module_init(trouble_init);
module_exit(trouble_exit);
MODULE_DESCRIPTION("Harms the kernel on purpose, for tests of the tests");
MODULE_LICENSE("GPL");
