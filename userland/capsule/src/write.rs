// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes chunks, each at once.

use crate::chunk::{ChunkHeader, ChunkKind, Preamble, ALIGN, CHUNK_BYTES_MAX};
use crate::error::CapsuleError;
use crate::output::Output;
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};
use zerocopy::IntoBytes;

/// Appends chunks to an output.
#[derive(Debug)]
pub struct Writer<O> {
    output: O,
    id: u64,
    number: u32,
    bytes: u64,
    /// Kept for its memory.
    buffer: Vec<u8>,
}

/// Whether a chunk was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it.
    Whole,
    /// Nothing of it: there is no room.
    NoRoom,
}

impl<O: Output> Writer<O> {
    /// A new capsule.
    pub fn new(output: O) -> Result<Writer<O>, CapsuleError> {
        // As unpredictable as the seeds of the standard library's hash tables.
        let id = RandomState::new().hash_one(std::process::id());
        let mut writer = Writer::resumed(output, id, 0);
        writer.buffer.extend(Preamble::new(id).as_bytes());
        match writer.flush()? {
            Written::Whole => Ok(writer),
            Written::NoRoom => Err(CapsuleError::Io(std::io::ErrorKind::StorageFull.into())),
        }
    }

    /// Continues a capsule of this id, with the chunk of this number.
    pub fn resumed(output: O, id: u64, number: u32) -> Writer<O> {
        Writer {
            output,
            id,
            number,
            bytes: 0,
            buffer: Vec::new(),
        }
    }

    /// Bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a chunk whose body is made of binary data, with `items` things in it.
    pub fn chunk(
        &mut self,
        kind: ChunkKind,
        items: u32,
        body: &[u8],
    ) -> Result<Written, CapsuleError> {
        if body.len() > CHUNK_BYTES_MAX {
            return Err(CapsuleError::TooLarge(body.len()));
        }
        let (id, number) = (self.id, self.number);
        let header = ChunkHeader::new(id, kind as u16, kind.flags(), number, items, body);
        self.buffer.clear();
        self.buffer.extend(header.as_bytes());
        self.buffer.extend(body);
        let padded = self.buffer.len().next_multiple_of(ALIGN);
        self.buffer.resize(padded, 0);
        let written = self.flush()?;
        if written == Written::Whole {
            self.number = self.number.wrapping_add(1);
        }
        Ok(written)
    }

    /// Appends a chunk whose body is JSON, with `items` things in it.
    pub fn json(
        &mut self,
        kind: ChunkKind,
        items: usize,
        value: &impl Serialize,
    ) -> Result<Written, CapsuleError> {
        let body = serde_json::to_vec(value).map_err(std::io::Error::from)?;
        self.chunk(kind, items as u32, &body)
    }

    /// From here on this number of bytes of the room that was kept back is for later chunks.
    pub fn keep_back(&mut self, bytes: u64) {
        self.output.keep_back(bytes);
    }

    /// Hands everything over; room that was not used is given back.
    pub fn finish(mut self) -> Result<u64, CapsuleError> {
        self.output.finish()?;
        Ok(self.bytes)
    }

    fn flush(&mut self) -> Result<Written, CapsuleError> {
        let written = self.output.append(&self.buffer)?;
        if written == Written::Whole {
            self.bytes += self.buffer.len() as u64;
        }
        self.buffer.clear();
        Ok(written)
    }
}
