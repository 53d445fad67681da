// SPDX-License-Identifier: GPL-2.0-only
//! Caches, on each CPU, the mappings and unwind rules of recent stacks.
//!
//! Looking up a mapping takes hundreds of instructions, and stack after stack goes through the same
//! few. An entry belongs to one address space and holds while that has the same layout. The
//! layout's count wraps after 2^31 changes, and a file may be written under its mappings, so
//! entries are kept for a short time only.

use crate::{
    common::{
        record::{Frame, Method, OFFSET_BITS},
        unwind::SimpleRule, //
    },
    stack::walk_cache::{CachedWalk, StepArrays, CACHED_WALKS},
    sys::{
        memory,
        user_walk::{rule_index, KeptRange, KeptRule, RULES},
        vma::Layout, //
    }, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU64,
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::{
    prelude::*, //
};

/// Mappings kept for each CPU.
const MAPPINGS: usize = 8;
/// How long mappings are kept.
const KEPT_NS: u64 = 100_000_000;

/// A mapping of code: the addresses from `start` for `bytes` are in `object`, at offset `address +
/// delta`.
#[derive(Clone, Copy, Default)]
pub(crate) struct CodeRange {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) delta: u64,
    pub(crate) object: u32,
}

impl CodeRange {
    /// Whether its file offsets do not fit into a frame's word.
    pub(crate) fn is_far(&self) -> bool {
        let end = self.start.wrapping_add(self.bytes);
        end.wrapping_add(self.delta) >> OFFSET_BITS != 0
    }

    /// Whether it contains the address.
    #[inline(always)]
    pub(crate) fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// The key of the rule of a place in an object: the word of a frame there.
fn rule_key(object: u32, offset: u64) -> u64 {
    Frame::place(object, Method::Row).wrapping_add(offset)
}

#[repr(align(64))]
#[derive(Default)]
struct OnCpu {
    /// Held by a context; one that preempts it runs uncached.
    busy: AtomicBool,
    context: AtomicU64,
    sequence: AtomicU64,
    since_ns: AtomicU64,
    /// The version of the rows that the rules came from.
    version: AtomicU32,
    next: AtomicUsize,
    ranges: [KeptRange; MAPPINGS],
    /// The rules of an object do not change while the rows' version is the same.
    rules: KVVec<KeptRule>,
    cached_walks: [CachedWalk; CACHED_WALKS],
    arrays: StepArrays,
}

/// The mapping cache of a session.
pub(crate) struct MappingCache(KVVec<OnCpu>);

impl MappingCache {
    /// Makes an empty cache.
    pub(crate) fn new() -> Result<Self> {
        let all = memory::made_for_each_cpu(|| {
            let mut on = OnCpu {
                rules: memory::made(RULES, |_| Ok(KeptRule::default()))?,
                ..OnCpu::default()
            };
            on.arrays.make()?;
            for (array, cached) in on.cached_walks.iter_mut().enumerate() {
                cached.take_array(array);
            }
            Ok(on)
        });
        Ok(MappingCache(all?))
    }

    /// Takes the cache of `cpu` with the mappings of the current task, for this caller alone.
    /// `None` if another context holds it, or the task's mappings are being changed.
    /// Out of line, to keep its variables off the stack of a walk.
    #[inline(never)]
    pub(crate) fn take(&self, cpu: u32, now_ns: u64, version: u32) -> Option<Mappings<'_>> {
        let on = self.0.get(cpu as usize)?;
        let layout = Layout::current()?;
        if on.busy.swap(true, Acquire) {
            return None;
        }
        let mappings = Mappings { on, layout };
        if on.version.load(Relaxed) != version {
            on.forget_rules(version);
        }
        if !on.is_of(layout, now_ns) {
            on.forget(layout, now_ns);
        }
        Some(mappings)
    }
}

impl OnCpu {
    #[cold]
    fn forget_rules(&self, version: u32) {
        for kept in &self.rules {
            kept.key.store(0, Relaxed);
        }
        self.since_ns.store(0, Relaxed);
        self.version.store(version, Relaxed);
    }

    #[inline(always)]
    fn is_of(&self, layout: Layout, now_ns: u64) -> bool {
        self.context.load(Relaxed) == layout.context
            && self.sequence.load(Relaxed) == u64::from(layout.sequence)
            && now_ns.wrapping_sub(self.since_ns.load(Relaxed)) < KEPT_NS
    }

    #[cold]
    fn forget(&self, layout: Layout, now_ns: u64) {
        for range in &self.ranges {
            range.bytes.store(0, Relaxed);
        }
        self.cached_walks.iter().for_each(CachedWalk::forget);
        self.context.store(layout.context, Relaxed);
        self.sequence.store(layout.sequence.into(), Relaxed);
        self.since_ns.store(now_ns, Relaxed);
    }
}

/// The kept mappings of a CPU, held while this lives.
pub(crate) struct Mappings<'a> {
    on: &'a OnCpu,
    layout: Layout,
}

impl<'a> Mappings<'a> {
    /// The stacks that were walked recently.
    #[inline(always)]
    pub(crate) fn cached_walks(&self) -> &'a [CachedWalk; CACHED_WALKS] {
        &self.on.cached_walks
    }

    /// The steps of walks.
    #[inline(always)]
    pub(crate) fn arrays(&self) -> &'a StepArrays {
        &self.on.arrays
    }

    /// The kept mappings, for walks in C.
    #[inline(always)]
    pub(super) fn ranges(&self) -> &'a [KeptRange] {
        &self.on.ranges
    }

    /// The kept rules, for walks in C.
    #[inline(always)]
    pub(super) fn rules(&self) -> Option<&'a [KeptRule; RULES]> {
        self.on.rules.first_chunk()
    }

    /// The kept mapping that contains the address.
    pub(crate) fn find(&self, address: u64) -> Option<CodeRange> {
        let holds = |range: &&KeptRange| {
            address.wrapping_sub(range.start.load(Relaxed)) < range.bytes.load(Relaxed)
        };
        let range = self.on.ranges.iter().find(holds)?;
        let object = range.object.load(Relaxed) as u32;
        let base = range.base.load(Relaxed);
        Some(CodeRange {
            start: range.start.load(Relaxed),
            bytes: range.bytes.load(Relaxed),
            delta: base.wrapping_sub(Frame::place(object, Method::Registers)),
            object,
        })
    }

    /// Keeps a rule.
    pub(crate) fn keep_rule(&self, object: u32, offset: u64, rule: SimpleRule) {
        let key = rule_key(object, offset);
        if let Some(kept) = self.on.rules.get(rule_index(key)) {
            kept.key.store(key, Relaxed);
            kept.rule.store(rule.word(), Relaxed);
        }
    }

    /// Keeps a mapping that was looked up since the cache was taken, if the layout is still the
    /// same. One whose file offsets do not fit into a frame's word is not kept.
    pub(crate) fn keep(&self, known: &CodeRange) {
        if known.is_far() || !self.layout.holds() {
            return;
        }
        let next = self.on.next.load(Relaxed);
        self.on.next.store(next.wrapping_add(1), Relaxed);
        let Some(range) = self.on.ranges.get(next % MAPPINGS) else {
            return;
        };
        let place = Frame::place(known.object, Method::Registers);
        range.start.store(known.start, Relaxed);
        range.bytes.store(known.bytes, Relaxed);
        range.base.store(known.delta.wrapping_add(place), Relaxed);
        range.object.store(known.object.into(), Relaxed);
    }
}

impl Drop for Mappings<'_> {
    fn drop(&mut self) {
        self.on.busy.store(false, Release);
    }
}
