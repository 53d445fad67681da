// SPDX-License-Identifier: GPL-2.0-only
//! Runs the program of a probe at a hit.

use crate::{
    common::abi::PROBE_RETURN_ONLY,
    probe::{
        counters::Outcome,
        deliver::Found,
        entry_values::{PendingCall, Values},
        hit::Hit,
        modify::TargetWriter,
        program::{Fields, HitContext, Missed, Program},
        Probe,
        Role, //
    },
    sys::{
        scratch::Words,
        uprobe::{Ends, Verdict}, //
    }, //
};
use core::cell::Cell;

impl Probe {
    /// Whether entries keep values for their returns.
    fn keeps(&self) -> bool {
        self.ends == Ends::Both
            && self
                .at_entry
                .as_ref()
                .is_some_and(|program| program.summary().keeps != 0)
    }

    /// The call whose entry gave the kernel this word to keep.
    pub(super) fn call_of(&self, word: u64) -> Option<PendingCall> {
        if self.keeps() {
            return self.context.calls.as_ref()?.take(word);
        }
        Some(PendingCall {
            time_ns: word,
            values: Values::default(),
        })
    }

    /// Runs the program and delivers its result. Out of line, so that hits without a program do not
    /// pay for its fields.
    #[inline(never)]
    pub(super) fn run(&self, program: &Program, hit: &Hit<'_>, call: &mut u64) -> Verdict {
        let mut leaves_by = None;
        let postpones = |missed| self.is_postponed(hit, missed);
        let verdict = self.run_and_deliver(program, hit, call, &mut leaves_by, &postpones);
        // Only after delivery, which reports where the task was hit.
        if let Some(ret) = leaves_by {
            hit.regs.go_to(ret);
        }
        verdict
    }

    /// As `run`, which then moves the task to the `ret` instruction at `leaves_by`. Does nothing if
    /// the program misses memory and `postpones` says that the hit is handled later.
    pub(super) fn run_and_deliver(
        &self,
        program: &Program,
        hit: &Hit<'_>,
        call: &mut u64,
        leaves_by: &mut Option<u64>,
        postpones: &dyn Fn(Missed) -> bool,
    ) -> Verdict {
        let mut task = self.task(hit);
        let mut fields = Fields::new();
        let outcome = program.run(&mut task, &mut fields);
        if task.missed.get().is_some_and(postpones) {
            return Verdict::Keep;
        }
        if program.summary().writes {
            let TargetWriter { made, withheld, .. } = task.writer;
            let failed = outcome.failed_writes.saturating_sub(withheld);
            hit.here.writes(made, failed, withheld);
            *leaves_by = task.writer.leaves_by;
        }
        let is_entry = hit.ended.is_none();
        if is_entry && self.keeps() {
            let kept = PendingCall {
                time_ns: hit.now_ns,
                values: task.values,
            };
            *call = match self.context.calls.as_ref() {
                Some(calls) => calls.keep(&kept),
                None => 0,
            };
        }
        let is_quiet = is_entry && self.flags & PROBE_RETURN_ONLY != 0;
        if !outcome.matched {
            if outcome.undecided {
                hit.here.undecided();
            }
            if self.role == Role::Begin {
                self.forget_call(hit.regs, hit.current);
            }
            match is_quiet {
                true => self.turn_away(&hit.here, Outcome::Rejected),
                false => hit.here.count(Outcome::Rejected),
            }
            return Verdict::Ignore;
        }
        if self.role == Role::Begin {
            return self.begin(hit, task.values);
        }
        if is_quiet {
            return Verdict::Keep;
        }
        let found = Found {
            fields: fields.words(),
            key: task.key.as_slice(),
            value: task.value,
        };
        self.deliver(hit, &found)
    }

    /// Bytes that the probed instruction takes off the stack.
    #[inline(always)]
    pub(super) fn popped(&self) -> u64 {
        match self.role {
            Role::End => self.returns.unwrap_or(8),
            _ => 0,
        }
    }

    /// The task of a hit, for programs.
    #[inline(always)]
    pub(super) fn task<'a>(&'a self, hit: &'a Hit<'a>) -> HitContext<'a> {
        HitContext {
            regs: hit.regs,
            session_owner: hit.session_owner,
            current: hit.current,
            cpu: hit.here.cpu,
            probe: self.id,
            popped: self.popped(),
            now_ns: hit.now_ns,
            probe_address: hit.address,
            elapsed_ns: hit.elapsed_ns(),
            wait: hit.wait(),
            values: hit.ended.unwrap_or_default().values,
            moved_from: hit.moved_from,
            spans: self.spans.as_deref(),
            ended: None,
            writer: TargetWriter {
                context: &self.context,
                regs: hit.regs,
                current: hit.current,
                left: self.writes_left.as_deref(),
                probe: self.id,
                sequence: hit.sequence,
                cpu: hit.here.cpu,
                now_ns: hit.now_ns,
                leaves_by: None,
                made: 0,
                withheld: 0,
            },
            key: Words::new(),
            value: None,
            missed: Cell::new(None),
        }
    }
}
