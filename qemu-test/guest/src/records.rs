// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a session's rings held, record by record.

use crate::session::{Ring, Session};
use nsprobe_common::record::{
    Frame, Hit, LateStack, Lost, ObjectRecord, OffRecord, Record, StackCopy, WriteRecord,
};
use std::collections::HashMap;
use zerocopy::IntoBytes;

/// Records taken out of rings.
#[derive(Default)]
pub(crate) struct Records {
    /// Hits with their frames, CPU by CPU in order.
    pub(crate) hits: Vec<(Hit, Vec<Frame>)>,
    /// What else each of `hits` has: the time since its entry, and fields.
    pub(crate) details: Vec<(Option<u64>, Vec<u64>)>,
    /// Announced objects by id.
    pub(crate) objects: HashMap<u32, ObjectRecord>,
    /// Changes to the traced programs.
    pub(crate) writes: Vec<WriteRecord>,
    /// Probes that were turned off.
    pub(crate) off: Vec<OffRecord>,
    /// Copies of stacks, with their words.
    pub(crate) copies: Vec<(StackCopy, Vec<u64>)>,
    /// Stacks that came late, with their frames.
    pub(crate) late: Vec<(LateStack, Vec<Frame>)>,
    /// Announced losses.
    pub(crate) lost: Vec<Lost>,
    /// The time of the last hit of each thread on each CPU.
    latest: HashMap<(u16, u32), u64>,
}

impl Records {
    /// Reads words that hold whole records.
    pub(crate) fn add(&mut self, words: &[u64]) {
        let mut bytes = words.as_bytes();
        while let Some((record, length)) = Record::parse(bytes).expect("records are well formed") {
            bytes = &bytes[length..];
            match record {
                Some(Record::Hit(hit, details)) => {
                    self.hits.push((*hit, details.frames.collect()));
                    self.details
                        .push((details.elapsed_ns, details.fields.to_vec()));
                }
                Some(Record::Object(object)) => {
                    self.objects.insert(object.id, *object);
                }
                Some(Record::Write(write)) => self.writes.push(*write),
                Some(Record::Off(off)) => self.off.push(*off),
                Some(Record::StackCopy(copy, _, words)) => {
                    self.copies.push((*copy, words.to_vec()));
                }
                Some(Record::LateStack(late, frames)) => self.late.push((*late, frames.collect())),
                Some(Record::Lost(lost)) => self.lost.push(*lost),
                // Those are read by `crate::tasks`.
                Some(Record::Task(..) | Record::Switch(_) | Record::Wake(_)) => {}
                Some(Record::Mappings(..)) => {}
                Some(Record::Unknown(kind, _)) => panic!("a record of unknown kind {kind}"),
                None => {}
            }
        }
        assert!(bytes.is_empty(), "{} bytes are left over", bytes.len());
    }

    /// Empties the rings.
    pub(crate) fn drain(&mut self, rings: &[Ring]) {
        for (number, ring) in rings.iter().enumerate() {
            let before = self.hits.len();
            self.add(&ring.read(true));
            let new = &self.hits[before..];
            // The order in a ring is that of the reservations; the time is that
            // of the hit, before its stack was taken. So the records of one thread
            // have rising times, and those of several may be off by a stack walk.
            for (hit, _) in new {
                assert_eq!(
                    usize::from(hit.cpu),
                    number,
                    "{hit:?} is in another CPU's ring"
                );
                let last = self.latest.insert((hit.cpu, hit.tid), hit.time_ns);
                assert!(
                    last <= Some(hit.time_ns),
                    "a thread's times run backwards: {hit:?}"
                );
            }
        }
    }

    /// The sum of the losses that were announced.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost.iter().map(|lost| lost.count).sum()
    }

    /// Reads a session's rings once.
    pub(crate) fn of(session: &Session) -> Records {
        let mut records = Records::default();
        records.drain(&session.rings());
        records
    }

    /// Hits of a probe.
    pub(crate) fn hits_of(&self, probe: u32) -> impl Iterator<Item = &(Hit, Vec<Frame>)> {
        self.hits.iter().filter(move |(hit, _)| hit.probe == probe)
    }
}
