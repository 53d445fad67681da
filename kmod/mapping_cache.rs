// SPDX-License-Identifier: GPL-2.0-only
//! The mappings that stacks went through last, on each CPU.
//!
//! Looking up a mapping takes hundreds of instructions, and stack after stack goes
//! through the same few. What is kept is of one address space, and holds as long as
//! that has the same layout; the layout's count comes round after 2^31 changes, and a
//! file may be written under its mappings, so nothing is kept for long.

use crate::sys::vma::Layout;
use core::sync::atomic::{
    AtomicBool,
    AtomicU64,
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*, //
};

/// Mappings kept for each CPU.
const MAPPINGS: usize = 8;
/// How long they are kept.
const KEPT_NS: u64 = 100_000_000;

/// A mapping of code: addresses from `start` for `bytes` are `object` at
/// `address + delta`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) delta: u64,
    pub(crate) object: u32,
}

impl Known {
    /// Whether the address lies in it.
    pub(crate) fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

#[derive(Default)]
struct Entry {
    start: AtomicU64,
    bytes: AtomicU64,
    delta: AtomicU64,
    object: AtomicU64,
}

#[repr(align(64))]
#[derive(Default)]
struct OnCpu {
    /// Somebody uses it. Whoever finds it so does without: he has preempted the other.
    busy: AtomicBool,
    context: AtomicU64,
    sequence: AtomicU64,
    since_ns: AtomicU64,
    next: AtomicUsize,
    entries: [Entry; MAPPINGS],
}

/// The mappings of a session.
pub(crate) struct MappingCache(KVVec<OnCpu>);

impl MappingCache {
    /// Nothing kept.
    pub(crate) fn new() -> Result<Self> {
        let count = nr_cpu_ids() as usize;
        let mut all = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            all.push(OnCpu::default(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(MappingCache(all))
    }

    /// The mappings of the current task that are kept on `cpu`, for this caller alone.
    /// `None` when they are in use, or the task's mappings are being changed.
    pub(crate) fn take(&self, cpu: u32, now_ns: u64) -> Option<Mappings<'_>> {
        let on = self.0.get(cpu as usize)?;
        let layout = Layout::current()?;
        if on.busy.swap(true, Acquire) {
            return None;
        }
        let mappings = Mappings { on, layout };
        if !on.is_of(layout, now_ns) {
            on.forget(layout, now_ns);
        }
        Some(mappings)
    }
}

impl OnCpu {
    fn is_of(&self, layout: Layout, now_ns: u64) -> bool {
        self.context.load(Relaxed) == layout.context
            && self.sequence.load(Relaxed) == u64::from(layout.sequence)
            && now_ns.wrapping_sub(self.since_ns.load(Relaxed)) < KEPT_NS
    }

    #[cold]
    fn forget(&self, layout: Layout, now_ns: u64) {
        for entry in &self.entries {
            entry.bytes.store(0, Relaxed);
        }
        self.context.store(layout.context, Relaxed);
        self.sequence.store(layout.sequence.into(), Relaxed);
        self.since_ns.store(now_ns, Relaxed);
    }
}

/// The kept mappings of a CPU, as long as this lives.
pub(crate) struct Mappings<'a> {
    on: &'a OnCpu,
    layout: Layout,
}

impl Mappings<'_> {
    /// The kept mapping that holds the address.
    pub(crate) fn find(&self, address: u64) -> Option<Known> {
        let holds = |entry: &&Entry| {
            address.wrapping_sub(entry.start.load(Relaxed)) < entry.bytes.load(Relaxed)
        };
        let entry = self.on.entries.iter().find(holds)?;
        Some(Known {
            start: entry.start.load(Relaxed),
            bytes: entry.bytes.load(Relaxed),
            delta: entry.delta.load(Relaxed),
            object: entry.object.load(Relaxed) as u32,
        })
    }

    /// Keeps a mapping that was looked up since the cache was taken, if the layout is
    /// still the same.
    pub(crate) fn keep(&self, known: &Known) {
        if !self.layout.holds() {
            return;
        }
        let next = self.on.next.load(Relaxed);
        self.on.next.store(next.wrapping_add(1), Relaxed);
        let Some(entry) = self.on.entries.get(next % MAPPINGS) else {
            return;
        };
        entry.start.store(known.start, Relaxed);
        entry.bytes.store(known.bytes, Relaxed);
        entry.delta.store(known.delta, Relaxed);
        entry.object.store(known.object.into(), Relaxed);
    }
}

impl Drop for Mappings<'_> {
    fn drop(&mut self) {
        self.on.busy.store(false, Release);
    }
}
