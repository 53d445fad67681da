// SPDX-License-Identifier: GPL-2.0-only
//! A step of a walk, as C compares it with memory.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy_derive::FromZeros;

/// What a step from a frame to its caller has read, and the word of the frame that it led to:
/// `struct nsprobe_step` of `helpers/uaccess.c`.
#[derive(Default, FromZeros)]
#[repr(C)]
pub(crate) struct Step {
    /// Where the return address is.
    pub(crate) slot: AtomicU64,
    /// The return address.
    pub(crate) rip: AtomicU64,
    /// Where the caller's `rbp` is saved, or zero if it is still in the register.
    pub(crate) rbp_slot: AtomicU64,
    /// The caller's `rbp`.
    pub(crate) rbp: AtomicU64,
    /// The frame's word.
    pub(crate) word: AtomicU64,
}

impl Step {
    /// Copies `other` into this one.
    pub(crate) fn set(&self, other: &Step) {
        let pairs = [
            (&self.slot, &other.slot),
            (&self.rip, &other.rip),
            (&self.rbp_slot, &other.rbp_slot),
            (&self.rbp, &other.rbp),
            (&self.word, &other.word),
        ];
        for (to, from) in pairs {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}
