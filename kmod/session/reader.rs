// SPDX-License-Identifier: GPL-2.0-only
//! `read()`: the records of all rings as one stream, oldest first, for a reader that does not map
//! them. It returns whole records.
//!
//! A session is read or mapped, not both: two readers would take records from each other.

use crate::{
    common::record::RECORD_BYTES_MAX,
    ring::Rings,
    sys::memory::GFP_REQUEST, //
};
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
}

impl Reader {
    /// A reader at the beginning.
    pub(crate) fn new() -> Self {
        Reader {
            positions: KVec::new(),
            record: KVec::new(),
        }
    }

    /// Allocates the buffers.
    pub(crate) fn prepare(&mut self, rings: &Rings) -> Result {
        if !self.positions.is_empty() {
            self.skip_overwritten(rings);
            return Ok(());
        }
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
        self.oldest(rings).is_some()
    }

    /// Fills `out` with what there is; returns the number of bytes. `EINVAL` if the next record
    /// does not fit.
    pub(crate) fn fill(&mut self, rings: &Rings, out: &mut UserSliceWriter) -> Result<usize> {
        let room = out.len();
        loop {
            let done = room.wrapping_sub(out.len());
            let Some((index, position, length)) = self.oldest(rings) else {
                return Ok(done);
            };
            if length > out.len() {
                return if done == 0 { Err(EINVAL) } else { Ok(done) };
            }
            let record = self.record.as_mut_bytes().get_mut(..length).ok_or(EIO)?;
            let ring = rings.as_slice().get(index).ok_or(EIO)?;
            ring.copy(position, record);
            match out.write_slice(record) {
                // What was returned counts; this record stays for the next read.
                Err(_) if done != 0 => return Ok(done),
                written => written?,
            }
            let end = position.wrapping_add(length as u64);
            ring.free(end);
            if let Some(position) = self.positions.get_mut(index) {
                *position = end;
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
}
