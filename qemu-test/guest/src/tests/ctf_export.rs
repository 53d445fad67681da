// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a recording of all tasks has each task in its container, as /proc has it, and so
//! has the trace that is exported of it, as babeltrace2 reads it: in the shape of LTTng's.

use super::capsule::{info, lines, number, Folder};
use super::task_views::LIMIT;
use crate::command::{self, output, Running};
use crate::container::Container;
use crate::module::Module;
use crate::oracle::within;
use crate::tasks::{InProc, Kept};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// What babeltrace2's Python bindings make of a trace.
const READER: &str = include_str!("ctf.py");
/// More than the preamble: the recording has begun, and dumped the tasks.
const BEGUN_BYTES: u64 = 4096;

/// Processes three pid namespaces deep, which say what they are called in each.
const NESTED: &str = "unshare -fp unshare -fp unshare -fp sh -c \
                      'for i in 1 2 3 4 5 6; do grep NSpid: /proc/self/status; done; true'";

/// The numbers of each of these processes, from the outermost namespace on.
fn run_nested() -> Vec<Vec<u64>> {
    let mut shell = Command::new("sh");
    let got = output(shell.args(["-c", NESTED]).stdin(Stdio::null())).succeeded();
    let numbers = |line: &str| {
        let words = line.split_whitespace().skip(1);
        words
            .map(|word| word.parse().expect("a number"))
            .collect::<Vec<u64>>()
    };
    let told: Vec<Vec<u64>> = got.lines().map(numbers).collect();
    assert!(
        told.len() == 6 && told.iter().all(|levels| levels.len() == 4),
        "{told:?}"
    );
    told
}

/// Records all tasks, with what they do; the numbers of some that lived for a moment, and what
/// was said in the end.
fn record(capsule: &str) -> (Vec<Vec<u64>>, String) {
    // It is there before, in two namespaces.
    let nested = ["-fp", "--kill-child", "sleep", "1000"];
    let _nested = Kept::start("unshare", &nested);
    let record = Running::start(&["record", "--all", "-o", capsule, "--ring-size", "8M"]);
    let bytes = || fs::metadata(capsule).map_or(0, |file| file.len());
    assert!(within(LIMIT, || bytes() > BEGUN_BYTES), "{}", bytes());
    let told = run_nested();
    let (code, errors) = record.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    (told, errors)
}

/// Exports, and reads the trace: by babeltrace2, which must not warn but of losses, and by
/// its Python bindings. What these told, and what we did.
fn exported(capsule: &str, trace: &str, shape: &str) -> (Value, String) {
    let words = ["export", "ctf", capsule, trace, "--statedump-shape", shape];
    let told = command::run(&words).succeeded().stderr;
    let printed = output(Command::new("babeltrace2").arg(trace)).succeeded();
    let warnings: Vec<&str> = printed.stderr.lines().collect();
    let is_loss = |line: &&str| line.starts_with("WARNING: Tracer discarded ");
    assert!(warnings.iter().all(is_loss), "{warnings:?}");
    let read = output(Command::new("python3").args(["-c", READER, trace])).succeeded();
    let read: Value = serde_json::from_str(&read.stdout).expect("JSON");
    assert_eq!(printed.lines().count() as u64, number(&read["events"]));
    (read, told)
}

/// Each task as the capsule has it: its innermost namespace and its numbers.
fn tasks_of(info: &Value) -> BTreeSet<Vec<u64>> {
    let tree = info["tree"].as_array().expect("a tree");
    let tasks = tree
        .iter()
        .flat_map(|namespace| namespace["tasks"].as_array().expect("tasks"));
    tasks
        .map(|task| {
            let levels = task["levels"].as_array().expect("levels");
            let own = levels.last().expect("at least one");
            let tids = levels.iter().map(|level| number(&level["tid"]));
            [number(&own["pid_namespace"])]
                .into_iter()
                .chain(tids)
                .collect()
        })
        .collect()
}

