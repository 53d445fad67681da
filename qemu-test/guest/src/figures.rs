// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of tests that do one thing many times: a part of them in `make test`, all of them in
//! `make test-full` and with `NSPROBE_WHOLE=1` on the kernel's command line.

use std::env;
use std::time::Duration;

/// How many times as long a test may take at its whole figure.
const LONGER: u32 = 8;

fn are_whole() -> bool {
    env::var_os("NSPROBE_WHOLE").is_some()
}

/// What a test divides its figures by: 1 where they are whole.
pub(crate) fn parts(of_the_core: usize) -> usize {
    match are_whole() {
        true => 1,
        false => of_the_core,
    }
}

/// How long a test may take: `seconds`, or longer where its figures are whole.
pub(crate) fn limit(seconds: u64) -> Duration {
    let limit = Duration::from_secs(seconds);
    match are_whole() {
        true => limit * LONGER,
        false => limit,
    }
}
