// SPDX-License-Identifier: GPL-2.0-only
//! A list of words on the stack that is not zeroed first: a hit should pay for
//! the words it writes, not for those that it could.

use core::mem::MaybeUninit;

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
    /// None.
    pub(crate) const fn new() -> Self {
        // INVARIANT: The first zero words are initialised.
        Words {
            words: [const { MaybeUninit::uninit() }; N],
            used: 0,
        }
    }

    /// Appends all of `words`, or none when there is no room; says which.
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

    /// Appends a word; says whether there was room.
    pub(crate) fn push(&mut self, word: u64) -> bool {
        let Some(room) = self.words.get_mut(self.used) else {
            return false;
        };
        room.write(word);
        // INVARIANT: The word was just written and lies within `N`.
        self.used = self.used.wrapping_add(1);
        true
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