test! { full, the_tree_of_containers_is_built_from_a_trace, seconds = 300 }
fn the_tree_of_containers_is_built_from_a_trace() {
    let module = Module::load();
    let folder = Folder::new("ctf");
    let capsule = folder.path("x.nsprobe");
    let names = ["one", "two", "three"];
    let containers = names.map(|name| Container::run(name, &["sleep", "1000"]));
    let in_proc = containers.each_ref().map(|one| {
        let proc = InProc::of(one.pid(), one.pid());
        proc.expect("it lives")
    });
    let (told, said) = record(&capsule);
    assert!(said.contains("recording tasks of all processes"), "{said}");
    assert!(said.contains(" task events = "), "{said}");
    drop((module, containers));
    command::run(&["script", &capsule]).refused(&["no hits", "without a PROBE"]);
    let (info, code) = info(&capsule);
    assert_eq!(code, 0);
    let tree = command::run(&["tree", "--json", "--threads", &capsule]).succeeded();
    assert_eq!(Value::from(lines(&tree.stdout)), info["tree"]);
    for (name, proc) in names.iter().zip(&in_proc) {
        let mut tree = info["tree"].as_array().expect("a tree").iter();
        let its = tree.find(|namespace| namespace["pid_namespace"] == proc.pidns);
        let its = its.expect("it is in the tree");
        assert_eq!(its["container"], *name, "{its}");
        assert_eq!(its["init"]["pid"], proc.pids[0], "{its}");
    }
    for shape in ["old", "new"] {
        let (read, said) = exported(&capsule, &folder.path(shape), shape);
        let (events, discarded) = (number(&read["events"]), number(&read["discarded"]));
        println!("{said}");
        assert!(
            said.starts_with(&format!("nsprobe: {events} events in ")),
            "{said}"
        );
        assert!(
            said.contains(&format!(" {discarded} discarded: ")),
            "{said}"
        );
        let lost: u64 = info["summary"]["tasks"]
            .as_object()
            .expect("tasks are recorded")
            .values()
            .map(|total| number(&total["lost"]))
            .sum();
        assert_eq!(discarded, lost + number(&info["lost_full"]));
        let programs = read["programs"].as_array().expect("programs");
        assert!(programs.contains(&"/usr/bin/grep".into()), "{programs:?}");
        for (name, proc) in names.iter().zip(&in_proc) {
            check_container(&read, shape, name, proc);
        }
        for (kind, event) in [("switch", "sched_switch"), ("exit", "sched_process_exit")] {
            let recorded = number(&info["summary"]["tasks"][kind]["recorded"]);
            assert_eq!(number(&read["counts"][event]), recorded, "{event}");
        }
        let tasks: BTreeSet<Vec<u64>> = read["tasks"]
            .as_array()
            .expect("tasks")
            .iter()
            .map(|task| {
                task.as_array()
                    .expect("numbers")
                    .iter()
                    .map(number)
                    .collect()
            })
            .collect();
        assert_eq!(tasks, tasks_of(&info), "{shape}");
        // Of the tasks that were there at the start, one for each namespace that it is in.
        let states = number(&read["counts"]["lttng_statedump_process_state"]);
        let levels = number(&read["counts"]["lttng_statedump_process_pid_ns"]);
        let dumped = number(&read["dumped"]);
        assert!(0 < dumped && dumped < levels, "{dumped} of {levels}");
        let wanted = if shape == "old" { levels } else { dumped };
        assert_eq!(states, wanted, "{shape}");
        for levels in &told {
            let fits = tasks.iter().filter(|task| task[1..] == levels[..]);
            let fits: Vec<_> = fits.collect();
            assert_eq!(fits.len(), 1, "{levels:?}");
            assert_eq!(depth(&read, fits[0][0]), 4, "{levels:?}");
        }
    }
}

/// The trace has of a container's first process what /proc has, as LTTng would tell it.
fn check_container(read: &Value, shape: &str, name: &str, proc: &InProc) {
    let named = read["containers"].as_array().expect("containers");
    assert!(named.contains(&json!([proc.pidns, name])), "{named:?}");
    assert_eq!(depth(read, proc.pidns.into()), 2);
    let states = read["states"].as_array().expect("states").iter();
    let states: Vec<_> = states.filter(|one| one[0] == proc.tids[0]).collect();
    let state = |inner| json!([proc.tids[0], proc.pids[0], proc.ppid, proc.comm, inner]);
    if shape == "new" {
        return assert_eq!(states, [&state(json!([]))]);
    }
    // Of the two namespaces the inner one first: number, process, parent, level, inode.
    let inner = json!([proc.tids[1], proc.pids[1], 0, 1, proc.pidns]);
    let own = InProc::of(std::process::id(), std::process::id()).expect("we live");
    let outer = json!([proc.tids[0], proc.pids[0], proc.ppid, 0, own.pidns]);
    assert_eq!(states, [&state(inner), &state(outer)]);
}

/// How many pid namespaces there are from that one outwards.
fn depth(read: &Value, inum: u64) -> usize {
    let parents = read["parents"].as_array().expect("namespaces");
    let parent = |inum| {
        let found = parents.iter().find(|pair| number(&pair[0]) == inum);
        number(&found.unwrap_or_else(|| panic!("{inum} is not there"))[1])
    };
    let outwards = std::iter::successors(Some(inum), |inum| match parent(*inum) {
        0 => None,
        outer => Some(outer),
    });
    outwards.count()
}

test! { full, a_trace_without_room_leaves_nothing, seconds = 120 }
fn a_trace_without_room_leaves_nothing() {
    let module = Module::load();
    let folder = Folder::new("ctf-room");
    let capsule = folder.path("x.nsprobe");
    record(&capsule);
    drop(module);
    let full = Folder::with_tmpfs("ctf-full", 64 << 10);
    let trace = full.path("trace");
    let got = command::run(&["export", "ctf", &capsule, &trace]);
    got.refused(&["cannot write", "trace", "No space left on device"]);
    let parent = full.path("");
    let left: Vec<_> = fs::read_dir(&parent).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}
