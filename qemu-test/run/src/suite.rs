// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests in stages, and a stage's tests in several guests side by side. The guests take
//! tests from one queue, a folder that all see: the guest that makes a link of a test's name
//! there runs the test. There it also records what it says of them, where a crash loses nothing.

use crate::catalogue::Test;
use crate::ended::{Ended, Next};
use crate::guest::{Guest, Terminal};
use crate::ktap::{Ending, Stream, Verdict};
use crate::owed::{self, Owed};
use crate::plan::TWO_CPUS;
use crate::shared::Run;
use crate::{carried, order, quote, report};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

/// Tests whose limit is this number of seconds or more are begun early.
const LONG: u64 = 360;

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

impl Stage {
    pub(crate) fn full_name(&self, test: &str) -> String {
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
mod tests;
