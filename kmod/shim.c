// SPDX-License-Identifier: GPL-2.0-only
/*
 * What Rust cannot reach safely: static inlines and macros whose layout or
 * arithmetic belongs to the kernel. One line each, no logic.
 */
#include <linux/cgroup.h>
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>
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
bool nsprobe_allows_modify(void);
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
void nsprobe_forked_fits(nsprobe_forked *probe) { check_trace_callback_type_sched_process_fork(probe); }
bool nsprobe_allows_modify(void) { return allow_modify; }
