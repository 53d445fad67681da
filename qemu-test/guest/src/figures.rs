// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the tests go that are about much: a part of their figure in each run, and all of it
//! with `NSPROBE_WHOLE=1` on the kernel's command line, as in the long run's part `figures`.

use std::env;
use std::time::Duration;

/// How many times as long a test may take at its whole figure.
const LONGER: u32 = 8;

fn are_whole() -> bool {
    env::var_os("NSPROBE_WHOLE").is_some()
}

/// What a test that reaches `whole` in the long run divides its figures by.
pub(crate) fn parts(of_each_run: usize) -> usize {
    match are_whole() {
        true => 1,
        false => of_each_run,
    }
}

/// How long a test may take that has `seconds` in each run.
pub(crate) fn limit(seconds: u64) -> Duration {
    let limit = Duration::from_secs(seconds);
    match are_whole() {
        true => limit * LONGER,
        false => limit,
    }
}
