// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use libnsprobe::common::task::{
    TaskDetails, TaskLevel, TaskRecord, TASK_ALIVE, TASK_EXIT, TASK_FORK, TASK_KERNEL,
};
use nsprobe_trace::tasks::{CpuRow, NamedContainer};
use std::rc::Rc;

const MS: u64 = 1_000_000;

/// The container `web` is pid namespace 200.
struct Web;

impl Places for Web {
    fn container(&self, _: u64, pid_namespace: u64) -> Option<Rc<NamedContainer>> {
        (pid_namespace == 200).then(|| {
            Rc::new(NamedContainer {
                name: "web".to_owned(),
                runtime: "podman".to_owned(),
                id: None,
                pod: None,
            })
        })
    }
}

fn space(inum: u32) -> PidSpace {
    PidSpace {
        id: inum.into(),
        inum,
    }
}

fn row(cgroup: u64, pid_namespace: u32, cpu_ms: u64) -> CpuRow {
    CpuRow {
        cgroup,
        pid_namespace: space(pid_namespace),
        cpu_ns: cpu_ms * MS,
        switches: cpu_ms,
    }
}

/// A task with its levels (namespace and number, the outermost first), and how long it ran.
fn task(
    tasks: &mut Tasks,
    what: u16,
    time_ms: u64,
    levels: &[(u32, u32)],
    cpu_ms: u64,
    flags: u32,
) {
    let levels: Vec<TaskLevel> = levels
        .iter()
        .map(|(inum, tid)| TaskLevel {
            id: (*inum).into(),
            inum: *inum,
            tid: *tid,
            pid: *tid,
            ppid: 0,
        })
        .collect();
    let record = TaskRecord {
        what,
        time_ns: time_ms * MS,
        start_ns: u64::from(levels[0].tid),
        cpu_ns: cpu_ms * MS,
        flags,
        ..TaskRecord::default()
    };
    let details = TaskDetails {
        levels: &levels,
        parent: &[],
        args: &[],
    };
    tasks.apply(&record, &details);
}

fn reading(time_ms: u64, rows: &[CpuRow]) -> CpuReading {
    CpuReading {
        time_ns: time_ms * MS,
        rows: rows.to_vec(),
        turned_away_ns: time_ms,
    }
}

fn read(meter: &mut Meter, tasks: &Tasks, reading: CpuReading) -> Option<Interval> {
    let wanted = Wanted {
        places: &Web,
        scope: &SelectedTasks::default(),
    };
    let boot_ns = reading.time_ns;
    meter.read(reading, tasks, boot_ns, &wanted)
}

#[test]
fn what_ran_is_told_by_container_and_process() {
    let mut tasks = Tasks::default();
    let mut meter = Meter::new(2);
    task(&mut tasks, TASK_ALIVE, 1, &[(100, 2)], 500, TASK_KERNEL);
    task(&mut tasks, TASK_ALIVE, 1, &[(100, 10)], 500, 0);
    task(&mut tasks, TASK_ALIVE, 1, &[(100, 20), (200, 1)], 500, 0);
    tasks.dump_begun(1);
    tasks.dump_ended();
    let first = reading(1000, &[row(1, 100, 700), row(7, 200, 300)]);
    assert_eq!(read(&mut meter, &tasks, first), None);

    // In the next second: the kernel's thread 10 ms, the host's 30 ms, the container's first
    // process 100 ms, one that came and went in a namespace of its own 50 ms.
    task(
        &mut tasks,
        TASK_FORK,
        1100,
        &[(100, 21), (200, 2), (300, 1)],
        0,
        0,
    );
    task(
        &mut tasks,
        TASK_EXIT,
        1200,
        &[(100, 21), (200, 2), (300, 1)],
        50,
        0,
    );
    task(&mut tasks, TASK_ALIVE, 2000, &[(100, 2)], 510, TASK_KERNEL);
    task(&mut tasks, TASK_ALIVE, 2000, &[(100, 10)], 530, 0);
    task(&mut tasks, TASK_ALIVE, 2000, &[(100, 20), (200, 1)], 600, 0);
    let rows = [row(1, 100, 740), row(7, 200, 405), row(7, 300, 50)];
    let interval = read(&mut meter, &tasks, reading(2000, &rows)).unwrap();
    assert_eq!(interval.elapsed_ns, 1000 * MS);
    assert_eq!(interval.unaccounted_ns, 1000);
    let told: Vec<(String, u64, u64, usize)> = interval
        .groups
        .iter()
        .map(|group| {
            let remainder = group.remainder_ns() / MS;
            (
                group.place.name(),
                group.cpu_ns / MS,
                remainder,
                group.threads,
            )
        })
        .collect();
    let of = |name: &str, cpu, remainder, threads| (name.to_owned(), cpu, remainder, threads);
    assert_eq!(
        told,
        [
            of("web", 155, 5, 1),
            of("(host)", 30, 0, 1),
            of("(kernel)", 10, 0, 1)
        ]
    );
    assert_eq!(interval.percent(interval.groups[0].cpu_ns), 15.5);
    assert_eq!(interval.percent_of_all(interval.groups[0].cpu_ns), 7.75);
    let short = &interval.groups[0].processes[1];
    assert_eq!((short.pid, short.own_pid, short.cpu_ns / MS), (21, 1, 50));
    assert!(short.threads[0].has_ended);
}

#[test]
fn one_that_nobody_saw_before_ran_for_nobody_knows_how_long() {
    let mut tasks = Tasks::default();
    let mut meter = Meter::new(1);
    read(&mut meter, &tasks, reading(1000, &[]));
    task(&mut tasks, TASK_ALIVE, 2000, &[(100, 10)], 9000, 0);
    let interval = read(&mut meter, &tasks, reading(2000, &[row(1, 100, 40)])).unwrap();
    let host = &interval.groups[0];
    assert_eq!((host.cpu_ns / MS, host.processes[0].cpu_ns), (40, 0));
    assert_eq!(host.remainder_ns() / MS, 40);
}

#[test]
fn what_ran_behind_the_reading_is_of_the_next_interval() {
    let mut tasks = Tasks::default();
    let mut meter = Meter::new(1);
    task(&mut tasks, TASK_ALIVE, 1000, &[(100, 10)], 500, 0);
    read(&mut meter, &tasks, reading(1000, &[row(1, 100, 500)]));
    // The machine paused for 300 ms between the reading and the look at the tasks.
    let mut ran = Vec::new();
    for (time_ms, cpu_ms) in [(2000, 1800), (3000, 2500)] {
        task(&mut tasks, TASK_ALIVE, time_ms, &[(100, 10)], cpu_ms, 0);
        let rows = [row(1, 100, time_ms - 500)];
        let interval = read(&mut meter, &tasks, reading(time_ms, &rows)).unwrap();
        ran.push(interval.groups[0].processes[0].cpu_ns / MS);
    }
    assert_eq!(ran, [1000, 1000]);
}
