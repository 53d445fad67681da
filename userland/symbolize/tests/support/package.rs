// SPDX-License-Identifier: MIT OR Apache-2.0
//! A package of split DWARF 5 (DWARF 5, section 7.3.5), assembled: binutils' dwp leaves its
//! units out, and LLVM's, up to 19, does not come to an end with those of GCC.

use super::Folder;
use object::{Object, ObjectSection};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The sections that have a column in the index, with their numbers there (DW_SECT_*).
const COLUMNS: [(&str, u32); 6] = [
    (".debug_info.dwo", 1),
    (".debug_abbrev.dwo", 3),
    (".debug_line.dwo", 4),
    (".debug_loclists.dwo", 5),
    (".debug_str_offsets.dwo", 6),
    (".debug_rnglists.dwo", 8),
];
const STRINGS: &str = ".debug_str.dwo";
/// Bytes of the header in front of offsets of strings.
const STR_OFFSETS_HEADER: usize = 8;

fn section(file: &[u8], name: &str) -> Vec<u8> {
    let elf = object::File::parse(file).unwrap();
    let section = elf.section_by_name(name);
    section.map_or_else(Vec::new, |section| section.data().unwrap().to_vec())
}

/// Puts `.dwo` files with these ids into a package.
pub(crate) fn package(folder: &Folder, units: &[(u64, PathBuf)]) -> PathBuf {
    let files: Vec<Vec<u8>> = units
        .iter()
        .map(|(_, file)| fs::read(file).unwrap())
        .collect();
    let mut source = String::new();
    let mut sizes = vec![Vec::new(); units.len()];
    for (name, _) in COLUMNS {
        writeln!(source, ".section {name},\"e\"").unwrap();
        let mut strings = 0;
        for (file, sizes) in files.iter().zip(&mut sizes) {
            let mut bytes = section(file, name);
            if name == ".debug_str_offsets.dwo" {
                moved(&mut bytes, strings);
                strings += section(file, STRINGS).len() as u32;
            }
            sizes.push(bytes.len() as u32);
            literal(&mut source, &bytes);
        }
    }
    writeln!(source, ".section {STRINGS},\"e\"").unwrap();
    files
        .iter()
        .for_each(|file| literal(&mut source, &section(file, STRINGS)));
    writeln!(source, ".section .debug_cu_index,\"e\"").unwrap();
    let ids: Vec<u64> = units.iter().map(|(id, _)| *id).collect();
    index(&mut source, &ids, &sizes);
    let (assembly, out) = (
        folder.file("package.s", source.as_bytes()),
        folder.0.join("units.dwp"),
    );
    let assembled = Command::new("as")
        .arg("-o")
        .args([&out, &assembly])
        .status();
    assert!(assembled.unwrap().success());
    out
}

/// Adds what is in front of the strings to their offsets.
fn moved(offsets: &mut [u8], by: u32) {
    for word in offsets[STR_OFFSETS_HEADER..].chunks_exact_mut(4) {
        let offset = u32::from_le_bytes(word.try_into().unwrap());
        word.copy_from_slice(&(offset + by).to_le_bytes());
    }
}

fn literal(source: &mut String, bytes: &[u8]) {
    for byte in bytes {
        writeln!(source, ".byte {byte}").unwrap();
    }
}

/// The index: the units' ids, hashed, and the part of each section that is theirs.
fn index(source: &mut String, ids: &[u64], sizes: &[Vec<u32>]) {
    let slots = (ids.len() * 3 / 2 + 1).next_power_of_two();
    let mut rows = vec![(0, 0); slots];
    for (row, id) in (1..).zip(ids) {
        let mask = slots as u64 - 1;
        let (mut at, step) = (id & mask, (id >> 32) & mask | 1);
        while rows[at as usize].1 != 0 {
            at = (at + step) & mask;
        }
        rows[at as usize] = (*id, row);
    }
    writeln!(source, ".short 5, 0").unwrap();
    writeln!(source, ".long {}, {}, {slots}", COLUMNS.len(), ids.len()).unwrap();
    rows.iter()
        .for_each(|(id, _)| writeln!(source, ".quad {id:#x}").unwrap());
    rows.iter()
        .for_each(|(_, row)| writeln!(source, ".long {row}").unwrap());
    COLUMNS
        .iter()
        .for_each(|(_, number)| writeln!(source, ".long {number}").unwrap());
    let mut offsets = vec![0; COLUMNS.len()];
    for sizes in sizes {
        for (offset, size) in offsets.iter_mut().zip(sizes) {
            writeln!(source, ".long {offset}").unwrap();
            *offset += size;
        }
    }
    sizes
        .iter()
        .flatten()
        .for_each(|size| writeln!(source, ".long {size}").unwrap());
}
