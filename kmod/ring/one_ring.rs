// SPDX-License-Identifier: GPL-2.0-only
//! The ring of one CPU: appending to it, and reading from it for `read()`.

use crate::{
    common::{
        record::{
            body_of,
            Header,
            Lost,
            WriteRecord,
            BUSY,
            KIND_HIT,
            KIND_LATE_STACK,
            KIND_LOST,
            KIND_OBJECT,
            KIND_STACK_COPY,
            KIND_WRITE,
            LENGTH,
            RECORD_BYTES_MAX, //
        },
        ring::{Geometry, Reservation}, //
    },
    sys::{
        lock::{raw_lock, RawLock},
        pages::RingPages, //
    },
};
use kernel::{mm::virt::VmaNew, prelude::*};
use zerocopy::transmute_ref;

/// The fraction of a ring that one copy of a stack may take.
const COPY_SHARE: u64 = 8;
const LOST_BYTES: u64 = size_of::<Lost>() as u64;
/// The longest record that is copied under the lock, with interrupts off.
const WHOLE_BYTES: u64 = 512;
/// Most records that are looked at under the lock.
const LOOKS_MAX: u32 = 64;
/// Most times that a long record takes the lock for its room: that of [`LOOKS_MAX`] others each
/// time, which is enough for any.
const LONG_STEPS_MAX: u32 = 32;
const LENGTH_MASK: u64 = LENGTH as u64;
const _: () = {
    let shortest = size_of::<Header>() + size_of::<u64>();
    let room = shortest * (LOOKS_MAX * LONG_STEPS_MAX) as usize;
    assert!(room >= RECORD_BYTES_MAX + size_of::<Lost>());
};

/// Records lost since the last one that fitted.
#[derive(Default)]
struct Gap {
    count: u64,
    first_ns: u64,
    last_ns: u64,
}

#[derive(Default)]
struct State {
    producer: u64,
    pending: u64,
    lost: u64,
    gap: Gap,
    /// In rings that overwrite: the position of the oldest record, and the number of hits
    /// overwritten.
    oldest: u64,
    overwritten: u64,
    frozen: bool,
}

pub(crate) struct Ring {
    pages: RingPages,
    geometry: Geometry,
    overwrites: bool,
    state: RawLock<State>,
}

impl Ring {
    pub(super) fn new(geometry: Geometry, overwrites: bool) -> Result<Self> {
        Ok(Ring {
            pages: RingPages::new(geometry)?,
            geometry,
            overwrites,
            state: raw_lock!(State::default()),
        })
    }

    /// Appends a record of `kind` whose body (what follows the header) is `first` and then `parts`, in
    /// words. Returns the position after it, or `None` if the ring has no room.
    #[inline(always)]
    pub(super) fn append<const N: usize>(
        &self,
        kind: u16,
        first: &[u64; N],
        parts: &[&[u64]],
        now_ns: u64,
    ) -> Option<u64> {
        let body = parts.iter().fold(size_of_val(first), |sum, part| {
            sum.wrapping_add(size_of_val(*part))
        });
        let header = header(kind, body);
        if header & LENGTH_MASK > WHOLE_BYTES {
            return self.append_in_steps(header, first, parts, now_ns);
        }
        self.append_whole(header, now_ns, is_counted(kind), |start| {
            self.pages.write_record(start, header, first, parts);
        })
    }

    /// Appends a record under the lock, so that a writer that is preempted holds up no other.
    /// `write` writes it to a position, once there is room.
    #[inline(always)]
    fn append_whole(
        &self,
        header: u64,
        now_ns: u64,
        counts: bool,
        write: impl FnOnce(u64),
    ) -> Option<u64> {
        let mut state = self.state.lock();
        let at = self.reserve(&mut state, header & LENGTH_MASK, now_ns, counts)?;
        write(at.start);
        if state.pending == state.producer {
            state.pending = at.end;
        }
        self.publish(&mut state, at.end);
        Some(at.end)
    }

