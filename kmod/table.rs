// SPDX-License-Identifier: GPL-2.0-only
//! Tables that aggregate hits in the kernel, instead of recording each one.
//!
//! All memory is allocated when the table is made. Hits find and make rows without locks: a row's
//! first word says whether it is free, being written, or holds a key; the task that turns it from
//! free to busy owns it until it publishes it. A task that meets a busy row tries the next place,
//! so that it never waits for a task that was preempted. One key may get two rows that way; the
//! reader adds them up.
//!
//! A reader may take rows out. It claims them, so that no further hit finds them, and waits for those
//! that did: a hit adds to its row within the read section of its handler, or of RCU.
//!
//! One container does not take the table from others: a container that has all other rows of a set
//! does not get the last one.

use crate::{
    common::{
        abi::{self, Row, SpanOwner},
        table::{
            greatest_word, hash, hash_of_pairs, least_word, of_greatest_word, of_least_word, Kind,
            Shape, ROW_WORDS, WAYS,
        },
    },
    sys::{
        self,
        memory::{self, GFP_REQUEST}, //
    },
    used_rows::{MarkedRows, UsedRows}, //
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*, //
};
use zerocopy::IntoBytes;

/// The part of a row's state that says what it is: free, busy, or the high bits of its key's hash.
/// The rest counts how often the row was published, so that a task that copies the row notices if
/// it was given to another key meanwhile.
const TAG: u64 = !0xffff;
const FREE: u64 = 0;
const BUSY: u64 = 1 << 16;

// Words of a row, after its state; see `Row`.
const COUNT: usize = 1;
const SUM: usize = 2;
const LEAST: usize = 3;
const GREATEST: usize = 4;
const TIME: usize = 5;
const LENGTHS: usize = 6;
/// The thread that began a span, and the low half of the id of the container that has the row.
const TASK: usize = 7;
const KEY: usize = ROW_WORDS + 1;
const _: () = assert!(KEY == TASK + 1);

/// The key of a row, or what a span carries.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) words: &'a [u64],
    /// The words of the frames.
    pub(crate) stack: &'a [u64],
    /// Why the stack ended.
    pub(crate) stack_end: u8,
    /// Of a span whose stack the session keeps: the stack's id.
    pub(crate) stack_id: u32,
    /// The container that pays for the row; see [`SessionOwner::container`].
    ///
    /// [`SessionOwner::container`]: crate::filter::SessionOwner::container
    pub(crate) container: &'a dyn Fn() -> u64,
}

/// A span that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) began_ns: u64,
    pub(crate) value: u64,
}

pub(crate) struct Table {
    shape: Shape,
    /// Words of one row.
    stride: usize,
    seed: u64,
    words: KVVec<AtomicU64>,
    /// Of each set.
    used: KVVec<UsedRows>,
    turned_away: AtomicU64,
    /// The container of the first hit that was turned away, or zero.
    turned_away_of: AtomicU64,
    replaced: AtomicU64,
}

/// The words of one row.
#[derive(Clone, Copy)]
struct Place<'a> {
    words: &'a [AtomicU64],
    row: usize,
}

impl Table {
    /// Bytes that a table of this shape takes, or `None` if they overflow.
    pub(crate) fn bytes(shape: &Shape) -> Option<u64> {
        let words = shape.rows.checked_mul(shape.kept_words())?;
        let words = words.checked_add(sets_of(shape))?;
        (words as u64).checked_mul(8)
    }

    /// The shape that a request describes.
    pub(crate) fn shape_of(request: &abi::Table) -> Option<Shape> {
        Shape::new(request, nr_cpu_ids() as usize)
    }

