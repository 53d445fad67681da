// SPDX-License-Identifier: MIT OR Apache-2.0
//! One ring, mapped: the positions, and committed records as byte slices.
//!
//! ```text
//!  consumer page      producer page │ data (N bytes) │ the same data again
//!  read and write     read-only ─────────────────────────────────────────►
//! ```
//!
//! The data lies there twice, so a record that wraps is contiguous.

use super::MappedMemory;
use nix::errno::Errno;
use nsprobe_common::record::{Corrupt, BUSY, LENGTH};
use nsprobe_common::ring::{ConsumerPage, Geometry, ProducerPage};
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A mapped ring and how far it was read.
///
/// # Invariants
///
/// - `page` is one mapped page that only this reader writes; `shared` is a page
///   and twice the ring's data, mapped read-only.
/// - `consumed` is what the consumer page says: the kernel leaves everything
///   from there up to the producer position alone once it is committed. Of a ring
///   that overwrites it does so while the ring is frozen: a caller of `record`
///   has seen to that, and it stays frozen.
#[derive(Debug)]
pub(crate) struct MappedRing {
    page: MappedMemory,
    shared: MappedMemory,
    page_bytes: usize,
    geometry: Geometry,
    consumed: u64,
}

impl MappedRing {
    /// Maps the ring at `offset` of `file`.
    pub(crate) fn new(
        file: impl AsFd,
        offset: u64,
        page_bytes: usize,
        ring_bytes: u64,
    ) -> Result<MappedRing, Errno> {
        let geometry = Geometry::new(ring_bytes).ok_or(Errno::EINVAL)?;
        let data_bytes = usize::try_from(ring_bytes).map_err(|_| Errno::EOVERFLOW)?;
        if !page_bytes.is_power_of_two() || page_bytes < 4096 || data_bytes % page_bytes != 0 {
            return Err(Errno::EINVAL);
        }
        let mut page = MappedMemory::reserve(page_bytes)?;
        page.place(0, page_bytes, (&file, offset), true)?;
        let mut shared = MappedMemory::reserve(page_bytes + 2 * data_bytes)?;
        let producer = offset + page_bytes as u64;
        let data = producer + page_bytes as u64;
        shared.place(0, page_bytes + data_bytes, (&file, producer), false)?;
        shared.place(page_bytes + data_bytes, data_bytes, (&file, data), false)?;
        let mut ring = MappedRing {
            page,
            shared,
            page_bytes,
            geometry,
            consumed: 0,
        };
        ring.consumed = ring.consumer_position().load(Ordering::Relaxed);
        Ok(ring)
    }

    fn consumer_position(&self) -> &AtomicU64 {
        let offset = offset_of!(ConsumerPage, position);
        // SAFETY: the page is mapped and writable as long as `self` lives, the
        // field is aligned in it, and both sides access it atomically only.
        unsafe { AtomicU64::from_ptr(self.page.base.as_ptr().add(offset).cast()) }
    }

    /// A field of the producer page.
    fn producer_field(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: `offset` is that of an aligned u64 in a page that is mapped as
        // long as `self` lives; the kernel writes it atomically. (An atomic load
        // of this size is a plain load, good for read-only memory.)
        unsafe { AtomicU64::from_ptr(self.shared.base.as_ptr().add(offset).cast()) }.load(order)
    }

    /// Position up to which records are reserved.
    pub(crate) fn producer(&self) -> u64 {
        self.producer_field(offset_of!(ProducerPage, position), Ordering::Acquire)
    }

    /// Records that found no room, since the ring was made.
    pub(crate) fn lost(&self) -> u64 {
        self.producer_field(offset_of!(ProducerPage, lost), Ordering::Relaxed)
    }

    /// Hits whose records others have taken the place of.
    pub(crate) fn overwritten(&self) -> u64 {
        self.producer_field(offset_of!(ProducerPage, overwritten), Ordering::Relaxed)
    }

    /// Continues at the position that the kernel reports, in a ring that was frozen just now.
    pub(crate) fn go_to_oldest(&mut self) {
        self.consumed = self.consumer_position().load(Ordering::Acquire);
    }

    /// Position up to which records were given back.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The record at `position`, when there is a committed one that ends at or
    /// before `end`. `end` is a producer position that was seen before.
    pub(crate) fn record(&self, position: u64, end: u64) -> Result<Option<&[u8]>, Corrupt> {
        let room = end.wrapping_sub(position);
        let unread = end.wrapping_sub(self.consumed);
        if room == 0 {
            return Ok(None);
        }
        if unread > self.geometry.data_bytes() || room > unread || !room.is_multiple_of(8) {
            return Err(Corrupt::Overrun(room as u32));
        }
        let index = self.page_bytes + self.geometry.index(position);
        // SAFETY: the index is below page and data, a multiple of 8 as positions
        // are (`room` is one and `end` is the kernel's), and the kernel commits
        // the word by an atomic store.
        let word = unsafe { AtomicU32::from_ptr(self.shared.base.as_ptr().add(index).cast()) }
            .load(Ordering::Acquire);
        if word & BUSY != 0 {
            return Ok(None);
        }
        let length = u64::from(word & LENGTH);
        if length < 8 || length % 8 != 0 {
            return Err(Corrupt::Length(word));
        }
        if length > room {
            return Err(Corrupt::Overrun(word));
        }
        // SAFETY: the range begins within the data and is at most the data long,
        // so it ends within its second mapping. It is committed (the word says
        // so, loaded with Acquire) and lies after `consumed`, so the kernel
        // does not write it until `release`, which needs `&mut self`.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.shared.base.as_ptr().add(index), length as usize)
        };
        Ok(Some(bytes))
    }

    /// Gives everything before `position` back to the kernel.
    pub(crate) fn release(&mut self, position: u64) {
        if position != self.consumed {
            self.consumed = position;
            self.consumer_position().store(position, Ordering::Release);
        }
    }
}
