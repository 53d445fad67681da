// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of tests that do one thing many times. Each run does a part of them; with
//! `NSPROBE_WHOLE=1` on the kernel's command line, as in the long run's part `figures`, the
//! tests do all of it.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many times as long a test may take at its whole figure.
const LONGER: u32 = 8;

fn are_whole() -> bool {
    env::var_os("NSPROBE_WHOLE").is_some()
}

/// Whether the test of this process has asked.
static ASKED: AtomicBool = AtomicBool::new(false);

/// What a test divides its figures by: 1 where they are whole.
pub(crate) fn parts(of_each_run: usize) -> usize {
    ASKED.store(true, Ordering::Relaxed);
    match are_whole() {
        true => 1,
        false => of_each_run,
    }
}

/// Panics unless a test, which has passed, is as `IN_PARTS` says: else the long run would not
/// reach its whole figure, or would run it for nothing.
pub(crate) fn check(name: &str, is_in_parts: bool) {
    let has_asked = ASKED.load(Ordering::Relaxed);
    assert_eq!(has_asked, is_in_parts, "{name}: is it one of IN_PARTS?");
}

/// How long a test may take: `seconds`, or longer where its figures are whole.
pub(crate) fn limit(seconds: u64) -> Duration {
    let limit = Duration::from_secs(seconds);
    match are_whole() {
        true => limit * LONGER,
        false => limit,
    }
}
