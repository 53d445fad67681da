// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's CPUs: how busy they are, and which tasks get them.

use std::fs;
use std::path::PathBuf;

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
    /// Files, and what was in them.
    runtimes: Vec<(PathBuf, String)>,
}

impl RealTimeAlone {
    /// From now on.
    pub(crate) fn new() -> RealTimeAlone {
        let cpus = fs::read_dir("/sys/kernel/debug/sched/fair_server").expect("debugfs is mounted");
        let files = cpus.map(|cpu| cpu.expect("readable").path().join("runtime"));
        let runtimes = files.map(|file| {
            let before = fs::read_to_string(&file).expect("each CPU has one");
            fs::write(&file, "0").expect("it may be 0");
            (file, before)
        });
        RealTimeAlone {
            runtimes: runtimes.collect(),
        }
    }
}

impl Drop for RealTimeAlone {
    fn drop(&mut self) {
        for (file, before) in &self.runtimes {
            let _ = fs::write(file, before);
        }
    }
}
