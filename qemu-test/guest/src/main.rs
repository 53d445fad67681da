// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that run inside the guest, as root, and print KTAP.
//!
//! ```text
//! nsprobe-guest-test [--list] [--only NAME] [PART-OF-A-NAME…]
//! nsprobe-guest-test --queue FOLDER GUEST [--show-all] [--first NAME]… [--patience MS]
//! nsprobe-guest-test --soak SCALE [PART…]
//! ```
//!
//! With `--queue`, tests are taken from a folder that several guests share: see `queue.rs`.
//! Each test runs in a process of its own, so that a crash or a hang costs one
//! test, and is followed by the oracle: nothing new in the kernel's log that means trouble, and
//! nothing left behind of what `state.rs` lists.

mod binary;
mod command;
mod container;
mod cpu;
mod debug_files;
mod debugger;
mod figures;
mod fresh;
mod group;
mod growth;
mod held;
mod instructions;
mod leftovers;
mod lockdown;
#[path = "../../markers.rs"]
mod markers;
mod module;
mod oracle;
mod perf_event;
mod places;
mod podman;
mod processes;
mod queue;
mod records;
mod run;
mod runtimes;
mod session;
mod setting;
mod soak;
mod stack;
mod state;
mod steps;
mod swap;
mod sys;
mod tasks;
mod tests;
mod threads;
mod victim;
mod witness;

use queue::Queue;
use run::Manner;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut parts = Vec::new();
    let mut only = None;
    let mut queue = None;
    let mut shows_all = false;
    let mut first = Vec::new();
    let mut soak = None;
    let mut patience = None;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                tests::list().iter().for_each(|line| println!("{line}"));
                return ExitCode::SUCCESS;
            }
            "--only" => only = words.next(),
            "--queue" => queue = words.next().zip(words.next()),
            "--show-all" => shows_all = true,
            "--first" => first.extend(words.next()),
            "--soak" => soak = words.next(),
            "--patience" => {
                let ms = words.next().and_then(|ms| ms.parse().ok());
                patience = ms.map(Duration::from_millis);
            }
            run::CHILD => return run::child(&words.next().unwrap_or_default()),
            run::ROLE => return tests::play(&words.collect::<Vec<_>>()),
            _ => parts.push(word),
        }
    }
    if let Some(scale) = soak {
        return soak::run(&scale, &parts);
    }
    if let Some((folder, guest)) = queue {
        let manner = Manner {
            shows_all,
            patience,
            ..Manner::default()
        };
        return take_from(folder.into(), guest, &first, manner);
    }
    let chosen: Vec<_> = tests::all()
        .filter(|test| match &only {
            Some(name) => test.name == name,
            None => parts.is_empty() || parts.iter().any(|part| test.name.contains(part)),
        })
        .collect();
    if chosen.is_empty() {
        eprintln!("no test has such a name; --list shows them");
        return ExitCode::from(2);
    }
    let manner = Manner {
        planned: Some(chosen.len()),
        shows_all: only.is_some() || !parts.is_empty(),
        ..Manner::default()
    };
    run::all(chosen.into_iter(), manner)
}

/// Takes tests from a queue until it is empty.
fn take_from(folder: PathBuf, guest: String, first: &[String], manner: Manner) -> ExitCode {
    let queue = Queue::open(folder, guest, first);
    let opened = queue.and_then(|queue| queue.record().map(|record| (queue, record)));
    match opened {
        Ok((queue, record)) => {
            let manner = Manner {
                record: Some(record),
                ..manner
            };
            run::all(queue, manner)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
