// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ELF file: its segments and functions.

use crate::call::ends_in_call;
use crate::demangle::{
    demangle, demangle_without_parameters, demangle_without_return_type, is_mangled,
};
use crate::dwarf::Dwarf;
use crate::elf::Elf;
use crate::function::Functions;
use crate::go_names::GoNames;
use crate::plt::{self, PltEntry};
use crate::sections::{Loaded, LoadedFrames};
use crate::signature::{is_signature, without_tags, Signature};
use crate::suffix::suffixed;
use crate::SymbolizeError;
use crate::{Address, FileOffset, Function, FunctionKind};
use nsprobe_common::elf_note;
use nsprobe_text::nearest;
use nsprobe_text::{glob_fits, is_glob};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// The longest call instruction that `is_after_call` looks for, in bytes.
const CALL_BYTES_MAX: usize = 7;

/// Longest function whose code is read, in bytes.
const CODE_BYTES_MAX: u64 = 1 << 20;

/// An ELF file, open for reading.
///
/// It keeps the file (and with it the container's file system) busy: drop it
/// when its names are no longer needed.
#[derive(Debug)]
pub struct Binary {
    pub(crate) elf: Elf,
    pub(crate) functions: Functions,
    /// Why some of its symbols could not be read.
    pub(crate) failures: Vec<String>,
    build_id: Option<Vec<u8>>,
    /// What is read only when it is asked for.
    readable: OnceCell<Vec<Option<Readable>>>,
    pub(crate) plt: OnceCell<Vec<PltEntry>>,
    pub(crate) go: OnceCell<Option<GoNames>>,
    linked: OnceCell<HashMap<u64, u64>>,
    slots: OnceCell<(HashMap<u64, String>, HashMap<u64, u64>)>,
    pub(crate) sections: OnceCell<Loaded>,
    pub(crate) frames: OnceCell<Option<LoadedFrames>>,
    pub(crate) dwarf: OnceCell<Dwarf>,
}

/// The readable names of a function whose own name is mangled.
#[derive(Debug)]
struct Readable {
    full: String,
    short: String,
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// Where it begins in the file.
    pub file_offset: FileOffset,
    /// Where it begins by the file's own count.
    pub address: Address,
    /// How many bytes of the file it holds.
    pub file_bytes: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
    /// Whether it is mapped writable.
    pub writable: bool,
}

impl Segment {
    /// The address of an offset in the segment.
    pub fn address_of(&self, offset: FileOffset) -> Option<Address> {
        let into = offset.0.checked_sub(self.file_offset.0)?;
        let address = self.address.0.checked_add(into)?;
        (into < self.file_bytes).then_some(Address(address))
    }

    /// The offset of an address in the segment's part of the file.
    pub fn offset_of(&self, address: Address) -> Option<FileOffset> {
        let into = address.0.checked_sub(self.address.0)?;
        let offset = self.file_offset.0.checked_add(into)?;
        (into < self.file_bytes).then_some(FileOffset(offset))
    }
}

