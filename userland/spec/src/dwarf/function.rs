// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions by address and by name, out of line and inlined.

use super::error::DwarfError;
use super::names::NameKind;
use super::units::{Children, DebugNode, Die, GimliEntry, Units};
use super::DebugInfo;
use gimli::AttributeValue;
use nsprobe_symbolize::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Most address ranges of all units, and of all functions of one.
const RANGES_MAX: usize = 8_000_000;
/// How many ranges before an address are looked at for those that hold it.
const OVERLAPS_MAX: usize = 4096;
/// Most inlined functions around an address.
const INLINED_MAX: usize = 256;
/// Most instances of a function.
const INSTANCES_MAX: usize = 1_000_000;

/// A function that has code: the one out of line, or a place where it was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugFunction {
    /// Its name, without its scopes.
    pub name: String,
    /// Where it is entered.
    pub entry: Address,
    /// Its code: from, and up to but not including. Code that was moved apart
    /// (`.cold`) makes more than one range.
    pub ranges: Vec<(Address, Address)>,
    /// Whether this is a place where the function was inlined.
    pub inlined: bool,
    pub(super) die: Die,
    /// The function out of line that holds it, or itself.
    pub(super) outer: Die,
}

impl DebugFunction {
    /// Whether the address is in its code.
    pub fn holds(&self, address: Address) -> bool {
        let holds = |(from, to): &(Address, Address)| (*from..*to).contains(&address);
        self.ranges.iter().any(holds)
    }
}

/// Something at ranges of addresses.
#[derive(Clone, Copy, Debug)]
struct Ranged {
    from: u64,
    to: u64,
    /// The unit, or the offset of the function in it.
    at: usize,
}

/// An index of what lies at addresses.
///
/// # Invariants
/// `list` rises by `from`; `highest` has as many items: the highest end up to and
/// including the one of the same index.
#[derive(Debug, Default)]
pub(super) struct RangeIndex {
    list: Vec<Ranged>,
    highest: Vec<u64>,
}

impl RangeIndex {
    fn new(mut list: Vec<Ranged>) -> RangeIndex {
        list.sort_by_key(|ranged| (ranged.from, std::cmp::Reverse(ranged.to)));
        let mut end = 0;
        let highest = list
            .iter()
            .map(|ranged| {
                end = ranged.to.max(end);
                end
            })
            .collect();
        RangeIndex { list, highest }
    }

    /// What holds the address, each once; what begins first comes first.
    fn holding(&self, address: u64) -> Vec<usize> {
        let behind = self.list.partition_point(|ranged| ranged.from <= address);
        let before = self.list.get(..behind).unwrap_or_default();
        let mut found: Vec<usize> = Vec::new();
        for (ranged, highest) in before.iter().zip(&self.highest).rev().take(OVERLAPS_MAX) {
            if *highest <= address {
                break;
            }
            if address < ranged.to && !found.contains(&ranged.at) {
                found.push(ranged.at);
            }
        }
        found.reverse();
        found
    }
}

fn push(list: &mut Vec<Ranged>, ranges: Vec<(u64, u64)>, at: usize) -> Result<(), DwarfError> {
    if list.len().saturating_add(ranges.len()) > RANGES_MAX {
        return Err(DwarfError::TooBig("it has too many address ranges"));
    }
    let ranged = |(from, to)| Ranged { from, to, at };
    list.extend(ranges.into_iter().map(ranged));
    Ok(())
}

/// Where the units are.
pub(super) fn unit_ranges(units: &Units<'_>) -> Result<RangeIndex, DwarfError> {
    let mut list = Vec::new();
    for unit in 0..units.count() {
        // A unit that is damaged takes only its own functions with it.
        match units.unit_ranges(unit) {
            Ok(ranges) => push(&mut list, ranges, unit as usize)?,
            Err(_) => units.step()?,
        }
    }
    Ok(RangeIndex::new(list))
}

