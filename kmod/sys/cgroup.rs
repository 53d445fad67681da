// SPDX-License-Identifier: GPL-2.0-only
//! Control groups of the unified hierarchy (cgroup v2).

use super::helpers;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

/// A control group, held by a reference. It may be removed from the hierarchy meanwhile; then no
/// task is in it any more.
///
/// # Invariants
///
/// Owns one reference.
pub(crate) struct Cgroup(NonNull<bindings::cgroup>);

// SAFETY: References are counted atomically and belong to no task.
unsafe impl Send for Cgroup {}
// SAFETY: Only the address and fields that are fixed for the group's life are read.
unsafe impl Sync for Cgroup {}

impl Cgroup {
    /// The group whose directory is open as `fd`. `EBADF` if it is not one of cgroup v2.
    pub(crate) fn from_fd(fd: i32) -> Result<Self> {
        // SAFETY: No preconditions; gives a reference or an error.
        Self::owned(unsafe { bindings::cgroup_get_from_fd(fd) })
    }

    /// The group whose directory has this inode number, seen from the current task's
    /// cgroup namespace.
    pub(crate) fn from_id(id: u64) -> Result<Self> {
        // SAFETY: As in `from_fd`.
        Self::owned(unsafe { bindings::cgroup_get_from_id(id) })
    }

    fn owned(cgroup: *mut bindings::cgroup) -> Result<Self> {
        let cgroup = NonNull::new(from_err_ptr(cgroup)?).ok_or(ENOENT)?;
        // INVARIANT: The reference was just given to us.
        Ok(Cgroup(cgroup))
    }

    /// The inode number of its directory.
    pub(crate) fn id(&self) -> u64 {
        // SAFETY: The group is held; its kernfs node and that one's id are fixed.
        unsafe { (*(*self.0.as_ptr()).kn).id }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::cgroup {
        self.0.as_ptr()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // SAFETY: By the invariant the reference is ours to give back.
        unsafe { helpers::nsprobe_cgroup_put(self.0.as_ptr()) };
    }
}
