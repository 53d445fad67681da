// SPDX-License-Identifier: GPL-2.0-only
//! The fast walk: steps over kept mappings, by kept rules or by frame pointers.

use super::Walk;
use crate::{
    common::{
        record::{Frame, Method, StackEnd},
        unwind::{At, Registers, SimpleRule}, //
    },
    sys::user_walk::{WalkPlace, WalkResult, WalkRoom, WalkStop},
};

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    /// Walks on from `at`, whose `rbp` is known, as far as what the steps need is kept.
    #[inline(never)]
    pub(super) fn fast(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        loop {
            let most = self.room();
            let (Some(kept), Some(recorder)) = (&self.resolver.mappings, &mut self.recorder) else {
                return Ok(());
            };
            let (steps, kept_steps) = recorder.room();
            let mut room = WalkRoom {
                ranges: kept.ranges(),
                rules: None,
                kept: kept_steps,
                steps,
                most,
                method: Frame::place(0, Method::FramePointer),
                top: (0, Frame::place(0, Method::StackTop)),
            };
            if self.by_rows {
                room.method = Frame::place(0, Method::Row);
                room.rules = Some(match kept.rules() {
                    Some(rules) => rules,
                    None => return Ok(()),
                });
            } else if at.at == At::Innermost && self.request.at_entry {
                room.top.0 = recorder.top();
            }
            let (has_read_rbp, needs_rbp) = recorder.uses_of_rbp();
            let mut place = WalkPlace {
                inside: at.inside(),
                rsp: at.rsp,
                rbp: at.rbp,
                has_read_rbp,
                needs_rbp,
            };
            let words = &mut self.stack.words;
            let WalkResult {
                taken,
                passed,
                stop,
            } = self.memory.follow(&mut place, &room, words);
            if taken != 0 {
                let own = taken.wrapping_sub(usize::from(stop == WalkStop::Meets));
                recorder.took(own, passed, &place);
                self.stack.frames = self.stack.frames.wrapping_add(taken as u32);
                *at = Registers {
                    rip: place.inside.wrapping_add(1),
                    rsp: place.rsp,
                    rbp: place.rbp,
                    knows_rbp: true,
                    at: At::Call,
                    ..*at
                };
            }
            match stop {
                WalkStop::Unknown => {
                    if !self.resolver.last.holds(at.inside()) {
                        let last = kept.find(at.inside());
                        self.resolver.last = last.unwrap_or(self.resolver.last);
                    }
                    return Ok(());
                }
                WalkStop::Full => return Err(StackEnd::Limit),
                WalkStop::Fault => return Err(StackEnd::Fault),
                WalkStop::NotAbove { rule } => return Err(self.not_above(rule, at.rbp)),
                WalkStop::Meets => {
                    if let Some(end) = recorder.end_at_step(most.wrapping_sub(taken)) {
                        self.ends_for_good = true;
                        return Err(end);
                    }
                    self.take_behind(at)?;
                }
            }
        }
    }

    /// The end of a stack whose next frame would not be above the last one.
    pub(super) fn not_above(&mut self, rule: u64, rbp: u64) -> StackEnd {
        let end = match (self.by_rows, SimpleRule::is_outermost(rule), rbp) {
            (true, true, _) | (false, _, 0) => StackEnd::Outermost,
            (true, false, _) => StackEnd::BadRow,
            (false, ..) => StackEnd::BadFramePointer,
        };
        self.ends_for_good = !self.by_rows || end == StackEnd::Outermost;
        end
    }
}
