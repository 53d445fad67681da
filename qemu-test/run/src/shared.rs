// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all guests of a run, and the host's parts beside them, share: the results.

use crate::ktap::{Ending, Verdict};
use crate::preflight;
use crate::results::Results;
use crate::suite::Stage;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the guests of a run share.
pub(crate) struct Run {
    results: Mutex<Results>,
    /// Nothing is printed: of a run within the run.
    pub(crate) is_quiet: bool,
}

impl Run {
    pub(crate) fn new() -> Run {
        Run {
            results: Mutex::default(),
            is_quiet: false,
        }
    }

    pub(crate) fn quiet() -> Run {
        Run {
            is_quiet: true,
            ..Run::new()
        }
    }

    pub(crate) fn results(&self) -> MutexGuard<'_, Results> {
        // A thread that panicked has not left a verdict half-way.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which tests are to come.
    pub(crate) fn plan(&self, stage: &Stage) {
        let mut results = self.results();
        let kernel = preflight::kernel(&stage.guest.image).unwrap_or_default();
        for test in &stage.tests {
            results.plan(&stage.full_name(&test.name), test.limit_s, &kernel);
        }
    }

    /// Prints a verdict and keeps it.
    pub(crate) fn take(&self, name: &str, guest: &str, verdict: Verdict, shows_all: bool) {
        let mut text = String::new();
        if shows_all || verdict.ending != Ending::Passed {
            for note in &verdict.notes {
                text += note;
                text.push('\n');
            }
        }
        let (ok, directive) = match &verdict.ending {
            Ending::Passed => ("ok", String::new()),
            Ending::Failed => ("not ok", String::new()),
            Ending::Skipped(reason) => ("ok", format!(" SKIP {reason},")),
        };
        let seconds = verdict.seconds;
        let mut results = self.results();
        let number = results.add(name, guest, verdict);
        if self.is_quiet {
            return;
        }
        text += &format!("{ok} {number} {name} #{directive} {seconds:.1} s, {guest}\n");
        // The run goes on when the reader of its output has gone.
        let mut stdout = std::io::stdout();
        let _ = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
    }
}
