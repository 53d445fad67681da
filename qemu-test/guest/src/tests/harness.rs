// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a test that goes wrong in whatever way is seen to go wrong. Without
//! this a harness that has gone blind would show nothing but success.

use super::{tests, Test};
use crate::module::Module;
use crate::oracle::Oracle;
use crate::run::{self, Verdict};
use crate::session::Session;
use crate::sys::Unborn;
use crate::witness::Witness;
use crate::{binary, victim};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

tests![
    a_test_that_fails_crashes_or_hangs_is_seen,
    what_a_test_leaves_behind_is_seen,
    what_probes_leave_in_text_is_seen,
];

const fn hidden(name: &'static str, run: fn()) -> Test {
    let limit_s = 20;
    Test { name, run, limit_s }
}

/// Tests that are not on the list, and the way in which each goes wrong.
pub(crate) const HIDDEN: &[Test] = &[
    hidden("passes", || {}),
    hidden("skips", || run::skip("no reason")),
    hidden("panics", || panic!("on purpose")),
    hidden("exits", || std::process::exit(7)),
    hidden("aborts", || std::process::abort()),
    Test {
        limit_s: 2,
        ..hidden("hangs", || std::thread::sleep(Duration::from_secs(60)))
    },
];

fn a_test_that_fails_crashes_or_hangs_is_seen() {
    let started = Instant::now();
    let verdicts: Vec<Verdict> = HIDDEN.iter().map(|test| run::run(test).verdict).collect();
    let skipped = Verdict::Skipped(String::from("no reason"));
    let failed = || Verdict::Failed;
    let wanted = [
        Verdict::Passed,
        skipped,
        failed(),
        failed(),
        failed(),
        failed(),
    ];
    assert_eq!(verdicts, wanted);
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(50), "{elapsed:?}");
}

fn sees(oracle: &mut Oracle, part: &str) {
    let troubles = oracle.troubles();
    let seen = troubles.iter().any(|trouble| trouble.contains(part));
    assert!(seen, "no {part:?} in {troubles:?}");
}

fn what_a_test_leaves_behind_is_seen() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.troubles(), Vec::<String>::new());
    oracle.also = Some("on purpose");
    std::fs::write("/dev/kmsg", "nsprobe-guest: on purpose\n").expect("root");
    sees(&mut oracle, "on purpose");
    let module = Module::load();
    sees(&mut oracle, " 0 - Live");
    let session = Session::open();
    sees(&mut oracle, " 1 - Live");
    drop(session);
    drop(module);
    let file = victim::path("exit_soon");
    let function = binary::function(&file, "short_work");
    let witness = Witness::new(&file, function.offset);
    sees(&mut oracle, "probes of tracefs");
    drop(witness);
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}

/// Writes into the text of a process, as an uprobe does.
fn write_text(process: &Unborn, file: &Path, bytes: &[u8]) {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid())).expect("it lives");
    let name = file.to_str().expect("a plain name");
    let mut lines = maps.lines();
    let text = lines.find(|line| line.contains("r-xp") && line.ends_with(name));
    let start = text.and_then(|line| line.split('-').next()).expect("text");
    let start = u64::from_str_radix(start, 16).expect("an address");
    let memory = File::options()
        .write(true)
        .open(format!("/proc/{}/mem", process.pid()));
    let written = memory.expect("root").write_all_at(bytes, start + 0x40);
    written.expect("it is mapped");
}

/// In programs at low addresses nothing was seen, nor calls that had taken a breakpoint's
/// place, nor probes that were left when all that they were put into had ended.
fn what_probes_leave_in_text_is_seen() {
    let mut oracle = Oracle::new();
    let call = [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8];
    for (name, bytes) in [
        ("call_in_loop", &[0xcc][..]),
        // At a low address.
        ("named", &[0xcc]),
        ("call_in_loop", &call),
    ] {
        let file = victim::path(name);
        let process = Unborn::of(&mut Command::new(&file)).expect("it is a program");
        write_text(&process, &file, bytes);
        let place = format!("in process {}: {}", process.pid(), file.display());
        sees(&mut oracle, &place);
    }
    let file = victim::path("exit_soon");
    let function = binary::function(&file, "short_work");
    let witness = Witness::new(&file, function.offset);
    let process = format!("in a new process of {0}: {0}", file.display());
    sees(&mut oracle, &process);
    drop(witness);
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}
