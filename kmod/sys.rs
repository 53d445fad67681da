// SPDX-License-Identifier: GPL-2.0-only
//! The only place that names `bindings::` and says `unsafe`. Each part wraps one
//! thing of the kernel once and promises memory safety to the safe modules:
//!
//! - [`any_task`]: a task that need not be the current one;
//! - [`bottom_half`]: jobs that an interrupt leaves until interrupts are on again;
//! - [`by_interrupt`]: what is left to an interrupt that the CPU sends to itself;
//! - [`cgroup`]: control groups, held;
//! - [`file_ref`]: files and root directories of processes, held after those have ended;
//! - [`fops`]: the device node and its file operations, with an owner;
//! - [`helpers`]: the functions in `kmod/helpers/`;
//! - [`inode`]: a probed file that stays, without pinning a mount;
//! - [`irq_wake`]: queues whose sleepers are woken under the scheduler's locks;
//! - [`kernel_stack`]: the kernel's own stack of the current task;
//! - [`lock`]: a spin lock that may be taken in any context;
//! - [`memory`]: allocations of requests, accounted and without the OOM killer;
//! - [`namespace_set`]: pid namespaces that handlers look up without a lock;
//! - [`once`]: a value that is set once;
//! - [`on_kworker`]: work that a signal to the caller does not interrupt;
//! - [`pages`]: the memory of a ring and its mappings;
//! - [`pid_set`]: tasks that handlers look up without a lock;
//! - [`program_start`]: the program that a task starts, and its arguments;
//! - [`rcu_slot`]: a value that handlers read while it is replaced;
//! - [`regs`]: the registers of a traced task;
//! - [`remote_mm`]: the memory of another process;
//! - [`returns`]: the kernel's pending returns of the current task;
//! - [`sampler`]: interrupts that sample tasks;
//! - [`scratch`]: words on the stack that need not be zeroed;
//! - [`system_call`]: the system call that the current task is in;
//! - [`task_points`]: the kernel's tracepoints of tasks, for all sessions at once;
//! - [`task_walk`]: all threads, by number;
//! - [`task_work`]: work that a task does on its way back to user space;
//! - [`task`]: the current task and its pid namespaces;
//! - [`thread`]: a thread that a filter names;
//! - [`tracepoint`]: forks, as they happen;
//! - [`uprobe`]: consumers that are unregistered before they are freed;
//! - [`user_mem`]: user memory, without ever faulting;
//! - [`user_walk`]: walks over the user stack, in C;
//! - [`vma`]: mappings of the current task, and the files behind them.
//!
//! Counters and ring positions use `core::sync::atomic`: the kernel crate's
//! `Atomic` calls an out-of-line C helper for each operation (no
//! `CONFIG_RUST_INLINE_HELPERS` on the kernels we target), which a hit would pay
//! for several times. On x86-64 and arm64 the C11 orders used here are at least
//! as strong as their LKMM namesakes.

pub(crate) mod any_task;
pub(crate) mod bottom_half;
pub(crate) mod by_interrupt;
pub(crate) mod cgroup;
pub(crate) mod file_ref;
pub(crate) mod fops;
mod helpers;
pub(crate) mod inode;
pub(crate) mod irq_wake;
pub(crate) mod kernel_stack;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod namespace_set;
pub(crate) mod on_kworker;
pub(crate) mod once;
pub(crate) mod pages;
pub(crate) mod pid_set;
pub(crate) mod program_start;
pub(crate) mod rcu_slot;
pub(crate) mod regs;
pub(crate) mod remote_mm;
pub(crate) mod returns;
pub(crate) mod sampler;
pub(crate) mod scratch;
pub(crate) mod system_call;
pub(crate) mod task;
pub(crate) mod task_points;
pub(crate) mod task_walk;
pub(crate) mod task_work;
pub(crate) mod thread;
pub(crate) mod tracepoint;
pub(crate) mod uprobe;
pub(crate) mod user_mem;
pub(crate) mod user_walk;
pub(crate) mod vma;

use kernel::{
    bindings,
    error::Error, //
};

/// `ESTALE`, which the kernel crate of 7.2 lacks.
pub(crate) fn estale() -> Error {
    Error::from_errno(-(bindings::ESTALE as i32))
}

/// `EREMOTE`, which it lacks as well.
pub(crate) fn eremote() -> Error {
    Error::from_errno(-(bindings::EREMOTE as i32))
}

/// `EOPNOTSUPP`, which it lacks as well.
pub(crate) fn eopnotsupp() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as i32))
}

/// Waits until all tasks that are in an RCU section now have left it. Task context, sleeps.
pub(crate) fn wait_for_rcu() {
    // SAFETY: Task context, and RCU is not locked here.
    unsafe { bindings::synchronize_rcu() };
}

/// Whether this is no task context, but an interrupt or a softirq.
pub(crate) fn in_interrupt() -> bool {
    // SAFETY: No preconditions.
    unsafe { helpers::nsprobe_in_interrupt() }
}

/// Whether the current CPU handles a softirq, and nothing that has interrupted it.
pub(crate) fn in_softirq() -> bool {
    // SAFETY: No preconditions.
    unsafe { helpers::nsprobe_in_softirq() }
}

/// CLOCK_MONOTONIC in nanoseconds. Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: `ktime_get_mono_fast_ns` has no preconditions.
    unsafe { bindings::ktime_get_mono_fast_ns() }
}

/// The scheduler's clock in nanoseconds: cheaper than [`now_ns`], and only to be compared with
/// itself. Any context.
#[inline]
pub(crate) fn scheduler_clock_ns() -> u64 {
    extern "C" {
        /// `include/linux/sched/clock.h`.
        fn local_clock() -> u64;
    }
    // SAFETY: `local_clock` has no preconditions.
    unsafe { local_clock() }
}

/// A number that cannot be predicted. Any context.
pub(crate) fn random() -> u64 {
    // SAFETY: `get_random_u64` has no preconditions.
    unsafe { bindings::get_random_u64() }
}

/// Yields the CPU if another task should run. Task context, no locks held.
pub(crate) fn cond_resched() {
    // SAFETY: `__cond_resched` may be called wherever one may sleep.
    unsafe { bindings::__cond_resched() };
}

/// Calls `call` on each CPU that is online, with interrupts off, and waits. Task context,
/// interrupts on; `call` must not sleep or panic.
pub(crate) fn each_cpu<F: Fn() + Sync>(call: &F) {
    /// # Safety
    ///
    /// `call` is a valid `F`.
    unsafe extern "C" fn run<F: Fn()>(call: *mut core::ffi::c_void) {
        // SAFETY: By the contract of `run`.
        unsafe { (*call.cast::<F>())() }
    }
    let data = core::ptr::from_ref(call).cast_mut().cast();
    // SAFETY: All calls are over when this returns, and `F` may be shared.
    unsafe { helpers::nsprobe_on_each_cpu(run::<F>, data) };
}

/// A full memory barrier.
pub(crate) fn full_barrier() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
