// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dynamic linker of a program, and the libraries that a file asks it for (gABI, "Program
//! Interpreter" and "Dynamic Section").

use crate::elf::{text_at, u64_at};
use crate::Binary;
use object::elf;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most libraries of one file.
const NEEDED_MAX: usize = 1024;
/// Longest name of a library, in bytes.
const NAME_BYTES_MAX: usize = 4096;
const ENTRY_BYTES: usize = 16;

/// What names of libc++ have in them: its inline namespace `std::__1`.
const OF_LIBCXX: &str = "St3__1";

impl Binary {
    /// Whether the file's C++ uses libc++: it needs that library, or its functions are of it.
    pub fn has_libcxx(&self) -> bool {
        let needs = || {
            self.needed()
                .iter()
                .any(|name| name.starts_with("libc++.so"))
        };
        let has = || {
            self.functions()
                .iter()
                .any(|function| function.name.contains(OF_LIBCXX))
        };
        needs() || has()
    }

    /// The path of the dynamic linker that it starts with; `None` for a static program.
    pub fn interpreter(&self) -> Option<PathBuf> {
        let (offset, bytes) = self.elf.interpreter?;
        let bytes = usize::try_from(bytes).ok();
        let mut path = vec![0; bytes.filter(|bytes| *bytes <= NAME_BYTES_MAX)?];
        self.elf.read_into(offset, &mut path).ok()?;
        let path = path.split(|byte| *byte == 0).next()?;
        (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
    }

    /// The names of the libraries that it needs, as it has them; none when they cannot
    /// be read.
    pub fn needed(&self) -> Vec<String> {
        self.dynamic_strings(elf::DT_NEEDED.0 as u64)
    }

    /// The directories that it has its libraries looked for in, before the usual ones; the file
    /// lies in `origin`.
    pub fn library_directories(&self, origin: &Path) -> Vec<PathBuf> {
        let mut paths = self.dynamic_strings(elf::DT_RUNPATH.0 as u64);
        if paths.is_empty() {
            paths = self.dynamic_strings(elf::DT_RPATH.0 as u64);
        }
        let origin = origin.to_string_lossy();
        let whole = |directory: &str| {
            let directory = directory.replace("${ORIGIN}", "$ORIGIN");
            PathBuf::from(directory.replace("$ORIGIN", &origin))
        };
        let all = paths.iter().flat_map(|paths| paths.split(':'));
        let named = all.filter(|directory| !directory.is_empty());
        named.map(whole).take(NEEDED_MAX).collect()
    }

    /// The strings of the dynamic section's entries of this tag.
    fn dynamic_strings(&self, tag: u64) -> Vec<String> {
        let is_dynamic = |section: &&crate::elf::Section| section.kind == elf::SHT_DYNAMIC.0;
        let Some(dynamic) = self.elf.sections.iter().find(is_dynamic) else {
            return Vec::new();
        };
        let strings = self.elf.sections.get(dynamic.link as usize);
        let (Ok(entries), Some(Ok(strings))) = (
            self.elf.data(dynamic),
            strings.map(|strings| self.elf.data(strings)),
        ) else {
            return Vec::new();
        };
        let names = entries.chunks_exact(ENTRY_BYTES).filter_map(|entry| {
            let is_meant = u64_at(entry, 0)? == tag;
            let at = u32::try_from(u64_at(entry, 8)?).ok()?;
            let name = text_at(&strings, at, NAME_BYTES_MAX).filter(|_| is_meant)?;
            Some(String::from_utf8_lossy(name).into_owned())
        });
        names.take(NEEDED_MAX).collect()
    }
}
