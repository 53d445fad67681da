// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ELF file: its segments and functions.

use crate::{Address, FileOffset, Function, Lookup, Resolution, Result, Unresolved};
use std::fs::File;
use std::path::Path;

/// An ELF file, open for reading.
///
/// It keeps the file (and with it the container's file system) busy: drop it
/// when its names are no longer needed.
#[derive(Debug)]
pub struct Binary {
    _file: File,
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the file.
    pub file_offset: FileOffset,
    /// Where it begins by the file's own count.
    pub address: Address,
    /// How many bytes of the file it holds.
    pub file_bytes: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
}

/// What is at a file offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// Behind the end of the file.
    OutsideFile,
    /// In no loaded segment.
    NotLoaded,
    /// In a loaded segment that is not executable.
    Data,
    /// In an executable segment, in no known function.
    Code,
    /// In this function.
    Function(&'a Function),
}

impl Binary {
    /// Reads the headers and symbol tables of `file`, which is called `label`
    /// in errors.
    pub fn open(file: File, label: &Path) -> Result<Binary> {
        todo!("{file:?} {label:?}")
    }

    /// The build-id, if the file has one.
    pub fn build_id(&self) -> Option<&[u8]> {
        todo!()
    }

    /// All functions whose code is in the file, by rising address; several
    /// names of one address are several functions.
    pub fn functions(&self) -> &[Function] {
        todo!()
    }

    /// Whether the file names any function.
    pub fn has_symbols(&self) -> bool {
        !self.functions().is_empty()
    }

    /// Whether the file holds DWARF, that is, lines and inlined functions.
    pub fn has_debug_info(&self) -> bool {
        todo!()
    }

    /// The functions of that name: raw, or readable with or without
    /// parameters; else, if there are `*` or `?` in it, those that the glob
    /// fits. By rising address.
    pub fn find_functions(&self, name_or_glob: &str) -> Vec<&Function> {
        todo!("{name_or_glob}")
    }

    /// The readable names (no parameters) most similar to `name`, best first,
    /// at most `count`.
    pub fn nearest(&self, name: &str, count: usize) -> Vec<String> {
        todo!("{name} {count}")
    }

    /// The loaded segment that holds the offset.
    pub fn segment_of(&self, offset: FileOffset) -> Option<&Segment> {
        todo!("{offset}")
    }

    /// What is at the offset.
    pub fn code_at(&self, offset: FileOffset) -> Place<'_> {
        todo!("{offset}")
    }

    /// Whether a known function begins at the offset.
    pub fn is_function_entry(&self, offset: FileOffset) -> bool {
        todo!("{offset}")
    }

    /// Whether the bytes before the offset end in a call instruction, that is,
    /// whether it can be a return address. `None` when it is not in code.
    pub fn is_after_call(&self, offset: FileOffset) -> Option<bool> {
        todo!("{offset}")
    }

    /// The source frames at the offset, the innermost inlined function first.
    pub fn resolve(
        &self,
        offset: FileOffset,
        lookup: Lookup,
    ) -> std::result::Result<Resolution, Unresolved> {
        todo!("{offset} {lookup:?}")
    }
}
