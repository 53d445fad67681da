// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges as a table: sorted, without overlaps, with explicit gaps, in blocks.

use crate::cfi::{Range, RuleRanges};
use crate::rule::bare;
use crate::{LeftOut, UnwindError, UnwindTable};
use nsprobe_common::record::OFFSET_BITS;
use nsprobe_common::unwind::{row, Base, Rule, BLOCK_BITS, RULES_MAX};

/// Most blocks: of a file of 16 GiB.
const BLOCKS_MAX: u64 = 1 << 18;

/// Code of at least this number of bytes without a description was made by a compiler of its
/// own, which keeps frame pointers: what V8 has in itself of its JavaScript functions.
const GAP_BYTES: u64 = 512 << 10;

/// Where a table has ended, in bytes: `Table::check` counts the end of the last block as
/// one more.
const OFFSET_MAX: u64 = (1 << OFFSET_BITS) - (1 << BLOCK_BITS);

/// Makes the table of ranges that are file offsets, of a file with `code_bytes` of code.
pub(crate) fn build(mut ranges: RuleRanges, code_bytes: u64) -> Result<UnwindTable, UnwindError> {
    let mut rows = std::mem::take(&mut ranges.ranges);
    rows.retain(|range| range.to < OFFSET_MAX);
    let mut pieces = pieces(&rows);
    if pieces
        .windows(2)
        .filter_map(ends)
        .any(|(end, next)| end > next)
    {
        // Stable: of two for one offset, the one that was read first stays first.
        rows.sort_by_key(|range| range.from);
        pieces = self::pieces(&rows);
    }
    let bytes = pieces
        .iter()
        .filter_map(|piece| Some(piece.last()?.to - piece.first()?.from));
    let told = bytes.fold(0u64, u64::saturating_add);
    let mut pairs = pieces.windows(2).filter_map(ends);
    let has_gap = pairs.any(|(end, next)| is_gap(end, next));
    // Some files describe only the start-up code and the like: Go's, or those whose builder has
    // turned it off. Their code has frame pointers, or nothing.
    let mut unknown = |by_frame_pointer: bool| {
        ranges.number(Rule {
            more: i16::from(by_frame_pointer || told < code_bytes / 2),
            ..bare(Base::Unknown)
        })
    };
    let (unknown, in_gap) = (unknown(false), unknown(has_gap));
    let (Some([first, ..]), Some([.., last])) = (pieces.first(), pieces.last()) else {
        return Err(UnwindError::Nothing);
    };
    let blocks = (last.to >> BLOCK_BITS).saturating_sub(first.from >> BLOCK_BITS);
    if ranges.rules.len() > RULES_MAX || blocks > BLOCKS_MAX {
        return Err(UnwindError::TooBig);
    }
    let mut writer = Writer::new(first.from >> BLOCK_BITS, unknown);
    let behind = last.to;
    let mut at = 0;
    for range in pieces.iter().copied().flatten() {
        // What overlaps begins where the one before ends.
        let from = range.from.max(at);
        if from >= range.to {
            continue;
        }
        if from > at {
            writer.begin(at, if is_gap(at, from) { in_gap } else { unknown });
        }
        writer.begin(from, range.rule);
        at = range.to;
    }
    writer.begin(at.max(behind), unknown);
    let (blocks, rows) = writer.finish(at.max(behind));
    Ok(UnwindTable {
        first: first.from >> BLOCK_BITS,
        blocks,
        rows,
        rules: ranges.rules,
        left_out: LeftOut::default(),
    })
}

/// Rows side by side, by rising offset: most are those of a function, so that far fewer are to be
/// sorted than there are rows.
fn pieces(rows: &[Range]) -> Vec<&[Range]> {
    let pieces = rows.chunk_by(|one, next| one.to == next.from);
    let mut pieces: Vec<&[Range]> = pieces.collect();
    pieces.sort_by_key(|piece| piece.first().map(|range| range.from));
    pieces
}

/// Where the first of two pieces ends, and the second one begins.
fn ends(pair: &[&[Range]]) -> Option<(u64, u64)> {
    match pair {
        [[.., one], [next, ..]] => Some((one.to, next.from)),
        _ => None,
    }
}

fn is_gap(from: u64, to: u64) -> bool {
    from > 0 && to.saturating_sub(from) >= GAP_BYTES
}

/// Writes rows by rising offset.
struct Writer {
    first: u64,
    blocks: Vec<u32>,
    rows: Vec<u32>,
    /// The rule that continues.
    rule: u32,
}

impl Writer {
    fn new(first: u64, unknown: u32) -> Writer {
        Writer {
            first,
            blocks: Vec::new(),
            rows: Vec::new(),
            rule: unknown,
        }
    }

