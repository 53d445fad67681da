// SPDX-License-Identifier: MIT OR Apache-2.0
//! `.sframe`, version 2, as assemblers and linkers of binutils 2.41 to 2.45 write it for
//! AMD64 ("The SFrame Format", `libsframe/doc/sframe-spec.texi`; in brackets its sections).
//!
//! Functions (FDEs) have rows (FREs): from this instruction on, the frame is at the stack
//! or frame pointer plus an offset, and the caller's frame pointer lies there. A function
//! with anything in it that the format does not allow has no rows, and is counted; a
//! section whose header is wrong is counted as one.

use crate::rule::bare;
use nsprobe_common::unwind::{Base, Rule, Saved};
use nsprobe_symbolize::LoadedSection;
use zerocopy::little_endian::{I32, U16, U32};
use zerocopy::FromBytes;
use zerocopy_derive::{FromBytes, Immutable, KnownLayout, Unaligned};

/// "SFrame Preamble".
const MAGIC: u16 = 0xdee2;
const VERSION: u8 = 2;
/// "SFrame Flags": functions are sorted, all keep frame pointers, and (since 2.45) a
/// function's start is counted from its own field and not from the section.
const SORTED: u8 = 1;
const FRAME_POINTER: u8 = 2;
const START_FROM_FIELD: u8 = 4;
/// "SFrame ABI/arch Identifier".
const AMD64: u8 = 3;
/// Where the return address is, from the frame's address on: fixed for AMD64.
const RETURN_ADDRESS: i8 = -8;
/// Bytes of the shortest row: its start, its info, the frame's offset.
const ROW_BYTES_MIN: usize = 3;
/// The frame at the first instruction of a function: the return address is on top of the stack.
const CALLED: Rule = Rule {
    offset: 8,
    ..bare(Base::Rsp)
};
/// Most rows that come of functions that repeat themselves (other than linkage tables,
/// which have a rule): twenty bytes of a file could ask for any number.
const REPEATED_ROWS_MAX: usize = 1 << 16;

/// "SFrame Header".
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SframeHeader {
    magic: U16,
    version: u8,
    flags: u8,
    abi: u8,
    fixed_frame_pointer: i8,
    fixed_return_address: i8,
    more_header_bytes: u8,
    functions: U32,
    rows: U32,
    rows_bytes: U32,
    functions_at: U32,
    rows_at: U32,
}
const _: () = assert!(size_of::<SframeHeader>() == 28);

/// "SFrame Function Descriptor Entries".
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FunctionEntry {
    start: I32,
    bytes: U32,
    rows_at: U32,
    rows: U32,
    info: u8,
    repeated_bytes: u8,
    padding: U16,
}
const _: () = assert!(size_of::<FunctionEntry>() == 20);

/// A rule, and the addresses that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) rule: Rule,
}

/// A row: from this number of bytes after the function's begin on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SframeRow {
    from: u64,
    rule: Rule,
}

/// A section that was looked through.
struct Section<'a> {
    /// The address of the first function's entry.
    functions_address: u64,
    /// That of the section, when starts are counted from there.
    starts_from: Option<u64>,
    functions: &'a [FunctionEntry],
    /// The bytes of all rows, and how many there may be.
    rows: &'a [u8],
    rows_max: usize,
}

/// What a section describes, by rising address and without overlaps; and how many
/// functions are skipped as they cannot be read.
pub(crate) fn read(section: &LoadedSection) -> (Vec<Described>, u64) {
    if section.data.is_empty() {
        return (Vec::new(), 0);
    }
    match Section::parse(&section.data, section.address.0) {
        Some(section) => section.read(),
        None => (Vec::new(), 1),
    }
}

