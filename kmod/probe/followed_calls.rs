// SPDX-License-Identifier: GPL-2.0-only
//! Calls that are followed to the exits of their function.
//!
//! One probe is at the function's entry, where a call begins. Others are at its exits, where the
//! call ends, or jumps to code whose return is not seen.

use crate::{
    probe::{
        counters::{Here, Outcome},
        entry_values::{PendingCall, Values},
        hit::Hit,
        program::{Fields, Program},
        under_way::{top_of, Begun, Frame, UnderWay},
        Probe,
        Role, //
    },
    sys::{
        task::Current,
        uprobe::{Regs, Verdict}, //
    }, //
};
use core::sync::atomic::Ordering::Relaxed;
use kernel::sync::Arc;

impl Probe {
    /// Handles a hit of a followed call's probe; `admits` is the filter's answer, if it was fast.
    #[inline(never)]
    pub(super) fn hit_of_call(
        &self,
        regs: &Regs<'_>,
        cpu: u32,
        top: &mut u64,
        admits: Option<bool>,
    ) -> Verdict {
        let current = &Current::get();
        let Some(here) = self.counters.here(cpu) else {
            return Verdict::Keep;
        };
        let admits = admits.unwrap_or_else(|| {
            let filter = self.context.filter.in_handler(regs);
            self.context.session_owner.admits(filter, current)
        });
        let Some(calls) = self.context.under_way.as_ref() else {
            return Verdict::Keep;
        };
        match (self.role, admits) {
            (Role::Begin, _) => self.at_begin(regs, current, here, admits),
            (Role::Leave, true) => self.at_jump(calls, regs, current, here),
            (_, true) => self.at_exit(calls, regs, current, here, top),
            (role, false) => {
                // The kernel need not step the return of a task that is not traced.
                if role == Role::End {
                    *top = top_of(regs);
                }
                self.not_admitted(regs, current)
            }
        }
    }

    /// Handles the entry of the function.
    #[inline(always)]
    fn at_begin(
        &self,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        admits: bool,
    ) -> Verdict {
        let sequence = here.begin();
        if self.is_off(&here, sequence) {
            here.count(Outcome::Off);
            return Verdict::Remove;
        }
        let sequence = sequence as u32;
        let draw = self.draw(here.cpu, sequence, 0);
        let rejects = |program: &Arc<Program>| program.rejects(regs, 0, Some(draw));
        if !admits || self.at_entry.as_ref().is_some_and(rejects) {
            // The exit must not mistake the row of an abandoned call for this one.
            self.forget_call(regs, current);
            here.count(match admits {
                true => Outcome::Rejected,
                false => Outcome::Filtered,
            });
            return match admits {
                true => Verdict::Keep,
                false => self.not_admitted(regs, current),
            };
        }
        let hit = self.new_hit(regs, current, here, sequence.into(), regs.ip(), None);
        match &self.at_entry {
            Some(program) => self.run(program, &hit, &mut 0),
            None => self.begin(&hit, Values::default()),
        }
    }

    /// Handles an exit of the function, in a task that the filter has admitted.
    fn at_exit(
        &self,
        calls: &UnderWay,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        top: &mut u64,
    ) -> Verdict {
        let frame = Frame::of(regs, current, self.call);
        *top = frame
            .as_ref()
            .map_or_else(|| top_of(regs), |frame| frame.top);
        let Some(ended) = frame.and_then(|frame| calls.end(&frame)) else {
            return self.passed(&here);
        };
        let sequence = here.begin();
        // The rate of calls was checked where they begin.
        if self.is_off(&here, 0) {
            here.count(Outcome::Off);
            return Verdict::Remove;
        }
        if self.writes_left.is_some() {
            // The program may set the return address: the kernel steps the return.
            *top = 0;
        }
        let call = Some(ended.call);
        self.ended(&Hit {
            moved_from: ended.moved_from,
            ..self.new_hit(regs, current, here, sequence, regs.ip(), call)
        })
    }

    /// Handles a jump that may leave for code whose return is not seen; the probe's program decides
    /// whether it does. Out of line, so that other hits do not pay for its fields.
    #[inline(never)]
    fn at_jump(
        &self,
        calls: &UnderWay,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
    ) -> Verdict {
        let leaves = self.at_entry.as_ref().is_none_or(|program| {
            let hit = self.new_hit(regs, current, here, 0, regs.ip(), None);
            !program.rejects(regs, 0, None::<fn() -> u64>)
                && program
                    .run(&mut self.task(&hit), &mut Fields::new())
                    .matched
        });
        let ends = || calls.end(&Frame::of(regs, current, self.call)?);
        if leaves && ends().is_some() {
            here.begin();
            here.count(Outcome::Aggregated);
            return Verdict::Keep;
        }
        self.passed(&here)
    }

    /// Counts that code outside of a followed call reached the instruction. That is no hit, but it
    /// costs time, and may turn the probe off.
    fn passed(&self, here: &Here<'_>) -> Verdict {
        match self.is_off(here, here.passed()) {
            true => Verdict::Remove,
            false => Verdict::Keep,
        }
    }

    /// Begins to follow a call, with the values that its entry keeps.
    pub(super) fn begin(&self, hit: &Hit<'_>, values: Values) -> Verdict {
        let call = PendingCall {
            time_ns: hit.now_ns,
            values,
        };
        let Some(frame) = Frame::of(hit.regs, hit.current, self.call) else {
            hit.here.count(Outcome::Missed);
            return Verdict::Keep;
        };
        let begun = match self.context.under_way.as_ref() {
            Some(calls) => calls.begin(&frame, hit.container(), &call),
            None => Begun::NoRoom,
        };
        if begun == Begun::Evicted {
            self.counters.evicted.fetch_add(1, Relaxed);
        }
        hit.here.count(match begun {
            Begun::Followed | Begun::Evicted => Outcome::Aggregated,
            Begun::NoRoom => Outcome::TurnedAway,
        });
        Verdict::Keep
    }

    /// Removes the row that an abandoned call has left in the place of a call that is not followed:
    /// the exit would mistake it for this call's.
    pub(super) fn forget_call(&self, regs: &Regs<'_>, current: &Current) {
        let calls = self.context.under_way.as_ref();
        if let (Some(calls), Some(frame)) = (calls, Frame::of(regs, current, self.call)) {
            calls.end(&frame);
        }
    }
}
