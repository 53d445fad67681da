// SPDX-License-Identifier: GPL-2.0-only
//! What runs when a breakpoint is hit.
//!
//! `hit` runs in the traced task. It takes no sleeping lock, does not fault, does
//! not allocate and cannot panic; whatever happens to the hit is counted, so that
//! `hits = recorded + aggregated + filtered + rejected + skipped + limited + off +
//! frozen + lost_full + turned_away + missed` holds for each probe and CPU.

pub(crate) mod counters;
pub(crate) mod deferred_stack;
pub(crate) mod entry_values;
pub(crate) mod hit;
pub(crate) mod limits;
pub(crate) mod modify;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod request;
pub(crate) mod samples;
pub(crate) mod under_way;

use crate::{
    common::{
        abi::{
            KERNEL_FRAMES_MAX, PROBE_FREEZES, PROBE_KERNEL_STACK, PROBE_RETURN_ONLY, PROBE_STACK,
        },
        record::{
            body_of,
            Frame as StackFrame,
            Method,
            OffRecord,
            StackEnd,
            Unmapped,
            KERNEL_WORDS_MAX,
            KIND_OFF, //
        }, //
    },
    context::Shared,
    probe::{
        counters::{Counters, End, Here},
        entry_values::{Call, Values},
        hit::{Event, Origin},
        limits::{LeftOut, Limits},
        modify::Writer,
        program::{Fields, Program, Task},
        under_way::{Frame, UnderWay}, //
    },
    stack::Stack,
    sys::{
        self,
        kernel_stack,
        returns,
        scratch::Words,
        task::{Current, Mm},
        uprobe::{Ends, Hook, Regs, Verdict},
        vma::FileKey, //
    },
    table::{Key, Table}, //
};
use core::sync::atomic::AtomicU32;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use zerocopy::transmute_ref;

const OFF_WORDS: usize = size_of::<OffRecord>() / 8;

/// Where a hit that counts goes.
pub(crate) enum Sink {
    /// A record in the ring.
    Record,
    /// Nothing but the counters.
    Count,
    /// A row of this table.
    Table(Arc<Table>),
    /// A span in this table.
    Span(Arc<Table>),
}

/// What a probe is to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing, or all of it: the kernel follows it to its return.
    Whole,
    /// The call begins.
    Begin,
    /// It returns.
    End,
    /// It goes where its return is not seen.
    Leave,
}

/// A probe, as its handler knows it.
pub(crate) struct Probe {
    pub(crate) id: u32,
    pub(crate) flags: u32,
    pub(crate) role: Role,
    /// Which function's calls begin or end here, or zero.
    pub(crate) call: u32,
    /// Bytes that the instruction takes off the stack, of one that returns.
    pub(crate) returns: Option<u64>,
    pub(crate) max_frames: u32,
    /// Bytes from the place that records report to the breakpoint.
    pub(crate) ahead: u64,
    /// The probed file, as it was when the probe was attached.
    pub(crate) file: FileKey,
    /// File offset of the breakpoint.
    pub(crate) offset: u64,
    /// Which ends of the function's calls it is hit at.
    pub(crate) ends: Ends,
    pub(crate) at_entry: Option<Arc<Program>>,
    pub(crate) at_return: Option<Arc<Program>>,
    pub(crate) sink: Sink,
    /// Hits are counted, and nothing else.
    pub(crate) counts_only: bool,
    /// It has no limits, and its entries count.
    pub(crate) is_plain: bool,
    /// The table whose spans the programs end.
    pub(crate) spans: Option<Arc<Table>>,
    /// Writes that its programs may still make.
    pub(crate) writes_left: Option<Arc<AtomicU32>>,
    pub(crate) limits: Option<Arc<Limits>>,
    /// Hits a second that turn it off, or zero.
    pub(crate) runaway: u32,
    pub(crate) counters: Arc<Counters>,
    /// Those that `every` counts by: of several probes of a call the first one's.
    pub(crate) eligible: Arc<Counters>,
    pub(crate) shared: Arc<Shared>,
}

