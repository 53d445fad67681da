// SPDX-License-Identifier: GPL-2.0-only
//! A queue whose sleepers may be woken in any context but NMI.
//!
//! Waking takes the run queue's lock, which tracepoints of the scheduler hold already. So an
//! interrupt that the CPU sends to itself wakes them, as soon as interrupts are on.

use core::{ops::Deref, ptr::NonNull};
use kernel::{
    bindings,
    container_of,
    prelude::*,
    str::CStr,
    sync::{poll::PollCondVar, LockClassKey},
    types::Opaque, //
};

/// A queue to sleep on.
///
/// # Invariants
///
/// `work` is a work whose function is [`wake`], and stays where it is.
#[pin_data(PinnedDrop)]
pub(crate) struct IrqWake {
    work: Opaque<bindings::irq_work>,
    #[pin]
    queue: PollCondVar,
}

// SAFETY: The work belongs to no task; the queue is `Send`.
unsafe impl Send for IrqWake {}
// SAFETY: The kernel itself sees to it that a work is queued once (`irq_work_claim`).
unsafe impl Sync for IrqWake {}

impl IrqWake {
    /// A queue without sleepers.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        let work = bindings::irq_work {
            func: Some(wake),
            ..Default::default()
        };
        // INVARIANT: The function is `wake`; what is pinned stays where it is.
        pin_init!(IrqWake {
            work: Opaque::new(work),
            queue <- PollCondVar::new(name, key),
        })
    }

    /// Wakes all sleepers from an interrupt. Any context but NMI, and under any lock.
    pub(crate) fn wake_soon(&self) {
        // SAFETY: By the invariant the work is ready to be queued; it stays until it is
        // done, see `drop`. False when it is queued already: then it has not begun.
        unsafe { bindings::irq_work_queue(self.work.get()) };
    }
}

impl Deref for IrqWake {
    type Target = PollCondVar;

    fn deref(&self) -> &PollCondVar {
        &self.queue
    }
}

#[pinned_drop]
impl PinnedDrop for IrqWake {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Task context; the work was made in `new`. No context queues it any more.
        unsafe { bindings::irq_work_sync(self.work.get()) };
    }
}

/// # Safety
///
/// `work` is that of an [`IrqWake`], which waits for this when it is dropped.
unsafe extern "C" fn wake(work: *mut bindings::irq_work) {
    let Some(work) = NonNull::new(work) else {
        return;
    };
    // SAFETY: By this function's contract; `Opaque` has the layout of what is in it.
    let queue = unsafe {
        let work = work.cast::<Opaque<bindings::irq_work>>().as_ptr();
        &(*container_of!(work, IrqWake, work)).queue
    };
    queue.notify_all();
}
