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
//! Go moves the stack of a goroutine while calls of it are under way: there the goroutine, and how
//! far the slot is below the top of its stack, take the place of the slot's address, and a function
//! restores the return address alone.
//!
//! A call may be in one of the rows of a set. The task that turns a row's state to busy owns it
//! until it publishes it; a busy row is passed over. If all are taken, the container that has most
//! calls under way, and in it the address space that has most, loses its oldest call of the set:
//! see [`UnderWay::evict`].

use crate::{
    common::{
        abi::CALLS_MAX,
        table::{hash, WAYS}, //
    },
    probe::{
        entry_values::{PendingCall, SharedCall},
        goroutine::{GoStack, Goroutine}, //
    },
    sys::{
        self,
        memory,
        returns,
        task::Current,
        uprobe::Regs,
        user_mem, //
    },
    used_rows::{MarkedRows, UsedRows}, //
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::prelude::*;

const SETS: usize = CALLS_MAX as usize / WAYS;
/// Counters of rows, each of an address space, or by chance of several.
const COUNTERS: usize = 1 << 14;
/// Sets whose rows tell which container has most calls. Which calls lie in neighbouring sets cannot
/// be predicted.
const SAMPLE: usize = 16;

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
    goroutine: AtomicU64,
    space: AtomicU64,
    /// The container that pays for the row; see `SessionOwner::container`.
    container: AtomicU64,
    function: AtomicU64,
    /// A digest of what the function must restore.
    digest: AtomicU64,
    /// The bounds of the goroutine's stack.
    low: AtomicU64,
    high: AtomicU64,
    call: SharedCall,
}

/// Rows for the calls of one hash.
#[derive(Default)]
struct Set {
    used: UsedRows,
    rows: [Row; WAYS],
}

/// A call that has ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct EndedCall {
    pub(crate) call: PendingCall,
    /// The stack on which it began, if it was moved since: its memory is another's by now.
    pub(crate) moved_from: Option<GoStack>,
}

/// The calls in progress.
pub(crate) struct UnderWay {
    seed: u64,
    sets: KVVec<Set>,
    /// The number of taken rows per address space: most spaces that end have none.
    taken: KVVec<AtomicU64>,
}

/// How a call began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Followed,
    /// Another call under way was forgotten for it.
    Evicted,
    /// Not at all: other calls have all rows.
    NoRoom,
}

/// The function whose calls begin or end at a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function {
    /// The number that user space gives it, or zero for none.
    pub(crate) number: u32,
    /// Whether it is one of Go's.
    pub(crate) is_go: bool,
}

/// A call, described by the registers at its entry or its exit.
pub(crate) struct Frame {
    space: u64,
    /// The address of the slot; of a goroutine: its distance from the top of the stack.
    slot: u64,
    /// The goroutine, or zero.
    goroutine: u64,
    stack: GoStack,
    function: u32,
    digest: u64,
    /// The return address, or the address of a return probe's trampoline; or zero.
    pub(crate) top: u64,
}

/// The word on top of the stack: in front of a function's first instruction, and of one that
/// returns, the return address.
#[inline(always)]
pub(crate) fn top_of(regs: &Regs<'_>) -> u64 {
    user_mem::word(regs.sp()).unwrap_or(0)
}

impl Frame {
    /// The call of `function` whose return address is on top of the stack; `None` for one of Go's
    /// whose goroutine is not known.
    #[inline(always)]
    pub(crate) fn of(regs: &Regs<'_>, current: &Current, function: Function) -> Option<Self> {
        let slot = regs.sp();
        let top = top_of(regs);
        let address = match returns::may_be_trampoline(top) {
            true => returns::real_address(slot).unwrap_or(top),
            false => top,
        };
        let frame = Frame {
            space: current.space(),
            slot,
            goroutine: 0,
            stack: GoStack::default(),
            function: function.number,
            digest: address,
            top,
        };
        match function.is_go {
            false => Some(Frame {
                digest: regs.preserved(address),
                ..frame
            }),
            true => {
                let goroutine = Goroutine::of(regs)?;
                Some(Frame {
                    slot: goroutine.depth,
                    goroutine: goroutine.g,
                    stack: goroutine.stack,
                    ..frame
                })
            }
        }
    }
}

