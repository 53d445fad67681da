// SPDX-License-Identifier: GPL-2.0-only
//! A set of processes or threads that handlers search without a lock.
//!
//! Open addressing with linear probing. An entry holds its `struct pid`, so that the address cannot
//! be reused while it is in the set; readers compare addresses and never follow them, so entries
//! may be removed at any time.

use super::{
    helpers,
    lock::{raw_lock, RawLock},
    memory,
    task::Pid,
};
use core::sync::atomic::{
    AtomicPtr,
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::rcu, //
};

/// Maximum number of entries.
pub(crate) const ENTRIES_MAX: usize = 1 << 14;
/// Twice as many as entries, so that searches are short.
const SLOTS: usize = ENTRIES_MAX << 1;
/// Additions to a full set between two searches for dead entries.
const PATIENCE: usize = ENTRIES_MAX >> 2;

type Slot = AtomicPtr<bindings::pid>;

/// Marks a removed entry: searches continue past it.
const GONE: *mut bindings::pid = core::ptr::without_provenance_mut(1);

/// The kind of task that a pid must have for its entry to stay.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Process,
    Thread,
}

#[derive(Default)]
struct Fill {
    entries: usize,
    /// Additions that are refused before the next search for dead entries.
    patience: usize,
}

enum Room {
    Found,
    None,
    PerhapsDead,
}

/// # Invariants
///
/// Every slot is NULL, [`GONE`], or a pid of which the set owns one reference; slots
/// change under `fill` only.
pub(crate) struct PidSet {
    slots: KVVec<Slot>,
    fill: RawLock<Fill>,
    kind: Kind,
    missed: AtomicU64,
}

impl PidSet {
    /// Makes an empty set.
    pub(crate) fn new(kind: Kind) -> Result<Self> {
        Ok(PidSet {
            slots: memory::made(SLOTS, |_| Ok(Slot::new(core::ptr::null_mut())))?,
            fill: raw_lock!(Fill::default()),
            kind,
            missed: AtomicU64::new(0),
        })
    }

    /// Additions that found no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// The slots in search order for `pid`.
    fn search(&self, pid: &Pid) -> impl Iterator<Item = &Slot> {
        let hash = (pid.as_ptr().addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> 40) as usize;
        (0..SLOTS).filter_map(move |step| self.slots.get(first.wrapping_add(step) & (SLOTS - 1)))
    }

    /// Whether `pid` is in the set. Any context, no locks.
    pub(crate) fn contains(&self, pid: &Pid) -> bool {
        for slot in self.search(pid) {
            let there = slot.load(Acquire);
            if there == pid.as_ptr() {
                return true;
            }
            if there.is_null() {
                return false;
            }
        }
        false
    }

    /// Adds `pid`; counts it as missed if there is no room. Any context but NMI.
    pub(crate) fn insert(&self, pid: &Pid) {
        let is_in = match self.try_insert(pid) {
            Room::Found => true,
            Room::None => false,
            // Not every time: each fork would pay for it while the set is full.
            Room::PerhapsDead => {
                self.sweep();
                matches!(self.try_insert(pid), Room::Found)
            }
        };
        if !is_in {
            self.missed.fetch_add(1, Relaxed);
        }
    }

    fn try_insert(&self, pid: &Pid) -> Room {
        let mut fill = self.fill.lock();
        if fill.entries >= ENTRIES_MAX {
            let due = fill.patience == 0;
            fill.patience = match due {
                true => PATIENCE,
                false => fill.patience.wrapping_sub(1),
            };
            return if due { Room::PerhapsDead } else { Room::None };
        }
        let mut free = None;
        for slot in self.search(pid) {
            let there = slot.load(Relaxed);
            if there == pid.as_ptr() {
                return Room::Found;
            }
            if there.is_null() || there == GONE {
                free = free.or(Some(slot));
            }
            if there.is_null() {
                break;
            }
        }
        let Some(slot) = free else {
            return Room::None;
        };
        // SAFETY: `pid` is valid.
        // INVARIANT: The slot owns the reference that this takes; we hold `fill`.
        slot.store(unsafe { helpers::nsprobe_get_pid(pid.as_ptr()) }, Release);
        fill.entries = fill.entries.wrapping_add(1);
        Room::Found
    }

    /// Removes the entries whose task is dead. The lock is taken for each slot, so that
    /// interrupts are never off for long.
    #[cold]
    fn sweep(&self) {
        for slot in self.slots.iter() {
            let mut fill = self.fill.lock();
            let pid = slot.load(Relaxed);
            if pid.is_null() || pid == GONE || self.lives(pid) {
                continue;
            }
            slot.store(GONE, Release);
            fill.entries = fill.entries.wrapping_sub(1);
            drop(fill);
            // SAFETY: By the invariant the slot owned this reference, and it does not hold
            // it any more. Readers compare the address only.
            unsafe { bindings::put_pid(pid) };
        }
    }

    /// Whether a pid of ours has a task of our kind.
    fn lives(&self, pid: *mut bindings::pid) -> bool {
        let kind = match self.kind {
            Kind::Process => bindings::pid_type_PIDTYPE_TGID,
            Kind::Thread => bindings::pid_type_PIDTYPE_PID,
        };
        let _guard = rcu::read_lock();
        // SAFETY: The slot holds the pid, and RCU is locked, as `pid_task` requires.
        !unsafe { bindings::pid_task(pid, kind) }.is_null()
    }
}

impl Drop for PidSet {
    fn drop(&mut self) {
        for slot in self.slots.iter() {
            let pid = slot.load(Relaxed);
            if !pid.is_null() && pid != GONE {
                // SAFETY: By the invariant the slot owns this reference, and goes.
                unsafe { bindings::put_pid(pid) };
            }
        }
    }
}
