// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests in stages, and a stage's tests in several guests side by side. The guests take
//! tests from one queue, a folder that all see: the guest that makes a link of a test's name
//! there runs the test. There it also records what it says of them, where a crash loses nothing.

use crate::catalogue::Test;
use crate::guest::{Guest, Outcome, Terminal};
use crate::ktap::{End, Ending, Stream, Verdict};
use crate::owed::{self, Owed};
use crate::plan::TWO_CPUS;
use crate::results::Results;
use crate::{carried, order, preflight, quote, report};
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Tests whose limit is this number of seconds or more are begun early.
const LONG: u64 = 180;

/// How often a stage goes on behind crashes that are QEMU's own.
const GOES_ON: usize = 3;

/// Tests that run under the same conditions.
pub(crate) struct Stage {
    /// Stands in front of the tests' names; empty for the plain one.
    pub(crate) prefix: &'static str,
    pub(crate) tests: Vec<Test>,
    /// Guests side by side.
    pub(crate) guests: usize,
    /// How each of them is booted. Its folder holds all of theirs.
    pub(crate) guest: Guest,
    pub(crate) seed: u64,
    /// Show what tests print although they pass.
    pub(crate) shows_all: bool,
    /// What runs in the guests in the place of the tests.
    pub(crate) script: Option<&'static str>,
}

/// What the guests of a run share.
pub(crate) struct Run {
    results: Mutex<Results>,
    /// Nothing is printed: of a run within the run.
    is_quiet: bool,
}

impl Run {
    pub(crate) fn new() -> Run {
        Run {
            results: Mutex::default(),
            is_quiet: false,
        }
    }

    pub(crate) fn quiet() -> Run {
        Run {
            is_quiet: true,
            ..Run::new()
        }
    }

    pub(crate) fn results(&self) -> MutexGuard<'_, Results> {
        // A thread that panicked has not left a verdict half-way.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which tests are to come.
    pub(crate) fn plan(&self, stage: &Stage) {
        let mut results = self.results();
        results.kernel = preflight::kernel(&stage.guest.image).unwrap_or_default();
        for test in &stage.tests {
            results.plan(&stage.full_name(&test.name), test.limit_s);
        }
    }

    /// Prints a verdict and keeps it.
    pub(crate) fn take(&self, name: &str, guest: &str, verdict: Verdict, shows_all: bool) {
        let mut text = String::new();
        if shows_all || verdict.ending != Ending::Passed {
            for note in &verdict.notes {
                text += note;
                text.push('\n');
            }
        }
        let (ok, directive) = match &verdict.ending {
            Ending::Passed => ("ok", String::new()),
            Ending::Failed => ("not ok", String::new()),
            Ending::Skipped(reason) => ("ok", format!(" SKIP {reason},")),
        };
        let seconds = verdict.seconds;
        let mut results = self.results();
        let number = results.add(name, guest, verdict);
        if self.is_quiet {
            return;
        }
        text += &format!("{ok} {number} {name} #{directive} {seconds:.1} s, {guest}\n");
        // A reader who left does not end the run.
        let mut stdout = std::io::stdout();
        let _ = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
    }
}

impl Stage {
    fn full_name(&self, test: &str) -> String {
        format!("{}{test}", self.prefix)
    }

