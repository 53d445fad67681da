// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ELF file: its segments and functions.

use crate::calls::{ends_in_call, CALL_BYTES_MAX};
use crate::demangle::{demangle_without_parameters, is_mangled};
use crate::dwarf::{self, Dwarf};
use crate::image::Image;
use crate::symbols;
use crate::{
    Address, FileOffset, Function, Lookup, Resolution, Result, Source, SourceFrame, Unresolved,
};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

/// Most functions that a search for similar names looks at.
const NEAREST_LOOKED_AT_MAX: usize = 200_000;
/// How far back an overlapping function is looked for, in table entries.
const OVERLAP_MAX: usize = 64;

/// An ELF file, open for reading.
///
/// It keeps the file (and with it the container's file system) busy: drop it
/// when its names are no longer needed.
#[derive(Debug)]
pub struct Binary {
    image: Image,
    build_id: Option<Vec<u8>>,
    functions: Vec<Function>,
    /// Read when the first name is asked for.
    dwarf: OnceCell<std::result::Result<Dwarf, String>>,
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
        let image = Image::open(file, label)?;
        Ok(Binary {
            build_id: image.build_id(),
            functions: symbols::functions(&image)?,
            dwarf: OnceCell::new(),
            image,
        })
    }

    /// The build-id, if the file has one.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// All functions whose code is in the file, by rising address; several
    /// names of one address are several functions.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Whether the file names any function.
    pub fn has_symbols(&self) -> bool {
        !self.functions().is_empty()
    }

    /// Whether the file holds DWARF, that is, lines and inlined functions.
    pub fn has_debug_info(&self) -> bool {
        dwarf::is_in(&self.image)
    }

    /// The functions of that name: raw, or readable with or without
    /// parameters; else, if there are `*` or `?` in it, those that the glob
    /// fits. By rising address.
    pub fn find_functions(&self, name_or_glob: &str) -> Vec<&Function> {
        let raw = self.functions_where(|function| function.name == name_or_glob);
        if !raw.is_empty() {
            return raw;
        }
        let readable = |function: &&Function| is_mangled(&function.name);
        let candidates = self.functions.iter().filter(readable);
        let found: Vec<_> = candidates
            .filter(|function| {
                demangle_without_parameters(&function.name) == name_or_glob
                    || function.demangled() == name_or_glob
            })
            .collect();
        if !found.is_empty() || !name_or_glob.contains(['*', '?']) {
            return found;
        }
        self.functions_where(|function| {
            glob_fits(name_or_glob, &function.name)
                || is_mangled(&function.name)
                    && (glob_fits(name_or_glob, &demangle_without_parameters(&function.name))
                        || glob_fits(name_or_glob, &function.demangled()))
        })
    }

    fn functions_where(&self, wanted: impl Fn(&Function) -> bool) -> Vec<&Function> {
        self.functions.iter().filter(|f| wanted(f)).collect()
    }

    /// The readable names (no parameters) most similar to `name`, best first,
    /// at most `count`.
    pub fn nearest(&self, name: &str, count: usize) -> Vec<String> {
        let names: BTreeSet<String> = self
            .functions
            .iter()
            .take(NEAREST_LOOKED_AT_MAX)
            .map(|function| demangle_without_parameters(&function.name))
            .collect();
        let mut scored: Vec<_> = names
            .into_iter()
            .filter_map(|candidate| Some((distance(name, &candidate)?, candidate)))
            .collect();
        scored.sort();
        scored.truncate(count);
        scored.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// The loaded segment that holds the offset.
    pub fn segment_of(&self, offset: FileOffset) -> Option<&Segment> {
        self.image.segment_of(offset)
    }

    /// What is at the offset.
    pub fn code_at(&self, offset: FileOffset) -> Place<'_> {
        match self.segment_of(offset) {
            None if offset.0 >= self.image.bytes() => Place::OutsideFile,
            None => Place::NotLoaded,
            Some(segment) if !segment.executable => Place::Data,
            Some(segment) => match self.function_at(segment.address_of(offset)) {
                Some(function) => Place::Function(function),
                None => Place::Code,
            },
        }
    }

    /// Whether a known function begins at the offset.
    pub fn is_function_entry(&self, offset: FileOffset) -> bool {
        let Some(segment) = self.segment_of(offset).filter(|s| s.executable) else {
            return false;
        };
        let address = segment.address_of(offset);
        let searched = self.functions.binary_search_by_key(&address, |f| f.address);
        searched.is_ok()
    }

    /// The function that holds an address. Of several the one that begins last,
    /// and of those the one with the plainest name: `malloc`, not `__libc_malloc`.
    /// A function without a size (of assembly) reaches to the next one, or to the
    /// end of its section.
    fn function_at(&self, address: Address) -> Option<&Function> {
        let end = self.functions.partition_point(|f| f.address <= address);
        let next = self.functions.get(end).map_or(u64::MAX, |f| f.address.0);
        let holds = |function: &&Function| match function.size {
            0 => address.0 < next.min(self.image.section_end(function.address)),
            size => address.0 - function.address.0 < size,
        };
        let before = self.functions[..end].iter().rev().take(OVERLAP_MAX);
        let mut holding = before.filter(holds).peekable();
        let begin = holding.peek()?.address;
        holding
            .take_while(|function| function.address == begin)
            .min_by_key(|function| {
                let underscores = function.name.bytes().take_while(|&b| b == b'_').count();
                // Mangled names begin with one, and are as plain as any.
                let hidden = underscores > 0 && !is_mangled(&function.name);
                (hidden, function.name.len(), &function.name)
            })
    }

    /// Whether the bytes before the offset end in a call instruction, that is,
    /// whether it can be a return address. `None` when it is not in code.
    pub fn is_after_call(&self, offset: FileOffset) -> Option<bool> {
        let before = FileOffset(offset.0.checked_sub(1)?);
        let segment = self.segment_of(before).filter(|s| s.executable)?;
        let room = offset.0 - segment.file_offset.0;
        let count = room.min(CALL_BYTES_MAX as u64);
        let bytes = self.image.read("code", offset.0 - count, count).ok()?;
        Some(ends_in_call(&bytes))
    }

    /// The source frames at the offset, the innermost inlined function first.
    pub fn resolve(
        &self,
        offset: FileOffset,
        lookup: Lookup,
    ) -> std::result::Result<Resolution, Unresolved> {
        // One byte back lies in the call, however the function ends.
        let back = u64::from(lookup == Lookup::ReturnAddress);
        let inside = FileOffset(offset.0.saturating_sub(back));
        let segment = self
            .segment_of(inside)
            .ok_or(Unresolved::NotLoaded(offset))?;
        if !segment.executable {
            return Err(Unresolved::NotExecutable(offset));
        }
        let address = segment.address_of(inside);
        let function = self.function_at(address);
        let function_offset = function.map(|f| address.0 + back - f.address.0);
        let mut note = None;
        match self.dwarf_frames(address) {
            Some(Ok(mut frames)) if !frames.is_empty() => {
                if let Some(outermost) = frames.last_mut() {
                    outermost.function_offset = function_offset;
                }
                return Ok(Resolution {
                    frames,
                    source: Source::Dwarf,
                    note,
                });
            }
            Some(Err(why)) => note = Some(why),
            _ => {}
        }
        let (name, function_offset, source) = match function {
            Some(function) => (function.demangled(), function_offset, Source::Symbols),
            None => match symbols::plt_name(&self.image, address) {
                Some(name) => (name, None, Source::Plt),
                None if self.has_symbols() => return Err(Unresolved::BetweenFunctions(offset)),
                None => return Err(Unresolved::NoSymbols),
            },
        };
        Ok(Resolution {
            frames: vec![SourceFrame {
                function: name,
                function_offset,
                file: None,
                line: None,
                inlined: false,
            }],
            source,
            note,
        })
    }

    /// What DWARF says; `None` when there is none.
    fn dwarf_frames(
        &self,
        address: Address,
    ) -> Option<std::result::Result<Vec<SourceFrame>, String>> {
        if !self.has_debug_info() {
            return None;
        }
        let dwarf = self.dwarf.get_or_init(|| Dwarf::load(&self.image));
        Some(match dwarf {
            Ok(dwarf) => dwarf.frames(address),
            Err(why) => Err(why.clone()),
        })
    }
}

