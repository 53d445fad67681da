// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that hold the debug information of a probed file: itself, or others in
//! the target, or on this machine. They are told by their build-id, so that one of
//! another build is never taken.

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
            let fits =
                |file: &Binary| file.has_debug_info() && file.build_id() == binary.build_id();
            if let Some((name, file)) = first(target, &names, fits) {
                holder_path = name;
                separate = Some(file);
            }
        }
        let holder = separate.as_ref().unwrap_or(binary);
        let supplementary = holder.supplementary().and_then(|link| {
            let folder = holder_path.parent().unwrap_or(Path::new("/"));
            let names = [folder.join(&link.path)];
            let fits = |file: &Binary| file.build_id() == Some(&link.build_id);
            first(target, &names, fits).map(|(_, file)| file)
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

/// The first of the files that fits: as the target sees them, then as we do.
fn first(
    target: &Target,
    names: &[PathBuf],
    fits: impl Fn(&Binary) -> bool,
) -> Option<(PathBuf, Binary)> {
    let in_target = |name: &PathBuf| {
        let opened = target.open(&BinaryName::Path(name.clone())).ok()?;
        opened.into_iter().next().map(|opened| opened.file)
    };
    let here = |name: &PathBuf| File::open(name).ok();
    let read = |name: &PathBuf, file: File| {
        let binary = Binary::open(file, name).ok().filter(&fits)?;
        Some((name.clone(), binary))
    };
    let found = names.iter().find_map(|name| read(name, in_target(name)?));
    found.or_else(|| names.iter().find_map(|name| read(name, here(name)?)))
}