    /// Runs all of its tests.
    pub(crate) fn run(&self, run: &Run) -> Result<()> {
        let queue = self.guest.folder.join(format!("{}queue", self.prefix));
        let names = self.tests.iter();
        let names = names.map(|test| (test.name.clone(), test.limit_s >= LONG));
        let order = order::shuffle(names.collect(), self.seed);
        fs::create_dir_all(queue.join("taken")).with_context(|| queue.display().to_string())?;
        fs::write(queue.join("order"), order.join("\n") + "\n")?;
        if !run.is_quiet {
            eprintln!("qemu-test: {}", self.in_words());
        }
        if !self.guest.has_cpus_at_once() && self.tests.iter().any(|test| test.has(TWO_CPUS)) {
            // They pass there, and show nothing.
            run.results().problem(format!(
                "tests of what CPUs do at the same time ran in {} ({}), which has none such: \
                 leave SMP and ACCEL away",
                self.guests_in_words(),
                self.guest.accel
            ));
        }
        thread::scope(|scope| {
            let guests: Vec<_> = (0..self.guests.min(self.tests.len()))
                .map(|number| {
                    let queue = &queue;
                    scope.spawn(move || {
                        let ended = self.run_guest(run, queue, number);
                        if ended.is_err() {
                            self.guest.stop.store(true, Ordering::Relaxed);
                        }
                        ended
                    })
                })
                .collect();
            for guest in guests {
                match guest.join() {
                    Ok(ended) => ended?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(())
        })
    }

    fn in_words(&self) -> String {
        format!(
            "{} tests in {} ({}); their order is that of seed {}",
            self.tests.len(),
            self.guests_in_words(),
            self.guest.accel,
            self.seed
        )
    }

    fn guests_in_words(&self) -> String {
        let guests = match self.guests {
            1 => String::from("one guest"),
            more => format!("{more} guests"),
        };
        match self.guest.cpus {
            Some(1) => format!("{guests} of one CPU"),
            Some(cpus) => format!("{guests} of {cpus} CPUs"),
            None => guests,
        }
    }

    /// One guest; another one in its place when it died of QEMU's own doing.
    fn run_guest(&self, run: &Run, queue: &Path, number: usize) -> Result<()> {
        let mut owed = Owed::default();
        let mut crashes = 0;
        for boot in 0.. {
            let guest = self.guest_called(queue, &name(self.prefix, number, boot))?;
            let ended = self.boot(run, queue, &guest, &owed)?;
            let is_qemus =
                crashes < GOES_ON && ended.may_be_qemus(&guest) && guest.died_of_qemu()?;
            crashes += usize::from(is_qemus);
            let next = ended.settle(is_qemus, &mut run.results());
            if !is_qemus && !run.is_quiet && !ended.outcome.problems.is_empty() {
                report::console(&guest, &ended.outcome);
            }
            if next == Next::Nothing {
                return Ok(());
            }
            owed.settle(
                owed::taken_by(queue, &guest.name())?,
                &ended.verdicts,
                ended.end.interrupted.as_deref(),
            );
        }
        unreachable!("the last boot returns")
    }

    fn command(&self, guest: &str, owed: &Owed) -> String {
        match self.script {
            Some(script) => script.to_owned(),
            None => format!(
                "exec /payload/nsprobe-guest-test --queue /run/queue {}{}{}",
                quote(guest),
                if self.shows_all { " --show-all" } else { "" },
                owed.words()
            ),
        }
    }

    /// One boot: hands its verdicts on, and what else there is to say of it.
    fn boot(&self, run: &Run, queue: &Path, guest: &Guest, owed: &Owed) -> Result<Ended> {
        let command = self.command(&guest.name(), owed);
        let mut stream = Stream::default();
        let mut verdicts = Vec::new();
        let mut has_writer_passed = false;
        let mut take = |new: Vec<Verdict>| {
            for verdict in new {
                has_writer_passed |=
                    verdict.name == carried::WRITER && verdict.ending == Ending::Passed;
                verdicts.push(verdict.name.clone());
                let name = self.full_name(&verdict.name);
                run.take(&name, &guest.name(), verdict, self.shows_all);
            }
        };
        let mut sink = |piece: &[u8]| take(stream.feed(piece));
        let outcome = guest.run(&command, Terminal::Pipe(&mut sink))?;
        // There is none where nothing of the tests' has run.
        let record = fs::read_to_string(queue.join(format!("{}.ktap", guest.name())));
        take(stream.catch_up(&record.unwrap_or_default()));
        Ok(Ended {
            prefix: self.prefix,
            guest: guest.name(),
            console: guest.console(),
            outcome,
            end: stream.finish(),
            verdicts,
            // Of each boot: another one has a folder of its own.
            carried: carried::problems(guest, has_writer_passed)?,
        })
    }

    fn guest_called(&self, queue: &Path, name: &str) -> Result<Guest> {
        let folder = self.guest.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Guest {
            folder,
            queue: Some(queue.to_owned()),
            ..self.guest.clone()
        })
    }
}

/// A boot that has ended.
struct Ended {
    prefix: &'static str,
    /// The guest's name.
    guest: String,
    console: PathBuf,
    outcome: Outcome,
    end: End,
    /// The tests that came to a verdict, by name.
    verdicts: Vec<String>,
    /// What is wrong with its capsules.
    carried: Vec<String>,
}

/// What follows a boot.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// Another guest, which goes on.
    Another,
}

impl Ended {
    /// Whether the end may have been of QEMU's own doing; the console knows the rest.
    fn may_be_qemus(&self, guest: &Guest) -> bool {
        !self.outcome.problems.is_empty() && self.outcome.running && guest.accel == "tcg"
    }

