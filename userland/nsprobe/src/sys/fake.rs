// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of a ring for tests: a memory file laid out like the
//! module's mapping, and a writer that follows the module's protocol.

use super::{MappedMemory, MappedRing};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nsprobe_common::record::{Header, BUSY, DISCARD};
use nsprobe_common::ring::{ConsumerPage, Geometry, ProducerPage, Reservation};
use std::fs::File;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PAGE: usize = 4096;

/// The writer of one ring.
pub(crate) struct FakeKernel {
    memory: MappedMemory,
    geometry: Geometry,
    producer: u64,
    pub(crate) lost: u64,
}

/// A ring of `data_bytes` whose positions begin at `start`, and its writer.
pub(crate) fn ring(data_bytes: u64, start: u64) -> (FakeKernel, MappedRing) {
    let total = 2 * PAGE + data_bytes as usize;
    let file = File::from(memfd_create("ring", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(total as u64).unwrap();
    let mut memory = MappedMemory::reserve(total).unwrap();
    memory.place(0, total, (&file, 0), true).unwrap();
    let kernel = FakeKernel {
        memory,
        geometry: Geometry::new(data_bytes).unwrap(),
        producer: start,
        lost: 0,
    };
    kernel.consumer().store(start, Ordering::Release);
    kernel.publish(start);
    let ring = MappedRing::new(&file, 0, PAGE, data_bytes).unwrap();
    (kernel, ring)
}

impl FakeKernel {
    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.memory.bytes);
        // SAFETY: aligned and within the mapping, as just checked.
        unsafe { AtomicU64::from_ptr(self.memory.base.as_ptr().add(offset).cast()) }
    }

    fn consumer(&self) -> &AtomicU64 {
        self.u64_at(offset_of!(ConsumerPage, position))
    }

    fn publish(&self, position: u64) {
        self.u64_at(PAGE + offset_of!(ProducerPage, position))
            .store(position, Ordering::Release);
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        let index = 2 * PAGE + self.geometry.index(position);
        assert!(index.is_multiple_of(4));
        // SAFETY: aligned and within the mapping.
        unsafe { AtomicU32::from_ptr(self.memory.base.as_ptr().add(index).cast()) }
    }

    /// Reserves room for `length` bytes and marks it busy.
    pub(crate) fn reserve(&mut self, length: usize) -> Option<Reservation> {
        let consumer = self.consumer().load(Ordering::Acquire);
        // One writer: nothing else is pending.
        let found = self
            .geometry
            .reserve(consumer, consumer, self.producer, length as u64);
        let Some(reservation) = found else {
            self.lost += 1;
            self.u64_at(PAGE + offset_of!(ProducerPage, lost))
                .store(self.lost, Ordering::Relaxed);
            return None;
        };
        self.word(reservation.start)
            .store(length as u32 | BUSY, Ordering::Relaxed);
        self.producer = reservation.end;
        self.publish(self.producer);
        Some(reservation)
    }

    /// Fills a reservation with `record` (header included) and commits it.
    pub(crate) fn commit(&self, at: Reservation, record: &[u8], discard: bool) {
        let mut position = at.start;
        for (index, chunk) in record.chunks(8).enumerate() {
            let value = u64::from_ne_bytes(chunk.try_into().unwrap());
            let offset = 2 * PAGE + self.geometry.index(position);
            if index > 0 {
                self.u64_at(offset).store(value, Ordering::Relaxed);
            }
            position = position.wrapping_add(8);
        }
        let rest = u32::from_ne_bytes(record[4..8].try_into().unwrap());
        // SAFETY: the second half of the header, within the mapping.
        let kind = unsafe { AtomicU32::from_ptr(self.word(at.start).as_ptr().add(1)) };
        kind.store(rest, Ordering::Relaxed);
        let flag = if discard { DISCARD } else { 0 };
        let word = u32::from_ne_bytes(record[..4].try_into().unwrap()) | flag;
        self.word(at.start).store(word, Ordering::Release);
    }

    /// Reserves, fills and commits; false when there was no room.
    pub(crate) fn write(&mut self, record: &[u8]) -> bool {
        assert!(record.len() >= size_of::<Header>());
        match self.reserve(record.len()) {
            Some(at) => {
                self.commit(at, record, false);
                true
            }
            None => false,
        }
    }
}
