// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names, lines and inlined functions of Go's code, from the table that its runtime
//! prints its own traces by.
//!
//! The table says which inlined call an address belongs to by a number, and the tree
//! of these calls lies elsewhere: `runtime.firstmoduledata` tells where (Go's
//! `runtime/symtab.go`, `moduledata` and `funcdata`; `runtime/symtabinl.go`). That has no
//! symbol in a stripped file, so it is looked for by what it begins with.

use crate::elf::{u32_at, u64_at, Elf, Section};
use crate::go::{GoCode, GoFunction, GoTable};
use crate::resolve::SourceFrame;
use crate::sections::SectionData;
use crate::{Address, FileOffset, Function, FunctionKind};
use object::elf;
use std::collections::HashMap;
use std::ops::Range;

/// Sections of programs that the dynamic linker moves have this in front of their name.
const SECTION: &str = ".gopclntab";
/// What an external linker merges the table into.
const MERGED: &str = ".data.rel.ro";
/// Where `moduledata` may be.
const DATA: [&str; 4] = [".go.module", ".noptrdata", ".data", MERGED];
/// Alignment of the table.
const TABLE_ALIGNMENT: usize = 32;
/// Most bytes of relocations that are read.
const RELOCATIONS_BYTES_MAX: u64 = 256 << 20;
const RELOCATION_BYTES: usize = 24;
/// Most bytes of the names of all functions: a table may give one name to many.
const NAMES_BYTES_MAX: usize = 256 << 20;
/// Most frames at one address.
const FRAMES_MAX: usize = 512;

/// `PCDATA_InlTreeIndex` and `FUNCDATA_InlTree` of `internal/abi/symtab.go`.
const INLINE_INDEX: u32 = 2;
const INLINE_TREE: u8 = 3;

/// Words of `moduledata`: the table, its names, the beginning of the code, and what
/// `FUNCDATA` is counted from, which moved with Go 1.20.
const WORD_NAMES: u64 = 1;
const WORD_TEXT: u64 = 22;
const WORD_DATA_1_18: u64 = 38;
const WORD_DATA: u64 = 40;

/// The functions of a file in Go's own table.
#[derive(Debug)]
pub(crate) struct GoNames {
    table: SectionData,
    text: u64,
    /// What `FUNCDATA` is counted from.
    data: Option<u64>,
    /// What the names of types are counted from.
    types: Option<u64>,
}

/// How many words of `moduledata` its `types` is in front of what `FUNCDATA` is counted from.
const WORDS_FROM_TYPES: u64 = 3;

/// Of `internal/abi.Type`: its length, where its flags and the place of its name are, and the flag
/// that the name has a star in front.
const TYPE_BYTES: usize = 48;
const TYPE_FLAGS: usize = 20;
const TYPE_NAME: usize = 40;
const EXTRA_STAR: u8 = 2;
/// Most bytes of the name of a type.
const TYPE_NAME_MAX: usize = 256;

struct Inlined {
    name: String,
    /// The place of an instruction that has the line of the call.
    caller: u32,
}

impl GoNames {
    /// Reads the table of a file, if it has one that can be used.
    pub(crate) fn read(elf: &Elf) -> Option<GoNames> {
        let (bytes, address) = locate(elf)?;
        let table = GoTable::of(&bytes)?;
        let words = Words::read(elf);
        let module = Module::find(elf, &words, &table, address);
        let told = || words.at(address.checked_add(24)?);
        let text = module.as_ref().map(|module| module.text).or_else(told)?;
        // Code that does not lie in code is none.
        elf.code_segment_at(Address(text))?;
        let data = module.as_ref().map(|module| module.data);
        let types = module.map(|module| module.types);
        elf.check_unchanged().ok()?;
        Some(GoNames {
            text,
            data,
            types,
            table: bytes.into(),
        })
    }

    /// The table's bytes and the address that it counts from.
    pub(crate) fn table(&self) -> (SectionData, Address) {
        (SectionData::clone(&self.table), Address(self.text))
    }

