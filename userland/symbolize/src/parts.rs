// SPDX-License-Identifier: MIT OR Apache-2.0
//! What gimli reads: a section, of which only those parts come into memory that are looked at.
//!
//! A gigabyte of debug information names a function by a few megabytes of it. Parts are
//! read with `pread` into memory of our own, like all else: what somebody writes to the file
//! is noticed when the next part is read, and is an error from then on. Those that were read
//! last stay, up to a limit; readers keep theirs as long as they need them.

use crate::elf::WatchedFile;
use crate::SectionData;
use gimli::{Error, LittleEndian, Reader, ReaderOffsetId};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of a part.
const PART_BYTES: usize = 16 << 10;
/// Most parts that stay without a reader: 256 MB.
const PARTS_KEPT: usize = 16 << 10;

/// Keeps the parts that were read last, of some sections together. Without it they are read
/// again for each reader that comes to them.
#[derive(Clone, Default)]
pub(crate) struct Keeper(Arc<KeptParts>);

/// The oldest first.
type KeptParts = Mutex<VecDeque<Arc<SectionPart>>>;

fn keep(kept: &KeptParts, part: &Arc<SectionPart>) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= PARTS_KEPT {
        kept.pop_front();
    }
    kept.push_back(Arc::clone(part));
}

/// A reader of a section, or of a range in it.
#[derive(Clone)]
pub(crate) struct SectionBytes {
    /// The part that it reads in.
    part: Arc<SectionPart>,
    /// Where it reads, and where it ends or the part does, in bytes from the part's beginning.
    at: usize,
    stop: usize,
    /// Bytes after this part that it reads, too.
    beyond: usize,
}

/// Why DWARF could not be read.
pub(crate) fn reason(error: Error) -> String {
    match error {
        Error::Io => "the file cannot be read, or somebody wrote to it".to_owned(),
        error => error.to_string(),
    }
}

/// Some bytes of a section. They lie in here: every read goes through it.
struct SectionPart {
    /// Where they begin, in bytes from the section's beginning.
    start: usize,
    of: Arc<Parts>,
    /// The last part's end is not the section's.
    bytes: [u8; PART_BYTES],
}

/// A section that is read in parts.
struct Parts {
    source: SectionSource,
    /// How long the section is, in bytes.
    length: usize,
    /// The parts that are in memory, by their number.
    read: Mutex<Vec<Weak<SectionPart>>>,
    /// Not its own: what is kept would keep itself.
    kept: Weak<KeptParts>,
}

/// Where a section's bytes are.
enum SectionSource {
    Memory(SectionData),
    /// In the file, from that offset on.
    File(Arc<WatchedFile>, u64),
}

impl Drop for SectionPart {
    /// What a weak reference is left to takes as much memory as before.
    fn drop(&mut self) {
        let mut read = self.of.read.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read.get_mut(self.start / PART_BYTES);
        // Another one may have been read meanwhile.
        if let Some(known) = known.filter(|known| known.strong_count() == 0) {
            *known = Weak::new();
        }
    }
}

impl SectionSource {
    /// Fills `out` from there on in the section.
    fn read(&self, start: usize, out: &mut [u8]) -> gimli::Result<()> {
        match self {
            SectionSource::Memory(bytes) => {
                let bytes = bytes.get(start..).and_then(|bytes| bytes.get(..out.len()));
                out.copy_from_slice(bytes.ok_or(Error::Io)?);
                Ok(())
            }
            SectionSource::File(file, offset) => file
                .read_unchanged(offset + start as u64, out)
                .map_err(|_| Error::Io),
        }
    }
}

impl Parts {
    /// The part with the byte at `at`, which is in the section.
    fn part(self: &Arc<Self>, at: usize) -> gimli::Result<Arc<SectionPart>> {
        let number = at / PART_BYTES;
        if let Some(part) = self.known(number) {
            return Ok(part);
        }
        let part = self.read(number * PART_BYTES)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        *read.get_mut(number).ok_or(Error::Io)? = Arc::downgrade(&part);
        // One that goes for it takes the lock.
        drop(read);
        if let Some(kept) = self.kept.upgrade() {
            keep(&kept, &part);
        }
        Ok(part)
    }

