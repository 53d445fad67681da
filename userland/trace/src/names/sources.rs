// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the sources of a file's names for the user.

use super::files::{KnownFile, ObjectState, OpenedObject};
use super::line::{name, NamesNote};
use crate::names::origin::Origin;
use crate::names::search::place;
use nsprobe_symbolize::{FrameSource, NamesFrom};

/// Most files of debug information that are named.
const FILES_SHOWN: usize = 3;

/// Sources that say more than symbol tables, the best first.
const BEST: [(FrameSource, &str); 2] = [
    (FrameSource::Dwarf, "DWARF"),
    (FrameSource::Go, "Go's own table"),
];

impl KnownFile {
    /// Describes the sources of the file's names, or the reason why there are none.
    pub(super) fn describe(&self) -> NamesNote {
        let path = self.path.as_deref();
        match &self.file {
            ObjectState::Unusable(why) => NamesNote::without(path, &self.build_id, why),
            ObjectState::Closed(line) => line.clone(),
            ObjectState::Open(opened) => self.quality(&name(path, &self.build_id), opened),
        }
    }

    fn quality(&self, name: &str, opened: &OpenedObject) -> NamesNote {
        let best = BEST.iter().find(|(best, _)| {
            let mut sources = self.sources.iter();
            sources.any(|(source, _)| source == best)
        });
        let is_named = opened.found.object.has_symbols() || !self.sources.is_empty();
        let of_best =
            |(source, _): &&(FrameSource, NamesFrom)| best.is_none_or(|(best, _)| source == best);
        let best = match best {
            Some((_, name)) => name,
            None if is_named => "symbol table",
            None => "no symbols",
        };
        let mut files: Vec<String> = Vec::new();
        for (_, from) in self.sources.iter().filter(of_best) {
            let file = file(from, opened.found.origin);
            if !files.contains(&file) {
                files.push(file);
            }
        }
        if files.is_empty() {
            files.push(own(opened.found.origin).to_owned());
        }
        let more = files.len().saturating_sub(FILES_SHOWN);
        files.truncate(FILES_SHOWN);
        let mut text = format!("{name}: {best} of {}", files.join(", "));
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
        let mut notes: Vec<String> = self.note.iter().cloned().collect();
        notes.extend(opened.found.object.failures());
        // If a file was closed meanwhile and opened again, no name was needed since.
        let pending = opened.pending.as_ref();
        let found = pending.into_iter().flat_map(|found| &found.notes);
        notes.extend(opened.notes.iter().chain(found).cloned());
        let looked_for = pending.and_then(|found| found.looked_for.as_ref());
        NamesNote::with(&text, &notes, opened.looked_for.as_ref().or(looked_for))
    }
}

fn file(from: &NamesFrom, origin: Origin) -> String {
    match from {
        NamesFrom::Program => own(origin).to_owned(),
        NamesFrom::DebugData => format!(".gnu_debugdata in {}", own(origin)),
        NamesFrom::File(path, found_in) => format!("{} {}", path.display(), place(*found_in)),
    }
}

fn own(origin: Origin) -> &'static str {
    match origin {
        Origin::Probed => "the probed file",
        Origin::Kernel => "the mapped file, from the kernel",
        Origin::Mapping => "the file of a living mapping",
        Origin::Vdso => "the kernel's own code in each program",
    }
}