impl Segment {
    /// The address of an offset in this segment.
    fn address_of(&self, offset: FileOffset) -> Address {
        let into = offset.0.wrapping_sub(self.file_offset.0);
        Address(self.address.0.wrapping_add(into))
    }
}

/// Whether `*` (any characters) and `?` (any one) in `glob` fit `name`.
fn glob_fits(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut at, mut matched) = (0, 0);
    let mut star = None;
    while matched < name.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at, matched));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[matched] => {
                at += 1;
                matched += 1;
            }
            // The last star takes one character more.
            _ => match &mut star {
                Some((star_at, taken)) => {
                    *taken += 1;
                    (at, matched) = (*star_at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|&byte| byte == b'*')
}

/// How far `candidate` is from what the user typed; `None` when too far to
/// suggest. A name that contains it is near.
fn distance(typed: &str, candidate: &str) -> Option<usize> {
    if candidate.contains(typed) || (typed.contains(candidate) && candidate.len() > 3) {
        return Some(candidate.len().abs_diff(typed.len()).min(8));
    }
    let limit = typed.len() / 3 + 1;
    if candidate.len().abs_diff(typed.len()) > limit {
        return None;
    }
    let distance = edit_distance(typed.as_bytes(), candidate.as_bytes());
    (distance <= limit).then_some(distance)
}

/// Levenshtein's distance, by rows.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