impl<'a> Section<'a> {
    fn parse(data: &'a [u8], address: u64) -> Option<Section<'a>> {
        let (header, behind) = SframeHeader::ref_from_prefix(data).ok()?;
        let is_known = header.magic.get() == MAGIC
            && header.version == VERSION
            && header.flags & !(SORTED | FRAME_POINTER | START_FROM_FIELD) == 0
            && header.abi == AMD64
            && header.fixed_return_address == RETURN_ADDRESS
            && header.fixed_frame_pointer == 0;
        if !is_known {
            return None;
        }
        let behind = behind.get(usize::from(header.more_header_bytes)..)?;
        let functions = part(behind, header.functions_at, {
            (header.functions.get() as usize).checked_mul(size_of::<FunctionEntry>())?
        })?;
        let rows = part(behind, header.rows_at, header.rows_bytes.get() as usize)?;
        let rows_max = header.rows.get() as usize;
        if rows_max > rows.len() / ROW_BYTES_MIN {
            return None;
        }
        let before = data.len() - behind.len();
        let before = (before as u64).checked_add(header.functions_at.get().into())?;
        Some(Section {
            functions_address: address.checked_add(before)?,
            starts_from: (header.flags & START_FROM_FIELD == 0).then_some(address),
            functions: <[FunctionEntry]>::ref_from_bytes(functions).ok()?,
            rows,
            rows_max,
        })
    }

    /// The addresses of each function, by rising address.
    fn sorted(&self) -> Vec<(Option<u64>, &'a FunctionEntry)> {
        let start = |(index, function): (usize, &'a FunctionEntry)| {
            let entry = (index * size_of::<FunctionEntry>()) as u64;
            let from = match self.starts_from {
                Some(section) => section,
                None => self.functions_address.checked_add(entry)?,
            };
            from.checked_add_signed(function.start.get().into())
        };
        let functions = self.functions.iter().enumerate();
        let mut sorted: Vec<_> = functions.map(|each| (start(each), each.1)).collect();
        sorted.sort_by_key(|(start, _)| *start);
        sorted
    }

    fn read(&self) -> (Vec<Described>, u64) {
        let mut described = Vec::new();
        let mut unreadable = 0;
        let mut behind = 0;
        // Functions may name the same bytes, but no more rows than there are.
        let mut rows_left = self.rows_max;
        let mut repeated_left = REPEATED_ROWS_MAX;
        for (start, function) in self.sorted() {
            let count = function.rows.get() as usize;
            let end = start.and_then(|start| start.checked_add(function.bytes.get().into()));
            let (Some(start), Some(end), Some(left)) = (start, end, rows_left.checked_sub(count))
            else {
                unreadable += 1;
                continue;
            };
            rows_left = left;
            let rows = function.rows(self.rows).filter(|_| start >= behind);
            let made = rows.and_then(|rows| {
                function.describe(start, &rows, &mut repeated_left, &mut described)
            });
            match made {
                Some(()) => behind = end,
                None => unreadable += 1,
            }
        }
        (described, unreadable)
    }
}

/// `bytes` bytes from `at` on.
fn part(data: &[u8], at: U32, bytes: usize) -> Option<&[u8]> {
    data.get(at.get() as usize..)?.get(..bytes)
}

impl FunctionEntry {
    /// Whether the rows are those of a piece of code that is there again and again
    /// (SFRAME_FDE_TYPE_PCMASK).
    fn repeats(&self) -> bool {
        self.info & 0x10 != 0
    }

