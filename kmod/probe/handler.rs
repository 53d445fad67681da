// SPDX-License-Identifier: GPL-2.0-only
//! Handles the hits of breakpoints and the returns of probed functions.
//!
//! `hit` runs in the traced task. It takes no sleeping lock, does not fault, does
//! not allocate and cannot panic; whatever happens to the hit is counted, so that
//! `hits = recorded + aggregated + filtered + rejected + skipped + limited + off +
//! frozen + lost_full + turned_away + missed + below + no_row + unfinished` holds for each probe and
//! CPU.

use crate::{
    common::{
        abi::PROBE_RETURN_ONLY,
        program::{Register, Shortcut}, //
    },
    filter::Filter,
    probe::{
        counters::{Here, Outcome},
        deliver::Found,
        entry_values::PendingCall,
        hit::{Hit, Origin, Wait},
        program::Program,
        Probe,
        Role,
        Sink, //
    },
    sys::{
        self,
        returns,
        task::{Current, Mm},
        uprobe::{Ends, Hook, Regs, Verdict}, //
    },
    table::Table, //
};
use core::{
    ops::Range,
    sync::atomic::Ordering::Relaxed, //
};

impl Hook for Probe {
    /// The fast path: a count and the fast filter, inline. Everything else is called.
    #[inline(always)]
    fn hit(&self, regs: &Regs<'_>, call: &mut u64) -> Verdict {
        let current = Current::get();
        let Some(here) = self.counters.here(current.cpu_hint()) else {
            return Verdict::Keep;
        };
        let context = &*self.context;
        let filter = context.filter.in_handler(regs);
        let admits = context.session_owner.admits_fast(filter, &current);
        let Some(admits) = admits.filter(|_| self.is_plain) else {
            return match self.role {
                Role::Whole if self.is_plain => self.hit_by_namespace(regs, here, filter, call),
                Role::Whole => self.hit_with_care(regs, here.cpu, call),
                _ => self.hit_of_call(regs, here.cpu, call, admits),
            };
        };
        let sequence = here.begin();
        if !admits {
            here.count(Outcome::Filtered);
            return Verdict::Remove;
        }
        self.plain_hit(regs, here, sequence as u32, call)
    }

    fn returns(&self) -> Option<u64> {
        self.returns
    }

    fn returned(&self, regs: &Regs<'_>, entry: u64, call: Option<u64>) {
        let current = Current::get();
        let Some(here) = self.counters.here(current.cpu_hint()) else {
            return;
        };
        let sequence = here.begin();
        if self.is_off(&here, sequence) {
            return here.count(Outcome::Off);
        }
        let context = &*self.context;
        let filter = context.filter.in_handler(regs);
        if !context.session_owner.admits(filter, &current) {
            here.count(Outcome::Filtered);
            return;
        }
        let began = call.and_then(|word| self.call_of(word));
        let ended = Some(began.unwrap_or_default());
        self.ended(&self.new_hit(regs, &current, here, sequence, entry, ended));
    }

    fn wants(&self, mm: &Mm) -> bool {
        // The kernel judges an instruction once, by the first process that it meets: what a 32-bit
        // one maps of a 64-bit file would be stepped wrongly in all others.
        if mm.is_64bit() == self.is_32bit_file {
            return false;
        }
        if self.limits.as_ref().is_some_and(|limits| limits.is_off()) {
            return false;
        }
        let context = &*self.context;
        context
            .filter
            .with(|filter| context.session_owner.traces_mm(filter, mm))
    }

    fn failed_in(&self, spaces: u32) {
        self.counters.failed_in.store(spaces, Relaxed);
    }
}

impl Probe {
    /// Handles a hit that has no limits, of a task that the filter has admitted.
    #[inline(always)]
    fn plain_hit(&self, regs: &Regs<'_>, here: Here<'_>, sequence: u32, call: &mut u64) -> Verdict {
        if self.counts_only {
            here.count(Outcome::Aggregated);
            return Verdict::Keep;
        }
        match &self.at_entry {
            Some(program) => self.admitted_with_program(program, regs, here.cpu, sequence, call),
            None => self.admitted(regs, here.cpu, sequence, call),
        }
    }

    /// Handles a hit without limits, of a task whose pid namespace may decide.
    #[inline(never)]
    fn hit_by_namespace(
        &self,
        regs: &Regs<'_>,
        here: Here<'_>,
        filter: Option<&Filter>,
        call: &mut u64,
    ) -> Verdict {
        let current = Current::get();
        match self.context.session_owner.admits_inside(filter, &current) {
            Some(true) => self.plain_hit(regs, here, here.begin() as u32, call),
            Some(false) => self.hit_from_outside(regs, here),
            None => self.hit_with_care(regs, here.cpu, call),
        }
    }

