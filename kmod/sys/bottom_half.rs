// SPDX-License-Identifier: GPL-2.0-only
//! Jobs that an interrupt leaves for the moment when its CPU is about to go on with the interrupted
//! task: interrupts are on again, and the task's user registers and stack are as they were.
//!
//! The work runs as a softirq. Where that is left to a thread (PREEMPT_RT, or a storm of softirqs),
//! another task runs, and the job is missed.

use super::{memory, task::Current, task_work::TaskWork};
use core::{
    cell::UnsafeCell,
    ffi::c_int,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release}, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    static_lock_class,
    sync::Arc,
    types::Opaque, //
};

/// Does jobs: [`TaskWork::run`] in the task that was interrupted, where it must not sleep.
pub(crate) trait BottomHalf: TaskWork {
    /// The job cannot be done: another task runs already.
    fn miss(&self, job: &Self::Job);
}

/// Room for one job on each CPU.
pub(crate) struct BottomHalves<O: BottomHalf>(KVVec<Slot<O>>);

/// # Invariants
///
/// `work` was initialized with [`run_left`]. The context that has set `taken` owns `left`: a
/// [`Reservation`], then the work.
#[repr(C)]
struct Slot<O: BottomHalf> {
    work: Opaque<bindings::work_struct>,
    taken: AtomicBool,
    left: UnsafeCell<Option<Left<O>>>,
}

struct Left<O: BottomHalf> {
    /// The task's address, for comparison.
    task: usize,
    owner: Arc<O>,
    job: O::Job,
}

// SAFETY: By the invariant one context at a time uses `left`; what is in it may go from one to the
// other.
unsafe impl<O: BottomHalf> Sync for Slot<O> {}
// SAFETY: As above; a work belongs to no task.
unsafe impl<O: BottomHalf> Send for Slot<O> {}

impl<O: BottomHalf> BottomHalves<O> {
    /// No jobs.
    pub(crate) fn new() -> Result<Self> {
        let slots = memory::made_for_each_cpu(|| {
            Ok(Slot {
                work: Opaque::zeroed(),
                taken: AtomicBool::new(false),
                left: UnsafeCell::new(None),
            })
        })?;
        for slot in &slots {
            // SAFETY: The work stays where it is: the vector never grows. The lock class is static.
            // INVARIANT: The function is `run_left`.
            unsafe {
                bindings::init_work_with_key(
                    slot.work.get(),
                    Some(run_left::<O>),
                    false,
                    c"nsprobe".as_char_ptr(),
                    static_lock_class!().as_ptr(),
                );
            }
        }
        Ok(BottomHalves(slots))
    }

    /// Reserves the room of this CPU, if it is free. In an interrupt, not an NMI.
    pub(crate) fn take(&self) -> Option<Reservation<'_, O>> {
        let cpu = Current::get().cpu_hint();
        let slot = self.0.get(cpu as usize)?;
        // INVARIANT: We have set it.
        (!slot.taken.swap(true, Acquire)).then_some(Reservation { slot, cpu })
    }

    /// Waits until no job is left. Task context, after the last one was left: the jobs' owner must
    /// not go before, as a job may not drop it.
    pub(crate) fn flush(&self) {
        for slot in &self.0 {
            // SAFETY: By the invariant it is initialized. Task context.
            unsafe { bindings::flush_work(slot.work.get()) };
        }
    }
}

/// The right to leave one job.
pub(crate) struct Reservation<'a, O: BottomHalf> {
    slot: &'a Slot<O>,
    cpu: u32,
}

impl<O: BottomHalf> Reservation<'_, O> {
    /// Leaves a job for `owner`, in the interrupt that the room was reserved in.
    pub(crate) fn leave(self, owner: Arc<O>, job: O::Job) {
        let left = Left {
            task: Current::get().address(),
            owner,
            job,
        };
        // SAFETY: By the slot's invariant `left` is the reservation's; then the work has it. The
        // slot stays until `flush` has seen the work done.
        unsafe {
            *self.slot.left.get() = Some(left);
            let work = self.slot.work.get();
            bindings::queue_work_on(self.cpu as c_int, bindings::system_bh_wq, work);
        }
        core::mem::forget(self);
    }
}

impl<O: BottomHalf> Drop for Reservation<'_, O> {
    fn drop(&mut self) {
        // INVARIANT: `left` is not used any more.
        self.slot.taken.store(false, Release);
    }
}

/// # Safety
///
/// `work` is that of a [`Slot<O>`] in which a job was left.
unsafe extern "C" fn run_left<O: BottomHalf>(work: *mut bindings::work_struct) {
    // SAFETY: The work is the first field (`repr(C)`), and stays until this is done.
    let slot = unsafe { &*work.cast::<Slot<O>>() };
    // SAFETY: By the invariant it is ours until `taken` is given back.
    let left = unsafe { (*slot.left.get()).take() };
    if let Some(Left {
        task: of,
        owner,
        job,
    }) = left
    {
        match of == Current::get().address() {
            true => owner.run(&job),
            false => owner.miss(&job),
        }
    }
    slot.taken.store(false, Release);
}
