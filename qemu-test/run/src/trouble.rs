// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest's init says on the kernel's console, and what the kernel must never say there.

#[path = "../../markers.rs"]
mod markers;

pub(crate) use markers::find;

/// The guest's init ends each run with this and a number.
const VERDICT: &str = "nsprobe-guest: exit ";

/// Before the guest's init says this, nothing of the project has run.
const RUNNING: &str = "nsprobe-guest: running";

/// Whether the line says that the guest's command starts.
pub(crate) fn running(line: &str) -> bool {
    line.contains(RUNNING)
}

/// The exit status, when the line is the guest's verdict.
pub(crate) fn verdict(line: &str) -> Option<i32> {
    let (_, status) = line.split_once(VERDICT)?;
    status.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Option<&'static str> {
        find(line).map(|marker| marker.text)
    }

    #[test]
    fn trouble_is_found() {
        for (line, expected) in [
            (
                "[   12.5] WARNING: CPU: 0 PID: 9 at kernel/events/uprobes.c:1 x+0x0/0x1",
                "WARNING:",
            ),
            ("[    1.0] BUG: KFENCE: use-after-free read in f", "KFENCE:"),
            (
                "[    1.0] BUG: kernel NULL pointer dereference, address: 0",
                "BUG:",
            ),
            (
                "[   99.0] INFO: task nsprobe:12 blocked for more than 20 seconds.",
                "blocked for more than",
            ),
            (
                "[   99.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
                "soft lockup",
            ),
            (
                "[   30.0] rcu: INFO: rcu_preempt self-detected stall on CPU",
                "detected stall",
            ),
            (
                "[   30.0] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: {",
                "rcu_preempt detected",
            ),
            (
                "[  600.0] INFO: rcu_tasks detected stalls on tasks:",
                "rcu_tasks detected",
            ),
            ("[    9.0] pagealloc: memory corruption", "pagealloc:"),
            ("[   30.0] Kernel panic - not syncing: x", "Kernel panic"),
            ("[   30.0] Oops: 0000 [#1] SMP", "Oops"),
        ] {
            assert_eq!(text(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn normal_lines_are_no_trouble() {
        for line in [
            "[    0.0] Linux version 7.2.12+deb13-amd64 (debian-kernel@lists.debian.org)",
            "[    0.1] rcu: Hierarchical RCU implementation.",
            "[    0.1] RCU Tasks: Setting shift to 1 and lim to 1 rcu_task_cb_adjust=1.",
            "[    0.3] kfence: initialized - using 2097152 bytes for 255 objects",
            "[    5.0] nsprobe: module verification failed: signature and/or required key missing - tainting kernel",
            "[    5.0] nsprobe-guest: exit 0",
            // Of kernel/rcu/tasks.h and kernel/debug/debug_core.c.
            "[   99.0] rcu_tasks: rcu_tasks_wait_gp: rcu_tasks grace period number 9 (since boot) is 2500 jiffies old.",
            "[   99.0] BP install failed: ffffffff81000000",
        ] {
            assert_eq!(text(line), None, "{line}");
        }
    }

    #[test]
    fn verdict_is_read() {
        assert_eq!(verdict("[    5.0] nsprobe-guest: exit 137"), Some(137));
        assert_eq!(verdict("[    5.0] nsprobe-guest: running"), None);
        assert!(running("[    5.0] nsprobe-guest: running"));
    }
}
