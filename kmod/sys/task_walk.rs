// SPDX-License-Identifier: GPL-2.0-only
//! The threads of a pid namespace and of those below it, by their numbers.

use super::{
    any_task::AnyTask,
    rcu_slot::Reading,
    task::Namespace, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    sync::rcu, //
};

/// Passes the next thread to `look`: the one whose number in `namespace` is `from`, or the least
/// one above; under RCU. Returns its number and the result of `look`, or `None` if there are no
/// more. Task context; `look` must not sleep.
pub(crate) fn next_task<R>(
    namespace: &Namespace,
    from: u32,
    look: impl FnOnce(&AnyTask<'_>) -> R,
) -> Option<(u32, R)> {
    let mut from = i32::try_from(from).ok()?;
    loop {
        let guard = rcu::read_lock();
        // SAFETY: RCU is locked and the namespace held, as `find_ge_pid` requires; the pid and
        // its task stay valid as long as RCU is locked.
        let (number, task) = unsafe {
            let pid = NonNull::new(bindings::find_ge_pid(from, namespace.as_ptr()))?;
            let number = bindings::pid_nr_ns(pid.as_ptr(), namespace.as_ptr());
            let task = bindings::pid_task(pid.as_ptr(), bindings::pid_type_PIDTYPE_PID);
            (number, NonNull::new(task))
        };
        if let Some(task) = task {
            // SAFETY: As above.
            let task = unsafe { AnyTask::from_ptr(task, Reading::under_rcu(&guard)) };
            return Some((number as u32, look(&task)));
        }
        // The number of a group or session of processes, or of a thread that is just gone.
        from = number.checked_add(1)?;
    }
}
