// SPDX-License-Identifier: GPL-2.0-only
//! A value that handlers read without a lock and that may be replaced.
//!
//! Readers in a uprobe handler are protected by the tasks-trace read section that
//! every handler runs in, all others by RCU; who replaces the value waits for both.

use super::uprobe::Regs;
use core::{
    marker::PhantomData,
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

/// A value that may be replaced, or none yet.
///
/// # Invariants
///
/// The pointer is NULL or comes from a box that this owns. A value that was replaced
/// is not freed before every reader that may have seen it is done.
pub(crate) struct Swap<T>(AtomicPtr<T>, PhantomData<KBox<T>>);

impl<T: Send + Sync> Swap<T> {
    /// No value.
    pub(crate) fn new() -> Self {
        // INVARIANT: NULL.
        Swap(AtomicPtr::new(core::ptr::null_mut()), PhantomData)
    }

    /// The value, in a handler: whoever has a handler's registers is in one.
    pub(crate) fn in_handler<'a>(&'a self, _handler: &'a Regs<'_>) -> Option<&'a T> {
        let value = NonNull::new(self.0.load(Acquire))?;
        // SAFETY: By the invariant the value is valid until the readers that may see it
        // are done, and this one is not before the handler whose registers live as long
        // as the reference.
        Some(unsafe { value.as_ref() })
    }

    /// Hands the value to `look`, which must not sleep. Any context but NMI.
    pub(crate) fn with<R>(&self, look: impl FnOnce(Option<&T>) -> R) -> R {
        let _guard = rcu::read_lock();
        let value = NonNull::new(self.0.load(Acquire));
        // SAFETY: By the invariant the value is valid until the readers that may see it
        // are done, and this one is not before the guard is dropped.
        look(value.map(|value| unsafe { value.as_ref() }))
    }

    /// Puts another value in place, does `then`, waits until nobody sees the value
    /// before, and gives it back. Task context, sleeps; never from a handler.
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
        // SAFETY: We are in task context, hold no RCU lock, and are in no handler.
        // `uprobe_unregister_sync` waits for the handlers' tasks-trace read sections.
        unsafe {
            bindings::synchronize_rcu();
            bindings::uprobe_unregister_sync();
        }
        // SAFETY: By the invariant it came from a box; nobody can see it any more, and
        // the swap gave it to us alone.
        (Some(unsafe { KBox::from_raw(old) }), result)
    }
}

impl<T> Drop for Swap<T> {
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
unsafe impl<T: Send + Sync> Send for Swap<T> {}
// SAFETY: Shared access gives shared references and moves values.
unsafe impl<T: Send + Sync> Sync for Swap<T> {}
