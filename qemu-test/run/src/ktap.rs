// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads KTAP version 1: counts verdicts and notices what is missing.
//!
//! A test run may die half-way and print nothing wrong. So the parser accepts
//! a suite only when a plan stands before the verdicts and there is exactly
//! one verdict, in order, for each number of the plan.

use std::ops::AddAssign;

/// How many tests ended in which way. Tests with subtests are not counted
/// themselves: their subtests are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// One level of indentation: a plan and its verdicts.
#[derive(Debug, Default)]
struct Suite {
    plan: Option<u64>,
    seen: u64,
    counts: Counts,
}

/// The parser: fed line by line, asked once at the end.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Open suites, the outermost first.
    suites: Vec<Suite>,
    failed_tests: Vec<String>,
    problems: Vec<String>,
}

/// What a whole stream said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) counts: Counts,
    /// Names of the outermost tests that failed, as `ONLY=` takes them.
    pub(crate) failed_tests: Vec<String>,
    /// Outermost tests that the plan told of, and verdicts on them.
    pub(crate) planned: u64,
    pub(crate) verdicts: u64,
    /// Why the stream itself cannot be trusted; empty when it can.
    pub(crate) problems: Vec<String>,
}

impl Summary {
    /// The runs of one plan, each of what the ones before have left: all but the last one
    /// ended in its midst.
    pub(crate) fn of_parts(parts: Vec<Summary>) -> Summary {
        // From the end, so that each is compared with all that follows it.
        let joined = parts.into_iter().rev();
        let joined = joined.reduce(|rest, part| part.followed_by(rest));
        joined.unwrap_or_default()
    }

    /// This run ended in the midst of its plan, and `rest` has run what was left of it.
    fn followed_by(mut self, mut rest: Summary) -> Summary {
        if self.planned == 0 {
            return rest;
        }
        let left = self.planned.saturating_sub(self.verdicts);
        // What is missing here is there, or is missed there. Whatever else was wrong still is.
        let missing = cut_short(self.planned, self.verdicts);
        self.problems.retain(|problem| *problem != missing);
        if rest.planned != left {
            let problem = format!("{left} tests were left, and {} planned", rest.planned);
            self.problems.push(problem);
        }
        self.problems.append(&mut rest.problems);
        self.failed_tests.append(&mut rest.failed_tests);
        self.counts += rest.counts;
        self.verdicts += rest.verdicts;
        self
    }
}

/// A line that has a meaning.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Version,
    Plan(u64),
    Verdict(Verdict<'a>),
    BailOut(&'a str),
}

#[derive(Debug, PartialEq, Eq)]
struct Verdict<'a> {
    ok: bool,
    number: u64,
    name: &'a str,
    skipped: bool,
}

impl Parser {
    /// Takes the next line; what is not KTAP (a program's own output) passes.
    pub(crate) fn line(&mut self, line: &str) {
        let text = line.trim_start_matches(' ');
        let depth = (line.len() - text.len()) / 2;
        match parse(text.trim_end()) {
            Some(Line::Version) => self.open(depth),
            Some(Line::Plan(count)) => self.plan(depth, count),
            Some(Line::Verdict(verdict)) => self.verdict(depth, &verdict),
            Some(Line::BailOut(why)) => self.problems.push(format!("the tests gave up: {why}")),
            None => {}
        }
    }

    /// The verdict on the whole: suites still open are closed and checked.
    pub(crate) fn finish(mut self) -> Summary {
        if self.suites.is_empty() {
            self.problems.push("no test output at all".into());
        }
        self.close_below(1);
        let outermost = self.suites.first();
        let planned = outermost.and_then(|suite| suite.plan).unwrap_or(0);
        let verdicts = outermost.map_or(0, |suite| suite.seen);
        let counts = self.close().unwrap_or_default();
        Summary {
            counts,
            planned,
            verdicts,
            failed_tests: self.failed_tests,
            problems: self.problems,
        }
    }

    fn open(&mut self, depth: usize) {
        if depth < self.suites.len() {
            self.problems
                .push(format!("a second suite opens at level {depth}"));
            return;
        }
        self.suites.resize_with(depth + 1, Suite::default);
    }

