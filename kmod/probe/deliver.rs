// SPDX-License-Identifier: GPL-2.0-only
//! Delivers a hit to its probe's sink: the ring, a table, or the counters alone.

use crate::{
    common::{
        abi::{KERNEL_FRAMES_MAX, PROBE_FREEZES, PROBE_KERNEL_STACK, PROBE_STACK, PROBE_STACK_IDS},
        record::{
            Frame,
            Method,
            StackEnd,
            Unmapped,
            KERNEL_WORDS_MAX, //
        }, //
    },
    probe::{
        counters::Outcome,
        hit::Hit,
        Probe,
        Sink, //
    },
    stack::Stack,
    sys::{
        kernel_stack::{self, Innermost},
        scratch::Words,
        uprobe::Verdict, //
    },
    table::{Key, Table}, //
};

/// What the program computed for the sink.
#[derive(Default)]
pub(super) struct Found<'a> {
    pub(super) fields: &'a [u64],
    pub(super) key: &'a [u64],
    pub(super) value: Option<u64>,
}

impl Probe {
    /// Delivers a hit to the sink, and counts the outcome.
    #[inline]
    pub(super) fn deliver(&self, hit: &Hit<'_>, found: &Found<'_>) -> Verdict {
        let skipped = match &self.limits {
            Some(limits) => self.skipped(limits, hit),
            None => None,
        };
        if let Some(outcome) = skipped {
            hit.here.count(outcome);
            return Verdict::Ignore;
        }
        let outcome = match &self.sink {
            Sink::Count => Outcome::Aggregated,
            Sink::Record => self.recorded(hit, found.fields),
            Sink::Table(table) => match self.value(hit, found) {
                Some(value) => self.aggregate(table, hit, found.key, value),
                None => {
                    hit.here.undecided();
                    Outcome::Rejected
                }
            },
            Sink::Span(table) => {
                let value = found.value.unwrap_or(0);
                self.aggregate(table, hit, found.key, value)
            }
        };
        hit.here.count(outcome);
        if self.flags & PROBE_FREEZES != 0 {
            self.context.freeze();
        }
        Verdict::Keep
    }

    /// Records a hit; returns the outcome.
    #[inline(always)]
    pub(super) fn recorded(&self, hit: &Hit<'_>, fields: &[u64]) -> Outcome {
        match self.record(hit, fields) {
            true => Outcome::Recorded,
            false if self.context.is_frozen() => Outcome::Frozen,
            false => Outcome::LostFull,
        }
    }

    /// What a hit adds to its row: the program's value, else the duration of the call at its
    /// return, else one.
    fn value(&self, hit: &Hit<'_>, found: &Found<'_>) -> Option<u64> {
        match (found.value, &hit.ended) {
            (Some(value), _) => Some(value),
            (None, Some(_)) => hit.elapsed_ns(),
            (None, None) => Some(1),
        }
    }

    /// Adds the hit to a table, with its stack if that is part of the key.
    fn aggregate(&self, table: &Table, hit: &Hit<'_>, words: &[u64], value: u64) -> Outcome {
        if self.flags & PROBE_STACK != 0 {
            return self.aggregate_with_stack(table, hit, words, value);
        }
        let key = Key {
            words,
            stack: &[],
            stack_end: 0,
            stack_id: 0,
            container: &|| hit.container(),
        };
        self.put(table, hit, &key, value)
    }

    fn put(&self, table: &Table, hit: &Hit<'_>, key: &Key<'_>, value: u64) -> Outcome {
        let put = match self.sink {
            Sink::Span(_) => {
                let tid = hit.session_owner.tid(hit.current);
                table.begin(key, hit.now_ns, tid, value)
            }
            _ => table.add(key, hit.here.cpu, value),
        };
        match put {
            true => Outcome::Aggregated,
            false => Outcome::TurnedAway,
        }
    }

    /// As `aggregate`, with the stack in the key, or its id in the span. A stack that is not complete yet goes into the
    /// ring instead, and user space adds it to its row.
    #[inline(never)]
    fn aggregate_with_stack(
        &self,
        table: &Table,
        hit: &Hit<'_>,
        words: &[u64],
        value: u64,
    ) -> Outcome {
        let mut stack = Stack::new();
        if self.flags & PROBE_KERNEL_STACK != 0 {
            if let Some(innermost) = hit.kernel_stack() {
                push_kernel_frames(&mut stack, innermost);
            }
        }
        let mut end = self.capture(&mut stack, hit);
        if matches!(end, StackEnd::Copied | StackEnd::Fault) {
            if self.record_for_row(hit, &stack, end, (value, words)) {
                return Outcome::Recorded;
            }
            end = end.if_left();
        }
        let by_id = self.flags & PROBE_STACK_IDS != 0;
        let stack_id = match by_id {
            true => self.context.stack_id(&stack),
            false => None,
        };
        let key = Key {
            words,
            stack: if by_id { &[] } else { stack.words() },
            stack_end: end as u8,
            stack_id: stack_id.unwrap_or(0),
            container: &|| hit.container(),
        };
        let put = self.put(table, hit, &key, value);
        let is_cut = end.is_cut() || by_id && stack_id.is_none();
        if matches!(put, Outcome::Aggregated) && is_cut {
            hit.here.stack_cut();
        }
        put
    }
}

/// Begins a stack with the frames of the kernel. Out of line, as few
/// stacks have kernel frames.
#[cold]
#[inline(never)]
fn push_kernel_frames(stack: &mut Stack, innermost: Innermost) {
    let mut words = Words::<KERNEL_WORDS_MAX>::new();
    kernel_stack::append(&mut words, innermost);
    for (number, address) in words.as_slice().iter().enumerate().take(KERNEL_FRAMES_MAX) {
        let method = match number {
            0 => Method::Registers,
            _ => Method::Row,
        };
        stack.push(Frame::Address {
            address: *address,
            why: Unmapped::Kernel as u8,
            method: method as u8,
        });
    }
}