    /// Makes an empty table.
    pub(crate) fn new(shape: Shape) -> Result<Self> {
        let count = shape.rows.checked_mul(shape.kept_words()).ok_or(EINVAL)?;
        Ok(Table {
            shape,
            stride: shape.kept_words(),
            seed: sys::random(),
            words: memory::zeroed(count)?,
            used: memory::made(sets_of(&shape), |_| Ok(UsedRows::default()))?,
            turned_away: AtomicU64::new(0),
            turned_away_of: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
        })
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Adds a hit; returns false if there is no row for it. Runs in handlers.
    pub(crate) fn add(&self, key: &Key<'_>, cpu: u32, value: u64) -> bool {
        let place = match self.shape.is_keyed() {
            true => self.find_or_make(key),
            false => self.place(cpu as usize),
        };
        match place {
            Some(place) => place.add(&self.shape, value as i64),
            None => return self.turn_away(key),
        }
        true
    }

    #[cold]
    fn turn_away(&self, key: &Key<'_>) -> bool {
        self.turned_away.fetch_add(1, Relaxed);
        let _ = self
            .turned_away_of
            .compare_exchange(0, (key.container)(), Relaxed, Relaxed);
        false
    }

    /// Begins a span; returns false if there is no row for it. Runs in handlers.
    pub(crate) fn begin(&self, key: &Key<'_>, now_ns: u64, tid: u32, value: u64) -> bool {
        let hash = self.hash(key.words, &[]);
        let claimed = match self.scan(hash, key, |place| place.has_words(key.words)) {
            Scan::Row(place, state) => place.claim(state).inspect(|_| {
                self.replaced.fetch_add(1, Relaxed);
            }),
            Scan::Free(place, state) => place.claim(state),
            Scan::Full => None,
        };
        let claimed = claimed.or_else(|| self.claim_free(hash, key));
        let Some(claimed) = claimed else {
            return self.turn_away(key);
        };
        let place = claimed.place;
        place.set(COUNT, 1);
        place.set(SUM, value);
        place.set(LEAST, key.stack_id.into());
        place.set(TIME, now_ns);
        place.set_task(tid, key);
        place.set_key(&self.shape, key);
        self.publish(claimed, hash);
        true
    }

    /// Ends the span of this key, if one has begun, at `latest_ns` at the latest. Runs in
    /// handlers.
    pub(crate) fn end(&self, key: &[u64], latest_ns: u64) -> Option<Span> {
        let hash = self.hash(key, &[]);
        let claimed = self.find_row(hash, key, latest_ns)?;
        let span = Span {
            began_ns: claimed.place.get(TIME),
            value: claimed.place.get(SUM),
        };
        self.free(claimed);
        Some(span)
    }

    /// Drops the span of row `index` if it is one of these owners', whose words rise; returns
    /// whether it was. Task context.
    pub(crate) fn drop_span(&self, index: usize, owners: &[SpanOwner]) -> bool {
        let Some(place) = self.place(index) else {
            return false;
        };
        let state = place.state();
        if matches!(state & TAG, FREE | BUSY) {
            return false;
        }
        let is_owned = || {
            let found = owners.binary_search_by_key(&place.get(KEY), |owner| owner.word);
            let owner = found.ok().and_then(|found| owners.get(found));
            owner.is_some_and(|owner| place.get(TIME) <= owner.latest_ns)
        };
        if !is_owned() {
            return false;
        }
        // The row is still the one that was looked at: `claim` fails otherwise.
        match place.claim(state) {
            Some(claimed) => {
                self.free(claimed);
                true
            }
            None => false,
        }
    }

    fn hash(&self, key: &[u64], stack: &[u64]) -> u64 {
        let seed = match stack {
            [] => self.seed,
            _ => hash_of_pairs(self.seed, stack),
        };
        let hash = hash(seed, key.iter());
        // Neither free nor busy.
        match hash & TAG {
            FREE | BUSY => hash | 1 << 63,
            _ => hash,
        }
    }

    fn place(&self, row: usize) -> Option<Place<'_>> {
        let start = row.checked_mul(self.stride)?;
        let words = self.words.get(start..start.checked_add(self.stride)?)?;
        Some(Place { words, row })
    }

    /// Publishes a row that this task owns: others may use it from here on.
    #[inline(always)]
    fn publish(&self, claimed: Claimed<'_>, hash: u64) {
        let row = claimed.place.row;
        if let Some(used) = self.used.get(row / WAYS) {
            used.mark(row % WAYS);
        }
        let version = claimed.version.wrapping_add(1) & !TAG;
        claimed.place.set_state(hash & TAG | version);
    }

    /// Frees a row that this task owns.
    #[inline(always)]
    fn free(&self, claimed: Claimed<'_>) {
        let row = claimed.place.row;
        if let Some(used) = self.used.get(row / WAYS) {
            used.unmark(row % WAYS);
        }
        claimed.place.set_state(FREE | claimed.version);
    }

