// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that run inside the guest, as root, and print KTAP.
//!
//! ```text
//! nsprobe-guest-test [--list] [--show-all] [NAME…]
//! ```
//!
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
mod fuse;
mod go_calls;
mod group;
mod growth;
mod held;
mod instructions;
mod lab;
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
mod records;
mod run;
mod runtimes;
mod session;
mod setting;
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

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut names = Vec::new();
    let mut shows_all = false;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                tests::list().iter().for_each(|line| println!("{line}"));
                return ExitCode::SUCCESS;
            }
            "--show-all" => shows_all = true,
            run::CHILD => return run::child(&words.next().unwrap_or_default()),
            run::ROLE => return tests::play(&words.collect::<Vec<_>>()),
            _ => names.push(word),
        }
    }
    let all = tests::all();
    let named = |name: &String| all.iter().find(|test| test.name == name).copied();
    let chosen: Vec<_> = names.iter().filter_map(named).collect();
    if chosen.is_empty() || chosen.len() < names.len() {
        eprintln!("names of tests are needed, as --list shows them");
        return ExitCode::from(2);
    }
    run::all(&chosen, shows_all)
}
