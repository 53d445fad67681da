// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that binutils' nm finds in a file: what nsprobe's own list is judged by.

use std::path::Path;
use std::process::Command;

/// A symbol of code; a stub of the linkage table has no size.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    address: u64,
    size: u64,
    name: String,
    is_stub: bool,
}

/// All symbols of code, by address.
pub(crate) struct Symbols(Vec<Symbol>);

/// Bytes of a stub (x86-64 psABI, with or without IBT).
const STUB_BYTES: u64 = 16;

impl Symbols {
    /// `None`, with a printed reason, without nm.
    pub(crate) fn of(path: &Path) -> Option<Symbols> {
        let mut all = Vec::new();
        for table in [&["-P", "--synthetic"][..], &["-P", "--synthetic", "-D"]] {
            let output = nsprobe_testing::output(Command::new("nm").args(table).arg(path))?;
            let text = String::from_utf8_lossy(&output.stdout);
            all.extend(text.lines().filter_map(symbol));
        }
        all.sort();
        all.dedup();
        Some(Symbols(all))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The symbols of which an address is a part, those that begin last.
    fn at(&self, address: u64) -> &[Symbol] {
        let behind = self.0.partition_point(|one| one.address <= address);
        let holds = |one: &Symbol| address - one.address < one.size;
        let Some(last) = self.0[..behind].iter().rev().find(|one| holds(one)) else {
            return &[];
        };
        let from = self.0.partition_point(|one| one.address < last.address);
        let to = self.0.partition_point(|one| one.address <= last.address);
        &self.0[from..to]
    }

    /// Whether no function with a size reaches to an address.
    pub(crate) fn is_padding(&self, address: u64) -> bool {
        self.at(address).is_empty()
    }

    /// All names of the code that holds an address.
    pub(crate) fn names(&self, address: u64) -> impl Iterator<Item = &str> {
        self.at(address).iter().map(|one| one.name.as_str())
    }

    /// The name of the stub at an address, without the `@plt`.
    pub(crate) fn stub(&self, address: u64) -> Option<&str> {
        let behind = self.0.partition_point(|one| one.address <= address);
        let stubs = self.0[..behind].iter().rev().filter(|one| one.is_stub);
        let nearest = stubs
            .take(1)
            .find(|one| address - one.address < STUB_BYTES)?;
        Some(&nearest.name)
    }
}

/// `name T value size`.
fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split(' ');
    let (name, kind, address) = (words.next()?, words.next()?, words.next()?);
    if !["T", "t", "W", "w", "i"].contains(&kind) {
        return None;
    }
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let size = words.next().and_then(number).unwrap_or(0);
    // `fclose@@GLIBC_2.2.5`: the version is no part of the name.
    let stub = name.strip_suffix("@plt").filter(|_| size == 0);
    let plain = stub.unwrap_or(name).split('@').next()?;
    Some(Symbol {
        address: number(address)?,
        size,
        name: plain.to_owned(),
        is_stub: stub.is_some(),
    })
}
