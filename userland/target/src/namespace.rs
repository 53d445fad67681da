// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens files as a process sees them: by a thread that joins its mount
//! namespace, and fails closed.

use crate::{Process, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A regular file of a target, open for reading.
///
/// It keeps the container's file system busy: drop it as soon as the probe is
/// attached and the symbols are read.
#[derive(Debug)]
pub struct OpenedFile {
    /// The open file.
    pub file: File,
    /// The path asked for, as the target sees it.
    pub path: PathBuf,
    /// Its device, as `stat` says.
    pub dev: u64,
    /// Its inode number, as `stat` says.
    pub ino: u64,
    /// Its size in bytes when it was opened.
    pub size: u64,
}

/// How files are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    /// How long the target's file system may take to answer.
    pub limit: Duration,
}

impl Default for Opener {
    fn default() -> Self {
        Opener {
            limit: Duration::from_secs(2),
        }
    }
}

impl Opener {
    /// Opens `path` as `process` sees it. A relative path starts at its root.
    pub fn open_in(&self, process: &Process, path: &Path) -> Result<OpenedFile> {
        todo!("{process:?} {path:?}")
    }

    /// Opens `path` as we see it, with the same checks of what it is. A
    /// relative path starts at our working directory.
    pub fn open_here(&self, path: &Path) -> Result<OpenedFile> {
        todo!("{path:?}")
    }
}

/// [`Opener::open_in`] with the default limit of two seconds.
pub fn open_in(process: &Process, path: &Path) -> Result<OpenedFile> {
    Opener::default().open_in(process, path)
}

/// [`Opener::open_here`] with the default limit of two seconds.
pub fn open_here(path: &Path) -> Result<OpenedFile> {
    Opener::default().open_here(path)
}
