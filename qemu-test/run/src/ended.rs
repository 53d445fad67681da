// SPDX-License-Identifier: MIT OR Apache-2.0
//! A boot that has ended: what that means for the run, and whether another guest goes on.

use crate::guest::{Guest, Outcome};
use crate::ktap::End;
use crate::results::Results;
use std::path::PathBuf;

/// A boot that has ended.
pub(crate) struct Ended {
    pub(crate) prefix: &'static str,
    /// The guest's name.
    pub(crate) guest: String,
    pub(crate) console: PathBuf,
    pub(crate) outcome: Outcome,
    pub(crate) end: End,
    /// The tests that came to a verdict, by name.
    pub(crate) verdicts: Vec<String>,
    /// What is wrong with its capsules.
    pub(crate) carried: Vec<String>,
}

/// What follows a boot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// Another guest, which goes on.
    Another,
}

impl Ended {
    /// Whether the end may have been of QEMU's own doing; the console knows the rest.
    pub(crate) fn may_be_qemus(&self, guest: &Guest) -> bool {
        !self.outcome.problems.is_empty() && self.outcome.running && guest.accel == "tcg"
    }

    /// Says what the end means for the run.
    pub(crate) fn settle(&self, is_qemus: bool, results: &mut Results) -> Next {
        self.remark_boots(results);
        for problem in &self.carried {
            results.problem(problem.clone());
        }
        self.problems(&self.end.problems, results);
        if is_qemus {
            return self.goes_on(results);
        }
        if self.outcome.problems.is_empty() {
            self.problems(&self.end.missing, results);
        }
        if let Some(test) = &self.end.interrupted {
            results.problem(format!("{} ended in the midst of {test}", self.guest));
        }
        if let Some(status) = self
            .outcome
            .status
            .filter(|status| !(0..=1).contains(status))
        {
            results.problem(format!("{}: the tests ended with {status}", self.guest));
        }
        self.problems(&self.outcome.problems, results);
        match &self.end.hands_over {
            Some(test) if self.outcome.problems.is_empty() => {
                results.remark(format!(
                    "guest {} ended behind {}{test}, which did not end in its time; a fresh one \
                     went on",
                    self.guest, self.prefix
                ));
                Next::Another
            }
            _ => Next::Nothing,
        }
    }

    fn problems(&self, problems: &[String], results: &mut Results) {
        for problem in problems {
            results.problem(format!("{}: {problem}", self.guest));
        }
    }

    /// Behind a crash of QEMU's own.
    fn goes_on(&self, results: &mut Results) -> Next {
        let interrupted = self.end.interrupted.as_ref();
        let test = interrupted.map(|test| format!("{}{test}", self.prefix));
        results.remark(format!(
            "guest {} died of QEMU's own doing ({}), and another one went on; console: {}",
            self.guest,
            test.as_deref().unwrap_or("between two tests"),
            self.console.display()
        ));
        match test {
            Some(test) if !results.interrupt(&test) => Next::Nothing,
            _ => Next::Another,
        }
    }

    /// Boots that were tried again are no secret.
    fn remark_boots(&self, results: &mut Results) {
        if self.outcome.died_booting > 0 {
            results.remark(format!(
                "guest {} was booted again {} times: its kernel had died of QEMU's own doing \
                 before a test had begun",
                self.guest, self.outcome.died_booting
            ));
        }
    }
}
