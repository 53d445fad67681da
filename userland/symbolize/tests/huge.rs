// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: as much debug information as there may be names code, by the parts of it that are
//! needed.

use crate::support::frames::{agrees, text};
use crate::support::{output_of, Folder};
use nsprobe_symbolize::{DebugSet, NamesFrom};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the units in front of the program's own.
const UNIT_BYTES: u64 = 512 << 20;
const UNITS: u64 = 3;

/// A `.debug_info` of more than a gigabyte, most of it units without entries, which take no
/// place on the disk.
#[test]
#[ignore = "full run: a file of 1.5 GB"]
fn functions_in_more_than_a_gigabyte_of_debug_information_are_named() {
    let folder = Folder::new("huge");
    let Some(whole) = folder.fixture("whole", &["-g", "-gdwarf-5"]) else {
        return;
    };
    // It tells where units begin.
    output_of(
        "objcopy",
        &["--remove-section=.debug_aranges", text(&whole)],
    );
    let huge = folder.0.join("huge");
    fs::copy(&whole, &huge).unwrap();
    put_units_before_those_of(&huge);
    assert!(fs::metadata(&huge).unwrap().len() > UNITS * UNIT_BYTES);
    // As in a process that parses for others: units that nobody asks about are not looked at.
    nsprobe_symbolize::stay_in_one_thread();
    agrees(&whole, &huge, &DebugSet::default(), |from| {
        *from == NamesFrom::Program
    });
    let memory = fs::read_to_string("/proc/self/status").unwrap();
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    // Other tests run in this process, too.
    let most = (UNITS * UNIT_BYTES / 2) >> 10;
    assert!(peak.parse::<u64>().unwrap() < most, "{peak} kB");
}

/// The sections of a file's bytes (System V gABI).
struct Sections<'a>(&'a [u8]);

impl<'a> Sections<'a> {
    fn number(&self, at: u64, length: usize) -> u64 {
        let mut number = [0; 8];
        number[..length].copy_from_slice(&self.0[at as usize..][..length]);
        u64::from_le_bytes(number)
    }

    /// Where the header of a section is.
    fn header(&self, name: &[u8]) -> u64 {
        let (first, count, names) = (self.number(40, 8), self.number(60, 2), self.number(62, 2));
        let names = self.number(first + 64 * names + 24, 8);
        let is_called = |header: &u64| {
            let at = names + self.number(*header, 4);
            self.0[at as usize..].starts_with(name)
        };
        let mut headers = (0..count).map(|index| first + 64 * index);
        headers.find(is_called).unwrap()
    }

    fn data(&self, header: u64) -> &'a [u8] {
        let (from, length) = (self.number(header + 24, 8), self.number(header + 32, 8));
        &self.0[from as usize..][..length as usize]
    }
}

/// The code of an entry that is no unit and has no address and no children.
fn plain_entry(abbreviations: &[u8]) -> u8 {
    let table = gimli::DebugAbbrev::new(abbreviations, gimli::LittleEndian);
    let table = table.abbreviations(gimli::DebugAbbrevOffset(0)).unwrap();
    let is_plain = |code: &u8| {
        let entry = table.get(u64::from(*code)).unwrap();
        let names = entry.attributes().iter().map(|attribute| attribute.name());
        let is_type = entry.tag() == gimli::DW_TAG_base_type;
        is_type && !entry.has_children() && names.count() > 0
    };
    (1..128).find(is_plain).unwrap()
}

/// Moves `.debug_info` to the end of the file, after units that it begins with from now on.
fn put_units_before_those_of(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let sections = Sections(&bytes);
    let info = sections.header(b".debug_info\0");
    let own = sections.data(info);
    let entry = plain_entry(sections.data(sections.header(b".debug_abbrev\0")));
    let start = (bytes.len() as u64).next_multiple_of(4096);
    let file = File::options().write(true).open(path).unwrap();
    for unit in 0..UNITS {
        // DWARF 5, section 7.5.1.1: a length that does not count itself, version 5, a unit of
        // a program, addresses of 8 bytes, the abbreviations at 0.
        let mut begin = (UNIT_BYTES as u32 - 4).to_le_bytes().to_vec();
        begin.extend([5, 0, 1, 8, 0, 0, 0, 0, entry]);
        file.write_all_at(&begin, start + unit * UNIT_BYTES)
            .unwrap();
    }
    let behind = UNITS * UNIT_BYTES;
    let length = behind + own.len() as u64;
    file.write_all_at(own, start + behind).unwrap();
    file.write_all_at(&start.to_le_bytes(), info + 24).unwrap();
    file.write_all_at(&length.to_le_bytes(), info + 32).unwrap();
}
