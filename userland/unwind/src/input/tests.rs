// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that changes rows changes their name.

use super::*;
use crate::cache::Cache;
use std::sync::Arc;

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len().next_multiple_of(8) + 4;
    bytes.resize(length, 0);
    let mut entry = (length as u32).to_le_bytes().to_vec();
    entry.extend(bytes);
    entry
}

/// Of functions at 0x1000, 0x1040, ...: frame at rsp + 8; then at rsp + 16 with rbp below;
/// then at rbp + 16.
fn eh_frame(functions: u64) -> Vec<u8> {
    let common = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
    let mut bytes = padded(common.to_vec());
    for index in 0..functions {
        let mut entry = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
        entry.extend((0x1000 + index * 0x40).to_le_bytes());
        entry.extend(0x40u64.to_le_bytes());
        entry.extend([0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6]);
        bytes.extend(padded(entry));
    }
    bytes
}

fn section(data: Vec<u8>) -> LoadedSection {
    LoadedSection {
        data: Arc::from(data),
        address: Address(0x100),
    }
}

/// `.sframe` of one function at 0x1010, of 0x100 bytes, with its frame at rsp + 32.
fn sframe() -> Vec<u8> {
    let mut bytes = vec![0xe2, 0xde, 2, 0, 3, 0, 0xf8, 0];
    for word in [1u32, 1, 3, 0, 20, 0x1010 - 0x100, 0x100, 0, 1, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([0, 3, 32]);
    bytes
}

fn input(functions: u64) -> Input {
    Input {
        sections: UnwindSections {
            eh_frame: section(eh_frame(functions)),
            debug_frame: Arc::from([]),
            sframe: section(sframe()),
            go: nsprobe_symbolize::GoSections {
                table: Arc::from([]),
                text: Address(0),
                code: Vec::new(),
            },
            text: Address(0x1000),
            got: Address(0x9000),
            entry: Address(0),
        },
        segments: vec![Segment {
            file_offset: FileOffset(0x200),
            address: Address(0x1000),
            file_bytes: 0x10_0000,
            executable: true,
            writable: false,
        }],
        code_bytes: 0x80,
    }
}

/// When this fails, other rows come of the same input: raise [`COMPILER`], then change what
/// is written here.
#[test]
fn rows_have_not_changed_without_a_new_number() {
    let table = input(2).compile().expect("it has functions");
    let rules: Vec<String> = table
        .rules
        .iter()
        .map(|rule| {
            format!(
                "{}+{} {}+{}",
                rule.base, rule.offset, rule.saved, rule.saved_at
            )
        })
        .collect();
    assert_eq!(COMPILER, 3);
    assert_eq!(
        rules,
        ["3+8 0+0", "3+16 1+-16", "4+16 1+-16", "3+32 0+0", "0+0 0+0"]
    );
    assert_eq!((table.first, table.blocks.as_slice()), (0, &[0, 9][..]));
    let rows: Vec<(u32, u32)> = table
        .rows
        .iter()
        .map(|row| (row >> 16, row & 0xffff))
        .collect();
    let first = [(0, 4), (0x200, 0), (0x201, 1), (0x204, 2)];
    let second = [(0x240, 0), (0x241, 1), (0x244, 2)];
    // .sframe counts where .eh_frame has ended.
    let behind = [(0x280, 3), (0x310, 4)];
    assert_eq!(rows, [&first[..], &second, &behind].concat());
}

#[test]
fn every_part_changes_the_name() {
    let changes: [fn(&mut Input); 17] = [
        |_| (),
        |input| input.sections.eh_frame.data = Arc::from(eh_frame(3)),
        |input| input.sections.eh_frame.address.0 += 1,
        |input| input.sections.debug_frame = Arc::from([0]),
        |input| input.sections.sframe.data = Arc::from([]),
        |input| input.sections.sframe.address.0 += 1,
        |input| input.sections.go.table = Arc::from([0]),
        |input| input.sections.go.text.0 += 1,
        |input| input.sections.go.code.push(section(vec![0])),
        |input| input.sections.text.0 += 1,
        |input| input.sections.got.0 += 1,
        |input| input.sections.entry.0 += 1,
        |input| input.segments[0].file_offset.0 += 1,
        |input| input.segments[0].address.0 += 1,
        |input| input.segments[0].file_bytes += 1,
        |input| input.segments.push(input.segments[0]),
        |input| input.code_bytes += 1,
    ];
    let mut names: Vec<String> = changes
        .iter()
        .map(|change| {
            let mut input = input(2);
            change(&mut input);
            input.digest().to_string()
        })
        .collect();
    // Bytes that go from one section to the next.
    let mut moved = input(2);
    moved.sections.debug_frame = Arc::clone(&moved.sections.eh_frame.data);
    moved.sections.eh_frame.data = Arc::from([]);
    names.push(moved.digest().to_string());
    names.sort();
    names.dedup();
    assert_eq!(names.len(), changes.len() + 1);
    assert!(names.iter().all(|name| name.len() == 64));
}

#[test]
fn large_inputs_are_compiled_once() {
    let path = std::env::temp_dir().join(format!("nsprobe-once-{}", std::process::id()));
    let cache = Cache::open(&path).expect("it can be made");
    let (small, large) = (input(2), input(4000));
    for was_kept in [false, true] {
        let (table, is_kept) = cache.table(&large).expect("it has functions");
        assert_eq!(is_kept, was_kept);
        assert_eq!(table, large.compile().expect("it has functions"));
        assert!(!cache.table(&small).expect("it has functions").1);
    }
    let mut other = large.clone();
    other.code_bytes += 1;
    assert!(!cache.table(&other).expect("it has functions").1);
    let _ = std::fs::remove_dir_all(path);
}
