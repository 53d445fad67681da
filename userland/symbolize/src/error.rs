// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a file cannot be used, and why an offset has no name.

use crate::FileOffset;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolizeError {
    /// Not an ELF file.
    #[error("{} is {what}, not an ELF file", path.display())]
    NotElf {
        /// The file, as its user calls it.
        path: PathBuf,
        /// What it seems to be.
        what: &'static str,
    },
    /// An ELF file, but not of 64-bit x86 programs.
    #[error("{} is an ELF file for {machine}, not for 64-bit x86", path.display())]
    WrongMachine {
        /// The file, as its user calls it.
        path: PathBuf,
        /// What it is for.
        machine: String,
    },
    /// An ELF file, but neither an executable nor a shared library.
    #[error("{} is {what}, neither an executable nor a shared library", path.display())]
    WrongKind {
        /// The file, as its user calls it.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Headers or tables contradict themselves, or the file is cut short.
    #[error("{} is malformed: {why}", path.display())]
    Malformed {
        /// The file, as its user calls it.
        path: PathBuf,
        /// The first contradiction.
        why: String,
    },
    /// The file, or something that it declares, is larger than we read.
    #[error("{} is too big: {what} of {bytes} bytes (at most {limit})", path.display())]
    TooBig {
        /// The file, as its user calls it.
        path: PathBuf,
        /// What is too big.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The largest that is read.
        limit: u64,
    },
    /// The file changed while it was read.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file, as its user calls it.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file, as its user calls it.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Why an offset has no name.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum Unresolved {
    /// No segment is loaded from that offset.
    #[error("offset {0} is in no loaded segment")]
    NotLoaded(FileOffset),
    /// The offset is in data.
    #[error("offset {0} is not in an executable segment")]
    NotExecutable(FileOffset),
    /// The file has no symbols at all (stripped).
    #[error("the file has no symbols")]
    NoSymbols,
    /// No function holds the offset.
    #[error("offset {0} is between the known functions")]
    BetweenFunctions(FileOffset),
}