    /// The frames at the address, the innermost first; none in padding and elsewhere.
    pub(crate) fn frames(&self, elf: &Elf, address: Address, behind: u64) -> Vec<SourceFrame> {
        self.find(elf, address, behind).unwrap_or_default()
    }

    /// Whether Go's runtime or the kernel puts the address on a stack as if its function had called:
    /// goroutines begin so, and signal handlers.
    pub(crate) fn is_put_on_stacks(&self, address: Address) -> bool {
        let function = || {
            let place = u32::try_from(address.0.checked_sub(self.text)?).ok()?;
            let function = GoTable::of(&self.table)?.holding(place)?;
            Some((function.name()?, place - function.begin))
        };
        let Some((name, into)) = function() else {
            return false;
        };
        matches!(
            (name.as_str(), into),
            ("runtime.goexit", 1) | ("runtime.sigreturn" | "runtime.sigreturn__sigaction", 0)
        )
    }

    /// The addresses of the function that holds one.
    pub(crate) fn extent(&self, address: Address) -> Option<Range<u64>> {
        let place = u32::try_from(address.0.checked_sub(self.text)?).ok()?;
        let function = GoTable::of(&self.table)?.holding(place)?;
        let at = |place: u32| self.text.checked_add(place.into());
        Some(at(function.begin)?..at(function.end)?)
    }

    /// What made the code of the function that holds an address.
    pub(crate) fn code(&self, address: Address) -> Option<GoCode> {
        let place = u32::try_from(address.0.checked_sub(self.text)?).ok()?;
        GoTable::of(&self.table)?.holding(place)?.code()
    }

    /// All functions, by rising address.
    pub(crate) fn functions(&self, elf: &Elf) -> Vec<Function> {
        let Some(table) = GoTable::of(&self.table) else {
            return Vec::new();
        };
        let all = (0..table.count()).filter_map(|number| table.function(number));
        let all: Vec<GoFunction<'_>> = all.collect();
        let mut named: HashMap<&[u8], Vec<GoFunction<'_>>> = HashMap::new();
        for function in &all {
            if let Some(name) = function.raw_name() {
                named.entry(name).or_default().push(*function);
            }
        }
        let mut budget = NAMES_BYTES_MAX;
        let mut found = Vec::new();
        for function in &all {
            let others = function.raw_name().and_then(|name| named.get(name));
            if !others.is_some_and(|others| Self::is_called(function, others)) {
                continue;
            }
            let Some(function) = self.function(elf, function) else {
                continue;
            };
            budget = match budget.checked_sub(function.name.len()) {
                Some(budget) => budget,
                None => break,
            };
            found.push(function);
        }
        found.sort_by_key(|function| function.address);
        found
    }

