// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for code: functions of an ELF file, and source frames of an offset.
//!
//! This crate parses hostile bytes and joins no namespace: it is given an open
//! file. It reads with `pread` into memory of its own (no `mmap`: a file that is
//! cut short would kill us with SIGBUS), caps every size that the file declares,
//! and opens no path that a file names.
//!
//! Names that come out are as the file has them: print them through `nsprobe_text::escaped`.
#![forbid(unsafe_code)]

mod binary;
mod call;
mod debug_file;
mod debug_set;
mod debugdata;
pub mod demangle;
mod dwarf;
mod dynamic;
mod elf;
mod error;
mod function;
mod go;
mod go_names;
mod jit;
mod jit_dump;
mod jit_perf_map;
mod kernel;
mod layout;
// One definition for both crates, of which neither may use the other.
mod elf_from_debug_file;
mod needed;
mod nesting;
mod open_files;
mod parts;
mod plt;
mod resolve;
mod sections;
mod short_names;
mod signature;
mod split;
mod suffix;
mod usdt;

pub use binary::{AtOffset, Binary, Segment};
pub use debug_file::{debug_file_names, is_plain_name, DataSymbol, DebugLink, Supplementary};
pub use debug_set::DebugSet;
pub use error::{SymbolizeError, Unresolved};
pub use function::{Function, FunctionKind};
pub use go::{
    GoCode, GoFunction, GoTable, GoValues, GO_FLAG_ASSEMBLY, GO_FLAG_SETS_STACK, GO_FLAG_TOP_FRAME,
};
pub use jit::{JitName, JitNameThen};
pub use jit_dump::JitDump;
pub use jit_perf_map::PerfMap;
pub use kernel::{own_vdso, KernelSymbol, KernelSymbols, VDSO};
pub use nesting::stay_in_one_thread;
pub use open_files::{FoundIn, NamesFrom, OpenFile, OpenFiles};
pub use resolve::{FrameSource, Lookup, Resolution, SourceFrame};
pub use sections::{GoSections, LoadedSection, SectionData, UnwindSections};
pub use short_names::shortened;
pub use split::{SplitSections, SplitUnit};
pub use usdt::Usdt;

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place in a file, in bytes from its beginning: what the kernel probes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize,
)]
pub struct FileOffset(pub u64);

/// An address as the file's own headers and tables count it: what `nm` prints.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize,
)]
pub struct Address(pub u64);

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
