// SPDX-License-Identifier: MIT OR Apache-2.0
//! The procedure linkage table: which imported function each stub jumps to.
//!
//! A stub jumps through a slot of the global offset table; the relocation of
//! that slot names the function. So no order of stubs is assumed.

use crate::elf::{text_at, u32_at, u64_at, Elf, Section};
use crate::Address;
use object::elf;
use std::collections::HashMap;

/// Sections with stubs, and the size of a stub if the section does not give it.
const STUB_SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
const STUB_BYTES: u64 = 16;
const RELOCATION_BYTES: usize = 24;
const SYMBOL_BYTES: usize = 24;
const NAME_BYTES_MAX: usize = 4 << 10;
/// `jmp *x(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PltEntry {
    pub(crate) start: Address,
    end: u64,
    /// The name of the function that it jumps to.
    pub(crate) name: String,
}

/// All stubs by rising address; none when the file contradicts itself.
pub(crate) fn read(elf: &Elf) -> Vec<PltEntry> {
    let slots = slots(elf);
    let mut entries: Vec<PltEntry> = STUB_SECTIONS
        .iter()
        .filter_map(|name| elf.section(name))
        .flat_map(|section| stubs(elf, section, &slots))
        .collect();
    entries.sort_by_key(|entry| entry.start);
    entries
}

pub(crate) fn holding(entries: &[PltEntry], address: Address) -> Option<&PltEntry> {
    let behind = entries.partition_point(|entry| entry.start <= address);
    let entry = entries.get(behind.checked_sub(1)?)?;
    (address.0 < entry.end).then_some(entry)
}

/// The function of the file itself behind a slot of the global offset table, by the slot.
pub(crate) fn own(elf: &Elf) -> HashMap<u64, u64> {
    let mut own = HashMap::new();
    let tables = [elf.section(".got"), elf.section(".got.plt")];
    let is_slot = |at: u64| {
        let mut tables = tables.iter().flatten();
        tables.any(|table| at.wrapping_sub(table.address) < table.bytes)
    };
    each_relocation(elf, |relocation, symbols, _| {
        let slot = u64_at(relocation, 0).filter(|at| is_slot(*at))?;
        own.insert(slot, own_function(relocation, symbols)?);
        Some(())
    });
    own
}

/// What a relocation puts into a slot, when that is a function of the file itself.
fn own_function(relocation: &[u8], symbols: &[u8]) -> Option<u64> {
    if u32_at(relocation, 8)? == elf::R_X86_64_RELATIVE.0 {
        return u64_at(relocation, 16);
    }
    let symbol = symbols.get(symbol_of(relocation)?..)?;
    // Elf64_Sym: the name (4 bytes), the kind (1), visibility (1), the section (2), the value.
    let (kind, section) = (*symbol.get(4)?, symbol.get(6..8)?);
    let is_function = kind & 0xf == elf::STT_FUNC.0 && section != [0, 0];
    u64_at(symbol, 8).filter(|_| is_function)
}

/// Where in the symbols the one is that a relocation of a slot names.
fn symbol_of(relocation: &[u8]) -> Option<usize> {
    let kind = u32_at(relocation, 8)?;
    let is_of_slot = kind == elf::R_X86_64_GLOB_DAT.0 || kind == elf::R_X86_64_JUMP_SLOT.0;
    let symbol = (u32_at(relocation, 12)? as usize).checked_mul(SYMBOL_BYTES)?;
    is_of_slot.then_some(symbol)
}

/// The name of the imported function behind each slot, and the resolver of the indirect function
/// of the file itself.
pub(crate) fn names(elf: &Elf) -> (HashMap<u64, String>, HashMap<u64, u64>) {
    let mut resolvers = HashMap::new();
    each_relocation(elf, |relocation, _, _| {
        if u32_at(relocation, 8)? == elf::R_X86_64_IRELATIVE.0 {
            resolvers.insert(u64_at(relocation, 0)?, u64_at(relocation, 16)?);
        }
        Some(())
    });
    (slots(elf), resolvers)
}

/// The name behind each slot of the global offset table.
fn slots(elf: &Elf) -> HashMap<u64, String> {
    let mut slots = HashMap::new();
    each_relocation(elf, |relocation, symbols, strings| {
        let name = text_at(
            strings,
            u32_at(symbols, symbol_of(relocation)?)?,
            NAME_BYTES_MAX,
        )?;
        let name = String::from_utf8_lossy(name).into_owned();
        slots.insert(u64_at(relocation, 0)?, name);
        Some(())
    });
    slots
}

/// Hands each relocation of the dynamic linker's to `look`, with the symbols and their names.
fn each_relocation(elf: &Elf, mut look: impl FnMut(&[u8], &[u8], &[u8]) -> Option<()>) {
    let is_loaded = |section: &&Section| {
        section.kind == elf::SHT_RELA.0 && section.flags & elf::SHF_ALLOC.0 != 0
    };
    for table in elf.sections.iter().filter(is_loaded) {
        // A static program relocates itself, by its own symbol table or by none.
        let has_symbols =
            |section: &&Section| [elf::SHT_DYNSYM.0, elf::SHT_SYMTAB.0].contains(&section.kind);
        let symbols = elf.sections.get(table.link as usize).filter(has_symbols);
        let strings = symbols.and_then(|symbols| elf.sections.get(symbols.link as usize));
        let data = |section| elf.data(section).unwrap_or_default();
        let table = data(table);
        let symbols = symbols.map(data).unwrap_or_default();
        let strings = strings.map(data).unwrap_or_default();
        for relocation in table.chunks_exact(RELOCATION_BYTES) {
            look(relocation, &symbols, &strings);
        }
    }
}

fn stubs(elf: &Elf, section: &Section, slots: &HashMap<u64, String>) -> Vec<PltEntry> {
    // Any other size is a lie or a kind of stub that we do not know.
    let stub_bytes = match section.entry_bytes {
        8 => 8,
        _ => STUB_BYTES,
    };
    let code = elf.data(section).unwrap_or_default();
    let stub = |(index, stub): (usize, &[u8])| {
        let start = section.address.checked_add(index as u64 * stub_bytes)?;
        let jump = stub.windows(JUMP.len()).position(|bytes| bytes == JUMP)?;
        let distance = u32_at(stub, jump + JUMP.len())? as i32;
        let next = start.checked_add(jump as u64 + 6)?;
        let slot = next.wrapping_add_signed(distance.into());
        Some(PltEntry {
            start: Address(start),
            end: start.checked_add(stub_bytes)?,
            name: slots.get(&slot)?.clone(),
        })
    };
    let chunks = code.chunks_exact(stub_bytes as usize).enumerate();
    chunks.filter_map(stub).collect()
}