    /// Appends a record that is too long to be copied with interrupts off: it is published when its
    /// room is reserved, and BUSY until it is complete.
    #[inline(never)]
    fn append_in_steps(
        &self,
        header: u64,
        first: &[u64],
        parts: &[&[u64]],
        now_ns: u64,
    ) -> Option<u64> {
        let (kind, length) = ((header >> 32) as u16, header & LENGTH_MASK);
        // In a small ring a copy would take the room of many hits.
        if kind == KIND_STACK_COPY && length > self.geometry.data_bytes() / COPY_SHARE {
            return None;
        }
        self.make_long_room(length);
        let at = {
            let mut state = self.state.lock();
            let at = self.reserve(&mut state, length, now_ns, is_counted(kind))?;
            self.pages.set_header(at.start, header | u64::from(BUSY));
            self.publish(&mut state, at.end);
            at
        };
        self.pages.write_parts(body_at(at.start), first, parts);
        self.pages.set_header(at.start, header);
        Some(at.end)
    }

    /// Reserves `length` bytes after a record of the gap if there is one. `counts` says whether
    /// the record counts as lost when there is no room.
    #[inline(always)]
    fn reserve(
        &self,
        state: &mut State,
        length: u64,
        now_ns: u64,
        counts: bool,
    ) -> Option<Reservation> {
        if state.pending != state.producer {
            self.see_committed(state);
        }
        let note = if state.gap.count == 0 { 0 } else { LOST_BYTES };
        let wanted = length.wrapping_add(note);
        let consumer = match self.overwrites {
            // The reader's position is valid only while the ring is frozen.
            true if state.frozen => return None,
            true => {
                self.make_room(state, wanted);
                state.oldest
            }
            false => self.pages.consumer(),
        };
        let Some(all) = self
            .geometry
            .reserve(consumer, state.pending, state.producer, wanted)
        else {
            if counts {
                state.lose(now_ns);
                self.pages.set_lost(state.lost);
            }
            return None;
        };
        if note != 0 {
            self.write_gap(all.start, &state.gap);
            state.gap = Gap::default();
        }
        Some(Reservation {
            start: all.start.wrapping_add(note),
            end: all.end,
        })
    }

    fn publish(&self, state: &mut State, end: u64) {
        state.producer = end;
        self.pages.set_producer(end);
    }

    /// Moves `pending` past complete records, up to [`LOOKS_MAX`] of them. They lie after a long
    /// one that was being written, and each call sees more of them than it adds.
    #[cold]
    #[inline(never)]
    fn see_committed(&self, state: &mut State) {
        for _ in 0..LOOKS_MAX {
            let header = self.pages.header(state.pending) as u32;
            if state.pending == state.producer || header & BUSY != 0 {
                break;
            }
            state.pending = state.pending.wrapping_add(u64::from(header & LENGTH));
        }
    }

    /// Sees what is complete, and makes room for a long record, in steps with the lock free and
    /// interrupts on between them.
    fn make_long_room(&self, length: u64) {
        let wanted = length.wrapping_add(LOST_BYTES);
        for _ in 0..LONG_STEPS_MAX {
            let mut state = self.state.lock();
            let before = (state.pending, state.oldest);
            self.see_committed(&mut state);
            if self.overwrites && !state.frozen {
                self.make_room(&mut state, wanted);
            }
            if before == (state.pending, state.oldest) {
                break;
            }
        }
    }

    /// Drops the oldest records, up to [`LOOKS_MAX`] of them, until there is room for `wanted`
    /// bytes, or until the oldest one is still being written. A writer owns the room of its record
    /// until it commits it, and that room is at or after `pending`.
    #[cold]
    fn give_up(&self, state: &mut State, wanted: u64) {
        let bytes = self.geometry.data_bytes();
        for _ in 0..LOOKS_MAX {
            let used = state.producer.wrapping_sub(state.oldest);
            if used.saturating_add(wanted) <= bytes || state.oldest == state.pending {
                break;
            }
            let header = self.pages.header(state.oldest);
            if header.wrapping_shr(32) as u16 == KIND_HIT {
                state.overwritten = state.overwritten.wrapping_add(1);
            }
            let length = (header as u32 & LENGTH).max(size_of::<Header>() as u32);
            state.oldest = state.oldest.wrapping_add(length.into());
        }
        self.pages.set_overwritten(state.overwritten);
    }

    fn make_room(&self, state: &mut State, wanted: u64) {
        let bytes = self.geometry.data_bytes();
        let used = state.producer.wrapping_sub(state.oldest);
        if wanted <= bytes && used.saturating_add(wanted) > bytes {
            self.give_up(state, wanted);
        }
    }

