// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug information that no compiler writes (DWARF 4, of 64-bit addresses).

use super::elf::{section, Section};

pub(crate) const COMPILE_UNIT: u8 = 0x11;
pub(crate) const SUBPROGRAM: u8 = 0x2e;
pub(crate) const INLINED: u8 = 0x1d;
pub(crate) const LEXICAL_BLOCK: u8 = 0x0b;
pub(crate) const LABEL: u8 = 0x0a;

const LOW_PC: u8 = 0x11;
const HIGH_PC: u8 = 0x12;
const ABSTRACT_ORIGIN: u8 = 0x31;
const SPECIFICATION: u8 = 0x47;
const STATEMENTS: u8 = 0x10;
const NAME: u8 = 0x03;

const ADDRESS: u8 = 0x01;
const DATA8: u8 = 0x07;
const REFERENCE: u8 = 0x13;
const OFFSET: u8 = 0x17;
const STRING: u8 = 0x08;

/// Bytes in front of a unit's first entry.
pub(crate) const UNIT_HEADER_BYTES: u32 = 11;

/// Abbreviation `number`: a tag, whether it has children, its attributes and forms.
fn abbreviation(number: u8, tag: u8, children: bool, attributes: &[(u8, u8)]) -> Vec<u8> {
    let mut bytes = vec![number, tag, children.into()];
    bytes.extend(attributes.iter().flat_map(|&(name, form)| [name, form]));
    bytes.extend([0, 0]);
    bytes
}

/// The abbreviations that are used here:
/// 1 a unit with lines, 2 a function by abstract origin, 3 the same inlined, 4 the same by
/// specification, 5 a block with children, 6 a function with a name and children, 7 a label
/// by abstract origin.
pub(crate) fn abbreviations() -> Vec<u8> {
    let range = [(LOW_PC, ADDRESS), (HIGH_PC, DATA8)];
    let with = |more: (u8, u8)| vec![range[0], range[1], more];
    let mut all = abbreviation(1, COMPILE_UNIT, true, &with((STATEMENTS, OFFSET)));
    all.extend(abbreviation(
        2,
        SUBPROGRAM,
        true,
        &with((ABSTRACT_ORIGIN, REFERENCE)),
    ));
    all.extend(abbreviation(
        3,
        INLINED,
        true,
        &with((ABSTRACT_ORIGIN, REFERENCE)),
    ));
    all.extend(abbreviation(
        4,
        SUBPROGRAM,
        true,
        &with((SPECIFICATION, REFERENCE)),
    ));
    all.extend(abbreviation(5, LEXICAL_BLOCK, true, &[]));
    all.extend(abbreviation(6, SUBPROGRAM, true, &with((NAME, STRING))));
    all.extend(abbreviation(
        7,
        LABEL,
        false,
        &[(ABSTRACT_ORIGIN, REFERENCE)],
    ));
    all.push(0);
    all
}

/// An entry of abbreviation 2, 3 or 4 that covers some code and refers to another.
pub(crate) fn referring(number: u8, from: u64, bytes: u64, to: u32) -> Vec<u8> {
    let mut entry = vec![number];
    entry.extend(from.to_le_bytes());
    entry.extend(bytes.to_le_bytes());
    entry.extend(to.to_le_bytes());
    entry
}

/// An entry of abbreviation 6.
pub(crate) fn named(name: &str, from: u64, bytes: u64) -> Vec<u8> {
    let mut entry = vec![6];
    entry.extend(from.to_le_bytes());
    entry.extend(bytes.to_le_bytes());
    entry.extend(name.as_bytes());
    entry.push(0);
    entry
}

/// Where the first entry in a unit's own entry is, in the unit.
pub(crate) const FIRST: u32 = UNIT_HEADER_BYTES + 1 + 8 + 8 + 4;

/// A unit with these entries in its own.
pub(crate) fn unit(from: u64, bytes: u64, entries: &[u8]) -> Vec<u8> {
    let mut body = vec![4, 0, 0, 0, 0, 0, 8];
    body.push(1);
    body.extend(from.to_le_bytes());
    body.extend(bytes.to_le_bytes());
    // Its lines.
    body.extend([0; 4]);
    body.extend(entries);
    let mut unit = (body.len() as u32).to_le_bytes().to_vec();
    unit.extend(body);
    unit
}

/// What comes before the operations of a line program of so many bytes.
pub(crate) fn line_header(operations: u64) -> Vec<u8> {
    // One byte an instruction, statements by default, lines from 0 in steps of 1, special
    // operations from 10 on; no folders; one file, `a`.
    let mut tables = vec![1, 1, 1, 0, 1, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1];
    tables.extend([0, b'a', 0, 0, 0, 0, 0]);
    let mut header = ((2 + 4 + tables.len() as u64 + operations) as u32)
        .to_le_bytes()
        .to_vec();
    header.extend([4, 0]);
    header.extend((tables.len() as u32).to_le_bytes());
    header.extend(tables);
    header
}

/// The sections of a program with this debug information.
pub(crate) fn sections(info: Vec<u8>) -> Vec<Section> {
    vec![
        section(".debug_info", info),
        section(".debug_abbrev", abbreviations()),
        section(".debug_line", line_header(0)),
    ]
}
