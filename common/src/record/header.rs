// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The parts that records of several kinds share.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The head of every record.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`LENGTH`](super::LENGTH), [`BUSY`](super::BUSY) and [`DISCARD`](super::DISCARD).
    pub word: u32,
    /// `KIND_*`.
    pub kind: u16,
    /// Zero.
    pub reserved: u16,
}

/// Code that a process has mapped. A [`StackCopy`](super::StackCopy) has it in no order.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CodeMapping {
    /// First address.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Add this to an address to get its offset in the file.
    pub delta: u64,
    /// The file's object; 0 when there is none.
    pub object: u32,
    /// An [`Unmapped`](super::Unmapped) when there is no object, zero otherwise.
    pub unmapped: u32,
}
const _: () = assert!(size_of::<CodeMapping>() == 32);