    fn known(&self, number: usize) -> Option<Arc<SectionPart>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.get(number)?.upgrade()
    }

    /// The part from `start` on.
    fn read(self: &Arc<Self>, start: usize) -> gimli::Result<Arc<SectionPart>> {
        let mut part = Arc::new(SectionPart {
            start,
            of: Arc::clone(self),
            bytes: [0; PART_BYTES],
        });
        let length = self.length.saturating_sub(start).min(PART_BYTES);
        let bytes = Arc::get_mut(&mut part).map(|part| &mut part.bytes);
        let out = bytes.and_then(|bytes| bytes.get_mut(..length));
        self.source.read(start, out.ok_or(Error::Io)?)?;
        Ok(part)
    }
}

impl SectionBytes {
    /// A reader of a section that is in memory.
    pub(crate) fn in_memory(bytes: SectionData, keeper: &Keeper) -> SectionBytes {
        let length = bytes.len();
        SectionBytes::new(SectionSource::Memory(bytes), length, keeper)
    }

    /// A reader of the `length` bytes from `offset` on in the file, none of which is read yet.
    pub(crate) fn in_file(
        file: Arc<WatchedFile>,
        offset: u64,
        length: usize,
        keeper: &Keeper,
    ) -> SectionBytes {
        SectionBytes::new(SectionSource::File(file, offset), length, keeper)
    }

    fn new(source: SectionSource, length: usize, keeper: &Keeper) -> SectionBytes {
        let none = std::iter::repeat_n(Weak::new(), length.div_ceil(PART_BYTES));
        let parts = Parts {
            source,
            length,
            read: Mutex::new(none.collect()),
            kept: Arc::downgrade(&keeper.0),
        };
        let none = SectionPart {
            start: 0,
            of: Arc::new(parts),
            bytes: [0; PART_BYTES],
        };
        SectionBytes {
            part: Arc::new(none),
            at: 0,
            stop: 0,
            beyond: length,
        }
    }

    /// The bytes from here to the end, as far as they lie in this part.
    #[inline]
    fn here(&self) -> &[u8] {
        self.part.bytes.get(self.at..self.stop).unwrap_or_default()
    }

    /// Where it reads, in bytes from the section's beginning.
    fn offset(&self) -> usize {
        self.part.start + self.at
    }

    /// Goes to the part after this one, or to a later one, where it reads from the byte on
    /// that is `behind` bytes after this part.
    #[cold]
    fn turn(&mut self, behind: usize) -> gimli::Result<()> {
        let left = self.beyond.checked_sub(behind).ok_or(Error::Io)?;
        let offset = self.part.start + self.stop + behind;
        let part = self.part.of.part(offset)?;
        let at = offset.checked_sub(part.start).ok_or(Error::Io)?;
        let here = PART_BYTES.saturating_sub(at).min(left);
        self.at = at;
        self.stop = at + here;
        self.beyond = left - here;
        self.part = part;
        Ok(())
    }

    fn check(&self, length: usize) -> gimli::Result<()> {
        match length <= self.len() {
            true => Ok(()),
            false => Err(Error::UnexpectedEof(self.offset_id())),
        }
    }

    /// Calls `see` with the bytes up to the end, piece by piece, until that returns true.
    fn walk(&self, mut see: impl FnMut(&[u8]) -> bool) -> gimli::Result<()> {
        if see(self.here()) {
            return Ok(());
        }
        let mut rest = self.clone();
        while rest.beyond > 0 {
            rest.turn(0)?;
            if see(rest.here()) {
                break;
            }
        }
        Ok(())
    }

    /// Fills `out` from more than one part, or from another one.
    #[cold]
    fn read_across(&mut self, out: &mut [u8]) -> gimli::Result<()> {
        self.check(out.len())?;
        let mut left = out;
        loop {
            let here = self.here();
            let length = here.len().min(left.len());
            let (to, rest) = left.split_at_mut(length);
            to.copy_from_slice(here.get(..length).unwrap_or_default());
            self.at += length;
            left = rest;
            if left.is_empty() {
                return Ok(());
            }
            self.turn(0)?;
        }
    }

