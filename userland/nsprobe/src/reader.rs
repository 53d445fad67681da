// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads all rings of a session and merges their records by time.
//!
//! # The order of records
//!
//! Records of one batch come sorted by time, except that objects come first:
//! the objects of a hit come before it. From batch to batch, time does not
//! go back either as long as every writer commits its record within
//! [`SETTLE_NS`] of taking its time: records younger than that stay in their
//! rings until the next batch ([`Reader::settled`]). A writer that is held up
//! for longer between the two shows up late, with its true time; nothing is
//! lost or told twice. On one CPU the order is always that of the ring.
//!
//! Who can wait longer than rings have room takes the records out at once, and puts the copies
//! ([`Batch::copy`]) into one order with [`Ordered`]: up to [`Reader::read_up_to`], less the time
//! that a writer may take.

mod ordered;

pub use ordered::Ordered;

use crate::error::{Error, Result};
use crate::sys::{self, MappedRing};
use nsprobe_common::record::{Corrupt, Record};
use zerocopy::IntoBytes;

/// How long a record may take from its time stamp to its commit without coming
/// out of order: generous for a stack walk, and below what a person notices.
pub const SETTLE_NS: u64 = 1_000_000;

/// The reader of a session's rings.
#[derive(Debug)]
pub struct Reader {
    rings: Vec<MappedRing>,
    /// Records of the batch being read; kept for its memory.
    index: Vec<RecordAt>,
    /// Where each ring's part of the batch ends.
    ends: Vec<u64>,
    /// When each ring was last read to its end.
    whole_ns: Vec<u64>,
    lost: u64,
    /// Whether the kernel leaves the records alone: not while it overwrites them.
    is_settled: bool,
}

/// Where a record of a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RecordAt {
    time_ns: u64,
    ring: u32,
    position: u64,
}

/// The records of one round over the rings; dropping it gives their room back.
#[derive(Debug)]
pub struct Batch<'a> {
    reader: &'a mut Reader,
}

impl Reader {
    pub(crate) fn new(rings: Vec<MappedRing>, is_settled: bool) -> Reader {
        let ends = rings.iter().map(MappedRing::consumed).collect();
        Reader {
            whole_ns: vec![sys::monotonic_ns(); rings.len()],
            rings,
            index: Vec::new(),
            ends,
            lost: 0,
            is_settled,
        }
    }

    /// The rings were frozen permanently: their records are available from here on.
    pub(crate) fn settle(&mut self) {
        if !self.is_settled {
            self.rings.iter_mut().for_each(MappedRing::go_to_oldest);
            self.is_settled = true;
        }
    }

    /// Hits whose records others have taken the place of.
    pub fn overwritten(&self) -> u64 {
        self.rings.iter().map(MappedRing::overwritten).sum()
    }

    /// Now, in the clock of the records.
    pub fn now() -> u64 {
        sys::monotonic_ns()
    }

    /// The time up to which all records are in their rings now.
    pub fn settled() -> u64 {
        sys::monotonic_ns().saturating_sub(SETTLE_NS)
    }

    /// Records that found no room, as announced in the rings.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that found no room, as the rings count them: ahead of [`lost`](Self::lost) until the
    /// next record announces them.
    pub fn lost_in_rings(&self) -> u64 {
        self.rings.iter().map(MappedRing::lost).sum()
    }

    /// When all rings were last read to their ends, of which a record that is still being
    /// written can keep us. Whatever is in a ring yet was put there after this time, and so was
    /// all that its thread records after it, on whatever CPU.
    pub fn read_up_to(&self) -> u64 {
        self.whole_ns.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Takes all committed records up to the time `until_ns`, of all rings.
    pub fn collect(&mut self, until_ns: u64) -> Result<Batch<'_>> {
        let now_ns = sys::monotonic_ns();
        self.index.clear();
        for (end, ring) in self.ends.iter_mut().zip(&self.rings) {
            *end = match self.is_settled {
                true => ring.producer(),
                false => ring.consumed(),
            };
        }
        for number in 0..self.rings.len() {
            let is_whole = self.scan(number, until_ns)?;
            if let (true, Some(whole_ns)) = (is_whole, self.whole_ns.get_mut(number)) {
                *whole_ns = now_ns;
            }
        }
        self.index.sort_unstable();
        Ok(Batch { reader: self })
    }

