// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has mapped, as `/proc/PID/maps` tells it.

use std::path::PathBuf;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub file_offset: u64,
    /// The device of the file, as `makedev` packs it; 0 without a file. On
    /// overlayfs it need not be what `stat` says.
    pub dev: u64,
    /// The inode number of the file; 0 without one.
    pub ino: u64,
    /// Whether it is executable now.
    pub executable: bool,
    /// The file's path as the kernel prints it, or a name like `[vdso]`; empty
    /// for anonymous memory. The process chooses it: escape it before printing.
    pub path: PathBuf,
    /// Whether the file is no longer at that path.
    pub deleted: bool,
}

/// A library that processes have mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its path as the processes see it.
    pub path: PathBuf,
    /// The device, as in [`Mapping::dev`].
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// Whether the file is no longer at that path (upgraded since).
    pub deleted: bool,
    /// The processes that have it mapped.
    pub pids: Vec<u32>,
}
