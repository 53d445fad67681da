// SPDX-License-Identifier: MIT OR Apache-2.0
//! Static probes: what `sys/sdt.h` of SystemTap leaves in a file's notes.
//!
//! A note of the section `.note.stapsdt`, owner `stapsdt`, type 3, holds three words
//! (the address of the `nop`, that of the section `.stapsdt.base` when the file was
//! linked, that of the semaphore or zero) and three strings (provider, name, and the
//! arguments as the assembler wrote them). When the base section was moved since, by
//! prelink for one, the addresses have moved with it.

use crate::elf::{text_at, u32_at, u64_at};
use crate::SymbolizeError;
use crate::{Address, Binary, FileOffset};

/// Most probes of a file.
const PROBES_MAX: usize = 1 << 16;
/// Longest string of a note, in bytes.
const TEXT_BYTES_MAX: usize = 4096;
const NOTE_TYPE: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";
const NOTE_HEADER_BYTES: usize = 12;

/// A place of a static probe; a probe may have several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usdt {
    /// Its provider.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Where its `nop` is.
    pub file_offset: FileOffset,
    /// The same, by the file's own count.
    pub address: Address,
    /// Where its semaphore is, which has to be counted up for the probe to be reached.
    pub semaphore: Option<FileOffset>,
    /// Its arguments, as the note has them: `-4@%edi 8@8(%rax)`.
    pub arguments: String,
}

impl Binary {
    /// The static probes of the file, by rising address. What a note says that cannot
    /// be is skipped.
    pub fn usdt(&self) -> Result<Vec<Usdt>, SymbolizeError> {
        let Some(section) = self.elf.section(".note.stapsdt") else {
            return Ok(Vec::new());
        };
        let data = self.elf.data(section)?;
        let base = self.elf.section(".stapsdt.base").map(|base| base.address);
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((note, next)) = note_at(&data, at) {
            found.extend(note.and_then(|note| self.probe(note, base)));
            if found.len() >= PROBES_MAX {
                break;
            }
            at = next;
        }
        self.elf.check_unchanged()?;
        found.sort_by_key(|probe| probe.address);
        Ok(found)
    }

    fn probe(&self, note: &[u8], base: Option<u64>) -> Option<Usdt> {
        let [at, linked_base, semaphore] = [u64_at(note, 0)?, u64_at(note, 8)?, u64_at(note, 16)?];
        let moved = match base {
            Some(base) if linked_base != 0 => base.wrapping_sub(linked_base),
            _ => 0,
        };
        let mut texts = note.get(24..)?;
        let mut text = || {
            let bytes = text_at(texts, 0, TEXT_BYTES_MAX)?;
            texts = texts.get(bytes.len() + 1..)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let (provider, name) = (text()?, text()?);
        let arguments = text()?;
        let address = Address(at.wrapping_add(moved));
        let file_offset = self.offset_of(address)?;
        let is_code = self.segment_of(file_offset)?.executable;
        let semaphore = match semaphore {
            0 => None,
            semaphore => Some(self.offset_of(Address(semaphore.wrapping_add(moved)))?),
        };
        (is_code && !provider.is_empty() && !name.is_empty()).then_some(Usdt {
            provider,
            name,
            file_offset,
            address,
            semaphore,
            arguments,
        })
    }
}

/// The contents of the note at `at` when it is one of ours, and where the next is.
fn note_at(data: &[u8], at: usize) -> Option<(Option<&[u8]>, usize)> {
    let header = data.get(at..)?;
    let owner_bytes = u32_at(header, 0)? as usize;
    let bytes = u32_at(header, 4)? as usize;
    let owner = header.get(NOTE_HEADER_BYTES..)?.get(..owner_bytes)?;
    let start = NOTE_HEADER_BYTES.checked_add(owner_bytes.checked_next_multiple_of(4)?)?;
    let contents = header.get(start..)?.get(..bytes)?;
    let is_ours = owner == OWNER && u32_at(header, 8)? == NOTE_TYPE;
    let next = start.checked_add(bytes.checked_next_multiple_of(4)?)?;
    Some((is_ours.then_some(contents), at.checked_add(next)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note(owner: &[u8], kind: u32, contents: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [owner.len() as u32, contents.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [owner, contents] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn notes_of_others_are_passed_over() {
        let data = [
            note(b"GNU\0", 3, b"12345"),
            note(OWNER, 9, b"x"),
            note(OWNER, 3, b"ours"),
        ]
        .concat();
        let (first, at) = note_at(&data, 0).unwrap();
        let (second, at) = note_at(&data, at).unwrap();
        let (third, at) = note_at(&data, at).unwrap();
        assert_eq!((first, second, third), (None, None, Some(&b"ours"[..])));
        assert_eq!(note_at(&data, at), None);
    }

    proptest! {
        #[test]
        fn no_notes_panic_or_go_on_for_ever(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut at = 0;
            while let Some((_, next)) = note_at(&data, at) {
                prop_assert!(next > at);
                at = next;
            }
        }
    }
}
