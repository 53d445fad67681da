// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small ELF files around bytes of a fuzzer's, so that these are sections that are read.

use nix::sys::memfd::{memfd_create, MFdFlags};
use nsprobe_symbolize::Binary;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Where the code is in the file, in bytes, and by the file's own count.
pub(crate) const TEXT_OFFSET: u64 = 0x80;
pub(crate) const TEXT_ADDRESS: u64 = BASE + TEXT_OFFSET;
/// How much there is.
pub(crate) const TEXT_BYTES: u64 = 0x400;
/// Where the file is loaded.
const BASE: u64 = 0x40_0000;

/// Sizes of the parts of ELF's own.
const SECTION_HEADER: usize = 64;

/// Flags of sections: loaded, code, compressed.
const ALLOC: u64 = 2;
const CODE: u64 = 4;
pub(crate) const COMPRESSED: u64 = 0x800;

/// A section.
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) flags: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Section<'a> {
    pub(crate) fn plain(name: &'a str, bytes: &'a [u8]) -> Section<'a> {
        Section {
            name,
            flags: 0,
            bytes,
        }
    }

    pub(crate) fn loaded(name: &'a str, bytes: &'a [u8]) -> Section<'a> {
        Section {
            name,
            flags: ALLOC,
            bytes,
        }
    }
}

/// Cuts bytes into so many parts: in front of each stands its length, in two bytes, the lowest
/// first; what comes after the last one is ignored.
pub fn split(mut bytes: &[u8], count: usize) -> Vec<&[u8]> {
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, rest) = bytes.split_first_chunk().unwrap_or((&[0, 0], &[]));
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (part, rest) = rest.split_at(length);
        parts.push(part);
        bytes = rest;
    }
    parts
}

/// A program with code and these sections.
pub(crate) fn program(sections: &[Section<'_>]) -> Vec<u8> {
    let code = [0x90; TEXT_BYTES as usize];
    let text = Section {
        name: ".text",
        flags: ALLOC | CODE,
        bytes: &code,
    };
    let mut file = vec![0; TEXT_OFFSET as usize];
    let mut names = vec![0];
    let mut headers = vec![0; SECTION_HEADER];
    for section in [&text].into_iter().chain(sections) {
        header(&mut headers, names.len(), section, file.len());
        names.extend(section.name.as_bytes());
        names.push(0);
        file.extend(section.bytes);
    }
    let strings = Section::plain(".shstrtab", b"");
    header(&mut headers, names.len(), &strings, file.len());
    names.extend(b".shstrtab\0");
    let last = headers.len() - SECTION_HEADER;
    put(&mut headers, last + 32, names.len() as u64);
    file.extend(names);
    let at = file.len();
    file.extend(&headers);
    file_header(&mut file, at, headers.len() / SECTION_HEADER);
    file
}

/// Appends a section's header (System V gABI, "Sections").
fn header(headers: &mut Vec<u8>, name: usize, section: &Section<'_>, offset: usize) {
    let at = headers.len();
    headers.resize(at + SECTION_HEADER, 0);
    let address = match section.flags & ALLOC {
        0 => 0,
        _ => BASE + offset as u64,
    };
    put(headers, at, name as u64 | 1 << 32);
    put(headers, at + 8, section.flags);
    put(headers, at + 16, address);
    put(headers, at + 24, offset as u64);
    put(headers, at + 32, section.bytes.len() as u64);
}

/// Writes the file's header, and that of the one segment, which has the whole file.
fn file_header(file: &mut [u8], sections_at: usize, sections: usize) {
    let bytes = file.len() as u64;
    if let Some(start) = file.get_mut(..7) {
        start.copy_from_slice(b"\x7fELF\x02\x01\x01");
    }
    // A program for x86-64, of version 1.
    put(file, 16, 2 | 62 << 16 | 1 << 32);
    put(file, 24, TEXT_ADDRESS);
    put(file, 32, 64);
    put(file, 40, sections_at as u64);
    put(file, 52, 64 | 56 << 16 | 1 << 32 | 64 << 48);
    put(file, 60, sections as u64 | (sections as u64 - 1) << 16);
    // PT_LOAD, readable and executable. Its header overwrites what the last number had more
    // bytes than.
    put(file, 64, 1 | 5 << 32);
    put(file, 80, BASE);
    put(file, 88, BASE);
    put(file, 96, bytes);
    put(file, 104, bytes);
    put(file, 112, 0x1000);
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// A file in memory.
pub(crate) fn file(bytes: &[u8]) -> File {
    let file = memfd_create(c"seam", MFdFlags::MFD_CLOEXEC);
    let mut file = File::from(file.expect("there is memory"));
    file.write_all(bytes).expect("there is memory");
    file
}

/// The program with these sections, opened; one that is made here is always sound.
pub(crate) fn open(sections: &[Section<'_>]) -> Binary {
    let opened = Binary::open(file(&program(sections)), Path::new("seam"));
    opened.expect("the file around the sections is sound")
}
