// SPDX-License-Identifier: GPL-2.0-only
//! Caches recent walks on each CPU, so that a stack is compared instead of walked again.
//!
//! Stack after stack shares its outer frames, and often all of them. The result of a step to the
//! caller is a function of the registers before it, of the words that it reads, and of rules that
//! never change. So when a walk reaches the registers of a kept step, the steps after that one are
//! valid as long as the words are unchanged: a few instructions a frame. No kept step is used
//! without that check.
//!
//! A walk writes its steps into a spare array. One that comes to no kept step swaps it for that of the
//! walk that it replaces; another puts its own steps in front of those that it has come to.

use crate::{
    common::record::StackEnd,
    stack::StackRequest,
    sys::{
        memory::zeroed,
        regs::RegisterFile,
        user_mem::NoFaults,
        user_walk::{Step, WalkPlace}, //
    }, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU64,
    AtomicU8,
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::prelude::*;

/// Most steps of one walk.
const STEPS: usize = 128;
/// Steps in front of them, so that there is room for other inner frames.
const FRONT: usize = 128;
/// Steps of an array.
const ARRAY: usize = FRONT + STEPS;

/// Walks that are kept for each CPU.
pub(crate) const CACHED_WALKS: usize = 8;

/// What a walk starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkKey {
    rip: u64,
    rsp: u64,
    rbp: u64,
    /// Bytes from frame 0 to `rip`.
    breakpoint_delta: u64,
    /// The word on top of the stack, if that is the return address: it distinguishes callers.
    top: u64,
    /// Everything else that the walk depends on: never zero.
    how: u64,
}

impl WalkKey {
    /// The key of a walk from these registers.
    #[inline(always)]
    pub(crate) fn new(
        regs: &RegisterFile,
        request: &StackRequest,
        by_rows: bool,
        memory: &NoFaults,
    ) -> Self {
        let top = match request.at_entry {
            true => memory.word(regs.sp()).unwrap_or(0),
            false => 0,
        };
        let flag = |set: bool, bit: u32| u64::from(set) << bit;
        WalkKey {
            rip: regs.ip(),
            rsp: regs.sp(),
            rbp: regs.bp(),
            breakpoint_delta: request.breakpoint_delta,
            top,
            how: 1
                | flag(request.at_entry, 1)
                | flag(request.copies, 2)
                | if by_rows { BY_ROWS } else { 0 }
                | u64::from(request.max_frames) << 8,
        }
    }

    /// The kept walk with this key, or else the one to replace; and which it is.
    #[inline(always)]
    pub(crate) fn pick<'a>(
        &self,
        cached_walks: &'a [CachedWalk; CACHED_WALKS],
    ) -> (&'a CachedWalk, bool) {
        let mixed = (self.rip ^ self.rsp.rotate_left(32) ^ self.top.rotate_left(16))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let which = (mixed >> (u64::BITS - CACHED_WALKS.ilog2())) as usize;
        let [default, ..] = cached_walks;
        let first = cached_walks.get(which).unwrap_or(default);
        if first.has_key(self) {
            return (first, true);
        }
        let second = cached_walks.get(which ^ 1).unwrap_or(default);
        match second.has_key(self) {
            true => (second, true),
            false if second.age.load(Relaxed) < first.age.load(Relaxed) => (second, false),
            false => (first, false),
        }
    }

    /// Whether the walk follows frame pointers alone.
    #[inline(always)]
    fn by_frame_pointers(&self) -> bool {
        self.how & BY_ROWS == 0
    }

    /// All words but `rbp`.
    fn words(&self) -> [u64; KEY_WORDS] {
        let WalkKey {
            rip,
            rsp,
            rbp: _,
            breakpoint_delta,
            top,
            how,
        } = *self;
        [top, rip, rsp, breakpoint_delta, how]
    }
}

const KEY_WORDS: usize = 5;