    /// Its rows, each after the one before; none when one of them is wrong.
    fn rows(&self, rows: &[u8]) -> Option<Vec<SframeRow>> {
        // "The SFrame FDE Info Word": no pointer authentication on AMD64.
        if self.info & !0x1f != 0 {
            return None;
        }
        let start_bytes = match self.info & 0xf {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        let limit = match self.repeats() {
            true => u32::from(self.repeated_bytes),
            false => self.bytes.get(),
        };
        let mut at = rows.get(self.rows_at.get() as usize..)?;
        let mut read: Vec<SframeRow> = Vec::new();
        for _ in 0..self.rows.get() {
            let row = SframeRow::take(&mut at, start_bytes)?;
            let is_behind = read.last().is_none_or(|before| before.from < row.from);
            if !is_behind || row.from >= limit.into() {
                return None;
            }
            read.push(row);
        }
        Some(read)
    }

    /// Adds what its rows say; none when that is too much.
    fn describe(
        &self,
        start: u64,
        rows: &[SframeRow],
        repeated_left: &mut usize,
        described: &mut Vec<Described>,
    ) -> Option<()> {
        let bytes = u64::from(self.bytes.get());
        if !self.repeats() {
            each(rows, start, bytes, described);
            return Some(());
        }
        let every = u64::from(self.repeated_bytes);
        // The place in the piece is that of the address by one edition of the specification, and
        // that after the function's begin by the other. At a function's first instruction, the
        // call has just been made; ld 2.44 says otherwise of .plt.got.
        let begins = rows.first().map(|row| (row.from, row.rule));
        let is_called = begins == Some((0, CALLED));
        if every == 0 || !start.is_multiple_of(every) || !is_called {
            return None;
        }
        if let Some(rule) = linkage(rows, every) {
            each(&[SframeRow { from: 0, rule }], start, bytes, described);
            return Some(());
        }
        let count = usize::try_from(bytes.div_ceil(every)).ok()?;
        *repeated_left = repeated_left.checked_sub(count.checked_mul(rows.len())?)?;
        for into in (0..bytes).step_by(every as usize) {
            each(rows, start + into, every.min(bytes - into), described);
        }
        Some(())
    }
}

/// Adds the rows of `bytes` bytes of code; each holds up to the next.
fn each(rows: &[SframeRow], start: u64, bytes: u64, described: &mut Vec<Described>) {
    let ends = rows.iter().skip(1).map(|row| row.from).chain([bytes]);
    for (row, end) in rows.iter().zip(ends) {
        let (from, to) = (row.from, end.min(bytes));
        if from < to {
            described.push(Described {
                from: start + from,
                to: start + to,
                rule: row.rule,
            });
        }
    }
}

/// The rule of a linkage table's entries, of which the first row is as it must be: one
/// word more is on the stack from some place in them on.
fn linkage(rows: &[SframeRow], every: u64) -> Option<Rule> {
    let [first, second] = rows else {
        return None;
    };
    let pushed = Rule {
        offset: first.rule.offset.checked_add(8)?,
        ..first.rule
    };
    (every == 16 && second.rule == pushed).then_some(Rule {
        base: Base::Linkage as u8,
        more: i16::try_from(second.from).ok()?,
        ..first.rule
    })
}

impl SframeRow {
    /// Takes a row off the front ("SFrame Frame Row Entries").
    fn take(at: &mut &[u8], start_bytes: usize) -> Option<SframeRow> {
        let from = unsigned(at.split_off(..start_bytes)?);
        let info = *at.split_off_first()?;
        let offset_bytes = match info >> 5 & 3 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        let base = match info & 1 {
            0 => Base::Rbp,
            _ => Base::Rsp,
        };
        // The highest bit: a signed return address, which AMD64 does not have.
        let count = match info & 0x80 {
            0 => info >> 1 & 0xf,
            _ => return None,
        };
        let mut offset = || Some(signed(at.split_off(..offset_bytes)?));
        let rule = Rule {
            offset: offset()?,
            ..bare(base)
        };
        let rule = match count {
            1 => rule,
            2 => Rule {
                saved: Saved::AtFrame as u8,
                saved_at: offset()?,
                ..rule
            },
            _ => return None,
        };
        Some(SframeRow { from, rule })
    }
}

/// A number of at most eight bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A number of 1, 2 or 4 bytes.
fn signed(bytes: &[u8]) -> i32 {
    match *bytes {
        [byte] => i8::from_le_bytes([byte]).into(),
        [low, high] => i16::from_le_bytes([low, high]).into(),
        _ => unsigned(bytes) as u32 as i32,
    }
}

#[cfg(test)]
mod tests;
