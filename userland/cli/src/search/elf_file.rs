// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a search asks of a program, and of files that may hold its debug information:
//! answered by our own parser for specs, by a process without privileges for frames.

use nsprobe_symbolize::{Binary, SplitUnit, Supplementary};
use nsprobe_worker::Object;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Why a file is of no use.
type Refused = String;

/// An ELF file.
pub(crate) trait ElfFile: Sized {
    /// Another handle of it.
    fn try_clone_file(&self) -> Result<File, Refused>;
    /// The build-id that it claims.
    fn build_id(&self) -> Option<&[u8]>;
    /// Whether it holds DWARF.
    fn has_debug_info(&self) -> bool;
    /// Whether it names functions or lines that a program without them could use.
    fn has_debug_names(&self) -> bool;
    /// Where its debug information may be, when it lies at this path.
    fn debug_file_names(&self, path: &Path) -> Vec<PathBuf>;
    /// What it shares with other debug files.
    fn supplementary(&self) -> Option<Supplementary>;
    /// The units of its DWARF that are elsewhere.
    fn split_units(&self) -> Result<Vec<SplitUnit>, Refused>;
    /// Fails unless the other file holds its debug information.
    fn check_debug_file(&self, file: &Self) -> Result<(), Refused>;
    /// Has the headers of another file read by the same parser.
    fn read_headers(&self, file: File, path: &Path) -> Result<Self, Refused>;
    /// The same, of one that debug files share.
    fn read_supplementary(&self, file: File, path: &Path) -> Result<Self, Refused>;
}

/// Both parsers have the same methods by the same names.
macro_rules! asks {
    () => {
        fn try_clone_file(&self) -> Result<File, Refused> {
            self.try_clone_file().map_err(|error| error.to_string())
        }

        fn build_id(&self) -> Option<&[u8]> {
            self.build_id()
        }

        fn has_debug_info(&self) -> bool {
            self.has_debug_info()
        }

        fn has_debug_names(&self) -> bool {
            self.has_debug_names()
        }

        fn debug_file_names(&self, path: &Path) -> Vec<PathBuf> {
            self.debug_file_names(path)
        }

        fn supplementary(&self) -> Option<Supplementary> {
            self.supplementary()
        }

        fn split_units(&self) -> Result<Vec<SplitUnit>, Refused> {
            self.split_units()
        }

        fn check_debug_file(&self, file: &Self) -> Result<(), Refused> {
            self.check_debug_file(file)
        }
    };
}

impl ElfFile for Binary {
    asks!();

    fn read_headers(&self, file: File, path: &Path) -> Result<Binary, Refused> {
        Binary::open_sections(file, path).map_err(|error| error.to_string())
    }

    fn read_supplementary(&self, file: File, path: &Path) -> Result<Binary, Refused> {
        Binary::open_supplementary(file, path).map_err(|error| error.to_string())
    }
}

impl ElfFile for Object {
    asks!();

    fn read_headers(&self, file: File, path: &Path) -> Result<Object, Refused> {
        Object::open_sections(self.worker(), file, path).map_err(|error| error.to_string())
    }

    fn read_supplementary(&self, file: File, path: &Path) -> Result<Object, Refused> {
        Object::open_supplementary(self.worker(), file, path).map_err(|error| error.to_string())
    }
}
