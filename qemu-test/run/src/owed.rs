// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the next guest must run first, in the place of one that has ended before its time.

use crate::quote;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Names of tests, each as often as it has to be run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed(Vec<String>);

impl Owed {
    /// Words for the guest's program.
    pub(crate) fn words(&self) -> String {
        let words = self
            .0
            .iter()
            .map(|test| format!(" --first {}", quote(test)));
        words.collect()
    }

    /// A guest has ended that was to run these first, took others from the queue, came to
    /// verdicts, and may have ended in the midst of a test.
    pub(crate) fn settle(
        &mut self,
        taken: Vec<String>,
        verdicts: &[String],
        interrupted: Option<&str>,
    ) {
        self.0.extend(taken);
        for name in verdicts {
            if let Some(at) = self.0.iter().position(|owed| owed == name) {
                self.0.remove(at);
            }
        }
        if let Some(name) = interrupted {
            self.0.retain(|owed| owed != name);
            // The first pass may be luck.
            self.0.splice(0..0, [name.to_owned(), name.to_owned()]);
        }
    }
}

/// What a guest took from the queue: `taken/TEST` is a link that names the guest.
pub(crate) fn taken_by(queue: &Path, guest: &str) -> Result<Vec<String>> {
    let folder = queue.join("taken");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if fs::read_link(entry.path()).is_ok_and(|by| by == Path::new(guest)) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn an_interrupted_test_is_owed_twice_and_until_it_has_run() {
        let mut owed = Owed::default();
        owed.settle(names(&["a", "b"]), &names(&["a"]), Some("b"));
        assert_eq!(owed, Owed(names(&["b", "b"])));
        assert_eq!(owed.words(), " --first 'b' --first 'b'");
        // Both have come, and another one was interrupted.
        owed.settle(names(&["c"]), &names(&["b", "b"]), Some("c"));
        assert_eq!(owed, Owed(names(&["c", "c"])));
        // It ended before the second one was begun.
        owed.settle(names(&[]), &names(&["c"]), None);
        assert_eq!(owed, Owed(names(&["c"])));
    }

    #[test]
    fn what_was_taken_and_not_begun_is_owed() {
        let mut owed = Owed::default();
        owed.settle(names(&["a", "b"]), &names(&["a"]), None);
        assert_eq!(owed, Owed(names(&["b"])));
        owed.settle(names(&["c"]), &names(&["b", "c"]), None);
        assert_eq!(owed, Owed::default());
    }

    #[test]
    fn each_guest_has_its_own() {
        let queue = std::env::temp_dir().join(format!("nsprobe-taken-{}", std::process::id()));
        fs::create_dir_all(queue.join("taken")).expect("it is writable");
        for (guest, test) in [("a", "two"), ("a-2", "three"), ("a", "one")] {
            symlink(guest, queue.join("taken").join(test)).expect("it is writable");
        }
        let taken = taken_by(&queue, "a").expect("it is there");
        fs::remove_dir_all(&queue).expect("it is ours");
        assert_eq!(taken, names(&["one", "two"]));
    }
}
