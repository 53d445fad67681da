// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of Go's functions, from `.gopclntab`, by which Go's runtime walks stacks, and which no
//! `strip` removes, in place of `.eh_frame`, which its compiler does not write.
//!
//! For each function it has a list of how far the stack pointer is below the return address, from
//! which instruction on (see [`nsprobe_symbolize::GoTable`]). Functions of the runtime that go on
//! on another stack have rows by their code ([`code`]).

mod code;
mod places;
#[cfg(test)]
mod tests_of_code;

use crate::cfi::RuleRanges;
use crate::rule::bare;
use crate::UnwindError;
use code::Code;
use nsprobe_common::unwind::{Base, GoPlaces, Rule, Saved};
use nsprobe_symbolize::{
    GoFunction, GoSections, GoTable, GO_FLAG_ASSEMBLY, GO_FLAG_SETS_STACK, GO_FLAG_TOP_FRAME,
};
use std::ops::Range;

/// Functions that a signal handler lets the interrupted code call.
const INJECTED: [&str; 3] = [
    "runtime.asyncPreempt",
    "runtime.sigpanic",
    "runtime.sigpanic0",
];
/// What a signal handler returns to: `sigreturn` until Go 1.20.
const RESTORERS: [&str; 2] = ["runtime.sigreturn__sigaction", "runtime.sigreturn"];
/// Where a program begins, and the function that it goes on in.
const STARTS: [&str; 2] = ["_rt0_amd64_linux", "_rt0_amd64"];
/// The signal handler, which Go's own walks end at.
const HANDLER: &str = "runtime.sigtramp";
/// What chooses the next goroutine of a thread.
const SCHEDULER: &str = "runtime.schedule";
const SYSTEM_STACK: &str = "runtime.systemstack";
const MORE_STACK: &str = "runtime.morestack";
/// It never returns to the goroutine that calls it.
const LEAVES_GOROUTINE: &str = "runtime.mcall";
/// Both the new and the old thread return from its system call.
const NEW_THREAD: &str = "runtime.clone";

/// Adds what a section says, and returns the addresses of Go's functions; one of another Go, or a
/// damaged one, says nothing, or less.
pub(crate) fn read(
    sections: &GoSections,
    ranges: &mut RuleRanges,
) -> Result<Range<u64>, UnwindError> {
    let Some(table) = GoTable::of(&sections.table).filter(|_| sections.text.0 != 0) else {
        return Ok(0..0);
    };
    let reader = Reader::new(table, sections);
    for number in 0..table.count() {
        let function = table.function(number);
        match function.and_then(|function| reader.add(&function, ranges)) {
            Some(added) => added?,
            None => ranges.left_out.unreadable += 1,
        }
    }
    let last = table
        .count()
        .checked_sub(1)
        .and_then(|last| table.function(last));
    let end = last.and_then(|last| reader.address(last.end));
    Ok(reader.text..end.unwrap_or(reader.text))
}

/// What rows of a function need of others.
struct Reader<'a> {
    text: u64,
    sections: &'a GoSections,
    /// Where the function begins that signal handlers return to.
    restorer: Option<u32>,
    places: Option<GoPlaces>,
    /// Whether functions may make their frame before they save `rbp`, as up to Go 1.20.
    is_1_18: bool,
}

/// The kinds of functions that have rows of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Injected,
    Scheduler,
}

