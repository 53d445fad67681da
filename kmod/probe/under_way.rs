// SPDX-License-Identifier: GPL-2.0-only
//! Calls between their function's entry and its exits, where the return address is left unchanged.
//!
//! A call is identified by its address space, the slot that holds its return address, and the
//! function: not by its thread, as a fibre may continue in another one. A call may be abandoned (by
//! an exception, `longjmp`, a thread's end) and leave its row behind. The next entry at the slot
//! takes that row over. If another function's call reaches an exit with that slot, it differs in
//! what a function restores: its return address, and its caller's registers. Rows are freed when
//! their address space ends.
//!
//! A call may be in one of the rows of a set. The task that turns a row's state to busy owns it until it
//! publishes it; a busy row is passed over. If all are taken, the oldest call is forgotten.

use crate::{
    common::{abi::CALLS_MAX, table::hash},
    probe::entry_values::{PendingCall, SharedCall},
    sys::{
        self,
        memory,
        returns,
        task::Current,
        uprobe::Regs,
        user_mem, //
    }, //
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::prelude::*;

/// Rows of a set.
const WAYS: usize = 8;
const SETS: usize = CALLS_MAX as usize / WAYS;
/// Counters of rows, each shared by several address spaces.
const COUNTERS: usize = 1 << 10;

/// The low bits of a row's state; the others count how often it was published.
const KIND: u64 = 3;
const FREE: u64 = 0;
const BUSY: u64 = 1;
const TAKEN: u64 = 2;

/// A row for a call.
#[derive(Default)]
struct Row {
    state: AtomicU64,
    slot: AtomicU64,
    space: AtomicU64,
    function: AtomicU64,
    /// A digest of what the function must restore.
    digest: AtomicU64,
    call: SharedCall,
}

/// The calls in progress.
pub(crate) struct UnderWay {
    seed: u64,
    rows: KVVec<Row>,
    /// The number of taken rows per address space: most spaces that end have none.
    taken: KVVec<AtomicU64>,
}

/// A call, described by the registers at its entry or its exit.
pub(crate) struct Frame {
    space: u64,
    slot: u64,
    function: u32,
    digest: u64,
    /// The return address, or the address of a return probe's trampoline; or zero.
    pub(crate) top: u64,
}

impl Frame {
    /// The call of `function` whose return address is on top of the stack.
    #[inline(always)]
    pub(crate) fn of(regs: &Regs<'_>, current: &Current, function: u32) -> Self {
        let slot = regs.sp();
        let top = user_mem::word(slot).unwrap_or(0);
        let address = match returns::may_be_trampoline(top) {
            true => returns::real_address(slot).unwrap_or(top),
            false => top,
        };
        Frame {
            space: current.space(),
            slot,
            function,
            digest: regs.preserved(address),
            top,
        }
    }
}

impl Row {
    fn is_of(&self, frame: &Frame) -> bool {
        self.slot.load(Relaxed) == frame.slot
            && self.space.load(Relaxed) == frame.space
            && self.function.load(Relaxed) == u64::from(frame.function)
    }

    /// Claims the row if its state is still `state`: what was read of it is valid then.
    fn claim(&self, state: u64) -> bool {
        let busy = state & !KIND | BUSY;
        self.state
            .compare_exchange(state, busy, Acquire, Relaxed)
            .is_ok()
    }

    /// Publishes a call in a row that this task owns, whose state was `state`.
    fn fill(&self, state: u64, frame: &Frame, call: &PendingCall) {
        self.slot.store(frame.slot, Relaxed);
        self.space.store(frame.space, Relaxed);
        self.function.store(frame.function.into(), Relaxed);
        self.digest.store(frame.digest, Relaxed);
        self.call.store(call);
        let published = (state & !KIND).wrapping_add(KIND.wrapping_add(1)) | TAKEN;
        self.state.store(published, Release);
    }

    fn free(&self, state: u64) {
        self.state.store(state & !KIND | FREE, Release);
    }
}

impl UnderWay {
    /// Makes empty rows.
    pub(crate) fn new() -> Result<Self> {
        Ok(UnderWay {
            seed: sys::random() | 1,
            rows: memory::made(SETS.wrapping_mul(WAYS), |_| Ok(Row::default()))?,
            taken: memory::zeroed(COUNTERS)?,
        })
    }

    /// The rows where a call may be; they cannot be predicted without the seed.
    #[inline(always)]
    fn set(&self, frame: &Frame) -> &[Row] {
        let owner = frame.space.rotate_left(32) ^ u64::from(frame.function);
        let hash = hash(self.seed, [frame.slot, owner].iter());
        let first = (hash % SETS as u64).wrapping_mul(WAYS as u64) as usize;
        self.rows
            .get(first..first.wrapping_add(WAYS))
            .unwrap_or(&[])
    }

    /// Begins a call, in place of an abandoned one, or else of the oldest one there. Returns false
    /// if other calls are just beginning in all of its rows.
    pub(crate) fn begin(&self, frame: &Frame, call: &PendingCall) -> bool {
        let set = self.set(frame);
        let mut free = None;
        for row in set {
            let state = row.state.load(Acquire);
            match state & KIND {
                TAKEN if row.is_of(frame) && row.claim(state) => {
                    row.fill(state, frame, call);
                    return true;
                }
                FREE if free.is_none() => free = Some((row, state)),
                _ => {}
            }
        }
        match free {
            Some((row, state)) if row.claim(state) => {
                row.fill(state, frame, call);
                self.count(frame.space, 1);
                true
            }
            _ => self.begin_in_the_way(set, frame, call),
        }
    }

    #[cold]
    fn begin_in_the_way(&self, set: &[Row], frame: &Frame, call: &PendingCall) -> bool {
        let state = |row: &&Row| row.state.load(Acquire);
        let mut rows = set.iter();
        let free = rows.find(|row| state(row) & KIND == FREE);
        let taken = set.iter().filter(|row| state(row) & KIND == TAKEN);
        let oldest = || taken.min_by_key(|row| row.call.time_ns.load(Relaxed));
        let Some(row) = free.or_else(oldest) else {
            return false;
        };
        let state = state(&row);
        if state & KIND == BUSY || !row.claim(state) {
            return false;
        }
        if state & KIND == TAKEN {
            self.count(row.space.load(Relaxed), -1);
        }
        row.fill(state, frame, call);
        self.count(frame.space, 1);
        true
    }

    /// Ends a call and returns it; `None` if its beginning was not seen. Drops an abandoned one
    /// whose place on the stack now belongs to another call.
    pub(crate) fn end(&self, frame: &Frame) -> Option<PendingCall> {
        // Common where entries reject most calls.
        if self.has_none(frame.space) {
            return None;
        }
        for row in self.set(frame) {
            let state = row.state.load(Acquire);
            if state & KIND == TAKEN && row.is_of(frame) && row.claim(state) {
                let is_it = row.digest.load(Relaxed) == frame.digest;
                let call = row.call.load();
                row.free(state);
                self.count(frame.space, -1);
                return is_it.then_some(call);
            }
        }
        None
    }

    /// The counter of an address space's rows.
    #[inline(always)]
    fn counter(&self, space: u64) -> Option<&AtomicU64> {
        self.taken.get((space % COUNTERS as u64) as usize)
    }

    /// Whether no row is taken by a call of an address space.
    #[inline(always)]
    fn has_none(&self, space: u64) -> bool {
        self.counter(space)
            .is_none_or(|taken| taken.load(Relaxed) == 0)
    }

    /// Counts the rows of an address space.
    #[inline(always)]
    fn count(&self, space: u64, more: i64) {
        if let Some(taken) = self.counter(space) {
            taken.fetch_add(more as u64, Relaxed);
        }
    }

    /// Frees the rows of an address space that has ended: no task is in its calls any more. Any
    /// context.
    pub(crate) fn space_ended(&self, space: u64) {
        if self.has_none(space) {
            return;
        }
        for row in &*self.rows {
            let state = row.state.load(Acquire);
            let is_its = state & KIND == TAKEN && row.space.load(Relaxed) == space;
            if is_its && row.claim(state) {
                row.free(state);
                self.count(space, -1);
            }
        }
    }
}