    fn plan(&mut self, depth: usize, count: u64) {
        match self.suites.get_mut(depth) {
            Some(suite) if suite.plan.is_none() => suite.plan = Some(count),
            Some(_) => self.problems.push(format!("a second plan 1..{count}")),
            None => self
                .problems
                .push(format!("plan 1..{count} without \"KTAP version 1\"")),
        }
    }

    fn verdict(&mut self, depth: usize, verdict: &Verdict<'_>) {
        if depth >= self.suites.len() {
            self.problems
                .push(format!("verdict on {} outside of a suite", verdict.name));
            return;
        }
        let inner = self.close_below(depth + 1);
        let Some(suite) = self.suites.get_mut(depth) else {
            return;
        };
        suite.seen += 1;
        if verdict.number != suite.seen {
            self.problems.push(format!(
                "verdict {} ({}) where number {} was due",
                verdict.number, verdict.name, suite.seen
            ));
        }
        // A failure that no subtest explains is one of its own.
        let own = Counts {
            passed: u64::from(verdict.ok && !verdict.skipped && inner.total() == 0),
            failed: u64::from(!verdict.ok && inner.failed == 0),
            skipped: u64::from(verdict.ok && verdict.skipped && inner.total() == 0),
        };
        suite.counts += own;
        suite.counts += inner;
        if verdict.ok && inner.failed > 0 {
            self.problems
                .push(format!("{} is ok and a part of it is not", verdict.name));
        }
        if depth == 0 && (!verdict.ok || inner.failed > 0) {
            self.failed_tests.push(verdict.name.to_owned());
        }
    }

    /// Closes the suites inside of `depth`; the counts of all of them.
    fn close_below(&mut self, depth: usize) -> Counts {
        let mut counts = Counts::default();
        while self.suites.len() > depth {
            counts += self.close().unwrap_or_default();
        }
        counts
    }

    fn close(&mut self) -> Option<Counts> {
        let suite = self.suites.pop()?;
        match suite.plan {
            None => self
                .problems
                .push("a suite without a plan (1..N): tests may be missing".into()),
            Some(plan) if plan != suite.seen => self.problems.push(cut_short(plan, suite.seen)),
            Some(_) => {}
        }
        Some(suite.counts)
    }
}

fn cut_short(planned: u64, verdicts: u64) -> String {
    format!("{planned} tests planned, {verdicts} verdicts")
}

