// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sections of a file whose section headers were taken away (`sstrip`, `llvm-strip
//! --strip-sections`), as far as the dynamic linker and the unwinder need them and the program
//! headers say where they are (System V gABI, "Dynamic Section").

use crate::elf::{u32_at, u64_at, Elf, Section};
use crate::function::SYMBOL_BYTES;
use crate::{Address, Segment};
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use object::elf;
use object::read::elf::{GnuHashTable, HashTable};
use std::collections::HashMap;

const ENTRY_BYTES: usize = 16;
/// Largest table that says how many symbols there are, and largest one of versions, in bytes.
const HASH_BYTES_MAX: u64 = 64 << 20;
const VERSIONS_BYTES_MAX: u64 = 1 << 20;

/// Where the names are among the sections.
const STRINGS: u32 = 1;

type ElfHeader = elf::FileHeader64<object::LittleEndian>;

/// The sections that the program headers lead to.
pub(crate) fn sections<'a>(
    elf: &Elf,
    headers: impl Iterator<Item = &'a [u8]> + Clone,
) -> Vec<Section> {
    let header = |kind: elf::ProgramType| {
        let mut headers = headers.clone();
        headers.find(|header| u32_at(header, 0) == Some(kind.0))
    };
    let symbols = header(elf::PT_DYNAMIC).and_then(|header| dynamic(elf, header));
    let frames = header(elf::PT_GNU_EH_FRAME).and_then(|header| frames(elf, header));
    let symbols = symbols.into_iter().flatten();
    symbols.chain(frames.into_iter().flatten()).collect()
}

/// What is at an address, up to the end of its segment, and at most `most` bytes.
fn at(elf: &Elf, name: &str, kind: elf::SectionType, address: u64, most: u64) -> Option<Section> {
    let holds = |segment: &&Segment| segment.offset_of(Address(address)).is_some();
    let segment = elf.segments.iter().find(holds)?;
    let into = address.checked_sub(segment.address.0)?;
    let left = segment.file_bytes.checked_sub(into)?;
    Some(Section {
        address,
        offset: segment.file_offset.0.checked_add(into)?,
        ..Section::without_header(name, kind, left.min(most))
    })
}

/// The symbols of the dynamic linker, with their names and versions.
fn dynamic(elf: &Elf, header: &[u8]) -> Option<Vec<Section>> {
    let (address, bytes) = (u64_at(header, 16)?, u64_at(header, 32)?);
    let dynamic = at(elf, ".dynamic", elf::SHT_DYNAMIC, address, bytes)?;
    let mut tags = HashMap::new();
    for entry in elf.data(&dynamic).ok()?.chunks_exact(ENTRY_BYTES) {
        let tag = u64_at(entry, 0)? as i64;
        if tag == elf::DT_NULL.0 {
            break;
        }
        tags.entry(tag).or_insert(u64_at(entry, 8)?);
    }
    let tag = |tag: elf::DynamicTag| tags.get(&tag.0).copied();
    let table = |name, kind, at_tag: elf::DynamicTag, bytes| {
        let table = at(elf, name, kind, tag(at_tag)?, bytes)?;
        Some(Section {
            link: STRINGS,
            ..table
        })
    };
    let count = symbols(elf, tag(elf::DT_HASH), tag(elf::DT_GNU_HASH))?;
    let bytes = u64::from(count).checked_mul(SYMBOL_BYTES as u64)?;
    let strings = tag(elf::DT_STRSZ)?;
    let mut sections = vec![
        Section::without_header("", elf::SHT_NULL, 0),
        table(".dynstr", elf::SHT_STRTAB, elf::DT_STRTAB, strings)?,
        table(".dynsym", elf::SHT_DYNSYM, elf::DT_SYMTAB, bytes)?,
        Section {
            link: STRINGS,
            ..dynamic
        },
    ];
    let bytes = u64::from(count) * 2;
    let versions = table(".gnu.version", elf::SHT_GNU_VERSYM, elf::DT_VERSYM, bytes);
    let names = table(
        ".gnu.version_d",
        elf::SHT_GNU_VERDEF,
        elf::DT_VERDEF,
        VERSIONS_BYTES_MAX,
    );
    sections.extend(versions.into_iter().chain(names));
    Some(sections)
}

/// What describes frames, and the index of it.
fn frames(elf: &Elf, header: &[u8]) -> Option<[Section; 2]> {
    let (address, bytes) = (u64_at(header, 16)?, u64_at(header, 32)?);
    let kind = elf::SHT_PROGBITS;
    let index = at(elf, ".eh_frame_hdr", kind, address, bytes)?;
    let data = elf.data(&index).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let parsed = EhFrameHdr::new(&data, LittleEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
        return None;
    };
    // It ends with an entry of no length.
    Some([index, at(elf, ".eh_frame", kind, address, u64::MAX)?])
}

/// The number of symbols, which only their hash tables have.
fn symbols(elf: &Elf, hash: Option<u64>, gnu_hash: Option<u64>) -> Option<u32> {
    let data = |address: Option<u64>| {
        let section = at(elf, "", elf::SHT_HASH, address?, HASH_BYTES_MAX)?;
        elf.data(&section).ok()
    };
    if let Some(data) = data(hash) {
        let table = HashTable::<ElfHeader>::parse(object::LittleEndian, &data);
        return Some(table.ok()?.symbol_table_length());
    }
    let data = data(gnu_hash)?;
    let table = GnuHashTable::<ElfHeader>::parse(object::LittleEndian, &data);
    table.ok()?.symbol_table_length(object::LittleEndian)
}