impl<'a> Reader<'a> {
    fn new(table: GoTable<'a>, sections: &'a GoSections) -> Reader<'a> {
        let mut reader = Reader {
            text: sections.text.0,
            sections,
            restorer: None,
            places: None,
            is_1_18: table.is_1_18(),
        };
        let (mut system_stack, mut more_stack) = (None, None);
        for number in 0..table.count() {
            let Some(function) = table.function(number) else {
                continue;
            };
            // All of them are in assembly language.
            if function
                .flags()
                .is_none_or(|flags| flags & GO_FLAG_ASSEMBLY == 0)
            {
                continue;
            }
            match function.name().as_deref() {
                Some(SYSTEM_STACK) => system_stack = reader.code(&function),
                Some(MORE_STACK) => more_stack = reader.code(&function),
                Some(name) if RESTORERS.contains(&name) => reader.restorer = Some(function.begin),
                _ => {}
            }
        }
        reader.places = system_stack
            .zip(more_stack)
            .and_then(|(system_stack, more_stack)| places::places(&system_stack, &more_stack));
        reader
    }

    fn address(&self, into: u32) -> Option<u64> {
        self.text.checked_add(u64::from(into))
    }

    fn code(&self, function: &GoFunction<'_>) -> Option<Code> {
        let address = self.address(function.begin)?;
        let mut code = self.sections.code.iter();
        let code = code.find(|code| code.address.0 == address)?;
        Some(Code::of(&code.data, address))
    }

    /// Adds the ranges of a function; none when its description is damaged.
    fn add(
        &self,
        function: &GoFunction<'_>,
        ranges: &mut RuleRanges,
    ) -> Option<Result<(), UnwindError>> {
        let begin = self.address(function.begin)?;
        // The return address of a signal handler is the beginning of what it returns to.
        let end = match self.restorer {
            Some(restorer) if restorer == function.end => self.address(function.end)? - 1,
            _ => self.address(function.end)?,
        };
        if self.restorer == Some(function.begin) {
            return Some(ranges.add(begin - 1, end, bare(Base::Signal)));
        }
        let flags = function.flags()?;
        let name = function.name().unwrap_or_default();
        let is_handler = name == HANDLER && self.restorer.is_some();
        let is_start = STARTS.contains(&&*name);
        if is_start || flags & GO_FLAG_TOP_FRAME != 0 && !is_handler {
            return Some(ranges.add(begin, end, bare(Base::Outermost)));
        }
        if let Some(code) = self.code(function) {
            return Some(self.add_code(&name, &code, end, ranges));
        }
        if flags & GO_FLAG_SETS_STACK != 0 {
            return Some(ranges.add(begin, end, bare(Base::Unsupported)));
        }
        let kind = match &*name {
            SCHEDULER => Kind::Scheduler,
            name if INJECTED.contains(&name) => Kind::Injected,
            _ => Kind::Plain,
        };
        self.add_depths(function, kind, end, ranges)
    }

    /// Adds the rows of the list of stack depths.
    fn add_depths(
        &self,
        function: &GoFunction<'_>,
        kind: Kind,
        end: u64,
        ranges: &mut RuleRanges,
    ) -> Option<Result<(), UnwindError>> {
        let is_compiled = function.flags()? & GO_FLAG_ASSEMBLY == 0;
        let mut depths = function.stack_depths()?;
        let mut from = self.address(function.begin)?;
        let mut before = 0;
        while from < end {
            let (bytes, below) = depths.next()?;
            let to = from.checked_add(bytes.into())?.min(end);
            // The instruction that saves `rbp` comes after the one that makes the frame.
            let saves = before == 0 && is_compiled && (below > 8 || self.is_1_18);
            let saved = if saves { from + 1 } else { from };
            let added = ranges
                .add(from, saved.min(to), rule(below, Saved::Same, kind))
                .and_then(|()| {
                    ranges.add(saved, to, rule(below, saved_by(is_compiled, kind), kind))
                });
            if added.is_err() {
                return Some(added);
            }
            (from, before) = (to, below);
        }
        Some(Ok(()))
    }

    /// Adds the rows of a function by its code.
    fn add_code(
        &self,
        name: &str,
        code: &Code,
        end: u64,
        ranges: &mut RuleRanges,
    ) -> Result<(), UnwindError> {
        let away = match name {
            SYSTEM_STACK => self.places.map(on_system_stack),
            MORE_STACK => self.places.map(|places| places.rule(Base::GrowsStack)),
            LEAVES_GOROUTINE => Some(bare(Base::Outermost)),
            _ => None,
        };
        for row in code.rows(away, name == NEW_THREAD) {
            ranges.add(row.from.min(end), row.to.min(end), row.rule)?;
        }
        Ok(())
    }
}

/// The rule of `systemstack` while it runs a function on the thread's own stack.
fn on_system_stack(places: GoPlaces) -> Rule {
    let (saved, saved_at) = match places.popped {
        16 => (Saved::AtFrame, -16),
        _ => (Saved::Lost, 0),
    };
    Rule {
        saved: saved as u8,
        saved_at,
        ..places.rule(Base::Goroutine)
    }
}

/// Where `rbp` is in a frame.
fn saved_by(is_compiled: bool, kind: Kind) -> Saved {
    match is_compiled || kind == Kind::Injected {
        // A frame begins with the caller's `rbp`.
        true => Saved::AtFrame,
        false => Saved::Lost,
    }
}

/// The rule where the return address is so far above the stack pointer.
fn rule(below: i32, saved: Saved, kind: Kind) -> Rule {
    if below < 0 || below % 8 != 0 {
        return bare(Base::Unsupported);
    }
    let saved = if below == 0 { Saved::Same } else { saved };
    let base = match kind {
        Kind::Plain => Base::Rsp,
        Kind::Injected => Base::Injected,
        Kind::Scheduler => Base::Scheduler,
    };
    Rule {
        offset: below.saturating_add(8),
        saved: saved as u8,
        saved_at: if saved == Saved::AtFrame { -16 } else { 0 },
        ..bare(base)
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

    fn sections(data: &[u8]) -> GoSections {
        GoSections {
            table: data.into(),
            text: nsprobe_symbolize::Address(TEXT),
            code: Vec::new(),
        }
    }

    fn ranges(data: &[u8]) -> RuleRanges {
        let mut ranges = RuleRanges::default();
        read(&sections(data), &mut ranges).expect("few ranges");
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
            (GO_FLAG_ASSEMBLY, Base::Rsp),
            (GO_FLAG_SETS_STACK, Base::Unsupported),
            (
                GO_FLAG_TOP_FRAME | GO_FLAG_SETS_STACK | GO_FLAG_ASSEMBLY,
                Base::Outermost,
            ),
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
            let _ = read(&sections(&data), &mut RuleRanges::default());
        }
    }
}
