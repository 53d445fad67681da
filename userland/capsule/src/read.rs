// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks over the chunks of a capsule, and past what is damaged.

use crate::chunk::{ChunkHeader, ChunkKind, Preamble, FILE_MAGIC, MAJOR, MAY_SKIP};
use crate::error::{CapsuleError, Damage, Reason};
use crate::scan::{next_chunk, ReadAt};
use nsprobe_common::record::Record;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Damages after which no more is read: each may cost the reading of a whole body.
const DAMAGES_MAX: u32 = 1000;

/// Reads a capsule from its beginning on.
#[derive(Debug)]
pub struct CapsuleReader<S> {
    source: S,
    major: u16,
    minor: u16,
    id: Option<u64>,
    begin: Option<Damage>,
    at: u64,
    /// The number of the next chunk; `None` after a damaged stretch.
    number: Option<u32>,
    damages: u32,
    /// Words: records are aligned.
    body: Vec<u64>,
}

/// A chunk that is whole.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Where it begins in the file.
    pub at: u64,
    /// Its header.
    pub header: ChunkHeader,
    /// Its body, aligned for records.
    pub body: &'a [u8],
}

impl Chunk<'_> {
    /// What is in it; none when a later version knows.
    pub fn kind(&self) -> Option<ChunkKind> {
        ChunkKind::from_u16(self.header.kind.get())
    }
}

impl<S: ReadAt> CapsuleReader<S> {
    /// Looks at the first bytes.
    pub fn new(source: S) -> Result<CapsuleReader<S>, CapsuleError> {
        let mut bytes = [0; size_of::<Preamble>()];
        let count = source.read_at(0, &mut bytes)?;
        let found = bytes.get(..count.min(FILE_MAGIC.len())).unwrap_or_default();
        let preamble = Preamble::read_from_bytes(&bytes).map_err(|_| CapsuleError::NotCapsule)?;
        let mut reader = CapsuleReader {
            source,
            major: MAJOR,
            minor: 0,
            id: None,
            begin: None,
            at: bytes.len() as u64,
            number: Some(0),
            damages: 0,
            body: Vec::new(),
        };
        if count == bytes.len() && preamble.is_whole() {
            (reader.major, reader.minor) = (preamble.major.get(), preamble.minor.get());
            reader.id = Some(preamble.id.get());
            return match reader.major {
                MAJOR => Ok(reader),
                major => Err(CapsuleError::Major {
                    major,
                    minor: reader.minor,
                }),
            };
        }
        match (count, FILE_MAGIC.starts_with(found)) {
            (0, _) => Err(CapsuleError::Empty),
            (count, true) if count < bytes.len() => Err(CapsuleError::Short(count as u64)),
            _ => reader.without_preamble(),
        }
    }

    /// Continues if the first bytes are damaged, but a chunk is where one must be.
    fn without_preamble(mut self) -> Result<CapsuleReader<S>, CapsuleError> {
        let Some(first) = self.header()?.filter(ChunkHeader::is_whole) else {
            return Err(CapsuleError::NotCapsule);
        };
        self.id = Some(first.id.get());
        self.begin = Some(Damage {
            at: 0,
            bytes: self.at,
            reason: Reason::Preamble,
        });
        Ok(self)
    }

    /// The version of the format, major and minor.
    pub fn version(&self) -> (u16, u16) {
        (self.major, self.minor)
    }

    /// The number that all chunks repeat, and that of the next chunk: for a caller that appends
    /// some.
    pub fn resume(&self) -> (u64, u32) {
        (self.id.unwrap_or(0), self.number.unwrap_or(0))
    }

    /// Where the next chunk begins.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Begins anew.
    pub fn rewind(&mut self) {
        self.at = size_of::<Preamble>() as u64;
        self.number = Some(0);
        self.damages = 0;
    }

