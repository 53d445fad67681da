// SPDX-License-Identifier: GPL-2.0-only
//! The walk by frame pointers.

use super::Walk;
use crate::{
    common::{
        record::{Method, StackEnd},
        unwind::{At, Registers}, //
    },
    stack::walk_cache::UnwindStep,
    sys::{
        returns::{may_be_trampoline, real_address},
        user_mem::Fault, //
    }, //
};

impl<A: FnMut(u32), P: Fn() -> u32> Walk<'_, A, P> {
    /// Follows frame pointers.
    pub(super) fn frame_pointers(&mut self, at: &mut Registers) -> Result<StackEnd, StackEnd> {
        if at.at == At::Innermost && self.request.at_entry {
            let slot = at.rsp;
            let rip = self.memory.word(slot).map_err(|Fault| StackEnd::Fault)?;
            let step = UnwindStep {
                slot,
                rip,
                rbp_slot: 0,
                rbp: at.rbp,
                by_rbp: true,
                word: 0,
            };
            self.caller(step, Method::StackTop, at)?;
        }
        loop {
            let fp = at.rbp;
            if fp & 7 != 0 || fp < at.rsp {
                self.ends_for_good = true;
                return match fp {
                    0 => Ok(StackEnd::Outermost),
                    _ => Err(StackEnd::BadFramePointer),
                };
            }
            let [rbp, rip] = self.memory.pair(fp).map_err(|Fault| StackEnd::Fault)?;
            if rip == 0 {
                return Ok(StackEnd::Outermost);
            }
            let step = UnwindStep {
                slot: fp.wrapping_add(8),
                rip,
                rbp_slot: fp,
                rbp,
                by_rbp: true,
                word: 0,
            };
            self.caller(step, Method::FramePointer, at)?;
        }
    }

    /// Steps to a caller whose return address and frame pointer were read.
    #[inline(always)]
    fn caller(
        &mut self,
        mut step: UnwindStep,
        method: Method,
        at: &mut Registers,
    ) -> Result<(), StackEnd> {
        let last = self.resolver.last;
        *at = Registers {
            rip: step.rip,
            rsp: step.slot.saturating_add(8),
            rbp: step.rbp,
            knows_rbp: true,
            at: At::Call,
            ..*at
        };
        let is_plain = last.holds(step.rip.wrapping_sub(1)) && !last.is_far();
        if !is_plain || may_be_trampoline(step.rip) {
            return self.far_caller(step, method, at);
        }
        step.word = step.rip.wrapping_add(last.word_base(method));
        let full = self.stack.frames >= self.request.max_frames;
        if full || !self.stack.words.push(step.word) {
            return Err(StackEnd::Limit);
        }
        self.stack.frames = self.stack.frames.wrapping_add(1);
        self.note(&step, at)
    }

    /// Steps to a caller in another mapping than the previous frame, or after a trampoline.
    #[cold]
    #[inline(never)]
    fn far_caller(
        &mut self,
        mut step: UnwindStep,
        method: Method,
        at: &mut Registers,
    ) -> Result<(), StackEnd> {
        let mut is_known = true;
        if may_be_trampoline(step.rip) {
            if let Some(real) = real_address(step.slot) {
                at.rip = real;
                is_known = false;
            }
        }
        let inside = at.rip.checked_sub(1).ok_or(StackEnd::NotCode)?;
        let frame = self.resolver.resolve(inside, at.rip, method);
        let frame = frame.ok_or(StackEnd::NotCode)?;
        self.push(frame)?;
        match frame.encode() {
            ([word, _], 1) if is_known => {
                step.word = word;
                self.note(&step, at)
            }
            _ => {
                self.break_off();
                Ok(())
            }
        }
    }
}
