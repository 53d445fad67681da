// SPDX-License-Identifier: GPL-2.0-only
//! A stack that was taken, and how a session takes one.

use crate::{
    common::{
        record::{StackCopy, StackEnd, KIND_STACK_COPY},
        unwind::Registers, //
    },
    context::Shared,
    stack::{raw_copy::Subject, Maps, Request, Stack},
    sys::{regs::RegisterFile, swap::Reading}, //
};

/// The stack of a record: its frames, or its id.
#[derive(Clone, Copy)]
pub(crate) struct Frames<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) id: u32,
    pub(crate) end: StackEnd,
}

/// The task that a stack is of, and the CPU and probe of its records.
#[derive(Clone, Copy)]
pub(crate) struct Of {
    pub(crate) probe: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    /// When the hit was.
    pub(crate) hit_ns: u64,
}

/// Where and when a stack is taken.
pub(crate) struct Moment<'a> {
    pub(crate) cpu: u32,
    pub(crate) now_ns: u64,
    pub(crate) reading: Reading<'a>,
}

impl Shared {
    /// Takes the current task's stack.
    pub(crate) fn capture(
        &self,
        stack: &mut Stack,
        regs: &RegisterFile,
        request: &Request,
        Moment {
            cpu,
            now_ns,
            reading,
        }: Moment<'_>,
        pid: impl Fn() -> u32,
    ) -> StackEnd {
        let maps = Maps {
            objects: &self.objects,
            reading,
            kept: match self.mappings.as_ref() {
                Some(mappings) => mappings.take(cpu, now_ns, self.objects.rows_version()),
                None => None,
            },
            stacks: self.stacks.as_ref(),
        };
        let announce = |id| self.announce(cpu, id, now_ns);
        stack.capture(regs, request, maps, pid, announce)
    }

    /// Puts what is needed to go on with a stack into the ring, when it is to be gone on
    /// with; how it ends then.
    pub(crate) fn copy_if_left(
        &self,
        stack: &Stack,
        end: StackEnd,
        of: &Of,
        now_ns: u64,
    ) -> StackEnd {
        match stack.rest() {
            Some(rest) if !self.copy_rest(of, rest, now_ns) => end.if_left(),
            _ => end,
        }
    }

    #[cold]
    #[inline(never)]
    fn copy_rest(&self, of: &Of, at: Registers, now_ns: u64) -> bool {
        let Some(copies) = self.copies.as_ref() else {
            return false;
        };
        let subject = Subject {
            at,
            objects: &self.objects,
            pid: &|| of.pid,
            announce: &|id| self.announce(of.cpu, id, now_ns),
            head: StackCopy {
                time_ns: of.hit_ns,
                probe: of.probe,
                tid: of.tid,
                ..StackCopy::default()
            },
        };
        copies.copy(of.cpu, &subject, |parts| {
            self.append(of.cpu, KIND_STACK_COPY, parts, now_ns)
        })
    }
}

impl<'a> Frames<'a> {
    /// Those of a stack that ends so: an id, when there is one.
    pub(crate) fn of(stack: &'a Stack, end: StackEnd) -> Self {
        let (words, id) = match stack.id() {
            Some(id) => (&[][..], id),
            None => (stack.words(), 0),
        };
        Frames { words, id, end }
    }
}
