// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that run inside the guest, as root, and print KTAP.
//!
//! ```text
//! nsprobe-guest-test [--list] [--only NAME] [--skip COUNT] [PART-OF-A-NAME…]
//! ```
//!
//! Each test runs in a process of its own, so that a crash or a hang costs one
//! test, and is followed by the oracle: kernel log clean, module gone, no probe
//! and no breakpoint left.

mod binary;
mod command;
mod container;
mod debug_files;
mod debugger;
mod fresh;
mod instructions;
mod module;
mod oracle;
mod records;
mod run;
mod runtimes;
mod session;
mod stack;
mod steps;
mod swap;
mod sys;
mod tasks;
mod tests;
mod victim;
mod witness;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut parts = Vec::new();
    let mut only = None;
    let mut skip = 0;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                tests::all().for_each(|test| println!("{}", test.name));
                return ExitCode::SUCCESS;
            }
            "--only" => only = words.next(),
            "--skip" => skip = words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
            run::CHILD => return run::child(&words.next().unwrap_or_default()),
            run::ROLE => return tests::play(&words.collect::<Vec<_>>()),
            _ => parts.push(word),
        }
    }
    let chosen: Vec<_> = tests::all()
        .filter(|test| match &only {
            Some(name) => test.name == name,
            None => parts.is_empty() || parts.iter().any(|part| test.name.contains(part)),
        })
        .skip(skip)
        .collect();
    if chosen.is_empty() && skip == 0 {
        eprintln!("no test has such a name; --list shows them");
        return ExitCode::from(2);
    }
    run::all(&chosen, only.is_some() || !parts.is_empty())
}