/// What is at a file offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOffset<'a> {
    /// Past the end of the file.
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
    pub fn open(file: File, label: &Path) -> Result<Binary, SymbolizeError> {
        let elf = Elf::open(file, label, false)?;
        let (functions, failures) = Functions::read(&elf)?;
        let build_id = build_id(&elf);
        let mut binary = Binary::new(elf, functions, build_id)?;
        binary.failures = failures;
        if binary.is_go() && !binary.has_symbol_table() {
            binary.add_go_functions();
        }
        Ok(binary)
    }

    /// Adds the functions that Go's own table names.
    fn add_go_functions(&mut self) {
        let Some(names) = self.go_names() else {
            return;
        };
        let found = names.functions(&self.elf);
        self.functions.add(found);
    }

    /// Reads a file of what several debug files share, as
    /// [`Binary::supplementary`] names it: one without code, in the form of an
    /// object file.
    pub fn open_supplementary(file: File, label: &Path) -> Result<Binary, SymbolizeError> {
        let elf = Elf::open(file, label, true)?;
        let build_id = crate::debug_file::build_id_of_section(&elf)?;
        Binary::new(elf, Functions::default(), build_id)
    }

    /// Reads the headers alone, for a caller that needs only the sections: it has no functions.
    pub fn open_sections(file: File, label: &Path) -> Result<Binary, SymbolizeError> {
        let elf = Elf::open(file, label, false)?;
        let build_id = build_id(&elf);
        Binary::new(elf, Functions::default(), build_id)
    }

    /// Reads the headers of a file of split DWARF (`.dwo`, or `.dwp`), which has the form of
    /// an object file.
    pub(crate) fn open_split(file: File, label: &Path) -> Result<Binary, SymbolizeError> {
        let elf = Elf::open(file, label, true)?;
        Binary::new(elf, Functions::default(), None)
    }

    /// Reads a debug file of `program`, which has the functions of that program's code.
    pub(crate) fn open_debug(
        file: File,
        label: &Path,
        program: &Binary,
    ) -> Result<Binary, SymbolizeError> {
        let elf = Elf::open(file, label, false)?;
        let (functions, failures) = Functions::read_of(&elf, &program.elf)?;
        let build_id = build_id(&elf);
        let binary = Binary::new(elf, functions, build_id)?;
        Ok(Binary { failures, ..binary })
    }

    /// Another handle of the file.
    pub fn try_clone_file(&self) -> std::io::Result<File> {
        self.elf.try_clone_file()
    }

    fn new(
        elf: Elf,
        functions: Functions,
        build_id: Option<Vec<u8>>,
    ) -> Result<Binary, SymbolizeError> {
        elf.check_unchanged()?;
        Ok(Binary {
            elf,
            functions,
            failures: Vec::new(),
            build_id,
            readable: OnceCell::new(),
            plt: OnceCell::new(),
            go: OnceCell::new(),
            linked: OnceCell::new(),
            slots: OnceCell::new(),
            sections: OnceCell::new(),
            frames: OnceCell::new(),
            dwarf: OnceCell::new(),
        })
    }

    /// The build-id, if the file has one. It is a claim: any file can carry the build-id of
    /// another.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// All functions whose code is in the file, by rising address; several
    /// names of one address are several functions, the most usual one first.
    pub fn functions(&self) -> &[Function] {
        &self.functions.list
    }

    /// All functions that begin at that very address: each name of one.
    pub fn functions_at(&self, address: Address) -> &[Function] {
        self.functions.at(address)
    }

    /// Whether the file names any function.
    pub fn has_symbols(&self) -> bool {
        !self.functions().is_empty()
    }

    /// Whether the file holds DWARF, that is, lines and inlined functions.
    pub fn has_debug_info(&self) -> bool {
        let section = self.elf.section(".debug_info");
        section.is_some_and(|section| section.kind != object::elf::SHT_NOBITS.0)
    }

    /// The functions of that name: raw, or readable with or without parameters, copies that
    /// the compiler made of them included; else, if there are `*` or `?` in it, those that the
    /// glob fits. By rising address.
    ///
    /// Pieces of functions (`f.cold`) have no other name than their own whole one, and labels fit
    /// no glob. `f@VERSION` are those of that version. Tags such as `[abi:cxx11]` may be missing.
    pub fn find_functions(&self, name_or_glob: &str) -> Vec<&Function> {
        if let Some((name, version)) = name_or_glob.split_once('@') {
            let mut found = self.find_functions(name);
            found.retain(|function| function.has_version(version));
            return found;
        }
        let exact: Vec<&Function> = self
            .functions()
            .iter()
            .filter(|function| function.name == name_or_glob)
            .collect();
        if !exact.is_empty() {
            // A name with the compiler's suffix, or a mangled name, means that code alone.
            let is_raw = is_mangled(name_or_glob) || suffixed(name_or_glob).is_some();
            return match is_raw {
                true => exact,
                false => self.with_copies(name_or_glob),
            };
        }
        let mut named = self.matching(|name| name == name_or_glob);
        if named.is_empty() && !is_mangled(name_or_glob) {
            named = self.with_copies(name_or_glob);
        }
        if named.is_empty() && self.is_go() {
            named = self.instances(name_or_glob);
        }
        if named.is_empty() && is_signature(name_or_glob) {
            named = self.of_signature(name_or_glob);
        }
        if !named.is_empty() || !is_glob(name_or_glob) {
            return named;
        }
        let mut fitting = self.matching(|name| glob_fits(name_or_glob, name));
        fitting.retain(|function| function.kind != FunctionKind::Label);
        fitting
    }

    /// The functions of Go that a generic one was made into, which is named as Go's own traces do,
    /// `main.Map[...]`, or without the brackets.
    fn instances(&self, name: &str) -> Vec<&Function> {
        let wanted = without_types(name);
        let all = self.functions().iter();
        let generic = all.filter(|function| function.name.contains('['));
        generic
            .filter(|function| without_types(&function.name) == wanted)
            .collect()
    }

    /// The functions of that raw name, and the copies of them.
    fn with_copies(&self, name: &str) -> Vec<&Function> {
        let is_copy = |function: &&Function| {
            let of = suffixed(&function.name);
            of.is_some_and(|of| of.base == name) && !self.is_piece(function)
        };
        let all = self.functions().iter();
        all.filter(|function| function.name == name || is_copy(function))
            .collect()
    }

    /// The functions whose readable name says the same as this one, however it is spelled.
    fn of_signature(&self, wanted: &str) -> Vec<&Function> {
        let wanted = Signature::new(wanted);
        let fits = |(function, readable): &(&Function, &Option<Readable>)| {
            let Some(names) = readable else {
                return false;
            };
            !self.is_piece(function)
                && wanted.is_of(&names.short)
                && (!wanted.has_parameters()
                    || wanted.is_all(&names.full)
                    || wanted.is_all(&demangle_without_return_type(&function.name)))
        };
        let all = self.functions().iter().zip(self.readable());
        all.filter(fits).map(|(function, _)| function).collect()
    }

    /// Whether the code is a piece that the compiler moved out of a function: a call that began
    /// elsewhere continues there.
    pub fn is_piece(&self, function: &Function) -> bool {
        // In Go's names a package stands before the dot.
        let is_go = || self.is_go() && !is_mangled(&function.name);
        suffixed(&function.name).is_some_and(|of| of.is_piece) && !is_go()
    }

    /// Whether the code is a piece that is jumped to in the middle of a call: no return address
    /// is on top of the stack where it begins.
    pub fn is_jumped_to(&self, function: &Function) -> bool {
        let is_jumped_to = suffixed(&function.name).is_some_and(|of| of.is_jumped_to);
        is_jumped_to && self.is_piece(function)
    }

    /// The pieces of functions of that name, raw or readable.
    pub fn pieces_of(&self, name: &str) -> Vec<&Function> {
        let all = self.functions().iter().zip(self.readable());
        let fits = |(function, readable): &(&Function, &Option<Readable>)| {
            let of = suffixed(&function.name);
            let named = readable.as_ref().is_some_and(|names| {
                let short = names.short.split(" [clone").next();
                short == Some(name)
            });
            self.is_piece(function) && (named || of.is_some_and(|of| of.base == name))
        };
        all.filter(fits).map(|(function, _)| function).collect()
    }

    /// The functions one of whose names, raw or readable, matches; but no pieces.
    fn matching(&self, wanted: impl Fn(&str) -> bool) -> Vec<&Function> {
        let fits = |names: &Readable| {
            let is_wanted =
                |name: &str| wanted(name) || without_tags(name).is_some_and(|plain| wanted(&plain));
            is_wanted(&names.full) || is_wanted(&names.short)
        };
        self.functions()
            .iter()
            .zip(self.readable())
            .filter(|(function, names)| wanted(&function.name) || names.as_ref().is_some_and(fits))
            .map(|(function, _)| function)
            .filter(|function| !self.is_piece(function))
            .collect()
    }

    /// The readable names of each function, in the same order.
    fn readable(&self) -> &[Option<Readable>] {
        self.readable.get_or_init(|| {
            let names = |function: &Function| {
                is_mangled(&function.name).then(|| Readable {
                    full: demangle(&function.name),
                    short: demangle_without_parameters(&function.name),
                })
            };
            self.functions().iter().map(names).collect()
        })
    }

    /// The readable names (no parameters) most similar to `name`, best first,
    /// at most `count`.
    pub fn nearest(&self, name: &str, count: usize) -> Vec<String> {
        let all = self.functions().iter().zip(self.readable());
        let whole = all.filter(|(function, _)| !self.is_piece(function));
        let names = whole.map(|(function, readable)| match readable {
            Some(names) => names.short.clone(),
            None => function.name.clone(),
        });
        nearest(name, names, count)
    }

    /// The loaded segment that holds the offset.
    pub fn segment_of(&self, offset: FileOffset) -> Option<&Segment> {
        self.elf.segment_of(offset)
    }

    /// All parts that are loaded into memory, in the file's order.
    pub fn segments(&self) -> &[Segment] {
        &self.elf.segments
    }

    /// The offset of an address that the file loads.
    pub fn offset_of(&self, address: Address) -> Option<FileOffset> {
        let mut segments = self.elf.segments.iter();
        segments.find_map(|segment| segment.offset_of(address))
    }

    /// The code of a function, as the file has it; empty when its length is not known
    /// or it is not all in one executable segment.
    pub fn code_of(&self, function: &Function) -> Vec<u8> {
        self.code(function.address.0, function.size)
    }

    /// The code at an address, as the file has it; empty when it is not all in one executable
    /// segment.
    pub fn code(&self, address: u64, bytes: u64) -> Vec<u8> {
        let code = self.constant(address, bytes, |segment| segment.executable);
        code.unwrap_or_default()
    }

    /// Data at an address that no process writes to, as the file has it.
    pub fn read_only(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        self.constant(address, bytes, |segment| !segment.writable)
    }

    fn constant(
        &self,
        address: u64,
        bytes: u64,
        fits: impl Fn(&Segment) -> bool,
    ) -> Option<Vec<u8>> {
        let offset = self.offset_of(Address(address))?;
        let segment = self.segment_of(offset).filter(|segment| fits(segment))?;
        let into = offset.0.checked_sub(segment.file_offset.0)?;
        let left = segment.file_bytes.checked_sub(into)?;
        if bytes > left.min(CODE_BYTES_MAX) {
            return None;
        }
        let mut data = vec![0; usize::try_from(bytes).ok()?];
        self.elf.read_into(offset.0, &mut data).ok()?;
        Some(data)
    }

    /// What is at the offset.
    pub fn code_at(&self, offset: FileOffset) -> AtOffset<'_> {
        if offset.0 >= self.elf.bytes() {
            return AtOffset::OutsideFile;
        }
        let Some(segment) = self.segment_of(offset) else {
            return AtOffset::NotLoaded;
        };
        match segment.address_of(offset) {
            Some(address) if segment.executable => match self.function_holding(address) {
                Some(function) => AtOffset::Function(function),
                None => AtOffset::Code,
            },
            _ => AtOffset::Data,
        }
    }

    /// Whether a known function begins at the offset.
    pub fn is_function_entry(&self, offset: FileOffset) -> bool {
        let segment = self.segment_of(offset).filter(|s| s.executable);
        let address = segment.and_then(|segment| segment.address_of(offset));
        let here = address.map_or(&[][..], |address| self.functions.at(address));
        here.iter().any(|here| here.kind != FunctionKind::Label)
    }

    /// Whether the bytes before the offset end in a call instruction, that is,
    /// whether it can be a return address. `None` when it is not in code. Bytes
    /// that happen to look like a call make it `true`; a `false` is certain.
    pub fn is_after_call(&self, offset: FileOffset) -> Option<bool> {
        // A call may be the last instruction of its segment.
        let last = FileOffset(offset.0.checked_sub(1)?);
        let segment = self.segment_of(last).filter(|segment| segment.executable)?;
        let before = (offset.0 - segment.file_offset.0).min(CALL_BYTES_MAX as u64);
        let mut bytes = [0; CALL_BYTES_MAX];
        let bytes = bytes.get_mut(..before as usize)?;
        self.elf.read_into(offset.0 - before, bytes).ok()?;
        Some(ends_in_call(bytes) || self.is_put_on_stacks(offset))
    }

    /// The innermost known function that holds the address.
    pub fn function_holding(&self, address: Address) -> Option<&Function> {
        let reaches = |function: &Function| self.reaches(function, address);
        self.functions.holding(address, reaches)
    }

    /// Whether a function of this code whose symbol says no length may hold the address: it ends
    /// where the description of its frame does, and a label does not begin within another one.
    pub(crate) fn reaches(&self, function: &Function, address: Address) -> bool {
        let start = function.address;
        if self.code_end(start).is_none_or(|end| end <= address.0) {
            return false;
        }
        match self.frame_at(address) {
            Some(frame) if function.kind == FunctionKind::Label => frame.start == start.0,
            Some(frame) => frame.start <= start.0,
            None => self.frame_at(start).is_none(),
        }
    }

    /// Where the section, or else the segment, that holds the code ends.
    pub fn code_end(&self, start: Address) -> Option<u64> {
        let mut sections = self.elf.sections.iter();
        let section_end = sections.find_map(|section| section.code_end(start.0));
        section_end.or_else(|| {
            let segment = self.elf.code_segment_at(start)?;
            segment.address.0.checked_add(segment.file_bytes)
        })
    }

    /// The function of this file that the dynamic linker puts the address of into a slot of the
    /// global offset table, unless another file has one of its name in front.
    pub fn linked(&self, slot: u64) -> Option<u64> {
        let linked = self.linked.get_or_init(|| plt::own(&self.elf));
        linked.get(&slot).copied()
    }

    /// The names of the function that the dynamic linker puts the address of into a slot of the
    /// global offset table: one of any file, or an indirect one of this.
    pub fn linked_names(&self, slot: u64) -> impl Iterator<Item = &str> {
        let (names, resolvers) = self.slots.get_or_init(|| plt::names(&self.elf));
        let resolver = resolvers
            .get(&slot)
            .map(|at| self.functions_at(Address(*at)));
        let indirect = resolver.unwrap_or_default().iter();
        let indirect = indirect.filter(|of| of.kind == FunctionKind::IndirectResolver);
        let named = names.get(&slot).map(String::as_str);
        named.into_iter().chain(indirect.map(|of| &*of.name))
    }

    pub(crate) fn plt_entry(&self, address: Address) -> Option<&PltEntry> {
        let entries = self.plt.get_or_init(|| plt::read(&self.elf));
        plt::holding(entries, address)
    }
}

/// A name of Go without the types in brackets that a generic function was made for.
fn without_types(name: &str) -> String {
    let mut found = String::new();
    let mut depth = 0usize;
    for next in name.chars() {
        match next {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            next if depth == 0 => found.push(next),
            _ => {}
        }
    }
    found
}

/// The build-id: where the program headers say, or else by the section's name, since tools
/// that make debug files leave the headers as the program had them.
fn build_id(elf: &Elf) -> Option<Vec<u8>> {
    match elf_note::find(|offset, out| elf.read_into(offset, out).is_ok()) {
        Ok(id) => Some(id.as_bytes().to_vec()),
        Err(_) => crate::debug_file::build_id_of_section(elf).ok().flatten(),
    }
}
