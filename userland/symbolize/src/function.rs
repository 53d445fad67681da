// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function of a file, from its symbol tables, and the index of all.

use crate::elf::{text_at, u16_at, u32_at, u64_at, Elf, Section};
use crate::{debugdata, Address, DataSymbol, FileOffset, SymbolizeError};
use object::elf;
use std::collections::HashMap;

/// Longest symbol name, in bytes; a symbol with a longer one is skipped.
const NAME_BYTES_MAX: usize = 64 << 10;
/// Most bytes of names in all: tables whose names overlap would need more.
const NAMES_BYTES_MAX: u64 = 512 << 20;
/// How many functions before an address are looked at for one that holds it.
const OVERLAPS_MAX: usize = 64;
/// Most versions of a file's symbols, and the longest name of one, in bytes.
const VERSIONS_MAX: usize = 1 << 15;
const VERSION_BYTES_MAX: usize = 256;
pub(crate) const SYMBOL_BYTES: usize = 24;

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// A function.
    Function,
    /// The resolver of an indirect function: it runs once and returns the
    /// address of the implementation. A probe on it counts no calls.
    IndirectResolver,
    /// Code with a name that no symbol says to be a function: assemblers write such symbols.
    Label,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name as the symbol table has it, without a symbol version.
    pub name: String,
    /// The version, as binutils write it after the name: `@VERSION`, or `@@VERSION` of the one
    /// that is linked to by default.
    pub version: Option<Box<str>>,
    /// Where its code begins in the file.
    pub file_offset: FileOffset,
    /// Where its code begins by the file's own count.
    pub address: Address,
    /// Its length in bytes; 0 when the symbol table does not say.
    pub size: u64,
    /// What it stands for.
    pub kind: FunctionKind,
    /// Whether only `.gnu_debugdata` has its symbol.
    pub is_compressed: bool,
}

impl Function {
    /// Its readable name, parameters included.
    pub fn demangled(&self) -> String {
        crate::demangle::demangle(&self.name)
    }

    /// Whether it is a copy or a piece of a function, that the compiler may have given other
    /// arguments, or the same in other registers.
    pub fn changes_arguments(&self) -> bool {
        crate::suffix::suffixed(&self.name).is_some_and(|of| of.changes_arguments)
    }

    /// Whether it has the version, as it stands after the first `@` of a name: with another one
    /// it is that of the default alone.
    pub(crate) fn has_version(&self, wanted: &str) -> bool {
        let own = self
            .version
            .as_deref()
            .and_then(|own| own.strip_prefix('@'));
        own.is_some_and(|own| own == wanted || own.strip_prefix('@') == Some(wanted))
    }

    /// The address after its last instruction.
    pub fn end(&self) -> u64 {
        self.address.0.saturating_add(self.size)
    }
}

/// All functions of a file.
///
/// # Invariants
/// `list` rises by address; of one address, the name that fits best is first.
/// `highest_ends` has as many items: the highest end among the functions up to
/// and including the one of the same index.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    pub(crate) list: Vec<Function>,
    highest_ends: Vec<u64>,
}

impl Functions {
    /// Functions of a file's own symbol tables, and of its compressed ones; and why some cannot be
    /// read. It is an error if its own cannot, and there are no others.
    pub(crate) fn read(elf: &Elf) -> Result<(Functions, Vec<String>), SymbolizeError> {
        let mut found = SymbolCollector::default();
        let own = found.read(elf, elf, false);
        let compressed = match debugdata::read(elf) {
            Ok(Some(compressed)) => found.read(&compressed, elf, true),
            Ok(None) => Vec::new(),
            Err(error) => vec![error],
        };
        found.index(own, compressed)
    }

    /// Functions of the code of `program` in the symbol tables of `elf`.
    pub(crate) fn read_of(
        elf: &Elf,
        program: &Elf,
    ) -> Result<(Functions, Vec<String>), SymbolizeError> {
        let mut found = SymbolCollector::default();
        let own = found.read(elf, program, false);
        found.index(own, Vec::new())
    }

    /// Adds functions where there is none yet.
    pub(crate) fn add(&mut self, mut more: Vec<Function>) {
        more.retain(|new| self.at(new.address).is_empty());
        if more.is_empty() {
            return;
        }
        let mut list = std::mem::take(self).list;
        list.extend(more);
        // Stable: of one address, the name that fits best stays first.
        list.sort_by_key(|function| function.address);
        *self = Functions::index(list);
    }

