// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function of a file, as its symbol tables tell it.

use crate::{Address, FileOffset};

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
}
