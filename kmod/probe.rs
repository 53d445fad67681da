// SPDX-License-Identifier: GPL-2.0-only
//! What runs when a breakpoint is hit.
//!
//! `hit` runs in the traced task. It takes no sleeping lock, does not fault, does
//! not allocate and cannot panic; whatever happens to the hit is counted, so that
//! `hits = recorded + filtered + lost_full` holds for each probe and CPU.

use crate::{
    common::{
        abi::{PROBE_AT_ENTRY, PROBE_STACK},
        record::{Hit, ObjectRecord, StackEnd, HIT_COMPAT, KIND_HIT, KIND_OBJECT}, //
    },
    filter::{Filter, Ids, Opener},
    object::Table,
    ring::{Rings, Waiter},
    stack::{Request, Stack},
    sys::{
        self,
        task::{Current, Mm},
        uprobe::{Hook, Regs, Verdict},
        vma::FileKey, //
    },
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::{Arc, SetOnce}, //
};
use zerocopy::IntoBytes;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 8;

/// What a session's probes share. Its handlers use it without locks.
#[pin_data]
pub(crate) struct Shared {
    pub(crate) opener: Opener,
    pub(crate) filter: SetOnce<Filter>,
    pub(crate) rings: SetOnce<Rings>,
    pub(crate) objects: Table,
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
                waiter <- Waiter::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Appends a record to the ring of `cpu`; `parts` is what follows its header.
    fn append(&self, cpu: u32, kind: u16, parts: [&[u8]; 2], now_ns: u64) -> bool {
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
            self.append(cpu, KIND_OBJECT, [body_of(record.as_bytes()), &[]], now_ns);
        }
    }
}

/// A record without its header, which the ring writes.
fn body_of(record: &[u8]) -> &[u8] {
    record.get(HEADER_BYTES..).unwrap_or(&[])
}

/// The counters of one probe on one CPU: a cache line, so that CPUs do not
/// share any.
#[repr(align(64))]
#[derive(Default)]
struct OnCpu {
    hits: AtomicU64,
    recorded: AtomicU64,
    filtered: AtomicU64,
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
    pub(crate) counters: Arc<Counters>,
    pub(crate) shared: Arc<Shared>,
}

impl Hook for Probe {
    fn hit(&self, regs: &Regs<'_>) -> Verdict {
        let cpu = sys::cpu_hint();
        let Some(counters) = self.counters.0.get(cpu as usize) else {
            return Verdict::Keep;
        };
        let sequence = counters.hits.fetch_add(1, Relaxed).wrapping_add(1);
        let current = Current::get();
        let shared = &*self.shared;
        let Some(ids) = shared.opener.admit(shared.filter.as_ref(), &current) else {
            counters.filtered.fetch_add(1, Relaxed);
            return Verdict::Remove;
        };
        let hit = Hit {
            time_ns: sys::now_ns(),
            probe: self.id,
            sequence: sequence as u32,
            cpu: cpu as u16,
            flags: if regs.is_64bit() { 0 } else { HIT_COMPAT },
            pid: ids.pid,
            tid: ids.tid,
            ns_pid: ids.ns_pid,
            ns_tid: ids.ns_tid,
            pidns_inum: ids.pidns_inum,
            comm: current.comm(),
            ..Hit::default()
        };
        let recorded = if self.flags & PROBE_STACK != 0 {
            self.record_with_stack(hit, regs, &ids, counters)
        } else {
            let now_ns = hit.time_ns;
            shared.append(cpu, KIND_HIT, [body_of(hit.as_bytes()), &[]], now_ns)
        };
        let counter = if recorded {
            &counters.recorded
        } else {
            &counters.lost_full
        };
        counter.fetch_add(1, Relaxed);
        Verdict::Keep
    }

    fn wants(&self, mm: &Mm) -> bool {
        let shared = &*self.shared;
        shared.opener.traces_mm(shared.filter.as_ref(), mm)
    }
}

impl Probe {
    /// Out of line, so that hits without a stack do not pay for its kilobyte.
    #[inline(never)]
    fn record_with_stack(
        &self,
        mut hit: Hit,
        regs: &Regs<'_>,
        ids: &Ids,
        counters: &OnCpu,
    ) -> bool {
        let (cpu, now_ns) = (u32::from(hit.cpu), hit.time_ns);
        let request = Request {
            at_entry: self.flags & PROBE_AT_ENTRY != 0,
            ahead: self.ahead,
            max_frames: self.max_frames,
        };
        let mut stack = Stack::new();
        let end: StackEnd = stack.capture(regs, &request, &self.shared.objects, ids.pid, |id| {
            self.shared.announce(cpu, id, now_ns)
        });
        hit.words = stack.words().len() as u16;
        hit.stack_end = end as u8;
        let parts = [body_of(hit.as_bytes()), stack.words().as_bytes()];
        let recorded = self.shared.append(cpu, KIND_HIT, parts, now_ns);
        if recorded && end.is_cut() {
            counters.stacks_cut.fetch_add(1, Relaxed);
        }
        recorded
    }
}
