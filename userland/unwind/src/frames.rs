// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where functions, and pieces of them, begin and end, and where in them the return address
//! is on top of the stack.

use crate::rule::Bytes;
use crate::UnwindError;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice,
    FrameDescriptionEntry, LittleEndian, UnwindContext, UnwindOffset, UnwindSection, X86_64,
};
use nsprobe_symbolize::{Binary, UnwindSections};
use std::cell::RefCell;
use std::ops::Range;

/// Most entries of a section: libraries of 130 MB have some hundred thousand.
const ENTRIES_MAX: usize = 4 << 20;

/// The rows of a file's code in `.eh_frame` (else `.debug_frame`).
#[derive(Debug)]
pub struct Frames {
    sections: UnwindSections,
    bases: BaseAddresses,
    /// By rising address.
    eh_frame: Vec<FrameEntry>,
    debug_frame: Vec<FrameEntry>,
    /// The rows of the last requested entry: callers request neighbours.
    last: RefCell<(Range<u64>, Vec<ReturnAtTop>)>,
}

/// An entry (FDE) of a section: what it covers, and where it is.
#[derive(Clone, Debug)]
struct FrameEntry {
    covers: Range<u64>,
    offset: usize,
}

/// Whether the return address is on top of the stack at some addresses.
#[derive(Debug)]
struct ReturnAtTop {
    holds: Range<u64>,
    is_at_top: Option<bool>,
}

impl Frames {
    /// Reads what all entries of a file cover.
    pub fn of(binary: &Binary) -> Result<Frames, UnwindError> {
        Frames::of_sections(binary.unwind_sections()?)
    }

    fn of_sections(sections: UnwindSections) -> Result<Frames, UnwindError> {
        let bases = bases(&sections);
        Ok(Frames {
            eh_frame: entries(&eh_frame(&sections), &bases)?,
            debug_frame: entries(&debug_frame(&sections), &bases)?,
            sections,
            bases,
            last: RefCell::default(),
        })
    }

    /// The addresses of the piece of code that holds an address, by the file's own count.
    pub fn covering(&self, address: u64) -> Option<Range<u64>> {
        let found = find(&self.eh_frame, address).or_else(|| find(&self.debug_frame, address));
        Some(found?.covers.clone())
    }

    /// Where the next piece begins after an address.
    pub fn behind(&self, address: u64) -> Option<u64> {
        let sections = [&self.eh_frame, &self.debug_frame].into_iter();
        let next = sections.filter_map(|entries| {
            let behind = entries.partition_point(|entry| entry.covers.start <= address);
            Some(entries.get(behind)?.covers.start)
        });
        next.min()
    }

    /// Whether the return address is on top of the stack before the instruction at an address
    /// (the frame's address is %rsp + 8); `None` where nothing is said of it, or in the form of
    /// an expression.
    pub fn is_at_top(&self, address: u64) -> Option<bool> {
        let mut last = self.last.borrow_mut();
        if !last.0.contains(&address) {
            *last = self.rows(address)?;
        }
        let rows = &last.1;
        let behind = rows.partition_point(|row| row.holds.start <= address);
        let row = rows.get(behind.checked_sub(1)?)?;
        row.is_at_top.filter(|_| row.holds.contains(&address))
    }

    /// The rows of the entry that covers an address.
    fn rows(&self, address: u64) -> Option<(Range<u64>, Vec<ReturnAtTop>)> {
        let (eh_frame, debug_frame) = (eh_frame(&self.sections), debug_frame(&self.sections));
        if let Some(entry) = find(&self.eh_frame, address) {
            return Some((entry.covers.clone(), rows(&eh_frame, &self.bases, entry)));
        }
        let entry = find(&self.debug_frame, address)?;
        Some((entry.covers.clone(), rows(&debug_frame, &self.bases, entry)))
    }
}

/// What pointers in the sections count from.
pub(crate) fn bases(sections: &UnwindSections) -> BaseAddresses {
    BaseAddresses::default()
        .set_eh_frame(sections.eh_frame.address.0)
        .set_text(sections.text.0)
        .set_got(sections.got.0)
}

pub(crate) fn eh_frame(sections: &UnwindSections) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::from(EndianSlice::new(&sections.eh_frame.data, LittleEndian));
    section.set_address_size(8);
    section
}

