// SPDX-License-Identifier: GPL-2.0-only
/*
 * What Rust cannot reach safely: static inlines and macros whose layout or
 * arithmetic belongs to the kernel. One line each, no logic, but for one loop.
 */
#include <asm/prctl.h>
#include <linux/cgroup.h>
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/ipc_namespace.h>
#include <linux/kdev_t.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nsproxy.h>
#include <linux/oom.h>
#include <linux/perf_event.h>
#include <linux/pid_namespace.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/time_namespace.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/userfaultfd_k.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>
#include <trace/events/cgroup.h>
#include <trace/events/mmap.h>
#include <trace/events/sched.h>
#include <trace/events/task.h>

void *nsprobe_vmalloc(size_t bytes, gfp_t gfp);
void *nsprobe_kvmalloc(size_t bytes, gfp_t gfp);
void nsprobe_oom_origin(bool is);
struct inode *nsprobe_real_inode(struct file *file);
bool nsprobe_super_get(struct super_block *sb);
bool nsprobe_user_64bit(struct pt_regs *regs);
bool nsprobe_file_is_readable(struct file *file);
bool nsprobe_get_root(struct path *root);
u64 nsprobe_inode_dev(struct inode *inode);
struct task_struct *nsprobe_mm_owner(struct mm_struct *mm);
bool nsprobe_is_killed(struct task_struct *task);
struct pid *nsprobe_get_pid(struct pid *pid);
void nsprobe_cgroup_put(struct cgroup *cgroup);
bool nsprobe_task_in_cgroup(struct task_struct *task, struct cgroup *cgroup);
void nsprobe_tracepoints_sync(void);
bool nsprobe_mm_layout(struct mm_struct *mm, unsigned int *sequence);
bool nsprobe_mm_changed(struct mm_struct *mm, unsigned int sequence);
bool nsprobe_read_word_nofault(u64 *word, const u64 __user *from);
bool nsprobe_returns_plainly(struct pt_regs *regs);
typedef void nsprobe_space_ended(void *data, struct mm_struct *mm);
void nsprobe_space_ended_fits(nsprobe_space_ended *probe);
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
u64 nsprobe_task_cgroup(struct task_struct *task);
struct cgroup *nsprobe_task_dfl_cgroup(struct task_struct *task);
u32 nsprobe_task_state_index(u32 state, u32 exit_state);
void nsprobe_task_lock(struct task_struct *task);
bool nsprobe_task_trylock(struct task_struct *task);
void nsprobe_task_unlock(struct task_struct *task);
void nsprobe_namespaces(struct nsproxy *all, u32 *inums);
u64 nsprobe_pidns_id(struct pid_namespace *ns);
void nsprobe_on_each_cpu(smp_call_func_t call, void *data);
int nsprobe_namespaces_probe(kprobe_pre_handler_t call);
void nsprobe_namespaces_unprobe(void);
struct task_struct *nsprobe_probed_task(struct pt_regs *regs);
typedef void nsprobe_made(void *data, struct task_struct *task, u64 clone_flags);
typedef void nsprobe_executed(void *data, struct task_struct *task, pid_t old, struct linux_binprm *bprm);
typedef void nsprobe_exited(void *data, struct task_struct *task, bool group_dead);
typedef void nsprobe_renamed(void *data, struct task_struct *task, const char *comm);
typedef void nsprobe_moved(void *data, struct cgroup *to, const char *path, struct task_struct *task, bool threadgroup);
typedef void nsprobe_switched(void *data, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state);
typedef void nsprobe_woken(void *data, struct task_struct *task);
void nsprobe_task_points_fit(nsprobe_made *made, nsprobe_executed *executed, nsprobe_exited *exited, nsprobe_renamed *renamed, nsprobe_moved *moved, nsprobe_switched *switched, nsprobe_woken *woken);
struct perf_event *nsprobe_sampling(int cpu, u64 hz, bool by_clock, perf_overflow_handler_t call, void *context);
void *nsprobe_sampler(struct perf_event *event);
bool nsprobe_is_by_clock(struct perf_event *event);
bool nsprobe_in_user(struct pt_regs *regs);
bool nsprobe_in_nmi(void);
bool nsprobe_in_hardirq(void);
struct pt_regs *nsprobe_user_regs(void);

