// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function of a file, as its symbol tables tell it, and the index of all.

use crate::elf::{text_at, u16_at, u32_at, u64_at, Elf, Section};
use crate::{Address, DataSymbol, FileOffset, Result};
use object::elf;

/// Longest symbol name, in bytes; a symbol with a longer one is left out.
const NAME_BYTES_MAX: usize = 64 << 10;
/// Most bytes of names in all: tables whose names overlap would need more.
const NAMES_BYTES_MAX: u64 = 512 << 20;
/// How many functions before an address are looked at for one that holds it.
const OVERLAPS_MAX: usize = 64;
pub(crate) const SYMBOL_BYTES: usize = 24;

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// A function.
    Function,
    /// The resolver of an indirect function: it runs once and returns the
    /// address of the implementation. A probe on it counts no calls.
    IndirectResolver,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name as the symbol table has it, without a symbol version.
    pub name: String,
    /// Where its code begins in the file.
    pub file_offset: FileOffset,
    /// Where its code begins by the file's own count.
    pub address: Address,
    /// Its length in bytes; 0 when the symbol table does not say.
    pub size: u64,
    /// What it stands for.
    pub kind: FunctionKind,
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

    /// The address behind its last instruction.
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
    pub(crate) fn read(elf: &Elf) -> Result<Functions> {
        Functions::read_of(elf, elf)
    }

    /// Those that the symbol tables of `elf` tell of the code of `program`.
    pub(crate) fn read_of(elf: &Elf, program: &Elf) -> Result<Functions> {
        let mut found = Vec::new();
        let mut budget = NAMES_BYTES_MAX;
        for table in &elf.sections {
            if [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0].contains(&table.kind) {
                read_table(elf, program, table, &mut found, &mut budget)?;
            }
        }
        found.sort_by(|(rank_a, a), (rank_b, b)| {
            (a.address, rank_a, &a.name).cmp(&(b.address, rank_b, &b.name))
        });
        found.dedup_by(|(_, b), (_, a)| a.address == b.address && a.name == b.name);
        Ok(Functions::index(
            found.into_iter().map(|(_, f)| f).collect(),
        ))
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

    /// The innermost function that holds the address. One without a size ends
    /// where the next begins, or before that at the `limit` of its own address.
    pub(crate) fn holding(
        &self,
        address: Address,
        limit: impl Fn(Address) -> u64,
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
            let last = self.at(before.last()?.address).first()?;
            let next = self
                .list
                .get(behind)
                .map_or(u64::MAX, |next| next.address.0);
            let next = next.min(limit(last.address));
            (last.size == 0 && address.0 < next).then_some(last)
        })
    }
}

/// How well a name stands for its address: the lower, the better.
type Rank = (bool, u8, usize, usize);

fn read_table(
    elf: &Elf,
    program: &Elf,
    table: &Section,
    found: &mut Vec<(Rank, Function)>,
    budget: &mut u64,
) -> Result<()> {
    let symbols = elf.data(table)?;
    let strings = match elf.sections.get(table.link as usize) {
        Some(strings) => elf.data(strings)?,
        None => return Err(elf.malformed("a symbol table has no names")),
    };
    for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
        let Some((rank, function)) = parse_symbol(program, symbol, &strings) else {
            continue;
        };
        *budget = budget
            .checked_sub(function.name.len() as u64)
            .ok_or_else(|| elf.malformed("its symbols have too many names"))?;
        found.push((rank, function));
    }
    Ok(())
}

/// The function that a symbol stands for, if it is one with code in the program.
fn parse_symbol(program: &Elf, symbol: &[u8], strings: &[u8]) -> Option<(Rank, Function)> {
    let info = *symbol.get(4)?;
    let kind = match elf::SymbolType(info & 0xf) {
        elf::STT_FUNC => FunctionKind::Function,
        elf::STT_GNU_IFUNC => FunctionKind::IndirectResolver,
        _ => return None,
    };
    let section = u16_at(symbol, 6)?;
    if section == elf::SHN_UNDEF.0 || section == elf::SHN_ABS.0 {
        return None;
    }
    let address = Address(u64_at(symbol, 8)?);
    let size = u64_at(symbol, 16)?;
    let file_offset = program.code_segment_at(address)?.offset_of(address)?;
    let name = text_at(strings, u32_at(symbol, 0)?, NAME_BYTES_MAX)?;
    // `memcpy@@GLIBC_2.14` of .symtab; the name itself holds no `@`.
    let name = name.split(|&byte| byte == b'@').next()?;
    if name.is_empty() {
        return None;
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let binding = match elf::SymbolBind(info >> 4) {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
    let rank = (size == 0, binding, underscores, name.len());
    let function = Function {
        name,
        file_offset,
        address,
        size,
        kind,
    };
    Some((rank, function))
}

/// The variable that a symbol stands for, if it is one of that name.
pub(crate) fn data_symbol(symbol: &[u8], strings: &[u8], wanted: &[u8]) -> Option<DataSymbol> {
    let info = *symbol.get(4)?;
    if elf::SymbolType(info & 0xf) != elf::STT_OBJECT {
        return None;
    }
    let section = u16_at(symbol, 6)?;
    if section == elf::SHN_UNDEF.0 || section == elf::SHN_ABS.0 || section == elf::SHN_COMMON.0 {
        return None;
    }
    let name = strings.get(u32_at(symbol, 0)? as usize..)?;
    // The name, or the name with a version.
    let behind = name.strip_prefix(wanted)?.first()?;
    (*behind == 0 || *behind == b'@').then_some(DataSymbol {
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
            file_offset: FileOffset(address),
            address: Address(address),
            size,
            kind: FunctionKind::Function,
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
            let found = all.holding(Address(address), |_| 450);
            assert_eq!(found.map(|f| f.name.as_str()), name, "{address}");
        }
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let all = functions(&[("all", 1, u64::MAX), ("end", u64::MAX, u64::MAX)]);
        assert!(all.holding(Address(u64::MAX - 1), |_| u64::MAX).is_some());
        assert!(all.holding(Address(0), |_| u64::MAX).is_none());
    }
}