impl Probe {
    /// Whether both do the same at one place: each hit would count twice.
    pub(crate) fn repeats(&self, other: &Probe) -> bool {
        fn address<T>(shared: &Option<Arc<T>>) -> Option<*const T> {
            shared.as_ref().map(Arc::as_ptr)
        }
        self.offset == other.offset
            && self.file.is_inode_of(&other.file)
            && (self.role, self.call, self.flags) == (other.role, other.call, other.flags)
            && (self.ends, self.max_frames) == (other.ends, other.max_frames)
            && address(&self.at_entry) == address(&other.at_entry)
            && address(&self.at_return) == address(&other.at_return)
            && self.sink == other.sink
            && address(&self.spans) == address(&other.spans)
    }
}

impl PartialEq for Sink {
    fn eq(&self, other: &Sink) -> bool {
        match (self, other) {
            (Sink::Record, Sink::Record) | (Sink::Count, Sink::Count) => true,
            (Sink::Table(one), Sink::Table(other)) | (Sink::Span(one), Sink::Span(other)) => {
                Arc::ptr_eq(one, other)
            }
            _ => false,
        }
    }
}

impl Hook for Probe {
    /// What most hits need first, without a call: who is traced, and a count.
    #[inline(always)]
    fn hit(&self, regs: &Regs<'_>, call: &mut u64) -> Verdict {
        let current = Current::get();
        let Some(here) = self.counters.here(current.cpu_hint()) else {
            return Verdict::Keep;
        };
        let shared = &*self.shared;
        let filter = shared.filter.in_handler(regs);
        let admits = shared.opener.admits_at_once(filter, &current);
        let Some(admits) = admits.filter(|_| self.is_plain) else {
            if self.role != Role::Whole {
                let admits = admits.unwrap_or_else(|| shared.opener.admits(filter, &current));
                return self.hit_of_call(regs, &current, here, call, admits);
            }
            return self.hit_with_care(regs, &current, here, call);
        };
        let sequence = here.begin();
        if !admits {
            here.end(End::Filtered);
            return Verdict::Remove;
        }
        if self.counts_only {
            here.end(End::Aggregated);
            return Verdict::Keep;
        }
        if let Some(program) = &self.at_entry {
            if program.rejects(regs, 0) {
                here.end(End::Rejected);
                return Verdict::Ignore;
            }
        }
        self.entered(regs, &current, here, sequence as u32, call)
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
            return here.end(End::Off);
        }
        let shared = &*self.shared;
        let filter = shared.filter.in_handler(regs);
        if !shared.opener.admits(filter, &current) {
            here.end(End::Filtered);
            return;
        }
        let began = call.and_then(|word| self.call_of(word));
        let ended = Some(began.unwrap_or_default());
        self.ended(&self.event(regs, &current, here, sequence, entry, ended));
    }

    fn wants(&self, mm: &Mm) -> bool {
        if self.limits.as_ref().is_some_and(|limits| limits.is_off()) {
            return false;
        }
        let shared = &*self.shared;
        shared
            .filter
            .with(|filter| shared.opener.traces_mm(filter, mm))
    }
}

/// What the program found for the sink.
#[derive(Default)]
struct Found<'a> {
    fields: &'a [u64],
    key: &'a [u64],
    value: Option<u64>,
}