    // INVARIANT: the caller sorted the list; the ends are made here.
    fn index(list: Vec<Function>) -> Functions {
        let mut highest = 0;
        let highest_ends = list
            .iter()
            .map(|function| {
                highest = function.end().max(highest);
                highest
            })
            .collect();
        Functions { list, highest_ends }
    }

    /// All names of that very address.
    pub(crate) fn at(&self, address: Address) -> &[Function] {
        let from = self.list.partition_point(|f| f.address < address);
        let to = self.list.partition_point(|f| f.address <= address);
        self.list.get(from..to).unwrap_or_default()
    }

    /// The innermost function that holds the address. One without a size does if it is the last
    /// before the address that `reaches` says to go so far.
    pub(crate) fn holding(
        &self,
        address: Address,
        reaches: impl Fn(&Function) -> bool,
    ) -> Option<&Function> {
        let behind = self.list.partition_point(|f| f.address <= address);
        let before = self.list.get(..behind)?;
        let mut innermost: Option<&Function> = None;
        for (function, highest) in before
            .iter()
            .zip(&self.highest_ends)
            .rev()
            .take(OVERLAPS_MAX)
        {
            let passed = innermost.is_some_and(|inner| inner.address != function.address);
            if passed || *highest <= address.0 {
                break;
            }
            if function.end() > address.0 {
                innermost = Some(function);
            }
        }
        innermost.or_else(|| {
            let last = before.iter().rev().take(OVERLAPS_MAX);
            let mut last = last.take_while(|function| function.size == 0);
            let last = last.find(|function| reaches(function))?;
            let best = self.at(last.address).first()?;
            (best.size == 0).then_some(best)
        })
    }
}

/// How well a name stands for its address: the lower, the better.
type Rank = (bool, bool, u8, usize, usize);

/// Functions, as symbol tables are read.
struct SymbolCollector {
    functions: Vec<(Rank, Function)>,
    /// Bytes of names that there is room for.
    budget: u64,
}

impl Default for SymbolCollector {
    fn default() -> SymbolCollector {
        SymbolCollector {
            functions: Vec::new(),
            budget: NAMES_BYTES_MAX,
        }
    }
}

impl SymbolCollector {
    /// Adds the functions of the code of `program` in the symbol tables of `elf`; returns why some
    /// could not be read.
    fn read(&mut self, elf: &Elf, program: &Elf, is_compressed: bool) -> Vec<SymbolizeError> {
        let kinds = [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0];
        let tables = elf.sections.iter();
        let tables = tables.filter(|section| kinds.contains(&section.kind));
        tables
            .filter_map(|table| self.read_table(elf, program, table, is_compressed).err())
            .collect()
    }

    fn read_table(
        &mut self,
        elf: &Elf,
        program: &Elf,
        table: &Section,
        is_compressed: bool,
    ) -> Result<(), SymbolizeError> {
        let symbols = elf.data(table)?;
        let strings = match elf.sections.get(table.link as usize) {
            Some(strings) => elf.data(strings)?,
            None => return Err(elf.malformed("a symbol table has no names")),
        };
        let versions = Versions::of(elf, table, &strings);
        for (number, symbol) in symbols.chunks_exact(SYMBOL_BYTES).enumerate() {
            let section = u16_at(symbol, 6).and_then(|at| elf.sections.get(usize::from(at)));
            let Some((rank, mut function)) = parse_symbol(program, section, symbol, &strings)
            else {
                continue;
            };
            if function.version.is_none() {
                function.version = versions.as_ref().and_then(|all| all.of_symbol(number));
            }
            let version = function.version.as_ref().map_or(0, |version| version.len());
            self.budget = self
                .budget
                .checked_sub((function.name.len() + version) as u64)
                .ok_or_else(|| elf.malformed("its symbols have too many names"))?;
            function.is_compressed = is_compressed;
            self.functions.push((rank, function));
        }
        Ok(())
    }

