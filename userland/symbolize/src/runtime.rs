// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file's code does with its stack that a tracer must know.

use crate::elf::{text_at, u64_at, Elf};
use crate::Binary;

/// What functions of a file may do with the stack that they are called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// They return to their callers, and leave the stack where it is.
    Plain,
    /// Exceptions or panics may pass through them: the unwinder reads every return
    /// address on its way.
    Unwinding,
    /// Go: stacks are moved while functions run, with all return addresses.
    Go,
}

/// Sections that Go's linker makes.
const OF_GO: [&str; 3] = [".gopclntab", ".go.buildinfo", ".note.go.buildid"];

/// Libraries that programs with exceptions or panics are linked to.
const UNWINDERS: [&str; 4] = ["libgcc_s.so", "libstdc++.so", "libc++.so", "libunwind.so"];

/// A function that those have in them that are linked to no library.
const OWN_UNWINDER: &str = "_Unwind_RaiseException";

/// Longest name of a library.
const NAME_BYTES_MAX: usize = 4096;

/// `DT_NEEDED` of the System V ABI, chapter 5.
const DT_NEEDED: u64 = 1;
const DYNAMIC_BYTES: usize = 16;

impl Binary {
    /// Whether Go's linker made the file.
    pub(crate) fn is_go(&self) -> bool {
        OF_GO.iter().any(|name| self.elf.section(name).is_some())
    }

    /// What the file's functions may do with the stack.
    pub fn runtime(&self) -> Runtime {
        if self.is_go() {
            return Runtime::Go;
        }
        let is_unwinder = |name: &[u8]| {
            UNWINDERS
                .iter()
                .any(|unwinder| name.starts_with(unwinder.as_bytes()))
        };
        let raises = || self.functions().iter().any(|f| f.name == OWN_UNWINDER);
        match needs(&self.elf, is_unwinder) || raises() {
            true => Runtime::Unwinding,
            false => Runtime::Plain,
        }
    }
}

/// Whether the file asks for a library with such a name.
fn needs(elf: &Elf, wanted: impl Fn(&[u8]) -> bool) -> bool {
    let data = |name: &str| {
        let section = elf.section(name)?;
        elf.data(section).ok()
    };
    let (Some(dynamic), Some(strings)) = (data(".dynamic"), data(".dynstr")) else {
        return false;
    };
    dynamic.chunks_exact(DYNAMIC_BYTES).any(|entry| {
        let name = u64_at(entry, 8)
            .filter(|_| u64_at(entry, 0) == Some(DT_NEEDED))
            .and_then(|at| u32::try_from(at).ok())
            .and_then(|at| text_at(&strings, at, NAME_BYTES_MAX));
        name.is_some_and(&wanted)
    })
}
