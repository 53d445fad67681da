// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where functions are in the victims' files.

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// A function's place.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Offset in the file of its first instruction.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

impl Function {
    /// Whether an offset in the file is inside of it.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        (self.offset..self.offset + self.bytes.max(1)).contains(&offset)
    }
}

/// All functions of a file.
pub(crate) fn functions(file: &Path) -> Vec<Function> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let elf = object::File::parse(&*bytes).expect("a victim is an ELF file");
    places(&elf, elf.symbols())
}

/// A function that a library exports.
pub(crate) fn exported(file: &Path, name: &str) -> Function {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let elf = object::File::parse(&*bytes).expect("a library is an ELF file");
    places(&elf, elf.dynamic_symbols())
        .into_iter()
        .find(|function| function.name == name)
        .unwrap_or_else(|| panic!("{} exports no {name}", file.display()))
}

fn places<'a>(
    elf: &object::File<'a>,
    symbols: impl Iterator<Item = object::Symbol<'a, 'a>>,
) -> Vec<Function> {
    let place = |address: u64| {
        elf.segments().find_map(|segment| {
            let (start, length) = segment.file_range();
            let inside = address.checked_sub(segment.address())?;
            (inside < length).then_some(start + inside)
        })
    };
    symbols
        .filter(|symbol| symbol.is_definition())
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| {
            Some(Function {
                name: symbol.name().ok()?.to_string(),
                offset: place(symbol.address())?,
                bytes: symbol.size(),
            })
        })
        .collect()
}

/// One of them.
pub(crate) fn function(file: &Path, name: &str) -> Function {
    functions(file)
        .into_iter()
        .find(|function| function.name == name)
        .unwrap_or_else(|| panic!("{} has no function {name}", file.display()))
}

/// Offset in the file of a section.
pub(crate) fn section(file: &Path, name: &str) -> u64 {
    section_range(file, name).start
}

/// Offsets in the file of a section.
pub(crate) fn section_range(file: &Path, name: &str) -> Range<u64> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let elf = object::File::parse(&*bytes).expect("a victim is an ELF file");
    let range = elf.section_by_name(name).and_then(|s| s.file_range());
    let (start, length) = range.unwrap_or_else(|| panic!("{} has no {name}", file.display()));
    start..start + length
}

/// How far past a function something is, when the file is mapped.
pub(crate) fn distance(file: &Path, from: &str, to: &str) -> u64 {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let elf = object::File::parse(&*bytes).expect("a victim is an ELF file");
    let address = |name: &str| {
        let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(name));
        symbol.unwrap_or_else(|| panic!("no {name}")).address()
    };
    address(to).wrapping_sub(address(from))
}
