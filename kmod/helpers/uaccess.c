// SPDX-License-Identifier: GPL-2.0-only

#include <linux/uaccess.h>

void nsprobe_pagefault_disable(void)
{
	pagefault_disable();
}

void nsprobe_pagefault_enable(void)
{
	pagefault_enable();
}

bool nsprobe_read_word(u64 *word, const u64 __user *from)
{
	if (!user_access_begin(from, sizeof(*from)))
		return false;
	unsafe_get_user(*word, from, fault);
	user_access_end();
	return true;
fault:
	user_access_end();
	return false;
}

bool nsprobe_read_word_nofault(u64 *word, const u64 __user *from)
{
	bool read;

	pagefault_disable();
	read = nsprobe_read_word(word, from);
	pagefault_enable();
	return read;
}

bool nsprobe_read_pair(u64 *pair, const u64 __user *from)
{
	if (!user_access_begin(from, 2 * sizeof(*from)))
		return false;
	unsafe_get_user(pair[0], from, fault);
	unsafe_get_user(pair[1], from + 1, fault);
	user_access_end();
	return true;
fault:
	user_access_end();
	return false;
}

/* Step of kmod/sys/step.rs. */
struct nsprobe_step {
	u64 slot;
	u64 rip;
	u64 rbp_slot;
	u64 rbp;
	u64 word;
};

u32 nsprobe_matching(const struct nsprobe_step *step, u32 count)
{
	/* A loop, as nothing may be called while user memory is open. */
	u32 i;
	u64 word;

	if (!user_access_begin((void __user *)0, 0))
		return 0;
	for (i = 0; i < count; i++, step++) {
		unsafe_get_user(word, (const u64 __user *)step->slot, out);
		if (word != step->rip)
			break;
		if (!step->rbp_slot)
			continue;
		unsafe_get_user(word, (const u64 __user *)step->rbp_slot, out);
		if (word != step->rbp)
			break;
	}
out:
	user_access_end();
	return i;
}