/// Where the functions of a unit are.
fn function_ranges(units: &Units<'_>, unit: u32) -> Result<RangeIndex, DwarfError> {
    let parsed = units.unit(unit)?;
    let mut list = Vec::new();
    let mut entries = parsed.entries_raw(None)?;
    let mut entry = GimliEntry::null();
    while !entries.is_empty() {
        units.step()?;
        let offset = entries.next_offset().0;
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        let attributes = abbreviation.attributes();
        let has_code = |name| name == gimli::DW_AT_low_pc || name == gimli::DW_AT_ranges;
        let wanted = abbreviation.tag() == gimli::DW_TAG_subprogram
            && attributes
                .iter()
                .any(|specification| has_code(specification.name()));
        if !wanted {
            entries.skip_attributes(attributes)?;
            continue;
        }
        entries.skip_attributes(attributes)?;
        entry.clone_from(&parsed.entry(gimli::UnitOffset(offset))?);
        push(&mut list, units.ranges_of(unit, &parsed, &entry)?, offset)?;
    }
    Ok(RangeIndex::new(list))
}

impl<'a> DebugInfo<'a> {
    /// The functions whose code the address is in: the one out of line first,
    /// then those inlined there, outermost first. None when the debug information
    /// does not know the address.
    pub fn functions_at(&self, address: Address) -> Result<Vec<DebugFunction>, DwarfError> {
        self.guarded(|| self.functions_holding(address.0))
    }

    /// Fails when the compiler has put what it knew of the address into a file that was not found.
    pub fn check_is_here(&self, address: Address) -> Result<(), DwarfError> {
        self.guarded(|| {
            let units = self.unit_ranges()?.holding(address.0);
            units
                .into_iter()
                .try_for_each(|unit| self.units.check_whole(unit as u32))
        })
    }

    pub(super) fn functions_holding(&self, address: u64) -> Result<Vec<DebugFunction>, DwarfError> {
        let mut found = Vec::new();
        for die in self.outer_functions(address)? {
            found.extend(self.with_inlined(die, address)?);
        }
        Ok(found)
    }

    /// The functions out of line that hold the address; usually one.
    fn outer_functions(&self, address: u64) -> Result<Vec<Die>, DwarfError> {
        let mut found = Vec::new();
        for unit in self.unit_ranges()?.holding(address) {
            let unit = unit as u32;
            let kept = self.functions.borrow().get(&unit).cloned();
            let functions = match kept {
                Some(functions) => functions,
                None => {
                    let functions = Rc::new(function_ranges(&self.units, unit)?);
                    self.functions
                        .borrow_mut()
                        .insert(unit, Rc::clone(&functions));
                    functions
                }
            };
            let die = |offset| Die { unit, offset };
            found.extend(functions.holding(address).into_iter().map(die));
        }
        Ok(found)
    }

    fn with_inlined(&self, outer: Die, address: u64) -> Result<Vec<DebugFunction>, DwarfError> {
        let node = self.units.node(outer)?;
        let mut found: Vec<DebugFunction> = self.function(&node, outer)?.into_iter().collect();
        self.units.walk(&node, |child, _| {
            if !is_block(child.tag()) {
                return Ok(Children::Over);
            }
            let inlined = child.tag() == gimli::DW_TAG_inlined_subroutine;
            let ranges = self.units.ranges(child)?;
            let mut ranges = ranges.iter();
            let holds = ranges.any(|(from, to)| (*from..*to).contains(&address));
            // Nothing may be left of the instruction at which it is entered.
            if !(holds || inlined && self.entry_pc(child)? == Some(address)) {
                return Ok(Children::Over);
            }
            if inlined {
                if found.len() == INLINED_MAX {
                    return Err(DwarfError::TooBig(
                        "too many functions are inlined in one place",
                    ));
                }
                found.extend(self.function(child, outer)?);
            }
            Ok(Children::Into)
        })?;
        Ok(found)
    }

