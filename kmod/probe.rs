// SPDX-License-Identifier: GPL-2.0-only
//! What runs when a breakpoint is hit.
//!
//! `hit` runs in the traced task. It takes no sleeping lock, does not fault, does
//! not allocate and cannot panic; whatever happens to the hit is counted, so that
//! `hits = recorded + filtered + rejected + lost_full` holds for each probe and CPU.

use crate::{
    call::{Call, Calls, Values},
    common::{
        abi::{PROBE_AT_ENTRY, PROBE_STACK},
        record::{
            Hit,
            ObjectRecord,
            ELAPSED_UNKNOWN,
            HIT_COMPAT,
            HIT_RETURN,
            KIND_HIT,
            KIND_OBJECT, //
        },
    },
    filter::{Filter, Ids, Opener},
    object::Table,
    program::{Fields, Program, Task},
    ring::{Rings, Waiter},
    stack::{Request, Stack},
    sys::{
        self,
        task::{Current, Mm},
        uprobe::{Ends, Hook, Regs, Verdict},
        vma::FileKey, //
    },
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::{Arc, SetOnce}, //
};
use zerocopy::transmute_ref;

const HIT_WORDS: usize = size_of::<Hit>() / 8;
const OBJECT_WORDS: usize = size_of::<ObjectRecord>() / 8;

/// What a session's probes share. Its handlers use it without locks.
#[pin_data]
pub(crate) struct Shared {
    pub(crate) opener: Opener,
    pub(crate) filter: SetOnce<Filter>,
    pub(crate) rings: SetOnce<Rings>,
    pub(crate) objects: Table,
    /// There once a probe keeps values.
    pub(crate) calls: SetOnce<Calls>,
    #[pin]
    pub(crate) waiter: Waiter,
}

