// SPDX-License-Identifier: MIT OR Apache-2.0
//! The units of a file's DWARF, and what is common to reading their entries.
//!
//! Everything is hostile. References may lead in circles (chains are cut),
//! tables may overlap so that reading all of them takes the square of the file's
//! size (a clock runs), and entries may be nested without end (nothing here
//! recurses).

mod split;

use super::error::DwarfError;
use gimli::{AttributeValue, DwAt, DwarfSections, EndianSlice, LittleEndian, UnitHeader};
use nsprobe_symbolize::{SectionData, SplitSections};
use split::Split;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(super) type DwarfBytes<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type GimliUnit<'a> = gimli::Unit<DwarfBytes<'a>>;
pub(super) type GimliEntry<'a> = gimli::DebuggingInformationEntry<DwarfBytes<'a>>;
pub(super) type Attribute<'a> = AttributeValue<DwarfBytes<'a>>;

/// Most units: a browser with type units has some hundred thousands.
const UNITS_MAX: usize = 2_000_000;
/// Most references (specification, abstract origin) from an entry to another.
const CHAIN_MAX: usize = 16;
/// Longest time that one question may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Steps between looks at the clock.
const STEPS_PER_LOOK: u32 = 1024;
/// Units that are kept parsed.
const UNITS_KEPT: usize = 256;

/// An entry of the DWARF: which unit, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Die {
    pub(super) unit: u32,
    pub(super) offset: usize,
}

/// An entry with its attributes, and the unit that gives them their meaning.
#[derive(Clone, Debug)]
pub(super) struct DebugNode<'a> {
    pub(super) die: Die,
    pub(super) unit: Rc<GimliUnit<'a>>,
    pub(super) entry: GimliEntry<'a>,
}

impl<'a> DebugNode<'a> {
    pub(super) fn tag(&self) -> gimli::DwTag {
        self.entry.tag()
    }

    pub(super) fn attribute(&self, name: DwAt) -> Option<Attribute<'a>> {
        self.entry.attr_value(name)
    }

    pub(super) fn number(&self, name: DwAt) -> Option<u64> {
        self.attribute(name)?.udata_value()
    }

    pub(super) fn flag(&self, name: DwAt) -> bool {
        matches!(self.attribute(name), Some(AttributeValue::Flag(true)))
    }
}

#[derive(Debug)]
struct UnitStart<'a> {
    header: UnitHeader<DwarfBytes<'a>>,
    /// Of the supplementary file.
    supplementary: bool,
    /// Which of the split units it is the skeleton of.
    split: Option<usize>,
}

/// All units of a file and of its supplementary file.
#[derive(Debug)]
pub(super) struct Units<'a> {
    dwarf: gimli::Dwarf<DwarfBytes<'a>>,
    headers: Vec<UnitStart<'a>>,
    /// The first header that is in `.debug_types`, and the first that is in the
    /// supplementary file.
    types_from: usize,
    supplementary_from: usize,
    /// Those of which only skeletons are in the file.
    split: Vec<Split<'a>>,
    kept: RefCell<HashMap<u32, Rc<GimliUnit<'a>>>>,
    signatures: OnceCell<HashMap<u64, Die>>,
    started: Cell<Instant>,
    steps: Cell<u32>,
}

fn borrowed(sections: &DwarfSections<SectionData>) -> gimli::Dwarf<DwarfBytes<'_>> {
    sections.borrow(|data| EndianSlice::new(data, LittleEndian))
}

