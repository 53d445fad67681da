// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a test that goes wrong in whatever way is seen to go wrong. Without
//! this a harness that has gone blind would show nothing but success.

use super::Test;
use crate::oracle::{within, Oracle, SOON};
use crate::run::{self, Verdict};
use std::process::Command;
use std::time::Duration;

const fn hidden(name: &'static str, run: fn()) -> Test {
    Test {
        seconds: 10,
        ..Test::new(false, name, run, file!(), line!())
    }
}

/// Tests that are not on the list.
pub(crate) fn hidden_tests() -> impl Iterator<Item = &'static Test> {
    WAYS.iter()
}

/// The ways in which tests go wrong.
const WAYS: &[Test] = &[
    hidden("passes", || println!("it says so")),
    hidden("panics", || panic!("on purpose")),
    hidden("exits", || std::process::exit(7)),
    hidden("aborts", || std::process::abort()),
    Test {
        seconds: 1,
        ..hidden("hangs", || std::thread::sleep(Duration::from_secs(60)))
    },
    Test {
        seconds: 1,
        ..hidden("prints", || loop {
            println!("on purpose");
        })
    },
    hidden("leaves_who_prints", || {
        let mut shell = Command::new("setsid");
        shell.args(["--fork", "sh", "-c", "while :; do echo on purpose; done"]);
        shell.status().expect("setsid is in the guest");
    }),
];

test! { core, a_test_that_fails_crashes_or_hangs_is_seen }
fn a_test_that_fails_crashes_or_hangs_is_seen() {
    let verdicts: Vec<Verdict> = WAYS.iter().map(|test| run::run(test).verdict).collect();
    use Verdict::{Failed, Passed};
    assert_eq!(
        verdicts,
        [Passed, Failed, Failed, Failed, Failed, Failed, Passed]
    );
}

/// Something that is left behind.
struct Left {
    /// How the trouble begins, and what else is in it.
    kind: &'static str,
    part: &'static str,
    /// Leaves it, by a shell.
    by: &'static str,
}

const LEFT: [Left; 12] = [
    Left {
        kind: "Mount that was not there",
        part: "/tmp/left",
        by: "mkdir -p /tmp/left && mount -t tmpfs left /tmp/left",
    },
    Left {
        kind: "Swap that was not there",
        part: "/var/tmp/left",
        by: "head -c 1M /dev/zero >/var/tmp/left && chmod 600 /var/tmp/left && \
             mkswap -q /var/tmp/left && swapon /var/tmp/left",
    },
    Left {
        kind: "Parameter that is gone",
        part: "kernel/kptr_restrict",
        by: "echo 2 >/proc/sys/kernel/kptr_restrict",
    },
    Left {
        kind: "Parameter that was not there",
        part: "kernel/printk",
        by: "echo 3 >/proc/sys/kernel/printk",
    },
    Left {
        kind: "Trigger that was not there",
        part: "traceoff",
        by: "echo traceoff:1 >/sys/kernel/tracing/events/sched/sched_kthread_stop/trigger",
    },
    Left {
        kind: "TraceInstance that was not there",
        part: "left",
        by: "mkdir /sys/kernel/tracing/instances/left && \
             echo 1 >/sys/kernel/tracing/instances/left/events/sched/sched_kthread_stop/enable",
    },
    Left {
        kind: "Event that was not there",
        part: "sched:sched_kthread_stop",
        by: "echo 1 >/sys/kernel/tracing/events/sched/sched_kthread_stop/enable",
    },
    Left {
        kind: "Tracer that is gone",
        part: "tracing_on = 1",
        by: "echo 0 >/sys/kernel/tracing/tracing_on",
    },
    Left {
        kind: "Probe that was not there",
        part: "uprobe_events p:left/left",
        by: "echo p:left/left /bin/busybox:0x1000 >>/sys/kernel/tracing/uprobe_events && \
             mkdir /sys/kernel/tracing/instances/held && \
             echo 1 >/sys/kernel/tracing/instances/held/events/left/left/enable",
    },
    Left {
        kind: "Probe that was not there",
        part: "kprobe_events p:left/kernel",
        by: "echo p:left/kernel int_sqrt >>/sys/kernel/tracing/kprobe_events",
    },
    Left {
        kind: "Process that was not there",
        part: "sleep",
        by: "setsid sleep 1000 >/dev/null 2>&1 &",
    },
    // What is in it must go before it does.
    Left {
        kind: "Group that was not there",
        part: "left/below",
        by: "mkdir -p /sys/fs/cgroup/left/below && \
             setsid sh -c 'echo $$ >/sys/fs/cgroup/left/below/cgroup.procs; exec sleep 1000' \
             >/dev/null 2>&1 & \
             until grep -q . /sys/fs/cgroup/left/below/cgroup.procs; do sleep 0.1; done",
    },
];

test! { core, what_a_test_leaves_behind_is_seen_and_undone }
/// A kind that the oracle does not see shows nothing but success.
fn what_a_test_leaves_behind_is_seen_and_undone() {
    let mut oracle = Oracle::new();
    assert_eq!(oracle.troubles(), Vec::<String>::new());
    oracle.going = Duration::ZERO;
    for Left { kind, part, by } in LEFT {
        let status = Command::new("sh").args(["-c", by]).status();
        assert!(status.expect("a shell").success(), "{by}");
        let mut troubles = Vec::new();
        let seen = |trouble: &String| trouble.starts_with(kind) && trouble.contains(part);
        // A process gets its name when it is executed.
        let is_seen = within(SOON, || {
            troubles.extend(oracle.troubles());
            troubles.iter().any(seen)
        });
        assert!(is_seen, "{kind}, {part}: {troubles:?}");
    }
    // All of them together, as some hold others.
    assert_eq!(oracle.undo(), Vec::<String>::new());
    assert_eq!(oracle.troubles(), Vec::<String>::new());
}
