// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a run: each planned test has exactly one verdict, and whatever else was wrong
//! fails the run, too.

use crate::ktap::Verdict;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Slow tests that are printed.
const SLOWEST: usize = 10;

/// Verdicts and problems, from all lanes.
#[derive(Default)]
pub(crate) struct Results(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    planned: Vec<String>,
    /// Each with the guest that it is of.
    verdicts: Vec<(String, Verdict)>,
    /// Sentences about what went wrong beside the tests.
    problems: Vec<String>,
    shows_all: bool,
}

impl Results {
    pub(crate) fn new(planned: Vec<String>, shows_all: bool) -> Results {
        println!("KTAP version 1\n1..{}", planned.len());
        Results(Mutex::new(Inner {
            planned,
            shows_all,
            ..Inner::default()
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked has not left a verdict half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a verdict and keeps it.
    pub(crate) fn take(&self, guest: &str, verdict: Verdict) {
        let mut inner = self.inner();
        let mut text = String::new();
        if inner.shows_all || !verdict.has_passed {
            for note in &verdict.notes {
                text += note;
                text.push('\n');
            }
        }
        let number = inner.verdicts.len() + 1;
        let ok = if verdict.has_passed { "ok" } else { "not ok" };
        text += &format!(
            "{ok} {number} {} # {:.1} s, {guest}\n",
            verdict.name, verdict.seconds
        );
        // The run goes on when the reader of its output has gone.
        let mut stdout = std::io::stdout();
        let _ = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
        inner.verdicts.push((guest.to_owned(), verdict));
    }

    pub(crate) fn problem(&self, text: String) {
        self.inner().problems.push(text);
    }

    /// Prints the judgement on the run; its exit status.
    pub(crate) fn finish(&self, folder: &Path) -> Result<u8> {
        let inner = self.inner();
        inner.write_times(folder)?;
        let judgement = inner.judge();
        for line in inner.slowest().iter().chain(&judgement.lines) {
            eprintln!("{line}");
        }
        eprintln!("logs: {}", folder.display());
        println!("{} passed, {} failed", judgement.passed, judgement.failed);
        Ok(u8::from(!judgement.lines.is_empty()))
    }
}

/// What a run comes to: it is good when there are no lines.
struct Judgement {
    passed: usize,
    failed: usize,
    lines: Vec<String>,
}

impl Inner {
    fn judge(&self) -> Judgement {
        let problems = self.problems.iter();
        let mut lines: Vec<_> = problems.map(|text| format!("qemu-test: {text}")).collect();
        let mut passed = 0;
        for name in &self.planned {
            let of = |(_, verdict): &&(String, Verdict)| verdict.name == *name;
            let verdicts: Vec<_> = self.verdicts.iter().filter(of).collect();
            let why = match verdicts[..] {
                [(_, verdict)] if verdict.has_passed => {
                    passed += 1;
                    continue;
                }
                [(guest, _)] => format!("in guest {guest}"),
                [] => String::from("no verdict"),
                _ => format!("{} verdicts", verdicts.len()),
            };
            lines.push(format!(
                "failed: {name} ({why}); alone again: make test ONLY={name}"
            ));
        }
        let is_planned = |verdict: &Verdict| self.planned.contains(&verdict.name);
        let others = self.verdicts.iter();
        let others = others.filter(|(_, verdict)| !is_planned(verdict));
        lines
            .extend(others.map(|(_, verdict)| format!("failed: {} was not planned", verdict.name)));
        Judgement {
            passed,
            failed: (self.planned.len() - passed).max(usize::from(!lines.is_empty())),
            lines,
        }
    }

    fn by_time(&self) -> Vec<&(String, Verdict)> {
        let mut all: Vec<_> = self.verdicts.iter().collect();
        all.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
        all
    }

    /// `times.tsv`: name, guest, seconds, idle share of the guest's CPUs in percent.
    fn write_times(&self, folder: &Path) -> Result<()> {
        let mut text = String::from("name\tguest\tseconds\tidle_percent\n");
        for (guest, verdict) in self.by_time() {
            let Verdict {
                name,
                seconds,
                idle_percent,
                ..
            } = verdict;
            // Into memory: cannot fail.
            let _ = writeln!(text, "{name}\t{guest}\t{seconds:.2}\t{idle_percent}");
        }
        let file = folder.join("times.tsv");
        fs::write(&file, text).with_context(|| file.display().to_string())
    }

    fn slowest(&self) -> Vec<String> {
        let all = self.by_time();
        let sum: f64 = all.iter().map(|(_, verdict)| verdict.seconds).sum();
        let mut lines = vec![format!("{} tests took {sum:.0} s; the slowest:", all.len())];
        let slowest = all.into_iter().take(SLOWEST);
        lines.extend(slowest.map(|(_, verdict)| {
            format!(
                "  {:6.1} s, {:3} % idle  {}",
                verdict.seconds, verdict.idle_percent, verdict.name
            )
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(planned: &[&str], verdicts: &[(&str, bool)], problems: &[&str]) -> Judgement {
        let verdict = |(name, has_passed): &(&str, bool)| Verdict {
            name: (*name).to_owned(),
            has_passed: *has_passed,
            seconds: 1.0,
            idle_percent: 0,
            notes: Vec::new(),
        };
        let inner = Inner {
            planned: planned.iter().map(|name| (*name).to_owned()).collect(),
            verdicts: verdicts
                .iter()
                .map(|of| ("a".into(), verdict(of)))
                .collect(),
            problems: problems.iter().map(|text| (*text).to_owned()).collect(),
            shows_all: false,
        };
        inner.judge()
    }

    #[test]
    fn a_run_is_good_when_each_planned_test_has_passed_once() {
        let good = judged(&["x", "y"], &[("y", true), ("x", true)], &[]);
        assert!(good.lines.is_empty());
        assert_eq!((good.passed, good.failed), (2, 0));
        for (verdicts, problems) in [
            (&[("x", true)][..], &[][..]),
            (&[("x", true), ("y", false)], &[]),
            (&[("x", true), ("y", true), ("y", true)], &[]),
            (&[("x", true), ("y", true), ("z", true)], &[]),
            (&[("x", true), ("y", true)], &["the kernel warned"]),
        ] {
            let bad = judged(&["x", "y"], verdicts, problems);
            assert!(!bad.lines.is_empty() && bad.failed > 0, "{verdicts:?}");
        }
    }
}