    /// Of functions of one name the one that code of Go's compiler calls. The others are in assembly
    /// language, or lead from there to it: of the functions that the runtime knows by a number such
    /// a wrapper has the highest (`FuncIDWrapper` of `internal/abi/symtab.go`).
    fn is_called(function: &GoFunction<'_>, others: &[GoFunction<'_>]) -> bool {
        let rank = |function: &GoFunction<'_>| {
            let is_assembly = function.code() == Some(GoCode::Assembly);
            (is_assembly, function.number(), function.begin)
        };
        others.iter().all(|other| rank(function) <= rank(other))
    }

    fn function(&self, elf: &Elf, function: &GoFunction<'_>) -> Option<Function> {
        let address = Address(self.text.checked_add(function.begin.into())?);
        let file_offset = elf.code_segment_at(address)?.offset_of(address)?;
        Some(Function {
            name: function.name()?,
            version: None,
            file_offset,
            address,
            size: function.code_bytes()?.into(),
            kind: FunctionKind::Function,
            is_compressed: false,
        })
    }

    /// The name of the type that is described at an address, as `%T` prints it.
    pub(crate) fn type_at(&self, elf: &Elf, address: Address) -> Option<String> {
        let read = |address: u64, out: &mut [u8]| {
            let mut segments = elf.segments.iter();
            let at = segments.find_map(|part| part.offset_of(Address(address)))?;
            elf.read_into(at.0, out).ok()
        };
        let mut described = [0; TYPE_BYTES];
        read(address.0, &mut described)?;
        let name = self
            .types?
            .checked_add(u32_at(&described, TYPE_NAME)?.into())?;
        // A byte of flags, the length (LEB128), the bytes (`internal/abi.Name`).
        let mut head = [0; 3];
        read(name, &mut head)?;
        let (length, skipped) = match head {
            [_, low, _] if low < 0x80 => (usize::from(low), 2),
            [_, low, high] if high < 0x80 => (usize::from(low & 0x7f) | usize::from(high) << 7, 3),
            _ => return None,
        };
        let mut text = vec![0; length.min(TYPE_NAME_MAX)];
        read(name.checked_add(skipped)?, &mut text)?;
        let text = String::from_utf8(text)
            .ok()
            .filter(|text| !text.is_empty())?;
        Some(match described.get(TYPE_FLAGS)? & EXTRA_STAR {
            0 => text,
            _ => text.strip_prefix('*')?.to_owned(),
        })
    }

    fn find(&self, elf: &Elf, address: Address, behind: u64) -> Option<Vec<SourceFrame>> {
        let place = u32::try_from(address.0.checked_sub(self.text)?).ok()?;
        let function = GoTable::of(&self.table)?.holding(place)?;
        if !function.has_code_at(place) {
            return None;
        }
        let name = function.name()?;
        let mut at = Some(place);
        let mut frames = Vec::new();
        while let Some(here) = at {
            match inlined_at(&function, here) {
                None => break,
                // Of two that are one another's callers, or a tree that cannot be
                // read, the innermost line is not known to be the function's own.
                Some(index) if frames.len() < FRAMES_MAX => {
                    let call = self.inlined(elf, &function, index);
                    at = call.as_ref().map(|call| call.caller);
                    if let Some(call) = call {
                        frames.push(frame(call.name, function.line_at(here), true));
                    }
                }
                Some(_) => return Some(vec![outermost(name, None, &function, place, behind)]),
            }
        }
        let line = at.and_then(|here| function.line_at(here));
        frames.push(outermost(name, line, &function, place, behind));
        Some(frames)
    }

    /// An entry of the function's tree of inlined calls (`inlinedCall`).
    fn inlined(&self, elf: &Elf, function: &GoFunction<'_>, index: u32) -> Option<Inlined> {
        let table = GoTable::of(&self.table)?;
        // The name's place, and the place of the call.
        let (bytes, name, caller) = match table.is_1_18() {
            true => (20, 12, 16),
            false => (16, 4, 8),
        };
        let tree = self.data?.checked_add(function.data(INLINE_TREE)?.into())?;
        let address = tree.checked_add(u64::from(index) * bytes as u64)?;
        let mut entry = [0; 20];
        let entry = entry.get_mut(..bytes)?;
        let mut segments = elf.segments.iter();
        let at: FileOffset = segments.find_map(|part| part.offset_of(Address(address)))?;
        elf.read_into(at.0, entry).ok()?;
        let caller = function.begin.checked_add(u32_at(entry, caller)?)?;
        Some(Inlined {
            name: table.name_at(u32_at(entry, name)?)?,
            caller: Some(caller).filter(|caller| *caller < function.end)?,
        })
    }
}

/// The number of the inlined call that a place belongs to.
fn inlined_at(function: &GoFunction<'_>, place: u32) -> Option<u32> {
    u32::try_from(function.data_at(INLINE_INDEX, place)?).ok()
}

fn frame(function: String, line: Option<(String, u32)>, inlined: bool) -> SourceFrame {
    let (file, line) = line.unzip();
    SourceFrame {
        function,
        function_offset: None,
        file,
        line,
        inlined,
    }
}