    /// The next chunk, or what could not be read in front of it; none at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Result<Chunk<'_>, Damage>>, CapsuleError> {
        if let Some(damage) = self.begin.take() {
            return Ok(Some(Err(damage)));
        }
        let header = match self.advance()? {
            None => return Ok(None),
            Some(Err(damage)) => return Ok(Some(Err(damage))),
            Some(Ok(header)) => header,
        };
        let kind = header.kind.get();
        if ChunkKind::from_u16(kind).is_none() && header.flags.get() & MAY_SKIP == 0 {
            let (major, minor) = self.version();
            return Err(CapsuleError::NeedsLater { kind, major, minor });
        }
        let at = self.at - (size_of::<ChunkHeader>() + header.padded_bytes()) as u64;
        let body = self.body.as_bytes().get(..header.bytes.get() as usize);
        Ok(Some(Ok(Chunk {
            at,
            header,
            body: body.unwrap_or_default(),
        })))
    }

    /// Passes each record to `take`, in the order in which they were written. Damage was reported
    /// when the capsule was read first.
    pub fn each_record<E: From<CapsuleError>>(
        &mut self,
        take: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_of(ChunkKind::Records, take)
    }

    /// As above, for the records of the tasks that lived when the recording began.
    pub fn each_task_before<E: From<CapsuleError>>(
        &mut self,
        take: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_of(ChunkKind::Tasks, take)
    }

    fn each_of<E: From<CapsuleError>>(
        &mut self,
        kind: ChunkKind,
        mut take: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rewind();
        while let Some(found) = self.next_chunk()? {
            let Ok(chunk) = found else { continue };
            if chunk.kind() == Some(kind) {
                crate::blocks::records(chunk.body, &mut take)?;
            }
        }
        Ok(())
    }

    /// Moves past the next chunk and has its body read; or after what is none.
    fn advance(&mut self) -> Result<Option<Result<ChunkHeader, Damage>>, CapsuleError> {
        if self.damages > DAMAGES_MAX {
            return Ok(None);
        }
        let Some(header) = self.header()? else {
            return self.tail();
        };
        if !header.is_whole() || Some(header.id.get()) != self.id {
            return self.skip(Reason::NoChunk).map(Some);
        }
        let words = header.padded_bytes() / size_of::<u64>();
        self.body.clear();
        self.body.resize(words, 0);
        let from = self.at + size_of::<ChunkHeader>() as u64;
        let count = self.source.read_at(from, self.body.as_mut_bytes())?;
        let bytes = header.bytes.get() as usize;
        if count < bytes {
            return self.skip(Reason::Cut).map(Some);
        }
        let body = self.body.as_bytes().get(..bytes).unwrap_or_default();
        if crc32fast::hash(body) != header.body_crc.get() {
            return self.skip(Reason::Checksum).map(Some);
        }
        let number = header.number.get();
        let missing = self.number.map_or(0, |next| number.wrapping_sub(next));
        self.number = Some(number);
        if (1..1 << 31).contains(&missing) {
            return Ok(Some(Err(self.damage(self.at, Reason::Missing(missing)))));
        }
        self.number = Some(number.wrapping_add(1));
        self.at = from + header.padded_bytes() as u64;
        Ok(Some(Ok(header)))
    }

    /// The header at the present place; none when there are no bytes for one.
    fn header(&self) -> Result<Option<ChunkHeader>, CapsuleError> {
        let mut header = ChunkHeader::new_zeroed();
        let count = self.source.read_at(self.at, header.as_mut_bytes())?;
        Ok((count == size_of::<ChunkHeader>()).then_some(header))
    }

    /// The end; what is there are the first bytes of a header.
    fn tail(&mut self) -> Result<Option<Result<ChunkHeader, Damage>>, CapsuleError> {
        let mut rest = [0; size_of::<ChunkHeader>()];
        let count = self.source.read_at(self.at, &mut rest)? as u64;
        let at = self.at;
        self.at += count;
        Ok((count > 0).then(|| Err(self.damage(at, Reason::Cut))))
    }

    /// Moves to the next chunk after what is none.
    fn skip(&mut self, reason: Reason) -> Result<Result<ChunkHeader, Damage>, CapsuleError> {
        let at = self.at;
        let found = next_chunk(&self.source, at + 1, self.id)?;
        // A chunk that is cut off, and has others after it, was overwritten or pasted.
        let reason = match (reason, found) {
            (Reason::Cut, Ok(_)) => Reason::Checksum,
            (reason, _) => reason,
        };
        self.at = found.unwrap_or_else(|end| end);
        self.number = None;
        Ok(Err(self.damage(at, reason)))
    }

    fn damage(&mut self, at: u64, reason: Reason) -> Damage {
        self.damages += 1;
        Damage {
            at,
            bytes: self.at - at,
            reason,
        }
    }
}
