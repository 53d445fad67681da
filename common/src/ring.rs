// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The index arithmetic of a ring, free of memory and locks.
//!
//! One ring is written by many tasks and interrupt handlers and read by one
//! reader. Positions are byte counts since the ring was made; they only grow
//! (and may wrap at 2^64). A writer copies a short record under the ring's lock and
//! publishes `producer` after it. For a long one it reserves under the lock, fills in
//! outside of it and commits by clearing [`BUSY`](super::record::BUSY). So records
//! become readable in the order of their reservation.
//!
//! ```text
//!   consumer           pending               producer
//!      │ to be read       │ being written       │ free
//!  ────┴──────────────────┴─────────────────────┴────────
//! ```
//!
//! `consumer` comes from the reader and is not trusted: it is used only to decide whether there is
//! room. `pending`, the kernel's own position of the oldest uncommitted record, keeps two writers
//! apart (trusting the consumer for that is CVE-2024-41009).

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The page that the reader writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConsumerPage {
    /// Position up to which the reader is done.
    pub position: u64,
}

/// The page that the kernel writes, in front of the data.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProducerPage {
    /// Position up to which space is reserved.
    pub position: u64,
    /// Records lost, since the ring was made.
    pub lost: u64,
    /// Bytes of data: a power of two.
    pub data_bytes: u64,
    /// Hits whose records were overwritten, in a session with
    /// [`SETUP_OVERWRITE`](super::abi::SETUP_OVERWRITE).
    pub overwritten: u64,
}

/// The range of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Position of the first byte.
    pub start: u64,
    /// Position after the last byte.
    pub end: u64,
}

/// The size of a ring, and with it the arithmetic of positions.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    bytes: u64,
}

impl Geometry {
    /// A ring of `data_bytes` (a power of two of at least 8), else `None`.
    pub const fn new(data_bytes: u64) -> Option<Geometry> {
        if data_bytes >= 8 && data_bytes.is_power_of_two() {
            Some(Geometry { bytes: data_bytes })
        } else {
            None
        }
    }

    /// Bytes of data.
    pub const fn data_bytes(self) -> u64 {
        self.bytes
    }

    /// Index of `position` in the data.
    pub const fn index(self, position: u64) -> usize {
        (position & self.bytes.wrapping_sub(1)) as usize
    }

    /// Bytes between the reader and `producer`; more than [`data_bytes`](Self::data_bytes) if
    /// `consumer` is invalid.
    pub const fn used(self, consumer: u64, producer: u64) -> u64 {
        producer.wrapping_sub(consumer)
    }

    /// Reserves `length` bytes (a multiple of 8) at `producer`, if neither unread nor unfinished
    /// records are in the way.
    pub const fn reserve(
        self,
        consumer: u64,
        pending: u64,
        producer: u64,
        length: u64,
    ) -> Option<Reservation> {
        if length > self.data_bytes() {
            return None;
        }
        let end = producer.wrapping_add(length);
        if end.wrapping_sub(consumer) > self.data_bytes()
            || end.wrapping_sub(pending) > self.data_bytes()
        {
            return None;
        }
        Some(Reservation {
            start: producer,
            end,
        })
    }

    /// How a range of `length` bytes at `position` lies in the data: its first
    /// index, and how many bytes come before the wrap.
    pub const fn split(self, position: u64, length: usize) -> (usize, usize) {
        let index = self.index(position);
        let room = (self.bytes as usize).wrapping_sub(index);
        (index, if length < room { length } else { room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert!(Geometry::new(0).is_none());
        assert!(Geometry::new(4).is_none());
        assert!(Geometry::new(4097).is_none());
        assert_eq!(Geometry::new(4096).unwrap().data_bytes(), 4096);
    }

    /// Every reservation lies outside of what is pending, whatever the reader
    /// says: exhaustive for a ring of 32 bytes in 8-byte steps, with positions
    /// on both sides of the wrap at 2^64.
    #[test]
    fn no_consumer_position_makes_reservations_overlap() {
        let ring = Geometry::new(32).unwrap();
        for base in [0u64, 64, u64::MAX - 63] {
            for pending in 0..=4 {
                let pending = base.wrapping_add(pending * 8);
                for ahead in 0..=4 {
                    let producer = pending.wrapping_add(ahead * 8);
                    for consumer in -80i64..=80 {
                        let consumer = producer.wrapping_add(consumer as u64);
                        for length in (8..=48).step_by(8) {
                            if let Some(r) = ring.reserve(consumer, pending, producer, length) {
                                assert_eq!(r.start, producer);
                                assert!(r.end.wrapping_sub(pending) <= 32);
                                assert!(r.end.wrapping_sub(consumer) <= 32);
                            }
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn honest_reader_gets_all_the_room(producer in any::<u64>(), used in 0u64..=4096, length in 1u64..=512) {
            let ring = Geometry::new(4096).unwrap();
            let (used, length) = (used & !7, length * 8);
            let consumer = producer.wrapping_sub(used);
            let fits = ring.reserve(consumer, consumer, producer, length).is_some();
            prop_assert_eq!(fits, used + length <= 4096);
        }

        #[test]
        fn split_covers_the_range(position in any::<u64>(), length in 0usize..=4096) {
            let ring = Geometry::new(4096).unwrap();
            let (index, first) = ring.split(position, length);
            prop_assert!(index + first <= 4096);
            prop_assert!(first <= length && length - first <= index);
        }
    }
}
