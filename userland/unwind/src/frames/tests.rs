// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of sections that are made up.

use super::*;
use nsprobe_symbolize::{Address, LoadedSection};
use std::sync::Arc;

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len().next_multiple_of(8) + 4;
    bytes.resize(length, 0);
    let mut entry = (length as u32).to_le_bytes().to_vec();
    entry.extend(bytes);
    entry
}

/// A section with a function of 0x40 bytes at each address, with these instructions (DWARF 5,
/// section 6.4.2) after `DW_CFA_def_cfa %rsp + 8`.
fn eh_frame(functions: &[(u64, &[u8])]) -> Vec<u8> {
    let common = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
    let mut bytes = padded(common.to_vec());
    for (from, program) in functions {
        let mut entry = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
        entry.extend(from.to_le_bytes());
        entry.extend(0x40u64.to_le_bytes());
        entry.extend(*program);
        bytes.extend(padded(entry));
    }
    bytes
}

/// The same as `.debug_frame`.
fn debug_frame(from: u64) -> Vec<u8> {
    let mut common = vec![0xff, 0xff, 0xff, 0xff];
    common.extend([1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);
    let mut bytes = padded(common);
    let mut entry = vec![0, 0, 0, 0];
    entry.extend(from.to_le_bytes());
    entry.extend(0x40u64.to_le_bytes());
    bytes.extend(padded(entry));
    bytes
}

fn frames(eh_frame: Vec<u8>, debug_frame: Vec<u8>) -> Frames {
    let section = |data: Vec<u8>| LoadedSection {
        data: Arc::from(data),
        address: Address(0x100),
    };
    Frames::of_sections(UnwindSections {
        eh_frame: section(eh_frame),
        debug_frame: Arc::from(debug_frame),
        sframe: section(Vec::new()),
        go: nsprobe_symbolize::GoSections {
            table: Arc::from([]),
            text: Address(0),
            code: Vec::new(),
        },
        text: Address(0),
        got: Address(0),
        entry: Address(0),
    })
    .expect("it is small")
}

/// After one byte %rsp + 16, after three more %rbp + 16, after eight more %rsp + 8 again.
const FRAMED: &[u8] = &[0x41, 0x0e, 16, 0x43, 0x0d, 6, 0x48, 0x0c, 7, 8];
/// `DW_CFA_def_cfa_expression` of one operation (`DW_OP_breg7 + 8`).
const EXPRESSION: &[u8] = &[0x0f, 2, 0x77, 8];

#[test]
fn the_return_address_is_on_top_where_nothing_was_pushed() {
    let of = frames(
        eh_frame(&[(0x2000, EXPRESSION), (0x1000, FRAMED)]),
        Vec::new(),
    );
    for (address, wanted) in [
        (0xfff, None),
        (0x1000, Some(true)),
        (0x1001, Some(false)),
        (0x1004, Some(false)),
        (0x100b, Some(false)),
        (0x100c, Some(true)),
        (0x103f, Some(true)),
        (0x1040, None),
        (0x2000, None),
    ] {
        assert_eq!(of.is_at_top(address), wanted, "{address:#x}");
    }
    assert_eq!(of.covering(0x1000), Some(0x1000..0x1040));
    assert_eq!(of.covering(0x203f), Some(0x2000..0x2040));
    assert_eq!(of.covering(0x1040), None);
    assert_eq!(of.covering(0), None);
}

#[test]
fn debug_frame_tells_of_what_eh_frame_does_not() {
    let of = frames(eh_frame(&[(0x1000, FRAMED)]), debug_frame(0x1020));
    assert_eq!(of.covering(0x1030), Some(0x1000..0x1040));
    assert_eq!(of.covering(0x1050), Some(0x1020..0x1060));
    assert_eq!(of.is_at_top(0x1050), Some(true));
    assert_eq!(of.is_at_top(0x1002), Some(false));
}

#[test]
fn damage_ends_a_section() {
    let whole = eh_frame(&[(0x1000, FRAMED), (0x2000, FRAMED)]);
    for length in 0..whole.len() {
        let of = frames(whole[..length].to_vec(), whole[..length].to_vec());
        let _ = (of.covering(0x1000), of.is_at_top(0x1001));
    }
    for place in 0..whole.len() {
        for byte in [0, 1, 0x0f, 0x40, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[place] = byte;
            let of = frames(damaged, Vec::new());
            for address in [0, 0x1000, 0x1004, 0x2004, u64::MAX] {
                let covers = of.covering(address);
                assert!(covers.is_none_or(|covers| covers.contains(&address)));
                let _ = of.is_at_top(address);
            }
        }
    }
}
