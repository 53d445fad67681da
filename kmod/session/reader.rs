// SPDX-License-Identifier: GPL-2.0-only
//! `read()`: the records of all rings as one stream, oldest first, for a reader that does not map
//! them. It returns whole binary records, or lines of text, of which one is split only if the
//! buffer is shorter than it.
//!
//! A session is read or mapped, not both: two readers would take records from each other.

use crate::{
    common::{
        record::{Record, RECORD_BYTES_MAX},
        text::{self, LINE_BYTES_MAX}, //
    },
    ring::Rings,
    sys::memory::GFP_REQUEST,
};
use core::fmt;
use kernel::{
    prelude::*,
    uaccess::UserSliceWriter, //
};
use zerocopy::IntoBytes;

/// The state of `read()`.
pub(crate) struct Reader {
    /// The position in each ring; empty until the first `read()`.
    positions: KVec<u64>,
    /// One record, as it is in the ring.
    record: KVec<u64>,
    /// The part of the last record that was not returned yet.
    rest: Rest,
}

struct Rest {
    bytes: KVec<u8>,
    at: usize,
}

impl Rest {
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }
}

impl fmt::Write for Rest {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for &byte in part.as_bytes() {
            self.bytes
                .push_within_capacity(byte)
                .map_err(|_| fmt::Error)?;
        }
        Ok(())
    }
}

impl Reader {
    /// A reader at the beginning.
    pub(crate) fn new() -> Self {
        Reader {
            positions: KVec::new(),
            record: KVec::new(),
            rest: Rest {
                bytes: KVec::new(),
                at: 0,
            },
        }
    }

    /// Allocates the buffers.
    pub(crate) fn prepare(&mut self, rings: &Rings) -> Result {
        if !self.positions.is_empty() {
            self.skip_overwritten(rings);
            return Ok(());
        }
        let room = RECORD_BYTES_MAX.max(LINE_BYTES_MAX);
        self.rest.bytes = KVec::with_capacity(room, GFP_REQUEST)?;
        self.record = KVec::from_elem(0, RECORD_BYTES_MAX / 8, GFP_REQUEST)?;
        self.positions = KVec::from_elem(0, rings.as_slice().len(), GFP_REQUEST)?;
        self.skip_overwritten(rings);
        Ok(())
    }

    /// Continues at the oldest records that are there.
    fn skip_overwritten(&mut self, rings: &Rings) {
        for (position, ring) in self.positions.iter_mut().zip(rings.as_slice()) {
            if let Some(oldest) = ring.oldest() {
                if oldest.wrapping_sub(*position) as i64 > 0 {
                    *position = oldest;
                }
            }
        }
    }

    /// Whether there is anything to return.
    pub(crate) fn is_ready(&self, rings: &Rings) -> bool {
        !self.rest.unread().is_empty() || self.oldest(rings).is_some()
    }

    /// Fills `out` with what there is; returns the number of bytes. `EINVAL` if the next record
    /// does not fit.
    pub(crate) fn fill(
        &mut self,
        rings: &Rings,
        as_text: bool,
        out: &mut UserSliceWriter,
    ) -> Result<usize> {
        let room = out.len();
        loop {
            let unread = self.rest.unread();
            let begun = self.rest.at != 0 || room == out.len();
            if unread.len() > out.len() && !begun {
                return Ok(room.wrapping_sub(out.len()));
            }
            let part = unread.get(..unread.len().min(out.len())).unwrap_or(&[]);
            let done = room.wrapping_sub(out.len());
            match out.write_slice(part) {
                // Bytes already returned count; the rest stays for the next read.
                Err(_) if done != 0 => return Ok(done),
                written => written?,
            }
            self.rest.at = self.rest.at.wrapping_add(part.len());
            let done = room.wrapping_sub(out.len());
            let next = self.oldest(rings);
            match next {
                Some((_, _, length)) if !as_text && length > out.len() => {
                    return if done == 0 { Err(EINVAL) } else { Ok(done) };
                }
                Some(next) if !out.is_empty() => self.take(rings, next, as_text)?,
                _ => return Ok(done),
            }
        }
    }

    /// The ring whose next record is the oldest: its index, the position and the length.
    fn oldest(&self, rings: &Rings) -> Option<(usize, u64, usize)> {
        let heads = rings.as_slice().iter().zip(self.positions.iter());
        heads
            .enumerate()
            .filter_map(|(index, (ring, &position))| {
                let (time_ns, length) = ring.peek(position)?;
                Some((time_ns, index, position, length))
            })
            .min()
            .map(|(_, index, position, length)| (index, position, length))
    }

    /// Takes a record out of its ring.
    fn take(
        &mut self,
        rings: &Rings,
        (index, position, length): (usize, u64, usize),
        as_text: bool,
    ) -> Result {
        let record = self.record.as_mut_bytes().get_mut(..length).ok_or(EIO)?;
        let ring = rings.as_slice().get(index).ok_or(EIO)?;
        ring.take(position, record);
        if let Some(position) = self.positions.get_mut(index) {
            *position = position.wrapping_add(length as u64);
        }
        self.rest.bytes.clear();
        self.rest.at = 0;
        if !as_text {
            self.rest.bytes.extend_from_slice(record, GFP_REQUEST)?;
            return Ok(());
        }
        if let Ok(Some((Some(record), _))) = Record::parse(record) {
            text::write_line(&mut self.rest, &record).map_err(|_| EIO)?;
        }
        Ok(())
    }
}