    /// Skips more bytes than there are here.
    #[cold]
    fn skip_across(&mut self, length: usize) -> gimli::Result<()> {
        self.check(length)?;
        let behind = length - (self.stop - self.at);
        if behind < self.beyond {
            return self.turn(behind);
        }
        // Where it ends there is nothing to read.
        self.stop += self.beyond;
        self.at = self.stop;
        self.beyond = 0;
        Ok(())
    }
}

impl std::fmt::Debug for SectionBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bytes")
            .field(&(self.offset()..self.offset() + self.len()))
            .finish()
    }
}

impl Reader for SectionBytes {
    type Endian = LittleEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        self.stop - self.at + self.beyond
    }

    #[inline]
    fn empty(&mut self) {
        self.stop = self.at;
        self.beyond = 0;
    }

    #[inline]
    fn truncate(&mut self, length: usize) -> gimli::Result<()> {
        let here = self.stop - self.at;
        if length > here {
            self.check(length)?;
            self.beyond = length - here;
            return Ok(());
        }
        self.stop = self.at + length;
        self.beyond = 0;
        Ok(())
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        self.offset().saturating_sub(base.offset())
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.offset() as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let into = usize::try_from(id.0).ok()?.checked_sub(self.offset())?;
        (into <= self.len()).then_some(into)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let (mut before, mut found) = (0, None);
        self.walk(|piece| {
            found = memchr::memchr(byte, piece).map(|at| before + at);
            before += piece.len();
            found.is_some()
        })?;
        found.ok_or_else(|| Error::UnexpectedEof(self.offset_id()))
    }

    #[inline]
    fn skip(&mut self, length: usize) -> gimli::Result<()> {
        if length > self.stop - self.at {
            return self.skip_across(length);
        }
        self.at += length;
        Ok(())
    }

    #[inline]
    fn split(&mut self, length: usize) -> gimli::Result<Self> {
        let mut first = self.clone();
        first.truncate(length)?;
        self.skip(length)?;
        Ok(first)
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        let here = self.here();
        if here.len() == self.len() {
            return Ok(here.into());
        }
        let mut all = Vec::with_capacity(self.len());
        self.walk(|piece| {
            all.extend(piece);
            false
        })?;
        Ok(all.into())
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        match self.to_slice()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::from).ok(),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::from).ok(),
        }
        .ok_or(Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        Ok(match self.to_slice()? {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        })
    }

    #[inline]
    fn read_slice(&mut self, out: &mut [u8]) -> gimli::Result<()> {
        if let Some(bytes) = self.here().get(..out.len()) {
            out.copy_from_slice(bytes);
            self.at += out.len();
            return Ok(());
        }
        self.read_across(out)
    }

    /// Most numbers take a byte.
    #[inline]
    fn read_uleb128(&mut self) -> gimli::Result<u64> {
        match self.part.bytes.get(self.at) {
            Some(byte) if *byte < 0x80 && self.at < self.stop => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => gimli::leb128::read::unsigned(self),
        }
    }

    #[inline]
    fn read_uleb128_u16(&mut self) -> gimli::Result<u16> {
        match self.part.bytes.get(self.at) {
            Some(byte) if *byte < 0x80 && self.at < self.stop => {
                self.at += 1;
                Ok(u16::from(*byte))
            }
            _ => gimli::leb128::read::u16(self),
        }
    }

    #[inline]
    fn read_u8(&mut self) -> gimli::Result<u8> {
        match self.part.bytes.get(self.at) {
            Some(byte) if self.at < self.stop => {
                self.at += 1;
                Ok(*byte)
            }
            _ => {
                let mut byte = [0];
                self.read_across(&mut byte)?;
                Ok(byte[0])
            }
        }
    }
}

#[cfg(test)]
mod tests;