impl Probe {
    /// The event of a hit now; `at` is the address of the breakpoint.
    #[inline(always)]
    fn event<'a>(
        &'a self,
        regs: &'a Regs<'a>,
        current: &'a Current,
        here: Here<'a>,
        sequence: u64,
        at: u64,
        ended: Option<Call>,
    ) -> Event<'a> {
        Event {
            regs,
            opener: &self.shared.opener,
            current,
            here,
            sequence: sequence as u32,
            now_ns: sys::now_ns(),
            address: at.wrapping_sub(self.ahead),
            origin: Origin::Breakpoint,
            ended,
        }
    }

    /// A sample of the current task, which is traced, with its user registers.
    pub(crate) fn sampled(&self, regs: &Regs<'_>, here: Here<'_>, sequence: u64, origin: Origin) {
        let current = Current::get();
        let event = Event {
            origin,
            ..self.event(regs, &current, here, sequence, regs.ip(), None)
        };
        if let Origin::Kernel(_) = origin {
            here.in_kernel();
        }
        match &self.at_entry {
            Some(program) => self.run(program, &event, &mut 0),
            None => self.deliver(&event, &Found::default()),
        };
    }

    /// What is left to do at a return whose task is traced.
    fn ended(&self, event: &Event<'_>) -> Verdict {
        match &self.at_return {
            Some(program) if program.rejects(event.regs, self.popped()) => {
                event.here.end(End::Rejected);
                Verdict::Ignore
            }
            Some(program) => self.run(program, event, &mut 0),
            None => self.deliver(event, &Found::default()),
        }
    }

    /// A hit of a probe at which calls begin or end.
    #[inline(never)]
    fn hit_of_call(
        &self,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        top: &mut u64,
        admits: bool,
    ) -> Verdict {
        let Some(calls) = self.shared.under_way.as_ref() else {
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
        let event = self.event(regs, current, here, 0, regs.ip(), None);
        match &self.at_entry {
            Some(program) => self.run(program, &event, &mut 0),
            None => self.begin(&event, Values::default()),
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
        self.ended(&self.event(regs, current, here, sequence, regs.ip(), ended))
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
            let event = self.event(regs, current, here, 0, regs.ip(), None);
            !program.rejects(regs, 0)
                && program
                    .run(&mut self.task(&event), &mut Fields::new())
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
    fn begin(&self, event: &Event<'_>, values: Values) -> Verdict {
        let call = Call {
            time_ns: event.now_ns,
            values,
        };
        let frame = Frame::of(event.regs, event.current, self.call);
        let calls = self.shared.under_way.as_ref();
        let begins = calls.is_some_and(|calls| calls.begin(&frame, &call));
        event.here.end(match begins {
            true => End::Aggregated,
            false => End::TurnedAway,
        });
        Verdict::Keep
    }

    /// A call begins that is turned away: what an abandoned one has left in its place must not
    /// be taken for it at its exit.
    fn forget_call(&self, regs: &Regs<'_>, current: &Current) {
        if let Some(calls) = self.shared.under_way.as_ref() {
            calls.end(&Frame::of(regs, current, self.call));
        }
    }

    /// A hit of a probe that may be off, of whose calls only the returns count, or whose
    /// filter has to look further.
    #[cold]
    #[inline(never)]
    fn hit_with_care(
        &self,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        call: &mut u64,
    ) -> Verdict {
        let is_quiet = self.flags & PROBE_RETURN_ONLY != 0;
        let sequence = match is_quiet {
            true => 0,
            false => here.begin(),
        };
        if self.is_off(&here, sequence) {
            self.turn_away(&here, End::Off);
            return Verdict::Remove;
        }
        let shared = &*self.shared;
        let filter = shared.filter.in_handler(regs);
        if !shared.opener.admits(filter, current) {
            self.turn_away(&here, End::Filtered);
            return Verdict::Remove;
        }
        if self.counts_only {
            here.end(End::Aggregated);
            return Verdict::Keep;
        }
        match &self.at_entry {
            Some(program) if program.rejects(regs, 0) => {
                self.turn_away(&here, End::Rejected);
                Verdict::Ignore
            }
            // The return wants to know when, and no more.
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

    /// What is left to do at an entry whose task is traced. Out of line, so that hits
    /// that only count do not pay for its variables.
    #[inline(never)]
    fn entered(
        &self,
        regs: &Regs<'_>,
        current: &Current,
        here: Here<'_>,
        sequence: u32,
        call: &mut u64,
    ) -> Verdict {
        let event = self.event(regs, current, here, sequence.into(), regs.ip(), None);
        *call = event.now_ns;
        if self.ends == Ends::Both && returns::is_full() {
            event.here.too_deep();
        }
        match &self.at_entry {
            Some(program) => self.run(program, &event, call),
            None => self.deliver(&event, &Found::default()),
        }
    }

    /// Whether the probe was turned off, or is now: by hit number `sequence` of this CPU,
    /// where zero is none.
    #[inline(always)]
    fn is_off(&self, here: &Here<'_>, sequence: u64) -> bool {
        match &self.limits {
            Some(limits) => self.look(limits, here, sequence),
            None => false,
        }
    }

    #[inline(never)]
    fn look(&self, limits: &Limits, here: &Here<'_>, sequence: u64) -> bool {
        if sequence != 0 && limits.look(sequence, sys::now_ns) {
            let record = OffRecord {
                time_ns: sys::now_ns(),
                probe: self.id,
                limit: self.runaway,
                ..OffRecord::default()
            };
            let words: &[u64; OFF_WORDS] = transmute_ref!(&record);
            let parts = [body_of(words), &[], &[], &[]];
            self.shared
                .append(here.cpu, KIND_OFF, &parts, record.time_ns);
        }
        limits.is_off()
    }

    /// What a hit ends as that the probe's limits leave out. Of a call only the
    /// beginning is looked at, if that is delivered.
    #[inline(never)]
    fn left_out(&self, limits: &Limits, event: &Event<'_>) -> Option<End> {
        let began =
            event.ended.is_some() && self.ends == Ends::Both && self.flags & PROBE_RETURN_ONLY == 0;
        if began {
            return None;
        }
        let number = match self.eligible.here(event.here.cpu) {
            Some(here) => here.eligible(),
            None => 1,
        };
        match limits.leaves_out(number, event.now_ns)? {
            LeftOut::Skipped => Some(End::Skipped),
            LeftOut::Limited => Some(End::Limited),
        }
    }

    /// Counts a hit that goes nowhere. An entry whose return alone counts was not
    /// counted as a hit yet.
    fn turn_away(&self, here: &Here<'_>, end: End) {
        if self.flags & PROBE_RETURN_ONLY != 0 {
            here.begin();
        }
        here.end(end);
    }

    /// Whether entries keep values for their returns.
    fn keeps(&self) -> bool {
        self.ends == Ends::Both
            && self
                .at_entry
                .as_ref()
                .is_some_and(|program| program.summary().keeps != 0)
    }

    /// The call that an entry left this word for.
    fn call_of(&self, word: u64) -> Option<Call> {
        if self.keeps() {
            return self.shared.calls.as_ref()?.take(word);
        }
        Some(Call {
            time_ns: word,
            values: Values::default(),
        })
    }

    /// Out of line, so that hits without a program do not pay for its fields.
    #[inline(never)]
    fn run(&self, program: &Program, event: &Event<'_>, call: &mut u64) -> Verdict {
        let mut leaves_by = None;
        let verdict = self.run_and_deliver(program, event, call, &mut leaves_by);
        // Only now: what is delivered says where the task was hit.
        if let Some(ret) = leaves_by {
            event.regs.go_to(ret);
        }
        verdict
    }

    /// `leaves_by` becomes the address of the `ret` instruction that the task is to go
    /// on at.
    fn run_and_deliver(
        &self,
        program: &Program,
        event: &Event<'_>,
        call: &mut u64,
        leaves_by: &mut Option<u64>,
    ) -> Verdict {
        let mut task = self.task(event);
        let mut fields = Fields::new();
        let outcome = program.run(&mut task, &mut fields);
        if program.summary().writes {
            let Writer { made, withheld, .. } = task.writer;
            let failed = outcome.failed_writes.saturating_sub(withheld);
            event.here.writes(made, failed, withheld);
            *leaves_by = task.writer.leaves_by;
        }
        let is_entry = event.ended.is_none();
        if is_entry && self.keeps() {
            let kept = Call {
                time_ns: event.now_ns,
                values: task.values,
            };
            *call = match self.shared.calls.as_ref() {
                Some(calls) => calls.keep(&kept),
                None => 0,
            };
        }
        let is_quiet = is_entry && self.flags & PROBE_RETURN_ONLY != 0;
        if !outcome.matched {
            if outcome.undecided {
                event.here.undecided();
            }
            if self.role == Role::Begin {
                self.forget_call(event.regs, event.current);
            }
            match is_quiet {
                true => self.turn_away(&event.here, End::Rejected),
                false => event.here.end(End::Rejected),
            }
            return Verdict::Ignore;
        }
        if self.role == Role::Begin {
            return self.begin(event, task.values);
        }
        if is_quiet {
            return Verdict::Keep;
        }
        let found = Found {
            fields: fields.words(),
            key: task.key.as_slice(),
            value: task.value,
        };
        self.deliver(event, &found)
    }

    /// Bytes that the probed instruction takes off the stack.
    #[inline(always)]
    fn popped(&self) -> u64 {
        match self.role {
            Role::End => self.returns.unwrap_or(8),
            _ => 0,
        }
    }

    /// The task of a hit, for programs.
    #[inline(always)]
    fn task<'a>(&'a self, event: &'a Event<'a>) -> Task<'a> {
        Task {
            regs: event.regs,
            opener: event.opener,
            current: event.current,
            cpu: event.here.cpu,
            probe: self.id,
            popped: self.popped(),
            now_ns: event.now_ns,
            probe_address: event.address,
            elapsed_ns: event.elapsed_ns(),
            values: event.ended.unwrap_or_default().values,
            spans: self.spans.as_deref(),
            ended: None,
            writer: Writer {
                shared: &self.shared,
                regs: event.regs,
                current: event.current,
                left: self.writes_left.as_deref(),
                probe: self.id,
                sequence: event.sequence,
                cpu: event.here.cpu,
                now_ns: event.now_ns,
                leaves_by: None,
                made: 0,
                withheld: 0,
            },
            key: Words::new(),
            value: None,
        }
    }

    /// Hands a hit to the sink, and counts the outcome.
    fn deliver(&self, event: &Event<'_>, found: &Found<'_>) -> Verdict {
        let left_out = match &self.limits {
            Some(limits) => self.left_out(limits, event),
            None => None,
        };
        if let Some(end) = left_out {
            event.here.end(end);
            return Verdict::Ignore;
        }
        let end = match &self.sink {
            Sink::Count => End::Aggregated,
            Sink::Record => match self.record(event, found.fields) {
                true => End::Recorded,
                false if self.shared.is_frozen() => End::Frozen,
                false => End::LostFull,
            },
            Sink::Table(table) => match self.value(event, found) {
                Some(value) => self.aggregate(table, event, found.key, value),
                None => {
                    event.here.undecided();
                    End::Rejected
                }
            },
            Sink::Span(table) => {
                let value = found.value.unwrap_or(0);
                self.aggregate(table, event, found.key, value)
            }
        };
        event.here.end(end);
        if self.flags & PROBE_FREEZES != 0 {
            self.shared.freeze();
        }
        Verdict::Keep
    }

    /// What a hit adds to its row: the value that the program found, else the time of
    /// the call at its return, else one.
    fn value(&self, event: &Event<'_>, found: &Found<'_>) -> Option<u64> {
        match (found.value, &event.ended) {
            (Some(value), _) => Some(value),
            (None, Some(_)) => event.elapsed_ns(),
            (None, None) => Some(1),
        }
    }

    /// Puts the hit into a table, with its stack when that is wanted.
    fn aggregate(&self, table: &Table, event: &Event<'_>, words: &[u64], value: u64) -> End {
        if self.flags & PROBE_STACK != 0 {
            return self.aggregate_with_stack(table, event, words, value);
        }
        let key = Key {
            words,
            stack: &[],
            stack_end: 0,
        };
        self.put(table, event, &key, value)
    }

    fn put(&self, table: &Table, event: &Event<'_>, key: &Key<'_>, value: u64) -> End {
        let put = match self.sink {
            Sink::Span(_) => table.begin(key, event.now_ns, event.ids().tid, value),
            _ => table.add(key, event.here.cpu, value),
        };
        match put {
            true => End::Aggregated,
            false => End::TurnedAway,
        }
    }

    /// A stack that is to be gone on with is no row's yet, but recorded for the reader.
    #[inline(never)]
    fn aggregate_with_stack(
        &self,
        table: &Table,
        event: &Event<'_>,
        words: &[u64],
        value: u64,
    ) -> End {
        let mut stack = Stack::new();
        if let (Origin::Kernel(ip), true) = (event.origin, self.flags & PROBE_KERNEL_STACK != 0) {
            push_kernel_frames(&mut stack, ip);
        }
        let mut end = self.capture(&mut stack, event);
        if matches!(end, StackEnd::Copied | StackEnd::Fault) {
            if self.record_for_row(event, &stack, end, (value, words)) {
                return End::Recorded;
            }
            end = end.if_left();
        }
        let key = Key {
            words,
            stack: stack.words(),
            stack_end: end as u8,
        };
        let put = self.put(table, event, &key, value);
        if matches!(put, End::Aggregated) && end.is_cut() {
            event.here.stack_cut();
        }
        put
    }
}

/// Begins a stack with the frames of the kernel, which was interrupted at `ip`. Out of line, as
/// few stacks have some.
#[cold]
#[inline(never)]
fn push_kernel_frames(stack: &mut Stack, ip: u64) {
    let mut words = Words::<KERNEL_WORDS_MAX>::new();
    kernel_stack::append(&mut words, Some(ip));
    for (number, address) in words.as_slice().iter().enumerate().take(KERNEL_FRAMES_MAX) {
        let method = match number {
            0 => Method::Registers,
            _ => Method::Row,
        };
        stack.push(StackFrame::Address {
            address: *address,
            why: Unmapped::Kernel as u8,
            method: method as u8,
        });
    }
}