    /// Says what the end means for the run.
    fn settle(&self, is_qemus: bool, results: &mut Results) -> Next {
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

/// What a guest is called: its stage, its letter, and its boot when it is not the first.
fn name(prefix: &str, number: usize, boot: usize) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    let boot = if boot == 0 {
        String::new()
    } else {
        format!("-{}", boot + 1)
    };
    format!("{prefix}{letter}{boot}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Judgement;
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    /// In the place of scripts/qemu.sh: what the guest called `$guest` would do.
    const AS_A_GUEST: &str = r##"#!/bin/sh
folder=${3%/*} guest=${3%/*} command=$(cat "${3%/*}/out/command")
guest=${guest##*/} queue=$folder/../queue
say() { printf '%s\n' "$@" >>"$folder/kernel.log"; }
crash() {
    say 'Oops: int3: 0000 [#1] SMP' 'RIP: 0010:f+0x1/0x2' 'Code: 0f 1f 44 <00> 00'
    exit 0
}
pass() { printf '%s\n' "# begins: $2" "ok $1 $2"; }
end() { echo "1..$1"; say "nsprobe-guest: exit ${2:-0}"; exit 0; }
say 'nsprobe-guest: running'
echo 'KTAP version 1'
"##;

    /// A stage of one guest, whose boots are this script.
    struct Staged {
        folder: PathBuf,
        judgement: Judgement,
    }

    impl Staged {
        fn run(label: &str, tests: &[&str], script: &str) -> Staged {
            Staged::with(label, tests, script, |_| {})
        }

        /// The same with another stage.
        fn with(label: &str, tests: &[&str], script: &str, change: fn(&mut Stage)) -> Staged {
            let name = format!("nsprobe-stage-{label}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let qemu = folder.join("scripts/qemu.sh");
            fs::create_dir_all(folder.join("scripts")).expect("it is writable");
            fs::write(&qemu, format!("{AS_A_GUEST}{script}")).expect("it is writable");
            fs::set_permissions(&qemu, PermissionsExt::from_mode(0o755)).expect("it is ours");
            let test = |name: &&str| Test {
                name: (*name).to_owned(),
                limit_s: 60,
                tags: BTreeSet::new(),
            };
            let mut stage = Stage {
                prefix: "",
                tests: tests.iter().map(test).collect(),
                guests: 1,
                guest: Guest::in_folder(&folder),
                seed: 1,
                shows_all: false,
                script: None,
            };
            change(&mut stage);
            let run = Run::quiet();
            run.plan(&stage);
            stage.run(&run).expect("the script can be run");
            let judgement = run.results().judge();
            Staged { folder, judgement }
        }

        /// What the guest of this name was told to do.
        fn command(&self, guest: &str) -> String {
            let file = self.folder.join(guest).join("out/command");
            fs::read_to_string(file).unwrap_or_default()
        }

        fn is_good(&self) -> bool {
            self.judgement.counts.failed == 0
        }

        fn has_problem(&self, part: &str) -> bool {
            let mut problems = self.judgement.problems.iter();
            problems.any(|problem| problem.contains(part))
        }
    }

    impl Drop for Staged {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn a_guest_that_dies_of_qemu_is_followed_by_another_one() {
        let script = "[ $guest = a ] && { pass 1 one; echo '# begins: two'; crash; }
            pass 1 two; pass 2 two; end 2";
        let staged = Staged::run("follows", &["one", "two"], script);
        assert!(staged.is_good(), "{:?}", staged.judgement);
        let remark = &staged.judgement.remarks[0];
        assert!(
            remark.contains("died of QEMU's own doing (two)"),
            "{remark}"
        );
        assert!(staged
            .command("a-2")
            .ends_with("--first 'two' --first 'two'"));
    }

    /// The verdicts on what an earlier guest had been interrupted in were too many.
    #[test]
    fn what_has_run_again_is_owed_no_more() {
        let script = "case $guest in
            a) echo '# begins: one'; crash ;;
            a-2) pass 1 one; pass 2 one; echo '# begins: two'; crash ;;
            esac
            pass 1 two; pass 2 two; end 2";
        let staged = Staged::run("owed", &["one", "two"], script);
        let command = staged.command("a-3");
        assert!(
            command.ends_with("'a-3' --first 'two' --first 'two'"),
            "{command}"
        );
        assert!(staged.is_good(), "{:?}", staged.judgement);
    }

    #[test]
    fn whatever_goes_wrong_in_a_guest_is_a_failed_run() {
        for (label, script, part) in [
            (
                "midst",
                "pass 1 one; echo '# begins: two'; end 1",
                "ended in the midst of two",
            ),
            (
                "status",
                "pass 1 one; pass 2 two; end 2 127",
                "the tests ended with 127",
            ),
            (
                "plan",
                "pass 1 one; pass 2 two; end 3",
                "3 tests planned, 2 verdicts",
            ),
            (
                "silent",
                "pass 1 one; pass 2 two; exit 0",
                "without a verdict",
            ),
            ("qemu", "pass 1 one; pass 2 two; exit 3", "QEMU failed"),
            (
                "warns",
                "say 'WARNING: x'; pass 1 one; pass 2 two; end 2",
                "the kernel warned",
            ),
        ] {
            let staged = Staged::run(label, &["one", "two"], script);
            assert!(staged.has_problem(part), "{label}: {:?}", staged.judgement);
            assert_eq!(staged.judgement.status(), 1, "{label}");
        }
        for (label, script, reason) in [
            (
                "fails",
                "pass 1 one; echo '# begins: two'; echo not ok 2 two; end 2",
                "failed in",
            ),
            ("queue", "pass 1 one; end 1", "0 verdicts"),
            (
                "skips",
                "pass 1 one; echo '# begins: two'; echo 'ok 2 two # SKIP x'; end 2",
                "skipped",
            ),
        ] {
            let staged = Staged::run(label, &["one", "two"], script);
            let failed = &staged.judgement.failed;
            assert!(
                failed[0].1.contains(reason),
                "{label}: {:?}",
                staged.judgement
            );
            assert_eq!(staged.judgement.status(), 1, "{label}");
        }
    }

    #[test]
    fn a_fresh_guest_goes_on_behind_a_test_that_did_not_end() {
        let script = "[ $guest = a-6 ] || {
                printf '%s\\n' '# begins: one' 'not ok 1 one' '# hands over: one'
                rm -f $queue/taken/one
                end 1 1
            }
            pass 1 two; end 1";
        let staged = Staged::run("over", &["two"], script);
        // As often as it takes: each boot is one test less.
        assert_eq!(staged.judgement.remarks.len(), 5, "{:?}", staged.judgement);
        assert!(staged.judgement.remarks[0].contains("ended behind one"));
        assert_eq!(staged.judgement.counts.passed, 1);
    }

    #[test]
    fn what_a_crash_took_from_the_terminal_is_not_lost() {
        // Its failure is in the record alone; what was taken and not begun runs once.
        let script = "[ $guest = a ] && {
                ln -s a $queue/taken/one; ln -s a $queue/taken/two; ln -s a $queue/taken/three
                printf '%s\\n' '# begins: one' 'not ok 1 one' '# begins: two' >$queue/a.ktap
                echo '# begins: one'; printf 'not o'; crash
            }
            pass 1 two; pass 2 two; pass 3 three; end 3";
        let staged = Staged::run("lost", &["one", "two", "three"], script);
        let command = staged.command("a-2");
        let wanted = "--first 'two' --first 'two' --first 'three'";
        assert!(command.ends_with(wanted), "{command}");
        let failed: Vec<_> = staged
            .judgement
            .failed
            .iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(failed, ["one"], "{:?}", staged.judgement);
        assert_eq!(staged.judgement.counts.passed, 2);
    }

    #[test]
    fn races_without_cpus_at_once_are_no_success() {
        let of = |label, change: fn(&mut Stage)| {
            Staged::with(label, &["one"], "pass 1 one; end 1", change)
        };
        let one_cpu = of("one-cpu", |stage| {
            stage.tests[0].tags.insert(TWO_CPUS.into());
            stage.guest.cpus = Some(1);
        });
        assert!(
            one_cpu.has_problem("at the same time"),
            "{:?}",
            one_cpu.judgement
        );
        let two_cpus = of("two-cpus", |stage| {
            stage.tests[0].tags.insert(TWO_CPUS.into());
            stage.guest.cpus = Some(2);
        });
        assert!(two_cpus.is_good(), "{:?}", two_cpus.judgement);
    }

    #[test]
    fn the_capsules_of_each_boot_are_looked_at() {
        let script = format!(
            "[ $guest = a ] && {{ pass 1 {}; crash; }}; pass 1 one; end 1",
            carried::WRITER
        );
        let staged = Staged::run("carried", &["one", carried::WRITER], &script);
        assert!(staged.has_problem("no capsule"), "{:?}", staged.judgement);
    }
}
