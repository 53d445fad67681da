// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a test that goes wrong in whatever way is seen to go wrong. Without
//! this a harness that has gone blind would show nothing but success.

use super::{tests, Test};
use crate::module::Module;
use crate::oracle::Oracle;
use crate::run::{self, Verdict};
use crate::session::Session;
use crate::witness::Witness;
use crate::{binary, victim};
use std::time::{Duration, Instant};

tests![
    a_test_that_fails_crashes_or_hangs_is_seen,
    what_a_test_leaves_behind_is_seen,
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

fn what_a_test_leaves_behind_is_seen() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.troubles(), Vec::<String>::new());
    let sees = |oracle: &mut Oracle, part: &str| {
        let troubles = oracle.troubles();
        let seen = troubles.iter().any(|trouble| trouble.contains(part));
        assert!(seen, "no {part:?} in {troubles:?}");
    };
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
