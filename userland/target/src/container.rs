// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container: found by the name or id that its runtime gave it, or by the
//! inode number of its pid namespace.

use crate::{Library, Process, Result};

/// The software that runs a container. Each has a file of its own that reads
/// its state; systemd-nspawn, docker and others come here later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Runtime {
    /// podman, of root or of another user.
    Podman,
    /// Unknown: only the pid namespace is known.
    Bare,
}

/// A running container.
#[derive(Debug)]
pub struct Container {
    /// Its name; `pid:[INODE]` when only the namespace is known.
    pub name: String,
    /// Its runtime's id.
    pub id: Option<String>,
    /// Who runs it.
    pub runtime: Runtime,
    /// Its first process.
    pub init: Process,
}

impl Container {
    /// The running container that `spec` names: a podman name, a podman id or
    /// unique prefix of one, or the inode number of a pid namespace (decimal).
    pub fn find(spec: &str) -> Result<Container> {
        todo!("{spec}")
    }

    /// Whether the container has a pid namespace of its own. One started with
    /// `--pid=host` has not: a filter by its namespace would let in others.
    pub fn has_own_pid_namespace(&self) -> Result<bool> {
        todo!()
    }

    /// The inode number of the first process's pid namespace.
    pub fn pid_namespace(&self) -> Result<u32> {
        self.init.pid_namespace()
    }

    /// The pids (as the host sees them) of the container's processes, rising.
    pub fn processes(&self) -> Result<Vec<u32>> {
        todo!()
    }

    /// The libraries of that soname or file name that the container's processes
    /// have mapped: one entry a file, never empty.
    pub fn find_library(&self, name: &str) -> Result<Vec<Library>> {
        todo!("{name}")
    }
}