    /// Finds the row of a key, or makes it.
    fn find_or_make(&self, key: &Key<'_>) -> Option<Place<'_>> {
        let hash = self.hash(key.words, key.stack);
        let is_its = |place: Place<'_>| place.has_key(&self.shape, key);
        let claimed = match self.scan(hash, key, is_its) {
            Scan::Row(place, _) => return Some(place),
            Scan::Free(place, state) => place.claim(state),
            Scan::Full => None,
        };
        let claimed = claimed.or_else(|| self.claim_free(hash, key))?;
        let place = claimed.place;
        place.set_task(0, key);
        place.set_key(&self.shape, key);
        self.publish(claimed, hash);
        Some(place)
    }

    /// The rows of a set.
    fn set(&self, first: usize) -> impl Iterator<Item = Place<'_>> {
        let rows = first..first.wrapping_add(WAYS);
        rows.filter_map(|row| self.place(row))
    }

    /// The marks of a set.
    #[inline(always)]
    fn marked(&self, first: usize) -> MarkedRows {
        let used = self.used.get(first / WAYS);
        used.map_or_else(MarkedRows::default, UsedRows::marked)
    }

    /// The rows of a set that are marked.
    #[inline(always)]
    fn rows_of(&self, first: usize, marked: MarkedRows) -> impl Iterator<Item = Place<'_>> {
        marked.filter_map(move |number| self.place(first.wrapping_add(number)))
    }

    /// Claims the row of a key's span that began at `latest_ns` at the latest.
    #[inline(always)]
    fn find_row(&self, hash: u64, key: &[u64], latest_ns: u64) -> Option<Claimed<'_>> {
        let sets = self.shape.sets(hash).into_iter();
        for place in sets.flat_map(|first| self.rows_of(first, self.marked(first))) {
            let state = place.state();
            let is_its = state & TAG == hash & TAG && place.has_words(key);
            if is_its && place.get(TIME) <= latest_ns {
                // The row holds that key unless it was given away since; `claim` fails then.
                if let Some(claimed) = place.claim(state) {
                    return Some(claimed);
                }
            }
        }
        None
    }

    /// Looks through the sets of a hash for the row that is its key's, or a free one that the
    /// key's container may take.
    #[inline(always)]
    fn scan(&self, hash: u64, key: &Key<'_>, is_its: impl Fn(Place<'_>) -> bool) -> Scan<'_> {
        let mut emptier = (0, None);
        for first in self.shape.sets(hash) {
            let marked = self.marked(first);
            let (count, free) = (marked.unmarked(), marked.first_unmarked());
            for place in self.rows_of(first, marked) {
                let state = place.state();
                if state & TAG == hash & TAG && is_its(place) {
                    return Scan::Row(place, state);
                }
            }
            if count > emptier.0 && (count > 1 || !self.is_for_others(first, key)) {
                emptier = (count, Some(first.wrapping_add(free)));
            }
        }
        let free = emptier.1.and_then(|row| self.place(row));
        match free.map(|place| (place, place.state())) {
            Some((place, state)) if state & TAG == FREE => Scan::Free(place, state),
            _ => Scan::Full,
        }
    }

    /// Whether the container of a key has all rows of a set but one.
    #[cold]
    fn is_for_others(&self, first: usize, key: &Key<'_>) -> bool {
        let container = (key.container)() as u32;
        self.set(first)
            .all(|place| place.state() & TAG == FREE || place.get(TASK) as u32 == container)
    }

    /// Claims any free row, after others have claimed what `scan` found.
    #[cold]
    fn claim_free(&self, hash: u64, key: &Key<'_>) -> Option<Claimed<'_>> {
        let is_free = |place: &Place<'_>| place.state() & TAG == FREE;
        self.shape.sets(hash).into_iter().find_map(|first| {
            let mut free = self.set(first).filter(is_free);
            let one = free.next()?;
            if free.next().is_none() && self.is_for_others(first, key) {
                return None;
            }
            one.claim(one.state() & !TAG | FREE)
        })
    }

    /// Fills in the numbers of hits turned away, and of spans replaced.
    pub(crate) fn report_losses(&self, rows: &mut abi::Rows) {
        rows.turned_away = self.turned_away.load(Relaxed);
        rows.turned_away_pidns = self.turned_away_of.load(Relaxed);
        rows.replaced = self.replaced.load(Relaxed);
    }

    /// Claims up to `most` rows from position `next` on; hits do not find them any more. Returns the
    /// next position, zero at the end. Positions go from set to set: a set whose rows were all claimed
    /// at once would turn hits away. Task context.
    #[inline(always)]
    pub(crate) fn claim_rows(
        &self,
        next: usize,
        taken: &mut KVVec<TakenRow>,
        most: usize,
    ) -> usize {
        let sets = (self.shape.rows / WAYS).max(1);
        let mut at = next;
        while at < self.shape.rows && taken.len() < most {
            let index = (at % sets).wrapping_mul(WAYS).wrapping_add(at / sets);
            at = at.wrapping_add(1);
            let Some(place) = self.place(index) else {
                continue;
            };
            let state = place.state();
            if matches!(state & TAG, FREE | BUSY) || place.claim(state).is_none() {
                continue;
            }
            // There is room for `most`.
            let _ = taken.push(TakenRow { index, state }, GFP_REQUEST);
        }
        if at < self.shape.rows {
            at
        } else {
            0
        }
    }

    /// Copies a claimed row, to which no hit adds any more, into `out`, which has room for it; `None`
    /// if it is empty. Task context.
    #[inline(always)]
    pub(crate) fn copy_taken(&self, taken: &TakenRow, out: &mut KVVec<u64>) -> Result<Option<()>> {
        let place = self.place(taken.index).ok_or(ENOENT)?;
        if place.get(COUNT) == 0 {
            return Ok(None);
        }
        place.copy(&self.shape, out)?;
        Ok(Some(()))
    }

    /// Frees a claimed row, to which no hit adds any more.
    pub(crate) fn free_taken(&self, taken: &TakenRow) {
        if let Some(place) = self.place(taken.index) {
            place.clear();
            self.free(taken.claimed(place));
        }
    }

    /// Puts a claimed row back.
    pub(crate) fn put_back(&self, taken: &TakenRow) {
        if let Some(place) = self.place(taken.index) {
            self.publish(taken.claimed(place), taken.state);
        }
    }

    /// Copies row `index` into `out`, which has room for it. `None` if the row is empty, an error
    /// if `index` is after the last row. Task context.
    pub(crate) fn copy(&self, index: usize, out: &mut KVVec<u64>) -> Result<Option<()>> {
        let place = self.place(index).ok_or(ENOENT)?;
        let state = place.state();
        if self.shape.is_keyed() && matches!(state & TAG, FREE | BUSY) {
            return Ok(None);
        }
        if place.get(COUNT) == 0 {
            return Ok(None);
        }
        place.copy(&self.shape, out)?;
        core::sync::atomic::fence(Acquire);
        // It was freed, or given to another key, while it was copied.
        Ok((place.state() == state).then_some(()))
    }
}

