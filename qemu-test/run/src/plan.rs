// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run of tests consists of, and in which order: controls, stages of guests, and the
//! host's own parts beside them.

use crate::catalogue::{self, Test};
use crate::controls::Controls;
use crate::guest::Guest;
use crate::host::Parts;
use crate::preflight;
use crate::shared::Run;
use crate::suite::Stage;
use crate::{output, report, Selection, SANITIZE};
use anyhow::{Context, Result};
use std::env;
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Most guests side by side, each with 2 GB of memory.
const GUESTS_MAX: usize = 4;

/// Tags of tests: it needs CPUs that run at the same time; it is about the module and needs
/// no containers; it is one of those that every commit passes; it is one of those for which
/// the kernel that checks locks is worth its time; it counts the kernel's memory; it is not
/// for the guest in which memory is checked.
pub(crate) const TWO_CPUS: &str = "two-cpus";
const MODULE: &str = "module";
const QUICK: &str = "quick";
const CORE: &str = "core";
const MEMORY: &str = "memory";
const STOCK_ONLY: &str = "stock-only";

pub(crate) struct Plan<'a> {
    guest: &'a Guest,
    controls: Option<Controls>,
    stages: Vec<Stage>,
    /// What is not run, and why: a remark of the run.
    lacks: Option<&'static str>,
    host: Parts,
    /// Guests side by side.
    guests: usize,
}

/// What stages are made of.
struct Maker<'a> {
    guest: &'a Guest,
    tests: &'a [Test],
    seed: u64,
    shows_all: bool,
}

/// Whether a test runs where the kernel checks its memory. Those that count the kernel's memory
/// do so where nothing but them changes it.
fn is_sanitized(test: &Test) -> bool {
    test.has(MODULE) && !test.has(STOCK_ONLY) && !test.has(MEMORY)
}

impl Maker<'_> {
    fn stage(&self, prefix: &'static str, guests: usize, cpus: u32, tests: Vec<Test>) -> Stage {
        Stage {
            prefix,
            tests,
            guests,
            guest: Guest {
                cpus: env::var_os("SMP").is_none().then_some(cpus),
                ..self.guest.clone()
            },
            seed: self.seed,
            shows_all: self.shows_all,
            script: None,
        }
    }

    fn those(&self, is_wanted: impl Fn(&Test) -> bool) -> Vec<Test> {
        let tests = self.tests.iter().filter(|test| is_wanted(test));
        tests.cloned().collect()
    }

    /// The module's tests where the kernel checks memory closely, and has little of it.
    fn sanitized(&self, guests: usize) -> Stage {
        let mut stage = self.stage("sanitized.", guests, 4, self.those(is_sanitized));
        stage.seed = self.seed.wrapping_add(1);
        stage.guest.append(SANITIZE);
        let memory = env::var_os("MEMORY").is_none();
        stage.guest.memory = memory.then(|| String::from("512M"));
        stage
    }

    /// Some of the module's tests where the kernel checks locks, contexts and RCU; none when
    /// that kernel was not made (`make debug-kernel`).
    fn lockdep(&self, guests: usize) -> Result<Option<Stage>> {
        let script = self.guest.project.join("scripts/debug-kernel.sh");
        let words: [&OsStr; 2] = ["lockdep".as_ref(), "cached".as_ref()];
        let made = output(&script, &words)?;
        if made.is_empty() {
            return Ok(None);
        }
        let (image, payload) = made.split_once('\n').context("two folders")?;
        // Another run may make it anew before this stage begins.
        let payload = preflight::keep(payload.as_ref(), &self.guest.folder.join("lockdep"))?;
        let tests = self.those(|test| test.has(CORE));
        let mut stage = self.stage("lockdep.", guests, 2, tests);
        stage.guest.image = image.into();
        stage.guest.payload = payload;
        Ok(Some(stage))
    }
}

