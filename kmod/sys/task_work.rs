// SPDX-License-Identifier: GPL-2.0-only
//! Jobs that a task does on its way back to user space, after the handlers of its breakpoint: there
//! it may sleep and fault, and delays only itself.
//!
//! Task works cannot be cancelled. So each holds what it needs, and the module: a task that is
//! stuck in one keeps them, and no session waits for it. When the module is unloaded no work is
//! left but maybe its last instructions, which [`Tails`] waits for.

use super::{
    helpers, //
    memory::{self, GFP_REQUEST},
    task::Current, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release}, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Does jobs.
pub(crate) trait TaskWork: Send + Sync + Sized + 'static {
    /// The data of one job.
    type Job: Send + 'static;

    /// Does one job, in the task that it was queued for. May sleep and fault.
    fn run(&self, job: &Self::Job);
}

/// Slots that the tasks of one CPU look at before those of the next.
pub(crate) const SLOTS_OF_CPU: usize = 4;

/// Room for jobs that are not done yet; taken in handlers, which cannot allocate.
pub(crate) struct Slots<O: TaskWork>(KVVec<Slot<O>>);

/// # Invariants
///
/// The context that has set `taken` owns the other fields: a [`Reservation`], then the task work.
#[repr(C)]
struct Slot<O: TaskWork> {
    head: Opaque<bindings::callback_head>,
    taken: AtomicBool,
    queued: UnsafeCell<Option<Queued<O>>>,
}

/// A job, and all that it needs until it is done.
struct Queued<O: TaskWork> {
    slots: Arc<Slots<O>>,
    owner: Arc<O>,
    job: O::Job,
}

// SAFETY: By the invariant one context at a time uses the fields; what is in them may go
// from one to the other.
unsafe impl<O: TaskWork> Sync for Slot<O> {}
// SAFETY: As above; a callback head belongs to no task while it is not queued.
unsafe impl<O: TaskWork> Send for Slot<O> {}

/// The right to leave one job.
pub(crate) struct Reservation<'a, O: TaskWork> {
    slots: &'a Arc<Slots<O>>,
    slot: &'a Slot<O>,
}

impl<O: TaskWork> Slots<O> {
    /// Room for `count` jobs.
    pub(crate) fn new(count: usize) -> Result<Arc<Self>> {
        // INVARIANT: It is not taken.
        let slot = |_| {
            Ok(Slot {
                head: Opaque::zeroed(),
                taken: AtomicBool::new(false),
                queued: UnsafeCell::new(None),
            })
        };
        Ok(Arc::new(Slots(memory::made(count, slot)?), GFP_REQUEST)?)
    }

    /// Reserves room for a job, if there is some; the tasks of each CPU begin to look at a place of
    /// their own. Any context.
    pub(crate) fn take<'a>(self: &'a Arc<Self>) -> Option<Reservation<'a, O>> {
        let first = (Current::get().cpu_hint() as usize).wrapping_mul(SLOTS_OF_CPU);
        let (before, after) = self.0.split_at(first.checked_rem(self.0.len())?);
        let mut slots = Iterator::chain(after.iter(), before);
        // INVARIANT: We have set it.
        let slot =
            slots.find(|slot| !slot.taken.load(Relaxed) && !slot.taken.swap(true, Acquire))?;
        Some(Reservation { slots: self, slot })
    }

    /// Whether no job is left in any.
    pub(crate) fn are_free(&self) -> bool {
        self.0.iter().all(|slot| !slot.taken.load(Acquire))
    }
}

impl<O: TaskWork> Reservation<'_, O> {
    /// Queues a job for `owner` in the current task, before that returns to user space. False if
    /// the task is exiting. In a handler of this module, in any context.
    pub(crate) fn queue(self, owner: Arc<O>, job: O::Job) -> bool {
        let queued = Queued {
            slots: self.slots.clone(),
            owner,
            job,
        };
        // SAFETY: By the slot's invariant the fields are the reservation's. The slot's memory
        // stays as long as `queued`, which is dropped by the work, or here. The module is
        // loaded, as its handler runs, and stays until the work has given its reference
        // back.
        unsafe {
            *self.slot.queued.get() = Some(queued);
            helpers::nsprobe_module_get();
            let head = self.slot.head.get();
            (*head).func = Some(run_queued::<O>);
            let how = match helpers::nsprobe_in_nmi() {
                true => bindings::task_work_notify_mode_TWA_NMI_CURRENT,
                false => bindings::task_work_notify_mode_TWA_RESUME,
            };
            if bindings::task_work_add(kernel::current!().as_ptr(), head, how) == 0 {
                // The slot is the work's from here on.
                core::mem::forget(self);
                return true;
            }
            helpers::nsprobe_module_put();
            let queued = (*self.slot.queued.get()).take();
            drop(queued);
        }
        false
    }
}

impl<O: TaskWork> Drop for Reservation<'_, O> {
    fn drop(&mut self) {
        // INVARIANT: The fields are not used any more.
        self.slot.taken.store(false, Release);
    }
}

/// # Safety
///
/// `head` is the first field of a [`Slot`] that a reservation has queued a job in. In the task it
/// was left for.
unsafe extern "C" fn run_queued<O: TaskWork>(head: *mut bindings::callback_head) {
    let slot = head.cast::<Slot<O>>();
    // SAFETY: The slot is valid until `queued` is dropped, and its fields are ours.
    let queued = unsafe { (*(*slot).queued.get()).take() };
    if let Some(Queued { slots, owner, job }) = queued {
        owner.run(&job);
        drop(job);
        // SAFETY: `slots` keeps the slot.
        // INVARIANT: We do not use its fields any more.
        unsafe { (*slot).taken.store(false, Release) };
        drop(owner);
        drop(slots);
    }
    // SAFETY: `Reservation::queue` took this reference. Nothing of ours is used afterwards but
    // the code up to the end of this function, which `Tails` waits for.
    unsafe { helpers::nsprobe_module_put() };
}

/// Dropped with the module: waits until no task is in the last instructions of a job.
pub(crate) struct Tails(PhantomData<()>);

impl Tails {
    /// For the module.
    pub(crate) fn new() -> Self {
        Tails(PhantomData)
    }
}

impl Drop for Tails {
    fn drop(&mut self) {
        extern "C" {
            /// `kernel/rcu/tasks.h`; waits until each task has given up the CPU by itself,
            /// or was in user space, once.
            fn synchronize_rcu_tasks();
        }
        // SAFETY: Task context; no locks are held.
        unsafe { synchronize_rcu_tasks() };
    }
}
