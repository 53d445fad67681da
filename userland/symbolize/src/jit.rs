// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that a program generates while it runs, and what the program says of it.
//!
//! Two kinds of files tell: `perf-PID.map`, lines of text ([`crate::PerfMap`]), and
//! `jit-PID.dump`, which also has times and lines ([`crate::JitDump`]). Programs write
//! them for perf; what they say is no more trusted than the program is.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Most memory for the pieces of a process, in bytes; then it begins anew, so that what is
/// newest is known.
const BYTES_MAX: usize = 128 << 20;
/// What a piece takes beside its names, in bytes, roughly.
const PIECE_COST: usize = 160;
/// Longest piece, in bytes; what claims more would hide all others.
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Most pieces that are looked at for an address.
const LOOKS_MAX: usize = 4096;
/// Most lines of a piece.
pub(crate) const LINES_MAX: usize = 1 << 16;

/// A line of the source, from an address on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JitLine {
    pub(crate) address: u64,
    pub(crate) file: Rc<str>,
    pub(crate) line: u32,
}

/// A piece of generated code.
#[derive(Clone, Debug, Default)]
pub(crate) struct GeneratedPiece {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) name: Rc<str>,
    /// When it was put there (CLOCK_MONOTONIC, in nanoseconds); 0 if unknown.
    pub(crate) time_ns: u64,
    /// By rising address.
    pub(crate) lines: Vec<JitLine>,
}

/// What is at an address of generated code.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct JitName {
    /// The name, as the program has it: escape it before printing.
    pub name: String,
    /// How far into the code the address is, in bytes.
    pub offset: u64,
    /// The source file. Never open it.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
}

/// What was at an address of generated code at a time, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitNameThen {
    /// What was there; none when that is not known.
    pub name: Option<JitName>,
    /// From when on (CLOCK_MONOTONIC, in nanoseconds), and the first nanosecond when there may
    /// be something else.
    pub since_ns: u64,
    /// See there.
    pub until_ns: u64,
}

/// All pieces that a process reported.
#[derive(Default)]
pub(crate) struct Pieces {
    /// By where they begin, and the order in which they were reported.
    all: BTreeMap<(u64, u64), GeneratedPiece>,
    told: u64,
    bytes: usize,
    longest: u64,
    /// Pieces that had to make room for others, or that claimed too much.
    left_out: u64,
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces", self.all.len())
    }
}

impl Pieces {
    /// One more piece, newer than those before.
    pub(crate) fn add(&mut self, piece: GeneratedPiece) {
        if piece.bytes == 0 {
            return;
        }
        let ends = piece.start.checked_add(piece.bytes).is_some();
        if !ends || piece.bytes > PIECE_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        let lines = piece.lines.iter();
        let lines: usize = lines
            .map(|line| line.file.len() + size_of::<JitLine>())
            .sum();
        let bytes = PIECE_COST + piece.name.len() + lines;
        if self.bytes + bytes > BYTES_MAX {
            self.left_out += self.all.len() as u64;
            self.all.clear();
            (self.bytes, self.longest) = (0, 0);
        }
        self.bytes += bytes;
        self.longest = self.longest.max(piece.bytes);
        self.told += 1;
        self.all.insert((piece.start, self.told), piece);
    }

    /// The memory that they take, in bytes, roughly.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest piece that begins there.
    pub(crate) fn newest_at(&self, start: u64) -> Option<&GeneratedPiece> {
        let here = self.all.range((start, 0)..=(start, u64::MAX));
        here.last().map(|(_, piece)| piece)
    }

    /// Pieces that were skipped.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What was at the address at a time: of several pieces that cover it the newest one
    /// that was there by then.
    pub(crate) fn at(&self, address: u64, time_ns: u64) -> JitNameThen {
        let lowest = address.saturating_sub(self.longest);
        let near = self.all.range((lowest, 0)..=(address, u64::MAX)).rev();
        let mut newest: Option<(u64, u64, &GeneratedPiece)> = None;
        let mut until_ns = u64::MAX;
        for (looked, ((_, told), piece)) in near.enumerate() {
            // Where this many overlap, the newest is not known.
            if looked == LOOKS_MAX {
                return JitNameThen {
                    name: None,
                    since_ns: time_ns,
                    until_ns: time_ns.saturating_add(1),
                };
            }
            if address - piece.start >= piece.bytes {
                continue;
            }
            if piece.time_ns > time_ns {
                until_ns = until_ns.min(piece.time_ns);
                continue;
            }
            let age = (piece.time_ns, *told);
            if newest.is_none_or(|(time, told, _)| (time, told) < age) {
                newest = Some((age.0, age.1, piece));
            }
        }
        JitNameThen {
            name: newest.map(|(_, _, piece)| piece.name_at(address)),
            since_ns: newest.map_or(0, |(time_ns, ..)| time_ns),
            until_ns,
        }
    }
}

