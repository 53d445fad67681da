// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a run, in words.

use crate::guest::{Guest, Outcome};
use std::fs;

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
