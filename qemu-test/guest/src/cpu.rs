// SPDX-License-Identifier: MIT OR Apache-2.0
//! How busy the guest's CPUs are.

use std::fs;

/// Seconds that all CPUs together were idle since the boot, from /proc/uptime.
pub(crate) fn idle() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let idle = text.split_whitespace().nth(1);
    idle.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// The idle share of all CPUs' time since `before`, `seconds` ago, in percent.
pub(crate) fn idle_percent(before: f64, seconds: f64) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let share = (idle() - before) / (seconds * cpus as f64);
    (share.clamp(0.0, 1.0) * 100.0) as u32
}
