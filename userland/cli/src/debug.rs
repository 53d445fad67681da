// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that hold the debug information of a probed file: itself, or others in
//! the target, or on this machine. They are told by their build-id or, without
//! one, by their checksum, so that one of another build is never taken.

use crate::spec::BinaryName;
use crate::target::Target;
use nsprobe_plan::debug::DebugInfo;
use nsprobe_symbolize::Binary;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Files apart from the probed one.
#[derive(Debug, Default)]
pub(crate) struct DebugFiles {
    separate: Option<Binary>,
    supplementary: Option<Binary>,
}

impl DebugFiles {
    /// Looks for the files of a binary that lies at `path` in the target.
    pub(crate) fn find(target: &Target, binary: &Binary, path: &Path) -> DebugFiles {
        let mut separate = None;
        let mut holder_path = path.to_owned();
        if !binary.has_debug_info() {
            let names = binary.debug_file_names(path);
            let read = |name: &Path, file| {
                let file = Binary::open(file, name).ok()?;
                (file.has_debug_info() && file.is_debug_file_of(binary)).then_some(file)
            };
            if let Some((name, file)) = first(target, &names, read) {
                holder_path = name;
                separate = Some(file);
            }
        }
        let holder = separate.as_ref().unwrap_or(binary);
        let supplementary = holder.supplementary().and_then(|link| {
            let folder = holder_path.parent().unwrap_or(Path::new("/"));
            let names = [folder.join(&link.path)];
            let read = |name: &Path, file| {
                let file = Binary::open_supplementary(file, name).ok()?;
                (file.build_id() == Some(&link.build_id)).then_some(file)
            };
            first(target, &names, read).map(|(_, file)| file)
        });
        DebugFiles {
            separate,
            supplementary,
        }
    }

    /// The debug information of the binary that this was found for; an error says why
    /// there is none.
    pub(crate) fn read<'a>(&'a self, binary: &'a Binary) -> Result<DebugInfo<'a>, String> {
        DebugInfo::new(binary, self.separate.as_ref(), self.supplementary.as_ref())
            .map_err(|error| error.to_string())
    }
}

/// The first of the files that `read` takes: as the target sees them, then as we do.
fn first(
    target: &Target,
    names: &[PathBuf],
    read: impl Fn(&Path, File) -> Option<Binary>,
) -> Option<(PathBuf, Binary)> {
    let in_target = |name: &PathBuf| {
        let opened = target.open(&BinaryName::Path(name.clone())).ok()?;
        let file = opened.into_iter().next()?.file;
        Some((name.clone(), read(name, file)?))
    };
    let here = |name: &PathBuf| Some((name.clone(), read(name, File::open(name).ok()?)?));
    names
        .iter()
        .find_map(in_target)
        .or_else(|| names.iter().find_map(here))
}
