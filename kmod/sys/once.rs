// SPDX-License-Identifier: GPL-2.0-only
//! A value that is set once, and that handlers look up by one load: the kernel crate's `SetOnce` calls
//! a C helper for each look.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::atomic::{
        AtomicU8,
        Ordering::{Acquire, Relaxed, Release}, //
    }, //
};

const UNSET: u8 = 0;
const BEING_SET: u8 = 1;
const SET: u8 = 2;

/// A value that is set once.
///
/// # Invariants
///
/// In state `SET` the value is initialised and not written any more; in state `BEING_SET` one task
/// writes it.
pub(crate) struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: The value is given out by shared references alone, and may be set by another task than the
// one that drops it.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Without a value.
    pub(crate) const fn new() -> Self {
        // INVARIANT: The state is neither.
        Once {
            state: AtomicU8::new(UNSET),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The value, once it is set.
    #[inline(always)]
    pub(crate) fn as_ref(&self) -> Option<&T> {
        match self.state.load(Acquire) {
            // SAFETY: By the invariant it is initialised, and nobody writes to it.
            SET => Some(unsafe { (*self.value.get()).assume_init_ref() }),
            _ => None,
        }
    }

    /// Sets the value, unless somebody has; returns whether it is this one.
    pub(crate) fn populate(&self, value: T) -> bool {
        let first = self
            .state
            .compare_exchange(UNSET, BEING_SET, Relaxed, Relaxed);
        if first.is_err() {
            return false;
        }
        // SAFETY: By the invariant no other task writes to it, and none reads it yet.
        unsafe { (*self.value.get()).write(value) };
        // INVARIANT: It is initialised.
        self.state.store(SET, Release);
        true
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == SET {
            // SAFETY: By the invariant it is initialised; nobody has a reference any more.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}