impl Shared {
    /// For a session that the current task opens.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let opener = Opener::current()?;
        let objects = Table::new()?;
        Arc::pin_init(
            pin_init!(Shared {
                opener,
                filter: SetOnce::new(),
                rings: SetOnce::new(),
                objects,
                calls: SetOnce::new(),
                waiter <- Waiter::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Appends a record to the ring of `cpu`; `parts` is what follows its header.
    fn append(&self, cpu: u32, kind: u16, parts: [&[u64]; 4], now_ns: u64) -> bool {
        match self.rings.as_ref() {
            Some(rings) => rings.append(cpu, kind, parts, now_ns, &self.waiter),
            None => false,
        }
    }

    /// Tells the reader what object `id` is.
    #[cold]
    fn announce(&self, cpu: u32, id: u32, now_ns: u64) {
        if let Some(identity) = self.objects.identity(id) {
            let record = ObjectRecord {
                time_ns: now_ns,
                id,
                identity,
                ..ObjectRecord::default()
            };
            let words: &[u64; OBJECT_WORDS] = transmute_ref!(&record);
            self.append(cpu, KIND_OBJECT, [body_of(words), &[], &[], &[]], now_ns);
        }
    }
}

/// A record without its header, which the ring writes.
fn body_of(record: &[u64]) -> &[u64] {
    record.get(1..).unwrap_or(&[])
}

/// The counters of one probe on one CPU: a cache line, so that CPUs do not
/// share any.
#[repr(align(64))]
#[derive(Default)]
struct OnCpu {
    hits: AtomicU64,
    recorded: AtomicU64,
    filtered: AtomicU64,
    rejected: AtomicU64,
    undecided: AtomicU64,
    lost_full: AtomicU64,
    stacks_cut: AtomicU64,
}

/// The counters of one probe.
pub(crate) struct Counters(KVVec<OnCpu>);

/// The values of a probe's counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) recorded: u64,
    pub(crate) filtered: u64,
    pub(crate) rejected: u64,
    pub(crate) undecided: u64,
    pub(crate) lost_full: u64,
    pub(crate) stacks_cut: u64,
}

impl Counters {
    /// All zero.
    pub(crate) fn new() -> Result<Self> {
        let count = nr_cpu_ids() as usize;
        let mut counters = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            counters.push(OnCpu::default(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Counters(counters))
    }

    /// The values on one CPU, if there is such a one.
    pub(crate) fn on_cpu(&self, cpu: u32) -> Option<Counts> {
        // What a hit ends as is read before the hits: a hit in between makes the sum
        // too small for a moment, never too large.
        self.0.get(cpu as usize).map(|on| Counts {
            recorded: on.recorded.load(Relaxed),
            filtered: on.filtered.load(Relaxed),
            rejected: on.rejected.load(Relaxed),
            undecided: on.undecided.load(Relaxed),
            lost_full: on.lost_full.load(Relaxed),
            stacks_cut: on.stacks_cut.load(Relaxed),
            hits: on.hits.load(Relaxed),
        })
    }

    /// The sums over all CPUs.
    pub(crate) fn total(&self) -> Counts {
        (0..self.0.len() as u32)
            .filter_map(|cpu| self.on_cpu(cpu))
            .fold(Counts::default(), |sum, on| Counts {
                hits: sum.hits.wrapping_add(on.hits),
                recorded: sum.recorded.wrapping_add(on.recorded),
                filtered: sum.filtered.wrapping_add(on.filtered),
                rejected: sum.rejected.wrapping_add(on.rejected),
                undecided: sum.undecided.wrapping_add(on.undecided),
                lost_full: sum.lost_full.wrapping_add(on.lost_full),
                stacks_cut: sum.stacks_cut.wrapping_add(on.stacks_cut),
            })
    }
}

/// A probe, as its handler knows it.
pub(crate) struct Probe {
    pub(crate) id: u32,
    pub(crate) flags: u32,
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
    pub(crate) counters: Arc<Counters>,
    pub(crate) shared: Arc<Shared>,
}

impl Hook for Probe {
    fn hit(&self, regs: &Regs<'_>, call: &mut u64) -> Verdict {
        let Some(moment) = Moment::begin(&self.counters) else {
            return Verdict::Keep;
        };
        let current = Current::get();
        let shared = &*self.shared;
        let Some(ids) = shared.opener.admit(shared.filter.as_ref(), &current) else {
            moment.counters.filtered.fetch_add(1, Relaxed);
            return Verdict::Remove;
        };
        let hit = self.describe(&moment, regs, &current, &ids);
        *call = hit.time_ns;
        let entry = Entry {
            regs,
            ids: &ids,
            current: &current,
            address: regs.ip().wrapping_sub(self.ahead),
            ended: None,
        };
        match &self.at_entry {
            Some(program) => self.run_and_record(program, hit, &entry, call, &moment),
            None => self.record(hit, &entry, &[], &moment),
        }
        Verdict::Keep
    }

    fn returned(&self, regs: &Regs<'_>, entry: u64, call: Option<u64>) {
        let Some(moment) = Moment::begin(&self.counters) else {
            return;
        };
        let current = Current::get();
        let shared = &*self.shared;
        let Some(ids) = shared.opener.admit(shared.filter.as_ref(), &current) else {
            moment.counters.filtered.fetch_add(1, Relaxed);
            return;
        };
        let mut hit = self.describe(&moment, regs, &current, &ids);
        hit.flags |= HIT_RETURN;
        let began = call.and_then(|word| self.call_of(word));
        let entry = Entry {
            regs,
            ids: &ids,
            current: &current,
            address: entry.wrapping_sub(self.ahead),
            ended: Some(began.unwrap_or_default()),
        };
        match &self.at_return {
            Some(program) => self.run_and_record(program, hit, &entry, &mut 0, &moment),
            None => self.record(hit, &entry, &[], &moment),
        }
    }

    fn wants(&self, mm: &Mm) -> bool {
        let shared = &*self.shared;
        shared.opener.traces_mm(shared.filter.as_ref(), mm)
    }
}

/// A hit's place among the others.
struct Moment<'a> {
    cpu: u32,
    sequence: u32,
    counters: &'a OnCpu,
}

impl<'a> Moment<'a> {
    /// Counts a hit on the CPU that takes it.
    fn begin(counters: &'a Counters) -> Option<Self> {
        let cpu = sys::cpu_hint();
        let counters = counters.0.get(cpu as usize)?;
        let sequence = counters.hits.fetch_add(1, Relaxed).wrapping_add(1) as u32;
        Some(Moment {
            cpu,
            sequence,
            counters,
        })
    }
}

/// What a record tells of the task.
struct Entry<'a> {
    regs: &'a Regs<'a>,
    ids: &'a Ids,
    current: &'a Current,
    /// The address of the reported place.
    address: u64,
    /// The call that ends here, for a return; its time is zero when its entry was
    /// not seen.
    ended: Option<Call>,
}

impl Entry<'_> {
    /// Nanoseconds since the entry of the call that ends at `now_ns`.
    fn elapsed_ns(&self, now_ns: u64) -> Option<u64> {
        let began_ns = self.ended?.time_ns;
        (began_ns != 0).then(|| now_ns.saturating_sub(began_ns))
    }
}

