// SPDX-License-Identifier: GPL-2.0-only
/*
 * What Rust cannot reach safely: static inlines and macros whose layout or
 * arithmetic belongs to the kernel. One line each, no logic, but for one loop.
 */
#include <linux/cgroup.h>
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/userfaultfd_k.h>
#include <trace/events/sched.h>

struct inode *nsprobe_real_inode(struct file *file);
bool nsprobe_super_get(struct super_block *sb);
bool nsprobe_user_64bit(struct pt_regs *regs);
bool nsprobe_file_is_readable(struct file *file);
u64 nsprobe_inode_dev(struct inode *inode);
struct task_struct *nsprobe_mm_owner(struct mm_struct *mm);
bool nsprobe_is_killed(struct task_struct *task);
struct pid *nsprobe_get_pid(struct pid *pid);
void nsprobe_cgroup_put(struct cgroup *cgroup);
bool nsprobe_task_in_cgroup(struct task_struct *task, struct cgroup *cgroup);
void nsprobe_tracepoints_sync(void);
bool nsprobe_mm_layout(struct mm_struct *mm, u64 *context, unsigned int *sequence);
bool nsprobe_mm_changed(struct mm_struct *mm, unsigned int sequence);
void nsprobe_pagefault_disable(void);
void nsprobe_pagefault_enable(void);
bool nsprobe_read_word(u64 *word, const u64 __user *from);
bool nsprobe_read_pair(u64 *pair, const u64 __user *from);
bool nsprobe_allows_modify(void);
struct nsprobe_step { u64 slot, rip, rbp_slot, rbp, word; };
u32 nsprobe_matching(const struct nsprobe_step *step, u32 count);
void nsprobe_module_get(void);
void nsprobe_module_put(void);
bool nsprobe_is_private_memory(struct vm_area_struct *vma);
const void *nsprobe_vdso(struct mm_struct *mm, unsigned long *start);
typedef void nsprobe_forked(void *data, struct task_struct *parent, struct task_struct *child);
void nsprobe_forked_fits(nsprobe_forked *probe);

static bool allow_modify;
module_param(allow_modify, bool, 0444);
MODULE_PARM_DESC(allow_modify, "Sessions may ask to change registers and memory of traced programs (default: off)");

struct inode *nsprobe_real_inode(struct file *file) { return d_real_inode(file->f_path.dentry); }
bool nsprobe_super_get(struct super_block *sb) { return atomic_inc_not_zero(&sb->s_active); }
bool nsprobe_user_64bit(struct pt_regs *regs) { return user_64bit_mode(regs); }
bool nsprobe_file_is_readable(struct file *file) { return file->f_mode & FMODE_READ; }
u64 nsprobe_inode_dev(struct inode *inode) { return new_encode_dev(inode->i_sb->s_dev); }
struct task_struct *nsprobe_mm_owner(struct mm_struct *mm) { return rcu_dereference(mm->owner); }
bool nsprobe_is_killed(struct task_struct *task) { return fatal_signal_pending(task); }
struct pid *nsprobe_get_pid(struct pid *pid) { return get_pid(pid); }
void nsprobe_cgroup_put(struct cgroup *cgroup) { cgroup_put(cgroup); }
bool nsprobe_task_in_cgroup(struct task_struct *task, struct cgroup *cgroup) { return task_under_cgroup_hierarchy(task, cgroup); }
void nsprobe_tracepoints_sync(void) { tracepoint_synchronize_unregister(); }
bool nsprobe_mm_layout(struct mm_struct *mm, u64 *context, unsigned int *sequence) { *context = mm->context.ctx_id; return mmap_lock_speculate_try_begin(mm, sequence); }
bool nsprobe_mm_changed(struct mm_struct *mm, unsigned int sequence) { return mmap_lock_speculate_retry(mm, sequence); }
void nsprobe_pagefault_disable(void) { pagefault_disable(); }
void nsprobe_pagefault_enable(void) { pagefault_enable(); }
bool nsprobe_read_word(u64 *word, const u64 __user *from) { if (!user_access_begin(from, sizeof(*from))) return false; unsafe_get_user(*word, from, fault); user_access_end(); return true; fault: user_access_end(); return false; }
bool nsprobe_read_pair(u64 *pair, const u64 __user *from) { if (!user_access_begin(from, 2 * sizeof(*from))) return false; unsafe_get_user(pair[0], from, fault); unsafe_get_user(pair[1], from + 1, fault); user_access_end(); return true; fault: user_access_end(); return false; }
void nsprobe_forked_fits(nsprobe_forked *probe) { check_trace_callback_type_sched_process_fork(probe); }
bool nsprobe_allows_modify(void) { return allow_modify; }
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
void nsprobe_module_get(void) { __module_get(THIS_MODULE); }
void nsprobe_module_put(void) { module_put(THIS_MODULE); }
bool nsprobe_is_private_memory(struct vm_area_struct *vma) { return vma_is_anonymous(vma) && !userfaultfd_armed(vma); }
const void *nsprobe_vdso(struct mm_struct *mm, unsigned long *start) { *start = (unsigned long)mm->context.vdso; return mm->context.vdso_image; }
