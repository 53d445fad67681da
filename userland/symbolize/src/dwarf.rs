// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source lines and inlined functions, from DWARF.
//!
//! The parsers below us have panics that hostile bytes can reach (addr2line's
//! `Function::parse` unwraps an abbreviation); a panic costs the file its DWARF
//! and nothing else.

use crate::demangle::demangle;
use crate::image::Image;
use crate::{Address, SourceFrame};
use gimli::{EndianArcSlice, LittleEndian};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

type Reader = EndianArcSlice<LittleEndian>;

/// Most inlined frames at one address.
const FRAMES_MAX: usize = 64;

/// The DWARF of one file.
pub(crate) struct Dwarf(addr2line::Context<Reader>);

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dwarf")
    }
}

/// Whether the file has any.
pub(crate) fn is_in(image: &Image) -> bool {
    image.section(".debug_info").is_some()
}

impl Dwarf {
    /// Reads the sections and indexes the units.
    pub(crate) fn load(image: &Image) -> Result<Dwarf, String> {
        guarded(|| {
            let section = |id: gimli::SectionId| -> Result<Reader, String> {
                let data = match image.section(id.name()) {
                    Some(section) => image.data(section).map_err(|error| error.to_string())?,
                    None => Vec::new(),
                };
                Ok(EndianArcSlice::new(Arc::from(data), LittleEndian))
            };
            let dwarf = gimli::Dwarf::load(section)?;
            let context =
                addr2line::Context::from_dwarf(dwarf).map_err(|error| error.to_string())?;
            Ok(Dwarf(context))
        })
    }

    /// The frames at an address, the innermost inlined function first; none when
    /// DWARF does not know the function.
    pub(crate) fn frames(&self, address: Address) -> Result<Vec<SourceFrame>, String> {
        guarded(|| {
            let mut found = Vec::new();
            let frames = self.0.find_frames(address.0).skip_all_loads();
            let mut frames = frames.map_err(|error| error.to_string())?;
            while let Some(frame) = frames.next().map_err(|error| error.to_string())? {
                let Some(function) = frame.function else {
                    break;
                };
                let name = function.raw_name().map_err(|error| error.to_string())?;
                let location = frame.location;
                found.push(SourceFrame {
                    function: demangle(&name),
                    function_offset: None,
                    file: location.as_ref().and_then(|at| at.file).map(str::to_owned),
                    line: location.and_then(|at| at.line).filter(|&line| line != 0),
                    inlined: true,
                });
                if found.len() == FRAMES_MAX {
                    break;
                }
            }
            if let Some(outermost) = found.last_mut() {
                outermost.inlined = false;
            }
            Ok(found)
        })
    }
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("the DWARF reader gave up on it".to_owned()))
}
