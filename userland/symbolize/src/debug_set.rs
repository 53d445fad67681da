// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug files of a program, parsed when a name needs them. What is open, and where it
//! was found, is [`OpenFiles`]; nothing here opens anything.

use crate::dwarf::{Dwarf, DwarfFrame};
use crate::open_files::{NamesFrom, OpenFile, OpenFiles};
use crate::resolve::SymbolTables;
use crate::split::{Split, SplitSections};
use crate::{Address, Binary};
use std::cell::OnceCell;
use std::path::Path;

/// The debug files of one program.
#[derive(Debug, Default)]
pub struct DebugSet {
    files: OpenFiles,
    separate: OnceCell<Parsed>,
    supplementary: OnceCell<Parsed>,
    dwarf: OnceCell<Dwarf>,
    split: OnceCell<SplitSections>,
}

/// A file that may not be there, or why it cannot be used.
type Parsed = Result<Option<Binary>, String>;

impl DebugSet {
    /// The debug files of a program that were found to be its own.
    pub fn new(files: OpenFiles) -> DebugSet {
        DebugSet {
            files,
            ..DebugSet::default()
        }
    }

    /// The open files.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The open files, to make another set of them and more.
    pub fn into_files(self) -> OpenFiles {
        self.files
    }

    /// The file with what was stripped from the program.
    pub fn separate(&self, program: &Binary) -> Option<&Binary> {
        let open = |file, label: &Path| Binary::open_debug(file, label, program);
        parsed(&self.separate, self.files.separate.as_ref(), open)
    }

    /// The file of what the program's debug information shares with others'.
    pub fn supplementary(&self) -> Option<&Binary> {
        let file = self.files.supplementary.as_ref();
        parsed(&self.supplementary, file, Binary::open_supplementary)
    }

    /// What is in the files with split DWARF, read at the first call.
    pub fn split(&self) -> &SplitSections {
        self.split.get_or_init(|| SplitSections::read(&self.files))
    }

    /// Why files, and symbols of `program`, could not be used, as far as they were needed.
    pub fn failures(&self, program: &Binary) -> Vec<String> {
        let mut failures = program.failures.clone();
        for parsed in [&self.separate, &self.supplementary] {
            match parsed.get() {
                Some(Ok(Some(binary))) => failures.extend_from_slice(&binary.failures),
                Some(Err(why)) => failures.push(why.clone()),
                Some(Ok(None)) | None => {}
            }
        }
        let split = self.split.get().map(|split| split.failures.as_slice());
        failures.extend_from_slice(split.unwrap_or_default());
        failures.extend(self.dwarf.get().map_or_else(Vec::new, Dwarf::failures));
        failures
    }

    /// The symbol tables for the code of `program`, the most complete one first.
    pub(crate) fn tables<'a>(&'a self, program: &'a Binary) -> SymbolTables<'a> {
        let mut tables = Vec::with_capacity(2);
        if let (Some(binary), Some(file)) = (self.separate(program), &self.files.separate) {
            tables.push((&binary.functions, file.names_from()));
        }
        tables.push((&program.functions, NamesFrom::Program));
        SymbolTables { program, tables }
    }

    /// The frames that DWARF has at an address of `program`, and the file that they come
    /// from; none when there is no DWARF.
    pub(crate) fn frames(
        &self,
        program: &Binary,
        address: Address,
    ) -> Option<Result<(Vec<DwarfFrame>, NamesFrom), String>> {
        let separate = self.separate(program);
        let holder = separate.unwrap_or(program);
        if !holder.has_debug_info() {
            return None;
        }
        let dwarf = match self.files.is_empty() {
            // For all callers without debug files.
            true => program.dwarf.get_or_init(|| Dwarf::load(program, None)),
            false => {
                let load = || Dwarf::load(holder, self.supplementary());
                self.dwarf.get_or_init(load)
            }
        };
        let found = dwarf.frames(&Split::new(&self.files), address);
        Some(found.map(|(frames, split)| {
            let file = separate.and(self.files.separate.as_ref());
            let own = || file.map_or(NamesFrom::Program, OpenFile::names_from);
            (frames, split.unwrap_or_else(own))
        }))
    }
}

/// What `file` holds, read at the first call.
fn parsed<'a>(
    cell: &'a OnceCell<Parsed>,
    file: Option<&OpenFile>,
    open: impl Fn(std::fs::File, &Path) -> Result<Binary, crate::SymbolizeError>,
) -> Option<&'a Binary> {
    let file = file?;
    let read = || {
        let opened = file.file.try_clone().map_err(|error| error.to_string())?;
        let binary = open(opened, &file.path).map_err(|error| error.to_string())?;
        Ok(Some(binary))
    };
    cell.get_or_init(read).as_ref().ok()?.as_ref()
}
