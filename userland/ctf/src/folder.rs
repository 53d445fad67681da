// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder that shows up under its name when all of it is there.

use crate::error::CtfError;
use rustix::fs::{renameat_with, RenameFlags, CWD};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder under another name, beside the one that it is to have. It is removed with the
/// value.
#[derive(Debug)]
pub(crate) struct NewFolder {
    destination: PathBuf,
    /// Where it is meanwhile.
    path: PathBuf,
    is_finished: bool,
}

impl NewFolder {
    /// Makes one. Nothing may have the name `destination`.
    pub(crate) fn create(destination: &Path) -> Result<NewFolder, CtfError> {
        let name = destination.file_name();
        let name = name.ok_or_else(|| CtfError::NoName(destination.to_owned()))?;
        match fs::symlink_metadata(destination) {
            Ok(_) => return Err(CtfError::Exists(destination.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(CtfError::at(destination)(error)),
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let path = destination.with_file_name(hidden);
        fs::create_dir(&path).map_err(CtfError::at(destination))?;
        Ok(NewFolder {
            destination: destination.to_owned(),
            path,
            is_finished: false,
        })
    }

    /// The name that it is to have.
    pub(crate) fn destination(&self) -> &Path {
        &self.destination
    }

    /// Where it is until it is finished.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), CtfError> {
        let destination = &self.destination;
        let renamed = renameat_with(CWD, &self.path, CWD, destination, RenameFlags::NOREPLACE);
        let renamed = match renamed {
            Err(Errno::EXIST) => return Err(CtfError::Exists(destination.clone())),
            // Not every file system has NOREPLACE. What came meanwhile is no empty folder
            // most likely, which is all that this could take the place of.
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(&self.path, destination),
            renamed => renamed.map_err(io::Error::from),
        };
        renamed.map_err(CtfError::at(destination))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_finished {
            // What cannot be removed is left under a name that says what it is.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
