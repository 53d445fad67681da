// SPDX-License-Identifier: GPL-2.0-only
//! A thread that a filter names.

use super::task::{Pid, Process};
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*,
    sync::rcu, //
};

/// A counted reference of a thread, and one of its process.
///
/// # Invariants
///
/// Owns one reference of `id`.
pub(crate) struct Thread {
    id: NonNull<bindings::pid>,
    process: Process,
}

// SAFETY: References of pids are counted atomically and belong to no task.
unsafe impl Send for Thread {}
// SAFETY: Only the address of the pid is read.
unsafe impl Sync for Thread {}

impl Thread {
    /// The living thread that the current task's namespace calls `number`.
    pub(crate) fn find(number: u32) -> Result<Thread> {
        let number = i32::try_from(number).map_err(|_| ESRCH)?;
        // SAFETY: `find_get_pid` has no preconditions and gives a reference or NULL.
        let id = NonNull::new(unsafe { bindings::find_get_pid(number) }).ok_or(ESRCH)?;
        let guard = rcu::read_lock();
        // SAFETY: The pid is held and RCU is locked, as `pid_task` requires; the task is
        // valid until the guard is dropped.
        let process = unsafe {
            let task = bindings::pid_task(id.as_ptr(), bindings::pid_type_PIDTYPE_PID);
            Process::of(task)
        };
        drop(guard);
        match process {
            // INVARIANT: The reference is ours.
            Some(process) => Ok(Thread { id, process }),
            None => {
                // SAFETY: The reference is ours to give back.
                unsafe { bindings::put_pid(id.as_ptr()) };
                Err(ESRCH)
            }
        }
    }

    /// Whether `pid` is this thread.
    pub(crate) fn is(&self, pid: &Pid) -> bool {
        core::ptr::eq(self.id.as_ptr(), pid.as_ptr())
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: By the invariant the reference is ours to give back.
        unsafe { bindings::put_pid(self.id.as_ptr()) };
    }
}
