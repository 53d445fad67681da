// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocators that came with a program that started later: their blocks are not seen, which a note
//! says.

use libnsprobe::Session;
use nsprobe_containers::Process;
use nsprobe_trace::attach::mapped;
use nsprobe_trace::attach::probes::allocators::may_allocate;
use nsprobe_trace::names::probed_file::{FileId, ProbedFile};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Time that a program gets to map its libraries.
const PATIENCE: Duration = Duration::from_millis(300);
/// Most programs that wait to be looked at.
const WAITING_MAX: usize = 256;

/// Programs that have started, and the libraries that are known.
pub(super) struct Unprobed {
    /// Files that are probed, or have been named in a note.
    known: HashSet<FileId>,
    waiting: Vec<(u32, Instant)>,
}

impl Unprobed {
    /// Beside these files.
    pub(super) fn new(files: &[ProbedFile]) -> Unprobed {
        Unprobed {
            known: files.iter().map(|file| file.id).collect(),
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
    pub(super) fn notes(&mut self, session: &Session) -> Vec<String> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (pids, others) = waiting.partition(|(_, since)| since.elapsed() >= PATIENCE);
        let pids: Vec<(u32, Instant)> = pids;
        self.waiting = others;
        let mut notes = Vec::new();
        for (pid, _) in pids {
            // One that has ended maps nothing.
            let mappings = Process::open(pid).and_then(|process| process.mappings());
            for mapping in mappings.unwrap_or_default() {
                if !mapping.executable || !may_allocate(&mapping.path) {
                    continue;
                }
                let file = mapped::open(session, pid, &mapping);
                let id = file.and_then(|file| session.identify(&file).ok());
                if id.is_some_and(|id| self.known.insert(id.into())) {
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
