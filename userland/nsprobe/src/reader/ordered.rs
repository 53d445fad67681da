// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of several batches in the order of their times.
//!
//! A record that comes late, as its writer was held up, still finds its place as long as
//! nothing after it was handed out.

use super::Copied;
use nsprobe_common::record::Record;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Batches that are merged. Those of the same time come in the order of their batches.
#[derive(Debug, Default)]
pub struct Ordered {
    /// By their numbers, which rise.
    batches: BTreeMap<u64, Copied>,
    /// Where the next record of each belongs, but for that of `taken`.
    heads: BinaryHeap<Reverse<(u64, u64)>>,
    /// The batch of the record that was handed out last, and how many bytes it had left.
    taken: Option<(u64, usize)>,
    next: u64,
    bytes: usize,
}

impl Ordered {
    /// Adds a batch.
    pub fn push(&mut self, batch: Copied) {
        let Some(place) = batch.next_place() else {
            return;
        };
        self.bytes += batch.bytes();
        self.heads.push(Reverse((place, self.next)));
        self.batches.insert(self.next, batch);
        self.next += 1;
    }

    /// Bytes of records that are left.
    pub fn bytes(&mut self) -> usize {
        self.settle();
        self.bytes
    }

    /// Whether there is a record of no later than `until_ns`.
    pub fn has(&mut self, until_ns: u64) -> bool {
        self.settle();
        let next = self.heads.peek();
        next.is_some_and(|Reverse((place, _))| *place <= until_ns)
    }

    /// The next record, when it is of no later than `until_ns`.
    pub fn next_record(&mut self, until_ns: u64) -> Option<Record<'_>> {
        if !self.has(until_ns) {
            return None;
        }
        let Reverse((_, number)) = self.heads.pop()?;
        let batch = self.batches.get_mut(&number)?;
        self.taken = Some((number, batch.bytes()));
        batch.next_record()
    }

    /// The records that are left, batch by batch.
    pub fn left(&self) -> impl Iterator<Item = Record<'_>> {
        self.batches.values().flat_map(Copied::left)
    }

    /// Enters where the next record of the last batch belongs.
    fn settle(&mut self) {
        let Some((number, before)) = self.taken.take() else {
            return;
        };
        let Some(batch) = self.batches.get(&number) else {
            return;
        };
        self.bytes -= before - batch.bytes();
        match batch.next_place() {
            Some(place) => self.heads.push(Reverse((place, number))),
            None => drop(self.batches.remove(&number)),
        }
    }
}
