// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables that the kernel counts hits into, and their rows.

use crate::{sys, Error, Result};
use nix::errno::Errno;
use nsprobe_common::abi::{
    self, Row, ROWS_TAKE, SCALE_LINEAR, SCALE_LOG, TABLE_HISTOGRAM, TABLE_SPANS, TABLE_SUMS,
};
use nsprobe_common::frame::Frames;
use nsprobe_common::histogram::Scale;
use nsprobe_common::table::ROW_WORDS;
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use zerocopy::FromBytes;

/// Rows are fetched this number of bytes at a time, or one by one when they are longer.
const BUFFER_BYTES: usize = 1 << 18;
/// Rows are taken this number of bytes at a time: each time waits for the hits under way.
const TAKE_BYTES: usize = 4 << 20;

/// A table's number in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId(pub(crate) u32);

/// What a table keeps for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Count, sum, least and greatest of the values.
    Sums,
    /// Count, sum, least and greatest of the values, and a histogram.
    Histogram(Scale),
    /// Spans that have begun and not ended.
    Spans,
}

/// The requested table.
#[derive(Clone, Copy, Debug)]
pub struct TableSpec {
    /// What it keeps.
    pub kind: TableKind,
    /// Words of a key; with none, and no stack, there is one row.
    pub key_words: u32,
    /// Most frames of a stack that is part of the key (of a span: that goes with it).
    pub max_frames: u32,
    /// Most keys.
    pub rows: u32,
}

/// A table of a session.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    id: TableId,
    row_words: usize,
    kind: TableKind,
    is_keyed: bool,
}

/// What was in a table at one moment.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The rows, each key once, in no order.
    pub rows: Vec<TableRow>,
    /// Hits for which there was no row left, since the table was made.
    pub turned_away: u64,
    /// The pid namespace, below ours, of the first of them.
    pub turned_away_of: Option<u64>,
    /// Spans that were replaced by one of the same key, since then.
    pub replaced: u64,
}

/// What a table has for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    /// The key, as the program gave it.
    pub key: Vec<u64>,
    /// The words of the stack's frames.
    pub stack: Vec<u64>,
    /// Why the stack ends: a [`StackEnd`](nsprobe_common::record::StackEnd)'s number.
    pub stack_end: u8,
    /// Hits.
    pub count: u64,
    /// Sum of their values; of a span, its value.
    pub sum: i64,
    /// Least value; of a span, the id of its stack where the session keeps stacks.
    pub least: i64,
    /// Greatest value.
    pub greatest: i64,
    /// When a span began, CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The thread that began a span.
    pub tid: u32,
    /// How many values fell into each bucket.
    pub buckets: Vec<u64>,
}

impl TableSpec {
    fn request(&self) -> abi::Table {
        let mut request = abi::Table {
            rows: self.rows,
            key_words: self.key_words,
            max_frames: self.max_frames,
            ..abi::Table::default()
        };
        request.kind = match self.kind {
            TableKind::Sums => TABLE_SUMS,
            TableKind::Histogram(_) => TABLE_HISTOGRAM,
            TableKind::Spans => TABLE_SPANS,
        };
        match self.kind {
            TableKind::Histogram(Scale::Log { bits }) => {
                request.scale = SCALE_LOG;
                request.log_bits = bits;
            }
            TableKind::Histogram(Scale::Linear { low, step, buckets }) => {
                request.scale = SCALE_LINEAR;
                (request.low, request.step, request.buckets) = (low, step, buckets);
            }
            TableKind::Sums | TableKind::Spans => {}
        }
        request
    }

    pub(crate) fn make(&self, session: BorrowedFd<'_>) -> Result<Table> {
        let answer = sys::table(session, self.request()).map_err(|errno| {
            Error::Table(match errno {
                Errno::EINVAL => "its number of rows, its key or its scale cannot be".to_owned(),
                Errno::ENOSPC => format!("{} rows take more memory than a session may", self.rows),
                Errno::ENOMEM => format!("the kernel has no memory for {} rows", self.rows),
                errno => errno.to_string(),
            })
        })?;
        Ok(Table {
            id: TableId(answer.id),
            row_words: answer.row_bytes as usize / 8,
            kind: self.kind,
            is_keyed: self.key_words != 0 || self.max_frames != 0,
        })
    }
}

impl Table {
    /// Whether its rows can be taken: it has a key.
    pub fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// Its number, for [`Sink`](crate::Sink).
    pub fn id(&self) -> TableId {
        self.id
    }

