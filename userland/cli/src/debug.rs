// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debug information of a probed file, for specs: its own, or that of files that
//! [`Search`] finds, as for the frames of stacks.

use crate::search::{Found, Search};
use nsprobe_plan::debug::DebugInfo;
use nsprobe_symbolize::{Binary, DebugSet};
use nsprobe_target::Process;
use std::path::Path;

/// Files apart from the probed one.
#[derive(Debug)]
pub(crate) struct DebugFiles {
    set: DebugSet,
    notes: Vec<String>,
}

impl DebugFiles {
    /// Looks for the files of a binary that lies at `path` as `owners` see it.
    pub(crate) fn find(
        search: &Search,
        binary: &Binary,
        path: &Path,
        owners: &[Process],
    ) -> DebugFiles {
        let mut found = search.find(binary, path, owners);
        search.fetch(binary, &mut found);
        let Found { files, notes } = found;
        DebugFiles {
            set: DebugSet::new(files),
            notes,
        }
    }

    /// The debug information of the binary that this was found for; an error says why
    /// there is none.
    pub(crate) fn read<'a>(&'a self, binary: &'a Binary) -> Result<DebugInfo<'a>, String> {
        let (separate, shared) = (self.set.separate(binary), self.set.supplementary());
        DebugInfo::new(binary, separate, shared).map_err(|error| {
            let mut why = vec![error.to_string()];
            why.extend(self.set.failures());
            why.extend(self.notes.iter().cloned());
            why.join("; ")
        })
    }
}
