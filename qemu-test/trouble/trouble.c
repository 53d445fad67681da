// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module that harms the kernel on purpose, in ways in which nsprobe could: the runner must
 * call each a failed run, for the right reason (qemu-test/run/src/controls.rs).
 */
#include <linux/kfence.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

static char *what = "";
module_param(what, charp, 0444);
MODULE_PARM_DESC(what, "tracepoint or freed_object");

/* Not inlined, so that it is in the module's own text, which is gone after the unload. */
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

static int __init trouble_init(void)
{
	if (!strcmp(what, "freed_object"))
		return write_freed_object();
	if (!strcmp(what, "tracepoint"))
		return leave_tracepoint();
	return -EINVAL;
}

static void __exit trouble_exit(void)
{
}

module_init(trouble_init);
module_exit(trouble_exit);
MODULE_DESCRIPTION("Harms the kernel on purpose, for tests of the tests");
MODULE_LICENSE("GPL");
