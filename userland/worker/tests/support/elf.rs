// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that no linker writes.

/// Where code lies, in the file and in memory.
pub(crate) const TEXT: u64 = 0x1000;
const TEXT_BYTES: usize = 0x1000;
const HEADER_BYTES: usize = 64;

/// A section header and what it stands for.
#[derive(Clone, Default)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) link: u32,
    pub(crate) data: Vec<u8>,
    /// What the header says instead of where the data lies.
    pub(crate) lies: Option<(u64, u64)>,
}

pub(crate) const PROGBITS: u32 = 1;
pub(crate) const SYMTAB: u32 = 2;
pub(crate) const STRTAB: u32 = 3;
pub(crate) const COMPRESSED: u64 = 0x800;

/// A section with this in it.
pub(crate) fn section(name: &'static str, data: Vec<u8>) -> Section {
    Section {
        name,
        kind: PROGBITS,
        data,
        ..Section::default()
    }
}

/// A compressed section: 1 is zlib, 2 is zstd.
pub(crate) fn compressed(name: &'static str, how: u32, declared: u64, stream: &[u8]) -> Section {
    let mut data = [how.to_le_bytes(), [0; 4]].concat();
    data.extend(declared.to_le_bytes());
    data.extend(1u64.to_le_bytes());
    data.extend(stream);
    Section {
        flags: COMPRESSED,
        ..section(name, data)
    }
}

/// These bytes, then `count` times the same, as a stream of zstd (RFC 8878) that takes 4
/// bytes for 128 KiB.
pub(crate) fn zstd(first: &[u8], byte: u8, count: u64) -> Vec<u8> {
    const BLOCK: u64 = 128 << 10;
    // The magic number, no checksum, a window of 128 KiB.
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    let header = |is_last: bool, kind: u64, length: u64| {
        let header = u64::from(is_last) | kind << 1 | length << 3;
        header.to_le_bytes()[..3].to_vec()
    };
    for piece in first.chunks(BLOCK as usize) {
        stream.extend(header(false, 0, piece.len() as u64));
        stream.extend(piece);
    }
    let mut left = count;
    loop {
        let length = left.min(BLOCK);
        left -= length;
        stream.extend(header(left == 0, 1, length));
        stream.push(byte);
        if left == 0 {
            return stream;
        }
    }
}

/// A symbol table of functions, and its names: two sections, of which the first will be
/// number `at`.
pub(crate) fn symbols(at: u32, list: &[(&[u8], u64, u64)]) -> [Section; 2] {
    let mut names = vec![0];
    let mut table = vec![0; 24];
    for (name, address, bytes) in list {
        table.extend((names.len() as u32).to_le_bytes());
        // A global function in section 1.
        table.extend([0x12, 0, 1, 0]);
        table.extend(address.to_le_bytes());
        table.extend(bytes.to_le_bytes());
        names.extend(*name);
        names.push(0);
    }
    let table = Section {
        kind: SYMTAB,
        link: at + 1,
        ..section(".symtab", table)
    };
    let names = Section {
        kind: STRTAB,
        ..section(".strtab", names)
    };
    [table, names]
}

/// A program of a page of code and these sections, which are numbers 2 and up.
pub(crate) fn program(sections: &[Section]) -> Vec<u8> {
    let mut names = Section {
        kind: STRTAB,
        ..section(".shstrtab", vec![0])
    };
    let mut all = vec![
        Section::default(),
        Section {
            flags: 6,
            lies: Some((TEXT, TEXT_BYTES as u64)),
            ..section(".text", Vec::new())
        },
    ];
    all.extend_from_slice(sections);
    let mut name_offsets = Vec::new();
    for section in &all {
        name_offsets.push(names.data.len() as u32);
        names.data.extend(section.name.as_bytes());
        names.data.push(0);
    }
    name_offsets.push(0);
    all.push(names);
    let mut file = vec![0x90; TEXT as usize + TEXT_BYTES];
    let mut headers = Vec::new();
    for (section, name) in all.iter().zip(name_offsets) {
        let (offset, bytes) = section
            .lies
            .unwrap_or((file.len() as u64, section.data.len() as u64));
        file.extend(&section.data);
        headers.extend(name.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        headers.extend(section.flags.to_le_bytes());
        let address = if section.flags & 2 != 0 { offset } else { 0 };
        for number in [address, offset, bytes] {
            headers.extend(number.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        headers.extend([0; 4]);
        headers.extend(1u64.to_le_bytes());
        headers.extend(24u64.to_le_bytes());
    }
    let table = file.len() as u64;
    file.extend(headers);
    file[..HEADER_BYTES].copy_from_slice(&header(table, all.len() as u16));
    file[HEADER_BYTES..HEADER_BYTES + 56].copy_from_slice(&load());
    file
}

/// The file header, of so many sections, the last of which has their names.
fn header(table: u64, sections: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    // A shared object for x86-64.
    header.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    header.extend(TEXT.to_le_bytes());
    header.extend((HEADER_BYTES as u64).to_le_bytes());
    header.extend(table.to_le_bytes());
    header.extend([0; 4]);
    for number in [64, 56, 1, 64, sections, sections - 1] {
        header.extend(number.to_le_bytes());
    }
    header
}

/// One segment: all from the beginning to the end of the code.
fn load() -> Vec<u8> {
    let bytes = TEXT + TEXT_BYTES as u64;
    let mut load = [1u32.to_le_bytes(), 5u32.to_le_bytes()].concat();
    for number in [0, 0, 0, bytes, bytes, 0x1000] {
        load.extend(number.to_le_bytes());
    }
    load
}

/// Changes a number of two bytes in a file.
pub(crate) fn set_u16(file: &mut [u8], at: usize, value: u16) {
    file[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The number of eight bytes at a place.
pub(crate) fn u64_at(file: &[u8], at: usize) -> usize {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap_or_default()) as usize
}