    /// The function that an entry is; none when it has no code.
    pub(super) fn function(
        &self,
        node: &DebugNode<'a>,
        outer: Die,
    ) -> Result<Option<DebugFunction>, DwarfError> {
        let ranges = self.units.ranges(node)?;
        let Some(&(first, _)) = ranges.first() else {
            return Ok(None);
        };
        let range = |(from, to)| (Address(from), Address(to));
        Ok(Some(DebugFunction {
            name: self.units.name(node)?.unwrap_or("(unnamed)").to_owned(),
            entry: Address(self.entry_pc(node)?.unwrap_or(first)),
            ranges: ranges.into_iter().map(range).collect(),
            inlined: node.tag() == gimli::DW_TAG_inlined_subroutine,
            die: node.die,
            outer,
        }))
    }

    /// DW_AT_entry_pc (DWARF 5, section 2.18), or DW_AT_low_pc.
    fn entry_pc(&self, node: &DebugNode<'a>) -> Result<Option<u64>, DwarfError> {
        let dwarf = self.units.dwarf_of(node.die.unit);
        let address = |name| match node.attribute(name) {
            Some(value) => Ok::<_, DwarfError>(dwarf.attr_address(&node.unit, value)?),
            None => Ok(None),
        };
        let low = address(gimli::DW_AT_low_pc)?;
        match node.attribute(gimli::DW_AT_entry_pc) {
            // An offset from the lowest address, or from that of the first range.
            Some(AttributeValue::Udata(offset)) => {
                let ranges = self.units.ranges(node)?;
                let base = low.or(ranges.first().map(|range| range.0));
                Ok(base.and_then(|base| base.checked_add(offset)))
            }
            Some(_) => Ok(address(gimli::DW_AT_entry_pc)?.or(low)),
            None => Ok(low),
        }
    }

    /// All functions of that name that have code, those out of line first, then
    /// all places where they were inlined, each by rising address. The name may be
    /// qualified (`space::name`) and need not be so wholly; template arguments may
    /// be missing.
    pub fn functions_named(&self, name: &str) -> Result<Vec<DebugFunction>, DwarfError> {
        self.guarded(|| {
            let names = self.names()?;
            let mut dies = BTreeSet::new();
            let mut level = names.find(&self.units, name, NameKind::Function, false)?;
            // Definitions of declarations, and instances of those.
            while let Some(die) = level.pop() {
                self.units.step()?;
                if dies.len() == INSTANCES_MAX {
                    return Err(DwarfError::TooBig("the function has too many instances"));
                }
                if dies.insert(die) {
                    level.extend(names.references(die));
                }
            }
            let (mut found, mut inlined) = (Vec::new(), BTreeMap::new());
            for die in dies {
                let node = self.units.node(die)?;
                match self.function(&node, die)? {
                    Some(function) if function.inlined => {
                        inlined.insert(die, function);
                    }
                    function => found.extend(function),
                }
            }
            found.extend(self.held(inlined)?);
            found.sort_by_key(|function| (function.inlined, function.entry));
            Ok(found)
        })
    }

    /// Inlined functions with the functions out of line that hold them.
    fn held(
        &self,
        mut inlined: BTreeMap<Die, DebugFunction>,
    ) -> Result<Vec<DebugFunction>, DwarfError> {
        let mut outers = BTreeSet::new();
        for function in inlined.values() {
            outers.extend(self.outer_functions(function.entry.0)?);
        }
        let mut found = Vec::new();
        for outer in outers {
            // One pass for all that it holds: there may be thousands.
            self.units.walk(&self.units.node(outer)?, |child, _| {
                if let Some(mut function) = inlined.remove(&child.die) {
                    function.outer = outer;
                    found.push(function);
                }
                Ok(match is_block(child.tag()) {
                    true => Children::Into,
                    false => Children::Over,
                })
            })?;
        }
        Ok(found)
    }
}

/// Whether an entry is a part of its function's code.
pub(super) fn is_block(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block
            | gimli::DW_TAG_with_stmt
    )
}
