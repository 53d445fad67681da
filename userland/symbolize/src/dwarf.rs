// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines and inlined functions from DWARF, by addr2line and gimli.
//!
//! Hostile DWARF must cost no more than its own names, so:
//! - `addr2line` unwraps what a file can make `None` (its `Function::parse` reads
//!   an abbreviation that must be there): every call is inside `catch_unwind`,
//!   and a panic switches DWARF off for the file;
//! - it recurses with the nesting of entries, which a file can make as deep as it
//!   likes: the nesting is checked first, without recursion, since an overflown
//!   stack cannot be caught;
//! - no file that DWARF names (split DWARF, dwz) is opened: others hand in what they opened.

use crate::open_files::NamesFrom;
use crate::parts::{reason, Keeper, SectionBytes};
use crate::split::{Loaded, Split};
use crate::{nesting, Address, Binary};
use addr2line::{Context, LookupContinuation, LookupResult};
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// Deepest nesting of entries: real programs stay below 100.
const DEPTH_MAX: isize = 512;
/// Most entries in a file: some 10 GB of ordinary DWARF.
const ENTRIES_MAX: u64 = 200_000_000;
/// Most frames at one address.
const FRAMES_MAX: usize = 512;

/// A frame as DWARF has it, names not yet readable.
#[derive(Debug)]
pub(crate) struct DwarfFrame {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// The DWARF of a file, or why it cannot be used.
pub(crate) struct Dwarf(RefCell<Result<DwarfState, String>>);

struct DwarfState {
    context: Context<SectionBytes>,
    split: Loaded,
    /// Units whose nesting was not looked at; none where it was.
    units: Option<Units>,
    /// Of what was read of the file, and of the one it shares with others.
    _keeper: Keeper,
}

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.borrow();
        f.debug_tuple("Dwarf").field(&state.as_ref().err()).finish()
    }
}

/// The frames at an address, the innermost first, and the file of split DWARF that they
/// come from.
pub(crate) type DwarfFrames = (Vec<DwarfFrame>, Option<NamesFrom>);

impl Dwarf {
    /// The DWARF of `binary`, with what it shares with others.
    pub(crate) fn load(binary: &Binary, supplementary: Option<&Binary>) -> Dwarf {
        let loaded = guarded(|| {
            let keeper = Keeper::default();
            let mut dwarf = sections_of(binary, &keeper)?;
            if let Some(shared) = supplementary {
                dwarf.set_sup(sections_of(shared, &keeper)?);
            }
            let dwarf = Arc::new(dwarf);
            let units = nesting::is_alone().then(|| Units::of(Arc::clone(&dwarf)));
            Ok(DwarfState {
                context: Context::from_arc_dwarf(dwarf).map_err(reason)?,
                split: Loaded::default(),
                units: units.transpose()?,
                _keeper: keeper,
            })
        });
        Dwarf(RefCell::new(loaded))
    }

    /// The frames at the address, with units from `split`; none when DWARF does not know it.
    /// The error says why DWARF is of no use.
    pub(crate) fn frames(
        &self,
        split: &Split<'_>,
        address: Address,
    ) -> Result<DwarfFrames, String> {
        let mut state = self.0.borrow_mut();
        let known = state.as_mut().map_err(|why| why.clone())?;
        let mut panicked = true;
        let frames = guarded(|| {
            if let Some(units) = &mut known.units {
                if let Err(why) = units.check(address) {
                    panicked = false;
                    return Err(why);
                }
            }
            let frames = frames(known, split, address).map_err(reason);
            panicked = false;
            frames
        });
        if panicked {
            *state = Err(PANICKED.to_owned());
        }
        frames
    }

    /// Why files of split DWARF could not be used.
    pub(crate) fn failures(&self) -> Vec<String> {
        let state = self.0.borrow();
        let failures = state.as_ref().map(|state| &state.split.failures);
        let told = failures.into_iter().flatten();
        told.map(|(path, why)| format!("{}: {why}", path.display()))
            .collect()
    }
}

fn sections_of(binary: &Binary, keeper: &Keeper) -> Result<gimli::Dwarf<SectionBytes>, String> {
    let dwarf = binary.dwarf_of_names(keeper)?;
    if !nesting::is_alone() {
        check_nesting(&dwarf)?;
    }
    Ok(dwarf)
}

const PANICKED: &str = "it is damaged (its parser panicked)";

/// Runs `parse`; a panic is an error.
pub(crate) fn guarded<T>(parse: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // What a panic leaves half done is thrown away by the caller.
    catch_unwind(AssertUnwindSafe(parse)).unwrap_or_else(|_| Err(PANICKED.to_owned()))
}