    /// What it keeps.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    pub(crate) fn read(&self, session: BorrowedFd<'_>) -> Result<Rows> {
        self.rows(session, 0, BUFFER_BYTES)
    }

    /// Takes the rows; it has a key.
    pub(crate) fn take(&self, session: BorrowedFd<'_>) -> Result<Rows> {
        self.rows(session, ROWS_TAKE, TAKE_BYTES)
    }

    fn rows(&self, session: BorrowedFd<'_>, flags: u32, bytes: usize) -> Result<Rows> {
        let failed = |errno| Error::Request {
            request: "ROWS",
            errno,
        };
        let mut buffer = vec![0u64; (bytes / 8).max(self.row_words)];
        let mut merged = Merged::default();
        let mut next = 0;
        loop {
            let answer = sys::rows(session, self.id.0, next, flags, &mut buffer).map_err(failed)?;
            for words in buffer
                .chunks_exact(self.row_words)
                .take(answer.count as usize)
            {
                match (TableRow::parse(words), self.kind) {
                    // A key that ended and began again meanwhile may be read twice.
                    (Some(row), TableKind::Spans) => merged.take_later(row),
                    (Some(row), _) => merged.add(row),
                    (None, _) => {}
                }
            }
            next = answer.next;
            if next == 0 {
                return Ok(Rows {
                    rows: merged.rows,
                    turned_away: answer.turned_away,
                    turned_away_of: Some(answer.turned_away_pidns).filter(|id| *id != 0),
                    replaced: answer.replaced,
                });
            }
        }
    }
}

impl Rows {
    /// These rows with those of one key added up, where keys were changed.
    pub fn added_up(self) -> Rows {
        let mut merged = Merged::default();
        for row in self.rows {
            merged.add(row);
        }
        Rows {
            rows: merged.rows,
            ..self
        }
    }
}

/// Rows by what they are found by.
#[derive(Default)]
struct Merged {
    rows: Vec<TableRow>,
    places: HashMap<(Vec<u64>, Vec<u64>, u8), usize>,
}

impl Merged {
    /// Takes a span, in place of an older one of its key.
    fn take_later(&mut self, row: TableRow) {
        let key = (row.key.clone(), Vec::new(), 0);
        match self.places.entry(key) {
            Entry::Occupied(place) => {
                if let Some(known) = self.rows.get_mut(*place.get()) {
                    if known.time_ns < row.time_ns {
                        *known = row;
                    }
                }
            }
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push(row);
            }
        }
    }

    /// Adds a row to that of its key. Where a caller was found by its place on top of the stack
    /// it is the same as by a row, which was not there yet: the first one's words stay.
    fn add(&mut self, row: TableRow) {
        let stack = Frames(&row.stack).flat_map(|frame| {
            let (words, count) = frame.by_row().encode();
            words.into_iter().take(count)
        });
        let key = (row.key.clone(), stack.collect(), row.stack_end);
        match self.places.entry(key) {
            Entry::Occupied(place) => {
                if let Some(known) = self.rows.get_mut(*place.get()) {
                    known.add(&row);
                }
            }
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push(row);
            }
        }
    }
}

impl TableRow {
    fn parse(words: &[u64]) -> Option<TableRow> {
        let (head, rest) = words.split_at_checked(ROW_WORDS)?;
        let head = Row::read_from_bytes(zerocopy::IntoBytes::as_bytes(head)).ok()?;
        let (key, rest) = rest.split_at_checked(head.key_words.into())?;
        let (stack, rest) = rest.split_at_checked(head.stack_capacity.into())?;
        Some(TableRow {
            key: key.to_vec(),
            stack: stack.get(..head.stack_words.into())?.to_vec(),
            stack_end: head.stack_end as u8,
            count: head.count,
            sum: head.sum,
            least: head.least,
            greatest: head.greatest,
            time_ns: head.time_ns,
            tid: head.tid,
            buckets: rest.get(..head.buckets as usize)?.to_vec(),
        })
    }

    fn add(&mut self, other: &TableRow) {
        self.count = self.count.wrapping_add(other.count);
        self.sum = self.sum.wrapping_add(other.sum);
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.wrapping_add(*more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(key: u64, count: u64, sum: i64) -> TableRow {
        TableRow {
            key: vec![key],
            count,
            sum,
            least: sum,
            greatest: sum,
            buckets: vec![count, 0],
            ..TableRow::default()
        }
    }

    #[test]
    fn rows_of_one_key_are_added_up() {
        let mut merged = Merged::default();
        for row in [row(1, 2, 10), row(2, 1, 1), row(1, 3, -4)] {
            merged.add(row);
        }
        let [first, second] = merged.rows.as_slice() else {
            panic!("two keys");
        };
        assert_eq!((first.count, first.sum), (5, 6));
        assert_eq!((first.least, first.greatest), (-4, 10));
        assert_eq!(first.buckets, [5, 0]);
        assert_eq!(second.count, 1);
    }

    #[test]
    fn of_a_span_that_is_read_twice_the_later_one_is_taken() {
        let mut merged = Merged::default();
        for (sum, time_ns) in [(10, 5), (7, 9), (8, 6)] {
            merged.take_later(TableRow {
                time_ns,
                ..row(1, 1, sum)
            });
        }
        let [span] = merged.rows.as_slice() else {
            panic!("one key");
        };
        assert_eq!((span.sum, span.time_ns), (7, 9));
    }

    proptest! {
        #[test]
        fn no_row_panics(words in prop::collection::vec(any::<u64>(), 0..40)) {
            let _ = TableRow::parse(&words);
        }
    }
}
