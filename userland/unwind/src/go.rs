// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Go tells of its frames: `.gopclntab`, by which its runtime walks stacks, and which
//! no `strip` removes, in place of `.eh_frame`, which its compiler does not write.
//!
//! For each function it has a list of how far the stack pointer is below the return
//! address, from which instruction on (see [`nsprobe_symbolize::GoTable`]).

use crate::cfi::RuleRanges;
use crate::rule::bare;
use crate::UnwindError;
use nsprobe_common::unwind::{Base, Rule, Saved};
use nsprobe_symbolize::{GoFunction, GoTable};

/// A function that has no caller (`FuncFlagTopFrame`).
const TOP_FRAME: u8 = 1;
/// One that puts another stack in the place of its own, so that the list does not hold
/// (`FuncFlagSPWrite`).
const STACK_SWITCH: u8 = 2;
/// One in assembly language (`FuncFlagAsm`).
const ASSEMBLY: u8 = 4;

/// Adds what a section says; one of another Go, or a damaged one, says nothing, or less.
pub(crate) fn read(data: &[u8], ranges: &mut RuleRanges) -> Result<(), UnwindError> {
    let Some(table) = GoTable::of(data) else {
        return Ok(());
    };
    // Where the dynamic linker puts it in, the file need not have it.
    let Some(text) = table.text() else {
        return Ok(());
    };
    for number in 0..table.count() {
        let function = table.function(number);
        match function.and_then(|function| add(&function, text, ranges)) {
            Some(added) => added?,
            None => ranges.left_out.unreadable += 1,
        }
    }
    Ok(())
}

/// Adds the ranges of a function; none when its description is damaged.
fn add(
    function: &GoFunction<'_>,
    text: u64,
    ranges: &mut RuleRanges,
) -> Option<Result<(), UnwindError>> {
    let address = |into: u32| text.checked_add(u64::from(into));
    let &GoFunction { begin, end, .. } = function;
    let flags = function.flags()?;
    if flags & (TOP_FRAME | STACK_SWITCH) != 0 {
        let base = match flags & TOP_FRAME {
            0 => Base::Unsupported,
            _ => Base::Outermost,
        };
        return Some(ranges.add(address(begin)?, address(end)?, bare(base)));
    }
    let mut depths = function.stack_depths()?;
    let mut from = begin;
    while from < end {
        let (bytes, below) = depths.next()?;
        let to = from.checked_add(bytes)?.min(end);
        let rule = rule(below, flags & ASSEMBLY == 0);
        if let Err(error) = ranges.add(address(from)?, address(to)?, rule) {
            return Some(Err(error));
        }
        from = to;
    }
    Some(Ok(()))
}

/// The rule where the return address is so far above the stack pointer.
fn rule(below: i32, is_compiled: bool) -> Rule {
    if below < 0 || below % 8 != 0 {
        return bare(Base::Unsupported);
    }
    let (saved, saved_at) = match (below, is_compiled) {
        (0, _) => (Saved::Same, 0),
        // A frame begins with the caller's `rbp`.
        (_, true) => (Saved::AtFrame, -16),
        (_, false) => (Saved::Lost, 0),
    };
    Rule {
        offset: below.saturating_add(8),
        saved: saved as u8,
        saved_at,
        ..bare(Base::Rsp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: u64 = 0x40_1000;
    /// Bytes of an entry of the list of functions.
    const ENTRY_BYTES: usize = 8;
    /// What the table of a Go since 1.20 begins with.
    const MAGIC: u32 = 0xffff_fff1;

    /// A table of functions: bytes of code, flags, and a list as in the file.
    fn section(functions: &[(u32, u8, &[u8])]) -> Vec<u8> {
        let (mut lists, mut descriptions) = (vec![0], Vec::new());
        let mut entries: Vec<u32> = Vec::new();
        let mut at = 0;
        for (bytes, flags, list) in functions {
            let before = (functions.len() * ENTRY_BYTES + 4 + descriptions.len()) as u32;
            entries.extend([at, before]);
            let mut description = [0; 44];
            description[16..20].copy_from_slice(&(lists.len() as u32).to_le_bytes());
            description[41] = *flags;
            descriptions.extend(description);
            lists.extend(*list);
            at += bytes;
        }
        entries.push(at);
        let lists_at = 72u64;
        let functions_at = lists_at + lists.len() as u64;
        let head = [
            functions.len() as u64,
            0,
            TEXT,
            0,
            0,
            0,
            lists_at,
            functions_at,
        ];
        let mut data = MAGIC.to_le_bytes().to_vec();
        data.extend([0, 0, 1, 8]);
        data.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        data.extend(lists);
        data.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
        data.extend(descriptions);
        data
    }

    fn ranges(data: &[u8]) -> RuleRanges {
        let mut ranges = RuleRanges::default();
        read(data, &mut ranges).expect("few ranges");
        ranges
    }

    /// What `runtime.main` of a Go 1.24 program has: 16 bytes in front of its frame, 7 with
    /// the caller's frame pointer, then a frame of 136 bytes.
    const LIST: [u8; 8] = [2, 16, 16, 7, 128, 2, 5, 0];

    #[test]
    fn a_function_has_its_rules() {
        let ranges = ranges(&section(&[(28, 0, &LIST), (8, 0, &[2, 8, 0])]));
        let found = ranges.ranges.iter();
        let found = found.map(|range| {
            let rule = ranges.rules[range.rule as usize];
            let into = |address: u64| address - TEXT;
            (into(range.from), into(range.to), rule.offset, rule.saved)
        });
        let (same, saved) = (Saved::Same as u8, Saved::AtFrame as u8);
        let wanted = [
            (0, 16, 8, same),
            (16, 23, 16, saved),
            (23, 28, 144, saved),
            (28, 36, 8, same),
        ];
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn flags_say_where_stacks_end() {
        for (flags, base) in [
            (0, Base::Rsp),
            (ASSEMBLY, Base::Rsp),
            (STACK_SWITCH, Base::Unsupported),
            (TOP_FRAME | STACK_SWITCH | ASSEMBLY, Base::Outermost),
        ] {
            let ranges = ranges(&section(&[(28, flags, &LIST)]));
            let rule = ranges.rules[ranges.ranges.last().expect("a range").rule as usize];
            assert_eq!(rule.base, base as u8, "{flags}");
            assert_eq!(
                (ranges.ranges[0].from, ranges.rules.is_empty()),
                (TEXT, false)
            );
        }
    }

    #[test]
    fn what_is_damaged_says_less() {
        let whole = section(&[(28, 0, &LIST), (8, 0, &[2, 8, 0])]);
        for length in 0..whole.len() {
            assert!(ranges(&whole[..length]).ranges.len() <= 4, "{length}");
        }
        // A list that ends before its function does.
        let short = ranges(&section(&[(99, 0, &LIST)]));
        assert_eq!((short.ranges.len(), short.left_out.unreadable), (3, 1));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(
            at in 0usize..200,
            bytes in prop::collection::vec(any::<u8>(), 1..16),
        ) {
            let mut data = section(&[(28, 0, &LIST), (8, 0, &[2, 8, 0])]);
            for (place, byte) in data.iter_mut().skip(at).zip(bytes) {
                *place = byte;
            }
            let _ = read(&data, &mut RuleRanges::default());
        }
    }
}
