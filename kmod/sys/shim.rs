// SPDX-License-Identifier: GPL-2.0-only
//! Declarations of `shim.c`. Every function is one kernel inline; the
//! conditions are that inline's.
#![expect(
    improper_ctypes,
    reason = "kernel structs hold empty structs; they go by pointer only"
)]

use kernel::bindings::{cgroup, inode, mm_struct, pid, pt_regs, super_block, task_struct};

extern "C" {
    /// `d_real_inode()`: the inode that holds the data, beneath an overlay.
    pub(super) fn nsprobe_real_inode(file: *mut kernel::bindings::file) -> *mut inode;
    /// Takes an active reference of a superblock that has one.
    pub(super) fn nsprobe_super_get(sb: *mut super_block) -> bool;
    /// `FMODE_READ`.
    pub(super) fn nsprobe_file_is_readable(file: *mut kernel::bindings::file) -> bool;
    /// `new_encode_dev()` of the inode's file system, as `stat(2)` tells it.
    pub(super) fn nsprobe_inode_dev(inode: *mut inode) -> u64;
    /// `mm->owner`; RCU must be locked.
    pub(super) fn nsprobe_mm_owner(mm: *mut mm_struct) -> *mut task_struct;
    /// `fatal_signal_pending()`.
    pub(super) fn nsprobe_is_killed(task: *mut task_struct) -> bool;
    /// `get_pid()`: one more reference.
    pub(super) fn nsprobe_get_pid(pid: *mut pid) -> *mut pid;
    /// `cgroup_put()`.
    pub(super) fn nsprobe_cgroup_put(cgroup: *mut cgroup);
    /// `task_under_cgroup_hierarchy()`; RCU must be locked.
    pub(super) fn nsprobe_task_in_cgroup(task: *mut task_struct, cgroup: *mut cgroup) -> bool;
    /// `tracepoint_synchronize_unregister()`: sleeps.
    pub(super) fn nsprobe_tracepoints_sync();
    /// `mm->context.ctx_id`, which no other address space ever has, and
    /// `mmap_lock_speculate_try_begin()`: false while its mappings are being changed.
    pub(super) fn nsprobe_mm_layout(
        mm: *mut mm_struct,
        context: *mut u64,
        sequence: *mut u32,
    ) -> bool;
    /// `mmap_lock_speculate_retry()`.
    pub(super) fn nsprobe_mm_changed(mm: *mut mm_struct, sequence: u32) -> bool;
    /// `pagefault_disable()`.
    pub(super) fn nsprobe_pagefault_disable();
    /// `pagefault_enable()`.
    pub(super) fn nsprobe_pagefault_enable();
    /// Reads a word of the user's; with page faults disabled it does not sleep.
    pub(super) fn nsprobe_read_word(word: *mut u64, from: *const u64) -> bool;
    /// Reads two words of the user's, as `nsprobe_read_word`.
    pub(super) fn nsprobe_read_pair(pair: *mut [u64; 2], from: *const u64) -> bool;
    /// The module parameter `allow_modify`.
    pub(super) fn nsprobe_allows_modify() -> bool;
    /// `user_64bit_mode()`.
    pub(super) fn nsprobe_user_64bit(regs: *mut pt_regs) -> bool;
}
