// SPDX-License-Identifier: MIT OR Apache-2.0
//! All rows that a file's sections describe, with the addresses they are for.

use crate::frames::{bases, debug_frame, eh_frame, functions};
use crate::input::Input;
use crate::rule::{bare, rule_of, Bytes};
use crate::sframe::{self, Described};
use crate::{go, LeftOut, UnwindError};
use gimli::{BaseAddresses, UnwindContext, UnwindOffset, UnwindSection};
use nsprobe_common::unwind::{Base, Rule};
use nsprobe_symbolize::Address;
use std::collections::HashMap;
use std::ops;

/// Most rows of a file: libraries of 130 MB have one million.
const ROWS_MAX: usize = 32 << 20;

/// Longest code that a program begins with, in bytes: that of Debian's dynamic linker has 64.
const ENTRY_BYTES_MAX: u64 = 256;

/// A rule, and what it is for: addresses or file offsets, from `from` up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) rule: u32,
}

/// Ranges, in no order.
#[derive(Debug, Default)]
pub(crate) struct RuleRanges {
    pub(crate) ranges: Vec<Range>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) left_out: LeftOut,
    numbers: HashMap<Rule, u32>,
    /// The numbers that were given last, by [`slot`].
    recent: [u32; RECENT],
}

/// How many numbers are found without the map: its hash, which hostile files cannot predict, takes
/// longer than the rest of the work, and neighbouring functions have few rules.
const RECENT: usize = 32;

/// Where the number of a rule is kept: a frame grows by words.
fn slot(rule: &Rule) -> usize {
    let words = (rule.offset >> 3) as usize;
    let (base, saved) = (usize::from(rule.base), usize::from(rule.saved));
    (words ^ base << 3 ^ saved << 4) % RECENT
}

/// Reads a file's descriptions. Of several descriptions of an address, that of `.eh_frame` counts:
/// exceptions use it. `.sframe` has the least detail.
pub(crate) fn read(input: &Input) -> Result<RuleRanges, UnwindError> {
    let sections = &input.sections;
    let bases = bases(sections);
    let mut ranges = RuleRanges::default();
    // What Go's linker writes into `.debug_frame` knows of no other stack and no saved `rbp`.
    let known = go::read(&sections.go, &mut ranges)?;
    ranges.read(&eh_frame(sections), &bases, &known)?;
    ranges.read(&debug_frame(sections), &bases, &known)?;
    let (described, unreadable) = sframe::read(&sections.sframe);
    ranges.left_out.unreadable += unreadable;
    ranges.fill(&described)?;
    ranges.add_entry(sections.entry)?;
    match ranges.ranges.is_empty() {
        true => Err(UnwindError::Nothing),
        false => Ok(ranges),
    }
}

impl RuleRanges {
    /// The number of a rule.
    pub(crate) fn number(&mut self, rule: Rule) -> u32 {
        let next = self.rules.len() as u32;
        let mut none = 0;
        let recent = self.recent.get_mut(slot(&rule)).unwrap_or(&mut none);
        if self.rules.get(*recent as usize) == Some(&rule) {
            return *recent;
        }
        let number = *self.numbers.entry(rule).or_insert(next);
        if number == next {
            self.rules.push(rule);
        }
        *recent = number;
        number
    }

