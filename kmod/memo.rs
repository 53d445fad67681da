// SPDX-License-Identifier: GPL-2.0-only
//! The stack that was walked last on each CPU, to be compared instead of walked again.
//!
//! Stack after stack shares its outer frames, and often all of them. What a step to the
//! caller gives is a function of the registers in front of it, of the words that it reads,
//! and of rules that never change. So when a walk comes to the registers of a step that is
//! kept, the steps behind that one are the same as long as the words are: a few instructions
//! a frame. A kept step is never believed without that.
//!
//! Kept steps end at the end of their array, the outermost one last: stacks that share outer
//! frames have them at the same places, whatever their depth.

use crate::{
    common::record::StackEnd,
    sys::user_mem::{NoFaults, Step},
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    AtomicU8,
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::prelude::*;

/// Steps that are kept. Twice as many as a stack may have, so that there is room for other
/// inner frames in front of the outer ones.
const STEPS: usize = 256;
/// Steps of one walk.
const FRESH: usize = 128;

/// What a walk begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) rip: u64,
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
    /// Bytes that frame 0 lies in front of `rip`.
    pub(crate) ahead: u64,
    /// Everything else that matters: never zero.
    pub(crate) how: u64,
}

/// A stack. Whoever uses it has it to himself; it is atomic as it is shared.
#[derive(Default)]
pub(crate) struct Memo {
    steps: KVVec<Step>,
    /// Steps of the walk that is under way.
    fresh: KVVec<Step>,
    /// The innermost step that is kept; `STEPS` for none.
    first: AtomicUsize,
    /// A [`Start`]; all zero when the first step is not the walk's first.
    start: [AtomicU64; 5],
    /// Whether the steps are those of unwind rows.
    by_rows: AtomicU8,
    /// The [`StackEnd`] behind the last step.
    end: AtomicU8,
    /// The id of the whole stack, or zero; and how that ends.
    id: AtomicU32,
    id_end: AtomicU8,
}

impl Memo {
    /// Nothing kept.
    pub(crate) fn new() -> Result<Self> {
        Ok(Memo {
            steps: steps(STEPS)?,
            fresh: steps(FRESH)?,
            first: AtomicUsize::new(STEPS),
            ..Memo::default()
        })
    }

    /// Forgets what is kept.
    pub(crate) fn forget(&self) {
        self.first.store(STEPS, Relaxed);
        self.set_start(None);
    }

    fn set_start(&self, start: Option<&Start>) {
        let words = match start {
            Some(start) => [start.rip, start.rsp, start.rbp, start.ahead, start.how],
            None => [0; 5],
        };
        for (to, word) in self.start.iter().zip(words) {
            to.store(word, Relaxed);
        }
    }

    fn starts_with(&self, start: &Start) -> bool {
        let words = [start.rip, start.rsp, start.rbp, start.ahead, start.how];
        let mut pairs = self.start.iter().zip(words);
        pairs.all(|(kept, word)| kept.load(Relaxed) == word)
    }

    /// The steps from `from` on.
    fn from(&self, from: usize) -> &[Step] {
        self.steps.get(from..).unwrap_or(&[])
    }

    /// How the stack ends behind the last step, when that is known.
    fn end(&self) -> Option<StackEnd> {
        StackEnd::from_u8(self.end.load(Relaxed))
    }
}

fn steps(count: usize) -> Result<KVVec<Step>> {
    let mut all = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..count {
        all.push(Step::default(), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(all)
}

/// A step that was just made.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    /// Where the return address was read, and what it is.
    pub(crate) slot: u64,
    pub(crate) rip: u64,
    /// Where the caller's `rbp` was read, or zero, and what it is.
    pub(crate) rbp_slot: u64,
    pub(crate) rbp: u64,
    /// The frame's word.
    pub(crate) word: u64,
}

/// A walk, as it is compared with the one that is kept.
pub(crate) struct Walked<'a> {
    memo: &'a Memo,
    start: Start,
    /// How many steps of this walk are fresh.
    fresh: usize,
    /// Whether these are all, from the walk's start on.
    from_start: bool,
    /// The kept step that this walk may come to next, and its slot.
    next: usize,
    next_slot: u64,
    /// The kept step that the steps from there on are equal to, when they are.
    equal_from: Option<usize>,
}

/// Steps that need not be made, as they are known.
pub(crate) struct Known<'a> {
    /// They, innermost first.
    pub(crate) steps: &'a [Step],
    /// How the stack ends behind them, when that is known.
    pub(crate) end: Option<StackEnd>,
}

impl<'a> Walked<'a> {
    /// A walk that begins.
    pub(crate) fn new(memo: &'a Memo, start: Start, by_rows: bool) -> Self {
        if memo.by_rows.swap(by_rows.into(), Relaxed) != u8::from(by_rows) {
            memo.forget();
        }
        let mut walked = Walked {
            memo,
            start,
            fresh: 0,
            from_start: true,
            next: memo.first.load(Relaxed),
            next_slot: 0,
            equal_from: None,
        };
        walked.set_next(walked.next);
        walked
    }

    fn set_next(&mut self, next: usize) {
        self.next = next;
        let step = self.memo.steps.get(next);
        self.next_slot = step.map_or(u64::MAX, |step| step.slot.load(Relaxed));
    }

