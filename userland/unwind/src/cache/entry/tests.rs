// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is not just what was written is nothing.

use super::*;
use crate::rule::bare;
use nsprobe_common::unwind::{row, Base};
use proptest::prelude::*;

const DIGEST: Digest = Digest([7; 32]);

/// A table of two blocks.
pub(in crate::cache) fn table() -> UnwindTable {
    UnwindTable {
        first: 3,
        blocks: vec![0, 2, 3],
        rows: vec![row(0, 0), row(16, 1), row(0, 0)],
        rules: vec![bare(Base::Unknown), bare(Base::Rsp)],
        left_out: LeftOut {
            unsupported: 1,
            unreadable: 2,
        },
    }
}

fn decode(digest: Digest, bytes: &[u8]) -> Option<UnwindTable> {
    super::decode(digest, bytes, bytes.len() as u64)
}

/// An entry with this head and body, and their sum.
fn sealed(mut head: Head, body: &[u8]) -> Vec<u8> {
    head.sum = 0;
    head.sum = crc32fast::hash(&[head.as_bytes(), body].concat());
    [head.as_bytes(), body].concat()
}

/// The result for an attacker that can write entries which are well-formed but make no sense.
fn resealed(change: impl FnOnce(&mut UnwindTable)) -> Option<UnwindTable> {
    let mut table = table();
    change(&mut table);
    decode(DIGEST, &encode(DIGEST, &table))
}

#[test]
fn what_was_written_is_read() {
    let table = table();
    assert_eq!(decode(DIGEST, &encode(DIGEST, &table)), Some(table));
}

#[test]
fn the_entry_of_another_digest_is_none() {
    let bytes = encode(DIGEST, &table());
    assert_eq!(decode(Digest([8; 32]), &bytes), None);
}

#[test]
fn an_entry_cut_short_is_none_at_every_length() {
    let bytes = encode(DIGEST, &table());
    for length in 0..bytes.len() {
        assert_eq!(decode(DIGEST, &bytes[..length]), None, "{length}");
    }
    assert_eq!(decode(DIGEST, &[&bytes[..], &[0]].concat()), None);
}

#[test]
fn every_changed_bit_is_seen() {
    let bytes = encode(DIGEST, &table());
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(DIGEST, &changed), None, "bit {bit}");
    }
}

#[test]
fn what_the_module_would_refuse_is_none() {
    assert!(resealed(|_| ()).is_some());
    assert_eq!(resealed(|table| table.rows.swap(0, 1)), None);
    assert_eq!(resealed(|table| table.rows[1] = row(16, 2)), None);
    assert_eq!(resealed(|table| table.blocks[1] = 9), None);
    assert_eq!(resealed(|table| table.rules[0].base = 99), None);
    assert_eq!(resealed(|table| table.first = u64::MAX), None);
    assert_eq!(resealed(|table| table.rows.clear()), None);
}

/// Lengths that lie take no memory: the rest must be there.
#[test]
fn counts_that_lie_are_none() {
    let table = table();
    let bytes = encode(DIGEST, &table);
    let (head, body) = Head::read_from_prefix(&bytes).expect("a head");
    for (blocks, rows, rules) in [
        (u32::MAX, 3, 2),
        (3, u32::MAX, 2),
        (3, UNWIND_ROWS_MAX, 2),
        (3, 3, UNWIND_RULES_MAX),
        (2, 4, 2),
        (0, 0, 0),
    ] {
        let head = Head {
            blocks,
            rows,
            rules,
            ..head
        };
        let entry = sealed(head, body);
        assert_eq!(decode(DIGEST, &entry), None, "{blocks} {rows} {rules}");
    }
}

proptest! {
    #[test]
    fn bytes_of_anything_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(decode(DIGEST, &bytes), None);
    }

    /// Whatever body has the right sum: none, or a table that the module takes.
    #[test]
    fn what_is_read_is_sound(
        counts in (0u32..5, 0u32..6, 0u32..3),
        first in any::<u64>(),
        body in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), 0..16u8, any::<u8>()], 0..80),
    ) {
        let head = Head {
            magic: MAGIC,
            of: DIGEST.0,
            sum: 0,
            first: first >> (first % 64),
            unsupported: 0,
            unreadable: 0,
            blocks: counts.0,
            rows: counts.1,
            rules: counts.2,
        };
        let entry = sealed(head, &body);
        if let Some(table) = decode(DIGEST, &entry) {
            let UnwindTable { first, blocks, rows, rules, .. } = &table;
            prop_assert!(Table::check(*first, blocks, rows, rules).is_ok());
            prop_assert_eq!(encode(DIGEST, &table), entry);
        }
    }
}
