// SPDX-License-Identifier: GPL-2.0-only
//! Buffers for words without an allocation: on the stack and not zeroed (a hit should pay for the
//! words that it writes only), or kept for one context at a time.

use super::memory;
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release}, //
    },
};
use kernel::prelude::*;

/// Up to `N` words.
///
/// # Invariants
///
/// The first `used` words, at most `N`, are initialised.
pub(crate) struct Words<const N: usize> {
    words: [MaybeUninit<u64>; N],
    used: usize,
}

impl<const N: usize> Words<N> {
    /// Without words.
    pub(crate) const fn new() -> Self {
        // INVARIANT: The first zero words are initialised.
        Words {
            words: [const { MaybeUninit::uninit() }; N],
            used: 0,
        }
    }

    /// Removes all words.
    pub(crate) fn clear(&mut self) {
        // INVARIANT: The first zero words are initialised.
        self.used = 0;
    }

    /// Appends all of `words`, or none if there is no room; returns which.
    pub(crate) fn extend(&mut self, words: &[u64]) -> bool {
        let end = self.used.wrapping_add(words.len());
        let Some(room) = self.words.get_mut(self.used..end) else {
            return false;
        };
        for (to, from) in room.iter_mut().zip(words) {
            to.write(*from);
        }
        // INVARIANT: `self.used..end` was just written and lies within `N`.
        self.used = end;
        true
    }

    /// Appends a word; returns whether there was room.
    pub(crate) fn push(&mut self, word: u64) -> bool {
        let Some(room) = self.words.get_mut(self.used) else {
            return false;
        };
        room.write(word);
        // INVARIANT: The word was just written and lies within `N`.
        self.used = self.used.wrapping_add(1);
        true
    }

    /// The room for more.
    pub(super) fn room(&mut self) -> &mut [MaybeUninit<u64>] {
        self.words.get_mut(self.used..).unwrap_or(&mut [])
    }

    /// Adds words that were written to the room.
    ///
    /// # Safety
    ///
    /// The first `count` words of the room are initialised, and it has as many.
    pub(super) unsafe fn written(&mut self, count: usize) {
        // INVARIANT: By the condition of this function.
        self.used = self.used.wrapping_add(count);
    }

    /// Replaces the first word, if there is one.
    pub(crate) fn set_first(&mut self, word: u64) {
        if let (Some(first), true) = (self.words.first_mut(), self.used != 0) {
            first.write(word);
        }
    }

    /// The words.
    pub(crate) fn as_slice(&self) -> &[u64] {
        let words = self.words.get(..self.used).unwrap_or(&[]);
        // SAFETY: By the invariant these are initialised; `MaybeUninit<u64>` has the
        // layout of u64.
        unsafe { &*(core::ptr::from_ref(words) as *const [u64]) }
    }
}

/// Words that one context at a time may use; any other context has to do without.
///
/// # Invariants
///
/// Only the context that has set `taken` uses the words.
pub(crate) struct ScratchBuffer {
    taken: AtomicBool,
    words: UnsafeCell<KVVec<u64>>,
}

// SAFETY: By the invariant one context at a time uses the words.
unsafe impl Sync for ScratchBuffer {}
// SAFETY: Nothing in it belongs to a task.
unsafe impl Send for ScratchBuffer {}

impl ScratchBuffer {
    /// Makes a buffer of `count` words. Task context.
    pub(crate) fn new(count: usize) -> Result<Self> {
        // INVARIANT: No context has taken it.
        Ok(ScratchBuffer {
            taken: AtomicBool::new(false),
            words: UnsafeCell::new(memory::zeroed(count)?),
        })
    }

    /// Takes the words, unless another context has them. Any context.
    pub(crate) fn take(&self) -> Option<ScratchWords<'_>> {
        // INVARIANT: We have set it.
        (!self.taken.swap(true, Acquire)).then(|| ScratchWords(self))
    }
}

/// Grants access to the words of a [`ScratchBuffer`].
pub(crate) struct ScratchWords<'a>(&'a ScratchBuffer);

impl ScratchWords<'_> {
    /// The words, with their old contents.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        // SAFETY: By the buffer's invariant no other context uses them while `self` lives, which is
        // borrowed as long as the slice.
        unsafe { &mut *self.0.words.get() }
    }
}

impl Drop for ScratchWords<'_> {
    fn drop(&mut self) {
        // INVARIANT: The words are not used any more.
        self.0.taken.store(false, Release);
    }
}
