// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that are probed.

use crate::names::address_names::AddressNames;
use libnsprobe::common::abi::ObjectIdentity;
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

/// A file that is probed.
///
/// An open file of a container keeps its file system mounted; `podman rm` works
/// nevertheless, since that unmounts lazily.
#[derive(Debug)]
pub struct ProbedFile {
    /// The file itself, for the kernel.
    pub file: File,
    /// The build-id that it claims.
    pub build_id: Option<Vec<u8>>,
    /// Its functions, where fields are named by them.
    pub(crate) functions: Option<Rc<dyn AddressNames>>,
    /// Its path, as the target sees it.
    pub path: PathBuf,
    /// Device and inode as the target's file system shows them.
    pub(crate) stat: (u64, u64),
    /// As the module names it.
    pub id: FileId,
}

impl ProbedFile {
    /// Whether the file has this device and inode number.
    pub fn is_at(&self, dev: u64, ino: u64) -> bool {
        self.stat == (dev, ino)
    }

    /// Whether its inode has this number.
    pub fn has_inode(&self, ino: u64) -> bool {
        self.stat.1 == ino
    }
}

/// A file as the kernel distinguishes it, below overlays: each container has a device of its own
/// for a file of an image that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    dev: u64,
    ino: u64,
    generation: u32,
}

impl FileId {
    /// As its file system shows it.
    pub fn of_stat(dev: u64, ino: u64) -> FileId {
        FileId {
            dev,
            ino,
            generation: 0,
        }
    }
}

impl From<ObjectIdentity> for FileId {
    fn from(identity: ObjectIdentity) -> FileId {
        FileId {
            dev: identity.dev,
            ino: identity.ino,
            generation: identity.generation,
        }
    }
}
