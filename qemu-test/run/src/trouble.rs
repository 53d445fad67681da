// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's console must never say, and the guest's last word on it.

/// A part of a console line that means a failed run, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) text: &'static str,
    pub(crate) reason: &'static str,
}

const fn marker(text: &'static str, reason: &'static str) -> Marker {
    Marker { text, reason }
}

/// The first match of a line counts, so the telling ones come first.
const MARKERS: &[Marker] = &[
    marker("leaking uprobe", "a probe outlived its process's memory"),
    marker("KFENCE:", "use of freed or foreign kernel memory"),
    marker("KASAN:", "use of freed or foreign kernel memory"),
    marker("UBSAN:", "undefined behaviour in the kernel"),
    marker("refcount_t:", "a reference count went wrong"),
    marker("list_add corruption", "a kernel list is damaged"),
    marker("list_del corruption", "a kernel list is damaged"),
    marker("soft lockup", "a CPU did not schedule"),
    marker("hard LOCKUP", "a CPU took no interrupts"),
    marker("rcu_preempt detected", "an RCU reader does not end"),
    marker("rcu_tasks", "a task does not pass through the scheduler"),
    marker("detected stall", "an RCU reader does not end"),
    marker("blocked for more than", "a task hangs in the kernel"),
    marker("possible circular locking", "a lock order is broken"),
    marker("possible recursive locking", "a lock is taken twice"),
    marker("suspicious RCU usage", "an RCU rule is broken"),
    marker("scheduling while atomic", "it slept where it must not"),
    marker("sleeping function called", "it slept where it must not"),
    marker("Bad page state", "a page was freed in use"),
    marker("BUG kmalloc", "slab memory was overwritten"),
    marker("Object already free", "slab memory was freed twice"),
    marker("Redzone overwritten", "slab memory was overwritten"),
    marker("Poison overwritten", "freed slab memory was written"),
    marker("general protection fault", "the kernel used a wild pointer"),
    marker("Unable to handle", "the kernel used a wild pointer"),
    marker("unable to handle", "the kernel used a wild pointer"),
    marker("Oops", "the kernel crashed"),
    marker("BUG:", "the kernel found a bug"),
    marker("kernel BUG at", "the kernel found a bug"),
    marker("WARNING:", "the kernel warned"),
    marker("Kernel panic", "the kernel stopped"),
    marker("Out of memory:", "the guest ran out of memory"),
    marker("Call Trace:", "the kernel printed a stack"),
];

/// The guest's init ends each run with this and a number.
const VERDICT: &str = "nsprobe-guest: exit ";

/// Before the guest's init says this, nothing of the project has run.
const RUNNING: &str = "nsprobe-guest: running";

/// Whether the line says that the guest's command starts.
pub(crate) fn running(line: &str) -> bool {
    line.contains(RUNNING)
}

/// The marker that a console line holds.
pub(crate) fn find(line: &str) -> Option<&'static Marker> {
    // What a program wrote there itself is no trouble of the kernel's.
    if line.contains("nsprobe-guest:") {
        return None;
    }
    MARKERS.iter().find(|marker| line.contains(marker.text))
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