/// In [`WalkKey::how`]: the walk follows rows. Other walks always need `rbp`, if only to end.
const BY_ROWS: u64 = 1 << 3;

/// A cached walk. One context at a time uses it; its fields are atomic as it is shared.
#[derive(Default)]
pub(crate) struct CachedWalk {
    /// Which array has its steps, and the indexes of the innermost one, and behind the outermost one.
    array: AtomicUsize,
    first: AtomicUsize,
    behind: AtomicUsize,
    /// A [`WalkKey`]; all zero if the first step is not the walk's first.
    key: [AtomicU64; KEY_WORDS],
    key_rbp: AtomicU64,
    /// Whether some step depends on `rbp`. Most programs have no frame pointers: there `rbp` is a
    /// register like any other, and may differ at each hit.
    needs_rbp: AtomicBool,
    /// How many walks were kept here.
    age: AtomicU32,
    /// The [`StackEnd`] after the last step.
    end: AtomicU8,
    /// The id of the whole stack, or zero.
    id: AtomicU32,
}

impl CachedWalk {
    /// Gives an empty cached walk its array.
    pub(crate) fn take_array(&mut self, array: usize) {
        *self.array.get_mut() = array;
    }

    /// Forgets the kept walk.
    pub(crate) fn forget(&self) {
        self.first.store(0, Relaxed);
        self.behind.store(0, Relaxed);
        self.set_key(None);
    }

    fn set_key(&self, key: Option<&WalkKey>) {
        let words = key.map_or([0; KEY_WORDS], WalkKey::words);
        for (to, word) in self.key.iter().zip(words) {
            to.store(word, Relaxed);
        }
        let rbp = key.map_or(0, |key| key.rbp);
        self.key_rbp.store(rbp, Relaxed);
    }

    #[inline(always)]
    fn has_key(&self, key: &WalkKey) -> bool {
        let mut pairs = self.key.iter().zip(key.words());
        pairs.all(|(kept, word)| kept.load(Relaxed) == word)
            && (self.has_rbp_of(key) || !self.needs_rbp.load(Relaxed))
    }

    #[inline(always)]
    fn has_rbp_of(&self, key: &WalkKey) -> bool {
        self.key_rbp.load(Relaxed) == key.rbp
    }

    /// The id of the whole stack, if a walk with its key would find this one.
    #[inline(always)]
    pub(crate) fn known_id(
        &self,
        key: &WalkKey,
        arrays: &StepArrays,
        memory: &NoFaults,
    ) -> Option<(u32, StackEnd)> {
        let id = self.id.load(Relaxed);
        if id == 0 {
            return None;
        }
        let steps = arrays.of(self).get(self.first.load(Relaxed)..)?;
        let end = self.end()?;
        let matching = memory.matching(steps, key.by_frame_pointers());
        (matching == steps.len()).then_some((id, end))
    }

    /// How the stack ends after the last step, if that is known.
    fn end(&self) -> Option<StackEnd> {
        StackEnd::from_u8(self.end.load(Relaxed))
    }
}

/// A step that was just taken.
#[derive(Clone, Copy)]
pub(crate) struct UnwindStep {
    /// Where the return address was read, and its value.
    pub(crate) slot: u64,
    pub(crate) rip: u64,
    /// Where the caller's `rbp` was read, or zero, and its value.
    pub(crate) rbp_slot: u64,
    pub(crate) rbp: u64,
    /// Whether the previous frame was found from its `rbp`.
    pub(crate) by_rbp: bool,
    /// The frame's word. It includes the method: a walk by frame pointers never matches a step of
    /// one by rows.
    pub(crate) word: u64,
}

/// The arrays of steps: of the cached walks, and a spare one for the walk in progress.
#[derive(Default)]
pub(crate) struct StepArrays {
    steps: KVVec<Step>,
    spare: AtomicUsize,
}