impl<'a> Units<'a> {
    pub(super) fn new(
        sections: &'a DwarfSections<SectionData>,
        supplementary: Option<&'a DwarfSections<SectionData>>,
        split: Option<&'a SplitSections>,
    ) -> Result<Units<'a>, DwarfError> {
        let mut units = Units {
            dwarf: borrowed(sections),
            headers: Vec::new(),
            types_from: 0,
            supplementary_from: 0,
            split: Vec::new(),
            kept: RefCell::default(),
            signatures: OnceCell::new(),
            started: Cell::new(Instant::now()),
            steps: Cell::new(0),
        };
        if let Some(sections) = supplementary {
            units.dwarf.set_sup(borrowed(sections));
        }
        units.read_headers()?;
        if let Some(split) = split {
            units.read_split(split);
        }
        Ok(units)
    }

    fn read_headers(&mut self) -> Result<(), DwarfError> {
        let mut units = self.dwarf.units();
        while let Some(header) = units.next()? {
            self.push(header, false)?;
        }
        self.types_from = self.headers.len();
        let mut units = self.dwarf.type_units();
        while let Some(header) = units.next()? {
            self.push(header, false)?;
        }
        self.supplementary_from = self.headers.len();
        let Some(mut units) = self.dwarf.sup().map(gimli::Dwarf::units) else {
            return Ok(());
        };
        while let Some(header) = units.next()? {
            self.push(header, true)?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        header: UnitHeader<DwarfBytes<'a>>,
        supplementary: bool,
    ) -> Result<(), DwarfError> {
        if self.headers.len() == UNITS_MAX {
            return Err(DwarfError::TooBig("it has too many units"));
        }
        self.headers.push(UnitStart {
            header,
            supplementary,
            split: None,
        });
        Ok(())
    }

    pub(super) fn count(&self) -> u32 {
        // UNITS_MAX fits.
        self.headers.len() as u32
    }

    /// A new question: the clock starts again.
    pub(super) fn start(&self) {
        self.started.set(Instant::now());
    }

    /// Counts a step of reading; fails when the question takes too long.
    pub(super) fn step(&self) -> Result<(), DwarfError> {
        let steps = self.steps.get().wrapping_add(1);
        self.steps.set(steps);
        match steps % STEPS_PER_LOOK {
            0 => self.look(),
            _ => Ok(()),
        }
    }

    fn look(&self) -> Result<(), DwarfError> {
        match self.started.get().elapsed() > PATIENCE {
            true => Err(DwarfError::TooBig("reading it takes more than a minute")),
            false => Ok(()),
        }
    }

    /// The sections that the unit's lines refer to.
    pub(super) fn skeleton_dwarf_of(&self, unit: u32) -> &gimli::Dwarf<DwarfBytes<'a>> {
        let supplementary = unit as usize >= self.supplementary_from;
        match self.dwarf.sup() {
            Some(sup) if supplementary => sup,
            _ => &self.dwarf,
        }
    }

    /// Parses a unit without keeping it: for passes over all of them.
    pub(super) fn parse(&self, unit: u32) -> Result<GimliUnit<'a>, DwarfError> {
        self.look()?;
        let header = self
            .headers
            .get(unit as usize)
            .ok_or_else(|| DwarfError::Damaged("a reference leads to no unit".to_owned()))?;
        debug_assert_eq!(
            header.supplementary,
            unit as usize >= self.supplementary_from
        );
        let own = self.skeleton_dwarf_of(unit).unit(header.header)?;
        match self.split_of(unit) {
            Some(split) => split.unit(own),
            None => Ok(own),
        }
    }

    pub(super) fn unit(&self, unit: u32) -> Result<Rc<GimliUnit<'a>>, DwarfError> {
        if let Some(kept) = self.kept.borrow().get(&unit) {
            return Ok(Rc::clone(kept));
        }
        let parsed = Rc::new(self.parse(unit)?);
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= UNITS_KEPT {
            kept.clear();
        }
        kept.insert(unit, Rc::clone(&parsed));
        Ok(parsed)
    }

    pub(super) fn node(&self, die: Die) -> Result<DebugNode<'a>, DwarfError> {
        self.step()?;
        let unit = self.unit(die.unit)?;
        let entry = unit.entry(gimli::UnitOffset(die.offset))?;
        Ok(DebugNode { die, unit, entry })
    }

    /// The root entry of a unit.
    pub(super) fn root(&self, unit: u32) -> Result<DebugNode<'a>, DwarfError> {
        let parsed = self.unit(unit)?;
        let offset = parsed.header.root_offset().0;
        self.node(Die { unit, offset })
    }

    /// Where an attribute of `node` leads.
    pub(super) fn target(
        &self,
        node: &DebugNode<'a>,
        name: DwAt,
    ) -> Result<Option<Die>, DwarfError> {
        match node.attribute(name) {
            Some(value) => self.reference(node.die.unit, &value),
            None => Ok(None),
        }
    }

    /// Where a reference in `unit` leads; none when it is no reference.
    pub(super) fn reference(
        &self,
        unit: u32,
        value: &Attribute<'a>,
    ) -> Result<Option<Die>, DwarfError> {
        let in_supplementary = unit as usize >= self.supplementary_from;
        let found = match *value {
            AttributeValue::UnitRef(offset) => Some(Die {
                unit,
                offset: offset.0,
            }),
            AttributeValue::DebugInfoRef(offset) => match self.split_of(unit) {
                Some(split) => offset.to_unit_offset(&split.header).map(|offset| Die {
                    unit,
                    offset: offset.0,
                }),
                None => self.at(offset.0, in_supplementary),
            },
            AttributeValue::DebugInfoRefSup(offset) => self.at(offset.0, true),
            AttributeValue::DebugTypesRef(signature) => {
                self.signatures()?.get(&signature.0).copied()
            }
            _ => return Ok(None),
        };
        match found {
            Some(die) => Ok(Some(die)),
            None if self.dwarf.sup().is_none()
                && matches!(value, AttributeValue::DebugInfoRefSup(_)) =>
            {
                Err(DwarfError::Damaged(
                    "a part of it lies in a file of its own (.gnu_debugaltlink), which is missing"
                        .to_owned(),
                ))
            }
            None => Err(DwarfError::Damaged(
                "a reference leads to no entry".to_owned(),
            )),
        }
    }

    /// The entry at an offset of `.debug_info`.
    pub(super) fn at(&self, offset: usize, supplementary: bool) -> Option<Die> {
        let (from, to) = match supplementary {
            false => (0, self.types_from),
            true => (self.supplementary_from, self.headers.len()),
        };
        let start = |header: &UnitStart<'a>| header.header.debug_info_offset().map_or(0, |o| o.0);
        let headers = self.headers.get(from..to)?;
        let index = headers
            .partition_point(|header| start(header) <= offset)
            .checked_sub(1)?;
        let into = offset.checked_sub(start(headers.get(index)?))?;
        Some(Die {
            unit: u32::try_from(from + index).ok()?,
            offset: into,
        })
    }

    /// The types of type units by their signatures.
    fn signatures(&self) -> Result<&HashMap<u64, Die>, DwarfError> {
        if let Some(signatures) = self.signatures.get() {
            return Ok(signatures);
        }
        let signature = |(index, header): (usize, &UnitStart<'a>)| {
            let gimli::UnitType::Type {
                type_signature,
                type_offset,
            } = header.header.type_()
            else {
                return None;
            };
            let die = Die {
                unit: u32::try_from(index).ok()?,
                offset: type_offset.0,
            };
            Some((type_signature.0, die))
        };
        let found = self.headers.iter().enumerate().filter_map(signature);
        Ok(self.signatures.get_or_init(|| found.collect()))
    }

    /// The attribute of the node, or of what it is an instance or the definition
    /// of; with the node that has it.
    pub(super) fn inherited(
        &self,
        node: &DebugNode<'a>,
        name: DwAt,
    ) -> Result<Option<(DebugNode<'a>, Attribute<'a>)>, DwarfError> {
        let mut node = node.clone();
        for _ in 0..CHAIN_MAX {
            if let Some(value) = node.attribute(name) {
                return Ok(Some((node, value)));
            }
            match self.origin(&node)? {
                Some(origin) => node = self.node(origin)?,
                None => return Ok(None),
            }
        }
        Err(DwarfError::Damaged(
            "references lead in a circle".to_owned(),
        ))
    }

    /// What the node is an instance or the definition of.
    pub(super) fn origin(&self, node: &DebugNode<'a>) -> Result<Option<Die>, DwarfError> {
        for name in [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification] {
            if let Some(target) = self.target(node, name)? {
                return Ok(Some(target));
            }
        }
        Ok(None)
    }

    /// The last of the node's origins: itself when it has none.
    pub(super) fn root_origin(&self, node: &DebugNode<'a>) -> Result<DebugNode<'a>, DwarfError> {
        let mut node = node.clone();
        for _ in 0..CHAIN_MAX {
            match self.origin(&node)? {
                Some(origin) => node = self.node(origin)?,
                None => return Ok(node),
            }
        }
        Err(DwarfError::Damaged(
            "references lead in a circle".to_owned(),
        ))
    }

    pub(super) fn text(
        &self,
        unit: u32,
        parsed: &GimliUnit<'a>,
        value: Attribute<'a>,
    ) -> Option<&'a str> {
        let text = self.dwarf_of(unit).attr_string(parsed, value).ok()?;
        std::str::from_utf8(text.slice()).ok()
    }

    /// The name of a node, its own or its origin's.
    pub(super) fn name(&self, node: &DebugNode<'a>) -> Result<Option<&'a str>, DwarfError> {
        let Some((owner, value)) = self.inherited(node, gimli::DW_AT_name)? else {
            return Ok(None);
        };
        Ok(self.text(owner.die.unit, &owner.unit, value))
    }

    /// The type of a node, its own or its origin's; none is `void`.
    pub(super) fn type_of(&self, node: &DebugNode<'a>) -> Result<Option<Die>, DwarfError> {
        match self.inherited(node, gimli::DW_AT_type)? {
            Some((owner, value)) => self.reference(owner.die.unit, &value),
            None => Ok(None),
        }
    }

    /// The addresses of an entry: from, and up to but not including.
    pub(super) fn ranges(&self, node: &DebugNode<'a>) -> Result<Vec<(u64, u64)>, DwarfError> {
        self.ranges_of(node.die.unit, &node.unit, &node.entry)
    }

    pub(super) fn ranges_of(
        &self,
        unit: u32,
        parsed: &GimliUnit<'a>,
        entry: &GimliEntry<'a>,
    ) -> Result<Vec<(u64, u64)>, DwarfError> {
        self.found_ranges(self.dwarf_of(unit), parsed, entry)
    }

    fn found_ranges(
        &self,
        dwarf: &gimli::Dwarf<DwarfBytes<'a>>,
        parsed: &GimliUnit<'a>,
        entry: &GimliEntry<'a>,
    ) -> Result<Vec<(u64, u64)>, DwarfError> {
        let mut found = Vec::new();
        let mut ranges = dwarf.die_ranges(parsed, entry)?;
        while let Some(range) = ranges.next()? {
            self.step()?;
            // Address 0 is where the linker puts what it threw away.
            if range.begin < range.end && range.begin != 0 {
                found.push((range.begin, range.end));
            }
        }
        Ok(found)
    }

    /// The children of a node, not theirs. A node without children has none.
    pub(super) fn children(&self, node: &DebugNode<'a>) -> Result<Vec<DebugNode<'a>>, DwarfError> {
        let mut found = Vec::new();
        self.walk(node, |child, depth| {
            if depth == 1 {
                found.push(child.clone());
            }
            Ok(Children::Over)
        })?;
        Ok(found)
    }

    /// Visits what is below a node, in order, with its depth (1: a child). The
    /// visitor says whether to go into what it was shown.
    pub(super) fn walk(
        &self,
        node: &DebugNode<'a>,
        mut visit: impl FnMut(&DebugNode<'a>, isize) -> Result<Children, DwarfError>,
    ) -> Result<(), DwarfError> {
        if !node.entry.has_children() {
            return Ok(());
        }
        let offset = gimli::UnitOffset(node.die.offset);
        let mut entries = node.unit.entries_raw(Some(offset))?;
        let mut child = DebugNode {
            entry: GimliEntry::null(),
            ..node.clone()
        };
        entries.read_entry(&mut child.entry)?;
        // Deeper entries are passed over.
        let mut limit = isize::MAX;
        while !entries.is_empty() {
            self.step()?;
            let depth = entries.next_depth();
            if depth <= 0 {
                break;
            }
            if depth > limit {
                if let Some(abbreviation) = entries.read_abbreviation()? {
                    entries.skip_attributes(abbreviation.attributes())?;
                }
                continue;
            }
            child.die.offset = entries.next_offset().0;
            if !entries.read_entry(&mut child.entry)? {
                continue;
            }
            limit = match visit(&child, depth)? {
                Children::Into => isize::MAX,
                Children::Over => depth,
            };
        }
        Ok(())
    }
}

/// What to do about an entry's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Children {
    Into,
    Over,
}
