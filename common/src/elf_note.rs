// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Finds the build-id of an ELF file, given a way to read its bytes.
//!
//! The bytes are hostile: every sum is checked, and the work is bounded by
//! [`PROGRAM_HEADERS_MAX`] and [`NOTES_MAX`]. The format is that of the
//! System V gABI, chapters "ELF Header", "Program Header" and "Note Section".

use super::abi::BUILD_ID_MAX;

/// The maximum number of program headers that are read.
pub const PROGRAM_HEADERS_MAX: u16 = 64;
/// The maximum number of notes that are read in one file.
pub const NOTES_MAX: u32 = 32;

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
const NOTE_HEADER: u64 = 12;

/// Why there is no build-id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The bytes could not be read.
    Unreadable,
    /// Not a little-endian ELF file.
    NotElf,
    /// An ELF file with inconsistent headers or notes.
    Malformed,
    /// A valid ELF file without a build-id.
    Absent,
}

/// A build-id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildId {
    bytes: [u8; BUILD_ID_MAX],
    length: u8,
}

impl BuildId {
    /// The id's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or(&[])
    }

    /// The id's bytes, zero-padded.
    pub const fn padded(&self) -> [u8; BUILD_ID_MAX] {
        self.bytes
    }

    /// Length in bytes, 1 to [`BUILD_ID_MAX`].
    pub const fn len(&self) -> u32 {
        self.length as u32
    }

    /// Always false: an empty build-id is not accepted.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The two classes of ELF files: where their headers hold what is needed.
struct Class {
    header_bytes: usize,
    phoff: fn(&[u8]) -> Option<u64>,
    phentsize_at: usize,
    phnum_at: usize,
    ph_bytes: usize,
    note_range: fn(&[u8]) -> Option<(u64, u64)>,
}

const ELF64: Class = Class {
    header_bytes: 64,
    phoff: |header| u64_at(header, 32),
    phentsize_at: 54,
    phnum_at: 56,
    ph_bytes: 56,
    note_range: |ph| Some((u64_at(ph, 8)?, u64_at(ph, 32)?)),
};

const ELF32: Class = Class {
    header_bytes: 52,
    phoff: |header| u32_at(header, 28).map(u64::from),
    phentsize_at: 42,
    phnum_at: 44,
    ph_bytes: 32,
    note_range: |ph| Some((u32_at(ph, 4)?.into(), u32_at(ph, 16)?.into())),
};

