// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug files of a program, opened by the caller: this crate opens none.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a debug file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundIn {
    /// In the mount namespace of the process or container that has the program.
    Container,
    /// On this machine, as we see it.
    Host,
    /// On a debuginfod server, or in the cache of what such servers gave.
    Debuginfod,
}

/// An open debug file.
///
/// It keeps the file system that it is on busy: drop it when it is no longer needed.
#[derive(Debug)]
pub struct OpenFile {
    /// The file, open for reading.
    pub file: File,
    /// Its path, as the process that has it sees it.
    pub path: Arc<PathBuf>,
    /// Where that is.
    pub found_in: FoundIn,
}

/// The files in which a program's debug information lies, apart from its own.
#[derive(Debug, Default)]
pub struct OpenFiles {
    /// The file with what was stripped from the program
    /// ([`crate::Binary::debug_file_names`]).
    pub separate: Option<OpenFile>,
    /// What that file, or the program, shares with others
    /// ([`crate::Binary::supplementary`]).
    pub supplementary: Option<OpenFile>,
    /// A package of split DWARF (`.dwp`), also several: a unit is taken from the first that
    /// has it.
    pub packages: Vec<OpenFile>,
    /// Files of split DWARF (`.dwo`), each with the id of the unit that it may hold.
    pub split: Vec<(u64, OpenFile)>,
}

/// Which file the names of a place come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamesFrom {
    /// The program's own.
    #[default]
    Program,
    /// The symbols that it has compressed in `.gnu_debugdata`.
    DebugData,
    /// Another file, of that path.
    File(Arc<PathBuf>, FoundIn),
}

impl OpenFile {
    pub(crate) fn names_from(&self) -> NamesFrom {
        NamesFrom::File(Arc::clone(&self.path), self.found_in)
    }
}

impl OpenFiles {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        let alone = [&self.separate, &self.supplementary];
        alone.iter().all(|file| file.is_none()) && self.packages.is_empty() && self.split.is_empty()
    }
}
