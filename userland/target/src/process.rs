// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process, held in a way that a recycled pid cannot fake.

use crate::{Library, Mapping, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process: every read goes through a directory handle of `/proc/PID`, which
/// dies with the process even when its number is used again.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    pidfd: OwnedFd,
    start_time: u64,
}

impl Process {
    /// The living process of that number.
    pub fn open(pid: u32) -> Result<Process> {
        todo!("{pid}")
    }

    /// Its number in our pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its pidfd: readable (poll) when the process has exited.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// When it started, in clock ticks since boot.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether it still lives. A zombie does not.
    pub fn still_same(&self) -> bool {
        todo!()
    }

    /// The name of its main thread, as the kernel keeps it (at most 15 bytes).
    pub fn comm(&self) -> Result<String> {
        todo!()
    }

    /// The inode number of its pid namespace.
    pub fn pid_namespace(&self) -> Result<u32> {
        todo!()
    }

    /// The inode number of its mount namespace.
    pub fn mount_namespace(&self) -> Result<u64> {
        todo!()
    }

    /// Its numbers in each pid namespace, ours first, its own last.
    pub fn namespace_pids(&self) -> Result<Vec<u32>> {
        todo!()
    }

    /// What it has mapped, by rising address.
    pub fn mappings(&self) -> Result<Vec<Mapping>> {
        todo!()
    }

    /// The one library of that soname or file name that it has mapped
    /// (`libc.so.6`; `libssl.so` or `libssl` when only one begins so).
    pub fn find_library(&self, name: &str) -> Result<Library> {
        todo!("{name}")
    }
}

/// The pids of all processes that are in this very pid namespace (not in one
/// below it), rising.
pub fn processes_in_pid_namespace(inum: u32) -> Result<Vec<u32>> {
    todo!("{inum}")
}
