// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that are off their CPUs, each with the moment when it left.
//!
//! No locks: a row belongs to its task, which is switched out and in by one CPU at a time, and the
//! run queue's lock orders the two.

use super::hit::Woken;
use crate::{
    common::abi::WAITS_MAX,
    sys::memory, //
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::prelude::*;

/// Rows that a task may have: those of one set.
const WAYS: usize = 8;
const SETS: usize = WAITS_MAX / WAYS;

/// A task as it left its CPU.
#[derive(Clone, Copy)]
pub(super) struct Left {
    /// When, by the scheduler's clock.
    pub(super) at_ns: u64,
    /// Its time of waiting for a CPU until then.
    pub(super) run_delay_ns: u64,
    /// `TASK_*`; zero if it could go on.
    pub(super) state: u32,
    /// The number of the hit.
    pub(super) sequence: u32,
    /// Who holds the lock that it waits for.
    pub(super) holder: u64,
    /// What woke it since.
    pub(super) woken: Woken,
}

/// Some rows; the addresses are in a cache line of their own.
#[repr(align(64))]
struct Set {
    /// The tasks' addresses; zero for a free row.
    tasks: [AtomicUsize; WAYS],
    rows: [Row; WAYS],
}

#[derive(Default)]
struct Row {
    at_ns: AtomicU64,
    run_delay_ns: AtomicU64,
    state: AtomicU32,
    sequence: AtomicU32,
    holder: AtomicU64,
    /// Which wait was woken: its `at_ns`.
    woken: AtomicU64,
    woken_ns: AtomicU64,
    woken_by: AtomicU64,
}

/// The rows of a session.
pub(super) struct WaitRows(KVVec<Set>);

impl WaitRows {
    /// Without tasks.
    pub(super) fn new() -> Result<Self> {
        let mut sets = KVVec::new();
        for _ in 0..SETS {
            let set = Set {
                tasks: [const { AtomicUsize::new(0) }; WAYS],
                rows: Default::default(),
            };
            memory::push(&mut sets, set)?;
        }
        Ok(WaitRows(sets))
    }

    /// The set of a task. The upper half of a product is below the number of sets.
    #[inline(always)]
    fn set(&self, task: usize) -> Option<&Set> {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (task as u64).wrapping_mul(ODD) >> 32;
        self.0.get((mixed.wrapping_mul(SETS as u64) >> 32) as usize)
    }

    /// Notes that a task has left its CPU; false if there is no room.
    #[inline]
    pub(super) fn put(&self, task: usize, left: &Left) -> bool {
        let Some(set) = self.set(task) else {
            return false;
        };
        for (own, row) in set.tasks.iter().zip(&set.rows) {
            if own.load(Relaxed) != 0 || own.compare_exchange(0, task, Acquire, Relaxed).is_err() {
                continue;
            }
            row.at_ns.store(left.at_ns, Relaxed);
            row.run_delay_ns.store(left.run_delay_ns, Relaxed);
            row.state.store(left.state, Relaxed);
            row.sequence.store(left.sequence, Relaxed);
            row.holder.store(left.holder, Relaxed);
            return true;
        }
        false
    }

    /// Takes out a task that gets a CPU; `None` if it was not there.
    #[inline]
    pub(super) fn take(&self, task: usize) -> Option<Left> {
        let set = self.set(task)?;
        let place = set.tasks.iter().position(|own| own.load(Relaxed) == task)?;
        let (own, row) = (set.tasks.get(place)?, set.rows.get(place)?);
        let at_ns = row.at_ns.load(Relaxed);
        // Another wait in this row may have been woken, by a CPU that came late.
        let woken = match row.woken.load(Acquire) == at_ns {
            true => Woken {
                at_ns: row.woken_ns.load(Relaxed),
                by: row.woken_by.load(Relaxed),
            },
            false => Woken::default(),
        };
        let left = Left {
            at_ns,
            run_delay_ns: row.run_delay_ns.load(Relaxed),
            state: row.state.load(Relaxed),
            sequence: row.sequence.load(Relaxed),
            holder: row.holder.load(Relaxed),
            woken,
        };
        own.store(0, Release);
        Some(left)
    }

    /// Notes what wakes a task, if it is there; `wake` gets the time when it left its CPU. Under the
    /// task's `pi_lock`; a task that could run may get a CPU meanwhile, and its row another one.
    #[inline]
    pub(super) fn note_wake(&self, task: usize, wake: impl FnOnce(u64) -> Woken) {
        let Some(set) = self.set(task) else {
            return;
        };
        let place = set.tasks.iter().position(|own| own.load(Relaxed) == task);
        let Some(row) = place.and_then(|place| set.rows.get(place)) else {
            return;
        };
        let at_ns = row.at_ns.load(Relaxed);
        let woken = wake(at_ns);
        row.woken_by.store(woken.by, Relaxed);
        row.woken_ns.store(woken.at_ns, Relaxed);
        row.woken.store(at_ns, Release);
    }

    /// The number of tasks in it.
    pub(super) fn count(&self) -> u64 {
        let rows = self.0.iter().flat_map(|set| &set.tasks);
        rows.filter(|own| own.load(Relaxed) != 0).count() as u64
    }
}
