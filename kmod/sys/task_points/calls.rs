// SPDX-License-Identifier: GPL-2.0-only
//! The functions that the kernel calls at tracepoints of tasks: they turn pointers into tasks and
//! call each listener. `task_points.rs` lists the contexts.

use super::{each, Switch, Wake};
use crate::sys::{
    any_task::AnyTask,
    helpers,
    rcu_slot::Reading, //
};
use core::{
    ffi::{c_char, c_int, c_void},
    mem::offset_of,
    ptr::NonNull, //
};
use kernel::bindings;

/// The task at this address.
///
/// # Safety
///
/// That of [`AnyTask::from_ptr`].
#[inline(always)]
unsafe fn any<'a>(task: *mut bindings::task_struct, reading: Reading<'a>) -> Option<AnyTask<'a>> {
    // SAFETY: By this function's contract.
    NonNull::new(task).map(|task| unsafe { AnyTask::from_ptr(task, reading) })
}

/// # Safety
///
/// Called by `task_newtask` only: in the maker, with a task that does not run yet.
pub(super) unsafe extern "C" fn made(
    _: *mut c_void,
    task: *mut bindings::task_struct,
    _flags: u64,
) {
    each(|hook, reading| {
        // SAFETY: By this function's contract.
        let child = unsafe { any(task, reading) };
        // A CPU's idle task is no task.
        if let Some(child) = child.filter(|child| !child.is_idle()) {
            hook.made(&AnyTask::current(reading), &child);
        }
    });
}

/// # Safety
///
/// Called by `sched_process_exec` only: in the task.
pub(super) unsafe extern "C" fn executed(
    _: *mut c_void,
    task: *mut bindings::task_struct,
    old: bindings::pid_t,
    _bprm: *mut c_void,
) {
    each(|hook, reading| {
        // SAFETY: By this function's contract.
        if let Some(task) = unsafe { any(task, reading) } {
            hook.executed(&task, old as u32);
        }
    });
}

/// # Safety
///
/// Called by `sched_process_exit` only: in the task.
pub(super) unsafe extern "C" fn exited(
    _: *mut c_void,
    task: *mut bindings::task_struct,
    group_dead: bool,
) {
    each(|hook, reading| {
        // SAFETY: By this function's contract.
        if let Some(task) = unsafe { any(task, reading) } {
            hook.exited(&task, group_dead);
        }
    });
}

/// # Safety
///
/// Called by `task_rename` only: with a task that is held, and its new name.
pub(super) unsafe extern "C" fn renamed(
    _: *mut c_void,
    task: *mut bindings::task_struct,
    name: *const c_char,
) {
    let mut comm = [0u8; 16];
    // As `__set_task_comm` copies it afterwards: up to its NUL, at most 15 bytes.
    for (index, byte) in comm.iter_mut().take(15).enumerate() {
        // SAFETY: By this function's contract; no byte after a NUL is looked at.
        match unsafe { name.add(index).read() } as u8 {
            0 => break,
            other => *byte = other,
        }
    }
    each(|hook, reading| {
        // SAFETY: By this function's contract.
        if let Some(task) = unsafe { any(task, reading) } {
            hook.renamed(&task, &comm);
        }
    });
}

/// # Safety
///
/// Called by `cgroup_attach_task` only: with a group and a task that was moved there, and
/// are held; no thread of its process starts while this runs.
pub(super) unsafe extern "C" fn cgroup_attached(
    _: *mut c_void,
    to: *mut bindings::cgroup,
    _path: *const c_char,
    task: *mut bindings::task_struct,
    threadgroup: bool,
) {
    each(|hook, reading| {
        let tell = |task: *mut bindings::task_struct| {
            // SAFETY: By this function's contract, or `each_thread_of`.
            let task = unsafe { any(task, reading) };
            // Groups of other hierarchies (cgroup v1) are ignored.
            if let Some(task) = task.filter(|task| task.is_in_cgroup(to)) {
                hook.in_other_cgroup(&task);
            }
        };
        match threadgroup {
            // SAFETY: RCU is locked, and the task held.
            true => unsafe { each_thread_of(task, tell) },
            false => tell(task),
        }
    });
}

/// Passes each thread of a task's process to `tell`: `for_each_thread()`.
///
/// # Safety
///
/// The task must be valid, and RCU be locked.
unsafe fn each_thread_of(
    task: *mut bindings::task_struct,
    mut tell: impl FnMut(*mut bindings::task_struct),
) {
    // SAFETY: A task keeps its `signal`. Threads are on its list until they are reaped, and
    // are freed by RCU, so that each that is found, and its place in the list, stays valid.
    unsafe {
        let head = &raw const (*(*task).signal).thread_head;
        let mut node = (&raw const (*head).next).read_volatile();
        while !core::ptr::eq(node, head) {
            tell(
                node.byte_sub(offset_of!(bindings::task_struct, thread_node))
                    .cast(),
            );
            node = (&raw const (*node).next).read_volatile();
        }
    }
}

/// # Safety
///
/// Called by `sched_switch` only: with interrupts off, in `prev`.
pub(super) unsafe extern "C" fn switched(
    _: *mut c_void,
    preempt: bool,
    prev: *mut bindings::task_struct,
    next: *mut bindings::task_struct,
    prev_state: u32,
) {
    each(|hook, reading| {
        // SAFETY: By this function's contract.
        let (prev, next) = unsafe { (any(prev, reading), any(next, reading)) };
        if let (Some(prev), Some(next)) = (prev, next) {
            hook.switched(&Switch {
                prev,
                next,
                prev_state,
                preempted: preempt,
                reading,
            });
        }
    });
}

/// # Safety
///
/// Called by the tracepoints of wake-ups only: with a task that is valid.
#[inline(always)]
unsafe fn woken(task: *mut bindings::task_struct, how: Wake) {
    each(|hook, reading| {
        // SAFETY: By this function's contract.
        if let Some(task) = unsafe { any(task, reading) } {
            hook.woken(&task, how, reading);
        }
    });
}

/// # Safety
///
/// Called by `sched_waking` only.
pub(super) unsafe extern "C" fn waking(_: *mut c_void, task: *mut bindings::task_struct) {
    // SAFETY: By this function's contract.
    unsafe { woken(task, Wake::Begun) };
}

/// # Safety
///
/// Called by `sched_wakeup` only.
pub(super) unsafe extern "C" fn wakeup(_: *mut c_void, task: *mut bindings::task_struct) {
    // SAFETY: By this function's contract.
    unsafe { woken(task, Wake::Done) };
}

/// # Safety
///
/// Called by `sched_wakeup_new` only.
pub(super) unsafe extern "C" fn wakeup_new(_: *mut c_void, task: *mut bindings::task_struct) {
    // SAFETY: By this function's contract.
    unsafe { woken(task, Wake::New) };
}

/// # Safety
///
/// Called by the probe of `helpers/kprobes.c` only: where a task reports its namespaces to perf,
/// or those of a task that it has just made.
pub(super) unsafe extern "C" fn namespaces_probed(
    _: *mut c_void,
    regs: *mut bindings::pt_regs,
) -> c_int {
    each(|hook, reading| {
        // SAFETY: By this function's contract; the task is the current one, or held by it.
        let task = unsafe { any(helpers::nsprobe_probed_task(regs), reading) };
        // A new task is reported as such.
        if let Some(task) = task.filter(AnyTask::is_current) {
            hook.in_other_namespaces(&task);
        }
    });
    0
}
