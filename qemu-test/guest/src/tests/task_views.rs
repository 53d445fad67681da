// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `ps` and `tree` say of tasks what /proc says of them, in whatever namespaces they
//! are.

use super::capsule::{lines, number};
use super::task_dump::all_in_proc;
use crate::command::{self};
use crate::container::{pid_namespace, Container, Root};
use crate::module::Module;
use crate::oracle::within;
use crate::runtimes::Machine;
use crate::tasks::{processes_called, ran_ns, InProc, Kept, NAMESPACE_FILES};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::time::Duration;

/// Where a container has `served`.
pub(super) const PROGRAM: &str = "/usr/local/bin/served";
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// A shell in three pid namespaces, one inside the other.
pub(super) const THREE_DEEP: &str = "exec unshare -fp unshare -fp unshare -fp sh -c";

/// A shell line, killed with the value; its first line of output is awaited.
pub(super) struct Shell(Kept);

impl Shell {
    pub(super) fn start(line: &str) -> Shell {
        let mut shell = Kept::start("sh", &["-c", line]);
        let out = shell.0.stdout.take().expect("piped");
        let mut first = String::new();
        let mut out = BufReader::new(out);
        out.read_line(&mut first).expect("it says something");
        shell.0.stdout = Some(out.into_inner());
        Shell(shell)
    }
}

/// All tasks of `tree --json --threads`, by their numbers.
fn tasks_of(namespaces: &[Value]) -> HashMap<(u64, u64), &Value> {
    let mut all = HashMap::new();
    for namespace in namespaces {
        for task in namespace["tasks"].as_array().expect("--threads") {
            let own = task["levels"].as_array().expect("levels").last().cloned();
            let own = own.expect("at least one");
            assert_eq!(own["pid_namespace"], namespace["pid_namespace"], "{task}");
            let key = (number(&task["pid"]), number(&task["tid"]));
            assert!(all.insert(key, task).is_none(), "twice: {task}");
        }
    }
    all
}

/// Compares a task with what /proc says of it.
fn check_task(task: &Value, proc: &InProc) {
    let level = |key: &str| -> Vec<u64> {
        let levels = task["levels"].as_array().expect("levels");
        levels.iter().map(|level| number(&level[key])).collect()
    };
    let wide = |all: &[u32]| all.iter().map(|one| u64::from(*one)).collect::<Vec<u64>>();
    assert_eq!(level("tid"), wide(&proc.tids), "{task}");
    assert_eq!(level("pid"), wide(&proc.pids), "{task}");
    assert_eq!(
        level("pid_namespace").last(),
        Some(&proc.pidns.into()),
        "{task}"
    );
    assert_eq!(task["ppid"], proc.ppid, "{task}");
    assert_eq!(task["uid"], proc.uid, "{task}");
    assert_eq!(
        number(&task["start_ns"]) / 10_000_000,
        proc.start_ticks,
        "{task}"
    );
    assert_eq!(task["cgroup"], proc.cgroup, "{task}");
    // Who has ended has none.
    if task["state"] == "Z" {
        return;
    }
    for (name, inum) in NAMESPACE_FILES.iter().zip(proc.namespaces) {
        assert_eq!(task["namespaces"][name], inum, "{name} of {task}");
    }
}

/// Somebody called `served` who is in another pid namespace than we, and not one of these.
fn another_served(others: &[u32]) -> u32 {
    let ours = pid_namespace(std::process::id());
    // Of one that ends meanwhile it is not told, or zero.
    let pidns = |pid: u32| InProc::of(pid, pid).map_or(0, |proc| proc.pidns);
    let is_elsewhere = |pid: u32| ![0, ours].contains(&pidns(pid));
    let mut found = None;
    let is_there = within(LIMIT, || {
        let mut all = processes_called("served").into_iter();
        found = all.find(|pid| !others.contains(pid) && is_elsewhere(*pid));
        found.is_some()
    });
    assert!(is_there, "nobody else is called so");
    found.expect("just found")
}

