// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments, locals, globals, types and lines by DWARF.
//!
//! [`DebugInfo`] answers for one file: which functions are at an address or have
//! a name, where a source line's code is, and, by a [`DebugScope`], what names mean
//! there. Locations become [`Value`](crate::Value)s: they are computed at the hit.
//!
//! The DWARF is hostile. A question about it may be answered wrongly by a file that
//! lies, but not by a crash, and not after an unreasonable time: see `units`.

mod arguments;
mod calls;
mod convention;
mod error;
mod expression;
mod frame;
mod function;
mod global;
mod go;
mod line;
mod names;
mod place;
mod scope;
mod types;
mod units;
mod variable;

pub use error::DwarfError;
pub use function::DebugFunction;
pub use global::symbol;
pub use line::{LineCode, LinePlace};
pub use scope::DebugScope;

use frame::FunctionFrames;
use function::RangeIndex;
use line::LineRow;
use names::NameIndex;
use nsprobe_symbolize::{Binary, SplitSections};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use units::Units;

/// The debug information of a program or library.
#[derive(Debug)]
pub struct DebugInfo<'a> {
    /// The file that runs.
    binary: &'a Binary,
    units: Units<'a>,
    names: OnceCell<NameIndex>,
    frames: OnceCell<FunctionFrames>,
    unit_ranges: OnceCell<RangeIndex>,
    functions: RefCell<HashMap<u32, Rc<RangeIndex>>>,
    tables: RefCell<HashMap<u32, Rc<Vec<LineRow>>>>,
    asking: Cell<bool>,
}

impl<'a> DebugInfo<'a> {
    /// The debug information of `binary`: its own, or that of `separate`, a file
    /// for it (see [`Binary::debug_file_names`]), with what several such files
    /// share in `supplementary` (see [`Binary::supplementary`]).
    ///
    /// # Errors
    /// There is none, it is damaged, or it belongs to another file.
    pub fn new(
        binary: &'a Binary,
        separate: Option<&'a Binary>,
        supplementary: Option<&'a Binary>,
    ) -> Result<DebugInfo<'a>, DwarfError> {
        DebugInfo::with_split(binary, separate, supplementary, None)
    }

    /// The same with what the compiler has put into files of its own (`-gsplit-dwarf`).
    ///
    /// # Errors
    /// There is none, it is damaged, or it belongs to another file.
    pub fn with_split(
        binary: &'a Binary,
        separate: Option<&'a Binary>,
        supplementary: Option<&'a Binary>,
        split: Option<&'a SplitSections>,
    ) -> Result<DebugInfo<'a>, DwarfError> {
        let holder = separate.unwrap_or(binary);
        if separate.is_some_and(|separate| !separate.is_debug_file_of(binary)) {
            return Err(DwarfError::OtherFile {
                wanted: hex(binary.build_id()),
                found: hex(holder.build_id()),
            });
        }
        if !holder.has_debug_info() {
            return Err(DwarfError::Absent);
        }
        let link = holder.supplementary();
        let supplementary = supplementary.filter(|file| {
            let wanted = link.as_ref().map(|link| link.build_id.as_slice());
            wanted.is_some() && file.build_id() == wanted
        });
        let sections = |file: &'a Binary| {
            let sections = file.dwarf_sections();
            sections.map_err(|why| DwarfError::Damaged(why.to_owned()))
        };
        let (own, shared) = (sections(holder)?, supplementary.map(sections).transpose()?);
        let units = caught(|| Units::new(own, shared, split))?;
        Ok(DebugInfo {
            binary,
            units,
            names: OnceCell::new(),
            frames: OnceCell::new(),
            unit_ranges: OnceCell::new(),
            functions: RefCell::default(),
            tables: RefCell::default(),
            asking: Cell::new(false),
        })
    }

    /// Answers one question: with a clock of its own, and a panic of the parser is
    /// an error.
    fn guarded<T>(&self, answer: impl FnOnce() -> Result<T, DwarfError>) -> Result<T, DwarfError> {
        if self.asking.replace(true) {
            // A part of another question.
            return answer();
        }
        self.units.start();
        let answered = caught(answer);
        self.asking.set(false);
        answered
    }

    fn names(&self) -> Result<&NameIndex, DwarfError> {
        read_once(&self.names, || NameIndex::read(&self.units))
    }

    fn frames(&self) -> Result<&FunctionFrames, DwarfError> {
        read_once(&self.frames, || {
            let sections = self.binary.unwind_sections();
            let sections = sections.map_err(|error| DwarfError::Damaged(error.to_string()))?;
            FunctionFrames::new(sections, &self.units)
        })
    }

    fn unit_ranges(&self) -> Result<&RangeIndex, DwarfError> {
        read_once(&self.unit_ranges, || function::unit_ranges(&self.units))
    }
}

fn read_once<T>(
    cell: &OnceCell<T>,
    read: impl FnOnce() -> Result<T, DwarfError>,
) -> Result<&T, DwarfError> {
    if let Some(known) = cell.get() {
        return Ok(known);
    }
    let value = read()?;
    Ok(cell.get_or_init(|| value))
}

/// Runs `parse`; a panic is an error. What a panic leaves half done was not kept.
fn caught<T>(parse: impl FnOnce() -> Result<T, DwarfError>) -> Result<T, DwarfError> {
    catch_unwind(AssertUnwindSafe(parse))
        .unwrap_or_else(|_| Err(DwarfError::Damaged("its parser panicked".to_owned())))
}

fn hex(build_id: Option<&[u8]>) -> String {
    match build_id {
        Some(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        None => "none".to_owned(),
    }
}
