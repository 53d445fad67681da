// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: context switches and wake-ups are all told, as the kernel's own tracer counts
//! them.

use super::tests;
use crate::module::Module;
use crate::oracle::within;
use crate::tasks::{Kept, TaskSession};
use libnsprobe::TaskOptions;
use nsprobe_common::abi::{
    TASKS_SWITCHES, TASKS_UNFILTERED, TASKS_WAKEUPS, TASK_KIND_SWITCH, TASK_KIND_WAKE,
};
use nsprobe_common::record::Record;
use nsprobe_common::task::{SwitchRecord, SWITCH_FROM_IDLE, SWITCH_TO_IDLE, WAKE_BEGUN};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

tests![
    switches_and_wake_ups_are_as_many_as_tracefs_counts: 120,
    each_switch_goes_on_from_the_one_before: 120,
    a_filter_tells_switches_of_its_tasks_only,
];

const LIMIT: Duration = Duration::from_secs(20);

/// The tracer's own count of some events.
struct Histogram(Vec<PathBuf>);

impl Histogram {
    const TRIGGER: &'static str = "hist:keys=common_cpu";

    fn new(events: &[&str]) -> Histogram {
        let folder = PathBuf::from("/sys/kernel/tracing/events/sched");
        let events = events.iter().map(|event| folder.join(event));
        let histogram = Histogram(events.collect());
        for event in &histogram.0 {
            fs::write(event.join("trigger"), Self::TRIGGER).expect("tracefs is mounted");
        }
        histogram
    }

    fn hits(&self) -> u64 {
        let of = |event: &PathBuf| {
            let text = fs::read_to_string(event.join("hist")).expect("the trigger is set");
            let line = text
                .lines()
                .find_map(|line| line.trim().strip_prefix("Hits: "));
            line.and_then(|count| count.parse::<u64>().ok())
                .expect("a count")
        };
        self.0.iter().map(of).sum()
    }
}

impl Drop for Histogram {
    fn drop(&mut self) {
        for event in &self.0 {
            let _ = fs::write(event.join("trigger"), format!("!{}", Self::TRIGGER));
        }
    }
}

/// Has tasks take turns for some time.
fn load() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 200000 /dev/zero | cat | wc -c; done";
    let ran = Command::new("sh").args(["-c", script]).output();
    assert!(ran.expect("sh").status.success());
}

fn recording(flags: u32) -> TaskSession {
    let mut session = TaskSession::with_rings(16 << 20);
    session.set(flags | TASKS_UNFILTERED, 0);
    session
}

/// Counts of the same events while there is a load: ours are made between two counts of the
/// tracer's on either side.
#[derive(Debug)]
struct Counts {
    inner: u64,
    ours: u64,
    outer: u64,
}

impl Counts {
    fn take(histogram: &Histogram, session: &TaskSession, kind: usize) -> Counts {
        let seen = || {
            let counters = session.session.task_counters().expect("counters");
            assert_eq!(counters.kinds[kind].lost, 0);
            counters.kinds[kind].seen
        };
        let (outer, ours, inner) = (histogram.hits(), seen(), histogram.hits());
        for _ in 0..20 {
            load();
            if histogram.hits() - inner > 500 {
                break;
            }
        }
        let (inner_end, ours_end, outer_end) = (histogram.hits(), seen(), histogram.hits());
        Counts {
            inner: inner_end - inner,
            ours: ours_end - ours,
            outer: outer_end - outer,
        }
    }

    /// Ours is between the other two, but for what each other CPU was about to count in both.
    fn check(&self) {
        let cpus = std::thread::available_parallelism().expect("there are some");
        let cpus = cpus.get() as u64;
        let fits = self.inner <= self.ours + cpus && self.ours <= self.outer + cpus;
        assert!(fits && self.inner > 500, "{self:?}");
    }

    fn is_close(&self) -> bool {
        self.outer - self.inner < 200
    }
}

