// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwind rows for a session.

use crate::error::{Error, Result};
use crate::session::Session;
use crate::sys;
use nix::errno::Errno;
use nsprobe_common::unwind::{Row, Rule};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

/// The rows of a file, as `nsprobe_common::unwind` describes them.
#[derive(Clone, Copy, Debug)]
pub struct UnwindRows<'a> {
    /// The number of the first block of 64 KiB.
    pub first: u64,
    /// Where the rows of each block begin, and the last ones end.
    pub blocks: &'a [u32],
    /// The rows.
    pub rows: &'a [Row],
    /// The rules that they name.
    pub rules: &'a [Rule],
}

/// Gives a session rows, from any thread. It holds the session open.
#[derive(Debug)]
pub struct Unwinder {
    file: File,
}

impl Session {
    /// For the thread that compiles rows.
    pub fn unwinder(&self) -> Result<Unwinder> {
        let fd = self.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::Request {
            request: "UNWIND",
            errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
        })?;
        Ok(Unwinder { file: fd.into() })
    }
}

impl Unwinder {
    /// Says that a file, as it is now, has no rows; false when it has some already.
    pub fn give_none(&self, file: &File) -> Result<bool> {
        let none = UnwindRows {
            first: 0,
            blocks: &[],
            rows: &[],
            rules: &[],
        };
        self.give(file, &none)
    }

    /// Gives the rows of a file, as it is now; false when it has some already.
    pub fn give(&self, file: &File, rows: &UnwindRows<'_>) -> Result<bool> {
        self.give_of(Some(file), rows)
    }

    /// Gives the rows of the vDSO; false when it has some already.
    pub fn give_vdso(&self, rows: &UnwindRows<'_>) -> Result<bool> {
        self.give_of(None, rows)
    }

    /// Drops the rows of files that no stack has gone through for so long, whose objects are
    /// announced anew when one does; how many bytes these were.
    pub fn drop_unused(&self, unused: Duration) -> Result<u64> {
        let unused_ns = unused.as_nanos().try_into().unwrap_or(u64::MAX);
        let dropped = sys::drop_rows(self.file.as_fd(), unused_ns);
        dropped.map_err(|errno| Error::Request {
            request: "UNWIND",
            errno,
        })
    }

    fn give_of(&self, file: Option<&File>, rows: &UnwindRows<'_>) -> Result<bool> {
        match sys::unwind(self.file.as_fd(), file.map(File::as_fd), rows) {
            Ok(()) => Ok(true),
            Err((Errno::EEXIST, _)) => Ok(false),
            Err((errno, 0)) => Err(Error::Request {
                request: "UNWIND",
                errno,
            }),
            Err((_, defect)) => Err(Error::UnwindRows(defect)),
        }
    }
}
