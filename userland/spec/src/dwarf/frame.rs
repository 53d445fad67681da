// SPDX-License-Identifier: MIT OR Apache-2.0
//! The canonical frame address at a place: what the stack pointer was before the
//! call, from the rows of `.eh_frame` or `.debug_frame` (DWARF 5, section 6.4).

use super::error::DwarfError;
use super::expression::{add, register};
use super::units::Units;
use crate::value::Value;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian,
    UnwindContext, UnwindOffset, UnwindSection,
};
use nsprobe_symbolize::UnwindSections;

/// Most functions whose frames are described.
const ENTRIES_MAX: usize = 8_000_000;

/// A function's description: its addresses, and where it is in its section.
#[derive(Clone, Copy, Debug)]
struct Described {
    from: u64,
    to: u64,
    offset: usize,
    /// In `.debug_frame`.
    debug: bool,
}

/// The frames of all functions.
#[derive(Debug)]
pub(super) struct FunctionFrames {
    sections: UnwindSections,
    bases: BaseAddresses,
    /// By rising address.
    index: Vec<Described>,
}

impl FunctionFrames {
    /// Reads where each function is described. Sections that are damaged from
    /// some place on are used up to there.
    pub(super) fn new(
        sections: UnwindSections,
        units: &Units<'_>,
    ) -> Result<FunctionFrames, DwarfError> {
        let bases = BaseAddresses::default()
            .set_eh_frame(sections.eh_frame.address.0)
            .set_text(sections.text.0)
            .set_got(sections.got.0);
        let mut frames = FunctionFrames {
            sections,
            bases,
            index: Vec::new(),
        };
        let mut index = Vec::new();
        frames.read(&frames.eh_frame(), false, units, &mut index)?;
        frames.read(&frames.debug_frame(), true, units, &mut index)?;
        // Of two descriptions of an address, that of .eh_frame comes last and is found.
        index.sort_by_key(|described| (described.from, !described.debug));
        frames.index = index;
        Ok(frames)
    }

    fn eh_frame(&self) -> EhFrame<EndianSlice<'_, LittleEndian>> {
        let mut section = EhFrame::new(&self.sections.eh_frame.data, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn debug_frame(&self) -> DebugFrame<EndianSlice<'_, LittleEndian>> {
        let mut section = DebugFrame::new(&self.sections.debug_frame, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn read<'s, S>(
        &'s self,
        section: &S,
        debug: bool,
        units: &Units<'_>,
        index: &mut Vec<Described>,
    ) -> Result<(), DwarfError>
    where
        S: UnwindSection<EndianSlice<'s, LittleEndian>>,
        S::Offset: UnwindOffset<usize>,
    {
        let mut entries = section.entries(&self.bases);
        while let Ok(Some(entry)) = entries.next() {
            units.step()?;
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let Ok(fde) = partial.parse(S::cie_from_offset) else {
                continue;
            };
            if index.len() == ENTRIES_MAX {
                return Err(DwarfError::TooBig("it describes too many frames"));
            }
            index.push(Described {
                from: fde.initial_address(),
                to: fde.end_address(),
                offset: fde.offset(),
                debug,
            });
        }
        Ok(())
    }

    /// The canonical frame address at `pc`, or why it is not known.
    pub(super) fn address_at(&self, pc: u64) -> Result<Value, String> {
        let unknown = || "the frame at this place is not described (.eh_frame)".to_owned();
        let behind = self.index.partition_point(|d| d.from <= pc);
        let before = self.index.get(..behind).unwrap_or_default();
        let described = *before.last().filter(|d| pc < d.to).ok_or_else(unknown)?;
        let rule = match described.debug {
            false => self.rule(&self.eh_frame(), described, pc),
            true => self.rule(&self.debug_frame(), described, pc),
        };
        match rule.map_err(|error| format!("the frame is not described well: {error}"))? {
            CfaRule::RegisterAndOffset {
                register: number,
                offset,
            } => Ok(add(register(number.0)?, offset)),
            CfaRule::Expression(_) => Err("the frame at this place is an expression".to_owned()),
        }
    }

    fn rule<'s, S>(
        &'s self,
        section: &S,
        described: Described,
        pc: u64,
    ) -> Result<CfaRule<usize>, gimli::Error>
    where
        S: UnwindSection<EndianSlice<'s, LittleEndian>>,
        S::Offset: UnwindOffset<usize> + From<usize>,
    {
        let offset = S::Offset::from(described.offset);
        let fde = section.fde_from_offset(&self.bases, offset, S::cie_from_offset)?;
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(section, &self.bases, &mut context, pc)?;
        Ok(row.cfa().clone())
    }
}
