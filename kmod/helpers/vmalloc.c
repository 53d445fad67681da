// SPDX-License-Identifier: GPL-2.0-only

#include <linux/slab.h>
#include <linux/vmalloc.h>

void *nsprobe_vmalloc(size_t bytes, gfp_t gfp)
{
	return __vmalloc(bytes, gfp);
}

void *nsprobe_kvmalloc(size_t bytes, gfp_t gfp)
{
	void *memory = kmalloc(bytes, gfp & ~__GFP_DIRECT_RECLAIM);

	return memory ?: vmalloc_huge(bytes, gfp);
}