    /// Takes everything that is committed, for the end of a session.
    pub fn collect_rest(&mut self) -> Result<Batch<'_>> {
        self.collect(u64::MAX)
    }

    /// Enters one ring's committed records into the index and moves its end
    /// after the last of them; whether that is all that was in the ring.
    fn scan(&mut self, number: usize, until_ns: u64) -> Result<bool> {
        let (Some(ring), Some(end)) = (self.rings.get(number), self.ends.get_mut(number)) else {
            return Ok(true);
        };
        let mut position = ring.consumed();
        let mut latest = 0;
        loop {
            let corrupt = |why| Error::Corrupt {
                ring: number,
                position,
                why,
            };
            let Some(bytes) = ring.record(position, *end).map_err(corrupt)? else {
                break;
            };
            let Some((record, length)) = Record::parse(bytes).map_err(corrupt)? else {
                break;
            };
            if let Some(record) = record {
                // Within a ring the order of the records is kept.
                latest = latest.max(time_of(&record));
                if latest > until_ns {
                    break;
                }
                let is_object = matches!(record, Record::Object(_));
                if let Record::Lost(lost) = record {
                    self.lost = self.lost.saturating_add(lost.count);
                }
                self.index.push(RecordAt {
                    time_ns: if is_object { 0 } else { latest },
                    ring: number as u32,
                    position,
                });
            }
            position = position.wrapping_add(length as u64);
        }
        let is_whole = *end == position;
        *end = position;
        Ok(is_whole)
    }

    fn record(&self, entry: RecordAt) -> std::result::Result<Option<Record<'_>>, Corrupt> {
        let Some(bytes) = self.bytes(entry)? else {
            return Ok(None);
        };
        Ok(Record::parse(bytes)?.and_then(|(record, _)| record))
    }

    fn bytes(&self, entry: RecordAt) -> std::result::Result<Option<&[u8]>, Corrupt> {
        let ring = entry.ring as usize;
        let (Some(ring), Some(&end)) = (self.rings.get(ring), self.ends.get(ring)) else {
            return Ok(None);
        };
        ring.record(entry.position, end)
    }
}

fn time_of(record: &Record<'_>) -> u64 {
    match record {
        Record::Hit(hit, _) => hit.time_ns,
        Record::Object(object) => object.time_ns,
        Record::Lost(lost) => lost.time_ns,
        Record::Write(write) => write.time_ns,
        Record::Off(off) => off.time_ns,
        Record::StackCopy(copy, ..) => copy.time_ns,
        Record::LateStack(late, _) => late.time_ns,
        Record::Task(task, _) => task.time_ns,
        Record::Switch(switch) => switch.time_ns,
        Record::Wake(wake) => wake.time_ns,
        Record::Mappings(mappings, _) => mappings.time_ns,
        // Every kind's body begins with its time.
        Record::Unknown(_, body) => {
            let bytes = body.first_chunk().copied().unwrap_or_default();
            u64::from_ne_bytes(bytes)
        }
    }
}

impl Batch<'_> {
    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let reader = &*self.reader;
        // `scan` has parsed each of these already: none fails here.
        reader
            .index
            .iter()
            .filter_map(|&entry| reader.record(entry).ok().flatten())
    }

    /// The records in memory of their own: the rings have their room back as soon as this
    /// batch is dropped, whatever time the records take. They are sorted by their times, also
    /// where a ring has them otherwise, after objects.
    pub fn copy(&self) -> Copied {
        let reader = &*self.reader;
        let entries = reader.index.iter().copied().map(own_time(reader));
        let mut entries: Vec<(u64, RecordAt)> = entries.collect();
        entries.sort_unstable();
        let mut copied = Copied::default();
        for (_, entry) in entries {
            if let Ok(Some(bytes)) = reader.bytes(entry) {
                copied.push(bytes);
            }
        }
        copied
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.reader.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.reader.index.is_empty()
    }
}

/// The time of a record beside its entry; none for objects, which come first.
fn own_time(reader: &Reader) -> impl Fn(RecordAt) -> (u64, RecordAt) + '_ {
    move |entry| {
        let record = reader.record(entry).ok().flatten();
        (record.as_ref().map_or(0, place_of), entry)
    }
}

/// Where a record belongs among others.
fn place_of(record: &Record<'_>) -> u64 {
    match record {
        Record::Object(_) => 0,
        record => time_of(record),
    }
}

/// Records out of the rings, by their times.
#[derive(Debug, Default)]
pub struct Copied {
    words: Vec<u64>,
    /// Where the next one is.
    at: usize,
}

impl Copied {
    fn push(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(size_of::<u64>());
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        self.words.extend(words.map(word));
    }

    /// All records, those that were taken included, as the rings had them.
    pub fn as_bytes(&self) -> &[u8] {
        self.words.as_bytes()
    }

    /// All records, those that were taken included.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        Copied::records_of(&self.words)
    }

    /// The records that are left.
    pub fn left(&self) -> impl Iterator<Item = Record<'_>> {
        Copied::records_of(self.words.get(self.at..).unwrap_or_default())
    }

    fn records_of(words: &[u64]) -> impl Iterator<Item = Record<'_>> {
        let mut rest = words.as_bytes();
        std::iter::from_fn(move || {
            let (record, length) = Record::parse(rest).ok()??;
            rest = rest.get(length..)?;
            Some(record)
        })
        .flatten()
    }

    /// Bytes that are left.
    pub fn bytes(&self) -> usize {
        size_of_val(self.words.get(self.at..).unwrap_or_default())
    }

    /// Where the next record belongs among others: its time, and in front of all for an object.
    fn next_place(&self) -> Option<u64> {
        self.left().next().as_ref().map(place_of)
    }

    /// The next record.
    pub fn next_record(&mut self) -> Option<Record<'_>> {
        loop {
            let left = self.words.get(self.at..)?;
            // They were parsed when they were collected: none fails here.
            let (record, length) = Record::parse(left.as_bytes()).ok()??;
            self.at += length / size_of::<u64>();
            if record.is_some() {
                return record;
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let Reader { rings, ends, .. } = &mut *self.reader;
        for (ring, &end) in rings.iter_mut().zip(ends.iter()) {
            ring.release(end);
        }
    }
}

#[cfg(test)]
mod tests;