/// Finds the build-id of the file that `read(offset, out)` reads: it fills all of `out` from the
/// file offset on and returns whether it could.
pub fn find(mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Result<BuildId, Missing> {
    let mut header = [0; 64];
    let (ident, _) = header.split_at_mut(52);
    if !read(0, ident) {
        return Err(Missing::Unreadable);
    }
    let class = match ident.first_chunk::<6>() {
        Some(b"\x7fELF\x02\x01") => &ELF64,
        Some(b"\x7fELF\x01\x01") => &ELF32,
        _ => return Err(Missing::NotElf),
    };
    let header = header
        .get_mut(..class.header_bytes)
        .ok_or(Missing::Malformed)?;
    if !read(0, header) {
        return Err(Missing::Unreadable);
    }
    let phoff = (class.phoff)(header).ok_or(Missing::Malformed)?;
    let phnum = u16_at(header, class.phnum_at).ok_or(Missing::Malformed)?;
    let phentsize = u16_at(header, class.phentsize_at).ok_or(Missing::Malformed)?;
    if usize::from(phentsize) != class.ph_bytes || phnum > PROGRAM_HEADERS_MAX {
        return Err(Missing::Malformed);
    }
    let mut budget = NOTES_MAX;
    for i in 0..u64::from(phnum) {
        let at = i
            .checked_mul(class.ph_bytes as u64)
            .and_then(|skip| phoff.checked_add(skip))
            .ok_or(Missing::Malformed)?;
        let mut ph = [0; 56];
        let ph = ph.get_mut(..class.ph_bytes).ok_or(Missing::Malformed)?;
        if !read(at, ph) {
            return Err(Missing::Unreadable);
        }
        if u32_at(ph, 0) != Some(PT_NOTE) {
            continue;
        }
        let (offset, bytes) = (class.note_range)(ph).ok_or(Missing::Malformed)?;
        let end = offset.checked_add(bytes).ok_or(Missing::Malformed)?;
        if let Some(id) = find_in_notes(&mut read, offset, end, &mut budget)? {
            return Ok(id);
        }
    }
    Err(Missing::Absent)
}

/// The build-id among the notes in the file range `at..end`.
fn find_in_notes(
    read: &mut impl FnMut(u64, &mut [u8]) -> bool,
    mut at: u64,
    end: u64,
    budget: &mut u32,
) -> Result<Option<BuildId>, Missing> {
    while end.saturating_sub(at) >= NOTE_HEADER {
        let mut note = [0; 16];
        let with_name = note.get_mut(..end.saturating_sub(at).min(16) as usize);
        if !read(at, with_name.ok_or(Missing::Malformed)?) {
            return Err(Missing::Unreadable);
        }
        let name_bytes = u32_at(&note, 0).ok_or(Missing::Malformed)?;
        let desc_bytes = u32_at(&note, 4).ok_or(Missing::Malformed)?;
        let kind = u32_at(&note, 8).ok_or(Missing::Malformed)?;
        // Both are below 2^32, so their padded sum cannot overflow 64 bits.
        let desc_at = NOTE_HEADER + ((u64::from(name_bytes) + 3) & !3);
        let length = desc_at + ((u64::from(desc_bytes) + 3) & !3);
        let gnu = name_bytes == 4 && note.get(12..16) == Some(b"GNU\0");
        if gnu && kind == NT_GNU_BUILD_ID {
            return read_id(read, at, desc_at, desc_bytes, end).map(Some);
        }
        *budget = budget.checked_sub(1).ok_or(Missing::Malformed)?;
        at = at.checked_add(length).ok_or(Missing::Malformed)?;
    }
    Ok(None)
}

/// The descriptor of the build-id note at `at`.
fn read_id(
    read: &mut impl FnMut(u64, &mut [u8]) -> bool,
    at: u64,
    desc_at: u64,
    desc_bytes: u32,
    end: u64,
) -> Result<BuildId, Missing> {
    let start = at.checked_add(desc_at).ok_or(Missing::Malformed)?;
    let inside = start
        .checked_add(desc_bytes.into())
        .is_some_and(|desc_end| desc_end <= end);
    let mut bytes = [0; BUILD_ID_MAX];
    let out = match bytes.get_mut(..desc_bytes as usize) {
        Some(out) if inside && !out.is_empty() => out,
        _ => return Err(Missing::Malformed),
    };
    if !read(start, out) {
        return Err(Missing::Unreadable);
    }
    Ok(BuildId {
        bytes,
        length: desc_bytes as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    fn find_in(file: &[u8]) -> Result<BuildId, Missing> {
        find(|offset, out| read(file, offset, out))
    }

    fn read(file: &[u8], offset: u64, out: &mut [u8]) -> bool {
        let Ok(start) = usize::try_from(offset) else {
            return false;
        };
        let Some(bytes) = start
            .checked_add(out.len())
            .and_then(|end| file.get(start..end))
        else {
            return false;
        };
        out.copy_from_slice(bytes);
        true
    }

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(&(desc.len() as u32).to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        for part in [name, desc] {
            out.extend_from_slice(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    fn elf64(notes: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&1u16.to_le_bytes());
        file[64..68].copy_from_slice(&PT_NOTE.to_le_bytes());
        file[72..80].copy_from_slice(&120u64.to_le_bytes());
        file[96..104].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        file.extend_from_slice(notes);
        file
    }

    #[test]
    fn the_build_id_behind_another_note_is_found() {
        for length in [1, 8, 16, 20] {
            let id: Vec<u8> = (1..=length).collect();
            let notes = [note(b"GNU\0", 5, &[0; 17]), note(b"GNU\0", 3, &id)].concat();
            assert_eq!(find_in(&elf64(&notes)).unwrap().as_bytes(), id);
        }
    }

    #[test]
    fn contradictions_are_malformed() {
        assert_eq!(
            find_in(&elf64(&note(b"GNU\0", 3, &[1; 32]))),
            Err(Missing::Malformed)
        );
        assert_eq!(
            find_in(&elf64(&note(b"GNU\0", 3, &[]))),
            Err(Missing::Malformed)
        );
        let mut many = elf64(&note(b"GNU\0", 3, &[1; 20]));
        many[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(find_in(&many), Err(Missing::Malformed));
        let mut far = elf64(&[]);
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(find_in(&far), Err(Missing::Unreadable));
        let mut wrap = elf64(&note(b"GNU\0", 3, &[1; 20]));
        wrap[96..104].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(find_in(&wrap), Err(Missing::Malformed));
    }

    #[test]
    fn other_names_and_other_files_have_none() {
        assert_eq!(
            find_in(&elf64(&note(b"GNX\0", 3, &[1; 20]))),
            Err(Missing::Absent)
        );
        assert_eq!(find_in(&[0; 64]), Err(Missing::NotElf));
        assert_eq!(find_in(&[]), Err(Missing::Unreadable));
    }

    #[test]
    fn empty_notes_use_up_the_budget() {
        let notes = vec![0; 64 << 10];
        let (file, mut reads) = (elf64(&notes), 0);
        let found = find(|offset, out| {
            reads += 1;
            read(&file, offset, out)
        });
        assert_eq!(found, Err(Missing::Malformed));
        assert!(reads < 40, "{reads}");
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(at in 0usize..200, value in any::<u64>()) {
            let mut file = elf64(&note(b"GNU\0", 3, &[7; 20]));
            let at = at % (file.len() - 8);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let _ = find_in(&file);
        }
    }
}