pub(crate) fn debug_frame(sections: &UnwindSections) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::from(EndianSlice::new(&sections.debug_frame, LittleEndian));
    section.set_address_size(8);
    section
}

/// The functions' entries (FDE) of a section. One that is damaged from some place on is used up to
/// there.
pub(crate) fn functions<'a, 's: 'a, S>(
    section: &S,
    bases: &'a BaseAddresses,
) -> impl Iterator<Item = gimli::Result<FrameDescriptionEntry<Bytes<'s>>>> + 'a
where
    S: UnwindSection<Bytes<'s>> + 'a,
    S::Offset: UnwindOffset<usize>,
{
    let mut entries = section.entries(bases);
    // Nearly all share their common entry (CIE) with the one before.
    let mut last: Option<(S::Offset, CommonInformationEntry<Bytes<'s>>)> = None;
    std::iter::from_fn(move || loop {
        let partial = match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => partial,
            Ok(Some(CieOrFde::Cie(_))) => continue,
            Ok(None) | Err(_) => return None,
        };
        return Some(partial.parse(|section, bases, offset| match &last {
            Some((at, common)) if *at == offset => Ok(common.clone()),
            _ => {
                let common = section.cie_from_offset(bases, offset)?;
                last = Some((offset, common.clone()));
                Ok(common)
            }
        }));
    })
}

/// What all entries of a section cover.
fn entries<'s, S>(section: &S, bases: &BaseAddresses) -> Result<Vec<FrameEntry>, UnwindError>
where
    S: UnwindSection<Bytes<'s>>,
    S::Offset: UnwindOffset<usize>,
{
    let mut found = Vec::new();
    for entry in functions(section, bases).flatten().filter_map(covered) {
        if found.len() == ENTRIES_MAX {
            return Err(UnwindError::TooBig);
        }
        found.push(entry);
    }
    // Stable: of two for one address, the one that was read last counts, in all cases.
    found.sort_by_key(|entry| entry.covers.start);
    Ok(found)
}

/// Whether the sections describe at least `bytes` bytes of code.
pub(crate) fn cover(sections: &UnwindSections, bytes: u64) -> bool {
    let bases = bases(sections);
    let (eh_frame, debug_frame) = (eh_frame(sections), debug_frame(sections));
    let all = functions(&eh_frame, &bases).chain(functions(&debug_frame, &bases));
    let mut left = bytes;
    left == 0
        || all.flatten().filter_map(covered).any(|entry| {
            left = left.saturating_sub(entry.covers.end - entry.covers.start);
            left == 0
        })
}

/// What an entry covers; none when that is nothing, or was removed by the linker.
fn covered(fde: FrameDescriptionEntry<Bytes<'_>>) -> Option<FrameEntry> {
    let from = fde.initial_address();
    let to = from.checked_add(fde.len())?;
    (0 < from && from < to).then_some(FrameEntry {
        covers: from..to,
        offset: fde.offset(),
    })
}

fn find(entries: &[FrameEntry], address: u64) -> Option<&FrameEntry> {
    let behind = entries.partition_point(|entry| entry.covers.start <= address);
    let entry = entries.get(behind.checked_sub(1)?)?;
    entry.covers.contains(&address).then_some(entry)
}

/// The rows of an entry, by rising address: those in front of what cannot be read.
fn rows<'s, S>(section: &S, bases: &BaseAddresses, entry: &FrameEntry) -> Vec<ReturnAtTop>
where
    S: UnwindSection<Bytes<'s>>,
    S::Offset: UnwindOffset<usize>,
{
    let mut rows = Vec::new();
    let mut context = UnwindContext::new();
    let offset = S::Offset::from(entry.offset);
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset);
    let Ok(fde) = fde else {
        return rows;
    };
    let Ok(mut table) = fde.rows(section, bases, &mut context) else {
        return rows;
    };
    while let Ok(Some(row)) = table.next_row() {
        rows.push(ReturnAtTop {
            holds: row.start_address()..row.end_address(),
            is_at_top: is_top(row.cfa()),
        });
    }
    rows
}

fn is_top(rule: &CfaRule<usize>) -> Option<bool> {
    match *rule {
        CfaRule::RegisterAndOffset { register, offset } => {
            Some(register == X86_64::RSP && offset == 8)
        }
        CfaRule::Expression(_) => None,
    }
}

#[cfg(test)]
mod tests;
