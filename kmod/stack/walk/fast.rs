// SPDX-License-Identifier: GPL-2.0-only
//! The fast walk: steps over kept rules and mappings.

use crate::{
    common::{
        record::{Method, StackEnd},
        unwind::{At, Registers}, //
    },
    stack::{
        mapping_cache::{CodeRange, Mappings, SimpleRule},
        walk_cache::{UnwindStep, WalkRecorder},
        Stack, //
    },
    sys::{
        returns::may_be_trampoline,
        user_mem::{Fault, NoFaults}, //
    }, //
};

/// Why the fast walk stopped.
pub(super) enum Stopped {
    /// The next rule, or mapping, is not kept.
    NotKept,
    /// The last step matched one of the cached walk.
    MeetsKept,
    /// The stack has ended.
    Ended(StackEnd),
}

/// The inputs of the fast walk over kept rules. A type of its own, to keep few variables live.
pub(super) struct FastWalk<'w, 'a> {
    pub(super) kept: &'w Mappings<'a>,
    pub(super) memory: &'w NoFaults,
    pub(super) last: CodeRange,
    pub(super) stack: &'w mut Stack,
    pub(super) max_frames: u32,
    pub(super) recorder: &'w mut WalkRecorder<'a>,
}

impl FastWalk<'_, '_> {
    /// Continues from `at`, whose `rbp` is known.
    #[inline(never)]
    pub(super) fn follow(&mut self, at: &mut Registers) -> Stopped {
        let mut inside = at.inside();
        if !self.last.holds(inside) || self.last.is_far() {
            return Stopped::NotKept;
        }
        let Registers {
            mut rsp, mut rbp, ..
        } = *at;
        let mut base = self.last.key_base();
        let mut place = self.last.word_base(Method::Row);
        let mut room = self.max_frames.saturating_sub(self.stack.frames);
        let full = room;
        let stopped = loop {
            let Some(rule) = self.kept.rule(inside.wrapping_add(base)) else {
                break Stopped::NotKept;
            };
            let from = match rule.by_rbp() {
                true => rbp,
                false => rsp,
            };
            let frame = from.wrapping_add(rule.offset());
            if frame <= rsp || frame & 7 != 0 {
                break Stopped::Ended(match rule.is_outermost() {
                    true => StackEnd::Outermost,
                    false => StackEnd::BadRow,
                });
            }
            let read = match rule.saves_below() {
                true => self.memory.pair(frame.wrapping_sub(16)),
                false => self.apart(frame, rule, rbp),
            };
            let Ok([saved, rip]) = read else {
                break Stopped::Ended(StackEnd::Fault);
            };
            if may_be_trampoline(rip) {
                break Stopped::NotKept;
            }
            let caller = rip.wrapping_sub(1);
            if !self.last.holds(caller) {
                match self.kept.find(caller) {
                    Some(known) if !known.is_far() => self.last = known,
                    _ => break Stopped::NotKept,
                }
                base = self.last.key_base();
                place = self.last.word_base(Method::Row);
            }
            let step = UnwindStep {
                slot: frame.wrapping_sub(8),
                rip,
                rbp_slot: rule.saved_slot(frame),
                rbp: saved,
                by_rbp: rule.by_rbp(),
                word: rip.wrapping_add(place),
            };
            if room == 0 || !self.stack.words.push(step.word) {
                break Stopped::Ended(StackEnd::Limit);
            }
            room = room.wrapping_sub(1);
            (inside, rsp, rbp) = (caller, frame, saved);
            if self.recorder.step(&step) {
                break Stopped::MeetsKept;
            }
        };
        let frames = full.wrapping_sub(room);
        if frames != 0 {
            *at = Registers {
                rip: inside.wrapping_add(1),
                rsp,
                rbp,
                knows_rbp: true,
                at: At::Call,
                ..*at
            };
            self.stack.frames = self.stack.frames.wrapping_add(frames);
        }
        stopped
    }

    /// The caller's `rbp` and the return address, which are not side by side.
    #[inline(always)]
    fn apart(&self, frame: u64, rule: SimpleRule, rbp: u64) -> Result<[u64; 2], Fault> {
        let rip = self.memory.word(frame.wrapping_sub(8))?;
        let rbp = match rule.saved_at() {
            Some(at) => self.memory.word(frame.wrapping_add(at))?,
            None => rbp,
        };
        Ok([rbp, rip])
    }
}
