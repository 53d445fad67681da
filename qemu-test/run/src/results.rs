// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of each planned test, and whether all of it together is a good run.

use crate::ktap::{Ending, Verdict};
use crate::skips;
use std::collections::BTreeMap;

/// Of what runs in no guest, or in one that runs no tests: no skip of it is allowed.
pub(crate) const NO_KERNEL: &str = "";

/// One verdict, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) verdict: Verdict,
    /// The guest that ran the test.
    pub(crate) guest: String,
}

/// A planned test and what is known of it.
#[derive(Clone, Debug, Default)]
struct Entry {
    done: Vec<Done>,
    /// How often the guest died of QEMU's own doing while the test ran.
    interrupted: u64,
    limit_s: u64,
    /// The kernel that it runs on.
    kernel: String,
}

/// All tests of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    entries: BTreeMap<String, Entry>,
    /// What went wrong outside of tests.
    problems: Vec<String>,
    /// What happened and is no failure, but must be known.
    remarks: Vec<String>,
}

/// How many tests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// The judgement on a run.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) counts: Counts,
    /// Tests that did not pass, by name, each with the reason.
    pub(crate) failed: Vec<(String, String)>,
    pub(crate) problems: Vec<String>,
    pub(crate) remarks: Vec<String>,
}

impl Judgement {
    /// The exit status of the run.
    pub(crate) fn status(&self) -> u8 {
        u8::from(self.counts.failed > 0)
    }
}

/// A line of `times.tsv`.
#[derive(Debug)]
pub(crate) struct Time<'a> {
    pub(crate) name: &'a str,
    pub(crate) guest: &'a str,
    pub(crate) seconds: f64,
    pub(crate) idle_percent: u32,
    pub(crate) limit_s: u64,
    pub(crate) ending: &'static str,
}

impl Results {
    /// A test that must come to a verdict, the seconds that it may take, and the kernel that it
    /// runs on.
    pub(crate) fn plan(&mut self, name: &str, limit_s: u64, kernel: &str) {
        let entry = Entry {
            limit_s,
            kernel: kernel.to_owned(),
            ..Entry::default()
        };
        if self.entries.insert(name.to_owned(), entry).is_some() {
            self.problem(format!("{name} is planned twice"));
        }
    }

    pub(crate) fn planned(&self) -> usize {
        self.entries.len()
    }

    /// Takes a verdict; the number of those that have come.
    pub(crate) fn add(&mut self, name: &str, guest: &str, verdict: Verdict) -> usize {
        let done = Done {
            verdict,
            guest: guest.to_owned(),
        };
        match self.entries.get_mut(name) {
            Some(entry) => entry.done.push(done),
            None => self.problem(format!("a verdict on {name}, which was not planned")),
        }
        self.entries.values().map(|entry| entry.done.len()).sum()
    }

    pub(crate) fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    pub(crate) fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }

    /// A guest died of QEMU's own doing while this test ran. Whether it may be tried again:
    /// the same test twice is no accident.
    pub(crate) fn interrupt(&mut self, name: &str) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            self.problem(format!("{name} was interrupted, which was not planned"));
            return false;
        };
        entry.interrupted += 1;
        entry.interrupted == 1
    }

    pub(crate) fn times(&self) -> Vec<Time<'_>> {
        let times = self.entries.iter().flat_map(|(name, entry)| {
            entry.done.iter().map(move |done| Time {
                name,
                guest: &done.guest,
                seconds: done.verdict.seconds,
                idle_percent: done.verdict.idle_percent,
                limit_s: entry.limit_s,
                ending: match done.verdict.ending {
                    Ending::Passed => "passed",
                    Ending::Failed => "failed",
                    Ending::Skipped(_) => "skipped",
                },
            })
        });
        times.collect()
    }

    /// What all of it comes to. A run that went wrong in whatever way never has "0 failed".
    pub(crate) fn judge(&self) -> Judgement {
        let mut judgement = Judgement {
            problems: self.problems.clone(),
            remarks: self.remarks.clone(),
            ..Judgement::default()
        };
        for (name, entry) in &self.entries {
            match entry.judge(name) {
                Ok(Ending::Skipped(_)) => judgement.counts.skipped += 1,
                Ok(_) => judgement.counts.passed += 1,
                Err(why) => {
                    judgement.counts.failed += 1;
                    judgement.failed.push((name.clone(), why));
                }
            }
        }
        if !judgement.problems.is_empty() {
            judgement.counts.failed = judgement.counts.failed.max(1);
        }
        if self.entries.is_empty() {
            judgement.problems.push("no test was planned".into());
            judgement.counts.failed = 1;
        }
        judgement
    }
}

