// SPDX-License-Identifier: GPL-2.0-only

#include <linux/uaccess.h>

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
