// SPDX-License-Identifier: GPL-2.0-only
//! Programs that user space uploaded, and the task that they run on.
//!
//! A program is checked when it is uploaded and kept by its session; probes name it by id. Running
//! one (`common/src/program.rs`) takes no locks, does not fault, and takes no more steps than the
//! program has.

use crate::{
    common::program::{
        self,
        Context,
        Flaw,
        Guards,
        Machine,
        Outcome,
        Output,
        Register,
        Shortcut,
        Step,
        Summary,
        KEY_WORDS_MAX,
        OUTPUT_WORDS_MAX, //
    },
    filter::{Ids, SessionOwner},
    probe::{
        entry_values::Values,
        goroutine::GoStack,
        hit::Wait,
        modify::TargetWriter, //
    },
    sys::{
        scratch::Words,
        task::Current,
        uprobe::Regs,
        user_mem, //
    },
    table::{Span, Table}, //
};
use core::cell::Cell;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// A checked program.
pub(crate) struct Program {
    steps: KVVec<Step>,
    data: KVVec<u8>,
    summary: Summary,
    guards: Guards,
    shortcut: Option<Shortcut>,
}

impl Program {
    /// Checks and keeps a program, or returns the index of the wrong step and its error.
    pub(crate) fn new(steps: KVVec<Step>, data: KVVec<u8>) -> Result<Self, (usize, Flaw)> {
        let checked = program::check(&steps, &data)?;
        let (summary, guards) = (checked.summary(), checked.guards());
        let shortcut = checked.shortcut();
        Ok(Program {
            steps,
            data,
            summary,
            guards,
            shortcut,
        })
    }

    /// What the program does.
    pub(crate) fn summary(&self) -> Summary {
        self.summary
    }

    /// What it amounts to if its guards reject nothing.
    pub(crate) fn shortcut(&self) -> Option<Shortcut> {
        self.shortcut
    }

    /// Whether registers alone, and the random number of the hit where `draw` knows it, show that
    /// a run would reject the hit.
    #[inline(always)]
    pub(crate) fn rejects(
        &self,
        regs: &Regs<'_>,
        popped: u64,
        draw: Option<impl Fn() -> u64>,
    ) -> bool {
        self.guards
            .reject(|register| register_of(regs, popped, register), draw)
    }

    /// Runs it on the current task.
    pub(crate) fn run(&self, task: &mut HitContext<'_>, fields: &mut Fields) -> Outcome {
        program::Program::kept(&self.steps, &self.data, self.summary).run(task, fields)
    }
}

/// A register, as it is after an instruction that takes this many bytes off the stack.
#[inline(always)]
fn register_of(regs: &Regs<'_>, popped: u64, register: Register) -> Option<u64> {
    let value = regs.get(register)?;
    Some(match register {
        Register::Rsp => value.wrapping_add(popped),
        _ => value,
    })
}

/// The fields of one hit.
pub(crate) struct Fields(Words<OUTPUT_WORDS_MAX>);

impl Fields {
    /// Makes an empty set.
    pub(crate) const fn new() -> Self {
        Fields(Words::new())
    }

    /// The fields' words.
    pub(crate) fn words(&self) -> &[u64] {
        self.0.as_slice()
    }
}

impl Output for Fields {
    fn extend(&mut self, words: &[u64]) {
        // The check counted them: there is room.
        self.0.extend(words);
    }

    fn set_first(&mut self, word: u64) {
        self.0.set_first(word);
    }
}

/// Memory of the task that could not be read.
#[derive(Clone, Copy)]
pub(crate) struct Missed {
    pub(crate) address: u64,
    pub(crate) bytes: u16,
}

/// The current task at a hit.
pub(crate) struct HitContext<'a> {
    pub(crate) regs: &'a Regs<'a>,
    pub(crate) session_owner: &'a SessionOwner,
    pub(crate) current: &'a Current,
    pub(crate) cpu: u32,
    /// The probe's id.
    pub(crate) probe: u32,
    /// Bytes that the probed instruction takes off the stack: after it the function has returned.
    pub(crate) popped: u64,
    pub(crate) now_ns: u64,
    /// The address of the probe's reported place.
    pub(crate) probe_address: u64,
    /// Time since the call's entry, at its return, or of a wait.
    pub(crate) elapsed_ns: Option<u64>,
    pub(crate) wait: Option<Wait>,
    /// The values that the entry keeps, or kept.
    pub(crate) values: Values,
    /// Memory that has become another's since the values were kept.
    pub(crate) moved_from: Option<GoStack>,
    /// The table whose spans the program ends.
    pub(crate) spans: Option<&'a Table>,
    /// The span that the program ended.
    pub(crate) ended: Option<Span>,
    /// What makes the program's writes.
    pub(crate) writer: TargetWriter<'a>,
    /// The key, as far as the program has computed it.
    pub(crate) key: Words<KEY_WORDS_MAX>,
    /// The value for the table.
    pub(crate) value: Option<u64>,
    /// What a read has missed last.
    pub(crate) missed: Cell<Option<Missed>>,
}