impl Entry {
    /// How the test ended; or why it did not pass.
    fn judge(&self, name: &str) -> Result<Ending, String> {
        if let Some(done) = self.done.iter().find(|done| done.failed()) {
            return Err(format!("failed in guest {}", done.guest));
        }
        let wanted = match self.interrupted {
            0 => 1,
            1 => 2,
            more => return Err(format!("the guest died in it {more} times")),
        };
        if self.done.len() != wanted {
            return Err(format!(
                "{} verdicts where {wanted} were due",
                self.done.len()
            ));
        }
        for done in &self.done {
            if let Ending::Skipped(reason) = &done.verdict.ending {
                if !skips::is_allowed(&self.kernel, name, reason) {
                    return Err(format!("skipped, which no list allows: {reason}"));
                }
                return Ok(done.verdict.ending.clone());
            }
        }
        Ok(Ending::Passed)
    }
}

impl Done {
    fn failed(&self) -> bool {
        self.verdict.ending == Ending::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ending: Ending) -> Verdict {
        Verdict {
            name: String::new(),
            ending,
            seconds: 1.0,
            idle_percent: 0,
            notes: Vec::new(),
        }
    }

    fn counts(results: &Results) -> (u64, u64, u64) {
        let counts = results.judge().counts;
        (counts.passed, counts.failed, counts.skipped)
    }

    fn planned(names: &[&str]) -> Results {
        let mut results = Results::default();
        names
            .iter()
            .for_each(|name| results.plan(name, 60, NO_KERNEL));
        results
    }

    #[test]
    fn each_planned_test_needs_its_verdict() {
        let mut results = planned(&["a", "b"]);
        assert_eq!(counts(&results), (0, 2, 0));
        results.add("a", "one", verdict(Ending::Passed));
        assert_eq!(counts(&results), (1, 1, 0));
        results.add("b", "two", verdict(Ending::Passed));
        assert_eq!(counts(&results), (2, 0, 0));
        results.add("b", "one", verdict(Ending::Passed));
        assert_eq!(counts(&results), (1, 1, 0));
    }

    #[test]
    fn an_interrupted_test_must_pass_twice() {
        let mut results = planned(&["a"]);
        assert!(results.interrupt("a"));
        results.add("a", "one", verdict(Ending::Passed));
        assert_eq!(counts(&results), (0, 1, 0));
        results.add("a", "one", verdict(Ending::Passed));
        assert_eq!(counts(&results), (1, 0, 0));
        assert!(!results.interrupt("a"));
        assert_eq!(counts(&results), (0, 1, 0));
        let mut results = planned(&["a"]);
        assert!(results.interrupt("a"));
        results.add("a", "one", verdict(Ending::Failed));
        results.add("a", "one", verdict(Ending::Passed));
        assert_eq!(counts(&results), (0, 1, 0));
    }

    #[test]
    fn a_skip_that_no_list_allows_is_a_failure() {
        let mut results = planned(&["a"]);
        results.add("a", "one", verdict(Ending::Skipped("no gdb".into())));
        assert_eq!(counts(&results), (0, 1, 0));
        let skipped = Ending::Skipped("no FAULT_INJECTION in this kernel".into());
        // Each by the kernel of its own stage.
        let (test, other) = (
            "probes_are_attached_or_not",
            "lockdep.probes_are_attached_or_not",
        );
        let mut results = planned(&[test]);
        results.add(test, "one", verdict(skipped.clone()));
        results.plan(other, 60, "7.2.12+deb13-amd64-lockdep");
        results.add(other, "one", verdict(skipped));
        assert_eq!(counts(&results), (0, 1, 1));
    }

    #[test]
    fn whatever_goes_wrong_is_a_failure() {
        assert_eq!(counts(&Results::default()), (0, 1, 0));
        let good = || {
            let mut results = planned(&["a"]);
            results.add("a", "one", verdict(Ending::Passed));
            results
        };
        let mut results = good();
        results.problem("not done after 9 s".into());
        assert_eq!(counts(&results), (1, 1, 0));
        let mut results = good();
        results.add("b", "one", verdict(Ending::Passed));
        assert_eq!(counts(&results), (1, 1, 0));
        let mut results = good();
        results.plan("a", 60, NO_KERNEL);
        assert_eq!(counts(&results).1, 1);
        let mut results = good();
        assert!(!results.interrupt("b"));
        assert_eq!(counts(&results), (1, 1, 0));
    }
}
