// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is read in parts, and has to stay the same meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Changes when the file is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: (i64, u64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Stamp> {
        // The system call fstat: statx takes a path, which the worker may not.
        let stat = rustix::fs::fstat(file)?;
        Ok(Stamp {
            bytes: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        })
    }
}

/// An open file and what it was when it was opened, or a file that is in memory.
#[derive(Debug)]
pub(crate) enum WatchedFile {
    Open(File, Stamp),
    Memory(Vec<u8>),
}

impl WatchedFile {
    pub(crate) fn new(file: File) -> io::Result<WatchedFile> {
        let stamp = Stamp::of(&file)?;
        Ok(WatchedFile::Open(file, stamp))
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            WatchedFile::Open(_, stamp) => stamp.bytes,
            WatchedFile::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the file was not written to since.
    pub(crate) fn is_unchanged(&self) -> bool {
        match self {
            WatchedFile::Open(file, stamp) => Stamp::of(file).ok() == Some(*stamp),
            WatchedFile::Memory(_) => true,
        }
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            WatchedFile::Open(file, _) => file.read_exact_at(out, offset),
            WatchedFile::Memory(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let bytes = bytes.get(from..).and_then(|bytes| bytes.get(..out.len()));
                out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    /// Fills `out` from the file offset on with what was there when it was opened; fails where
    /// that cannot be said.
    pub(crate) fn read_unchanged(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read(offset, out)?;
        match self.is_unchanged() {
            true => Ok(()),
            false => Err(io::Error::other("somebody wrote to it")),
        }
    }
}
