// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads KTAP version 1 as a guest prints it, test by test.
//!
//! A guest may die half-way and print nothing wrong. So verdicts come in order, a plan must
//! say how many there were, and a test says when it begins: what began and has no verdict was
//! interrupted. What a crash has cut off is made up for by the guest's record (`catch_up`).

use std::mem;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Passed,
    Failed,
    /// It could not be run, and why.
    Skipped(String),
}

/// One test's verdict and what came with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) ending: Ending,
    /// How long it took, and how much of that the guest's CPUs were idle.
    pub(crate) seconds: f64,
    pub(crate) idle_percent: u32,
    /// Lines that it printed.
    pub(crate) notes: Vec<String>,
}

/// The parser: fed with the terminal's bytes, asked once at the end.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    partial: Vec<u8>,
    has_begun: bool,
    plan: Option<u64>,
    seen: u64,
    /// The test that runs.
    running: Option<String>,
    notes: Vec<String>,
    took: (f64, u32),
    hands_over: Option<String>,
    problems: Vec<String>,
}

/// The end of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The test that had begun and has no verdict.
    pub(crate) interrupted: Option<String>,
    /// What is wrong with the verdicts themselves.
    pub(crate) problems: Vec<String>,
    /// What is missing, which a crash of the guest explains.
    pub(crate) missing: Vec<String>,
    /// The test that did not end, behind which a fresh guest is to go on.
    pub(crate) hands_over: Option<String>,
}

/// A line that has a meaning.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Version,
    Plan(u64),
    Begins(&'a str),
    Took(f64, u32),
    HandsOver(&'a str),
    BailOut(&'a str),
    Verdict {
        number: u64,
        name: &'a str,
        ending: Ending,
    },
}

impl Stream {
    /// Takes a piece of the terminal's output; the verdicts in it.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Vec<Verdict> {
        self.partial.extend_from_slice(piece);
        let mut verdicts = Vec::new();
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            verdicts.extend(self.line(String::from_utf8_lossy(&line).trim_end()));
        }
        verdicts
    }

    fn line(&mut self, line: &str) -> Option<Verdict> {
        match parse(line) {
            None => self.notes.push(line.to_owned()),
            Some(Line::Version) if self.has_begun => self.problem("a second suite begins"),
            Some(Line::Version) => self.has_begun = true,
            Some(Line::Plan(_)) if self.plan.is_some() => self.problem("a second plan"),
            Some(Line::Plan(count)) => self.plan = Some(count),
            Some(Line::Begins(name)) => self.running = Some(name.to_owned()),
            Some(Line::Took(seconds, idle)) => self.took = (seconds, idle),
            Some(Line::HandsOver(name)) => self.hands_over = Some(name.to_owned()),
            Some(Line::BailOut(why)) => self.problem(&format!("the tests gave up: {why}")),
            Some(Line::Verdict {
                number,
                name,
                ending,
            }) => return Some(self.verdict(number, name, ending)),
        }
        None
    }

    fn verdict(&mut self, number: u64, name: &str, ending: Ending) -> Verdict {
        if !self.has_begun {
            self.problem(&format!("a verdict on {name} before \"KTAP version 1\""));
        }
        self.seen += 1;
        if number != self.seen {
            let due = self.seen;
            self.problem(&format!(
                "verdict {number} ({name}) where number {due} was due"
            ));
        }
        let running = self.running.take();
        if running.as_deref() != Some(name) {
            self.problem(&format!("a verdict on {name} while {running:?} ran"));
        }
        let (seconds, idle_percent) = mem::take(&mut self.took);
        Verdict {
            name: name.to_owned(),
            ending,
            seconds,
            idle_percent,
            notes: mem::take(&mut self.notes),
        }
    }

    fn problem(&mut self, text: &str) {
        self.problems.push(text.to_owned());
    }

    /// Takes what the guest has written to its record as well: what began, and the verdicts. A
    /// guest that crashes may take lines of its terminal with it.
    pub(crate) fn catch_up(&mut self, record: &str) -> Vec<Verdict> {
        let is_verdict = |line: &str| matches!(parse(line), Some(Line::Verdict { .. }));
        let mut seen = 0;
        let unseen = record.lines().filter(|line| {
            let is_unseen = seen >= self.seen;
            seen += u64::from(is_verdict(line));
            is_unseen
        });
        let unseen: Vec<_> = unseen.collect();
        if unseen.iter().any(|line| is_verdict(line)) {
            // Of a line that was cut off.
            self.partial.clear();
        }
        let verdicts = unseen.into_iter().filter_map(|line| self.line(line));
        verdicts.collect()
    }

    /// Nothing more comes.
    pub(crate) fn finish(self) -> End {
        // What it would have been is not known.
        let cut = String::from_utf8_lossy(&self.partial);
        let cut = (!cut.is_empty()).then(|| format!("the last line is cut off: {cut:?}"));
        let missing = if !self.has_begun {
            Some("no test output at all".to_owned())
        } else {
            match self.plan {
                None => Some("no plan (1..N): tests may be missing".to_owned()),
                Some(plan) if plan != self.seen => {
                    Some(format!("{plan} tests planned, {} verdicts", self.seen))
                }
                Some(_) => None,
            }
        };
        End {
            interrupted: self.running,
            problems: self.problems,
            missing: missing.into_iter().chain(cut).collect(),
            hands_over: self.hands_over,
        }
    }
}

