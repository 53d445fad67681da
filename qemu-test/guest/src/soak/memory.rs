// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel memory in use while something is done many thousand times: a leak of a few hundred
//! bytes a round is more than any cache of the kernel's grows.

use crate::oracle::within;
use std::fs;
use std::time::Duration;

/// What may be in use in the end that was not at the beginning, however often it was done:
/// caches of the kernel's own, which differ from one moment to the next.
const ALLOWED_KB: u64 = 2048;

/// What leaks would grow.
const ACCOUNTS: [&str; 5] = [
    "SUnreclaim:",
    "VmallocUsed:",
    "Percpu:",
    "KernelStack:",
    "PageTables:",
];

/// The memory in use at the beginning.
pub(super) struct Memory {
    before_kb: u64,
}

impl Memory {
    /// To be called when all was done some times, so that the kernel's caches are there.
    pub(super) fn begin() -> Memory {
        Memory {
            before_kb: settled_kb(0),
        }
    }

    /// What it has grown by in this number of rounds since is no more than what caches may.
    pub(super) fn end(&self, part: &str, rounds: u64) {
        let (before, after) = (self.before_kb, settled_kb(self.before_kb));
        println!("soak: {part}: kernel memory {before} kB, {after} kB after {rounds} rounds");
        assert!(after <= before + ALLOWED_KB, "kernel memory grew");
    }
}

/// The least memory in use within five seconds, or as soon as it is no more than `enough`:
/// much is freed behind grace periods.
fn settled_kb(enough: u64) -> u64 {
    let mut least = u64::MAX;
    within(Duration::from_secs(5), || {
        least = least.min(used_kb());
        least <= enough
    });
    least
}

fn used_kb() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
    let account = |wanted: &&str| {
        let line = info.lines().find(|line| line.starts_with(wanted));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        let number = number.and_then(|number| number.parse::<u64>().ok());
        number.expect("every kernel has it")
    };
    ACCOUNTS.iter().map(account).sum()
}