static bool allow_modify;
module_param(allow_modify, bool, 0444);
MODULE_PARM_DESC(allow_modify, "Sessions may ask to change registers and memory of traced programs (default: off)");

void *nsprobe_vmalloc(size_t bytes, gfp_t gfp) { return __vmalloc(bytes, gfp); }
void *nsprobe_kvmalloc(size_t bytes, gfp_t gfp) { return kmalloc(bytes, gfp & ~__GFP_DIRECT_RECLAIM) ?: vmalloc_huge(bytes, gfp); }
void nsprobe_oom_origin(bool is) { current->signal->oom_flag_origin = is; }
struct inode *nsprobe_real_inode(struct file *file) { return d_real_inode(file->f_path.dentry); }
bool nsprobe_super_get(struct super_block *sb) { return atomic_inc_not_zero(&sb->s_active); }
bool nsprobe_user_64bit(struct pt_regs *regs) { return user_64bit_mode(regs); }
bool nsprobe_get_root(struct path *root) { return current->fs && (get_fs_root(current->fs, root), true); }
bool nsprobe_file_is_readable(struct file *file) { return file->f_mode & FMODE_READ; }
u64 nsprobe_inode_dev(struct inode *inode) { return new_encode_dev(inode->i_sb->s_dev); }
struct task_struct *nsprobe_mm_owner(struct mm_struct *mm) { return rcu_dereference(mm->owner); }
bool nsprobe_is_killed(struct task_struct *task) { return fatal_signal_pending(task); }
struct pid *nsprobe_get_pid(struct pid *pid) { return get_pid(pid); }
void nsprobe_cgroup_put(struct cgroup *cgroup) { cgroup_put(cgroup); }
bool nsprobe_task_in_cgroup(struct task_struct *task, struct cgroup *cgroup) { return task_under_cgroup_hierarchy(task, cgroup); }
void nsprobe_tracepoints_sync(void) { tracepoint_synchronize_unregister(); }
bool nsprobe_mm_layout(struct mm_struct *mm, unsigned int *sequence) { return mmap_lock_speculate_try_begin(mm, sequence); }
bool nsprobe_mm_changed(struct mm_struct *mm, unsigned int sequence) { return mmap_lock_speculate_retry(mm, sequence); }
#ifdef CONFIG_X86_USER_SHADOW_STACK
#define HAS_SHADOW_STACK (current->thread.features & ARCH_SHSTK_SHSTK)
#else
#define HAS_SHADOW_STACK false
#endif
bool nsprobe_returns_plainly(struct pt_regs *regs) { return user_64bit_mode(regs) && !(regs->flags & X86_EFLAGS_TF) && !HAS_SHADOW_STACK; }
void nsprobe_space_ended_fits(nsprobe_space_ended *probe) { check_trace_callback_type_exit_mmap(probe); }
void nsprobe_pagefault_disable(void) { pagefault_disable(); }
void nsprobe_pagefault_enable(void) { pagefault_enable(); }
bool nsprobe_read_word(u64 *word, const u64 __user *from) { if (!user_access_begin(from, sizeof(*from))) return false; unsafe_get_user(*word, from, fault); user_access_end(); return true; fault: user_access_end(); return false; }
bool nsprobe_read_word_nofault(u64 *word, const u64 __user *from) { bool read; pagefault_disable(); read = nsprobe_read_word(word, from); pagefault_enable(); return read; }
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
u64 nsprobe_task_cgroup(struct task_struct *task) { return cgroup_id(task_dfl_cgroup(task)); }
struct cgroup *nsprobe_task_dfl_cgroup(struct task_struct *task) { return task_dfl_cgroup(task); }
u32 nsprobe_task_state_index(u32 state, u32 exit_state) { return __task_state_index(state, exit_state); }
void nsprobe_task_lock(struct task_struct *task) { task_lock(task); }
bool nsprobe_task_trylock(struct task_struct *task) { return spin_trylock(&task->alloc_lock); }
void nsprobe_task_unlock(struct task_struct *task) { task_unlock(task); }
/* By NAMESPACE_* of common/src/task.rs. What a mnt_namespace begins with is only in fs/mount.h: it must say itself that it is one. */
void nsprobe_namespaces(struct nsproxy *all, u32 *inums) { struct ns_common *mnt = (struct ns_common *)all->mnt_ns; inums[0] = mnt->ns_type == CLONE_NEWNS ? mnt->inum : 0; inums[1] = all->uts_ns->ns.inum; inums[2] = all->ipc_ns->ns.inum; inums[3] = all->net_ns->ns.inum; inums[5] = all->cgroup_ns->ns.inum; inums[6] = all->time_ns->ns.inum; }
u64 nsprobe_pidns_id(struct pid_namespace *ns) { return ns->ns.ns_id; }
void nsprobe_on_each_cpu(smp_call_func_t call, void *data) { on_each_cpu(call, data, 1); }
/* Where setns() and unshare() tell perf of what they have done: it is all done then, and nothing else goes this way but forks. */
static struct kprobe namespaces_probe;
int nsprobe_namespaces_probe(kprobe_pre_handler_t call) { namespaces_probe = (struct kprobe){ .symbol_name = "perf_event_namespaces", .pre_handler = call }; return register_kprobe(&namespaces_probe); }
void nsprobe_namespaces_unprobe(void) { unregister_kprobe(&namespaces_probe); }
struct task_struct *nsprobe_probed_task(struct pt_regs *regs) { return (struct task_struct *)regs_get_kernel_argument(regs, 0); }
void nsprobe_task_points_fit(nsprobe_made *made, nsprobe_executed *executed, nsprobe_exited *exited, nsprobe_renamed *renamed, nsprobe_moved *moved, nsprobe_switched *switched, nsprobe_woken *woken) { check_trace_callback_type_task_newtask(made); check_trace_callback_type_sched_process_exec(executed); check_trace_callback_type_sched_process_exit(exited); check_trace_callback_type_task_rename(renamed); check_trace_callback_type_cgroup_attach_task(moved); check_trace_callback_type_sched_switch(switched); check_trace_callback_type_sched_waking(woken); check_trace_callback_type_sched_wakeup(woken); check_trace_callback_type_sched_wakeup_new(woken); }
struct perf_event *nsprobe_sampling(int cpu, u64 hz, bool by_clock, perf_overflow_handler_t call, void *context) { struct perf_event_attr attr = { .type = by_clock ? PERF_TYPE_SOFTWARE : PERF_TYPE_HARDWARE, .config = by_clock ? PERF_COUNT_SW_CPU_CLOCK : PERF_COUNT_HW_CPU_CYCLES, .size = sizeof(attr), .freq = 1, .sample_freq = hz, .exclude_guest = !by_clock }; return perf_event_create_kernel_counter(&attr, cpu, NULL, call, context); }
void *nsprobe_sampler(struct perf_event *event) { return event->overflow_handler_context; }
bool nsprobe_is_by_clock(struct perf_event *event) { return event->attr.type != PERF_TYPE_HARDWARE; }
bool nsprobe_in_user(struct pt_regs *regs) { return user_mode(regs); }
bool nsprobe_in_nmi(void) { return in_nmi(); }
bool nsprobe_in_hardirq(void) { return in_hardirq(); }
struct pt_regs *nsprobe_user_regs(void) { return task_pt_regs(current); }