fn parse(text: &str) -> Option<Line<'_>> {
    if text.starts_with("KTAP version ") {
        return Some(Line::Version);
    }
    if let Some(why) = text.strip_prefix("Bail out!") {
        return Some(Line::BailOut(why.trim()));
    }
    if let Some(name) = text.strip_prefix("# begins: ") {
        return Some(Line::Begins(name));
    }
    if let Some(name) = text.strip_prefix("# hands over: ") {
        return Some(Line::HandsOver(name));
    }
    if let Some(took) = text.strip_prefix("# took: ") {
        let (seconds, idle) = took.strip_suffix(" % idle")?.split_once(" s, ")?;
        return Some(Line::Took(seconds.parse().ok()?, idle.parse().ok()?));
    }
    if let Some(count) = text.strip_prefix("1..") {
        return count.parse().ok().map(Line::Plan);
    }
    let (ok, rest) = match text.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok ")?),
    };
    let (number, rest) = rest.split_once(' ')?;
    let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
    let ending = match (ok, directive.strip_prefix("SKIP")) {
        (true, Some(reason)) => Ending::Skipped(reason.trim().to_owned()),
        (true, None) => Ending::Passed,
        (false, _) => Ending::Failed,
    };
    Some(Line::Verdict {
        number: number.parse().ok()?,
        name: name.trim(),
        ending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Verdict>, End) {
        let mut stream = Stream::default();
        // In pieces that are no lines.
        let mut verdicts = Vec::new();
        for piece in text.as_bytes().chunks(7) {
            verdicts.extend(stream.feed(piece));
        }
        (verdicts, stream.finish())
    }

    const GOOD: &str = "KTAP version 1\n1..3\n# begins: a\n# took: 1.25 s, 40 % idle\nok 1 a\n\
        # begins: b\n# values: 1 and 2\n# took: 0.50 s, 0 % idle\nnot ok 2 b\n\
        # begins: c\n# took: 0.10 s, 9 % idle\nok 3 c # SKIP no PMU\n";

    #[test]
    fn verdicts_come_with_their_times_and_lines() {
        let (verdicts, end) = read(GOOD);
        assert_eq!(end, End::default());
        let names: Vec<_> = verdicts.iter().map(|verdict| &verdict.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let [a, b, c] = &verdicts[..] else {
            unreachable!()
        };
        assert_eq!((a.seconds, a.idle_percent), (1.25, 40));
        assert_eq!((&a.ending, a.notes.len()), (&Ending::Passed, 0));
        assert_eq!(b.ending, Ending::Failed);
        assert_eq!(b.notes, ["# values: 1 and 2"]);
        assert_eq!(c.ending, Ending::Skipped("no PMU".into()));
    }

    #[test]
    fn a_plan_may_stand_at_the_end() {
        let (verdicts, end) = read("KTAP version 1\n# begins: a\nok 1 a\n1..1\n");
        assert_eq!((verdicts.len(), end), (1, End::default()));
    }

    #[test]
    fn what_began_and_has_no_verdict_was_interrupted() {
        let (verdicts, end) = read("KTAP version 1\n# begins: a\nok 1 a\n# begins: b\n");
        assert_eq!(verdicts.len(), 1);
        assert_eq!(end.interrupted.as_deref(), Some("b"));
        assert_eq!(end.missing.len(), 1);
        assert_eq!(end.problems, [""; 0]);
    }

    #[test]
    fn what_is_missing_is_seen() {
        for text in [
            "",
            "KTAP version 1\n",
            "KTAP version 1\n# begins: a\nok 1 a\n",
            "KTAP version 1\n1..2\n# begins: a\nok 1 a\n",
            "KTAP version 1\n1..0\n# begins: a\nok 1 a\n",
        ] {
            assert_ne!(read(text).1.missing, [""; 0], "{text:?}");
        }
    }

    #[test]
    fn what_is_out_of_order_is_a_problem() {
        for text in [
            "KTAP version 1\n1..1\nok 1 a\n",
            "KTAP version 1\n1..1\n# begins: b\nok 1 a\n",
            "KTAP version 1\n1..2\n# begins: a\nok 1 a\nok 2 a\n",
            "KTAP version 1\n1..1\n# begins: a\nok 2 a\n",
            "KTAP version 1\n1..1\n1..1\n# begins: a\nok 1 a\n",
            "KTAP version 1\nKTAP version 1\n1..1\n# begins: a\nok 1 a\n",
            "KTAP version 1\n1..1\nBail out! no module\n# begins: a\nok 1 a\n",
            "1..1\n# begins: a\nok 1 a\nKTAP version 1\n",
        ] {
            assert_ne!(read(text).1.problems, [""; 0], "{text:?}");
        }
    }

    /// `ok 1 a # SK` was taken for a test that passed.
    #[test]
    fn a_line_that_is_cut_off_means_nothing() {
        let whole = "KTAP version 1\n1..1\n# begins: a\nok 1 a # SKIP no PMU";
        for cut in [whole, whole.strip_suffix("IP no PMU").expect("its end")] {
            let (verdicts, end) = read(cut);
            assert_eq!(verdicts.len(), 0);
            assert_eq!(end.interrupted.as_deref(), Some("a"));
            assert!(end.missing[1].contains("cut off"), "{end:?}");
        }
    }

    #[test]
    fn what_the_terminal_lost_is_in_the_record() {
        let record = "# begins: a\nnot ok 1 a\n# begins: b\nok 2 b\n# begins: c\n";
        let lost = |terminal: &str| {
            let mut stream = Stream::default();
            let mut verdicts = stream.feed(terminal.as_bytes());
            verdicts.extend(stream.catch_up(record));
            (verdicts, stream.finish())
        };
        for terminal in [
            "KTAP version 1\n",
            "KTAP version 1\n# begins: a\n# values: 1\n",
            "KTAP version 1\n# begins: a\nnot ok 1",
            "KTAP version 1\n# begins: a\nnot ok 1 a\n# begi",
            "KTAP version 1\n# begins: a\nnot ok 1 a\n# begins: b\nok 2 b\n",
            "KTAP version 1\n# begins: a\nnot ok 1 a\n# begins: b\nok 2 b\n# begins: c\n",
        ] {
            let (verdicts, end) = lost(terminal);
            let endings: Vec<_> = verdicts.iter().map(|verdict| &verdict.ending).collect();
            assert_eq!(endings, [&Ending::Failed, &Ending::Passed], "{terminal:?}");
            assert_eq!(end.interrupted.as_deref(), Some("c"), "{terminal:?}");
            assert_eq!(end.problems, [""; 0], "{terminal:?}");
        }
    }

    #[test]
    fn a_guest_hands_over_behind_a_test_that_does_not_end() {
        let text = "KTAP version 1\n# begins: a\nnot ok 1 a\n# hands over: a\n1..1\n";
        let (verdicts, end) = read(text);
        assert_eq!(verdicts.len(), 1);
        assert_eq!(end.hands_over.as_deref(), Some("a"));
        assert_eq!((end.problems, end.missing), (Vec::new(), Vec::new()));
    }

    #[test]
    fn other_output_goes_with_the_test() {
        let text = "KTAP version 1\n1..1\n# begins: a\nokay\n1..x\n# took: long\nok 1 a\n";
        let (verdicts, end) = read(text);
        assert_eq!(end, End::default());
        assert_eq!(verdicts[0].notes, ["okay", "1..x", "# took: long"]);
    }
}
