// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a run, in words.

use std::fs;

use crate::guest::{Guest, Outcome};
use crate::ktap::{Counts, Parser, Summary};

/// Cuts the terminal's bytes into lines for the parser.
#[derive(Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
    parser: Parser,
}

impl Lines {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.partial.extend_from_slice(piece);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.parser.line(String::from_utf8_lossy(&line).trim_end());
        }
    }

    pub(crate) fn finish(mut self) -> Summary {
        self.feed(b"\n");
        self.parser.finish()
    }
}

/// Lines of the kernel's console that are shown: before the end or the first
/// trouble, and after the trouble.
const BEFORE: usize = 10;
const AFTER: usize = 40;

/// Prints what went wrong outside of the tests, and where to read on.
pub(crate) fn problems(guest: &Guest, outcome: &Outcome) {
    eprintln!("\nfrom the kernel's console:");
    let log = fs::read(guest.folder.join("kernel.log")).unwrap_or_default();
    for line in excerpt(&String::from_utf8_lossy(&log), outcome.trouble.as_deref()) {
        eprintln!("  {line}");
    }
    for problem in &outcome.problems {
        eprintln!("qemu-test: {problem}");
    }
    eprintln!("qemu-test: all logs: {}", guest.folder.display());
}

/// Prints the verdict on a test run; its exit status.
pub(crate) fn finish(guest: &Guest, summary: Summary, outcome: &Outcome) -> u8 {
    let (counts, reasons) = judge(&summary, outcome);
    if !outcome.problems.is_empty() {
        problems(guest, outcome);
    }
    for problem in &summary.problems {
        eprintln!("qemu-test: {problem}");
    }
    for name in &summary.failed_tests {
        eprintln!("failed: {name}; alone again: make test ONLY={name}");
    }
    if reasons > 0 {
        eprintln!("logs: {}", guest.folder.display());
    }
    println!(
        "{} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.skipped
    );
    u8::from(counts.failed > 0)
}

/// The counts to tell, and how many reasons there are to call it a failure.
/// A run that failed for whatever reason never shows "0 failed".
fn judge(summary: &Summary, outcome: &Outcome) -> (Counts, usize) {
    let status = usize::from(outcome.status.is_some_and(|status| status != 0));
    let reasons = summary.problems.len()
        + summary.failed_tests.len()
        + outcome.problems.len()
        + usize::from(outcome.status.is_none())
        + status;
    let mut counts = summary.counts;
    if reasons > 0 {
        counts.failed = counts.failed.max(1);
    }
    (counts, reasons)
}

/// The lines around the trouble, or the last ones.
fn excerpt<'a>(log: &'a str, trouble: Option<&str>) -> Vec<&'a str> {
    let lines: Vec<_> = log.lines().map(str::trim_end).collect();
    let centre = trouble
        .and_then(|trouble| lines.iter().position(|line| *line == trouble))
        .unwrap_or(lines.len());
    let first = centre.saturating_sub(BEFORE);
    lines.into_iter().skip(first).take(BEFORE + AFTER).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: Option<i32>, problems: &[&str]) -> Outcome {
        Outcome {
            status,
            problems: problems.iter().map(|&text| text.to_owned()).collect(),
            ..Outcome::default()
        }
    }

    fn good() -> Summary {
        let mut lines = Lines::default();
        lines.feed(b"KTAP version 1\n1..1\no");
        lines.feed(b"k 1 attach");
        lines.finish()
    }

    #[test]
    fn a_good_run_has_no_failure() {
        let (counts, reasons) = judge(&good(), &outcome(Some(0), &[]));
        assert_eq!((counts.passed, counts.failed, reasons), (1, 0, 0));
    }

    #[test]
    fn excerpt_holds_the_cause() {
        let log: String = (0..200).map(|number| format!("{number}\r\n")).collect();
        assert_eq!(
            excerpt(&log, Some("100"))[..12],
            ["90", "91", "92", "93", "94", "95", "96", "97", "98", "99", "100", "101"]
        );
        assert_eq!(excerpt(&log, None).first(), Some(&"190"));
        assert_eq!(excerpt("a\nb", None), ["a", "b"]);
    }

    #[test]
    fn every_way_to_go_wrong_is_a_failure() {
        for (summary, outcome) in [
            (good(), outcome(None, &["not done after 9 s"])),
            (good(), outcome(Some(0), &["the kernel warned"])),
            (good(), outcome(Some(1), &[])),
            (good(), outcome(None, &[])),
            (Lines::default().finish(), outcome(Some(0), &[])),
        ] {
            assert!(judge(&summary, &outcome).0.failed > 0, "{outcome:?}");
        }
    }
}