impl Plan<'_> {
    /// Prints an error of usage and gives none when there is no such test.
    pub(crate) fn new<'a>(guest: &'a Guest, selection: &Selection) -> Result<Option<Plan<'a>>> {
        let tests = catalogue::read(&guest.payload)?;
        let host_cpus = thread::available_parallelism().map_or(1, usize::from);
        let maker = Maker {
            guest,
            tests: &tests,
            seed: selection.seed.unwrap_or_else(|| seed_of_commit(guest)),
            shows_all: selection.only.is_some(),
        };
        let mut plan = Plan {
            guest,
            controls: None,
            stages: Vec::new(),
            lacks: None,
            host: Parts::none(&guest.project, &guest.folder),
            guests: selection.guests.unwrap_or(host_cpus.min(GUESTS_MAX)).max(1),
        };
        match &selection.only {
            Some(name) => {
                if let Err(error) = plan.only(&maker, name) {
                    eprintln!("qemu-test: {error:#}");
                    return Ok(None);
                }
            }
            None => plan.all(&maker, selection.quick)?,
        }
        if let Some(wanted) = &selection.stage {
            plan.stage_alone(wanted);
            if plan.stages.is_empty() {
                eprintln!("qemu-test: no stage is called {wanted}: races, lockdep, sanitized");
                return Ok(None);
            }
        }
        plan.stages.retain(|stage| !stage.tests.is_empty());
        Ok(Some(plan))
    }

    /// The one test, control or part of this name.
    fn only(&mut self, maker: &Maker<'_>, name: &str) -> Result<()> {
        self.controls = Controls::named(name);
        self.host.choose(|part| part == name);
        if self.controls.is_none() && self.host.is_empty() {
            let test = catalogue::find(maker.tests, name)?;
            let cpus = if test.has(TWO_CPUS) { 2 } else { 1 };
            self.stages.push(maker.stage("", 1, cpus, vec![test]));
        }
        Ok(())
    }

    fn all(&mut self, maker: &Maker<'_>, is_quick: bool) -> Result<()> {
        // For a commit: the module's quick tests. For a merge: all tests but those that run where
        // memory is checked, a stage of its own; of these, those of `TWO_CPUS` run in both.
        let is_chosen = |test: &Test| match is_quick {
            true => test.has(QUICK),
            false => !is_sanitized(test) || test.has(TWO_CPUS),
        };
        let one = maker.those(|test| is_chosen(test) && !test.has(TWO_CPUS));
        let two = maker.those(|test| is_chosen(test) && test.has(TWO_CPUS));
        self.stages.push(maker.stage("", self.guests, 1, one));
        self.stages.push(maker.stage("races.", 1, 2, two));
        self.host.choose(|part| !is_quick || part == "host.check");
        if !is_quick {
            self.controls = Some(Controls::all());
            // Their CPUs idle two thirds of the time, in which they wait for grace periods.
            self.stages.push(maker.sanitized(self.guests + 1));
            let lockdep = maker.lockdep(self.guests)?;
            if lockdep.is_none() {
                self.lacks = Some("no lockdep stage: make debug-kernel makes its kernel");
            }
            self.stages.extend(lockdep);
        }
        Ok(())
    }

    /// Without all others, the controls and the host's parts.
    fn stage_alone(&mut self, wanted: &str) {
        let is_wanted = |stage: &Stage| stage.prefix.trim_end_matches('.') == wanted;
        self.stages.retain(is_wanted);
        self.lacks = None;
        self.host.choose(|_| false);
        self.controls = None;
    }

    /// Runs it, and prints the judgement; the exit status.
    pub(crate) fn run(&self) -> Result<u8> {
        let run = Run::new();
        if let Some(controls) = &self.controls {
            controls.plan(&run);
        }
        self.stages.iter().for_each(|stage| run.plan(stage));
        self.host.plan(&run);
        if let Some(lacks) = self.lacks {
            run.results().remark(lacks.into());
        }
        println!("KTAP version 1\n1..{}", run.results().planned());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let host = scope.spawn(|| self.host.run(&run, &stop));
            let guests = self.run_guests(&run);
            if guests.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            match host.join() {
                Ok(ended) => guests.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        let results = run.results();
        report::finish(&self.guest.folder, &results)
    }

    fn run_guests(&self, run: &Run) -> Result<()> {
        if let Some(controls) = &self.controls {
            controls.run(run, self.guest, self.guests)?;
        }
        self.stages.iter().try_for_each(|stage| stage.run(run))
    }
}

/// A number of the commit, so that each has its own order, and the same one again.
fn seed_of_commit(guest: &Guest) -> u64 {
    let mut git = Command::new("git");
    git.arg("-C")
        .arg(&guest.project)
        .args(["rev-parse", "HEAD"]);
    let output = git.stderr(Stdio::null()).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let digits = String::from_utf8_lossy(&text)
        .chars()
        .take(8)
        .collect::<String>();
    u64::from_str_radix(&digits, 16).unwrap_or(1)
}
