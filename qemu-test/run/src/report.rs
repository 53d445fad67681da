// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a run, in words.

use crate::guest::{Guest, Outcome};
use crate::results::Results;
use crate::times;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Lines of the kernel's console that are shown: before the end or the first
/// trouble, and after the trouble.
const BEFORE: usize = 10;
const AFTER: usize = 40;

/// Prints the part of a guest's console that is about its trouble.
pub(crate) fn console(guest: &Guest, outcome: &Outcome) {
    eprintln!("\nfrom the kernel's console of guest {}:", guest.name());
    let log = fs::read(guest.console()).unwrap_or_default();
    for line in excerpt(&String::from_utf8_lossy(&log), outcome.trouble.as_deref()) {
        eprintln!("  {line}");
    }
}

/// Prints what went wrong with a command, and where to read on.
pub(crate) fn problems(guest: &Guest, outcome: &Outcome) {
    console(guest, outcome);
    for problem in &outcome.problems {
        eprintln!("qemu-test: {problem}");
    }
    eprintln!("qemu-test: all logs: {}", guest.folder.display());
}

/// Prints the judgement on a test run; its exit status.
pub(crate) fn finish(folder: &Path, results: &Results) -> Result<u8> {
    times::write(folder, results.times())?;
    for line in times::summary(results.times()) {
        eprintln!("{line}");
    }
    let judgement = results.judge();
    for remark in &judgement.remarks {
        eprintln!("qemu-test: {remark}");
    }
    for problem in &judgement.problems {
        eprintln!("qemu-test: {problem}");
    }
    for (name, why) in &judgement.failed {
        eprintln!("failed: {name} ({why}); alone again: {}", alone(name));
    }
    eprintln!("logs: {}", folder.display());
    let counts = judgement.counts;
    println!(
        "{} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.skipped
    );
    Ok(judgement.status())
}

/// The command that runs a test alone, as its stage does.
fn alone(name: &str) -> String {
    match name.split_once('.') {
        // The test itself says what it needs.
        Some(("races", test)) => format!("make test ONLY={test}"),
        Some(("sanitized", test)) => format!(
            "SMP=4 MEMORY=512M cargo run --release -p nsprobe-qemu-run -- --sanitize test --only {test}"
        ),
        Some(("lockdep", _)) => String::from("make test STAGE=lockdep"),
        _ => format!("make test ONLY={name}"),
    }
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

    #[test]
    fn a_test_is_run_alone_as_in_its_stage() {
        assert_eq!(alone("a"), "make test ONLY=a");
        assert_eq!(alone("races.a"), "make test ONLY=a");
        assert_eq!(alone("lockdep.a"), "make test STAGE=lockdep");
        // The controls are known by their whole names.
        assert_eq!(alone("runner.an_oops"), "make test ONLY=runner.an_oops");
        let sanitized = alone("sanitized.a");
        assert!(
            sanitized.ends_with("--sanitize test --only a"),
            "{sanitized}"
        );
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
}
