// SPDX-License-Identifier: MIT OR Apache-2.0
//! From an offset to source frames: by DWARF, else by the symbol table, else by
//! the procedure linkage table.

/// How an offset came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The address of an instruction: the probe, an interrupted instruction.
    Instruction,
    /// A return address: it is looked up one byte earlier, inside the call,
    /// since the function may end with it.
    ReturnAddress,
}

/// Where a resolution comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// DWARF, with lines and inlined functions.
    Dwarf,
    /// The symbol tables.
    Symbols,
    /// The procedure linkage table: `name@plt`.
    Plt,
}

/// One function at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// Its readable name.
    pub function: String,
    /// How far into the function the offset is, in bytes; not known for
    /// inlined ones.
    pub function_offset: Option<u64>,
    /// The source file, as the compiler was given it. Never open it.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// Whether it was inlined into the next frame.
    pub inlined: bool,
}

/// What an offset resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The frames, the innermost inlined function first; never empty.
    pub frames: Vec<SourceFrame>,
    /// Where they come from.
    pub source: Source,
    /// Why DWARF was there but was not used.
    pub note: Option<String>,
}
