// SPDX-License-Identifier: GPL-2.0-only

#include <linux/dcache.h>
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/kdev_t.h>
#include <linux/magic.h>
#include <linux/shmem_fs.h>

#define NSPROBE_ZFS_MAGIC 0x2fc12fc1

bool nsprobe_file_is_readable(struct file *file)
{
	return file->f_mode & FMODE_READ;
}

bool nsprobe_file_shows_data(struct file *file)
{
	return file->f_mode & (FMODE_READ | FMODE_PATH);
}

u32 nsprobe_fd_mode(u32 fd)
{
	struct files_struct *files = READ_ONCE(current->files);
	struct file *file = files ? files_lookup_fd_raw(files, fd) : NULL;
	struct inode *inode = file ? READ_ONCE(file->f_inode) : NULL;

	if (!inode || inode->i_sb->s_magic == ANON_INODE_FS_MAGIC)
		return 0;
	return inode->i_mode;
}

struct inode *nsprobe_real_inode(struct file *file)
{
	return d_real_inode(file->f_path.dentry);
}

u64 nsprobe_inode_dev(struct inode *inode)
{
	return new_encode_dev(inode->i_sb->s_dev);
}

bool nsprobe_has_pages(struct inode *inode)
{
	struct address_space *mapping = inode->i_mapping;

	return mapping->a_ops->read_folio || shmem_mapping(mapping);
}

bool nsprobe_kernel_answers(struct super_block *sb)
{
	switch (sb->s_magic) {
	case FUSE_SUPER_MAGIC:	/* fuseblk has a device, and a server */
	case OCFS2_SUPER_MAGIC:	/* the other machines of its cluster answer */
		return false;
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case NSPROBE_ZFS_MAGIC:
		return true;
	default:
		return sb->s_type->fs_flags & FS_REQUIRES_DEV;
	}
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
