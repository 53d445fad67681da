// SPDX-License-Identifier: GPL-2.0-only
//! The record of a hit, with its stacks.

use crate::{
    common::{
        abi::{
            PROBE_AT_ENTRY,
            PROBE_COPIES,
            PROBE_KERNEL_STACK,
            PROBE_LATE,
            PROBE_STACK,
            PROBE_STACK_IDS, //
        },
        program::{KEY_WORDS_MAX, OUTPUT_WORDS_MAX},
        record::{
            Hit as HitRecord,
            StackEnd,
            ELAPSED_UNKNOWN,
            HIT_KERNEL,
            HIT_RETURN,
            KERNEL_WORDS_MAX, //
        },
    },
    context::Context,
    probe::{
        deferred_stack::{may_be_fetched, DeferredStack},
        hit::Hit,
        Probe,
        Role, //
    },
    stack::{
        capture::{CaptureTime, Frames, StackOwner},
        Stack, //
        StackRequest,
    },
    sys::{
        kernel_stack,
        rcu_slot::Reading, //
        scratch::Words,
        task_work::Reservation,
    }, //
};
use zerocopy::transmute_ref;

const HIT_WORDS: usize = size_of::<HitRecord>() / 8;

const NO_FRAMES: Frames<'_> = Frames {
    words: &[],
    id: 0,
    end: StackEnd::None,
};

/// What follows the frames of a record.
#[derive(Clone, Copy)]
struct Tail<'a> {
    /// The kernel's stack, and the fields.
    words: &'a [u64],
    field_words: usize,
}

impl<'a> Tail<'a> {
    fn of(fields: &'a [u64]) -> Self {
        Tail {
            words: fields,
            field_words: fields.len(),
        }
    }
}

impl Probe {
    /// Captures the stack of a hit.
    pub(crate) fn capture(&self, stack: &mut Stack, hit: &Hit<'_>) -> StackEnd {
        let request = self.request(hit);
        let at = CaptureTime {
            cpu: hit.here.cpu,
            now_ns: hit.now_ns,
            reading: Reading::in_handler(hit.regs),
        };
        self.context
            .capture(stack, hit.regs, &request, at, || hit.ids().pid)
    }

    fn request(&self, hit: &Hit<'_>) -> StackRequest {
        // After a return, the instruction pointer is in the caller.
        let has_returned = hit.ended.is_some() && self.role != Role::End;
        StackRequest {
            at_entry: self.flags & PROBE_AT_ENTRY != 0 && !has_returned,
            breakpoint_delta: match has_returned {
                false => self.breakpoint_delta,
                true => 0,
            },
            max_frames: self.max_frames,
            copies: self.flags & PROBE_COPIES != 0,
            by_id: self.flags & PROBE_STACK_IDS != 0,
        }
    }

    /// Records the hit, with the stacks that the probe requests.
    pub(crate) fn record(&self, hit: &Hit<'_>, fields: &[u64]) -> bool {
        match self.flags & (PROBE_STACK | PROBE_KERNEL_STACK) {
            0 => self.append(hit, &NO_FRAMES, &Tail::of(fields)),
            PROBE_STACK => self.record_with_stack(hit, &Tail::of(fields)),
            _ => self.record_with_kernel_stack(hit, fields),
        }
    }

    /// Out of line, so that other hits do not pay for its kilobyte.
    #[cold]
    #[inline(never)]
    fn record_with_kernel_stack(&self, hit: &Hit<'_>, fields: &[u64]) -> bool {
        let mut words = Words::<{ KERNEL_WORDS_MAX + OUTPUT_WORDS_MAX }>::new();
        if let Some(innermost) = hit.kernel_stack() {
            kernel_stack::append(&mut words, innermost);
        }
        words.extend(fields);
        let tail = Tail {
            words: words.as_slice(),
            field_words: fields.len(),
        };
        match self.flags & PROBE_STACK {
            0 => self.append(hit, &NO_FRAMES, &tail),
            _ => self.record_with_stack(hit, &tail),
        }
    }

    /// Out of line, so that hits without a stack do not pay for its kilobyte.
    #[inline(never)]
    fn record_with_stack(&self, hit: &Hit<'_>, tail: &Tail<'_>) -> bool {
        let mut stack = Stack::new();
        let end = self.capture(&mut stack, hit);
        self.record_stack(hit, &stack, end, tail)
    }

