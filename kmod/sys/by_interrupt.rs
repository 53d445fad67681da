// SPDX-License-Identifier: GPL-2.0-only
//! What a context leaves to an interrupt that the CPU sends to itself: an NMI that must take no
//! lock, or the scheduler, which holds its own.

use super::{
    helpers,
    regs::Regs,
    task::Current, //
};
use core::{
    cell::UnsafeCell,
    ptr::NonNull,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release}, //
    },
};
use kernel::{
    bindings,
    sync::{rcu, Arc},
    types::Opaque, //
};

/// Handles what was left.
pub(crate) trait Interrupting: Send + Sync + 'static {
    /// What is left.
    type Left: Copy + Send;

    /// Handles it; the task that it is about is the current one, `regs` its user registers.
    /// Interrupt context.
    fn run(&self, left: &Self::Left, regs: &Regs<'_>);

    /// The task is another one, or its registers mean nothing. Any context.
    fn miss(&self, left: &Self::Left);
}

/// The interrupt of one CPU.
///
/// # Invariants
///
/// `work` is a work whose function is [`take_left`]. The context that has set `taken` owns `left`:
/// the one that leaves something, then the work.
#[repr(C)]
pub(crate) struct ByInterrupt<H: Interrupting> {
    work: Opaque<bindings::irq_work>,
    taken: AtomicBool,
    /// With the address of its task, for comparison.
    left: UnsafeCell<Option<(usize, H::Left)>>,
    hook: Arc<H>,
}

// SAFETY: By the invariant one context at a time uses what is in it.
unsafe impl<H: Interrupting> Sync for ByInterrupt<H> {}
// SAFETY: As above; the work belongs to no task while it is not queued.
unsafe impl<H: Interrupting> Send for ByInterrupt<H> {}

impl<H: Interrupting> ByInterrupt<H> {
    /// With nothing left.
    pub(crate) fn new(hook: Arc<H>) -> Self {
        let mut work = bindings::irq_work {
            func: Some(take_left::<H>),
            ..Default::default()
        };
        work.node.__bindgen_anon_1.u_flags = bindings::IRQ_WORK_HARD_IRQ;
        // INVARIANT: The function is `take_left`; it is not taken.
        ByInterrupt {
            work: Opaque::new(work),
            taken: AtomicBool::new(false),
            left: UnsafeCell::new(None),
            hook,
        }
    }

    /// Leaves something about the task at this address, which is handled as soon as interrupts are
    /// on. Returns false if the previous one was not taken yet. On its CPU; any context.
    pub(crate) fn leave(&self, task: usize, left: H::Left) -> bool {
        if self.taken.swap(true, Acquire) {
            return false;
        }
        // INVARIANT: We have set `taken`; from here on the work has it.
        // SAFETY: By the invariant `left` is ours. The work stays until it is done, as `drop` waits
        // for it.
        unsafe {
            *self.left.get() = Some((task, left));
            bindings::irq_work_queue(self.work.get());
        }
        true
    }

    /// Whether what was left last is not handled yet. On its CPU.
    pub(crate) fn has_left(&self) -> bool {
        self.taken.load(Acquire)
    }

    /// Waits until what was left is handled. Task context, when nothing is left any more.
    pub(crate) fn wait(&self) {
        // SAFETY: Task context; the work was made in `new`.
        unsafe { bindings::irq_work_sync(self.work.get()) };
    }
}

impl<H: Interrupting> Drop for ByInterrupt<H> {
    fn drop(&mut self) {
        self.wait();
    }
}

/// # Safety
///
/// `work` is that of a [`ByInterrupt<H>`] in which something was left.
unsafe extern "C" fn take_left<H: Interrupting>(work: *mut bindings::irq_work) {
    // SAFETY: The work is the first field (`repr(C)`), and stays until this is done.
    let on = unsafe { &*work.cast::<ByInterrupt<H>>() };
    // SAFETY: By the invariant it is ours until `taken` is given back.
    let left = unsafe { (*on.left.get()).take() };
    on.taken.store(false, Release);
    let Some((task, left)) = left else {
        return;
    };
    // The CPU may have switched to another task first.
    let is_same = task == Current::get().address();
    if !is_same || !with_user_regs(|regs| on.hook.run(&left, regs)) {
        on.hook.miss(&left);
    }
}

/// Whether the current task has memory that its user registers belong to: not while it exits, nor
/// while it starts another program.
pub(super) fn is_readable() -> bool {
    let task = Current::get().as_non_null().as_ptr();
    // SAFETY: The current task is valid; it alone changes both, not while it runs this code.
    unsafe { !(*task).mm.is_null() && (*task).in_execve() == 0 }
}

/// Passes the user registers of the current task to `look`, which must not sleep; returns false if
/// they mean nothing. Any context of a task that is no kernel thread.
pub(crate) fn with_user_regs(look: impl FnOnce(&Regs<'_>)) -> bool {
    if !is_readable() {
        return false;
    }
    let _guard = rcu::read_lock();
    // SAFETY: The task is no kernel thread.
    let Some(regs) = NonNull::new(unsafe { helpers::nsprobe_user_regs() }) else {
        return false;
    };
    // SAFETY: They are the current task's, which does not run in user space meanwhile.
    look(unsafe { Regs::from_ptr(regs) });
    true
}
