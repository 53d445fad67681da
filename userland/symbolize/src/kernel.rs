// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own symbols, and the code that it maps into each program.

use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// What the vDSO is called in the list of a process's mappings.
pub const VDSO: &str = "[vdso]";

/// Most bytes of a vDSO: it has a few pages.
const VDSO_BYTES_MAX: u64 = 1 << 20;

/// A function of the kernel or one of its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol {
    /// Where it begins.
    pub address: u64,
    /// Its name.
    pub name: String,
    /// The module that it belongs to.
    pub module: Option<String>,
}

/// The functions of the running kernel, as `/proc/kallsyms` lists them.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    by_address: Vec<KernelSymbol>,
}

impl KernelSymbols {
    /// Reads those of the running kernel. `None`, without an error, if the kernel hides their
    /// addresses from us (`kptr_restrict`).
    pub fn read() -> io::Result<KernelSymbols> {
        Ok(KernelSymbols::parse(&fs::read_to_string("/proc/kallsyms")?))
    }

    /// Lines of `ADDRESS TYPE NAME`, and after a tab `[MODULE]` (`s_show` of
    /// `kernel/kallsyms.c`).
    fn parse(text: &str) -> KernelSymbols {
        let mut by_address: Vec<KernelSymbol> = text.lines().filter_map(symbol).collect();
        by_address.sort_by_key(|symbol| symbol.address);
        KernelSymbols { by_address }
    }

    /// The function that a return address lies in.
    pub fn find(&self, return_address: u64) -> Option<&KernelSymbol> {
        let inside = return_address.checked_sub(1)?;
        let behind = self
            .by_address
            .partition_point(|symbol| symbol.address <= inside);
        self.by_address.get(behind.checked_sub(1)?)
    }
}

fn symbol(line: &str) -> Option<KernelSymbol> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next()?.to_owned();
    let module = words.next().map(|word| word.trim_matches(['[', ']']));
    (is_code && address != 0).then(|| KernelSymbol {
        address,
        name,
        module: module.map(str::to_owned),
    })
}

/// The vDSO that this process has, as a file in memory. Processes of the same kind (64-bit
/// ones, say) of one kernel have the same.
pub fn own_vdso() -> io::Result<File> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "this process has no vDSO");
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with(VDSO));
    let range = line
        .and_then(|line| line.split_once(' '))
        .map(|(range, _)| range);
    let (start, end) = range.and_then(addresses).ok_or_else(missing)?;
    let bytes = end.saturating_sub(start).min(VDSO_BYTES_MAX);
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    let mut image = Vec::new();
    memory.take(bytes).read_to_end(&mut image)?;
    let mut file = File::from(memfd_create(c"vdso", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&image)?;
    Ok(file)
}

/// The ends of `START-END` in hexadecimal.
fn addresses(range: &str) -> Option<(u64, u64)> {
    let (start, end) = range.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Binary;
    use std::path::Path;

    #[test]
    fn symbols_are_found_by_return_address() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t do_one\n\
                    ffffffff82000000 D data\nffffffffc0000010 t hook\t[nsprobe]\n";
        let symbols = KernelSymbols::parse(text);
        let name = |address| symbols.find(address).map(|symbol| symbol.name.as_str());
        assert_eq!(name(0xffffffff81000000), None);
        assert_eq!(name(0xffffffff81000001), Some("_stext"));
        // A call that never returns may be the last of its function.
        assert_eq!(name(0xffffffff81000100), Some("_stext"));
        assert_eq!(name(0xffffffff81000101), Some("do_one"));
        let hook = symbols.find(0xffffffffc0000020).unwrap();
        assert_eq!(hook.module.as_deref(), Some("nsprobe"));
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        let symbols = KernelSymbols::parse("0000000000000000 T _stext\n");
        assert_eq!(symbols.find(0xffffffff81000001), None);
    }

    #[test]
    fn the_vdso_is_a_library_with_names() {
        let binary = Binary::open(own_vdso().unwrap(), Path::new(VDSO)).unwrap();
        assert!(binary.has_symbols());
        assert!(binary.build_id().is_some());
    }
}
