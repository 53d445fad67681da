// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the bytes of a capsule come from, and the search for the next chunk in them.

use crate::chunk::{ChunkHeader, CHUNK_MAGIC};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use zerocopy::FromBytes;

/// Bytes that are searched at once.
const WINDOW_BYTES: usize = 64 << 10;

/// Bytes that can be read anywhere.
pub trait ReadAt {
    /// Fills `bytes` from the offset `at` on; less at the end. Gives the count.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(self, rest, at.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rest = self.get(at..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        if let (Some(to), Some(from)) = (bytes.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }
}

/// The first chunk at or after `from`, of this file when its id is known; or where the
/// source ends.
pub(crate) fn next_chunk(
    source: &impl ReadAt,
    from: u64,
    id: Option<u64>,
) -> io::Result<Result<u64, u64>> {
    let mut window = vec![0; WINDOW_BYTES];
    let mut base = from;
    loop {
        let count = source.read_at(base, &mut window)?;
        let bytes = window.get(..count).unwrap_or_default();
        if let Some(found) = first_header(bytes, id) {
            return Ok(Ok(base + found as u64));
        }
        if count < WINDOW_BYTES {
            return Ok(Err(base + count as u64));
        }
        // One that begins at the very end is seen whole in the next window.
        base += (count - size_of::<ChunkHeader>() + 1) as u64;
    }
}

/// Where the first chunk header is in `bytes`.
fn first_header(bytes: &[u8], id: Option<u64>) -> Option<usize> {
    let mut windows = bytes.windows(size_of::<ChunkHeader>());
    windows.position(|bytes| {
        bytes.starts_with(&CHUNK_MAGIC)
            && ChunkHeader::read_from_bytes(bytes)
                .is_ok_and(|header| header.is_whole() && id.is_none_or(|id| id == header.id.get()))
    })
}
