// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug files of a program: what a search for them asks, and those that were found.
//!
//! Paths and places of the files that were found stay here; the child is sent the open
//! files, and says from the how-many-th of them its names are.

use crate::protocol::{DebugRole, Holder, Reply, Request};
use crate::quarantine::FileKey;
use crate::sandboxed_binary::SandboxedBinary;
use crate::worker::DebugFile;
use crate::WorkerError;
use nsprobe_symbolize::{
    debug_file_names, NamesFrom, OpenFile, OpenFiles, SplitUnit, Supplementary,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most debug files of one program; what is beyond is skipped.
pub(crate) const FILES_OF_ONE_MAX: usize = 1056;

impl SandboxedBinary {
    /// The paths at which the debug information of this file, which lies at `path`
    /// in its own mount namespace, may be, best first.
    pub fn debug_file_names(&self, path: &Path) -> Vec<PathBuf> {
        let link = self.facts().debug_link.as_deref().map(OsStr::from_bytes);
        debug_file_names(path, self.build_id(), link)
    }

    /// Whether the file names functions or lines that a program without them could use.
    pub fn has_debug_names(&self) -> bool {
        self.facts().has_debug_names
    }

    /// What `.gnu_debugaltlink` says.
    pub fn supplementary(&self) -> Option<Supplementary> {
        let shared = self.facts().supplementary.as_ref()?;
        Some(Supplementary {
            path: path(shared.path.clone()),
            build_id: shared.build_id.clone(),
        })
    }

    /// Fails, with the reason, unless `file` holds the debug information of this program. If the
    /// child dies, `file` is blamed.
    pub fn check_debug_file(&self, file: &SandboxedBinary) -> Result<(), String> {
        let request = Request::Check {
            program: self.subject().number,
            object: file.subject().number,
        };
        let asked = file
            .worker()
            .inner()
            .ask_with(self.subject(), file.subject(), &request);
        match asked {
            Ok(Reply::Checked(checked)) => checked,
            Ok(_) => Err(file.distrust().to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The units of the file's DWARF that are elsewhere. The error says why they cannot be listed.
    pub fn split_units(&self) -> Result<Vec<SplitUnit>, String> {
        let request = Request::SplitUnits {
            object: self.subject().number,
        };
        let units = match self.ask(&request) {
            Ok(Reply::SplitUnits(units)) => units?,
            Ok(_) => return Err(self.distrust().to_string()),
            Err(error) => return Err(error.to_string()),
        };
        let units = units.into_iter().map(|unit| SplitUnit {
            id: unit.id,
            name: path(unit.name),
            folder: path(unit.folder),
        });
        Ok(units.collect())
    }

    /// Names come from these files, too, and no longer from any that were attached before.
    /// They are kept open until the program is dropped.
    pub fn attach(&self, files: OpenFiles) -> Result<(), WorkerError> {
        let files = in_order(files).take(FILES_OF_ONE_MAX);
        let debug: Result<Vec<DebugFile>, WorkerError> = files
            .map(|(role, open)| {
                let key = FileKey::of(&open.file)?;
                Ok(DebugFile { role, open, key })
            })
            .collect();
        self.subject().debug.replace(debug?);
        self.forget_failures();
        // It is opened anew, with them, when a name is needed.
        self.worker().inner().close(self.subject().number);
        Ok(())
    }

    /// Whether names come from other files, too.
    pub fn has_attached(&self) -> bool {
        !self.subject().debug.borrow().is_empty()
    }

    /// Where names come from; none when no such file was attached.
    pub(crate) fn names_from(&self, holder: Holder) -> Option<NamesFrom> {
        Some(match holder {
            Holder::Program => NamesFrom::Program,
            Holder::DebugData => NamesFrom::DebugData,
            Holder::Attached(at) => {
                let debug = self.subject().debug.borrow();
                let open = &debug.get(usize::try_from(at).ok()?)?.open;
                NamesFrom::File(Arc::clone(&open.path), open.found_in)
            }
        })
    }
}

/// The files, each with what it is.
fn in_order(files: OpenFiles) -> impl Iterator<Item = (DebugRole, OpenFile)> {
    let separate = files.separate.map(|file| (DebugRole::Separate, file));
    let shared = files
        .supplementary
        .map(|file| (DebugRole::Supplementary, file));
    let packages = files.packages.into_iter();
    let split = files.split.into_iter();
    separate
        .into_iter()
        .chain(shared)
        .chain(packages.map(|file| (DebugRole::Package, file)))
        .chain(split.map(|(id, file)| (DebugRole::Split(id), file)))
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