    fn index(
        self,
        own: Vec<SymbolizeError>,
        others: Vec<SymbolizeError>,
    ) -> Result<(Functions, Vec<String>), SymbolizeError> {
        let mut found = self.functions;
        let failures = own.iter().chain(&others).map(ToString::to_string).collect();
        if let (true, Some(error)) = (found.is_empty(), own.into_iter().next()) {
            return Err(error);
        }
        found.sort_by(|(rank_a, a), (rank_b, b)| {
            a.address.cmp(&b.address).then_with(|| {
                let of_a = (rank_a, &a.name, a.version.is_none(), &a.version);
                of_a.cmp(&(rank_b, &b.name, b.version.is_none(), &b.version))
            })
        });
        found.dedup_by(|(_, b), (_, a)| {
            let is_same = a.address == b.address && a.name == b.name;
            is_same && (b.version.is_none() || a.version == b.version)
        });
        // Labels in functions are no beginnings of functions.
        let mut end = 0;
        found.retain(|(_, function)| {
            if function.kind == FunctionKind::Label {
                return end <= function.address.0;
            }
            end = function.end().max(end);
            true
        });
        let functions = found.into_iter().map(|(_, function)| function).collect();
        Ok((Functions::index(functions), failures))
    }
}

/// The versions of the symbols of a table.
struct Versions {
    /// The number of each symbol's, with a bit that it is not the default (ELF gABI, "Symbol
    /// Versioning" of the Linux Standard Base).
    numbers: Vec<u8>,
    names: HashMap<u16, String>,
}

impl Versions {
    /// Those of a table; none when the file has none of that table.
    fn of(elf: &Elf, table: &Section, strings: &[u8]) -> Option<Versions> {
        let section = |kind: elf::SectionType| {
            let mut sections = elf.sections.iter();
            sections.find(|section| section.kind == kind.0)
        };
        let of_symbols = section(elf::SHT_GNU_VERSYM)?;
        let is_own = table.kind == elf::SHT_DYNSYM.0;
        Some(Versions {
            numbers: elf.data(of_symbols).ok().filter(|_| is_own)?,
            names: version_names(&elf.data(section(elf::SHT_GNU_VERDEF)?).ok()?, strings),
        })
    }

    fn of_symbol(&self, symbol: usize) -> Option<Box<str>> {
        let number = u16_at(&self.numbers, symbol.checked_mul(2)?)?;
        let name = self.names.get(&(number & elf::VERSYM_VERSION))?;
        let marks = match number & elf::VERSYM_HIDDEN.0 {
            0 => "@@",
            _ => "@",
        };
        Some(format!("{marks}{name}").into())
    }
}

/// The names of the versions that a file defines, by their numbers.
fn version_names(definitions: &[u8], strings: &[u8]) -> HashMap<u16, String> {
    let mut names = HashMap::new();
    let mut rest = Some(definitions);
    for _ in 0..VERSIONS_MAX {
        let Some(definition) = rest else { break };
        let name = |definition: &[u8]| {
            let first = definition.get(u32_at(definition, 12)? as usize..)?;
            text_at(strings, u32_at(first, 0)?, VERSION_BYTES_MAX)
        };
        // The base names the file itself.
        let is_base = u16_at(definition, 2).is_none_or(|flags| flags & elf::VER_FLG_BASE.0 != 0);
        if let (false, Some(number), Some(name)) =
            (is_base, u16_at(definition, 4), name(definition))
        {
            names.insert(number, String::from_utf8_lossy(name).into_owned());
        }
        let next = u32_at(definition, 16).filter(|next| *next != 0);
        rest = next.and_then(|next| definition.get(next as usize..));
    }
    names
}

