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
            if self
                .recorder
                .as_ref()
                .is_some_and(|recorder| recorder.top() != 0)
            {
                self.fast(at)?;
            }
        }
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
            self.fast(at)?;
            let fp = at.rbp;
            if fp & 7 != 0 || fp < at.rsp {
                return Err(self.not_above(0, fp));
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
    fn caller(
        &mut self,
        mut step: UnwindStep,
        method: Method,
        at: &mut Registers,
    ) -> Result<(), StackEnd> {
        *at = Registers {
            rip: step.rip,
            rsp: step.slot.saturating_add(8),
            rbp: step.rbp,
            knows_rbp: true,
            at: At::Call,
            ..*at
        };
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