impl Row {
    fn is_of(&self, frame: &Frame) -> bool {
        self.slot.load(Relaxed) == frame.slot
            && self.goroutine.load(Relaxed) == frame.goroutine
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
    fn fill(&self, state: u64, frame: &Frame, container: u64, call: &PendingCall) {
        self.slot.store(frame.slot, Relaxed);
        self.goroutine.store(frame.goroutine, Relaxed);
        self.space.store(frame.space, Relaxed);
        self.container.store(container, Relaxed);
        self.function.store(frame.function.into(), Relaxed);
        self.digest.store(frame.digest, Relaxed);
        if frame.goroutine != 0 {
            self.low.store(frame.stack.low, Relaxed);
            self.high.store(frame.stack.high, Relaxed);
        }
        self.call.store(call);
        let published = (state & !KIND).wrapping_add(KIND.wrapping_add(1)) | TAKEN;
        self.state.store(published, Release);
    }

    /// Where the call of this row began, if it ends on another stack.
    fn moved_from(&self, frame: &Frame) -> Option<GoStack> {
        if frame.goroutine == 0 {
            return None;
        }
        let began = GoStack {
            low: self.low.load(Relaxed),
            high: self.high.load(Relaxed),
        };
        (began != frame.stack).then_some(began)
    }

    fn is_taken(&self) -> bool {
        self.state.load(Relaxed) & KIND == TAKEN
    }
}

impl Set {
    #[inline(always)]
    fn rows_of(&self, marked: MarkedRows) -> impl Iterator<Item = (usize, &Row)> {
        marked.filter_map(|number| Some((number, self.rows.get(number)?)))
    }

    /// Frees a row that this task owns, whose state was `state`.
    #[inline(always)]
    fn free(&self, number: usize, row: &Row, state: u64) {
        self.used.unmark(number);
        row.state.store(state & !KIND | FREE, Release);
    }
}

impl UnderWay {
    /// Makes empty rows.
    pub(crate) fn new() -> Result<Self> {
        Ok(UnderWay {
            seed: sys::random() | 1,
            sets: memory::made(SETS, |_| Ok(Set::default()))?,
            taken: memory::zeroed(COUNTERS)?,
        })
    }

    /// The number of the set where a call may be; it cannot be predicted without the seed.
    #[inline(always)]
    fn number_of_set(&self, frame: &Frame) -> usize {
        let owner = frame.space.rotate_left(32) ^ u64::from(frame.function);
        let place = frame.slot.wrapping_add(frame.goroutine);
        (hash(self.seed, [place, owner].iter()) % SETS as u64) as usize
    }

    /// Begins a call of `container`, in place of an abandoned one, or else of another call there.
    pub(crate) fn begin(&self, frame: &Frame, container: u64, call: &PendingCall) -> Begun {
        let number = self.number_of_set(frame);
        let Some(set) = self.sets.get(number) else {
            return Begun::NoRoom;
        };
        let marked = set.used.marked();
        let unmarked = marked.first_unmarked();
        for (_, row) in set.rows_of(marked) {
            let state = row.state.load(Acquire);
            if state & KIND == TAKEN && row.is_of(frame) && row.claim(state) {
                row.fill(state, frame, container, call);
                return Begun::Followed;
            }
        }
        if let Some(row) = set.rows.get(unmarked) {
            let state = row.state.load(Relaxed);
            if state & KIND == FREE && row.claim(state) {
                set.used.mark(unmarked);
                row.fill(state, frame, container, call);
                self.count(frame.space, 1);
                return Begun::Followed;
            }
        }
        self.begin_in_the_way(number, set, frame, container, call)
    }

