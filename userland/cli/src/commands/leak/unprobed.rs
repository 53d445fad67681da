// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocators that came with a program that started later: their blocks are not seen, which a note
//! says.

use crate::attach::probes::allocators::may_allocate;
use crate::names::probed_file::ProbedFile;
use nsprobe_containers::Process;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

/// Time that a program gets to map its libraries.
const PATIENCE: Duration = Duration::from_millis(300);
/// Most programs that wait to be looked at.
const WAITING_MAX: usize = 256;

/// Programs that have started, and the libraries that are known.
pub(super) struct Unprobed {
    /// Names of files that are probed, or have been named in a note.
    known: HashSet<OsString>,
    waiting: Vec<(u32, Instant)>,
}

impl Unprobed {
    /// Beside these files.
    pub(super) fn new(files: &[ProbedFile]) -> Unprobed {
        // A mapping has the name that a link leads to.
        let real = files
            .iter()
            .filter_map(|file| fs::canonicalize(&file.path).ok());
        let paths = files.iter().map(|file| file.path.clone()).chain(real);
        Unprobed {
            known: paths
                .filter_map(|path| Some(path.file_name()?.to_owned()))
                .collect(),
            waiting: Vec::new(),
        }
    }

    /// A process executes another program.
    pub(super) fn started(&mut self, pid: u32) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push((pid, Instant::now()));
        }
    }

    /// Notes on programs that have had time to map their libraries.
    pub(super) fn notes(&mut self) -> Vec<String> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (pids, others) = waiting.partition(|(_, since)| since.elapsed() >= PATIENCE);
        let pids: Vec<(u32, Instant)> = pids;
        self.waiting = others;
        let mut notes = Vec::new();
        for (pid, _) in pids {
            // One that has ended maps nothing.
            let mappings = Process::open(pid).and_then(|process| process.mappings());
            for mapping in mappings.unwrap_or_default() {
                let name = mapping.path.file_name().unwrap_or_default();
                let is_new = mapping.executable && may_allocate(&mapping.path);
                if is_new && self.known.insert(name.to_owned()) {
                    notes.push(format!(
                        "process {pid} has {} mapped, which had not been found at the start: what \
                         it allocates is not seen; start again while it runs",
                        mapping.path.display()
                    ));
                }
            }
        }
        notes
    }
}
