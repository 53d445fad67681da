// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: an exported trace has all that its capsule has, as babeltrace2 reads it; the tree
//! of containers is built from it alone.

use super::capsule::{info, number, path, Folder};
use crate::command::{self, output, Running};
use crate::module::Module;
use crate::tasks::Kept;
use crate::victim::Victim;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// What babeltrace2's Python bindings make of a trace.
const READER: &str = include_str!("ctf.py");
/// Calls of the traced function.
const CALLS: u64 = 50;

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

/// Records calls of a victim, and all tasks meanwhile, with what they do; the numbers of tasks
/// that lived for a moment.
fn record(capsule: &str) -> (u64, Vec<Vec<u64>>) {
    let mut victim = Victim::start("chain", &[]);
    // It is there before, in two namespaces.
    let nested = ["-fp", "--kill-child", "sleep", "1000"];
    let _nested = Kept::start("unshare", &nested);
    let spec = path("chain") + ":bottom(n=arg1)";
    let words = [
        "record",
        "-o",
        capsule,
        "--switches",
        "--wakeups",
        "--stack",
    ];
    let words = [&words[..], &["--ring-size", "8M", &spec]].concat();
    let mut record = Running::start(&words);
    record.attached(1);
    assert_eq!(victim.call(CALLS), CALLS);
    let told = run_nested();
    let (code, errors) = record.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    (victim.pid().into(), told)
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

test! { core, the_tree_of_containers_is_built_from_a_trace, seconds = 300 }
fn the_tree_of_containers_is_built_from_a_trace() {
    let module = Module::load();
    let folder = Folder::new("ctf");
    let capsule = folder.path("x.nsprobe");
    let (victim, told) = record(&capsule);
    drop(module);
    let (info, code) = info(&capsule);
    assert_eq!(code, 0);
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
        let hits = read["hits"].as_array().expect("hits");
        assert_eq!(hits.len() as u64, CALLS);
        assert!(
            hits.iter().all(|hit| hit[0] == victim && hit[2] == "chain"),
            "{hits:?}"
        );
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
