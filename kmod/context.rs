// SPDX-License-Identifier: GPL-2.0-only
//! The context of a session's handlers: what its probes and task events share.

use crate::{
    common::{
        record::{body_of, ObjectRecord, WriteRecord, KIND_HIT, KIND_OBJECT},
        table::hash, //
    },
    filter::{Filter, SessionOwner},
    object::Objects,
    probe::{
        entry_values::PendingCalls,
        under_way::UnderWay,
        Probe, //
    },
    ring::{Rings, Waiter},
    stack::{
        mapping_cache::MappingCache,
        raw_copy::RawStacks,
        stack_table::StackTable, //
    },
    sys::{
        self,
        bottom_half::BottomHalves,
        memory::GFP_REQUEST,
        once::Once,
        rcu_slot::RcuSlot,
        task::Current,
        task_work::Slots,
        tracepoint::ForkHook, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use zerocopy::transmute_ref;

const OBJECT_WORDS: usize = size_of::<ObjectRecord>() / 8;

/// What a session's probes share. Handlers use it without locks.
#[pin_data]
pub(crate) struct Context {
    pub(crate) session_owner: SessionOwner,
    pub(crate) filter: RcuSlot<Filter>,
    pub(crate) rings: Once<Rings>,
    /// Whether programs may write to traced tasks.
    pub(crate) may_modify: Once<bool>,
    pub(crate) objects: Objects,
    /// What random numbers of programs are made of.
    pub(crate) seed: u64,
    /// Set once a probe takes stacks.
    pub(crate) mappings: Once<MappingCache>,
    /// Set once a probe keeps values.
    pub(crate) calls: Once<PendingCalls>,
    /// Set once calls are followed to their function's exits.
    pub(crate) under_way: Once<UnderWay>,
    /// Set once a probe copies stacks.
    pub(crate) raw_stacks: Once<RawStacks>,
    /// Set once a probe's records name stacks by id.
    pub(crate) stacks: Once<StackTable>,
    /// Set once a probe's stacks may be deferred.
    pub(crate) late: Once<Arc<Slots<Context>>>,
    /// Set once a probe's hits may be late.
    pub(crate) late_hits: Once<Arc<Slots<Probe>>>,
    /// Set once samples copy stacks: for those of tasks that were interrupted in the kernel.
    pub(crate) interrupted: Once<BottomHalves<Context>>,
    #[pin]
    pub(crate) waiter: Waiter,
}

impl Context {
    /// Makes the context of a session that the current task opens.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let session_owner = SessionOwner::current()?;
        let objects = Objects::new()?;
        Arc::pin_init(
            pin_init!(Context {
                session_owner,
                filter: RcuSlot::new(),
                rings: Once::new(),
                may_modify: Once::new(),
                objects,
                seed: sys::random(),
                mappings: Once::new(),
                calls: Once::new(),
                under_way: Once::new(),
                raw_stacks: Once::new(),
                stacks: Once::new(),
                late: Once::new(),
                late_hits: Once::new(),
                interrupted: Once::new(),
                waiter <- Waiter::new(),
            }),
            GFP_REQUEST,
        )
    }

    /// Appends a record to the ring of `cpu`; `parts` is what follows its header.
    pub(crate) fn append(&self, cpu: u32, kind: u16, parts: &[&[u64]; 4], now_ns: u64) -> bool {
        match self.rings.as_ref() {
            Some(rings) => rings.append(cpu, kind, (&[], parts), now_ns, || self.waiter.wake()),
            None => false,
        }
    }

    /// As `append` for the record of a hit, whose body begins with a part of a fixed length.
    #[inline(always)]
    pub(crate) fn append_hit<const N: usize>(
        &self,
        cpu: u32,
        first: &[u64; N],
        parts: &[&[u64]; 3],
        now_ns: u64,
    ) -> bool {
        match self.rings.as_ref() {
            Some(rings) => {
                let wake = || self.waiter.wake();
                rings.append(cpu, KIND_HIT, (first, parts), now_ns, wake)
            }
            None => false,
        }
    }

    /// As `append`, for callers that hold scheduler locks or have interrupts off, and so must not
    /// wake a task: an interrupt to this CPU wakes the reader.
    pub(crate) fn append_quietly(
        &self,
        cpu: u32,
        kind: u16,
        parts: &[&[u64]; 4],
        now_ns: u64,
    ) -> bool {
        match self.rings.as_ref() {
            Some(rings) => {
                rings.append(cpu, kind, (&[], parts), now_ns, || self.waiter.wake_soon())
            }
            None => false,
        }
    }

    /// The container of the current task; see [`SessionOwner::container`].
    pub(crate) fn current_container(&self) -> u64 {
        self.session_owner.container(&Current::get())
    }

    /// Makes a change and appends its record, or does neither; see [`Rings::append_change`].
    pub(crate) fn append_change(
        &self,
        cpu: u32,
        now_ns: u64,
        make: impl FnOnce() -> WriteRecord,
    ) -> bool {
        match self.rings.as_ref() {
            Some(rings) => rings.append_change(cpu, now_ns, make, || self.waiter.wake()),
            None => false,
        }
    }

    /// The random number of a hit: the same before its program runs as in it. The kernel's own
    /// numbers are not to be had wherever samples are taken. `sequence` is zero where hits are not
    /// counted. Out of line, so that conditions that do not use it have its registers.
    #[inline(never)]
    pub(crate) fn random(&self, probe: u32, cpu: u32, sequence: u32, now_ns: u64) -> u64 {
        let hit = match sequence {
            0 => now_ns,
            sequence => sequence.into(),
        };
        let source = u64::from(probe) << 32 | u64::from(cpu);
        hash(self.seed, [hit, source].iter())
    }

    /// Whether the rings are frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.rings.as_ref().is_some_and(Rings::is_frozen)
    }

    /// Freezes rings that overwrite, once.
    #[cold]
    pub(crate) fn freeze(&self) {
        if let Some(rings) = self.rings.as_ref().filter(|rings| !rings.is_frozen()) {
            rings.freeze(true, &self.waiter);
        }
    }

    /// Announces object `id` to the reader.
    #[cold]
    pub(crate) fn announce(&self, cpu: u32, id: u32, now_ns: u64) {
        self.with_announcement(id, now_ns, |parts| {
            self.append(cpu, KIND_OBJECT, parts, now_ns);
        });
    }

    /// As `announce`, for the callers of `append_quietly`.
    #[cold]
    pub(crate) fn announce_quietly(&self, cpu: u32, id: u32, now_ns: u64) {
        self.with_announcement(id, now_ns, |parts| {
            self.append_quietly(cpu, KIND_OBJECT, parts, now_ns);
        });
    }

    fn with_announcement(&self, id: u32, now_ns: u64, put: impl FnOnce(&[&[u64]; 4])) {
        if let Some(identity) = self.objects.identity(id) {
            let record = ObjectRecord {
                time_ns: now_ns,
                id,
                identity,
                ..ObjectRecord::default()
            };
            let words: &[u64; OBJECT_WORDS] = transmute_ref!(&record);
            put(&[body_of(words), &[], &[], &[]]);
        }
    }
}

/// Follows the children of the tasks that a session's filter lists.
pub(crate) struct Follower(pub(crate) Arc<Context>);

impl ForkHook for Follower {
    fn forked(&self, parent: &Current, child: &Current) {
        self.0.filter.with(|filter| {
            if let Some(filter) = filter {
                filter.follow(parent, child);
            }
        });
    }
}
