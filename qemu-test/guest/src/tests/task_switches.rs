// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: context switches and wake-ups are all told, as the kernel's own tracer counts
//! them.

use crate::module::Module;
use crate::oracle::within;
use crate::processes::is_asleep;
use crate::sys::{self, Forked};
use crate::tasks::{Kept, TaskSession};
use libnsprobe::TaskOptions;
use nsprobe_common::abi::{
    TASKS_SWITCHES, TASKS_UNFILTERED, TASKS_WAKEUPS, TASK_KIND_SWITCH, TASK_KIND_WAKE,
};
use nsprobe_common::record::Record;
use nsprobe_common::task::{
    SwitchRecord, SWITCH_FROM_IDLE, SWITCH_PREEMPTED, SWITCH_TO_IDLE, WAKE_BEGUN,
};
use std::collections::HashMap;
use std::fs;
use std::io::{pipe, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// `TASK_INTERRUPTIBLE` of the kernel's `include/linux/sched.h`.
const TASK_INTERRUPTIBLE: u16 = 1;

const LIMIT: Duration = Duration::from_secs(20);

/// The tracer's own counts of an event, by thread; its trigger goes with the value.
struct Histogram {
    event: PathBuf,
    /// The field that has the thread's number.
    key: &'static str,
}

impl Histogram {
    fn new(event: &str, key: &'static str) -> Histogram {
        let folder = PathBuf::from("/sys/kernel/tracing/events/sched");
        let histogram = Histogram {
            event: folder.join(event),
            key,
        };
        let trigger = histogram.trigger();
        fs::write(histogram.event.join("trigger"), trigger).expect("tracefs is mounted");
        histogram
    }

    fn trigger(&self) -> String {
        format!("hist:keys={}:size=16384", self.key)
    }

    /// How many there were of a thread.
    fn hits(&self, tid: u32) -> u64 {
        let text = fs::read_to_string(self.event.join("hist")).expect("the trigger is set");
        assert!(text.contains("Dropped: 0"), "{text}");
        let row = text.lines().find_map(|line| {
            let row = line.strip_prefix("{ ")?.strip_prefix(self.key)?;
            let (number, count) = row.split_once("} hitcount:")?;
            let number = number.trim_start_matches([':', ' ']).trim();
            (number.parse() == Ok(tid)).then(|| count.trim().parse::<u64>().ok())?
        });
        row.unwrap_or(0)
    }
}

impl Drop for Histogram {
    fn drop(&mut self) {
        let _ = fs::write(self.event.join("trigger"), format!("!{}", self.trigger()));
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

/// Turns that each of two threads takes.
const TURNS: usize = 2000;

/// Two processes on one CPU that take turns, and end: the numbers of both.
fn take_turns() -> [u32; 2] {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let streams = [(&ours, true), (&theirs, false)];
    let pids = streams.map(|(stream, begins)| {
        let Forked::Parent(child) = sys::fork().expect("fork") else {
            sys::run_on(1);
            let mut stream = stream;
            let mut byte = [0];
            for _ in 0..TURNS {
                let done = match begins {
                    true => stream.write(&byte).and_then(|_| stream.read(&mut byte)),
                    false => stream.read(&mut byte).and_then(|_| stream.write(&byte)),
                };
                if done.is_err() {
                    sys::exit_now(1);
                }
            }
            sys::exit_now(0)
        };
        child
    });
    pids.map(|pid| {
        assert_eq!(sys::wait(pid), 0);
        pid as u32
    })
}

/// The records of switches from a thread, or of its wake-ups, that a session was told.
fn told_of(session: &mut TaskSession, told: &mut HashMap<u32, u64>) {
    let batch = session.reader.collect_rest().expect("records");
    for record in batch.records() {
        match record {
            Record::Switch(switch) => *told.entry(switch.prev_tid).or_default() += 1,
            Record::Wake(wake) => *told.entry(wake.tid).or_default() += 1,
            _ => {}
        }
    }
}

test! { core, switches_and_wake_ups_are_as_many_as_tracefs_counts, module, cpus = 2, seconds = 120 }
/// Of two processes, from before they are made until after they have ended, there are as many
/// records as the tracer has counted.
fn switches_and_wake_ups_are_as_many_as_tracefs_counts() {
    let _module = Module::load();
    let wakes = ["sched_waking", "sched_wakeup", "sched_wakeup_new"];
    for (flag, key, events) in [
        (TASKS_SWITCHES, "prev_pid", &["sched_switch"][..]),
        (TASKS_WAKEUPS, "pid", &wakes[..]),
    ] {
        let histograms = events.iter().map(|event| Histogram::new(event, key));
        let histograms: Vec<Histogram> = histograms.collect();
        let mut session = recording(flag);
        let pids = take_turns();
        let counted = |pid| histograms.iter().map(|one| one.hits(pid)).sum::<u64>();
        let mut told = HashMap::new();
        // A process is reaped before its last switch, after which nothing comes.
        let mut before = pids.map(|_| 0);
        let is_over = within(LIMIT, || {
            told_of(&mut session, &mut told);
            let last = std::mem::replace(&mut before, pids.map(counted));
            std::thread::sleep(Duration::from_millis(200));
            last == before
        });
        assert!(is_over, "they have not ended");
        session.set(0, 0);
        session.check_nothing_lost();
        told_of(&mut session, &mut told);
        let told = pids.map(|pid| told.get(&pid).copied().unwrap_or(0));
        println!("{events:?}: told {told:?}, counted {before:?}");
        assert_eq!(told, pids.map(counted), "{events:?}");
        assert!(told.iter().all(|&count| count >= TURNS as u64), "{told:?}");
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

test! { full, each_switch_goes_on_from_the_one_before, module, seconds = 120 }
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

test! { full, a_filter_tells_switches_of_its_tasks_only, module }
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

test! { full, a_sleeper_is_told_by_whom_it_is_woken_and_where, module, cpus = 2 }
/// On the last CPU a process waits for a byte, and is sent one from the first CPU when it
/// sleeps.
fn a_sleeper_is_told_by_whom_it_is_woken_and_where() {
    const TURNS: usize = 20;
    let _module = Module::load();
    let cpus = std::thread::available_parallelism().expect("/proc is mounted");
    let there = cpus.get() as u16 - 1;
    let (mut question, mut ask) = pipe().expect("a pipe");
    let (mut answer, mut tell) = pipe().expect("a pipe");
    let Forked::Parent(child) = sys::fork().expect("fork") else {
        sys::run_on(1 << there);
        let mut byte = [0];
        for _ in 0..TURNS {
            question.read_exact(&mut byte).expect("a byte");
            tell.write_all(&byte).expect("there is room");
        }
        sys::exit_now(0)
    };
    let sleeper = child as u32;
    let falls_asleep = || within(LIMIT, || is_asleep(sleeper));
    // It is where it says, and has nothing else to do.
    assert!(falls_asleep(), "it does not wait");
    sys::run_on(1);
    let mut session = recording(TASKS_SWITCHES | TASKS_WAKEUPS);
    for _ in 0..TURNS {
        assert!(falls_asleep(), "it does not wait");
        ask.write_all(b"x").expect("there is room");
        answer.read_exact(&mut [0]).expect("a byte");
    }
    assert_eq!(sys::wait(child), 0);
    session.set(0, 0);
    session.check_nothing_lost();
    let (mut by_us, mut asleep) = (0, 0);
    let batch = session.reader.collect_rest().expect("records");
    for record in batch.records() {
        match record {
            Record::Wake(wake) if wake.tid == sleeper => {
                assert_eq!(wake.target_cpu, there, "{wake:?}");
                let is_ours = wake.what == WAKE_BEGUN && wake.by_tid == std::process::id();
                by_us += usize::from(is_ours && wake.cpu == 0);
            }
            Record::Switch(switch) if switch.prev_tid == sleeper => {
                let is_asleep = switch.prev_state == TASK_INTERRUPTIBLE;
                asleep += usize::from(is_asleep && switch.flags & SWITCH_PREEMPTED == 0);
            }
            _ => {}
        }
    }
    println!("woken {by_us} times by us; {asleep} times it went to sleep");
    assert!(by_us >= TURNS, "{by_us}");
    // When it is woken before it has given up its CPU, it keeps it.
    assert!(asleep > TURNS / 2, "{asleep}");
}