fn outermost(
    name: String,
    line: Option<(String, u32)>,
    function: &GoFunction<'_>,
    place: u32,
    behind: u64,
) -> SourceFrame {
    let into = u64::from(place - function.begin).saturating_add(behind);
    SourceFrame {
        function_offset: Some(into),
        ..frame(name, line, false)
    }
}

/// The bytes of the table and its address.
fn locate(elf: &Elf) -> Option<(Vec<u8>, u64)> {
    let named = |section: &&Section| section.name.ends_with(SECTION);
    if let Some(section) = elf.sections.iter().find(named) {
        return Some((elf.data(section).ok()?, section.address));
    }
    let section = elf.section(MERGED)?;
    let mut data = elf.data(section).ok()?;
    let mut places = (0..data.len()).step_by(TABLE_ALIGNMENT);
    let at = places.find(|at| data.get(*at..).and_then(GoTable::of).is_some())?;
    Some((data.split_off(at), section.address.checked_add(at as u64)?))
}

/// What is used of `moduledata`.
struct Module {
    text: u64,
    data: u64,
    types: u64,
}

impl Module {
    fn find(elf: &Elf, words: &Words<'_>, table: &GoTable<'_>, address: u64) -> Option<Module> {
        let names = address.checked_add(table.names_at())?;
        let begins = |at: &u64| words.at(at.wrapping_add(8 * WORD_NAMES)) == Some(names);
        let at = words.holding(elf, address).into_iter().find(begins)?;
        let word = |number: u64| words.at(at.checked_add(8 * number)?);
        let text = word(WORD_TEXT)?;
        let number = match table.is_1_18() {
            true => WORD_DATA_1_18,
            false => WORD_DATA,
        };
        let data = word(number)?;
        let types = word(number - WORDS_FROM_TYPES)?;
        let agrees = table.text().is_none_or(|told| told == text);
        agrees.then_some(Module { text, data, types })
    }
}

/// The words of a file as they are when it runs where its own headers say.
struct Words<'a> {
    elf: &'a Elf,
    /// Those that the dynamic linker writes.
    relocated: HashMap<u64, u64>,
}

impl<'a> Words<'a> {
    fn read(elf: &'a Elf) -> Words<'a> {
        let mut words = Words {
            elf,
            relocated: HashMap::new(),
        };
        let is_table = |section: &&Section| {
            section.kind == elf::SHT_RELA.0 && section.bytes <= RELOCATIONS_BYTES_MAX
        };
        for section in elf.sections.iter().filter(is_table) {
            let data = elf.data(section).unwrap_or_default();
            let relative = data.chunks_exact(RELOCATION_BYTES).filter_map(relative);
            words.relocated.extend(relative);
        }
        words
    }

    fn at(&self, address: u64) -> Option<u64> {
        if let Some(word) = self.relocated.get(&address) {
            return Some(*word);
        }
        let mut segments = self.elf.segments.iter();
        let at = segments.find_map(|part| part.offset_of(Address(address)))?;
        let mut word = [0; 8];
        self.elf.read_into(at.0, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// The addresses of the words in data that are `wanted`.
    fn holding(&self, elf: &Elf, wanted: u64) -> Vec<u64> {
        let relocated = self.relocated.iter();
        let mut found: Vec<u64> = relocated
            .filter(|(_, word)| **word == wanted)
            .map(|(at, _)| *at)
            .collect();
        for section in DATA.iter().filter_map(|name| elf.section(name)) {
            let data = elf.data(section).unwrap_or_default();
            let words = data.chunks_exact(8).enumerate();
            let here = words.filter(|(_, word)| u64_at(word, 0) == Some(wanted));
            found.extend(
                here.filter_map(|(index, _)| section.address.checked_add(index as u64 * 8)),
            );
        }
        found.sort_unstable();
        found
    }
}

/// Where a word is moved with the file, and to what.
fn relative(relocation: &[u8]) -> Option<(u64, u64)> {
    let is_relative = u64_at(relocation, 8)? == u64::from(elf::R_X86_64_RELATIVE.0);
    is_relative.then_some((u64_at(relocation, 0)?, u64_at(relocation, 16)?))
}
