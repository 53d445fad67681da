// SPDX-License-Identifier: GPL-2.0-only
//! A value that handlers read without a lock and that may be replaced.
//!
//! Readers in a uprobe handler are protected by the tasks-trace read section that every handler
//! runs in, all others by RCU; the task that takes a value out waits for both.

use super::uprobe::Regs;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire}, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    sync::rcu, //
};

/// A read section that values are not freed in: of a handler, or of RCU.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a>(PhantomData<&'a ()>);

impl<'a> Reading<'a> {
    /// That of a handler: code with a handler's registers is in one, or in one of RCU, as
    /// [`with_user_regs`](super::sampler::with_user_regs) gives them.
    #[inline(always)]
    pub(crate) fn in_handler(_handler: &'a Regs<'_>) -> Self {
        Reading(PhantomData)
    }

    /// That of a guard.
    pub(crate) fn under_rcu(_guard: &'a rcu::Guard) -> Self {
        Reading(PhantomData)
    }
}

/// Values that are waited for together.
const BATCH: usize = 64;

/// A value that may be replaced, or none yet.
///
/// # Invariants
///
/// The pointer is NULL or comes from a box that this owns. A value that was taken out
/// is not freed before every reader that may have seen it is done.
pub(crate) struct RcuSlot<T>(AtomicPtr<T>, PhantomData<KBox<T>>);

impl<T: Send + Sync> RcuSlot<T> {
    /// No value.
    pub(crate) const fn new() -> Self {
        // INVARIANT: NULL.
        RcuSlot(AtomicPtr::new(core::ptr::null_mut()), PhantomData)
    }

    /// The value.
    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, _reading: Reading<'a>) -> Option<&'a T> {
        let value = NonNull::new(self.0.load(Acquire))?;
        // SAFETY: By the invariant the value is valid until the readers that may see it
        // are done, and this one is not before its read section ends, which lasts as long
        // as the reference.
        Some(unsafe { value.as_ref() })
    }

    /// The value, in a handler.
    pub(crate) fn in_handler<'a>(&'a self, handler: &'a Regs<'_>) -> Option<&'a T> {
        self.get(Reading::in_handler(handler))
    }

    /// Hands the value to `look`, which must not sleep. Any context but NMI.
    pub(crate) fn with<R>(&self, look: impl FnOnce(Option<&T>) -> R) -> R {
        let guard = rcu::read_lock();
        look(self.get(Reading::under_rcu(&guard)))
    }

    /// Puts the value in when there is none; else gives it back.
    pub(crate) fn fill(&self, new: KBox<T>) -> Result<(), KBox<T>> {
        let new = KBox::into_raw(new);
        let none = core::ptr::null_mut();
        // INVARIANT: The pointer comes from a box.
        match self.0.compare_exchange(none, new, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            // SAFETY: It comes from a box, and no reader has seen it.
            Err(_) => Err(unsafe { KBox::from_raw(new) }),
        }
    }

    /// Takes the value out.
    pub(crate) fn take_out(&self) -> Option<Taken<T>> {
        // INVARIANT: By that of the swap it came from a box; we alone have it now.
        NonNull::new(self.0.swap(core::ptr::null_mut(), AcqRel)).map(Taken)
    }

    /// Replaces the value, does `then`, waits until no reader sees the old value, and returns it.
    /// Task context, sleeps; never from a handler.
    pub(crate) fn replace<R>(
        &self,
        new: Option<KBox<T>>,
        then: impl FnOnce() -> R,
    ) -> (Option<KBox<T>>, R) {
        let new = new.map_or(core::ptr::null_mut(), KBox::into_raw);
        // INVARIANT: The pointer comes from a box.
        let old = self.0.swap(new, AcqRel);
        let result = then();
        if old.is_null() {
            return (None, result);
        }
        wait_for_readers();
        // SAFETY: By the invariant it came from a box; no reader can see it any more, and
        // the swap gave it to us alone.
        (Some(unsafe { KBox::from_raw(old) }), result)
    }
}

/// A value that was taken out, and that readers may still see. It is dropped when they are
/// done: in task context, which sleeps; never in a handler.
///
/// # Invariants
///
/// The pointer comes from a box, and no new reader can see it.
pub(crate) struct Taken<T>(NonNull<T>);

impl<T> Deref for Taken<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariant it is valid until this is dropped; it is only read.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        wait_for_readers();
        // SAFETY: By the invariant it came from a box; the readers that saw it are done.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

/// Drops values that were taken out, many for one wait. Task context, sleeps.
pub(crate) fn drop_all<T>(mut all: impl Iterator<Item = Taken<T>>) {
    loop {
        let mut batch = [const { None }; BATCH];
        for (place, value) in batch.iter_mut().zip(&mut all) {
            *place = Some(ManuallyDrop::new(value));
        }
        let [Some(_), ..] = batch else {
            return;
        };
        wait_for_readers();
        for value in batch.into_iter().flatten() {
            // SAFETY: As when it is dropped, which it is not.
            drop(unsafe { KBox::from_raw(value.0.as_ptr()) });
        }
    }
}

/// Waits for the read sections that have begun. Task context, sleeps; never from a handler.
pub(crate) fn wait_for_readers() {
    // SAFETY: We are in task context, hold no RCU lock, and are in no handler.
    // `uprobe_unregister_sync` waits for the handlers' tasks-trace read sections.
    unsafe {
        bindings::synchronize_rcu();
        bindings::uprobe_unregister_sync();
    }
}

impl<T> Drop for RcuSlot<T> {
    fn drop(&mut self) {
        let last = core::mem::replace(self.0.get_mut(), core::ptr::null_mut());
        if !last.is_null() {
            // SAFETY: By the invariant it came from a box; `self` is borrowed for good, so
            // there are no readers.
            drop(unsafe { KBox::from_raw(last) });
        }
    }
}

// The value is read and dropped wherever the owner is.
// SAFETY: As for a box of the same value.
unsafe impl<T: Send + Sync> Send for RcuSlot<T> {}
// SAFETY: Shared access gives shared references and moves values.
unsafe impl<T: Send + Sync> Sync for RcuSlot<T> {}