    /// The id of the whole stack, when it is the one that is kept.
    pub(crate) fn known_id(&self, memory: &NoFaults) -> Option<(u32, StackEnd)> {
        let memo = self.memo;
        let id = memo.id.load(Relaxed);
        let end = StackEnd::from_u8(memo.id_end.load(Relaxed))?;
        let steps = memo.from(memo.first.load(Relaxed));
        let is_same =
            id != 0 && memo.starts_with(&self.start) && memory.matching(steps) == steps.len();
        is_same.then_some((id, end))
    }

    /// What is known of a walk that has just begun.
    pub(crate) fn at_start(&mut self, memory: &NoFaults, room: usize) -> Option<Known<'a>> {
        if !self.memo.starts_with(&self.start) {
            return None;
        }
        self.known_from(self.memo.first.load(Relaxed), memory, room)
    }

    /// Takes down a step; whether the steps behind it may be known.
    #[inline(always)]
    pub(crate) fn step(&mut self, made: &Made) -> bool {
        if made.slot >= self.next_slot && self.comes_to(made) {
            return true;
        }
        if let Some(fresh) = self.memo.fresh.get(self.fresh) {
            fresh.slot.store(made.slot, Relaxed);
            fresh.rip.store(made.rip, Relaxed);
            fresh.rbp_slot.store(made.rbp_slot, Relaxed);
            fresh.rbp.store(made.rbp, Relaxed);
            fresh.word.store(made.word, Relaxed);
        }
        self.fresh = self.fresh.wrapping_add(1);
        false
    }

    /// Whether the step leads to the same registers as a kept one, which is then `next`.
    #[cold]
    fn comes_to(&mut self, made: &Made) -> bool {
        while let Some(kept) = self.memo.steps.get(self.next) {
            let slot = kept.slot.load(Relaxed);
            if slot > made.slot {
                break;
            }
            let is_same = slot == made.slot
                && kept.rip.load(Relaxed) == made.rip
                && kept.rbp.load(Relaxed) == made.rbp
                && kept.word.load(Relaxed) == made.word;
            if is_same {
                return true;
            }
            self.next = self.next.wrapping_add(1);
        }
        self.set_next(self.next);
        false
    }

    /// What is known behind the step that has just led to a kept one.
    pub(crate) fn behind_step(&mut self, memory: &NoFaults, room: usize) -> Option<Known<'a>> {
        self.known_from(self.next.wrapping_add(1), memory, room)
    }

    /// What is known from the kept step `from` on. When it is not all, the walk goes on
    /// with steps of its own behind it. `room` is for how many frames there is room.
    fn known_from(&mut self, from: usize, memory: &NoFaults, room: usize) -> Option<Known<'a>> {
        let kept = self.memo.from(from);
        let count = memory.matching(kept);
        let steps = kept.get(..count)?;
        let is_all = |end: &StackEnd| {
            // A stack that was cut goes on behind its last frame, when there is room.
            count == kept.len() && (*end != StackEnd::Limit || count == room)
        };
        let end = self.memo.end().filter(is_all);
        match end {
            Some(_) => self.equal_from = Some(self.next),
            None => {
                self.take_over(self.next, from.wrapping_add(count));
                self.set_next(from.wrapping_add(count));
            }
        }
        Some(Known { steps, end })
    }

    /// Makes the kept steps of these places fresh ones.
    fn take_over(&mut self, from: usize, to: usize) {
        for kept in self.memo.steps.get(from..to).unwrap_or(&[]) {
            if let Some(fresh) = self.memo.fresh.get(self.fresh) {
                fresh.set(kept);
            }
            self.fresh = self.fresh.wrapping_add(1);
        }
    }

    /// The next steps cannot be kept together with those before.
    #[cold]
    pub(crate) fn break_off(&mut self) {
        self.fresh = 0;
        self.from_start = false;
    }

    /// Keeps the walk, which has ended for a reason that its last registers alone tell.
    pub(crate) fn keep(&mut self, end: StackEnd) {
        let memo = self.memo;
        let behind = match self.equal_from {
            Some(equal_from) => equal_from,
            None => {
                memo.end.store(end as u8, Relaxed);
                STEPS
            }
        };
        let is_new = self.fresh != 0 || self.equal_from.is_none();
        if !is_new && memo.starts_with(&self.start) {
            return;
        }
        let fresh = memo.fresh.get(..self.fresh);
        let (Some(fresh), Some(first)) = (fresh, behind.checked_sub(self.fresh)) else {
            return memo.forget();
        };
        for (kept, fresh) in memo.from(first).iter().zip(fresh) {
            kept.set(fresh);
        }
        memo.first.store(first, Relaxed);
        memo.set_start(Some(&self.start).filter(|_| self.from_start));
        memo.id.store(0, Relaxed);
    }

    /// The stack that was kept has this id, and ends so.
    pub(crate) fn set_id(&self, id: u32, end: StackEnd) {
        if self.memo.starts_with(&self.start) {
            self.memo.id.store(id, Relaxed);
            self.memo.id_end.store(end as u8, Relaxed);
        }
    }
}