    /// Records a hit for a row of a table whose stack user space completes: its fields are the
    /// value and the key. Returns false if the stack cannot be completed.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_for_row(
        &self,
        hit: &Hit<'_>,
        stack: &Stack,
        end: StackEnd,
        (value, key): (u64, &[u64]),
    ) -> bool {
        if stack.rest().is_none() && !stack.missed().is_some_and(|at| self.may_wait_for(hit, at)) {
            return false;
        }
        let mut fields = Words::<{ KEY_WORDS_MAX + 1 }>::new();
        fields.push(value);
        fields.extend(key);
        self.record_stack(hit, stack, end, &Tail::of(fields.as_slice()))
    }

    /// Records a hit with a stack that ends with `end`. If something is missing, copies the rest of
    /// the stack, or defers the stack until the task returns to user space.
    fn record_stack(
        &self,
        hit: &Hit<'_>,
        stack: &Stack,
        mut end: StackEnd,
        tail: &Tail<'_>,
    ) -> bool {
        // Nothing is missing: that is the usual case.
        if stack.rest().is_none() && stack.missed().is_none() && !end.is_cut() {
            return self.append(hit, &Frames::of(stack, end), tail);
        }
        let in_kernel = hit.is_in_kernel();
        // A copy here would keep interrupts off for long.
        let interrupted = match self.context.interrupted.as_ref() {
            Some(interrupted) if in_kernel && stack.rest().is_some() => interrupted.take(),
            _ => None,
        };
        end = match in_kernel {
            true => end.if_left(),
            false => self
                .context
                .copy_if_left(stack, end, || self.owner(hit), hit.now_ns),
        };
        let reservation = match stack.missed() {
            Some(address) => self.reservation(hit, address),
            None => None,
        };
        if reservation.is_some() || interrupted.is_some() {
            end = StackEnd::Late;
        }
        let frames = Frames::of(stack, end);
        let recorded = self.append(hit, &frames, tail);
        if recorded && end.is_cut() {
            hit.here.stack_cut();
        }
        let job = || DeferredStack {
            regs: hit.regs.copy(),
            request: self.request(hit),
            owner: self.owner(hit),
            counters: self.counters.clone(),
        };
        if let (Some(reservation), true) = (reservation, recorded) {
            if !reservation.queue(self.context.clone(), job()) {
                hit.here.stack_cut();
            }
        }
        if let (Some(reservation), true) = (interrupted, recorded) {
            reservation.leave(self.context.clone(), job());
        }
        recorded
    }

    fn owner(&self, hit: &Hit<'_>) -> StackOwner {
        let ids = hit.ids();
        StackOwner {
            probe: self.id,
            pid: ids.pid,
            tid: ids.tid,
            cpu: hit.here.cpu,
            hit_ns: hit.now_ns,
        }
    }

    /// Reserves a deferred stack, as `address` could not be read, if waiting may help and does no
    /// harm.
    #[cold]
    fn reservation(&self, hit: &Hit<'_>, address: u64) -> Option<Reservation<'_, Context>> {
        if !self.may_wait_for(hit, address) {
            return None;
        }
        self.context.late.as_ref()?.take()
    }

    /// Not for samples of the kernel: the task may sleep there, and would keep its deferred work.
    fn may_wait_for(&self, hit: &Hit<'_>, address: u64) -> bool {
        self.flags & PROBE_LATE != 0 && !hit.is_in_kernel() && may_be_fetched(address)
    }

    /// Appends the record of the hit and its tail.
    fn append(&self, hit: &Hit<'_>, frames: &Frames<'_>, tail: &Tail<'_>) -> bool {
        let (ids, cpu) = (hit.ids(), hit.here.cpu);
        let in_kernel = match hit.is_in_kernel() {
            true => HIT_KERNEL,
            false => 0,
        };
        let elapsed = [hit.elapsed_ns().unwrap_or(ELAPSED_UNKNOWN)];
        let (returned, elapsed): (u8, &[u64]) = match hit.ended {
            Some(_) => (HIT_RETURN, &elapsed),
            None => (0, &[]),
        };
        let record = HitRecord {
            time_ns: hit.now_ns,
            probe: self.id,
            sequence: hit.sequence,
            cpu: cpu as u16,
            words: frames.words.len() as u16,
            stack_end: frames.end as u8,
            flags: returned | in_kernel,
            field_words: tail.field_words as u16,
            pid: ids.pid,
            tid: ids.tid,
            ns_pid: ids.ns_pid,
            ns_tid: ids.ns_tid,
            pidns_id: ids.pidns_id,
            pidns_inum: ids.pidns_inum,
            stack: frames.id,
            comm: hit.current.comm(),
            ..HitRecord::default()
        };
        let words: &[u64; HIT_WORDS] = transmute_ref!(&record);
        // The ring writes the header.
        let [_, body @ ..] = words;
        let parts = [elapsed, frames.words, tail.words];
        self.context.append_hit(cpu, body, &parts, hit.now_ns)
    }
}