    /// From here on another rule holds.
    fn begin(&mut self, offset: u64, rule: u32) {
        let Some(block) = (offset >> BLOCK_BITS).checked_sub(self.first) else {
            return;
        };
        self.up_to(block);
        if rule == self.rule {
            return;
        }
        self.rule = rule;
        let new = row(offset as u16, rule as u16);
        // A row that begins where the block does takes the place of its first.
        match self.rows.last_mut() {
            Some(last) if *last >> 16 == new >> 16 => *last = new,
            _ => self.rows.push(new),
        }
    }

    /// Makes all blocks up to this one; each begins with the rule that continues.
    fn up_to(&mut self, block: u64) {
        while (self.blocks.len() as u64) <= block {
            self.blocks.push(self.rows.len() as u32);
            self.rows.push(row(0, self.rule as u16));
        }
    }

    fn finish(mut self, behind: u64) -> (Vec<u32>, Vec<u32>) {
        let last = behind.saturating_sub(1) >> BLOCK_BITS;
        self.up_to(last.saturating_sub(self.first));
        self.blocks.push(self.rows.len() as u32);
        (self.blocks, self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_common::unwind::Table;
    use proptest::prelude::*;

    /// Whether the place is left by its frame pointer, or is unknown.
    fn by_frame_pointer(table: &UnwindTable, offset: u64) -> bool {
        let block = ((offset >> BLOCK_BITS) - table.first) as usize;
        let (from, to) = (
            table.blocks[block] as usize,
            table.blocks[block + 1] as usize,
        );
        let rows = table.rows[from..to].iter();
        let row = rows.rev().find(|row| **row >> 16 <= offset as u32 & 0xffff);
        let rule = table.rules[(row.expect("a block begins with a row") & 0xffff) as usize];
        assert_eq!(rule.base, Base::Unknown as u8, "{offset:#x}");
        rule.more == 1
    }

    #[test]
    fn big_gaps_are_left_by_frame_pointers() {
        let mut ranges = RuleRanges::default();
        let known = bare(Base::Rsp);
        let gap = GAP_BYTES;
        for (from, to) in [(0x1000, 0x2000), (gap, 3 * gap), (4 * gap, 9 * gap)] {
            ranges.add(from, to, known).expect("few ranges");
        }
        let table = build(ranges, 9 * gap).expect("small");
        for (offset, wanted) in [
            (0x2000, false),
            (gap - 1, false),
            (3 * gap, true),
            (4 * gap - 1, true),
        ] {
            assert_eq!(by_frame_pointer(&table, offset), wanted, "{offset:#x}");
        }
    }

    /// The rules in force at 0, 1, ...: those that begin first count, then those read first.
    fn rules_by_offset(ranges: &[(u64, u64)]) -> Vec<Option<i32>> {
        let mut sorted: Vec<_> = ranges.iter().zip(0..).collect();
        sorted.sort_by_key(|((from, _), _)| *from);
        let mut rules = vec![None; 64];
        for ((from, bytes), rule) in sorted {
            for offset in *from..from + bytes {
                rules[offset as usize].get_or_insert(rule);
            }
        }
        rules
    }

    proptest! {
        #[test]
        fn rows_are_in_order_however_they_were_read(
            described in proptest::collection::vec((0..40u64, 1..20u64), 1..12),
        ) {
            let mut ranges = RuleRanges::default();
            for (&(from, bytes), offset) in described.iter().zip(0..) {
                let rule = Rule { offset, ..bare(Base::Rsp) };
                ranges.add(from, from + bytes, rule).expect("few ranges");
            }
            let table = build(ranges, 0).expect("small");
            let found = (0..64).map(|offset| {
                let rule = table.table().find(offset).copied();
                rule.filter(|rule| rule.base == Base::Rsp as u8).map(|rule| rule.offset)
            });
            prop_assert_eq!(found.collect::<Vec<_>>(), rules_by_offset(&described));
        }
    }

    #[test]
    fn what_the_module_would_refuse_is_left_out() {
        let rule = bare(Base::Unknown);
        for (to, is_kept) in [(OFFSET_MAX - 1, true), (OFFSET_MAX, false)] {
            let mut ranges = RuleRanges::default();
            let rule = ranges.number(rule);
            let from = OFFSET_MAX - 100;
            ranges.ranges.push(Range { from, to, rule });
            let table = build(ranges, 100);
            assert_eq!(table.is_ok(), is_kept);
            if let Ok(table) = table {
                Table::check(table.first, &table.blocks, &table.rows, &table.rules).unwrap();
            }
        }
    }
}