/// The units of a file, whose nesting is looked at when they are needed: for the first name of
/// a large file, all of them would take longer than all else.
struct Units {
    dwarf: Arc<gimli::Dwarf<SectionBytes>>,
    units: Vec<gimli::UnitHeader<SectionBytes>>,
    /// Addresses from the first to the last, of which unit; by rising first ones.
    ranges: Vec<(u64, u64, usize)>,
    checked: HashSet<usize>,
}

/// Ranges that may hold an address and begin before another that does, as they overlap.
const OVERLAPS_MAX: usize = 16;

impl Units {
    fn of(dwarf: Arc<gimli::Dwarf<SectionBytes>>) -> Result<Units, String> {
        let told = reason;
        let (mut units, mut ranges) = (Vec::new(), Vec::new());
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().map_err(told)? {
            // One that cannot be read has no names either.
            if let Ok(unit) = dwarf.unit(header.clone()) {
                let mut of_unit = dwarf.unit_ranges(&unit).map_err(told)?;
                while let Ok(Some(range)) = of_unit.next() {
                    ranges.push((range.begin, range.end, units.len()));
                }
            }
            units.push(header);
        }
        ranges.sort_unstable();
        Ok(Units {
            dwarf,
            units,
            ranges,
            checked: HashSet::new(),
        })
    }

    /// Looks at the units that hold an address.
    fn check(&mut self, address: Address) -> Result<(), String> {
        let behind = self.ranges.partition_point(|range| range.0 <= address.0);
        let before = self.ranges.get(..behind).unwrap_or_default();
        for (_, end, unit) in before.iter().rev().take(OVERLAPS_MAX) {
            let is_new = *end > address.0 && self.checked.insert(*unit);
            if let Some(header) = self.units.get(*unit).filter(|_| is_new) {
                let checked = nesting::check_unit(&self.dwarf, header, DEPTH_MAX, ENTRIES_MAX);
                if checked.is_err() {
                    self.checked.remove(unit);
                    return checked;
                }
            }
        }
        Ok(())
    }
}

/// Fails when entries are nested deeper than the parser's stack bears.
pub(crate) fn check_nesting(dwarf: &gimli::Dwarf<SectionBytes>) -> Result<(), String> {
    nesting::check(dwarf, DEPTH_MAX, ENTRIES_MAX)
}

fn frames(
    state: &mut DwarfState,
    split: &Split<'_>,
    address: Address,
) -> Result<DwarfFrames, gimli::Error> {
    let DwarfState {
        context,
        split: loaded,
        ..
    } = state;
    let mut result = context.find_frames(address.0);
    let mut found = loop {
        result = match result {
            LookupResult::Output(found) => break found?,
            LookupResult::Load { load, continuation } => {
                let unit = split.load(loaded, load.dwo_id, &load.parent);
                continuation.resume(unit.map(Arc::new))
            }
        };
    };
    let mut frames = Vec::new();
    while let Some(frame) = found.next()? {
        let function = match &frame.function {
            Some(name) => Some(name.raw_name()?.into_owned()),
            None => None,
        };
        let location = frame.location.as_ref();
        frames.push(DwarfFrame {
            function,
            file: location
                .and_then(|location| location.file)
                .map(str::to_owned),
            // 0: the compiler made it, from no line.
            line: location
                .and_then(|location| location.line)
                .filter(|line| *line != 0),
        });
        if frames.len() == FRAMES_MAX {
            break;
        }
    }
    Ok((frames, split_file(context, loaded, address)))
}

/// The file that the unit at the address was taken from, if it is split.
fn split_file(
    context: &Context<SectionBytes>,
    loaded: &Loaded,
    address: Address,
) -> Option<NamesFrom> {
    if loaded.is_empty() {
        return None;
    }
    let unit = context.find_dwarf_and_unit(address.0).skip_all_loads()?;
    loaded.file_of(unit.unit.dwo_id?.0).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nesting::tests::units;

    #[test]
    fn deep_nesting_is_refused_before_the_stack_is_gone() {
        check_nesting(&units(&[100])).unwrap();
        let error = check_nesting(&units(&[1_000_000])).unwrap_err();
        assert!(error.contains("too deeply"), "{error}");
    }

    #[test]
    fn a_panic_of_the_parser_is_an_error() {
        let caught = guarded::<()>(|| panic!("as addr2line does"));
        assert_eq!(caught, Err(PANICKED.to_owned()));
    }
}