/// The number of sets.
fn sets_of(shape: &Shape) -> usize {
    shape.rows.div_ceil(WAYS)
}

/// What the sets of a hash have for a key, with the state that it had.
#[derive(Clone, Copy)]
enum Scan<'a> {
    /// The key's row.
    Row(Place<'a>, u64),
    /// No row, and this free one, of the emptier set.
    Free(Place<'a>, u64),
    /// Neither.
    Full,
}

/// A row that a reader has claimed, with the state that it had.
#[derive(Clone, Copy)]
pub(crate) struct TakenRow {
    index: usize,
    state: u64,
}

impl TakenRow {
    fn claimed<'a>(&self, place: Place<'a>) -> Claimed<'a> {
        Claimed {
            place,
            version: self.state & !TAG,
        }
    }
}

/// A row that this task owns and may write.
struct Claimed<'a> {
    place: Place<'a>,
    /// How often the row was published.
    version: u64,
}

impl<'a> Place<'a> {
    fn get(self, word: usize) -> u64 {
        self.words.get(word).map_or(0, |word| word.load(Relaxed))
    }

    fn set(self, word: usize, value: u64) {
        if let Some(word) = self.words.get(word) {
            word.store(value, Relaxed);
        }
    }

    fn state(self) -> u64 {
        self.words.first().map_or(BUSY, |state| state.load(Acquire))
    }

    fn set_state(self, state: u64) {
        if let Some(word) = self.words.first() {
            word.store(state, Release);
        }
    }

