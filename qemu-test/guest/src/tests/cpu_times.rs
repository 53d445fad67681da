// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: how long a container ran is what the kernel's own account says of it.

use super::tests;
use crate::module::Module;
use crate::tasks::{Group, InProc, Kept, TaskSession};
use libnsprobe::TaskOptions;
use nsprobe_common::abi::TASKS_CPU;
use std::time::Duration;

tests![
    containers_ran_as_long_as_their_groups: 120,
    a_task_that_never_gives_up_its_cpu_is_counted: 60,
    time_without_a_row_is_told,
];

/// A session that keeps times, without any rings' records.
fn keeping(rows: u32) -> TaskSession {
    let mut session = TaskSession::with_rings(64 << 10);
    let options = TaskOptions {
        flags: TASKS_CPU,
        cpu_rows: rows,
        ..TaskOptions::default()
    };
    session.session.set_tasks(&options).expect("TASKS");
    session
}

/// How long the tasks of a group ran, in nanoseconds, by the session.
fn kept_ns(session: &TaskSession, group: &Group) -> u64 {
    let times = session.session.cpu_times().expect("CPU_TIMES");
    let of_group = times.rows.iter().filter(|row| row.cgroup == group.id());
    of_group.map(|row| row.runtime_ns).sum()
}

/// A shell in a pid namespace and a group of its own.
struct Container {
    group: Group,
    shell: Kept,
}

impl Container {
    fn new(name: &str, script: &str) -> Container {
        let group = Group::new(name);
        let into = format!(
            "echo 0 >{}/cgroup.procs; exec unshare -pf --kill-child sh -c '{script}'",
            group.0.display()
        );
        let shell = Kept::start("sh", &["-c", &into]);
        Container { group, shell }
    }
}

/// Both accounts at about the same moment.
struct Both {
    kept_ns: u64,
    usage_ns: u64,
}

fn both(session: &TaskSession, group: &Group) -> Both {
    Both {
        kept_ns: kept_ns(session, group),
        usage_ns: group.usage_ns(),
    }
}

/// How long tasks of a container's group ran in the pid namespace of its maker.
fn outside_ns(session: &TaskSession, container: &Container) -> u64 {
    let pid = container.shell.pid();
    let maker = InProc::of(pid, pid).expect("it waits");
    let times = session.session.cpu_times().expect("CPU_TIMES");
    let id = container.group.id();
    let rows = times.rows.iter();
    rows.filter(|row| row.cgroup == id && row.pidns_inum == maker.pidns)
        .map(|row| row.runtime_ns)
        .sum()
}

fn containers_ran_as_long_as_their_groups() {
    let _module = Module::load();
    let session = keeping(1024);
    let all = [
        Container::new(
            "nsprobe-pinned",
            "taskset -pc 0 1 >/dev/null; while :; do :; done",
        ),
        Container::new(
            "nsprobe-short",
            "while :; do /bin/true; /bin/true; (:); done",
        ),
        Container::new(
            "nsprobe-pipes",
            "while :; do head -c 300000 /dev/zero | cat | wc -c; done",
        ),
    ];
    let other = Group::new("nsprobe-other");
    let moved = Kept::start("sh", &["-c", "while :; do :; done"]);
    let home = Group::new("nsprobe-home");
    std::thread::sleep(Duration::from_millis(300));
    let groups: Vec<&Group> = all
        .iter()
        .map(|one| &one.group)
        .chain([&other, &home])
        .collect();
    let outside = all.each_ref().map(|one| outside_ns(&session, one));
    let before: Vec<Both> = groups.iter().map(|group| both(&session, group)).collect();
    for _ in 0..10 {
        home.take(moved.pid());
        std::thread::sleep(Duration::from_millis(900));
        other.take(moved.pid());
        std::thread::sleep(Duration::from_millis(1100));
    }
    let after: Vec<Both> = groups.iter().map(|group| both(&session, group)).collect();
    for ((group, before), after) in groups.iter().zip(&before).zip(&after) {
        let kept = (after.kept_ns - before.kept_ns) as f64 / 1e9;
        let usage = (after.usage_ns - before.usage_ns) as f64 / 1e9;
        let name = group.0.display();
        println!("{name}: {kept:.3} s kept, {usage:.3} s used");
        assert!(usage > 0.5, "{name} has hardly run: {usage} s");
        assert!(
            (kept - usage).abs() < usage * 0.01,
            "{name}: {kept} {usage}"
        );
    }
    let times = session.session.cpu_times().expect("CPU_TIMES");
    assert_eq!(times.turned_away_ns, 0);
    // What goes on is all in the containers' namespaces: who made them waits.
    for (container, before) in all.iter().zip(&outside) {
        let now = outside_ns(&session, container) - before;
        assert!(now < 20_000_000, "{}: {now}", container.group.0.display());
    }
}

fn a_task_that_never_gives_up_its_cpu_is_counted() {
    let _module = Module::load();
    let hog = Container::new(
        "nsprobe-hog",
        "taskset -pc 1 1 >/dev/null; while :; do :; done",
    );
    std::thread::sleep(Duration::from_millis(500));
    let session = keeping(64);
    let before = both(&session, &hog.group);
    std::thread::sleep(Duration::from_secs(3));
    let after = both(&session, &hog.group);
    let kept = after.kept_ns - before.kept_ns;
    let usage = after.usage_ns - before.usage_ns;
    println!("{kept} ns kept, {usage} ns used");
    assert!(usage > 1_000_000_000, "{usage}");
    assert!(kept.abs_diff(usage) < usage / 100, "{kept} {usage}");
}

fn time_without_a_row_is_told() {
    let _module = Module::load();
    let session = keeping(1);
    let _busy = Container::new("nsprobe-busy", "while :; do :; done");
    std::thread::sleep(Duration::from_secs(1));
    let times = session.session.cpu_times().expect("CPU_TIMES");
    let mut cpus: Vec<u32> = times.rows.iter().map(|row| row.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), times.rows.len(), "{times:?}");
    assert!(times.turned_away_ns > 0, "{times:?}");
}
