// SPDX-License-Identifier: GPL-2.0-only
//! A spin lock that may be taken in any context but NMI.
//!
//! Interrupts are off while it is held, and it is a raw one, so that it spins on PREEMPT_RT too:
//! rings are written from tracepoints that hold the run queue's lock. Keep critical sections short,
//! and never wake a task in one. The kernel crate's `SpinLock` leaves interrupts on.

use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut}, //
};
use kernel::{
    bindings,
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    types::NotThreadSafe, //
};

/// An unlocked [`RawLock`] around a value, with its own lock class.
macro_rules! raw_lock {
    ($value:expr) => {
        $crate::sys::lock::RawLock::new(
            $value,
            ::kernel::optional_name!(),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use raw_lock;

/// A value and the lock that protects it.
pub(crate) struct RawLock<T> {
    lock: UnsafeCell<bindings::raw_spinlock_t>,
    value: UnsafeCell<T>,
}

// SAFETY: The lock hands out the value to one context at a time, so sharing the
// lock moves the value between contexts but never shares it.
unsafe impl<T: Send> Sync for RawLock<T> {}
// SAFETY: The lock owns the value, and an unlocked lock may move: what lock debugging adds to
// it points at its class and its holder, and nothing points at a lock that is not held.
unsafe impl<T: Send> Send for RawLock<T> {}

impl<T> RawLock<T> {
    /// An unlocked lock around `value`; `name` and `class` are for lock debugging. See
    /// [`raw_lock`].
    #[inline(always)]
    pub(crate) fn new(value: T, name: &'static CStr, class: Pin<&'static LockClassKey>) -> Self {
        // All zeroes is `__RAW_SPIN_LOCK_UNLOCKED` (include/linux/spinlock_types_raw.h) on a
        // kernel without lock debugging, and costs nothing.
        let lock = UnsafeCell::new(pin_init::zeroed());
        #[cfg(CONFIG_DEBUG_SPINLOCK)]
        // SAFETY: The lock is ours alone; name and class are static.
        unsafe {
            bindings::__raw_spin_lock_init(
                lock.get(),
                name.as_char_ptr(),
                class.as_ptr(),
                bindings::lockdep_wait_type_LD_WAIT_SPIN as i16,
            );
        }
        #[cfg(not(CONFIG_DEBUG_SPINLOCK))]
        let _ = (name, class);
        RawLock {
            lock,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock with interrupts off. Spins; any context but NMI.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SAFETY: `self.lock` is an initialised raw spin lock and lives as long as `self`.
        let flags = unsafe { bindings::_raw_spin_lock_irqsave(self.lock.get()) };
        Guard {
            lock: self,
            flags,
            _not_send: NotThreadSafe,
        }
    }
}

/// Grants access to the value; unlocks when dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a RawLock<T>,
    flags: usize,
    _not_send: NotThreadSafe,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The guard exists, so this context holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The guard exists, so this context holds the lock, and the guard is
        // borrowed mutably, so no other reference to the value exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: This context took the lock, and got `flags` from taking it.
        unsafe { bindings::_raw_spin_unlock_irqrestore(self.lock.lock.get(), self.flags) };
    }
}
