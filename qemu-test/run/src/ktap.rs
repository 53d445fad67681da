// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads KTAP version 1 as a guest prints it, test by test.
//!
//! A guest may die half-way and print nothing wrong. So verdicts come in order, a plan must
//! say how many there were, and a test says when it begins: what began and has no verdict was
//! interrupted.

use std::mem;

/// One test's verdict and what came with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) has_passed: bool,
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
    plan: Option<u64>,
    seen: u64,
    /// The test that runs.
    running: Option<String>,
    notes: Vec<String>,
    took: (f64, u32),
    problems: Vec<String>,
}

/// The end of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The test that had begun and has no verdict.
    pub(crate) interrupted: Option<String>,
    /// What is wrong with the verdicts themselves, or missing.
    pub(crate) problems: Vec<String>,
}

/// A line that has a meaning.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Plan(u64),
    Begins(&'a str),
    Took(f64, u32),
    Verdict {
        number: u64,
        name: &'a str,
        has_passed: bool,
    },
}

impl Stream {
    /// Takes a piece of the terminal's output; the verdicts in it.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Vec<Verdict> {
        self.partial.extend_from_slice(piece);
        let mut verdicts = Vec::new();
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            verdicts.extend(self.line(line.trim_end()));
        }
        verdicts
    }

    fn line(&mut self, text: &str) -> Option<Verdict> {
        match parse(text) {
            None => self.notes.push(text.to_owned()),
            Some(Line::Plan(_)) if self.plan.is_some() => self.problem("a second plan"),
            Some(Line::Plan(count)) => self.plan = Some(count),
            Some(Line::Begins(name)) => {
                self.running = Some(name.to_owned());
                self.notes.clear();
            }
            Some(Line::Took(seconds, idle)) => self.took = (seconds, idle),
            Some(Line::Verdict {
                number,
                name,
                has_passed,
            }) => return Some(self.verdict(number, name, has_passed)),
        }
        None
    }

    fn verdict(&mut self, number: u64, name: &str, has_passed: bool) -> Verdict {
        self.seen += 1;
        if number != self.seen {
            let due = self.seen;
            self.problem(&format!("verdict {number} ({name}) where {due} was due"));
        }
        let running = self.running.take();
        if running.as_deref() != Some(name) {
            self.problem(&format!("a verdict on {name} while {running:?} ran"));
        }
        let (seconds, idle_percent) = mem::take(&mut self.took);
        Verdict {
            name: name.to_owned(),
            has_passed,
            seconds,
            idle_percent,
            notes: mem::take(&mut self.notes),
        }
    }

    fn problem(&mut self, text: &str) {
        self.problems.push(text.to_owned());
    }

    /// Nothing more comes.
    pub(crate) fn finish(mut self) -> End {
        match self.plan {
            None => self.problem("no plan (1..N): tests may be missing"),
            Some(plan) if plan != self.seen => {
                self.problem(&format!("{plan} tests planned, {} verdicts", self.seen));
            }
            Some(_) => {}
        }
        if !self.partial.is_empty() {
            // What it would have been is not known.
            let cut = String::from_utf8_lossy(&self.partial).into_owned();
            self.problem(&format!("the last line is cut off: {cut:?}"));
        }
        End {
            interrupted: self.running,
            problems: self.problems,
        }
    }
}

fn parse(text: &str) -> Option<Line<'_>> {
    if let Some(name) = text.strip_prefix("# begins: ") {
        return Some(Line::Begins(name));
    }
    if let Some(took) = text.strip_prefix("# took: ") {
        let (seconds, idle) = took.strip_suffix(" % idle")?.split_once(" s, ")?;
        return Some(Line::Took(seconds.parse().ok()?, idle.parse().ok()?));
    }
    if let Some(count) = text.strip_prefix("1..") {
        return count.parse().ok().map(Line::Plan);
    }
    let (has_passed, rest) = match text.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok ")?),
    };
    let (number, name) = rest.split_once(' ')?;
    Some(Line::Verdict {
        number: number.parse().ok()?,
        name: name.trim(),
        has_passed,
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

    #[test]
    fn verdicts_come_with_their_times_and_lines() {
        let (verdicts, end) = read(
            "KTAP version 1\n1..2\n# begins: a\n# took: 1.25 s, 40 % idle\nok 1 a\n\
             # begins: b\n# values: 1 and 2\n# took: 0.50 s, 0 % idle\nnot ok 2 b\n",
        );
        assert_eq!(end, End::default());
        let [a, b] = &verdicts[..] else {
            panic!("{verdicts:?}")
        };
        assert_eq!(
            (a.name.as_str(), a.seconds, a.idle_percent),
            ("a", 1.25, 40)
        );
        assert!(a.has_passed && a.notes.is_empty());
        assert!(!b.has_passed && b.notes == ["# values: 1 and 2"]);
    }

    #[test]
    fn what_is_missing_or_out_of_order_is_a_problem() {
        for text in [
            "",
            "1..2\n# begins: a\nok 1 a\n",
            "# begins: a\nok 1 a\n",
            "1..1\nok 1 a\n",
            "1..1\n# begins: b\nok 1 a\n",
            "1..2\n# begins: a\nok 1 a\nok 2 a\n",
            "1..1\n# begins: a\nok 2 a\n",
            "1..1\n1..1\n# begins: a\nok 1 a\n",
        ] {
            assert_ne!(read(text).1.problems, [""; 0], "{text:?}");
        }
    }

    #[test]
    fn what_began_and_has_no_verdict_was_interrupted() {
        for end in ["", "ok 2 b"] {
            let (verdicts, end) = read(&format!("1..2\n# begins: a\nok 1 a\n# begins: b\n{end}"));
            assert_eq!(verdicts.len(), 1);
            assert_eq!(end.interrupted.as_deref(), Some("b"));
        }
    }
}
