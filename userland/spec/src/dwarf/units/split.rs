// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units of which the file has only a skeleton, with addresses and lines: the entries are in a
//! file of their own (DWARF 5, section 3.1.2; for DWARF 4 the same as a GNU extension).

use super::{borrowed, DwarfBytes, GimliUnit, Units};
use crate::dwarf::error::DwarfError;
use gimli::{Dwarf, DwoId, EndianSlice, LittleEndian, UnitHeader};
use nsprobe_symbolize::{SectionData, SplitSections};
use std::collections::HashMap;

/// A unit whose entries are in another file.
#[derive(Debug)]
pub(super) struct Split<'a> {
    /// The sections of that file, with those that the program has for it.
    pub(super) dwarf: Dwarf<DwarfBytes<'a>>,
    pub(super) header: UnitHeader<DwarfBytes<'a>>,
}

impl<'a> Split<'a> {
    /// The first unit of a file, if it has the id.
    fn new(dwarf: Dwarf<DwarfBytes<'a>>, id: DwoId) -> Option<Split<'a>> {
        let header = dwarf.units().next().ok()??;
        let is_meant = dwarf.unit(header).ok()?.dwo_id == Some(id);
        is_meant.then_some(Split { dwarf, header })
    }

    /// The whole unit of which this is the skeleton.
    pub(super) fn unit(&self, skeleton: GimliUnit<'a>) -> Result<GimliUnit<'a>, DwarfError> {
        let mut whole = self.dwarf.unit(self.header)?;
        whole.copy_relocated_attributes(&skeleton);
        whole.comp_dir = skeleton.comp_dir.or(whole.comp_dir);
        whole.line_program = skeleton.line_program;
        Ok(whole)
    }
}

impl<'a> Units<'a> {
    /// Finds the units of which only skeletons are in the file.
    pub(super) fn read_split(&mut self, sections: &'a SplitSections) {
        if sections.packages.is_empty() && sections.files.is_empty() {
            return;
        }
        let empty = EndianSlice::new(&[], LittleEndian);
        let borrow = |data: &'a SectionData| EndianSlice::new(data, LittleEndian);
        let packages = sections.packages.iter();
        let packages = packages.filter_map(|sections| sections.borrow(borrow, empty).ok());
        let packages: Vec<_> = packages.collect();
        let files: HashMap<_, _> = sections
            .files
            .iter()
            .map(|(id, file)| (*id, file))
            .collect();
        for header in self.headers.iter_mut().take(self.types_from) {
            let skeleton = self.dwarf.unit(header.header);
            let Some(id) = skeleton.ok().and_then(|skeleton| skeleton.dwo_id) else {
                continue;
            };
            let packed = packages.iter().find_map(|package| {
                let dwarf = package.find_cu(id, &self.dwarf).ok()??;
                Split::new(dwarf, id)
            });
            let alone = || {
                let mut dwarf = borrowed(files.get(&id.0)?);
                dwarf.make_dwo(&self.dwarf);
                Split::new(dwarf, id)
            };
            if let Some(found) = packed.or_else(alone) {
                header.split = Some(self.split.len());
                self.split.push(found);
            }
        }
    }

    pub(in crate::dwarf) fn is_split(&self, unit: u32) -> bool {
        self.split_of(unit).is_some()
    }

    pub(super) fn split_of(&self, unit: u32) -> Option<&Split<'a>> {
        self.split.get(self.headers.get(unit as usize)?.split?)
    }

    /// Fails when the file has only the skeleton of a unit, and no other file the rest.
    pub(in crate::dwarf) fn check_whole(&self, unit: u32) -> Result<(), DwarfError> {
        let parsed = self.unit(unit)?;
        let is_missing = parsed.dwo_id.is_some() && self.split_of(unit).is_none();
        let Some(name) = parsed.dwo_name()?.filter(|_| is_missing) else {
            return Ok(());
        };
        let name = self.text(unit, &parsed, name);
        Err(DwarfError::Elsewhere(
            name.unwrap_or("another file").to_owned(),
        ))
    }

    /// The sections that the unit's entries refer to.
    pub(in crate::dwarf) fn dwarf_of(&self, unit: u32) -> &Dwarf<DwarfBytes<'a>> {
        match self.split_of(unit) {
            Some(split) => &split.dwarf,
            None => self.skeleton_dwarf_of(unit),
        }
    }

    /// The addresses of a unit, which its skeleton has.
    pub(in crate::dwarf) fn unit_ranges(&self, unit: u32) -> Result<Vec<(u64, u64)>, DwarfError> {
        let dwarf = self.skeleton_dwarf_of(unit);
        let parsed = match (self.split_of(unit), self.headers.get(unit as usize)) {
            (Some(_), Some(header)) => dwarf.unit(header.header)?,
            _ => self.parse(unit)?,
        };
        let root = parsed.entry(parsed.header.root_offset())?;
        self.found_ranges(dwarf, &parsed, &root)
    }

    /// A text of the unit's lines, which its skeleton has.
    pub(in crate::dwarf) fn text_of_lines(
        &self,
        unit: u32,
        parsed: &GimliUnit<'a>,
        value: super::Attribute<'a>,
    ) -> Option<&'a str> {
        let dwarf = self.skeleton_dwarf_of(unit);
        let text = dwarf.attr_string(parsed, value).ok()?;
        std::str::from_utf8(text.slice()).ok()
    }
}
