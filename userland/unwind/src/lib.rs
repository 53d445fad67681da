// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwind rows of a file, compiled from what its compiler says of its frames.
//!
//! `.eh_frame` and `.debug_frame` are programs that build a table (DWARF 5, section
//! 6.4.1). This crate runs them once for a whole file and keeps of each row what is
//! needed to find the caller: the [`Table`] of `nsprobe_common::unwind`, which the kernel
//! module takes as it is. Go's compiler writes tables of its own instead, which are read
//! as well; where all these say nothing, `.sframe` may.
//!
//! A [`Cache`] keeps tables on disk, by a digest of all that they were computed from.
//!
//! The bytes are hostile: what cannot be read ends the section, what cannot be expressed
//! is marked and counted, and the sizes are bounded.
#![forbid(unsafe_code)]

mod build;
mod cache;
mod cfi;
mod frames;
mod go;
mod input;
mod rule;
mod sframe;
mod starts;

pub use cache::{Cache, CacheError};
pub use frames::Frames;
pub use input::{Digest, Input};
pub use starts::FunctionStarts;

use nsprobe_common::unwind::{Row, Rule, Table};
use nsprobe_symbolize::Binary;

/// The rows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// The number of the first block of 64 KiB.
    pub first: u64,
    /// Where the rows of each block begin, and where the last ones end.
    pub blocks: Vec<u32>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The rules that rows name.
    pub rules: Vec<Rule>,
    /// What could not be expressed.
    pub left_out: LeftOut,
}

/// What a table lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Rows whose rule has no expression here; they are in the table, as such.
    pub unsupported: u64,
    /// Functions whose description cannot be read.
    pub unreadable: u64,
}

/// Why a file has no table.
#[derive(Debug, thiserror::Error)]
pub enum UnwindError {
    /// Its sections cannot be read.
    #[error(transparent)]
    Sections(#[from] nsprobe_symbolize::SymbolizeError),
    /// There is nothing that describes frames.
    #[error(
        "the file has no .eh_frame, .debug_frame, .sframe or .gopclntab that describes its code, \
         and no debug file of it with a .debug_frame was found"
    )]
    Nothing,
    /// It has more than a table takes.
    #[error("the file describes too many frames")]
    TooBig,
}

impl UnwindTable {
    /// Compiles the table of a file.
    pub fn of(binary: &Binary) -> Result<UnwindTable, UnwindError> {
        Input::of(binary, None)?.compile()
    }

    /// The table as bytes, marked as that of an input with this digest.
    pub fn to_bytes(&self, of: Digest) -> Vec<u8> {
        cache::encode(of, self)
    }

    /// Reads back [`to_bytes`](UnwindTable::to_bytes); none when the bytes are anything
    /// else than a sound table that is marked so.
    pub fn from_bytes(of: Digest, bytes: &[u8]) -> Option<UnwindTable> {
        cache::decode(of, bytes, bytes.len() as u64)
    }

    /// For lookups.
    pub fn table(&self) -> Table<'_> {
        Table::kept(self.first, &self.blocks, &self.rows, &self.rules)
    }

    /// How much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.blocks) + size_of_val(&*self.rows) + size_of_val(&*self.rules)
    }
}
