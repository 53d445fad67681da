// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table as the bytes of a file, and back.
//!
//! Head, blocks, rows, rules: as they lie in memory, without gaps. What is read back is
//! checked as the module checks a table, after a checksum that finds what broke on disk.

use crate::{Digest, LeftOut, UnwindTable};
use nsprobe_common::abi::{UNWIND_BLOCKS_MAX, UNWIND_ROWS_MAX, UNWIND_RULES_MAX};
use nsprobe_common::unwind::Table;
use sha2::{Digest as _, Sha256};
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"nsprows\x01";

/// The beginning of an entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// The [`Digest`] of what was compiled.
    of: [u8; 32],
    /// The SHA-256 of the entry, with zeros here.
    sum: [u8; 32],
    first: u64,
    unsupported: u64,
    unreadable: u64,
    blocks: u32,
    rows: u32,
    rules: u32,
    /// Zero.
    reserved: u32,
}

pub(crate) fn encode(digest: Digest, table: &UnwindTable) -> Vec<u8> {
    let mut head = Head {
        magic: MAGIC,
        of: digest.0,
        sum: [0; 32],
        first: table.first,
        unsupported: table.left_out.unsupported,
        unreadable: table.left_out.unreadable,
        blocks: table.blocks.len() as u32,
        rows: table.rows.len() as u32,
        rules: table.rules.len() as u32,
        reserved: 0,
    };
    let parts = [
        table.blocks.as_bytes(),
        table.rows.as_bytes(),
        table.rules.as_bytes(),
    ];
    let body = parts.concat();
    head.sum = sum(&head, &body);
    [head.as_bytes(), &body].concat()
}

/// Reads the table of what has this digest; none when the bytes are not just that.
pub(crate) fn decode(digest: Digest, bytes: &[u8]) -> Option<UnwindTable> {
    let (head, body) = Head::read_from_prefix(bytes).ok()?;
    let fits = head.magic == MAGIC
        && head.of == digest.0
        && head.reserved == 0
        && head.blocks <= UNWIND_BLOCKS_MAX
        && head.rows <= UNWIND_ROWS_MAX
        && head.rules <= UNWIND_RULES_MAX;
    if !fits || head.sum != sum(&head, body) {
        return None;
    }
    let mut rest = body;
    let table = UnwindTable {
        first: head.first,
        blocks: take(&mut rest, head.blocks)?,
        rows: take(&mut rest, head.rows)?,
        rules: take(&mut rest, head.rules)?,
        left_out: LeftOut {
            unsupported: head.unsupported,
            unreadable: head.unreadable,
        },
    };
    let checked = Table::check(table.first, &table.blocks, &table.rows, &table.rules);
    (rest.is_empty() && checked.is_ok()).then_some(table)
}

fn sum(head: &Head, body: &[u8]) -> [u8; 32] {
    let head = Head {
        sum: [0; 32],
        ..*head
    };
    let hash = Sha256::new().chain_update(head.as_bytes());
    hash.chain_update(body).finalize().into()
}

/// Takes `count` bytes off the front; memory is taken for what is there only.
fn take<T: FromBytes + IntoBytes + Clone>(rest: &mut &[u8], count: u32) -> Option<Vec<T>> {
    let bytes = rest.split_off(..(count as usize).checked_mul(size_of::<T>())?)?;
    let mut taken = vec![T::new_zeroed(); count as usize];
    taken.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    Some(taken)
}

#[cfg(test)]
pub(super) mod tests;
