// SPDX-License-Identifier: GPL-2.0-only
//! The fast walk: steps over kept mappings, by kept rules or by frame pointers.

use super::Walk;
use crate::{
    common::{
        record::{Frame, Method, StackEnd},
        unwind::{At, Registers}, //
    },
    stack::mapping_cache::{rule_key, CodeRange, SimpleRule},
    sys::user_walk::{Place, Steps, Stop},
};

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    /// Walks on from `at`, whose `rbp` is known, as far as what the steps need is kept.
    #[inline(never)]
    pub(super) fn fast(&mut self, at: &mut Registers) -> Result<(), StackEnd> {
        let by_rows = self.by_rows;
        let method = match by_rows {
            true => Method::Row,
            false => Method::FramePointer,
        };
        loop {
            let room = self.room();
            let (Some(kept), Some(recorder)) = (&self.resolver.mappings, &mut self.recorder) else {
                return Ok(());
            };
            let (inside, last) = (at.inside(), self.resolver.last);
            let is_known = last.holds(inside) && !last.is_far();
            let key = match by_rows {
                true if !is_known => return Ok(()),
                true => rule_key(last.object, inside.wrapping_add(last.delta)),
                false => 0,
            };
            let Some(known) = kept.known(by_rows) else {
                return Ok(());
            };
            let (has_read_rbp, needs_rbp) = recorder.uses_of_rbp();
            let mut place = Place {
                range: match is_known {
                    true => last.words(),
                    false => [0; 4],
                },
                rip: at.rip,
                rsp: at.rsp,
                rbp: at.rbp,
                has_read_rbp,
                needs_rbp,
            };
            let (steps, kept_steps) = recorder.room();
            let is_entry = !by_rows && at.at == At::Innermost && self.request.at_entry;
            let steps = Steps {
                room: steps,
                most: room,
                kept: kept_steps,
                method: Frame::place(0, method),
                top: match is_entry {
                    true => (recorder.top(), Frame::place(0, Method::StackTop)),
                    false => (0, 0),
                },
            };
            let words = &mut self.stack.words;
            let (taken, passed, stop) = self.memory.follow(&mut place, key, known, &steps, words);
            if taken != 0 {
                let own = taken.wrapping_sub(usize::from(stop == Stop::Meets));
                recorder.took(own, passed, &place);
                self.resolver.last = CodeRange::of_words(place.range);
                self.stack.frames = self.stack.frames.wrapping_add(taken as u32);
                *at = Registers {
                    rip: place.rip,
                    rsp: place.rsp,
                    rbp: place.rbp,
                    knows_rbp: true,
                    at: At::Call,
                    ..*at
                };
            }
            match stop {
                Stop::Unknown => {
                    // What was read again may have led elsewhere.
                    if !self.resolver.last.holds(at.inside()) {
                        self.resolver.last = kept.find(at.inside()).unwrap_or_default();
                    }
                    return Ok(());
                }
                Stop::Full => return Err(StackEnd::Limit),
                Stop::Fault => return Err(StackEnd::Fault),
                Stop::NotAbove { rule } => return Err(self.not_above(rule, at.rbp)),
                Stop::Meets => {
                    if let Some(end) = recorder.end_at_step(room.wrapping_sub(taken)) {
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