    /// Handles a hit of a task outside of the filter's pid namespaces.
    #[inline(never)]
    fn hit_from_outside(&self, regs: &Regs<'_>, here: Here<'_>) -> Verdict {
        here.begin();
        here.count(Outcome::Filtered);
        self.not_admitted(regs, &Current::get())
    }

    /// The verdict on a hit of a task that the filter has not admitted. Where another task of its
    /// process may be, [`Verdict::Remove`] would have the kernel ask [`wants`](Hook::wants) under two
    /// locks, and the breakpoint would stay.
    #[cold]
    pub(super) fn not_admitted(&self, regs: &Regs<'_>, current: &Current) -> Verdict {
        let context = &*self.context;
        let filter = context.filter.in_handler(regs);
        match context.session_owner.may_admit(filter, current) {
            true => Verdict::Keep,
            false => Verdict::Remove,
        }
    }

    /// A hit of the current task, now; `at` is the address of the breakpoint.
    #[inline(always)]
    pub(super) fn new_hit<'a>(
        &'a self,
        regs: &'a Regs<'a>,
        current: &'a Current,
        here: Here<'a>,
        sequence: u64,
        at: u64,
        ended: Option<PendingCall>,
    ) -> Hit<'a> {
        Hit {
            regs,
            session_owner: &self.context.session_owner,
            current,
            here,
            sequence: sequence as u32,
            now_ns: sys::now_ns(),
            address: at.wrapping_sub(self.breakpoint_delta),
            origin: Origin::Breakpoint,
            ended,
            moved_from: None,
        }
    }

    /// Handles a sample of the current task, which the filter has admitted; `regs` are its
    /// user registers.
    pub(crate) fn sampled(&self, regs: &Regs<'_>, here: Here<'_>, sequence: u64, origin: Origin) {
        let current = Current::get();
        let hit = Hit {
            origin,
            ..self.new_hit(regs, &current, here, sequence, regs.ip(), None)
        };
        if let Origin::Kernel(_) = origin {
            here.in_kernel();
        }
        self.deliver_placeless(&hit);
    }

    /// Handles the end of a wait of the current task, which the filter has admitted; `regs` are its
    /// user registers.
    pub(crate) fn waited(
        &self,
        regs: &Regs<'_>,
        here: Here<'_>,
        sequence: u64,
        time: Range<u64>,
        wait: Wait,
    ) {
        let current = Current::get();
        let began = PendingCall {
            time_ns: time.start,
            ..PendingCall::default()
        };
        self.deliver_placeless(&Hit {
            now_ns: time.end,
            origin: Origin::Wait(wait),
            ..self.new_hit(regs, &current, here, sequence, regs.ip(), Some(began))
        });
    }

    /// Handles a wake-up by the current task, at `time_ns`; `regs` are its user registers.
    pub(crate) fn woke(&self, regs: &Regs<'_>, here: Here<'_>, sequence: u64, time_ns: u64) {
        let current = Current::get();
        self.deliver_placeless(&Hit {
            now_ns: time_ns,
            origin: Origin::Wake,
            ..self.new_hit(regs, &current, here, sequence, regs.ip(), None)
        });
    }

    fn deliver_placeless(&self, hit: &Hit<'_>) {
        match &self.at_entry {
            Some(program) => self.run(program, hit, &mut 0),
            None => self.deliver(hit, &Found::default()),
        };
    }

    /// Handles a return whose task the filter has admitted.
    pub(super) fn ended(&self, hit: &Hit<'_>) -> Verdict {
        let draw = self.draw(hit.here.cpu, hit.sequence, hit.now_ns);
        match &self.at_return {
            Some(program) if program.rejects(hit.regs, self.popped(), Some(draw)) => {
                hit.here.count(Outcome::Rejected);
                Verdict::Ignore
            }
            Some(program) => match (program.shortcut(), &self.sink) {
                (Some(Shortcut::Begins(register, index)), Sink::Span(_)) => {
                    self.begin_span(program, hit, register, index)
                }
                _ => self.run(program, hit, &mut 0),
            },
            None => self.deliver(hit, &Found::default()),
        }
    }

    /// Gives the random number of a hit, as its program would have it.
    #[inline(always)]
    pub(super) fn draw(&self, cpu: u32, sequence: u32, now_ns: u64) -> impl Fn() -> u64 + '_ {
        move || self.context.random(self.id, cpu, sequence, now_ns)
    }

    /// Ends the span of a register, as the program would.
    #[inline(never)]
    fn end_span(&self, spans: &Table, regs: &Regs<'_>, cpu: u32, register: Register) -> Verdict {
        let Some(here) = self.counters.here(cpu) else {
            return Verdict::Keep;
        };
        let pid = self.context.session_owner.pid_of(&Current::get());
        let key = regs.get(register).map(|block| [pid.into(), block]);
        if key.is_some_and(|key| spans.end(&key, u64::MAX).is_some()) {
            here.count(Outcome::Aggregated);
            return Verdict::Keep;
        }
        here.undecided();
        here.count(Outcome::Rejected);
        Verdict::Ignore
    }

    /// Begins the span of a register with a value that the entry kept, as the program would.
    #[inline(always)]
    fn begin_span(
        &self,
        program: &Program,
        hit: &Hit<'_>,
        register: Register,
        index: usize,
    ) -> Verdict {
        let value = hit.ended.and_then(|call| call.values.get(index));
        let (Some(value), Some(block)) = (value, hit.regs.get(register)) else {
            return self.run(program, hit, &mut 0);
        };
        let pid = hit.session_owner.pid_of(hit.current);
        let found = Found {
            key: &[pid.into(), block],
            value: Some(value),
            ..Found::default()
        };
        self.deliver(hit, &found)
    }

    /// Slow path: a probe with limits, a return-only probe, or a filter that needs a lookup.
    #[cold]
    #[inline(never)]
    fn hit_with_care(&self, regs: &Regs<'_>, cpu: u32, call: &mut u64) -> Verdict {
        let current = &Current::get();
        let Some(here) = self.counters.here(cpu) else {
            return Verdict::Keep;
        };
        let is_quiet = self.flags & PROBE_RETURN_ONLY != 0;
        let sequence = match is_quiet {
            true => 0,
            false => here.begin(),
        };
        if self.is_off(&here, sequence) {
            self.turn_away(&here, Outcome::Off);
            return Verdict::Remove;
        }
        let context = &*self.context;
        let filter = context.filter.in_handler(regs);
        if !context.session_owner.admits(filter, current) {
            self.turn_away(&here, Outcome::Filtered);
            return self.not_admitted(regs, current);
        }
        if self.counts_only {
            here.count(Outcome::Aggregated);
            return Verdict::Keep;
        }
        // Without a number of the hit, it is the time that makes it random.
        let draw = self.draw(here.cpu, sequence as u32, 0);
        let draw = (sequence as u32 != 0).then_some(draw);
        match &self.at_entry {
            Some(program) if program.rejects(regs, 0, draw) => {
                self.turn_away(&here, Outcome::Rejected);
                Verdict::Ignore
            }
            // The return needs the time of the entry only.
            None if is_quiet => {
                if returns::is_full() {
                    here.too_deep();
                }
                *call = sys::now_ns();
                Verdict::Keep
            }
            _ => self.entered(regs, current, here, sequence as u32, call),
        }
    }

    /// Handles a hit whose task the filter has admitted, and that the program may reject.
    #[inline(never)]
    fn admitted_with_program(
        &self,
        program: &Program,
        regs: &Regs<'_>,
        cpu: u32,
        sequence: u32,
        call: &mut u64,
    ) -> Verdict {
        let draw = self.draw(cpu, sequence, 0);
        if program.rejects(regs, 0, Some(draw)) {
            if let Some(here) = self.counters.here(cpu) {
                here.count(Outcome::Rejected);
            }
            return Verdict::Ignore;
        }
        if let (Some(register), Some(spans)) = (self.frees, &self.spans) {
            return self.end_span(spans, regs, cpu, register);
        }
        self.admitted(regs, cpu, sequence, call)
    }

    /// Handles a hit that neither the filter nor the program has rejected. Out of line, so that other
    /// hits do not pay for its variables.
    #[inline(never)]
    fn admitted(&self, regs: &Regs<'_>, cpu: u32, sequence: u32, call: &mut u64) -> Verdict {
        let current = Current::get();
        let Some(here) = self.counters.here(cpu) else {
            return Verdict::Keep;
        };
        self.entered(regs, &current, here, sequence, call)
    }

    /// Handles an entry that the program at the entry, if there is one, has not rejected.
    #[inline(always)]
    fn entered(
        &self,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        sequence: u32,
        call: &mut u64,
    ) -> Verdict {
        let hit = self.new_hit(regs, current, here, sequence.into(), regs.ip(), None);
        *call = hit.now_ns;
        if self.ends == Ends::Both && returns::is_full() {
            hit.here.too_deep();
        }
        match &self.at_entry {
            Some(program) => self.run(program, &hit, call),
            None if self.is_recorded => {
                hit.here.count(self.recorded(&hit, &[]));
                Verdict::Keep
            }
            None => self.deliver(&hit, &Found::default()),
        }
    }
}