impl GeneratedPiece {
    fn name_at(&self, address: u64) -> JitName {
        let behind = self.lines.partition_point(|line| line.address <= address);
        let line = behind.checked_sub(1).and_then(|last| self.lines.get(last));
        JitName {
            name: self.name.to_string(),
            offset: address - self.start,
            file: line.map(|line| line.file.to_string()),
            line: line.map(|line| line.line).filter(|line| *line != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, bytes: u64, name: &str, time_ns: u64) -> GeneratedPiece {
        GeneratedPiece {
            start,
            bytes,
            name: name.into(),
            time_ns,
            lines: Vec::new(),
        }
    }

    fn name(pieces: &Pieces, address: u64, time_ns: u64) -> Option<String> {
        pieces.at(address, time_ns).name.map(|found| found.name)
    }

    #[test]
    fn the_newest_piece_that_covers_an_address_is_there() {
        let mut pieces = Pieces::default();
        pieces.add(piece(0x1000, 0x100, "first", 0));
        pieces.add(piece(0x1080, 0x10, "inside", 0));
        pieces.add(piece(0x0f00, 0x110, "over the start", 0));
        let found = |address| name(&pieces, address, u64::MAX);
        assert_eq!(found(0x0eff), None);
        assert_eq!(found(0x100f).as_deref(), Some("over the start"));
        assert_eq!(found(0x1010).as_deref(), Some("first"));
        assert_eq!(found(0x108f).as_deref(), Some("inside"));
        assert_eq!(found(0x10ff).as_deref(), Some("first"));
        assert_eq!(found(0x1100), None);
    }

    #[test]
    fn what_came_later_was_not_there_before() {
        let mut pieces = Pieces::default();
        pieces.add(piece(0x1000, 0x100, "old", 10));
        pieces.add(piece(0x1000, 0x100, "new", 20));
        for (time, wanted) in [
            (9, None),
            (10, Some("old")),
            (19, Some("old")),
            (20, Some("new")),
        ] {
            assert_eq!(name(&pieces, 0x1001, time).as_deref(), wanted, "{time}");
        }
    }

    #[test]
    fn a_name_holds_until_there_is_another() {
        let mut pieces = Pieces::default();
        pieces.add(piece(0x1000, 0x100, "old", 10));
        pieces.add(piece(0x1000, 0x80, "new", 20));
        for (address, time, since, until) in [
            (0x1001, 9, 0, 10),
            (0x1001, 10, 10, 20),
            (0x1001, 25, 20, u64::MAX),
            (0x1081, 25, 10, u64::MAX),
            (0x1100, 25, 0, u64::MAX),
        ] {
            let then = pieces.at(address, time);
            assert_eq!(
                (then.since_ns, then.until_ns),
                (since, until),
                "{address:#x} {time}"
            );
        }
    }

    #[test]
    fn without_room_the_newest_are_kept() {
        let mut pieces = Pieces::default();
        let long = "x".repeat(1 << 20);
        for number in 0..200 {
            pieces.add(piece(0x1000 + 16 * number, 16, &long, 0));
            assert!(pieces.bytes() <= BYTES_MAX);
        }
        assert!(pieces.left_out() > 0);
        assert_eq!(name(&pieces, 0x1000, 0), None);
        assert!(name(&pieces, 0x1000 + 16 * 199, 0).is_some());
    }

    #[test]
    fn claims_without_measure_are_left_out() {
        let mut pieces = Pieces::default();
        pieces.add(piece(0, u64::MAX, "all", 0));
        pieces.add(piece(u64::MAX, 2, "round the end", 0));
        pieces.add(piece(0x1000, 0, "nothing", 0));
        assert_eq!((pieces.left_out(), pieces.bytes()), (2, 0));
        for _ in 0..2 * LOOKS_MAX {
            pieces.add(piece(0x1000, 1, "many", 0));
        }
        assert_eq!(name(&pieces, 0x1000, u64::MAX), None);
    }
}