impl Probe {
    fn describe(&self, moment: &Moment<'_>, regs: &Regs<'_>, current: &Current, ids: &Ids) -> Hit {
        Hit {
            time_ns: sys::now_ns(),
            probe: self.id,
            sequence: moment.sequence,
            cpu: moment.cpu as u16,
            flags: if regs.is_64bit() { 0 } else { HIT_COMPAT },
            pid: ids.pid,
            tid: ids.tid,
            ns_pid: ids.ns_pid,
            ns_tid: ids.ns_tid,
            pidns_inum: ids.pidns_inum,
            comm: current.comm(),
            ..Hit::default()
        }
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
    fn run_and_record(
        &self,
        program: &Program,
        hit: Hit,
        entry: &Entry<'_>,
        call: &mut u64,
        moment: &Moment<'_>,
    ) {
        let mut task = Task {
            regs: entry.regs,
            ids: entry.ids,
            current: entry.current,
            cpu: moment.cpu,
            now_ns: hit.time_ns,
            probe_address: entry.address,
            elapsed_ns: entry.elapsed_ns(hit.time_ns),
            values: entry.ended.unwrap_or_default().values,
        };
        let mut fields = Fields::new();
        let outcome = program.run(&mut task, &mut fields);
        if entry.ended.is_none() && self.keeps() {
            let kept = Call {
                time_ns: hit.time_ns,
                values: task.values,
            };
            *call = match self.shared.calls.as_ref() {
                Some(calls) => calls.keep(&kept),
                None => 0,
            };
        }
        if !outcome.matched {
            moment.counters.rejected.fetch_add(1, Relaxed);
            if outcome.undecided {
                moment.counters.undecided.fetch_add(1, Relaxed);
            }
            return;
        }
        self.record(hit, entry, fields.words(), moment);
    }

    /// Puts the hit into the ring, with its stack when that is wanted.
    fn record(&self, mut hit: Hit, entry: &Entry<'_>, fields: &[u64], moment: &Moment<'_>) {
        hit.field_words = fields.len() as u16;
        let recorded = if self.flags & PROBE_STACK != 0 {
            self.append_with_stack(hit, entry, fields, moment)
        } else {
            self.append(&hit, entry, [&[], fields])
        };
        let counter = if recorded {
            &moment.counters.recorded
        } else {
            &moment.counters.lost_full
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Appends the hit and what follows it.
    fn append(&self, hit: &Hit, entry: &Entry<'_>, [frames, fields]: [&[u64]; 2]) -> bool {
        let words: &[u64; HIT_WORDS] = transmute_ref!(hit);
        let elapsed = [entry.elapsed_ns(hit.time_ns).unwrap_or(ELAPSED_UNKNOWN)];
        let elapsed: &[u64] = match hit.flags & HIT_RETURN {
            0 => &[],
            _ => &elapsed,
        };
        let parts = [body_of(words), elapsed, frames, fields];
        self.shared
            .append(hit.cpu.into(), KIND_HIT, parts, hit.time_ns)
    }

    /// Out of line, so that hits without a stack do not pay for its kilobyte.
    #[inline(never)]
    fn append_with_stack(
        &self,
        mut hit: Hit,
        entry: &Entry<'_>,
        fields: &[u64],
        moment: &Moment<'_>,
    ) -> bool {
        let request = Request {
            // At a return the caller is where the instruction pointer is.
            at_entry: self.flags & PROBE_AT_ENTRY != 0 && entry.ended.is_none(),
            ahead: match entry.ended {
                None => self.ahead,
                Some(_) => 0,
            },
            max_frames: self.max_frames,
        };
        let mut stack = Stack::new();
        let (cpu, now_ns) = (moment.cpu, hit.time_ns);
        let pid = entry.ids.pid;
        let end = stack.capture(entry.regs, &request, &self.shared.objects, pid, |id| {
            self.shared.announce(cpu, id, now_ns)
        });
        hit.words = stack.words().len() as u16;
        hit.stack_end = end as u8;
        let recorded = self.append(&hit, entry, [stack.words(), fields]);
        if recorded && end.is_cut() {
            moment.counters.stacks_cut.fetch_add(1, Relaxed);
        }
        recorded
    }
}
