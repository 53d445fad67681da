// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `ps` and `top` show the columns, tasks and groups that their options ask for.

use super::capsule::{lines, number};
use super::task_views::{Shell, LIMIT, PROGRAM, THREE_DEEP};
use crate::command;
use crate::container::Root;
use crate::module::Module;
use crate::oracle::within;
use crate::processes::is_asleep;
use crate::runtimes::Bundle;
use crate::tasks::{processes_called, InProc};
use crate::victim::Victim;
use serde_json::Value;
use std::fs;

/// The lines of `ps` that begin with a process's number, with one blank between columns.
fn rows_of(pid: u32, words: &[&str]) -> Vec<String> {
    let got = command::run(&[&["ps", "--all", "--columns"][..], words].concat()).succeeded();
    let words = got.lines().map(|line| line.split_whitespace());
    let rows = words.map(|words| words.collect::<Vec<&str>>().join(" "));
    let pid = pid.to_string();
    rows.filter(|row| row.split(' ').next() == Some(&pid))
        .collect()
}

test! { full, ps_shows_the_columns_that_are_asked_for, seconds = 120 }
/// A task that is three pid namespaces deep, a container's, and one with two threads.
fn ps_shows_the_columns_that_are_asked_for() {
    let _module = Module::load();
    let _deep = Shell::start(&format!("{THREE_DEEP} 'echo up; exec sleep 1000'"));
    let depth = |pid: u32| InProc::of(pid, pid).map_or(0, |proc| proc.tids.len());
    let mut deepest = None;
    let is_there = within(LIMIT, || {
        let mut all = processes_called("sleep").into_iter();
        deepest = all.find(|pid| depth(*pid) == 4 && is_asleep(pid));
        deepest.is_some()
    });
    assert!(is_there, "it does not sleep");
    let pid = deepest.expect("just found");
    let proc = InProc::of(pid, pid).expect("it sleeps");
    let columns = "pid,tid,nspid,nstid,ppid,threads,uid,state,comm,cgroup,pidns,command";
    let row = |inner: &str| {
        let (ppid, cgroup, pidns) = (proc.ppid, proc.cgroup, proc.pidns);
        format!("{pid} {pid} {inner} {inner} {ppid} 1 0 S sleep {cgroup} {pidns} sleep 1000")
    };
    let inner: Vec<String> = proc.pids[1..].iter().map(u32::to_string).collect();
    assert_eq!(rows_of(pid, &[columns]), [row(&inner[2])]);
    assert_eq!(
        rows_of(pid, &[columns, "--verbose"]),
        [row(&inner.join("/"))]
    );

    let root = Root::with("served", PROGRAM);
    let web = Bundle::run("crun", "web", &root.folder, PROGRAM);
    let rows = rows_of(web.pid(), &["pid,container,runtime,comm,nspid"]);
    assert_eq!(rows, [format!("{} web crun served 1", web.pid())]);

    let family = Victim::start("family", &[]);
    let pid = family.pid();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let threads = threads.map(|one| one.expect("readable").file_name());
    let mut wanted: Vec<String> = threads
        .map(|tid| format!("{pid} {}", tid.display()))
        .collect();
    let mut rows = rows_of(pid, &["pid,tid", "--threads"]);
    wanted.sort();
    rows.sort();
    assert_eq!((rows.len(), rows), (2, wanted));
    let got = command::run(&["ps", "--columns", "age,time,comm,uid"]).succeeded();
    let heads = got
        .lines()
        .next()
        .map(|line| line.split_whitespace().collect());
    assert_eq!(heads, Some(vec!["AGE", "TIME", "COMM", "UID"]));
}

/// The groups of one interval of `top`.
fn groups_of_top(words: &[&str]) -> Vec<Value> {
    let common = ["top", "--json", "-n", "1", "-d", "0.2"];
    let got = command::run(&[&common[..], words].concat()).succeeded();
    let interval = lines(&got.stdout).remove(0);
    interval["groups"].as_array().expect("groups").clone()
}

test! { full, top_shows_what_is_asked_for_in_the_order_that_is, seconds = 120 }
fn top_shows_what_is_asked_for_in_the_order_that_is() {
    let _module = Module::load();
    let roots = ["served", "named"].map(|name| Root::called(name, name, PROGRAM));
    let [_shop, _other] = [("Shop", &roots[0]), ("other", &roots[1])]
        .map(|(id, root)| Bundle::run("crun", id, &root.folder, PROGRAM));
    for (sort, key) in [
        ("cpu", "cpu_ns"),
        ("tasks", "threads"),
        ("switches", "switches"),
    ] {
        let groups = groups_of_top(&["--sort", sort]);
        let numbers: Vec<u64> = groups.iter().map(|group| number(&group[key])).collect();
        assert!(numbers.len() > 3, "{groups:#?}");
        let is_sorted = numbers.is_sorted_by(|one, next| one >= next);
        assert!(is_sorted, "{sort}: {numbers:?}");
    }
    for (words, wanted) in [
        (&["--filter", "sHOP"][..], &["Shop"][..]),
        (
            &["--filter", "(crun)", "--sort", "name"],
            &["Shop", "other"],
        ),
        (&["-c", "other", "--filter", "shop"], &[]),
    ] {
        let groups = groups_of_top(words);
        let containers: Vec<&Value> = groups.iter().map(|group| &group["container"]).collect();
        assert_eq!(containers, wanted, "{words:?}");
    }
    let table = ["top", "--batch", "-n", "1", "-d", "0.2", "--filter", "shop"];
    let table = command::run(&table).succeeded();
    let rows = table.lines().skip(2).filter(|line| !line.is_empty());
    let rows: Vec<&str> = rows.collect();
    let is_it = rows.len() == 1 && rows[0].ends_with("Shop (crun)");
    assert!(is_it, "{table:#?}");
}