impl StepArrays {
    /// Makes the arrays, of which the first ones are those of the cached walks.
    pub(crate) fn make(&mut self) -> Result {
        *self.spare.get_mut() = CACHED_WALKS;
        self.steps = zeroed((CACHED_WALKS + 1) * ARRAY)?;
        Ok(())
    }

    fn array(&self, which: &AtomicUsize) -> &[Step] {
        let first = which.load(Relaxed).wrapping_mul(ARRAY);
        self.steps
            .get(first..first.wrapping_add(ARRAY))
            .unwrap_or(&[])
    }

    /// The steps of a cached walk, after room for more.
    #[inline(always)]
    fn of(&self, cached: &CachedWalk) -> &[Step] {
        let array = self.array(&cached.array);
        array.get(..cached.behind.load(Relaxed)).unwrap_or(&[])
    }

    /// Room for the steps of a walk.
    fn fresh(&self) -> &[Step] {
        self.array(&self.spare).get(FRONT..).unwrap_or(&[])
    }

    /// Swaps the spare array for that of a cached walk.
    fn swap(&self, cached: &CachedWalk) {
        let own = cached.array.load(Relaxed);
        cached.array.store(self.spare.load(Relaxed), Relaxed);
        self.spare.store(own, Relaxed);
    }
}

fn copy(from: &[Step], to: &[Step]) {
    for (to, from) in to.iter().zip(from) {
        to.set(from);
    }
}

/// Records a walk and compares it with the kept one.
pub(crate) struct WalkRecorder<'a> {
    cached: &'a CachedWalk,
    arrays: &'a StepArrays,
    /// The steps of the cached walk, after room for more.
    kept: &'a [Step],
    key: WalkKey,
    /// Whether the cached walk started as this one.
    has_key: bool,
    /// The number of fresh steps.
    fresh: usize,
    /// Whether the fresh steps begin at the walk's start.
    from_start: bool,
    /// Whether `rbp` has been read from the stack, and whether some step needed it before that.
    has_read_rbp: bool,
    needs_rbp: bool,
    /// The kept step that this walk may match next, and its slot.
    next: usize,
    next_slot: u64,
    /// The kept step from which on the steps are equal, if they are.
    equal_from: Option<usize>,
}

/// Steps that need not be taken, as they are known.
pub(crate) struct KnownSteps<'a> {
    /// The steps, innermost first.
    pub(crate) steps: &'a [Step],
    /// How the stack ends after them, if that is known.
    pub(crate) end: Option<StackEnd>,
}

impl<'a> WalkRecorder<'a> {
    /// Starts to record a walk.
    pub(crate) fn new(
        cached: &'a CachedWalk,
        arrays: &'a StepArrays,
        key: WalkKey,
        has_key: bool,
    ) -> Self {
        let mut recorder = WalkRecorder {
            cached,
            arrays,
            kept: arrays.of(cached),
            key,
            has_key,
            fresh: 0,
            from_start: true,
            has_read_rbp: false,
            needs_rbp: key.by_frame_pointers(),
            next: cached.first.load(Relaxed),
            next_slot: 0,
            equal_from: None,
        };
        recorder.set_next(recorder.next);
        recorder
    }

    /// The word on top of the stack, if that is the return address; zero if it is not known.
    pub(crate) fn top(&self) -> u64 {
        self.key.top
    }

    fn set_next(&mut self, next: usize) {
        self.next = next;
        let step = self.kept.get(next);
        self.next_slot = step.map_or(u64::MAX, |step| step.slot.load(Relaxed));
    }