/// The function that a symbol in that section stands for, if it is one with code in the program.
fn parse_symbol(
    program: &Elf,
    section: Option<&Section>,
    symbol: &[u8],
    strings: &[u8],
) -> Option<(Rank, Function)> {
    let info = *symbol.get(4)?;
    let address = Address(u64_at(symbol, 8)?);
    let kind = match elf::SymbolType(info & 0xf) {
        elf::STT_FUNC => FunctionKind::Function,
        elf::STT_GNU_IFUNC => FunctionKind::IndirectResolver,
        elf::STT_NOTYPE => {
            section?.code_end(address.0)?;
            FunctionKind::Label
        }
        _ => return None,
    };
    let number = u16_at(symbol, 6)?;
    if number == elf::SHN_UNDEF.0 || number == elf::SHN_ABS.0 {
        return None;
    }
    let size = u64_at(symbol, 16)?;
    let file_offset = program.code_segment_at(address)?.offset_of(address)?;
    let name = text_at(strings, u32_at(symbol, 0)?, NAME_BYTES_MAX)?;
    // `memcpy@@GLIBC_2.14` of .symtab; the name itself holds no `@`.
    let marks = name.iter().position(|&byte| byte == b'@');
    let (name, version) = name.split_at(marks.unwrap_or(name.len()));
    if name.is_empty() {
        return None;
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let binding = match elf::SymbolBind(info >> 4) {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let is_label = kind == FunctionKind::Label;
    // An assembler's mark within a function: `function.loop`, as nasm writes it.
    if is_label && binding == 2 && name.contains('.') {
        return None;
    }
    let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
    let rank = (is_label, size == 0, binding, underscores, name.len());
    let version = (!version.is_empty()).then(|| String::from_utf8_lossy(version).into());
    let function = Function {
        name,
        version,
        file_offset,
        address,
        size,
        kind,
        is_compressed: false,
    };
    Some((rank, function))
}

/// The name of a symbol, and that without a version.
pub(crate) fn symbol_names<'a>(symbol: &[u8], strings: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let name = strings.get(u32_at(symbol, 0)? as usize..)?;
    let full = name.split(|byte| *byte == 0).next()?;
    let short = full.split(|byte| *byte == b'@').next()?;
    Some((full, short))
}

/// The variable that a symbol stands for, if it is one.
pub(crate) fn data_symbol(symbol: &[u8]) -> Option<DataSymbol> {
    let info = *symbol.get(4)?;
    if elf::SymbolType(info & 0xf) != elf::STT_OBJECT {
        return None;
    }
    let section = u16_at(symbol, 6)?;
    if section == elf::SHN_UNDEF.0 || section == elf::SHN_ABS.0 || section == elf::SHN_COMMON.0 {
        return None;
    }
    Some(DataSymbol {
        address: Address(u64_at(symbol, 8)?),
        size: u64_at(symbol, 16)?,
        global: elf::SymbolBind(info >> 4) != elf::STB_LOCAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(list: &[(&str, u64, u64)]) -> Functions {
        let function = |&(name, address, size): &(&str, u64, u64)| Function {
            name: name.to_owned(),
            version: None,
            file_offset: FileOffset(address),
            address: Address(address),
            size,
            kind: FunctionKind::Function,
            is_compressed: false,
        };
        Functions::index(list.iter().map(function).collect())
    }

    #[test]
    fn the_innermost_function_holds_an_address_and_gaps_hold_none() {
        let all = functions(&[
            ("outer", 100, 100),
            ("alias", 120, 10),
            ("inner", 120, 10),
            ("label", 250, 0),
            ("after", 300, 10),
            ("last", 400, 0),
        ]);
        for (address, name) in [
            (99, None),
            (100, Some("outer")),
            (120, Some("alias")),
            (129, Some("alias")),
            (130, Some("outer")),
            (199, Some("outer")),
            (200, None),
            (250, Some("label")),
            (299, Some("label")),
            (309, Some("after")),
            (310, None),
            (449, Some("last")),
            (450, None),
        ] {
            let found = all.holding(Address(address), |_| address < 450);
            assert_eq!(found.map(|f| f.name.as_str()), name, "{address}");
        }
    }

    #[test]
    fn a_function_without_a_size_holds_what_it_reaches() {
        let all = functions(&[("sized", 100, 10), ("first", 110, 0), ("mark", 120, 0)]);
        let found = |address, reaches: &[&str]| {
            let reaches = |function: &Function| reaches.contains(&function.name.as_str());
            let found = all.holding(Address(address), reaches);
            found.map(|function| function.name.as_str())
        };
        assert_eq!(found(125, &["first", "mark"]), Some("mark"));
        assert_eq!(found(125, &["first"]), Some("first"));
        assert_eq!(found(125, &["sized"]), None);
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let all = functions(&[("all", 1, u64::MAX), ("end", u64::MAX, u64::MAX)]);
        assert!(all.holding(Address(u64::MAX - 1), |_| true).is_some());
        assert!(all.holding(Address(0), |_| true).is_none());
    }
}
