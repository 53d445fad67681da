// SPDX-License-Identifier: GPL-2.0-only
//! Declarations of the functions in `kmod/helpers/`. Each wraps an inline of the kernel and has the
//! preconditions of that inline.
#![expect(
    improper_ctypes,
    reason = "kernel structs hold empty structs; they go by pointer only"
)]

use super::user_walk::{Step, UserWalk};
use core::ffi::{c_int, c_ulong, c_void};
use kernel::bindings::{
    cgroup, gfp_t, inode, mm_struct, nsproxy, path, pid, pid_namespace, pt_regs, super_block,
    task_struct, vm_area_struct,
};

/// `ns.ns_id`, which is never reused.
///
/// # Safety
///
/// The namespace is valid.
#[inline(always)]
pub(super) unsafe fn pidns_id(ns: *mut pid_namespace) -> u64 {
    // SAFETY: `offsetof` says that a word is there, and the kernel does not change it after the
    // namespace was made; the caller promises that it is valid.
    unsafe { ns.byte_add(nsprobe_pidns_id_at).cast::<u64>().read() }
}

extern "C" {
    /// `__vmalloc()`: whole pages, or NULL. Sleeps.
    pub(super) fn nsprobe_vmalloc(bytes: usize, gfp: gfp_t) -> *mut c_void;
    /// As `kvmalloc()` for several pages: first `kmalloc()` without reclaim, then `vmalloc_huge()`.
    /// Sleeps.
    pub(super) fn nsprobe_kvmalloc(bytes: usize, gfp: gfp_t) -> *mut c_void;
    /// Whether the OOM killer kills the current process before all others from now on. Task
    /// context.
    pub(super) fn nsprobe_oom_origin(is: bool);
    /// `d_real_inode()`: the inode that holds the data, beneath an overlay.
    pub(super) fn nsprobe_real_inode(file: *mut kernel::bindings::file) -> *mut inode;
    /// Whether `uprobe_register()` takes the file of an inode: it has a page cache.
    pub(super) fn nsprobe_has_pages(inode: *mut inode) -> bool;
    /// Whether the kernel itself answers when a file of the file system is opened or read, from a
    /// device or from memory. False of those that it does not know.
    pub(super) fn nsprobe_kernel_answers(sb: *mut super_block) -> bool;
    /// Takes an active reference of a superblock that has one.
    pub(super) fn nsprobe_super_get(sb: *mut super_block) -> bool;
    /// `get_fs_root()` of the current task; false when it has none any more.
    pub(super) fn nsprobe_get_root(root: *mut path) -> bool;
    /// `FMODE_READ`.
    pub(super) fn nsprobe_file_is_readable(file: *mut kernel::bindings::file) -> bool;
    /// `FMODE_READ` or `FMODE_PATH`.
    pub(super) fn nsprobe_file_shows_data(file: *mut kernel::bindings::file) -> bool;
    /// `new_encode_dev()` of the inode's file system, as `stat(2)` reports it.
    pub(super) fn nsprobe_inode_dev(inode: *mut inode) -> u64;
    /// `mm->owner`; RCU must be locked.
    pub(super) fn nsprobe_mm_owner(mm: *mut mm_struct) -> *mut task_struct;
    /// `fatal_signal_pending()`.
    pub(super) fn nsprobe_is_killed(task: *mut task_struct) -> bool;
    /// The other thread of the current process that has this number in its pid namespace, or NULL.
    /// RCU must be locked.
    pub(super) fn nsprobe_other_thread(number: u32) -> *mut task_struct;
    /// `get_pid()`: one more reference.
    pub(super) fn nsprobe_get_pid(pid: *mut pid) -> *mut pid;
    /// `cgroup_put()`.
    pub(super) fn nsprobe_cgroup_put(cgroup: *mut cgroup);
    /// `task_under_cgroup_hierarchy()`; RCU must be locked.
    pub(super) fn nsprobe_task_in_cgroup(task: *mut task_struct, cgroup: *mut cgroup) -> bool;
    /// `tracepoint_synchronize_unregister()`: sleeps.
    pub(super) fn nsprobe_tracepoints_sync();
    /// Whether a `ret` of the current task is nothing but a jump and a pop: in 64-bit code, without
    /// a shadow stack or the trap flag.
    pub(super) fn nsprobe_returns_plainly(regs: *mut pt_regs) -> bool;
    /// The base of `fs`, which user space uses as the thread pointer. Any context of a user task.
    pub(super) fn nsprobe_thread_pointer() -> u64;
    /// Reads a word of user memory without sleeping.
    pub(super) fn nsprobe_read_word_nofault(word: *mut u64, from: *const u64) -> bool;
    /// Reads a word of user memory; with page faults disabled it does not sleep.
    pub(super) fn nsprobe_read_word(word: *mut u64, from: *const u64) -> bool;
    /// Reads two words of user memory, as `nsprobe_read_word`.
    pub(super) fn nsprobe_read_pair(pair: *mut [u64; 2], from: *const u64) -> bool;
    /// The module parameter `paranoid`.
    pub(super) fn nsprobe_is_paranoid() -> bool;
    /// The module parameter `allow_modify`.
    pub(super) fn nsprobe_allows_modify() -> bool;
    /// The number of leading steps, out of `count`, whose words in memory are unchanged. With page
    /// faults disabled it does not sleep. The addresses must have been checked.
    pub(super) fn nsprobe_matching(steps: *const Step, count: u32, by_frame_pointers: bool) -> u32;
    /// Follows frame pointers as far as all is known; with page faults disabled it does not sleep.
    /// Returns an `enum nsprobe_walk_stop`.
    pub(super) fn nsprobe_follow_frame_pointers(walk: *mut UserWalk) -> u32;
    /// The same by kept rules.
    pub(super) fn nsprobe_follow_rules(walk: *mut UserWalk) -> u32;
    /// `__module_get()` of this module, which must be in use.
    pub(super) fn nsprobe_module_get();
    /// `module_put()` of this module.
    pub(super) fn nsprobe_module_put();
    /// Whether a page of it that is not present comes from memory or a disk; the mapping must be
    /// locked.
    pub(super) fn nsprobe_is_of_memory_or_disk(vma: *mut vm_area_struct) -> bool;
    /// `vma_is_anonymous()`, and no userfaultfd serves it; the mapping must be locked.
    pub(super) fn nsprobe_is_private_memory(vma: *mut vm_area_struct) -> bool;
    /// The vDSO of an address space, as the address of its `struct vdso_image`, and where it is
    /// mapped; NULL for none.
    pub(super) fn nsprobe_vdso(mm: *mut mm_struct, start: *mut c_ulong) -> *const c_void;
    /// `cgroup_id()` of `task_dfl_cgroup()`; RCU must be locked.
    pub(super) fn nsprobe_task_cgroup(task: *mut task_struct) -> u64;
    /// `task_dfl_cgroup()`; RCU must be locked.
    pub(super) fn nsprobe_task_dfl_cgroup(task: *mut task_struct) -> *mut cgroup;
    /// `__task_state_index()`.
    pub(super) fn nsprobe_task_state_index(state: u32, exit_state: u32) -> u32;
    /// `task_lock()`.
    pub(super) fn nsprobe_task_lock(task: *mut task_struct);
    /// Takes the lock of `task_lock()` if it is free.
    pub(super) fn nsprobe_task_trylock(task: *mut task_struct) -> bool;
    /// `task_unlock()`.
    pub(super) fn nsprobe_task_unlock(task: *mut task_struct);
    /// Writes inode numbers by `NAMESPACE_*` from that of mounts to that of clocks, but not
    /// that of users.
    pub(super) fn nsprobe_namespaces(all: *mut nsproxy, inums: *mut u32);
    /// The id of the mount namespace, which is never reused.
    pub(super) fn nsprobe_mntns_id(all: *mut nsproxy) -> u64;
    /// Where `ns.ns_id` is in a `struct pid_namespace`.
    pub(super) static nsprobe_pidns_id_at: usize;
    /// `on_each_cpu()`: calls with interrupts off on each CPU, and waits until all are done.
    pub(super) fn nsprobe_on_each_cpu(call: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    /// Makes the kernel run `call` after the namespaces of a task may have changed, in that task,
    /// until `nsprobe_namespaces_unprobe`. Once. A negative error if that fails.
    pub(super) fn nsprobe_namespaces_probe(
        call: unsafe extern "C" fn(*mut c_void, *mut pt_regs) -> c_int,
    ) -> c_int;
    /// Undoes `nsprobe_namespaces_probe`, and waits for the last call. Sleeps.
    pub(super) fn nsprobe_namespaces_unprobe();
    /// The task that such a call is about, from its registers.
    pub(super) fn nsprobe_probed_task(regs: *mut pt_regs) -> *mut task_struct;
    /// `is_64bit_mm()`.
    pub(super) fn nsprobe_is_64bit_mm(mm: *mut mm_struct) -> bool;
    /// `user_64bit_mode()`.
    pub(super) fn nsprobe_user_64bit(regs: *mut pt_regs) -> bool;
    /// `perf_event_create_kernel_counter()`: runs `call` on an online CPU, `hz` times per second of
    /// its clock or of its cycles. An error pointer if that fails. Sleeps.
    pub(super) fn nsprobe_sampling(
        cpu: c_int,
        hz: u64,
        by_clock: bool,
        call: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut pt_regs),
        context: *mut c_void,
    ) -> *mut c_void;
    /// The `context` of such an event.
    pub(super) fn nsprobe_sampler(event: *mut c_void) -> *mut c_void;
    /// Whether such an event counts its CPU's clock.
    pub(super) fn nsprobe_is_by_clock(event: *mut c_void) -> bool;
    /// `user_mode()`.
    pub(super) fn nsprobe_in_user(regs: *mut pt_regs) -> bool;
    /// `in_nmi()`.
    pub(super) fn nsprobe_in_nmi() -> bool;
    /// `!in_task()`.
    pub(super) fn nsprobe_in_interrupt() -> bool;
    /// `in_serving_softirq()`, but for what interrupts it.
    pub(super) fn nsprobe_in_softirq() -> bool;
    /// Whether the current task is in a system call of a 32-bit program.
    pub(super) fn nsprobe_is_32bit_call() -> bool;
    /// The mode of what a file descriptor of the current task refers to; zero for nothing, and for
    /// what has no file. RCU must be locked. Another thread may close it meanwhile: then it is that
    /// of some other file.
    pub(super) fn nsprobe_fd_mode(fd: u32) -> u32;
    /// `task_pt_regs()` of the current task, which must not be a kernel thread.
    pub(super) fn nsprobe_user_regs() -> *mut pt_regs;
}