    /// Reads a section, but for functions that begin at addresses that are known already.
    fn read<'s, S>(
        &mut self,
        section: &S,
        bases: &BaseAddresses,
        known: &ops::Range<u64>,
    ) -> Result<(), UnwindError>
    where
        S: UnwindSection<Bytes<'s>>,
        S::Offset: UnwindOffset<usize>,
    {
        let mut context = UnwindContext::new();
        for fde in functions(section, bases) {
            let Ok(fde) = fde else {
                self.left_out.unreadable += 1;
                continue;
            };
            if known.contains(&fde.initial_address()) {
                continue;
            }
            let Ok(mut rows) = fde.rows(section, bases, &mut context) else {
                self.left_out.unreadable += 1;
                continue;
            };
            let is_signal = fde.is_signal_trampoline();
            loop {
                let row = match rows.next_row() {
                    Ok(Some(row)) => row,
                    Ok(None) => break,
                    Err(_) => {
                        self.left_out.unreadable += 1;
                        break;
                    }
                };
                let rule = rule_of(section, row, is_signal);
                self.add(row.start_address(), row.end_address(), rule)?;
            }
        }
        Ok(())
    }

    /// Adds what holds from an address up to another.
    pub(crate) fn add(&mut self, from: u64, to: u64, rule: Rule) -> Result<(), UnwindError> {
        if from >= to {
            return Ok(());
        }
        if self.ranges.len() == ROWS_MAX {
            return Err(UnwindError::TooBig);
        }
        self.left_out.unsupported += u64::from(rule.base == Base::Unsupported as u8);
        let rule = self.number(rule);
        self.ranges.push(Range { from, to, rule });
        Ok(())
    }

    /// Adds what nothing is known of yet, of descriptions by rising address.
    fn fill(&mut self, described: &[Described]) -> Result<(), UnwindError> {
        if described.is_empty() {
            return Ok(());
        }
        let mut known = self.known().into_iter().peekable();
        for &Described { from, to, rule } in described {
            let mut at = from;
            while at < to {
                while known.next_if(|known| known.end <= at).is_some() {}
                let next = known.peek().filter(|known| known.start < to);
                let (until, behind) = next.map_or((to, to), |known| (known.start, known.end));
                if at < until {
                    self.add(at, until, rule)?;
                }
                at = behind;
            }
        }
        Ok(())
    }

    /// All that is described: by rising address, with something between each two.
    fn known(&self) -> Vec<std::ops::Range<u64>> {
        let ranges = self.ranges.iter().map(|range| range.from..range.to);
        let mut known: Vec<_> = ranges.collect();
        known.sort_unstable_by_key(|range| range.start);
        known.dedup_by(|next, before| {
            let touches = next.start <= before.end;
            if touches {
                before.end = before.end.max(next.end);
            }
            touches
        });
        known
    }

    /// What a process begins with has no caller. C libraries write it in assembly language,
    /// and some do not say so: it is all that nothing is said of, from the first instruction
    /// on. When that is long, it is more than the beginning.
    fn add_entry(&mut self, entry: Address) -> Result<(), UnwindError> {
        let Address(from) = entry;
        let mut behind = u64::MAX;
        for range in &self.ranges {
            if (range.from..range.to).contains(&from) {
                return Ok(());
            }
            if range.from > from {
                behind = behind.min(range.from);
            }
        }
        let is_short = from != 0 && behind - from <= ENTRY_BYTES_MAX;
        match is_short {
            true => self.add(from, behind, bare(Base::Outermost)),
            false => Ok(()),
        }
    }

    /// The ranges by offsets in the file: what is not in code that is loaded falls away.
    pub(crate) fn in_file(&mut self, input: &Input) -> RuleRanges {
        let ranges = std::mem::take(&mut self.ranges).into_iter();
        let ranges = ranges.filter_map(|range| {
            let from = input.offset_of(Address(range.from))?.0;
            // Its last byte must be in the same piece of the file.
            let last = input.offset_of(Address(range.to.checked_sub(1)?))?.0;
            let bytes = range.to - range.from;
            (last.wrapping_sub(from) == bytes - 1).then_some(Range {
                from,
                to: last + 1,
                ..range
            })
        });
        RuleRanges {
            ranges: ranges.collect(),
            ..std::mem::take(self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of the first instruction at 0x100, when functions are described from
    /// these addresses on, each of 16 bytes.
    fn entry(functions: &[u64]) -> Option<(u64, u8)> {
        let mut ranges = RuleRanges::default();
        for from in functions {
            let rule = bare(Base::Rsp);
            ranges.add(*from, from + 16, rule).expect("few ranges");
        }
        ranges.add_entry(Address(0x100)).expect("few ranges");
        let mut ranges_there = ranges.ranges.iter();
        let found = ranges_there.find(|range| (range.from..range.to).contains(&0x100))?;
        Some((found.to, ranges.rules[found.rule as usize].base))
    }

    #[test]
    fn a_program_begins_without_a_caller() {
        let outermost = Base::Outermost as u8;
        assert_eq!(entry(&[0x20, 0x140, 0x180]), Some((0x140, outermost)));
        assert_eq!(entry(&[0x180, 0x140, 0x20]), Some((0x140, outermost)));
        // The file says itself what is there.
        assert_eq!(entry(&[0xf8, 0x140]), Some((0x108, Base::Rsp as u8)));
        // More than the beginning.
        assert_eq!(entry(&[0x20, 0x240]), None);
        assert_eq!(entry(&[0x20]), None);
    }
}