    /// Stops taking records and gives the reader the position of the oldest one, or starts again
    /// with an empty ring.
    pub(super) fn freeze(&self, freeze: bool) {
        let mut state = self.state.lock();
        if state.frozen == freeze {
            return;
        }
        state.frozen = freeze;
        match freeze {
            true => self.pages.set_consumer(state.oldest),
            // Records that are being written stay.
            false => state.oldest = state.pending,
        }
    }

    /// Sees all records of a frozen ring that are complete. Task context.
    pub(super) fn see_all_committed(&self) {
        loop {
            let mut state = self.state.lock();
            let before = state.pending;
            if state.frozen {
                self.see_committed(&mut state);
            }
            if state.pending == before {
                break;
            }
        }
    }

    /// The position of the oldest record, in a ring that overwrites.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.overwrites.then(|| self.state.lock().oldest)
    }

    fn write_gap(&self, at: u64, gap: &Gap) {
        let lost = Lost {
            header: Header {
                word: LOST_BYTES as u32,
                kind: KIND_LOST,
                reserved: 0,
            },
            time_ns: gap.last_ns,
            count: gap.count,
            first_ns: gap.first_ns,
        };
        let words: &[u64; LOST_BYTES as usize / 8] = transmute_ref!(&lost);
        self.pages.write(at, words);
    }

    /// As `append` for the record of a change, which `make` makes once there is room.
    pub(super) fn append_change(
        &self,
        now_ns: u64,
        make: impl FnOnce() -> WriteRecord,
    ) -> Option<u64> {
        let header = header(KIND_WRITE, size_of::<WriteRecord>() - size_of::<Header>());
        self.append_whole(header, now_ns, false, |start| {
            let record = make();
            let words: &[u64; size_of::<WriteRecord>() / 8] = transmute_ref!(&record);
            self.pages.write(body_at(start), body_of(words));
            self.pages.set_header(start, header);
        })
    }

    /// Bytes that wait for the reader, according to the reader's own position.
    pub(super) fn used(&self) -> u64 {
        let producer = self.state.lock().producer;
        self.unread_until(producer)
    }

    /// Bytes between the reader's own position and this one.
    #[inline(always)]
    pub(super) fn unread_until(&self, end: u64) -> u64 {
        self.geometry.used(self.pages.consumer(), end)
    }

    /// Maps pages of the ring; see [`RingPages::map`].
    pub(super) fn map(&self, first: usize, vma: &VmaNew) -> Result {
        self.pages.map(first, vma)
    }

    /// The time and length of the record at `position`, if it is complete.
    pub(crate) fn peek(&self, position: u64) -> Option<(u64, usize)> {
        if position == self.state.lock().producer {
            return None;
        }
        let header = self.pages.header(position) as u32;
        if header & BUSY != 0 {
            return None;
        }
        let time_at = position.wrapping_add(size_of::<Header>() as u64);
        Some((self.pages.header(time_at), (header & LENGTH) as usize))
    }

    /// Copies the complete record at `position` to `out`.
    pub(crate) fn copy(&self, position: u64, out: &mut [u8]) {
        self.pages.read(position, out);
    }

    /// Frees the space in front of `position`.
    pub(crate) fn free(&self, position: u64) {
        self.pages.set_consumer(position);
    }
}

/// The header of a complete record with a body of `body` bytes.
#[inline(always)]
fn header(kind: u16, body: usize) -> u64 {
    let length = size_of::<Header>().wrapping_add(body) as u64;
    u64::from(kind) << 32 | length & LENGTH_MASK
}

/// Where the body of the record at a position is.
#[inline(always)]
fn body_at(start: u64) -> u64 {
    start.wrapping_add(size_of::<Header>() as u64)
}

/// Whether a record of this kind counts as lost when there is no room. A lost announcement loses no
/// data: the reader can ask for the object. A lost stack is noticed at its hit.
#[inline(always)]
fn is_counted(kind: u16) -> bool {
    !matches!(kind, KIND_OBJECT | KIND_STACK_COPY | KIND_LATE_STACK)
}

impl State {
    fn lose(&mut self, now_ns: u64) {
        if self.gap.count == 0 {
            self.gap.first_ns = now_ns;
        }
        self.gap.last_ns = now_ns;
        self.gap.count = self.gap.count.wrapping_add(1);
        self.lost = self.lost.wrapping_add(1);
    }
}
