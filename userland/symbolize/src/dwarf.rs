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
//! - no file that DWARF names (split DWARF, dwz) is opened.

use crate::{Address, Binary};
use addr2line::Context;
use gimli::{EndianArcSlice, LittleEndian};
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// Deepest nesting of entries: real programs stay below 100.
const DEPTH_MAX: isize = 512;
/// Most entries in a file: some 10 GB of ordinary DWARF.
const ENTRIES_MAX: u64 = 200_000_000;
/// Most frames at one address.
const FRAMES_MAX: usize = 512;

type Bytes = EndianArcSlice<LittleEndian>;

/// A frame as DWARF has it, names not yet readable.
#[derive(Debug)]
pub(crate) struct DwarfFrame {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// The DWARF of a file, or why it cannot be used.
pub(crate) struct Dwarf(RefCell<std::result::Result<Context<Bytes>, String>>);

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.borrow();
        f.debug_tuple("Dwarf").field(&state.as_ref().err()).finish()
    }
}

impl Dwarf {
    pub(crate) fn load(binary: &Binary) -> Dwarf {
        let loaded = guarded(|| {
            let sections = binary.dwarf_sections()?;
            let sections =
                sections.borrow(|data| EndianArcSlice::new(Arc::clone(data), LittleEndian));
            check_nesting(&sections)?;
            Context::from_dwarf(sections).map_err(|error| error.to_string())
        });
        Dwarf(RefCell::new(loaded))
    }

    /// The frames at the address, the innermost first; none when DWARF does not
    /// know it. The error says why DWARF is of no use.
    pub(crate) fn frames(&self, address: Address) -> std::result::Result<Vec<DwarfFrame>, String> {
        let mut state = self.0.borrow_mut();
        let context = state.as_ref().map_err(Clone::clone)?;
        let mut panicked = true;
        let frames = guarded(|| {
            let frames = frames(context, address).map_err(|error| error.to_string());
            panicked = false;
            frames
        });
        if panicked {
            *state = frames
                .as_ref()
                .map_err(Clone::clone)
                .and(Err(PANICKED.to_owned()));
        }
        frames
    }
}

const PANICKED: &str = "the DWARF is damaged (its parser panicked)";

/// Runs `parse`; a panic is an error.
fn guarded<T>(
    parse: impl FnOnce() -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    // What a panic leaves half done is thrown away by the caller.
    catch_unwind(AssertUnwindSafe(parse)).unwrap_or_else(|_| Err(PANICKED.to_owned()))
}

/// Fails when entries are nested deeper than the parser's stack bears.
fn check_nesting(dwarf: &gimli::Dwarf<Bytes>) -> std::result::Result<(), String> {
    let failed = |error: gimli::Error| error.to_string();
    let mut entries_left = ENTRIES_MAX;
    let mut units = dwarf.units();
    while let Some(unit) = units.next().map_err(failed)? {
        let abbreviations = dwarf.abbreviations(&unit).map_err(failed)?;
        let mut entries = unit.entries_raw(&abbreviations, None).map_err(failed)?;
        while !entries.is_empty() {
            entries_left = entries_left.checked_sub(1).ok_or("the DWARF is too big")?;
            if entries.next_depth() > DEPTH_MAX {
                return Err("the DWARF is nested too deeply".to_owned());
            }
            if let Some(abbreviation) = entries.read_abbreviation().map_err(failed)? {
                entries
                    .skip_attributes(abbreviation.attributes())
                    .map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn frames(
    context: &Context<Bytes>,
    address: Address,
) -> std::result::Result<Vec<DwarfFrame>, gimli::Error> {
    let mut found = context.find_frames(address.0).skip_all_loads()?;
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
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::SectionId;

    /// Abbreviation 1: an entry with children and without attributes.
    const ABBREVIATIONS: [u8; 6] = [1, 0x1d, 1, 0, 0, 0];

    /// DWARF 4 of one unit with entries nested `depth` deep.
    fn nested(depth: usize) -> gimli::Dwarf<Bytes> {
        let mut info = (depth as u32 + 7).to_le_bytes().to_vec();
        info.extend([4, 0, 0, 0, 0, 0, 8]);
        info.extend(vec![1; depth]);
        gimli::Dwarf::load(|id| {
            let data = match id {
                SectionId::DebugInfo => info.clone(),
                SectionId::DebugAbbrev => ABBREVIATIONS.to_vec(),
                _ => Vec::new(),
            };
            Ok::<_, String>(EndianArcSlice::new(Arc::from(data), LittleEndian))
        })
        .unwrap()
    }

    #[test]
    fn deep_nesting_is_refused_before_the_stack_is_gone() {
        check_nesting(&nested(100)).unwrap();
        let error = check_nesting(&nested(1_000_000)).unwrap_err();
        assert!(error.contains("too deeply"), "{error}");
    }

    #[test]
    fn a_panic_of_the_parser_is_an_error() {
        let caught = guarded::<()>(|| panic!("as addr2line does"));
        assert_eq!(caught, Err(PANICKED.to_owned()));
    }
}
