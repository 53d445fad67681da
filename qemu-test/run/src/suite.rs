// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a plan: its lanes and the host's checks side by side.

use crate::controls;
use crate::guest::{Guest, Terminal};
use crate::host;
use crate::ktap::Stream;
use crate::plan::{Boot, Plan};
use crate::results::Results;
use crate::{carried, quote, report};
use anyhow::{Context, Result};
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;

/// Runs all of it, and prints the judgement; the exit status.
pub(crate) fn run(plan: &Plan, guest: &Guest) -> Result<u8> {
    let mut planned: Vec<String> = plan.tests().map(|test| test.name.clone()).collect();
    if plan.is_whole {
        planned.push(host::NAME.into());
        planned.extend(controls::names());
    }
    let results = Results::new(planned, plan.shows_all);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, lane) in plan.lanes.iter().enumerate() {
            let is_last = number + 1 == plan.lanes.len();
            let results = &results;
            threads.push(scope.spawn(move || -> Result<()> {
                for boot in lane {
                    run_boot(boot, plan.shows_all, results)?;
                }
                match plan.is_whole && is_last {
                    true => controls::run(guest, results),
                    false => Ok(()),
                }
            }));
        }
        if plan.is_whole {
            threads.push(scope.spawn(|| host::check(guest, &results)));
        }
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(ended) => {
                if ended.is_err() {
                    guest.stop.store(true, Ordering::Relaxed);
                }
                ended
            }
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All of them, then the first error.
        let ended: Vec<_> = ended.collect();
        ended.into_iter().collect::<Result<()>>()
    })?;
    results.finish(&guest.folder)
}

/// One guest: its verdicts, and what else there is to say of it.
fn run_boot(boot: &Boot, shows_all: bool, results: &Results) -> Result<()> {
    let guest = &boot.guest;
    fs::create_dir_all(&guest.folder).with_context(|| guest.folder.display().to_string())?;
    eprintln!(
        "qemu-test: guest {} ({}): {} tests",
        guest.name(),
        guest.in_words(),
        boot.tests.len()
    );
    let mut command = String::from("exec /payload/nsprobe-guest-test");
    if shows_all {
        command += " --show-all";
    }
    for test in &boot.tests {
        command += &format!(" {}", quote(&test.name));
    }
    let mut stream = Stream::default();
    let mut has_writer_passed = false;
    let mut sink = |piece: &[u8]| {
        for verdict in stream.feed(piece) {
            has_writer_passed |= verdict.name == carried::WRITER && verdict.has_passed;
            results.take(&guest.name(), verdict);
        }
    };
    let outcome = guest.run(&command, Terminal::Pipe(&mut sink))?;
    let end = stream.finish();
    let name = guest.name();
    let running = match &end.interrupted {
        Some(test) => format!(" while {test} ran"),
        None => String::new(),
    };
    for problem in &outcome.problems {
        results.problem(format!("guest {name}: {problem}{running}"));
    }
    if outcome.problems.is_empty() {
        let carried = carried::problems(guest, has_writer_passed)?;
        for problem in end.problems.iter().chain(&carried) {
            results.problem(format!("guest {name}: {problem}"));
        }
    } else {
        report::console(guest, &outcome);
        if guest.died_of_qemu()? {
            results.problem(format!(
                "guest {name}: it is QEMU that has lost a race here (run/src/oops.rs): run again"
            ));
        }
    }
    Ok(())
}
