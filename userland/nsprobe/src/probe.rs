// SPDX-License-Identifier: MIT OR Apache-2.0
//! A probe to attach, and where its hits go.

use crate::table::TableId;
use nsprobe_common::abi::{
    self, PROBE_AT_ENTRY, PROBE_BEGIN, PROBE_CALL, PROBE_COPIES, PROBE_END, PROBE_ENTRY,
    PROBE_FREEZES, PROBE_GO, PROBE_KERNEL_STACK, PROBE_LATE, PROBE_LEAVE, PROBE_LOCKS,
    PROBE_MAY_HANG, PROBE_RETURN, PROBE_RETURN_ONLY, PROBE_SAMPLE, PROBE_STACK, PROBE_STACK_IDS,
    PROBE_WAIT, PROBE_WAKE, SINK_COUNT, SINK_RECORD, SINK_SPAN, SINK_TABLE,
};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Where a hit that counts goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sink {
    /// A record in the ring.
    #[default]
    Record,
    /// Nothing but the probe's counters.
    Count,
    /// A row of this table.
    Table(TableId),
    /// The beginning of a span in this table.
    Span(TableId),
}

/// How many of a probe's hits are delivered to its sink. Zeros set no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitLimits {
    /// One in this number, on each CPU.
    pub every: u32,
    /// At most this number a second, over all CPUs.
    pub rate: u32,
    /// This number at once, with a rate; zero: as many as in a second.
    pub burst: u32,
    /// The probe is turned off when it is hit more often a second than that.
    pub runaway: u32,
}

/// The number by which the probes of one function's calls know each other: see
/// [`Probe::begins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(pub NonZeroU32);

/// A program of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(pub(crate) u32);

/// A probe to be attached: a file, an offset, and what a hit takes along.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// None of samples and waits.
    file: Option<BorrowedFd<'a>>,
    offset: u64,
    report_offset: u64,
    semaphore: u64,
    kind: u32,
    flags: u32,
    max_frames: u32,
    sink: u32,
    table: u32,
    span: u32,
    entry_program: u32,
    return_program: u32,
    max_writes: u32,
    limits: HitLimits,
    call: u32,
}

impl<'a> Probe<'a> {
    /// A probe at the first instruction of a function, as its symbol says: the
    /// return address is on top of the stack there.
    pub fn entry(file: &'a impl AsFd, offset: u64) -> Probe<'a> {
        Probe {
            flags: PROBE_AT_ENTRY,
            ..Probe::instruction(file, offset)
        }
    }

    /// A probe at any instruction.
    pub fn instruction(file: &'a impl AsFd, offset: u64) -> Probe<'a> {
        Probe {
            file: Some(file.as_fd()),
            offset,
            ..Probe::samples(0)
        }
        .of_kind(PROBE_ENTRY)
    }

    /// Samples of tasks, this number a second on each CPU. Such a one is attached alone.
    pub fn samples(hz: u32) -> Probe<'a> {
        Probe {
            file: None,
            offset: hz.into(),
            report_offset: 0,
            semaphore: 0,
            kind: PROBE_SAMPLE,
            flags: 0,
            max_frames: 0,
            sink: SINK_RECORD,
            table: 0,
            span: 0,
            entry_program: 0,
            return_program: 0,
            max_writes: 0,
            limits: HitLimits::default(),
            call: 0,
        }
    }

    /// Waits of tasks off the CPU that took at least this number of nanoseconds. Such a one is
    /// attached alone.
    pub fn waits(min_ns: u64) -> Probe<'a> {
        Probe {
            offset: min_ns,
            ..Probe::samples(0)
        }
        .of_kind(PROBE_WAIT)
    }

