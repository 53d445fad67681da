// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a capsule is written to: a file, with room kept back for its end; or a pipe.

use crate::write::Written;
use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;

/// Bytes that are asked for ahead of what is written.
const AHEAD_BYTES: u64 = 1 << 20;

/// What takes chunks.
pub trait Output {
    /// Appends all of `bytes`, or nothing of it when there is no room.
    fn append(&mut self, bytes: &[u8]) -> io::Result<Written>;

    /// From here on this number of bytes is kept back.
    fn keep_back(&mut self, _bytes: u64) {}

    /// Called once, when all bytes have been appended.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<O: Output + ?Sized> Output for Box<O> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<Written> {
        (**self).append(bytes)
    }

    fn keep_back(&mut self, bytes: u64) {
        (**self).keep_back(bytes);
    }

    fn finish(&mut self) -> io::Result<()> {
        (**self).finish()
    }
}

impl Output for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<Written> {
        self.extend(bytes);
        Ok(Written::Whole)
    }
}

impl Output for io::Stdout {
    fn append(&mut self, bytes: &[u8]) -> io::Result<Written> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(Written::Whole)
    }
}

/// A regular file.
///
/// # Invariants
///
/// Of the file, `end` bytes are whole chunks. Unless `reserve` is zero, or the file system
/// cannot say so, `allocated` bytes are ours to fill, and at least `end + reserve`.
#[derive(Debug)]
pub struct FileOutput {
    file: File,
    end: u64,
    allocated: u64,
    reserve: u64,
}

impl FileOutput {
    /// The rest of a file from `end` on, of which `reserve` bytes are kept back for the
    /// last chunks. No room for these is an error.
    pub fn new(file: File, end: u64, reserve: u64) -> io::Result<FileOutput> {
        let mut output = FileOutput {
            file,
            end,
            allocated: end,
            reserve,
        };
        match output.allocate(0)? {
            Written::Whole => Ok(output),
            Written::NoRoom => Err(ErrorKind::StorageFull.into()),
        }
    }

    /// Makes sure of the room for `bytes` and the reserve.
    fn allocate(&mut self, bytes: u64) -> io::Result<Written> {
        let needed = self.end + bytes + self.reserve;
        if needed <= self.allocated {
            return Ok(Written::Whole);
        }
        // A bit more, so that it is not asked for at each chunk; or as much as there is.
        for wanted in [needed + AHEAD_BYTES, needed] {
            let length = wanted - self.allocated;
            match fallocate(
                &self.file,
                FallocateFlags::KEEP_SIZE,
                self.allocated,
                length,
            ) {
                Ok(()) => {
                    self.allocated = wanted;
                    return Ok(Written::Whole);
                }
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {}
                // Writing will tell.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Written::Whole),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Written::NoRoom)
    }
}

impl Output for FileOutput {
    fn append(&mut self, bytes: &[u8]) -> io::Result<Written> {
        if self.allocate(bytes.len() as u64)? == Written::NoRoom {
            return Ok(Written::NoRoom);
        }
        match self.file.write_all_at(bytes, self.end) {
            Ok(()) => {
                self.end += bytes.len() as u64;
                Ok(Written::Whole)
            }
            Err(error) => {
                // What was begun would be in the way of what comes next.
                self.file.set_len(self.end)?;
                self.allocated = self.end;
                match error.kind() {
                    ErrorKind::StorageFull
                    | ErrorKind::QuotaExceeded
                    | ErrorKind::FileTooLarge
                    | ErrorKind::WriteZero => Ok(Written::NoRoom),
                    _ => Err(error),
                }
            }
        }
    }

    fn keep_back(&mut self, bytes: u64) {
        self.reserve = bytes;
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)
    }
}