fn switches_and_wake_ups_are_as_many_as_tracefs_counts() {
    let _module = Module::load();
    let wakes = ["sched_waking", "sched_wakeup", "sched_wakeup_new"];
    for (flag, kind, events) in [
        (TASKS_SWITCHES, TASK_KIND_SWITCH, &["sched_switch"][..]),
        (TASKS_WAKEUPS, TASK_KIND_WAKE, &wakes[..]),
    ] {
        let histogram = Histogram::new(events);
        let mut session = recording(flag);
        let mut tries = Vec::new();
        // A pause of the machine between two counts sets the tracer's apart.
        while tries.len() < 3 && !tries.last().is_some_and(Counts::is_close) {
            let counts = Counts::take(&histogram, &session, kind);
            counts.check();
            tries.push(counts);
        }
        println!("{events:?}: {tries:?}");
        assert!(tries.last().is_some_and(Counts::is_close), "{tries:?}");
        session.set(0, 0);
        session.check_nothing_lost();
    }
}

/// The switches that a session has been told of, by CPU.
fn switches(session: &mut TaskSession) -> HashMap<u16, Vec<SwitchRecord>> {
    let mut by_cpu: HashMap<u16, Vec<SwitchRecord>> = HashMap::new();
    let batch = session.reader.collect_rest().expect("records");
    for record in batch.records() {
        if let Record::Switch(switch) = record {
            by_cpu.entry(switch.cpu).or_default().push(*switch);
        }
    }
    by_cpu
}

fn each_switch_goes_on_from_the_one_before() {
    let _module = Module::load();
    let mut session = recording(TASKS_SWITCHES | TASKS_WAKEUPS);
    load();
    session.set(0, 0);
    session.check_nothing_lost();
    let counters = session.session.task_counters().expect("counters");
    let (mut wakes, mut begun) = (0, 0);
    {
        let mut peek = recording(0);
        assert!(switches(&mut peek).is_empty());
    }
    let batch = session.reader.collect_rest().expect("records");
    let mut by_cpu: HashMap<u16, Vec<SwitchRecord>> = HashMap::new();
    for record in batch.records() {
        match record {
            Record::Switch(switch) => by_cpu.entry(switch.cpu).or_default().push(*switch),
            Record::Wake(wake) => {
                wakes += 1;
                begun += u64::from(wake.what == WAKE_BEGUN);
                assert_ne!(wake.tid, 0);
            }
            _ => {}
        }
    }
    drop(batch);
    let told: usize = by_cpu.values().map(Vec::len).sum();
    assert_eq!(told as u64, counters.kinds[TASK_KIND_SWITCH].recorded);
    assert_eq!(wakes, counters.kinds[TASK_KIND_WAKE].recorded);
    assert!(begun > 100 && begun < wakes, "{begun} of {wakes}");
    for all in by_cpu.values() {
        for pair in all.windows(2) {
            assert_eq!(pair[0].next_tid, pair[1].prev_tid, "{pair:?}");
            let to_idle = pair[0].flags & SWITCH_TO_IDLE != 0;
            assert_eq!(to_idle, pair[1].flags & SWITCH_FROM_IDLE != 0, "{pair:?}");
            assert!(pair[0].time_ns <= pair[1].time_ns, "{pair:?}");
        }
    }
}

fn a_filter_tells_switches_of_its_tasks_only() {
    let _module = Module::load();
    let kept = Kept::start(
        "bash",
        &["-c", "while :; do read -t 0.01 x; sleep 0.01; done"],
    );
    let mut session = TaskSession::with_rings(1 << 20);
    let filter = libnsprobe::Filter::pids([kept.pid()]);
    session.session.filter(&filter).expect("FILTER");
    let options = TaskOptions {
        flags: TASKS_SWITCHES,
        ..TaskOptions::default()
    };
    session.session.set_tasks(&options).expect("TASKS");
    let mut count = 0;
    within(LIMIT, || {
        for switch in switches(&mut session).values().flatten() {
            let tids = [switch.prev_tid, switch.next_tid];
            assert!(tids.contains(&kept.pid()), "{switch:?}");
            count += 1;
        }
        count > 4
    });
    assert!(count > 4, "{count}");
    // Its counters are read when none is in the middle of a switch.
    session.set(0, 0);
    let counters = session.session.task_counters().expect("counters");
    assert!(
        counters.kinds[TASK_KIND_SWITCH].filtered > 0,
        "{counters:?}"
    );
    assert!(counters.balance(), "{counters:?}");
}