    /// The known steps of a walk that has just started.
    pub(crate) fn at_start(&mut self, memory: &NoFaults, room: usize) -> Option<KnownSteps<'a>> {
        if !self.has_key {
            return None;
        }
        let first = self.cached.first.load(Relaxed);
        let kept = self.kept.get(first..)?;
        let matching = || memory.matching(kept, self.key.by_frame_pointers());
        let is_whole = || self.end_behind(kept, matching(), room).is_some();
        if !self.cached.has_rbp_of(&self.key) && !is_whole() {
            // The walk would continue with another walk's `rbp`.
            return None;
        }
        self.needs_rbp = self.cached.needs_rbp.load(Relaxed);
        let known = self.known_from(first, memory, room)?;
        let reads_rbp = |step: &Step| step.rbp_slot.load(Relaxed) != 0;
        self.has_read_rbp = known.steps.iter().any(reads_rbp);
        Some(known)
    }

    /// Records a step; returns whether the steps after it may be known.
    #[inline(always)]
    pub(crate) fn step(&mut self, step: &UnwindStep) -> bool {
        self.needs_rbp |= step.by_rbp && !self.has_read_rbp;
        self.has_read_rbp |= step.rbp_slot != 0;
        if step.slot >= self.next_slot && self.comes_to(step) {
            return true;
        }
        if let Some(fresh) = self.arrays.fresh().get(self.fresh) {
            fresh.slot.store(step.slot, Relaxed);
            fresh.rip.store(step.rip, Relaxed);
            fresh.rbp_slot.store(step.rbp_slot, Relaxed);
            fresh.rbp.store(step.rbp, Relaxed);
            fresh.word.store(step.word, Relaxed);
        }
        self.fresh = self.fresh.wrapping_add(1);
        false
    }

    /// Where a walk in C writes its steps, and the kept ones that it may come to.
    #[inline(always)]
    pub(crate) fn room(&self) -> (&'a [Step], &'a [Step]) {
        let room = self.arrays.fresh().get(self.fresh..).unwrap_or(&[]);
        (room, self.kept.get(self.next..).unwrap_or(&[]))
    }

    /// Whether `rbp` has been read from the stack, and whether some step needed it before that.
    #[inline(always)]
    pub(crate) fn uses_of_rbp(&self) -> (bool, bool) {
        (self.has_read_rbp, self.needs_rbp)
    }

    /// Records steps that a walk in C has written, and those that it has passed.
    #[inline(always)]
    pub(crate) fn took(&mut self, count: usize, passed: usize, place: &WalkPlace) {
        self.fresh = self.fresh.wrapping_add(count);
        self.set_next(self.next.wrapping_add(passed));
        self.has_read_rbp = place.has_read_rbp;
        self.needs_rbp = place.needs_rbp;
    }

    /// Whether the step leads to the same registers as a kept one, which is then `next`.
    #[cold]
    fn comes_to(&mut self, step: &UnwindStep) -> bool {
        let last = self.kept.last().map_or(0, |last| last.slot.load(Relaxed));
        if last < step.slot {
            self.set_next(self.kept.len());
            return false;
        }
        while let Some(kept) = self.kept.get(self.next) {
            let slot = kept.slot.load(Relaxed);
            if slot > step.slot {
                break;
            }
            let is_same = slot == step.slot
                && kept.rip.load(Relaxed) == step.rip
                && kept.rbp.load(Relaxed) == step.rbp
                && kept.word.load(Relaxed) == step.word;
            if is_same {
                return true;
            }
            self.next = self.next.wrapping_add(1);
        }
        self.set_next(self.next);
        false
    }

    /// How the stack ends, if the step that has just matched a kept one is the last.
    #[inline(always)]
    pub(crate) fn end_at_step(&mut self, room: usize) -> Option<StackEnd> {
        if self.next.wrapping_add(1) != self.kept.len() {
            return None;
        }
        let end = self.end_behind(&[], 0, room)?;
        self.needs_rbp |= !self.has_read_rbp;
        self.equal_from = Some(self.next);
        Some(end)
    }

    /// The known steps after the step that has just matched a kept one.
    pub(crate) fn behind_step(&mut self, memory: &NoFaults, room: usize) -> Option<KnownSteps<'a>> {
        // The kept steps may need the `rbp` that this walk started with.
        self.needs_rbp |= !self.has_read_rbp;
        self.has_read_rbp = true;
        self.known_from(self.next.wrapping_add(1), memory, room)
    }

    /// The known steps from the kept step `from` on. If they are not all, the walk continues after
    /// them with its own steps. `room` is the number of frames that still fit.
    fn known_from(
        &mut self,
        from: usize,
        memory: &NoFaults,
        room: usize,
    ) -> Option<KnownSteps<'a>> {
        let kept = self.kept.get(from..)?;
        let count = memory.matching(kept, self.key.by_frame_pointers());
        let steps = kept.get(..count)?;
        let end = self.end_behind(kept, count, room);
        match end {
            Some(_) => self.equal_from = Some(self.next),
            None => {
                self.take_over(self.next, from.wrapping_add(count));
                self.set_next(from.wrapping_add(count));
            }
        }
        Some(KnownSteps { steps, end })
    }

    /// How the stack ends after these kept steps, of which the first `count` match.
    fn end_behind(&self, kept: &[Step], count: usize, room: usize) -> Option<StackEnd> {
        // A stack that was truncated at its limit continues after its last frame if there is room.
        let is_all =
            |end: &StackEnd| count == kept.len() && (*end != StackEnd::Limit || count == room);
        self.cached.end().filter(is_all)
    }

    /// Makes these kept steps fresh ones.
    fn take_over(&mut self, from: usize, to: usize) {
        for kept in self.kept.get(from..to).unwrap_or(&[]) {
            if let Some(fresh) = self.arrays.fresh().get(self.fresh) {
                fresh.set(kept);
            }
            self.fresh = self.fresh.wrapping_add(1);
        }
    }

    /// Starts over: the next steps cannot be kept together with those before.
    #[cold]
    pub(crate) fn break_off(&mut self) {
        self.fresh = 0;
        self.from_start = false;
    }

    /// Starts over, with all kept steps.
    #[cold]
    pub(crate) fn start_over(&mut self) {
        self.break_off();
        self.set_next(self.cached.first.load(Relaxed));
    }

    /// Keeps the walk, whose end reason depends only on its last registers.
    pub(crate) fn keep(&mut self, end: StackEnd) {
        let cached = self.cached;
        let is_new = self.fresh != 0 || self.equal_from.is_none();
        if !is_new && cached.has_key(&self.key) {
            return;
        }
        let tail = self.kept.get(self.equal_from.unwrap_or(usize::MAX)..);
        let tail = tail.unwrap_or(&[]);
        let room = self.arrays.fresh();
        let Some((fresh, room)) = room.split_at_checked(self.fresh) else {
            return cached.forget();
        };
        let first = match self.equal_from {
            // The shorter part is copied.
            Some(equal_from) if fresh.len() < tail.len() => {
                let first = equal_from.checked_sub(fresh.len());
                let array = self.arrays.array(&cached.array);
                let Some((first, room)) = first.and_then(|at| Some((at, array.get(at..)?))) else {
                    return cached.forget();
                };
                copy(fresh, room);
                first
            }
            _ => {
                if room.len() < tail.len() {
                    return cached.forget();
                }
                copy(tail, room);
                self.arrays.swap(cached);
                let count = fresh.len().wrapping_add(tail.len());
                cached.behind.store(FRONT.wrapping_add(count), Relaxed);
                FRONT
            }
        };
        if self.equal_from.is_none() {
            cached.end.store(end as u8, Relaxed);
        }
        cached.first.store(first, Relaxed);
        cached.set_key(Some(&self.key).filter(|_| self.from_start));
        cached.needs_rbp.store(self.needs_rbp, Relaxed);
        cached.id.store(0, Relaxed);
        let age = cached.age.load(Relaxed);
        cached.age.store(age.wrapping_add(1), Relaxed);
    }

    /// Sets the id of the walk that was kept.
    pub(crate) fn set_id(&self, id: u32) {
        if self.cached.has_key(&self.key) {
            self.cached.id.store(id, Relaxed);
        }
    }
}
