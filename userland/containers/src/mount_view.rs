// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process sees, held so that it can still be looked at when the process has ended.

use crate::{Process, Result, RootId};
use nix::fcntl::OFlag;
use std::io;
use std::os::fd::OwnedFd;

/// The root directory of a process, and its mount namespace as long as that is there.
///
/// It keeps the container's file systems mounted: do not keep it.
#[derive(Debug)]
pub struct MountView {
    pub(crate) pid: u32,
    pub(crate) root: OwnedFd,
    /// None when it has ended, and its mounts with it: then only what lies in that of the
    /// root itself is there.
    pub(crate) namespace: Option<OwnedFd>,
}

impl MountView {
    /// That of a living process.
    pub fn of(process: &Process) -> Result<MountView> {
        Ok(MountView {
            pid: process.pid(),
            namespace: Some(process.open_at("ns/mnt", OFlag::O_RDONLY)?),
            root: process.open_at("root", OFlag::O_PATH | OFlag::O_DIRECTORY)?,
        })
    }

    /// That of the process that has, or had, the number `pid` and this root (`O_PATH`).
    pub fn of_root(pid: u32, root: OwnedFd) -> io::Result<MountView> {
        let id = RootId::of(&root)?;
        // A process with that number and root sees the same, whether it is the same or not.
        let now = Process::open(pid).and_then(|process| MountView::of(&process));
        let now = now
            .ok()
            .filter(|now| RootId::of(&now.root).ok() == Some(id));
        Ok(now.unwrap_or(MountView {
            pid,
            root,
            namespace: None,
        }))
    }

    /// Identity of the root directory.
    pub fn root(&self) -> io::Result<RootId> {
        RootId::of(&self.root)
    }
}