fn parse(text: &str) -> Option<Line<'_>> {
    if text.strip_prefix("KTAP version ").is_some() {
        return Some(Line::Version);
    }
    if let Some(rest) = text.strip_prefix("Bail out!") {
        return Some(Line::BailOut(rest.trim()));
    }
    if let Some(rest) = text.strip_prefix("1..") {
        let count = rest.split(' ').next()?;
        return count.parse().ok().map(Line::Plan);
    }
    let (ok, rest) = match text.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok ")?),
    };
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = number.parse().ok()?;
    let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
    Some(Line::Verdict(Verdict {
        ok,
        number,
        name: name.trim_start_matches("- ").trim(),
        skipped: directive.starts_with("SKIP"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Summary {
        let mut parser = Parser::default();
        text.lines().for_each(|line| parser.line(line));
        parser.finish()
    }

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn verdicts_are_counted() {
        let summary = read(
            "KTAP version 1\n1..3\nok 1 - attach\nnot ok 2 - detach\nok 3 sample # SKIP no PMU\n",
        );
        assert_eq!(summary.counts, counts(1, 1, 1));
        assert_eq!(summary.failed_tests, ["detach"]);
        assert_eq!(summary.problems, [""; 0]);
    }

    #[test]
    fn other_output_is_let_through() {
        let summary = read("hello\nKTAP version 1\n1..1\n# note\nokay\n1..x\nok 1 a\n");
        assert_eq!(summary.counts, counts(1, 0, 0));
        assert_eq!(summary.problems, [""; 0]);
    }

    #[test]
    fn subtests_count_instead_of_their_parent() {
        let summary = read(concat!(
            "KTAP version 1\n1..2\n",
            "  KTAP version 1\n  1..2\n  ok 1 a\n  not ok 2 b\n",
            "not ok 1 parent\nok 2 c\n"
        ));
        assert_eq!(summary.counts, counts(2, 1, 0));
        assert_eq!(summary.failed_tests, ["parent"]);
        assert_eq!(summary.problems, [""; 0]);
    }

    #[test]
    fn failed_subtest_under_an_ok_parent_is_a_problem() {
        let summary =
            read("KTAP version 1\n1..1\n  KTAP version 1\n  1..1\n  not ok 1 b\nok 1 parent\n");
        assert_eq!(summary.counts, counts(0, 1, 0));
        assert_eq!(summary.failed_tests, ["parent"]);
        assert_eq!(summary.problems.len(), 1);
    }

    #[test]
    fn the_rest_of_a_plan_is_added() {
        let cut = || read("KTAP version 1\n1..3\nok 1 a\n");
        let whole = cut().followed_by(read("KTAP version 1\n1..2\nok 1 b\nnot ok 2 c\n"));
        assert_eq!(whole.counts, counts(2, 1, 0));
        assert_eq!((whole.planned, whole.verdicts), (3, 3));
        assert_eq!(whole.failed_tests, ["c"]);
        assert_eq!(whole.problems, [""; 0]);
        let double = read("KTAP version 1\n1..3\nok 1 a\nok 1 a\n");
        let whole = double.followed_by(read("KTAP version 1\n1..1\nok 1 c\n"));
        assert_eq!(whole.problems.len(), 1, "{:?}", whole.problems);
        // One that died before it had a plan.
        let whole = read("").followed_by(read("KTAP version 1\n1..1\nok 1 a\n"));
        assert_eq!((whole.planned, whole.problems.len()), (1, 0));
        for rest in [
            "KTAP version 1\n1..1\nok 1 b\n",
            "KTAP version 1\n1..2\nok 1 b\n",
            "",
        ] {
            assert_ne!(cut().followed_by(read(rest)).problems, [""; 0], "{rest}");
        }
    }

    #[test]
    fn a_run_may_go_on_more_than_once() {
        let first = "KTAP version 1\n1..4\nok 1 a\n";
        let last = "KTAP version 1\n1..2\nok 1 c\nok 2 d\n";
        let whole = |middle: &[&str], last: &str| {
            let texts = [&[first], middle, &[last]].concat();
            Summary::of_parts(texts.into_iter().map(read).collect())
        };
        let cut = "KTAP version 1\n1..3\nok 1 b\n";
        // Ones that had no time for a verdict, or not even for a plan.
        let none = "KTAP version 1\n1..3\n";
        for middle in [
            &[cut][..],
            &[none, cut],
            &["", cut],
            &[cut, "KTAP version 1\n"],
        ] {
            let whole = whole(middle, last);
            assert_eq!(whole.counts, counts(4, 0, 0), "{middle:?}");
            assert_eq!(whole.problems, [""; 0], "{middle:?}");
        }
        for (middle, last) in [(&[none][..], last), (&[cut], ""), (&[cut], cut)] {
            let problems = whole(middle, last).problems;
            assert_ne!(problems, [""; 0], "{middle:?}, {last}");
        }
    }

    #[test]
    fn missing_things_are_problems() {
        for text in [
            "",
            "KTAP version 1\n",
            "KTAP version 1\nok 1 a\n",
            "KTAP version 1\n1..2\nok 1 a\n",
            "KTAP version 1\n1..1\nok 1 a\nok 1 a\n",
            "KTAP version 1\n1..2\nok 2 b\nok 1 a\n",
            "KTAP version 1\n1..1\n1..1\nok 1 a\n",
            "KTAP version 1\n1..1\nok 1 a\nKTAP version 1\n",
            "KTAP version 1\n1..1\n  KTAP version 1\n  1..2\n  ok 1 a\nok 1 p\n",
            "KTAP version 1\n1..1\nBail out! no module\nok 1 a\n",
            "1..1\nok 1 a\n",
        ] {
            assert_ne!(read(text).problems, [""; 0], "{text:?}");
        }
    }
}
