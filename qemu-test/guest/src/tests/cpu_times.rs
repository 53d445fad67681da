// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: how long a container ran is what the kernel's own account says of it.

use crate::group::Group;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::tasks::{InProc, Kept, TaskSession};
use libnsprobe::TaskOptions;
use nsprobe_common::abi::TASKS_CPU;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::time::Duration;

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
    /// Does `first` once, and `for_ever` from when this returns on.
    fn new(name: &str, first: &str, for_ever: &str) -> Container {
        let group = Group::new(name);
        let script = format!("{first}; echo ready; exec >/dev/null; while :; do {for_ever}; done");
        let into = format!(
            "echo 0 >{}/cgroup.procs; exec unshare -pf --kill-child sh -c '{script}'",
            group.folder.display()
        );
        let mut shell = Kept::start("sh", &["-c", &into]);
        let mut line = String::new();
        let output = shell.0.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut line);
        assert!(read.is_ok() && line == "ready\n", "{name}: {line:?}");
        Container { group, shell }
    }
}

/// Both accounts: that of the kernel from just before and just after the other one.
struct Both {
    kept_ns: u64,
    usage_ns: RangeInclusive<u64>,
}

impl Both {
    /// How far the kernel's own account went on meanwhile.
    fn width(&self) -> u64 {
        self.usage_ns.end() - self.usage_ns.start()
    }
}

/// Both accounts as close to each other as they are found: a pause of the machine between two
/// of the readings is no difference of theirs.
fn both(session: &TaskSession, group: &Group) -> Both {
    const CLOSE_NS: u64 = 1_000_000;
    let read = || {
        let least = group.usage_ns();
        let kept_ns = kept_ns(session, group);
        Both {
            kept_ns,
            usage_ns: least..=group.usage_ns(),
        }
    };
    let mut best = read();
    for _ in 1..50 {
        if best.width() <= CLOSE_NS {
            break;
        }
        let next = read();
        if next.width() < best.width() {
            best = next;
        }
    }
    best
}

/// Asserts that both grew alike, but for a hundredth; in seconds, how much at least.
fn grew_alike(name: &str, before: &Both, after: &Both) -> f64 {
    grew_nearly_alike(name, before, after, 0.01)
}

/// Asserts that both grew alike, but for a part; in seconds, how much at least.
fn grew_nearly_alike(name: &str, before: &Both, after: &Both, part: f64) -> f64 {
    let seconds = |then: u64, now: u64| (now as f64 - then as f64) / 1e9;
    let kept = seconds(before.kept_ns, after.kept_ns);
    let least = seconds(*before.usage_ns.end(), *after.usage_ns.start());
    let most = seconds(*before.usage_ns.start(), *after.usage_ns.end());
    println!("{name}: {kept:.3} s kept, {least:.3} to {most:.3} s used");
    let fits = least * (1.0 - part) <= kept && kept <= most * (1.0 + part);
    assert!(fits, "{name}: {kept} s kept, {least} to {most} s used");
    least
}

/// Groups with their readings.
fn zipped<'a>(
    groups: &'a [&'a Group],
    before: &'a [Both],
    after: &'a [Both],
) -> impl Iterator<Item = (&'a Group, &'a Both, &'a Both)> {
    let readings = before.iter().zip(after);
    let zipped = groups.iter().zip(readings);
    zipped.map(|(group, (before, after))| (*group, before, after))
}

/// Asserts that both accounts grew alike of groups between which a task was moved as it ran; in
/// seconds, how much the least of them grew at least.
///
/// What it ran since the last tick before a move the kernel counts for the next group: little of
/// what it ran in each, but on a busy machine some ticks are late. So each is compared by a tenth,
/// and all together by a hundredth, as exactly as others.
fn grew_alike_together(groups: &[(&Group, &Both, &Both)]) -> f64 {
    const LATE_TICKS: f64 = 0.1;
    let (mut kept_ns, mut least_ns, mut most_ns) = (0, 0, 0);
    let mut least_ran = f64::INFINITY;
    for (group, before, after) in groups {
        let name = group.folder.display().to_string();
        least_ran = least_ran.min(grew_nearly_alike(&name, before, after, LATE_TICKS));
        kept_ns += after.kept_ns - before.kept_ns;
        least_ns += after.usage_ns.start() - before.usage_ns.end();
        most_ns += after.usage_ns.end() - before.usage_ns.start();
    }
    let fits = least_ns / 100 * 99 <= kept_ns && kept_ns <= most_ns / 100 * 101;
    assert!(fits, "{kept_ns} ns kept, {least_ns} to {most_ns} ns used");
    least_ran
}

/// How long tasks of a container's group ran, by their pid namespace.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    /// In that of the container's maker.
    outside_ns: u64,
    /// In that of the container.
    inside_ns: u64,
    /// In none: they had been reaped.
    reaped_ns: u64,
}

