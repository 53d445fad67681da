// SPDX-License-Identifier: GPL-2.0-only

#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/kdev_t.h>

bool nsprobe_file_is_readable(struct file *file)
{
	return file->f_mode & FMODE_READ;
}

struct inode *nsprobe_real_inode(struct file *file)
{
	return d_real_inode(file->f_path.dentry);
}

u64 nsprobe_inode_dev(struct inode *inode)
{
	return new_encode_dev(inode->i_sb->s_dev);
}

bool nsprobe_super_get(struct super_block *sb)
{
	return atomic_inc_not_zero(&sb->s_active);
}

bool nsprobe_get_root(struct path *root)
{
	if (!current->fs)
		return false;
	get_fs_root(current->fs, root);
	return true;
}
