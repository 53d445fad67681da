// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long each test took: a file, and the slowest ones in words.

use crate::results::Time;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Tests that are printed.
const SLOWEST: usize = 15;

/// Writes `times.tsv`, the slowest test first: name, guest, seconds, idle share of the
/// guest's CPUs in percent, limit in seconds, ending.
pub(crate) fn write(folder: &Path, mut times: Vec<Time<'_>>) -> Result<()> {
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut text = String::from("name\tguest\tseconds\tidle_percent\tlimit_s\tending\n");
    for time in &times {
        let Time {
            name,
            guest,
            seconds,
            idle_percent,
            limit_s,
            ending,
        } = time;
        // Into memory: cannot fail.
        let _ = writeln!(
            text,
            "{name}\t{guest}\t{seconds:.2}\t{idle_percent}\t{limit_s}\t{ending}"
        );
    }
    let file = folder.join("times.tsv");
    fs::write(&file, text).with_context(|| file.display().to_string())
}

/// The slowest tests, all together, and those that came near their limits.
pub(crate) fn summary(mut times: Vec<Time<'_>>) -> Vec<String> {
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let sum: f64 = times.iter().map(|time| time.seconds).sum();
    let mut lines = vec![format!(
        "{} tests took {sum:.0} s; the slowest:",
        times.len()
    )];
    let line = |time: &Time<'_>| {
        format!(
            "  {:6.1} s, {:3} % idle  {}",
            time.seconds, time.idle_percent, time.name
        )
    };
    lines.extend(times.iter().take(SLOWEST).map(line));
    let near = times
        .iter()
        .filter(|time| time.seconds > time.limit_s as f64 / 2.0);
    lines.extend(near.map(|time| {
        format!(
            "  above half of its limit of {} s: {}",
            time.limit_s, time.name
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(name: &str, seconds: f64) -> Time<'_> {
        Time {
            name,
            guest: "a",
            seconds,
            idle_percent: 10,
            limit_s: 60,
            ending: "passed",
        }
    }

    #[test]
    fn the_slowest_come_first_and_near_limits_are_told() {
        let lines = summary(vec![time("quick", 0.5), time("slow", 31.0)]);
        assert_eq!(lines[0], "2 tests took 32 s; the slowest:");
        assert!(lines[1].ends_with("slow") && lines[2].ends_with("quick"));
        assert_eq!(lines[3], "  above half of its limit of 60 s: slow");
        assert_eq!(lines.len(), 4);
    }
}