impl HitContext<'_> {
    /// The ids of the task.
    fn ids(&self) -> Ids {
        self.session_owner.ids(self.current)
    }

    fn has_moved(&self, address: u64, length: usize) -> bool {
        self.moved_from
            .is_some_and(|stack| stack.has_any(address, length))
    }
}

impl Machine for HitContext<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        register_of(self.regs, self.popped, register)
    }

    fn context(&self, context: Context) -> Option<u64> {
        Some(match context {
            Context::Pid => self.session_owner.pid_of(self.current).into(),
            Context::Tid => self.session_owner.tid(self.current).into(),
            Context::NsPid => self.ids().ns_pid.into(),
            Context::NsTid => self.ids().ns_tid.into(),
            Context::PidNamespace => self.ids().pidns_inum.into(),
            Context::PidNamespaceId => self.ids().pidns_id,
            Context::Cpu => self.cpu.into(),
            Context::Time => self.now_ns,
            Context::Elapsed => self.elapsed_ns?,
            Context::Uid => self.current.euid().into(),
            Context::Gid => self.current.egid().into(),
            Context::CommLow => u64::from_le_bytes(*self.current.comm().first_chunk()?),
            Context::Probe => self.probe.into(),
            Context::CommHigh => u64::from_le_bytes(*self.current.comm().last_chunk()?),
            Context::Random => {
                self.writer
                    .context
                    .random(self.probe, self.cpu, self.writer.sequence, self.now_ns)
            }
            Context::WaitKind => self.wait?.kind as u64,
            Context::WaitCall => self.wait?.call.map_or(u64::MAX, u64::from),
            Context::WaitFile => self.wait?.file.map_or(u64::MAX, u64::from),
            Context::WaitedForCpu => self.wait?.for_cpu_ns,
            Context::WokenAt => self.wait?.woken.at_ns,
            Context::WokenBy => self.wait?.woken.by,
            Context::Lock => self.wait?.lock.unwrap_or(0),
            Context::LockHolder => self.wait?.holder,
        })
    }

    fn kept(&self, index: usize) -> Option<u64> {
        self.values.get(index)
    }

    fn keep(&mut self, index: usize, value: u64) {
        self.values.set(index, value);
    }

    fn probe_address(&self) -> u64 {
        self.probe_address
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        if self.has_moved(address, out.len()) {
            return false;
        }
        let is_read = user_mem::read(address, out).is_ok();
        // Nothing is behind a null pointer.
        if !is_read && address >= PAGE_SIZE as u64 {
            let bytes = out.len() as u16;
            self.missed.set(Some(Missed { address, bytes }));
        }
        is_read
    }

    fn set_register(&mut self, register: Register, value: u64) -> bool {
        self.writer.register(register, value)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        !self.has_moved(address, bytes.len()) && self.writer.memory(address, bytes)
    }

    fn return_now(&mut self, value: u64, distance: u64) -> bool {
        let ret = self.probe_address.wrapping_add(distance);
        self.writer.return_by(ret, value)
    }

    fn key(&mut self, words: &[u64]) {
        // The check counted them: there is room.
        self.key.extend(words);
    }

    fn value(&mut self, value: u64) {
        self.value = Some(value);
    }

    fn end_span(&mut self, before_call: bool) -> Option<u64> {
        let latest_ns = match before_call {
            true => self.elapsed_ns.map(|ns| self.now_ns.saturating_sub(ns)),
            false => Some(u64::MAX),
        };
        self.ended = match (self.spans, latest_ns) {
            (Some(spans), Some(latest_ns)) => spans.end(self.key.as_slice(), latest_ns),
            _ => None,
        };
        self.key = Words::new();
        Some(self.now_ns.saturating_sub(self.ended?.began_ns))
    }

    fn span_value(&self) -> Option<u64> {
        Some(self.ended?.value)
    }
}