    /// What wakes tasks that have waited for at least this number of nanoseconds: attached alone,
    /// before the [`waits`](Probe::waits) of its session.
    pub fn wakes(min_ns: u64) -> Probe<'a> {
        Probe::waits(min_ns).of_kind(PROBE_WAKE)
    }

    /// Of waits: only those for locks, with who holds them.
    pub fn of_locks(mut self) -> Self {
        self.flags |= PROBE_LOCKS;
        self
    }

    fn of_kind(mut self, kind: u32) -> Probe<'a> {
        self.kind = kind;
        self
    }

    /// At the function's entry: calls begin here that [`ends`](Probe::ends) and
    /// [`leaves`](Probe::leaves) of the same number end. Nothing is delivered; the program of
    /// the entry may keep values, and turn calls away.
    pub fn begins(mut self, call: CallId) -> Probe<'a> {
        self.kind = PROBE_BEGIN;
        self.of(call).with_sink(Sink::Count)
    }

    /// At an instruction by which the function returns: hits that end no call are none.
    pub fn ends(mut self, call: CallId) -> Probe<'a> {
        self.kind = PROBE_END;
        self.of(call)
    }

    /// At a jump by which the function goes where its return is not seen, when the program of
    /// the entry says so: the call ends, and is counted.
    pub fn leaves(mut self, call: CallId) -> Probe<'a> {
        self.kind = PROBE_LEAVE;
        self.of(call).with_sink(Sink::Count)
    }

    fn of(mut self, call: CallId) -> Probe<'a> {
        self.call = call.0.get();
        self
    }

    /// Of a call's beginning or end: the function is one of Go's, whose calls are known by their
    /// goroutine.
    pub fn of_go(mut self) -> Self {
        self.flags |= PROBE_GO;
        self
    }

    /// Sets the place that records report, in front of the breakpoint: the function's beginning,
    /// when the breakpoint is after it.
    pub fn reported_at(mut self, offset: u64) -> Probe<'a> {
        self.report_offset = offset;
        self
    }

    /// The file offset of the semaphore of a static probe, which the kernel counts up in
    /// every process with the breakpoint.
    pub fn with_semaphore(mut self, offset: u64) -> Probe<'a> {
        self.semaphore = offset;
        self
    }

    /// Where the stack goes through a file without unwind rows, a copy of the rest comes
    /// in front of the hit.
    pub fn with_copies(mut self) -> Self {
        self.flags |= PROBE_COPIES;
        self
    }

    /// Equal stacks are kept once, and records name them by an id.
    pub fn with_stack_ids(mut self) -> Self {
        self.flags |= PROBE_STACK_IDS;
        self
    }

    /// Where a page of a stack is not there, the stack comes in a record of its own, once
    /// the task has fetched the page.
    pub fn with_late_stacks(mut self) -> Self {
        self.flags |= PROBE_LATE;
        self
    }

    /// The file is probed also when a server answers for its file system. While that does not, no
    /// process of the machine can fork.
    pub fn that_may_hang(mut self) -> Self {
        self.flags |= PROBE_MAY_HANG;
        self
    }

    /// Take the kernel's stack.
    pub fn with_kernel_stack(mut self) -> Self {
        self.flags |= PROBE_KERNEL_STACK;
        self
    }

    /// Take the user stack.
    pub fn with_stack(mut self) -> Probe<'a> {
        self.flags |= PROBE_STACK;
        self
    }

    /// Take at most this number of frames.
    pub fn with_max_frames(mut self, frames: u32) -> Probe<'a> {
        self.max_frames = frames;
        self
    }

    /// Hit at the function's return instead of its entry.
    pub fn at_return(mut self) -> Probe<'a> {
        self.kind = PROBE_RETURN;
        self
    }

    /// Hit at the function's entry and at its return, which then knows when its call
    /// began and what the entry program kept. With `return_only` the entry does not
    /// count.
    pub fn as_call(mut self, return_only: bool) -> Probe<'a> {
        self.kind = PROBE_CALL;
        self.flags |= if return_only { PROBE_RETURN_ONLY } else { 0 };
        self
    }

    /// Run these programs, at the entry and at the return.
    pub fn with_programs(
        mut self,
        at_entry: Option<ProgramId>,
        at_return: Option<ProgramId>,
    ) -> Probe<'a> {
        let id = |program: Option<ProgramId>| program.map_or(0, |program| program.0);
        self.entry_program = id(at_entry);
        self.return_program = id(at_return);
        self
    }

    /// Its programs may write so often.
    pub fn with_max_writes(mut self, count: u32) -> Probe<'a> {
        self.max_writes = count;
        self
    }

    /// Not all hits are delivered.
    pub fn with_limits(mut self, limits: HitLimits) -> Probe<'a> {
        self.limits = limits;
        self
    }

    /// A hit that is delivered freezes the rings, of a session that overwrites.
    pub fn freezing(mut self) -> Probe<'a> {
        self.flags |= PROBE_FREEZES;
        self
    }

    /// Where a hit goes; without this, into the ring as a record.
    pub fn with_sink(mut self, sink: Sink) -> Probe<'a> {
        (self.sink, self.table) = match sink {
            Sink::Record => (SINK_RECORD, 0),
            Sink::Count => (SINK_COUNT, 0),
            Sink::Table(table) => (SINK_TABLE, table.0),
            Sink::Span(table) => (SINK_SPAN, table.0),
        };
        self
    }

    /// The table whose spans the programs end.
    pub fn ending_spans_of(mut self, table: TableId) -> Probe<'a> {
        self.span = table.0;
        self
    }

    pub(crate) fn request(&self) -> abi::Probe {
        abi::Probe {
            fd: self.file.map_or(-1, |file| file.as_raw_fd()),
            kind: self.kind,
            flags: self.flags,
            max_frames: self.max_frames,
            offset: self.offset,
            report_offset: self.report_offset,
            semaphore: self.semaphore,
            sink: self.sink,
            table: self.table,
            span: self.span,
            entry_program: self.entry_program,
            return_program: self.return_program,
            max_writes: self.max_writes,
            every: self.limits.every,
            rate: self.limits.rate,
            burst: self.limits.burst,
            runaway: self.limits.runaway,
            call: self.call,
            ..abi::Probe::default()
        }
    }
}