test! { core, the_tree_is_as_proc_has_it, seconds = 240 }
fn the_tree_is_as_proc_has_it() {
    let _module = Module::load();
    let root = Root::with("served", PROGRAM);
    let web = Container::over("web", &root.folder, &[PROGRAM]);
    let executed = Kept::start("podman", &["exec", "web", PROGRAM]);
    let in_web = another_served(&[web.pid()]);
    let machine = Root::called("mach", "served", PROGRAM);
    let _nspawn = Machine::start(&machine.folder, "deb13", PROGRAM);
    let in_machine = another_served(&[web.pid(), in_web]);
    let deep = Shell::start(&format!("{THREE_DEEP} 'echo up; sleep 1000; true'"));
    // Somebody who comes into the container from outside, as `podman exec` does.
    let target = web.pid().to_string();
    let joined = Kept::start("nsenter", &["-t", &target, "-p", "sleep", "1000"]);
    let is_child = |pid| InProc::of(pid, pid).is_some_and(|proc| proc.ppid == joined.pid());
    let has_joined = || processes_called("sleep").into_iter().any(is_child);
    assert!(within(LIMIT, has_joined));
    let before = all_in_proc();
    let got = command::run(&["tree", "--json", "--threads"]).succeeded();
    let after = all_in_proc();
    let namespaces = lines(&got.stdout);
    let tasks = tasks_of(&namespaces);
    let mut checked = 0;
    for ((pid, tid), proc) in before {
        let Some(later) = after.get(&(pid, tid)) else {
            continue;
        };
        let task = tasks.get(&(pid.into(), tid.into()));
        let task = task.unwrap_or_else(|| panic!("{pid}/{tid} is not in the tree"));
        if proc == *later {
            check_task(task, &proc);
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
    check_namespaces(&namespaces, &web, &deep, &joined);
    let namespace_of = |pid: u32| {
        let inum = pid_namespace(pid);
        let mut all = namespaces.iter();
        all.find(|one| one["pid_namespace"] == inum)
            .expect("listed")
    };
    // Whom `podman exec` has brought is in the container, and none of its processes' child.
    assert_eq!(namespace_of(in_web)["container"], "web");
    let task = tasks[&(in_web.into(), in_web.into())];
    assert_eq!(task["levels"].as_array().map(Vec::len), Some(2), "{task}");
    let parent = tasks[&(number(&task["ppid"]), number(&task["ppid"]))];
    assert_eq!(
        parent["levels"].as_array().map(Vec::len),
        Some(1),
        "{parent}"
    );
    let machine = namespace_of(in_machine);
    assert_eq!(machine["container"], "deb13", "{machine}");
    assert_eq!(machine["runtime"], "nspawn", "{machine}");
    drop(executed);
    println!("{}", command::run(&["tree", "--tasks"]).succeeded().stdout);
}

/// Each namespace is in the one of its first process's parent, and the container has its
/// name.
fn check_namespaces(namespaces: &[Value], web: &Container, deep: &Shell, joined: &Kept) {
    let find = |inum: u64| {
        let mut all = namespaces.iter();
        all.find(|one| one["pid_namespace"] == inum)
            .unwrap_or_else(|| panic!("no namespace {inum}"))
    };
    let depth = |inum: u64| number(&find(inum)["depth"]);
    let named = find(pid_namespace(web.pid()).into());
    assert_eq!(named["container"], "web", "{named}");
    assert_eq!(named["runtime"], "podman", "{named}");
    assert_eq!(named["init"]["pid"], web.pid(), "{named}");
    // What has joined it is the child of one outside.
    let inside = named["tasks"].as_array().expect("--threads");
    let parents: Vec<u64> = inside.iter().map(|task| number(&task["ppid"])).collect();
    assert!(parents.contains(&joined.pid().into()), "{named}");
    let deepest = namespaces.iter().map(|one| number(&one["depth"])).max();
    assert!(deepest >= Some(3), "{deepest:?}");
    assert_eq!(depth(pid_namespace(deep.0.pid()).into()), 0);
    for namespace in namespaces {
        let Some(init) = namespace["init"]["pid"].as_u64() else {
            continue;
        };
        let Some(proc) = InProc::of(init as u32, init as u32) else {
            continue;
        };
        match proc.ppid {
            0 => assert_eq!(namespace["parent"], Value::Null),
            ppid => assert_eq!(namespace["parent"], pid_namespace(ppid), "{namespace}"),
        }
    }
}

test! { full, ps_counts_what_the_scheduler_counts, seconds = 120 }
fn ps_counts_what_the_scheduler_counts() {
    let _module = Module::load();
    let _hog = Kept::start("sh", &["-c", "while :; do :; done"]);
    let web = Container::run("web", &["sleep", "1000"]);
    // podman is back before it has executed that.
    let args = format!("/proc/{}/cmdline", web.pid());
    let sleeps = || fs::read(&args).is_ok_and(|args| args == b"sleep\x001000\0");
    assert!(within(LIMIT, sleeps));
    let all = InProc::all().into_iter();
    let before: HashMap<(u64, u64), u64> = all
        .filter_map(|(pid, tid)| {
            let key = (u64::from(pid), u64::from(tid));
            Some((key, ran_ns(key.0, key.1)?))
        })
        .collect();
    let got = command::run(&["ps", "--all", "--threads", "--json"]).succeeded();
    let mut checked = 0;
    for task in lines(&got.stdout) {
        let key = (number(&task["pid"]), number(&task["tid"]));
        if let (Some(before), Some(after)) = (before.get(&key), ran_ns(key.0, key.1)) {
            let ran = number(&task["cpu_ns"]);
            // A running thread's own clock is brought up to date at ticks.
            let least = before.saturating_sub(20_000_000);
            assert!(
                (least..=after).contains(&ran),
                "{before} {ran} {after}: {task}"
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
    let got = command::run(&["ps", "-c", "web"]).succeeded();
    let rows: Vec<&str> = got.lines().collect();
    assert_eq!(rows.len(), 2, "{got:#?}");
    assert!(
        rows[1].starts_with("web ") && rows[1].contains("sleep 1000"),
        "{got:#?}"
    );
    command::run(&["ps", "-c", "nobody"]).refused(&["nobody"]);
    // Containers alone, unless others are wanted.
    let places = |words: &[&str]| -> BTreeSet<String> {
        let words = [&["ps", "--json"][..], words].concat();
        let got = command::run(&words).succeeded();
        let place = |task: Value| task["in"].as_str().expect("a place").to_owned();
        lines(&got.stdout).into_iter().map(place).collect()
    };
    assert_eq!(places(&[]), BTreeSet::from(["container".to_owned()]));
    let all = places(&["--all"]);
    let others = ["host", "kernel"].map(str::to_owned);
    assert!(others.iter().all(|other| all.contains(other)), "{all:?}");
}