    #[cold]
    fn begin_in_the_way(
        &self,
        number: usize,
        set: &Set,
        frame: &Frame,
        container: u64,
        call: &PendingCall,
    ) -> Begun {
        let is_free = |(_, row): &(usize, &Row)| row.state.load(Acquire) & KIND == FREE;
        let free = (0..WAYS).zip(&set.rows).find(is_free);
        let Some((at, row)) = free.or_else(|| self.evict(number, set, frame.space, container))
        else {
            return Begun::NoRoom;
        };
        let state = row.state.load(Acquire);
        if state & KIND == BUSY || !row.claim(state) {
            return Begun::NoRoom;
        }
        let begun = match state & KIND {
            TAKEN => {
                self.count(row.space.load(Relaxed), -1);
                Begun::Evicted
            }
            _ => Begun::Followed,
        };
        set.used.mark(at);
        row.fill(state, frame, container, call);
        self.count(frame.space, 1);
        begun
    }

    /// The row of a full set that goes for a new call: the oldest one of those whose container has
    /// most calls, and in it the address space that has most. `None` if those of the new call have
    /// more than all others of the set.
    fn evict<'a>(
        &self,
        number: usize,
        set: &'a Set,
        space: u64,
        container: u64,
    ) -> Option<(usize, &'a Row)> {
        let start = number.min(SETS.saturating_sub(SAMPLE));
        let sample = self.sets.get(start..start.wrapping_add(SAMPLE));
        let sample = sample.unwrap_or(&[]);
        let weight = |container, space| {
            let (mut of_container, mut of_space) = (0u32, 0u32);
            let rows = sample.iter().flat_map(|set| &set.rows);
            for row in rows.filter(|row| row.is_taken()) {
                let is_its = row.container.load(Relaxed) == container;
                of_container = of_container.wrapping_add(is_its.into());
                of_space = of_space.wrapping_add((row.space.load(Relaxed) == space).into());
            }
            (of_container, of_space)
        };
        let mut heaviest = (weight(container, space), 0, None);
        for (at, row) in (0..WAYS).zip(&set.rows) {
            if !row.is_taken() {
                continue;
            }
            let of_row = weight(row.container.load(Relaxed), row.space.load(Relaxed));
            let began = row.call.time_ns.load(Relaxed);
            let is_first = of_row > heaviest.0
                || of_row == heaviest.0 && (heaviest.2.is_none() || began < heaviest.1);
            if is_first {
                heaviest = (of_row, began, Some((at, row)));
            }
        }
        heaviest.2
    }

    /// Ends a call and returns it; `None` if its beginning was not seen. Drops an abandoned one
    /// whose place on the stack now belongs to another call.
    pub(crate) fn end(&self, frame: &Frame) -> Option<EndedCall> {
        // Common where entries reject most calls.
        if self.has_none(frame.space) {
            return None;
        }
        let set = self.sets.get(self.number_of_set(frame))?;
        for (number, row) in set.rows_of(set.used.marked()) {
            let state = row.state.load(Acquire);
            if state & KIND == TAKEN && row.is_of(frame) && row.claim(state) {
                let is_it = row.digest.load(Relaxed) == frame.digest;
                let ended = EndedCall {
                    call: row.call.load(),
                    moved_from: row.moved_from(frame),
                };
                set.free(number, row, state);
                self.count(frame.space, -1);
                return is_it.then_some(ended);
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
        for set in &*self.sets {
            for (number, row) in set.rows_of(set.used.marked()) {
                let state = row.state.load(Acquire);
                let is_its = state & KIND == TAKEN && row.space.load(Relaxed) == space;
                if is_its && row.claim(state) {
                    set.free(number, row, state);
                    self.count(space, -1);
                    if self.has_none(space) {
                        return;
                    }
                }
            }
        }
    }
}
