// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a capsule says of tasks and containers what /proc had said of them, also of those
//! that /proc had for a moment only.

use super::capsule::{hits, info, lines, number, path, Folder};
use super::task_views::{PROGRAM, THREE_DEEP};
use crate::command::{self, Running};
use crate::container::{pid_namespace, Container, Root};
use crate::module::Module;
use crate::oracle::within;
use crate::session::Session;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Records a victim that makes no call, and tasks beside it.
fn record_tasks(capsule: &str) -> Running {
    let spec = path("chain") + ":bottom";
    let record = Running::start(&["record", "-o", capsule, "-t", "60", &spec]);
    let watcher = Session::open();
    assert!(within(Duration::from_secs(20), || watcher.info().probes == 1));
    record
}

test! { full, tasks_that_lived_between_two_looks_are_in_the_capsule, seconds = 240 }
fn tasks_that_lived_between_two_looks_are_in_the_capsule() {
    let _module = Module::load();
    let folder = Folder::new("lived");
    let capsule = folder.path("x.nsprobe");
    let record = record_tasks(&capsule);
    let inner = "for i in 1 2 3 4 5 6 7 8; do grep NSpid: /proc/self/status; done; exit 7";
    let mut told: Vec<Vec<u64>> = Vec::new();
    let mut started = Vec::new();
    for _ in 0..3 {
        let line = format!("{THREE_DEEP} '{inner}'");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).stdout(Stdio::piped());
        let child = shell.spawn().expect("sh is in the guest");
        started.push(u64::from(child.id()));
        let output = child.wait_with_output().expect("ours");
        assert_eq!(output.status.code(), Some(7));
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers = |line: &str| {
            let words = line.split_whitespace().skip(1);
            words.map(|word| word.parse().expect("a number")).collect()
        };
        told.extend(text.lines().map(numbers));
    }
    assert_eq!(told.len(), 24);
    assert!(told.iter().all(|levels| levels.len() == 4), "{told:?}");
    let (code, errors) = record.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    let (info, code) = info(&capsule);
    assert_eq!(code, 0);
    let totals = &info["summary"]["tasks"];
    for kind in ["fork", "exec", "exit"] {
        let of = |key: &str| number(&totals[kind][key]);
        assert_eq!(
            of("seen"),
            of("recorded") + of("filtered") + of("lost"),
            "{totals}"
        );
        assert_eq!(of("lost"), 0, "{totals}");
    }
    let tree = info["tree"].as_array().expect("a tree");
    let tasks: Vec<&Value> = tree
        .iter()
        .flat_map(|namespace| namespace["tasks"].as_array().expect("tasks"))
        .collect();
    let tids = |task: &Value| -> Vec<u64> {
        let levels = task["levels"].as_array().expect("levels");
        levels.iter().map(|level| number(&level["tid"])).collect()
    };
    for levels in &told {
        let fits = tasks.iter().filter(|task| tids(task) == *levels);
        let fits: Vec<_> = fits.collect();
        assert_eq!(fits.len(), 1, "{levels:?}: {fits:?}");
        assert_eq!(fits[0]["comm"], "grep");
        assert_eq!(fits[0]["ended"]["how"], "exit", "{}", fits[0]);
        assert_eq!(fits[0]["ended"]["code"], 0, "{}", fits[0]);
    }
    for pid in started {
        let fits = tasks.iter().find(|task| task["pid"] == pid);
        let task = fits.unwrap_or_else(|| panic!("{pid} is not there"));
        assert_eq!(task["ended"]["code"], 7 << 8, "{task}");
    }
}

test! { full, a_container_that_is_gone_is_named_by_the_capsule, seconds = 240 }
fn a_container_that_is_gone_is_named_by_the_capsule() {
    let module = Module::load();
    let root = Root::with("served", PROGRAM);
    let folder = Folder::new("gone");
    let (one, all) = (folder.path("one.nsprobe"), folder.path("all.nsprobe"));
    let first = Container::over("first", &root.folder, &[PROGRAM]);
    let spec = format!("{PROGRAM}:real_function");
    let record = [
        "record", "-o", &one, "-c", "first", "-n", "5", "-t", "30", &spec,
    ];
    command::run(&record).succeeded();
    // The whole machine: containers that come and go while it is recorded.
    let spec = format!("{}{PROGRAM}:real_function", root.folder.display());
    let record = Running::start(&["record", "-o", &all, "-t", "60", &spec]);
    let watcher = Session::open();
    assert!(within(Duration::from_secs(20), || watcher.info().probes == 1));
    drop(watcher);
    let later = Container::over("later", &root.folder, &[PROGRAM]);
    sleep(Duration::from_secs(3));
    let inums = [&first, &later].map(|one| pid_namespace(one.pid()));
    later.remove().expect("it is removable");
    first.remove().expect("it is removable");
    let (code, errors) = record.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    drop(module);

    let script = command::run(&["script", "--json", &one]).succeeded();
    let printed = lines(&script.stdout);
    let printed = hits(&printed);
    assert_eq!(printed.len(), 5);
    assert!(
        printed.iter().all(|hit| hit["container"] == "first"),
        "{printed:?}"
    );

    let script = command::run(&["script", "--json", &all]).succeeded();
    let printed = lines(&script.stdout);
    for hit in hits(&printed) {
        let name = if hit["pid_namespace"] == inums[0] {
            "first"
        } else {
            "later"
        };
        assert_eq!(hit["container"], name, "{hit}");
    }
    let report = command::run(&["report", "--by", "container", &all]).succeeded();
    for name in ["first", "later"] {
        assert!(
            report.lines().any(|line| line.ends_with(name)),
            "{report:#?}"
        );
    }
    let (info, _) = info(&all);
    let tree = info["tree"].as_array().expect("a tree");
    for (inum, name) in inums.iter().zip(["first", "later"]) {
        let found = tree.iter().find(|one| one["pid_namespace"] == *inum);
        let found = found.unwrap_or_else(|| panic!("no {inum}"));
        assert_eq!(found["container"], name, "{found}");
    }
}
