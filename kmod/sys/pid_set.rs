// SPDX-License-Identifier: GPL-2.0-only
//! A set of processes or threads that handlers search without a lock.
//!
//! An entry holds its `struct pid`, so that the address cannot be reused while it is in the set;
//! readers compare addresses and never follow them, so entries may be removed at any time.

use super::{
    helpers,
    lock::{raw_lock, RawLock},
    memory,
    task::Pid,
};
use crate::common::pointer_set::PointerSet;
use core::sync::atomic::{
    AtomicPtr,
    AtomicU64,
    Ordering::Relaxed, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::rcu, //
};

/// Maximum number of entries.
const ENTRIES_MAX: usize = 1 << 14;
/// More than entries, so that searches are short.
const SLOTS: usize = ENTRIES_MAX << 2;
/// Slots that each addition looks at for dead entries.
const LOOKS: usize = 8;

type Slot = AtomicPtr<bindings::pid>;

/// The kind of task that a pid must have for its entry to stay.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Process,
    Thread,
}

#[derive(Default)]
struct Fill {
    entries: usize,
    /// The slot after the next one to be looked at for a dead entry.
    cursor: usize,
}

/// # Invariants
///
/// Every entry is a pid of which the set owns one reference; slots change under `fill` only.
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

    #[inline(always)]
    fn set(&self) -> PointerSet<'_, bindings::pid> {
        PointerSet::new(&self.slots)
    }

    /// Whether `pid` is in the set. Any context, no locks, a bounded number of steps.
    pub(crate) fn contains(&self, pid: &Pid) -> bool {
        self.set().contains(pid.as_ptr())
    }

    /// Adds `pid`; counts it as missed if there is no room. Any context but NMI.
    pub(crate) fn insert(&self, pid: &Pid) {
        let mut dead = [core::ptr::null_mut(); LOOKS];
        let is_in = {
            let mut fill = self.fill.lock();
            self.clean(&mut fill, &mut dead);
            self.contains(pid) || self.add(&mut fill, pid)
        };
        if !is_in {
            self.missed.fetch_add(1, Relaxed);
        }
        for pid in dead {
            // SAFETY: `clean` took this reference, or none, out of the set. Readers compare the
            // address only.
            unsafe { bindings::put_pid(pid) };
        }
    }

    fn add(&self, fill: &mut Fill, pid: &Pid) -> bool {
        if fill.entries >= ENTRIES_MAX {
            return false;
        }
        // SAFETY: `pid` is valid.
        // INVARIANT: The entry owns the reference that this takes; we hold `fill`.
        let entry = unsafe { helpers::nsprobe_get_pid(pid.as_ptr()) };
        if !self.set().insert(entry) {
            // SAFETY: The reference was just taken; the caller holds another, so nothing is freed
            // under the lock.
            unsafe { bindings::put_pid(entry) };
            return false;
        }
        fill.entries = fill.entries.wrapping_add(1);
        true
    }

    /// Removes entries whose task is dead from the next few slots.
    fn clean(&self, fill: &mut Fill, dead: &mut [*mut bindings::pid; LOOKS]) {
        for out in dead {
            fill.cursor = fill.cursor.wrapping_sub(1);
            if let Some(removed) = self.set().clean(fill.cursor, |pid| self.lives(pid)) {
                fill.entries = fill.entries.wrapping_sub(1);
                *out = removed;
            }
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
        for pid in self.set().entries() {
            // SAFETY: By the invariant the entry owns this reference, and goes.
            unsafe { bindings::put_pid(pid) };
        }
    }
}
