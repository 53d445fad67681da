// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that is not there, for who has its debug file alone and offsets in the program.
//!
//! `objcopy --only-keep-debug` keeps the addresses of the segments and changes their places in
//! the file. These follow from the addresses, as linkers lay files out: each segment comes
//! after the one before, at the first offset that is congruent to its address modulo its
//! alignment (System V gABI, "Program Header"). That goes for what is after the file's
//! header without a gap and without memory that the file does not hold; nothing else is
//! believed.

use crate::elf::{u16_at, u32_at, u64_at};
use crate::Binary;
use nix::sys::memfd::{memfd_create, MFdFlags};
use object::elf::{PF_W, PF_X, PT_LOAD};
use std::fs::File;
use std::os::unix::fs::FileExt;

const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Alignments of segments on x86-64, in bytes: of small and large pages.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 0x1000..=0x20_0000;

/// The header of a loaded segment.
#[derive(Clone, Copy)]
struct Load {
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    bytes: u64,
    alignment: u64,
}

impl Binary {
    /// A program without code and symbols, with segments where those of the program of this
    /// debug file are, up to the last one with code. The error says why that is not certain.
    pub fn elf_from_debug_file(&self) -> Result<Binary, String> {
        let headers = self.headers().ok_or("its headers cannot be read")?;
        let loads: Vec<Load> = headers
            .chunks_exact(PROGRAM_HEADER)
            .filter_map(load)
            .collect();
        let placed = placed(&loads)?;
        let failed = |error: std::io::Error| error.to_string();
        let file = memfd_create(c"stand-in", MFdFlags::MFD_CLOEXEC);
        let file = File::from(file.map_err(|error| error.to_string())?);
        let (header, end) = written(&placed);
        file.write_all_at(&header, 0).map_err(failed)?;
        file.set_len(end.max(header.len() as u64)).map_err(failed)?;
        Binary::open_sections(file, self.elf.path()).map_err(|error| error.to_string())
    }

    fn headers(&self) -> Option<Vec<u8>> {
        let mut header = [0; FILE_HEADER];
        self.elf.read_into(0, &mut header).ok()?;
        let count = usize::from(u16_at(&header, 56)?);
        let mut headers = vec![0; count * PROGRAM_HEADER];
        self.elf
            .read_into(u64_at(&header, 32)?, &mut headers)
            .ok()?;
        Some(headers)
    }
}

fn load(header: &[u8]) -> Option<Load> {
    (u32_at(header, 0)? == PT_LOAD.0).then_some(())?;
    Some(Load {
        flags: u32_at(header, 4)?,
        offset: u64_at(header, 8)?,
        address: u64_at(header, 16)?,
        file_bytes: u64_at(header, 32)?,
        bytes: u64_at(header, 40)?,
        alignment: u64_at(header, 48)?,
    })
}

/// The segments up to the last with code, where they are in the program's file.
fn placed(loads: &[Load]) -> Result<Vec<Load>, String> {
    let is_code = |load: &Load| load.flags & PF_X.0 != 0;
    let last = loads.iter().rposition(is_code);
    let last = last.ok_or("its headers tell of no code")?;
    let mut placed: Vec<Load> = Vec::new();
    for load in loads.iter().take(last + 1) {
        let before = placed.last();
        if load.flags & PF_W.0 != 0 {
            return Err("its headers have something writable in front of code".into());
        }
        let is_aligned = ALIGNMENTS.contains(&load.alignment) && load.alignment.is_power_of_two();
        let is_kept = load.offset % load.alignment.max(1) == load.address % load.alignment.max(1);
        if !is_aligned || !is_kept || (before.is_none() && load.offset != 0) {
            return Err("its headers are not as linkers write them".into());
        }
        let end = before.map_or(Some(0), |before| before.offset.checked_add(before.bytes));
        let above = before.is_none_or(|before| load.address > before.address);
        let end = end.filter(|_| above && load.bytes >= load.file_bytes);
        let end = end.ok_or("its headers contradict themselves")?;
        // How far the next offset that is congruent to the address is past the end.
        let gap = load.address.wrapping_sub(end) & (load.alignment - 1);
        let offset = end
            .checked_add(gap)
            .ok_or("its headers contradict themselves")?;
        placed.push(Load { offset, ..*load });
    }
    Ok(placed)
}

/// The headers of a file with these segments, and where its last one ends.
fn written(loads: &[Load]) -> (Vec<u8>, u64) {
    let mut bytes = vec![0; FILE_HEADER];
    let mut put = |at: usize, number: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + number.len()) {
            place.copy_from_slice(number);
        }
    };
    put(0, b"\x7fELF\x02\x01\x01");
    // A shared object for x86-64, whose program headers follow.
    put(16, &[3, 0, 62, 0, 1]);
    put(32, &(FILE_HEADER as u64).to_le_bytes());
    put(52, &[FILE_HEADER as u8, 0, PROGRAM_HEADER as u8, 0]);
    put(56, &(loads.len() as u16).to_le_bytes());
    let mut end = 0;
    for load in loads {
        bytes.extend(PT_LOAD.0.to_le_bytes());
        bytes.extend(load.flags.to_le_bytes());
        let Load {
            offset,
            address,
            bytes: length,
            alignment,
            ..
        } = *load;
        for number in [offset, address, address, length, length, alignment] {
            bytes.extend(number.to_le_bytes());
        }
        end = offset.saturating_add(length);
    }
    (bytes, end)
}