    /// Claims the row if its state is still `state`.
    fn claim(self, state: u64) -> Option<Claimed<'a>> {
        let word = self.words.first()?;
        let version = state & !TAG;
        word.compare_exchange(state, BUSY | version, Acquire, Relaxed)
            .ok()?;
        Some(Claimed {
            place: self,
            version,
        })
    }

    fn set_task(self, tid: u32, key: &Key<'_>) {
        let container = (key.container)() as u32;
        self.set(TASK, u64::from(tid) << 32 | u64::from(container));
    }

    fn has_words(self, key: &[u64]) -> bool {
        let own = self.words.get(KEY..).unwrap_or(&[]);
        own.len() >= key.len()
            && own
                .iter()
                .zip(key)
                .all(|(own, word)| own.load(Relaxed) == *word)
    }

    fn has_key(self, shape: &Shape, key: &Key<'_>) -> bool {
        let stack = self
            .words
            .get(KEY.wrapping_add(shape.key_words)..)
            .unwrap_or(&[]);
        self.get(LENGTHS) == lengths(shape, key)
            && self.has_words(key.words)
            && stack
                .iter()
                .zip(key.stack)
                .all(|(own, word)| own.load(Relaxed) == *word)
    }

    fn set_key(self, shape: &Shape, key: &Key<'_>) {
        self.set(LENGTHS, lengths(shape, key));
        let own = self.words.get(KEY..).unwrap_or(&[]);
        for (own, word) in own.iter().zip(key.words) {
            own.store(*word, Relaxed);
        }
        let stack = own.get(shape.key_words..).unwrap_or(&[]);
        for (own, word) in stack.iter().zip(key.stack).take(shape.stack_words) {
            own.store(*word, Relaxed);
        }
    }

    /// Adds a value to the row.
    fn add(self, shape: &Shape, value: i64) {
        let plus = |at: usize, more: u64| {
            if let Some(word) = self.words.get(at) {
                word.fetch_add(more, Relaxed);
            }
        };
        plus(COUNT, 1);
        plus(SUM, value as u64);
        self.raise(LEAST, least_word(value));
        self.raise(GREATEST, greatest_word(value));
        if let Kind::Histogram(scale) = shape.kind {
            let buckets = KEY
                .wrapping_add(shape.key_words)
                .wrapping_add(shape.stack_words);
            plus(buckets.wrapping_add(scale.bucket(value)), 1);
        }
    }

    /// Raises a word to at least `to`. The word seldom changes, so it is read first.
    fn raise(self, at: usize, to: u64) {
        if let Some(word) = self.words.get(at) {
            if word.load(Relaxed) < to {
                word.fetch_max(to, Relaxed);
            }
        }
    }

    /// Zeroes all but the row's state: what hits add is added to zero.
    fn clear(self) {
        for word in self.words.get(1..).unwrap_or(&[]) {
            word.store(0, Relaxed);
        }
    }

    /// Copies the row in the layout of the ABI. Part of requests: it may allocate.
    #[inline(always)]
    fn copy(self, shape: &Shape, out: &mut KVVec<u64>) -> Result {
        out.clear();
        self.copy_head(shape, out)?;
        for word in self.words.get(KEY..).unwrap_or(&[]) {
            out.push(word.load(Relaxed), GFP_REQUEST)?;
        }
        Ok(())
    }

    /// Copies the row's head in the layout of the ABI.
    #[inline(always)]
    fn copy_head(self, shape: &Shape, out: &mut KVVec<u64>) -> Result {
        let [_, stack_words, _, stack_end] = unpack(self.get(LENGTHS));
        let spans = shape.kind == Kind::Spans;
        let sum = self.get(SUM) as i64;
        let row = Row {
            count: self.get(COUNT),
            sum,
            least: match spans {
                true => self.get(LEAST) as i64,
                false => of_least_word(self.get(LEAST)),
            },
            greatest: match spans {
                true => sum,
                false => of_greatest_word(self.get(GREATEST)),
            },
            time_ns: self.get(TIME),
            key_words: shape.key_words as u16,
            stack_words,
            stack_capacity: shape.stack_words as u16,
            stack_end,
            buckets: shape.buckets() as u32,
            tid: (self.get(TASK) >> 32) as u32,
        };
        for bytes in row.as_bytes().chunks_exact(8) {
            let word = bytes
                .first_chunk()
                .map_or(0, |word| u64::from_ne_bytes(*word));
            out.push(word, GFP_REQUEST)?;
        }
        Ok(())
    }
}

/// Packs the lengths of a key's parts and the end of its stack into one word.
fn lengths(shape: &Shape, key: &Key<'_>) -> u64 {
    let stack = key.stack.len().min(shape.stack_words) as u64;
    (key.words.len() as u64) | stack << 16 | u64::from(key.stack_end) << 48
}

fn unpack(word: u64) -> [u16; 4] {
    let part = |shift: u32| word.wrapping_shr(shift) as u16;
    [part(0), part(16), part(32), part(48)]
}
