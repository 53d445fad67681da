// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's CPUs: how busy they are, and which tasks get them.

use crate::setting::Setting;
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

/// The kernel gives no time to others where a real-time task takes all, until it is dropped.
pub(crate) struct RealTimeAlone {
    _runtimes: Vec<Setting>,
}

impl RealTimeAlone {
    /// From now on.
    pub(crate) fn new() -> RealTimeAlone {
        let cpus = fs::read_dir("/sys/kernel/debug/sched/fair_server").expect("debugfs is mounted");
        let runtimes = cpus.map(|cpu| {
            let file = cpu.expect("readable").path().join("runtime");
            Setting::new(&file.display().to_string(), "0")
        });
        RealTimeAlone {
            _runtimes: runtimes.collect(),
        }
    }
}
