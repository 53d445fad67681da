// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of a capsule: what it begins with, and the header of each chunk. All numbers
//! are little-endian.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::IntoBytes;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a capsule.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"\x89nspcap\n";
/// The first bytes of a chunk.
pub(crate) const CHUNK_MAGIC: [u8; 8] = *b"\x8anschunk";

/// The format that is written: readers of another major version cannot read it.
pub const MAJOR: u16 = 2;
/// Raised when something is added that older readers may skip, or ask for.
pub const MINOR: u16 = 0;

/// Most bytes of a chunk's body.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;
/// Bodies are padded with zeros to a multiple of this number of bytes.
pub(crate) const ALIGN: usize = 8;

/// [`ChunkHeader::flags`]: a reader that does not know the kind may skip it.
pub const MAY_SKIP: u16 = 1 << 0;

/// What a capsule begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Preamble {
    /// `89 6e 73 70 63 61 70 0a`.
    pub magic: [u8; 8],
    /// [`MAJOR`] of the writer.
    pub major: U16,
    /// [`MINOR`] of the writer.
    pub minor: U16,
    /// Zero.
    pub reserved: U32,
    /// A random number that all chunks of the file repeat: a traced program, whose memory
    /// may be in a record, cannot make what looks like a chunk.
    pub id: U64,
    /// Zero.
    pub unused: U32,
    /// CRC-32 of the bytes in front of it.
    pub crc: U32,
}
const _: () = assert!(size_of::<Preamble>() == 32);

/// What a chunk begins with; its body follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChunkHeader {
    /// `8a 6e 73 63 68 75 6e 6b`.
    pub magic: [u8; 8],
    /// [`Preamble::id`].
    pub id: U64,
    /// A [`ChunkKind`].
    pub kind: U16,
    /// [`MAY_SKIP`].
    pub flags: U16,
    /// The chunk's number, from 0 on.
    pub number: U32,
    /// Bytes of the body without its padding; at most [`CHUNK_BYTES_MAX`].
    pub bytes: U32,
    /// How many things are in the body: of records, the hits.
    pub items: U32,
    /// CRC-32 of the body without its padding.
    pub body_crc: U32,
    /// CRC-32 of the bytes in front of it.
    pub crc: U32,
}
const _: () = assert!(size_of::<ChunkHeader>() == 40);

/// What is in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ChunkKind {
    /// What was recorded, when and where.
    Header = 1,
    /// Probes.
    Probes = 2,
    /// Mapped files.
    Objects = 3,
    /// The frames of stacks that records name by an id.
    Stacks = 4,
    /// Records, as the rings had them.
    Records = 5,
    /// The frames that stacks lacked, found from copies.
    Rests = 6,
    /// Names.
    Names = 7,
    /// Containers.
    Containers = 8,
    /// The tasks that lived when the recording began, as records of a dump.
    Tasks = 9,
    /// What the recording came to.
    Summary = 10,
    /// The recording ended orderly.
    End = 11,
}

impl ChunkKind {
    /// All kinds, with what people call them.
    pub const ALL: [(ChunkKind, &'static str); 11] = [
        (ChunkKind::Header, "header"),
        (ChunkKind::Probes, "probes"),
        (ChunkKind::Objects, "objects"),
        (ChunkKind::Stacks, "stacks"),
        (ChunkKind::Records, "records"),
        (ChunkKind::Rests, "rests"),
        (ChunkKind::Names, "names"),
        (ChunkKind::Containers, "containers"),
        (ChunkKind::Tasks, "tasks"),
        (ChunkKind::Summary, "summary"),
        (ChunkKind::End, "end"),
    ];

    /// The kind of this number; none for one of a later version.
    pub fn from_u16(number: u16) -> Option<ChunkKind> {
        let kinds = ChunkKind::ALL.iter().map(|(kind, _)| *kind);
        kinds.into_iter().find(|kind| *kind as u16 == number)
    }

    /// [`ChunkHeader::flags`] of its chunks.
    pub fn flags(self) -> u16 {
        match self {
            ChunkKind::Header | ChunkKind::Probes | ChunkKind::Stacks | ChunkKind::Records => 0,
            ChunkKind::Objects
            | ChunkKind::Rests
            | ChunkKind::Names
            | ChunkKind::Containers
            | ChunkKind::Tasks
            | ChunkKind::Summary
            | ChunkKind::End => MAY_SKIP,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        let known = ChunkKind::ALL.iter().find(|(kind, _)| *kind == self);
        known.map_or("?", |(_, name)| name)
    }
}

impl Preamble {
    /// The beginning of a new capsule.
    pub fn new(id: u64) -> Preamble {
        Preamble {
            magic: FILE_MAGIC,
            major: U16::new(MAJOR),
            minor: U16::new(MINOR),
            reserved: U32::new(0),
            id: U64::new(id),
            unused: U32::new(0),
            crc: U32::new(0),
        }
        .sealed()
    }

    /// Sets its checksum.
    pub fn sealed(mut self) -> Preamble {
        self.crc = U32::new(front_crc(self.as_bytes()));
        self
    }

    /// Whether its checksum is right.
    pub(crate) fn is_whole(&self) -> bool {
        self.magic == FILE_MAGIC && self.crc.get() == front_crc(self.as_bytes())
    }
}

impl ChunkHeader {
    /// The header of a chunk with this body, with its checksums.
    pub fn new(id: u64, kind: u16, flags: u16, number: u32, items: u32, body: &[u8]) -> Self {
        ChunkHeader {
            magic: CHUNK_MAGIC,
            id: U64::new(id),
            kind: U16::new(kind),
            flags: U16::new(flags),
            number: U32::new(number),
            bytes: U32::new(body.len() as u32),
            items: U32::new(items),
            body_crc: U32::new(crc32fast::hash(body)),
            crc: U32::new(0),
        }
        .sealed()
    }

    /// Sets its checksum.
    pub fn sealed(mut self) -> ChunkHeader {
        self.crc = U32::new(front_crc(self.as_bytes()));
        self
    }

    /// Whether it is one: its checksum is right, and its body may be that long.
    pub(crate) fn is_whole(&self) -> bool {
        self.magic == CHUNK_MAGIC
            && self.crc.get() == front_crc(self.as_bytes())
            && self.bytes.get() as usize <= CHUNK_BYTES_MAX
    }

    /// Bytes of the body and its padding.
    pub(crate) fn padded_bytes(&self) -> usize {
        (self.bytes.get() as usize).next_multiple_of(ALIGN)
    }
}

/// The checksum of all but the last four bytes.
fn front_crc(bytes: &[u8]) -> u32 {
    let front = bytes.len().saturating_sub(size_of::<u32>());
    crc32fast::hash(bytes.get(..front).unwrap_or_default())
}
