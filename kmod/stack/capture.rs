// SPDX-License-Identifier: GPL-2.0-only
//! Captures the stack of the current task with the caches of its session. Gives it an id, or copies
//! what user space needs to continue the walk.

use crate::{
    common::{
        record::{StackCopy, StackEnd, KIND_STACK_COPY},
        unwind::Registers, //
    },
    context::Context,
    object::NoteBudget,
    stack::{
        mapping_cache::{CodeRange, Mappings},
        raw_copy::CopyRequest,
        resolver::Resolver,
        walk::Walk,
        walk_cache::{CachedWalk, WalkKey},
        Stack, //
        StackRequest,
    },
    sys::{
        rcu_slot::Reading,
        regs::RegisterFile,
        user_mem::NoFaults, //
    }, //
};

/// The stack of a record: its frames, or its id.
#[derive(Clone, Copy)]
pub(crate) struct Frames<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) id: u32,
    pub(crate) end: StackEnd,
}

/// The task that a stack belongs to, and the CPU and probe of its records.
#[derive(Clone, Copy)]
pub(crate) struct StackOwner {
    pub(crate) probe: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    /// The time of the hit.
    pub(crate) hit_ns: u64,
}

/// Where and when a stack is captured.
pub(crate) struct CaptureTime<'a> {
    pub(crate) cpu: u32,
    pub(crate) now_ns: u64,
    pub(crate) reading: Reading<'a>,
}

impl Context {
    /// Captures the current task's stack.
    #[inline(always)]
    pub(crate) fn capture(
        &self,
        stack: &mut Stack,
        regs: &RegisterFile,
        request: &StackRequest,
        at: CaptureTime<'_>,
        pid: impl Fn() -> u32,
    ) -> StackEnd {
        let kept = match self.mappings.as_ref() {
            Some(mappings) => mappings.take(at.cpu, at.now_ns, self.objects.rows_version()),
            None => None,
        };
        let is_64bit = regs.is_64bit();
        let by_rows = is_64bit && (request.copies || self.objects.has_rows());
        let memory = NoFaults::new();
        let mut cached = None;
        if let (Some(kept), true) = (&kept, is_64bit) {
            let key = WalkKey::new(regs, request, by_rows, &memory);
            let (walk, has_key) = key.pick(kept.cached_walks());
            let known = match request.by_id && has_key {
                true => walk.known_id(&key, kept.arrays(), &memory),
                false => None,
            };
            if let Some((id, end)) = known {
                stack.id = Some(id);
                return end;
            }
            cached = Some((walk, key, has_key));
        }
        self.walk(
            stack,
            (regs, request, by_rows),
            at,
            kept,
            (memory, cached),
            pid,
        )
    }

    /// Out of line, as most stacks captured by id are known.
    #[inline(never)]
    fn walk(
        &self,
        stack: &mut Stack,
        (regs, request, by_rows): (&RegisterFile, &StackRequest, bool),
        CaptureTime {
            cpu,
            now_ns,
            reading,
        }: CaptureTime<'_>,
        kept: Option<Mappings<'_>>,
        (memory, cached): (NoFaults, Option<(&CachedWalk, WalkKey, bool)>),
        pid: impl Fn() -> u32,
    ) -> StackEnd {
        let resolver = Resolver {
            objects: &self.objects,
            reading,
            pid,
            announce: |id| self.announce(cpu, id, now_ns),
            notes: NoteBudget::of_stack(),
            mappings: kept,
            last: CodeRange::default(),
        };
        let mut walk = Walk::new(stack, resolver, regs, request, by_rows, (memory, cached));
        let (Ok(end) | Err(end)) = walk.run();
        walk.keep(end);
        let missed = walk.missed().filter(|_| end == StackEnd::Fault);
        // A stack that is completed later gets its id then.
        let is_whole = !matches!(end, StackEnd::Fault | StackEnd::Copied);
        let stacks = self.stacks.as_ref().filter(|_| is_whole && request.by_id);
        let id = stacks.and_then(|stacks| stacks.id_of(walk.words(), || self.current_container()));
        walk.set_id(id, end);
        drop(walk);
        (stack.id, stack.missed) = (id, missed);
        end
    }

    /// The id of a taken stack, also of one that ends early; `None` when there is no room for
    /// it.
    pub(crate) fn stack_id(&self, stack: &Stack) -> Option<u32> {
        match stack.id() {
            None => {
                let stacks = self.stacks.as_ref()?;
                stacks.id_of(stack.words(), || self.current_container())
            }
            known => known,
        }
    }

    /// Copies into the ring what user space needs to continue the walk, if it has to. Returns how
    /// the stack ends then.
    pub(crate) fn copy_if_left(
        &self,
        stack: &Stack,
        end: StackEnd,
        owner: impl FnOnce() -> StackOwner,
        now_ns: u64,
    ) -> StackEnd {
        match stack.rest() {
            Some(rest) if !self.copy_rest(&owner(), rest, now_ns) => end.if_left(),
            _ => end,
        }
    }

    #[cold]
    #[inline(never)]
    fn copy_rest(&self, owner: &StackOwner, at: Registers, now_ns: u64) -> bool {
        let Some(raw_stacks) = self.raw_stacks.as_ref() else {
            return false;
        };
        let request = CopyRequest {
            at,
            objects: &self.objects,
            pid: &|| owner.pid,
            announce: &|id| self.announce(owner.cpu, id, now_ns),
            notes: NoteBudget::of_stack(),
            head: StackCopy {
                time_ns: owner.hit_ns,
                probe: owner.probe,
                tid: owner.tid,
                ..StackCopy::default()
            },
        };
        raw_stacks.copy(owner.cpu, &request, |parts| {
            self.append(owner.cpu, KIND_STACK_COPY, parts, now_ns)
        })
    }
}

impl<'a> Frames<'a> {
    /// The frames of a stack that ends with `end`: its id, if there is one.
    pub(crate) fn of(stack: &'a Stack, end: StackEnd) -> Self {
        let (words, id) = match stack.id() {
            Some(id) => (&[][..], id),
            None => (stack.words(), 0),
        };
        Frames { words, id, end }
    }
}
