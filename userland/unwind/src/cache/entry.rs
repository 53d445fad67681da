// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table as the bytes of a file, and back.
//!
//! Head, blocks, rows, rules: as they lie in memory, without gaps. What is read back is
//! checked as the module checks a table, after a checksum against damage on disk. It protects from no
//! attacker: nobody else can write there.

use crate::{Digest, LeftOut, UnwindTable};
use nsprobe_common::abi::{UNWIND_BLOCKS_MAX, UNWIND_ROWS_MAX, UNWIND_RULES_MAX};
use nsprobe_common::unwind::{Row, Rule, Table};
use std::io::Read;
use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"nsprows\x02";

/// The beginning of an entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// The [`Digest`] of what was compiled.
    of: [u8; 32],
    first: u64,
    unsupported: u64,
    unreadable: u64,
    blocks: u32,
    rows: u32,
    rules: u32,
    /// The CRC-32 of the entry, with zero here.
    sum: u32,
}

pub(crate) fn encode(digest: Digest, table: &UnwindTable) -> Vec<u8> {
    let mut head = Head {
        magic: MAGIC,
        of: digest.0,
        first: table.first,
        unsupported: table.left_out.unsupported,
        unreadable: table.left_out.unreadable,
        blocks: table.blocks.len() as u32,
        rows: table.rows.len() as u32,
        rules: table.rules.len() as u32,
        sum: 0,
    };
    let parts = [
        table.blocks.as_bytes(),
        table.rows.as_bytes(),
        table.rules.as_bytes(),
    ];
    let mut sum = crc32fast::Hasher::new();
    sum.update(head.as_bytes());
    parts.iter().for_each(|part| sum.update(part));
    head.sum = sum.finalize();
    let [blocks, rows, rules] = parts;
    [head.as_bytes(), blocks, rows, rules].concat()
}

/// Reads the table of what has this digest from as many bytes; none when they are not just that.
pub(crate) fn decode(digest: Digest, mut from: impl Read, bytes: u64) -> Option<UnwindTable> {
    let mut head = Head::new_zeroed();
    from.read_exact(head.as_mut_bytes()).ok()?;
    let words = u64::from(head.blocks) + u64::from(head.rows);
    let rule_bytes = u64::from(head.rules) * size_of::<Rule>() as u64;
    let fits = head.magic == MAGIC
        && head.of == digest.0
        && head.blocks <= UNWIND_BLOCKS_MAX
        && head.rows <= UNWIND_ROWS_MAX
        && head.rules <= UNWIND_RULES_MAX
        // So memory is taken for what is there only.
        && bytes == size_of::<Head>() as u64 + words * size_of::<Row>() as u64 + rule_bytes;
    if !fits {
        return None;
    }
    let wanted = std::mem::take(&mut head.sum);
    let mut sum = crc32fast::Hasher::new();
    sum.update(head.as_bytes());
    let table = UnwindTable {
        first: head.first,
        blocks: take(&mut from, &mut sum, head.blocks)?,
        rows: take(&mut from, &mut sum, head.rows)?,
        rules: take(&mut from, &mut sum, head.rules)?,
        left_out: LeftOut {
            unsupported: head.unsupported,
            unreadable: head.unreadable,
        },
    };
    let checked = Table::check(table.first, &table.blocks, &table.rows, &table.rules);
    (sum.finalize() == wanted && checked.is_ok()).then_some(table)
}

/// Takes the next `count`.
fn take<T: FromBytes + IntoBytes + Clone>(
    from: &mut impl Read,
    sum: &mut crc32fast::Hasher,
    count: u32,
) -> Option<Vec<T>> {
    let mut taken = vec![T::new_zeroed(); count as usize];
    let bytes = taken.as_mut_slice().as_mut_bytes();
    from.read_exact(bytes).ok()?;
    sum.update(bytes);
    Some(taken)
}

#[cfg(test)]
pub(super) mod tests;
