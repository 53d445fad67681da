// SPDX-License-Identifier: GPL-2.0-only
//! Hits where calls that are followed to their function's exits begin, end, or leave it.

use crate::{
    probe::{
        counters::{End, Here},
        entry_values::{PendingCall, Values},
        hit::Hit,
        program::{Fields, Program},
        under_way::{Frame, UnderWay},
        Probe,
        Role, //
    },
    sys::{
        task::Current,
        uprobe::{Regs, Verdict}, //
    }, //
};
use kernel::sync::Arc;

impl Probe {
    /// A hit of a probe at which calls begin or end.
    #[inline(never)]
    pub(super) fn hit_of_call(
        &self,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        top: &mut u64,
        admits: bool,
    ) -> Verdict {
        let Some(calls) = self.context.under_way.as_ref() else {
            return Verdict::Keep;
        };
        match (self.role, admits) {
            (Role::Begin, _) => self.at_begin(regs, current, here, admits),
            (Role::Leave, true) => self.at_jump(calls, regs, current, here),
            (_, true) => self.at_exit(calls, regs, current, here, top),
            (_, false) => Verdict::Remove,
        }
    }

    /// The entry of a function.
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
            here.end(End::Off);
            return Verdict::Remove;
        }
        let rejects = |program: &Arc<Program>| program.rejects(regs, 0);
        if !admits || self.at_entry.as_ref().is_some_and(rejects) {
            // What an abandoned call has left in its place is not to be taken for it.
            self.forget_call(regs, current);
            here.end(match admits {
                true => End::Rejected,
                false => End::Filtered,
            });
            return match admits {
                true => Verdict::Keep,
                false => Verdict::Remove,
            };
        }
        let hit = self.new_hit(regs, current, here, 0, regs.ip(), None);
        match &self.at_entry {
            Some(program) => self.run(program, &hit, &mut 0),
            None => self.begin(&hit, Values::default()),
        }
    }

    /// An exit of a function whose task is traced.
    fn at_exit(
        &self,
        calls: &UnderWay,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        top: &mut u64,
    ) -> Verdict {
        let frame = Frame::of(regs, current, self.call);
        *top = frame.top;
        let ended = calls.end(&frame);
        if ended.is_none() {
            return self.passed(&here);
        }
        let sequence = here.begin();
        // How often there are calls was looked at where they begin.
        if self.is_off(&here, 0) {
            here.end(End::Off);
            return Verdict::Remove;
        }
        self.ended(&self.new_hit(regs, current, here, sequence, regs.ip(), ended))
    }

    /// A jump whose task is traced, to where returns are not seen, or not. Out of line, so that
    /// others do not pay for its fields.
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
            !program.rejects(regs, 0)
                && program
                    .run(&mut self.task(&hit), &mut Fields::new())
                    .matched
        });
        if leaves && calls.end(&Frame::of(regs, current, self.call)).is_some() {
            here.begin();
            here.end(End::Aggregated);
            return Verdict::Keep;
        }
        self.passed(&here)
    }

    /// Others than the function's calls come to an instruction: that is no hit, but it costs.
    fn passed(&self, here: &Here<'_>) -> Verdict {
        match self.is_off(here, here.passed()) {
            true => Verdict::Remove,
            false => Verdict::Keep,
        }
    }

    /// A call begins that is followed to an exit, with what its entry kept.
    pub(super) fn begin(&self, hit: &Hit<'_>, values: Values) -> Verdict {
        let call = PendingCall {
            time_ns: hit.now_ns,
            values,
        };
        let frame = Frame::of(hit.regs, hit.current, self.call);
        let calls = self.context.under_way.as_ref();
        let begins = calls.is_some_and(|calls| calls.begin(&frame, &call));
        hit.here.end(match begins {
            true => End::Aggregated,
            false => End::TurnedAway,
        });
        Verdict::Keep
    }

    /// A call begins that is turned away: what an abandoned one has left in its place must not
    /// be taken for it at its exit.
    pub(super) fn forget_call(&self, regs: &Regs<'_>, current: &Current) {
        if let Some(calls) = self.context.under_way.as_ref() {
            calls.end(&Frame::of(regs, current, self.call));
        }
    }
}
