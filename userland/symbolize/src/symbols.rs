// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a file, from its symbol tables and its procedure linkage
//! table.

use crate::image::{string_at, Image, Section};
use crate::{Address, Function, FunctionKind, Result};
use object::elf::{self, Rela64, Sym64};
use object::pod::slice_from_bytes;
use object::LittleEndian as LE;

/// Longest name that is kept, in bytes; a longer one names nothing that anybody
/// could type.
const NAME_BYTES_MAX: usize = 64 << 10;
/// Bytes of an entry of the procedure linkage table (System V psABI).
const PLT_ENTRY_BYTES: u64 = 16;

/// All functions whose code is in the file, by rising address.
pub(crate) fn functions(image: &Image) -> Result<Vec<Function>> {
    let mut all = Vec::new();
    for section in &image.sections {
        if section.kind == elf::SHT_SYMTAB.0 || section.kind == elf::SHT_DYNSYM.0 {
            read_table(image, section, &mut all)?;
        }
    }
    all.sort_by(|a, b| (a.address, &a.name, b.size).cmp(&(b.address, &b.name, a.size)));
    // The two tables share most names.
    all.dedup_by(|later, kept| later.address == kept.address && later.name == kept.name);
    Ok(all)
}

fn read_table(image: &Image, section: &Section, all: &mut Vec<Function>) -> Result<()> {
    let (symbols, strings) = table_bytes(image, section)?;
    for symbol in table(&symbols) {
        let kind = match symbol.st_type() {
            elf::STT_FUNC => FunctionKind::Function,
            elf::STT_GNU_IFUNC => FunctionKind::IndirectResolver,
            _ => continue,
        };
        let address = Address(symbol.st_value.get(LE));
        let (Some(file_offset), Some(name)) = (
            image.code_offset(address),
            name_of(&strings, symbol.st_name.get(LE)),
        ) else {
            continue;
        };
        if symbol.st_shndx.get(LE) == elf::SHN_UNDEF {
            continue;
        }
        all.push(Function {
            name,
            file_offset,
            address,
            size: symbol.st_size.get(LE),
            kind,
        });
    }
    Ok(())
}

fn table_bytes(image: &Image, section: &Section) -> Result<(Vec<u8>, Vec<u8>)> {
    let strings = image
        .sections
        .get(section.link as usize)
        .ok_or_else(|| image.malformed("a symbol table has no names"))?;
    Ok((image.data(section)?, image.data(strings)?))
}

fn table(bytes: &[u8]) -> &[Sym64<LE>] {
    let count = bytes.len() / size_of::<Sym64<LE>>();
    slice_from_bytes(bytes, count).map_or(&[], |(symbols, _)| symbols)
}

/// A symbol's name without its version (`name@@VERSION`).
fn name_of(strings: &[u8], at: u32) -> Option<String> {
    let name = string_at(strings, at);
    let end = name.iter().position(|&byte| byte == b'@');
    let name = &name[..end.unwrap_or(name.len())];
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    fits.then(|| String::from_utf8_lossy(name).into_owned())
}

/// The name of the function that the entry of the procedure linkage table at
/// `address` leads to: `name@plt`.
pub(crate) fn plt_name(image: &Image, address: Address) -> Option<String> {
    // With `.plt.sec` (-fcf-protection) its entries are what is called, one for
    // each relocation; without, those of `.plt`, behind a first one that resolves.
    let (section, skip) = match image.section(".plt.sec") {
        Some(section) if section.range().contains(&address.0) => (section, 0),
        _ => (image.section(".plt")?, 1),
    };
    if !section.range().contains(&address.0) {
        return None;
    }
    let entry = (address.0 - section.address) / PLT_ENTRY_BYTES;
    let relocation = entry.checked_sub(skip)?;
    let relocations = image.section(".rela.plt")?;
    let bytes = image.data(relocations).ok()?;
    let count = bytes.len() / size_of::<Rela64<LE>>();
    let (entries, _) = slice_from_bytes::<Rela64<LE>>(&bytes, count).ok()?;
    let symbol = entries
        .get(usize::try_from(relocation).ok()?)?
        .r_sym(LE, false);
    let symbols = image.sections.get(relocations.link as usize)?;
    let (symbols, strings) = table_bytes(image, symbols).ok()?;
    let symbol = table(&symbols).get(symbol as usize)?;
    Some(format!(
        "{}@plt",
        name_of(&strings, symbol.st_name.get(LE))?
    ))
}
