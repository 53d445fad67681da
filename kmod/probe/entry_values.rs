// SPDX-License-Identifier: GPL-2.0-only
//! Values that an entry keeps for its return.
//!
//! The uprobe core carries one word from a call's entry to its return. Without kept values that is
//! the entry's time; with some it names a slot here. A return may never come (longjmp, exit, a
//! killed thread, calls deeper than the kernel follows), so slots are used in a circle and reused
//! after a round. A return whose slot was reused has no values, rather than wrong ones.

use crate::{
    common::program::KEPT_MAX,
    sys::memory, //
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release}, //
};
use kernel::prelude::*;

/// Calls that can be in progress before slots are reused.
const SLOTS: usize = 1 << 13;
const SLOT_BITS: u32 = SLOTS.trailing_zeros();
/// Bit of a slot's stamp: the slot is being written.
const WRITING: u64 = 1 << 63;

/// The values that an entry keeps; each may be missing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Values {
    values: [u64; KEPT_MAX],
    present: u8,
}

impl Values {
    /// The value, if it was kept.
    pub(crate) fn get(&self, index: usize) -> Option<u64> {
        let present = self.present & 1u8.checked_shl(index as u32)? != 0;
        self.values.get(index).copied().filter(|_| present)
    }

    /// Keeps a value.
    pub(crate) fn set(&mut self, index: usize, value: u64) {
        if let (Some(place), Some(bit)) = (
            self.values.get_mut(index),
            1u8.checked_shl(index as u32), //
        ) {
            *place = value;
            self.present |= bit;
        }
    }
}

/// A call, as its return finds it; its time is zero if its entry was not seen.
#[derive(Clone, Copy, Default)]
pub(crate) struct PendingCall {
    pub(crate) time_ns: u64,
    pub(crate) values: Values,
}

/// A call in shared memory: what was read of it is valid if its place held the same call all the
/// time.
#[derive(Default)]
pub(crate) struct SharedCall {
    pub(crate) time_ns: AtomicU64,
    values: [AtomicU64; KEPT_MAX],
    present: AtomicU64,
}

impl SharedCall {
    pub(crate) fn store(&self, call: &PendingCall) {
        self.time_ns.store(call.time_ns, Relaxed);
        let present = call.values.present;
        self.present.store(present.into(), Relaxed);
        if present != 0 {
            for (to, from) in self.values.iter().zip(call.values.values) {
                to.store(from, Relaxed);
            }
        }
    }

    pub(crate) fn load(&self) -> PendingCall {
        let mut values = Values {
            present: self.present.load(Relaxed) as u8,
            ..Values::default()
        };
        if values.present != 0 {
            for (to, from) in values.values.iter_mut().zip(&self.values) {
                *to = from.load(Relaxed);
            }
        }
        PendingCall {
            time_ns: self.time_ns.load(Relaxed),
            values,
        }
    }
}

#[derive(Default)]
struct Slot {
    /// The ticket of the call that owns the slot.
    stamp: AtomicU64,
    call: SharedCall,
}

/// The calls in progress whose entries kept values.
pub(crate) struct PendingCalls {
    slots: KVVec<Slot>,
    tickets: AtomicU64,
}

impl PendingCalls {
    /// Makes empty slots.
    pub(crate) fn new() -> Result<Self> {
        Ok(PendingCalls {
            slots: memory::made(SLOTS, |_| Ok(Slot::default()))?,
            tickets: AtomicU64::new(1),
        })
    }

    /// Keeps a call; returns the word that finds it again.
    pub(crate) fn keep(&self, call: &PendingCall) -> u64 {
        let ticket = self.tickets.fetch_add(1, Relaxed) & !WRITING;
        let Some(slot) = self.slot(ticket) else {
            return 0;
        };
        let before = slot.stamp.swap(ticket | WRITING, AcqRel);
        if before & WRITING != 0 {
            // A task was preempted here for a whole round, and may still write: neither call is
            // kept.
            return 0;
        }
        slot.call.store(call);
        let kept = slot
            .stamp
            .compare_exchange(ticket | WRITING, ticket, Release, Relaxed);
        if kept.is_err() {
            // Other calls came meanwhile and have not written: the slot is free again.
            slot.stamp.store(0, Release);
        }
        ticket
    }

    /// The call for which [`keep`](Self::keep) returned this word, if it is still there.
    pub(crate) fn take(&self, ticket: u64) -> Option<PendingCall> {
        let slot = self.slot(ticket).filter(|_| ticket != 0)?;
        if slot.stamp.load(Acquire) != ticket {
            return None;
        }
        let call = slot.call.load();
        core::sync::atomic::fence(Acquire);
        // The stamp did not change while the values were read: they are this call's.
        (slot.stamp.load(Relaxed) == ticket).then_some(call)
    }

    fn slot(&self, ticket: u64) -> Option<&Slot> {
        let index = ticket & (1u64 << SLOT_BITS).wrapping_sub(1);
        self.slots.get(index as usize)
    }
}