impl Shares {
    fn of(session: &TaskSession, container: &Container) -> Shares {
        let pid = container.shell.pid();
        let maker = InProc::of(pid, pid).expect("it waits");
        let times = session.session.cpu_times().expect("CPU_TIMES");
        let id = container.group.id();
        let mut shares = Shares::default();
        let mut inside = BTreeSet::new();
        for row in times.rows.iter().filter(|row| row.cgroup == id) {
            let share = match row.pidns_inum {
                0 => &mut shares.reaped_ns,
                inum if inum == maker.pidns => &mut shares.outside_ns,
                inum => {
                    inside.insert(inum);
                    &mut shares.inside_ns
                }
            };
            *share += row.runtime_ns;
        }
        assert_eq!(inside.len(), 1, "{inside:?}");
        shares
    }
}

test! { full, containers_ran_as_long_as_their_groups, module, seconds = 120 }
fn containers_ran_as_long_as_their_groups() {
    let _module = Module::load();
    let session = keeping(1024);
    let all = [
        Container::new("nsprobe-pinned", "taskset -pc 0 1 >/dev/null", ":"),
        Container::new("nsprobe-short", ":", "/bin/true; /bin/true; (:)"),
        Container::new(
            "nsprobe-pipes",
            ":",
            "head -c 300000 /dev/zero | cat | wc -c",
        ),
    ];
    let other = Group::new("nsprobe-other");
    let moved = Kept::start("sh", &["-c", "while :; do :; done"]);
    let home = Group::new("nsprobe-home");
    let groups: Vec<&Group> = all
        .iter()
        .map(|one| &one.group)
        .chain([&other, &home])
        .collect();
    let shares = all.each_ref().map(|one| Shares::of(&session, one));
    let before: Vec<Both> = groups.iter().map(|group| both(&session, group)).collect();
    for _ in 0..10 {
        home.take(moved.pid());
        std::thread::sleep(Duration::from_millis(900));
        other.take(moved.pid());
        std::thread::sleep(Duration::from_millis(1100));
    }
    let after: Vec<Both> = groups.iter().map(|group| both(&session, group)).collect();
    let grown: Vec<_> = zipped(&groups, &before, &after).collect();
    let (stayed, moved_between) = grown.split_at(all.len());
    for (group, before, after) in stayed {
        let name = group.folder.display().to_string();
        let ran = grew_alike(&name, before, after);
        assert!(ran > 0.5, "{name} has hardly run: {ran} s");
    }
    let ran = grew_alike_together(moved_between);
    assert!(ran > 0.5, "one has hardly run: {ran} s");
    let times = session.session.cpu_times().expect("CPU_TIMES");
    assert_eq!(times.turned_away_ns, 0);
    // What goes on is all in the containers' namespaces: who made them waits.
    for (container, before) in all.iter().zip(&shares) {
        let now = Shares::of(&session, container);
        let name = container.group.folder.display();
        println!("{name}: {before:?}, then {now:?}");
        let outside_ns = now.outside_ns - before.outside_ns;
        assert!(outside_ns < 20_000_000, "{name}: {outside_ns}");
        let reaped_ns = now.reaped_ns - before.reaped_ns;
        let inside_ns = now.inside_ns - before.inside_ns;
        assert!(
            reaped_ns < inside_ns / 10,
            "{name}: {reaped_ns} of {inside_ns}"
        );
    }
}

test! { full, a_task_that_never_gives_up_its_cpu_is_counted, module, cpus = 2 }
fn a_task_that_never_gives_up_its_cpu_is_counted() {
    let _module = Module::load();
    let hog = Container::new("nsprobe-hog", "taskset -pc 1 1 >/dev/null", ":");
    let session = keeping(64);
    let before = both(&session, &hog.group);
    std::thread::sleep(Duration::from_secs(3));
    let after = both(&session, &hog.group);
    let ran = grew_alike("hog", &before, &after);
    assert!(ran > 1.0, "it has hardly run: {ran} s");
}

test! { full, a_task_that_is_moved_while_it_runs_is_counted_by_group, module, cpus = 2 }
/// It is moved as it runs, with no switch in between at which it could be counted.
fn a_task_that_is_moved_while_it_runs_is_counted_by_group() {
    const STAY: Duration = Duration::from_secs(1);
    let _module = Module::load();
    let groups = ["nsprobe-here", "nsprobe-there"].map(Group::new);
    let words = ["-c", "1", "sh", "-c", "while :; do :; done"];
    let moved = Kept::start("taskset", &words);
    groups[0].take(moved.pid());
    let session = keeping(64);
    let before = groups.each_ref().map(|group| both(&session, group));
    for group in groups.iter().cycle().take(4) {
        group.take(moved.pid());
        std::thread::sleep(STAY);
    }
    let after = groups.each_ref().map(|group| both(&session, group));
    let groups = groups.each_ref();
    let grown: Vec<_> = zipped(&groups, &before, &after).collect();
    let ran = grew_alike_together(&grown);
    assert!(ran > 0.2, "one has hardly run: {ran} s");
}

test! { full, time_without_a_row_is_told, module }
fn time_without_a_row_is_told() {
    let _module = Module::load();
    let session = keeping(1);
    let _busy = Container::new("nsprobe-busy", ":", ":");
    let times = || session.session.cpu_times().expect("CPU_TIMES");
    assert!(within(SOON, || times().turned_away_ns > 0));
    let times = times();
    let mut cpus: Vec<u32> = times.rows.iter().map(|row| row.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), times.rows.len(), "{times:?}");
    assert!(!times.rows.is_empty(), "{times:?}");
}
