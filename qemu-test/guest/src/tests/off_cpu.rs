// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a thread waits for, where and how long, is what its own clock says; and each wait
//! is accounted for.

use crate::command::{self, Output};
use crate::group::Group;
use crate::module::Module;
use crate::victim;
use serde_json::Value;
use std::fs;

/// What a wait may take less than the victim's clock says, which sees the way into the kernel and
/// back, too. A machine that emulates this one takes long for that.
const SLACK_NS: u64 = 4_000_000;

/// The rows of a profile, and its summary.
fn parsed(output: &Output) -> (Vec<Value>, Value) {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    let mut rows: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let summary = rows.pop().expect("a summary");
    assert_eq!(
        (&summary["type"], &summary["balanced"]),
        (&Value::from("summary"), &Value::from(true)),
        "{summary}"
    );
    (rows, summary)
}

/// Whether a function is in the stack of a row.
fn has_function(row: &Value, name: &str) -> bool {
    let frames = row["stack"].as_array().expect("a stack");
    let mut functions = frames
        .iter()
        .flat_map(|frame| frame["functions"].as_array().expect("a list"));
    functions.any(|function| function["name"] == name)
}

test! { core, waits_take_as_long_as_the_waiters_clock_says, cpus = 2 }
fn waits_take_as_long_as_the_waiters_clock_says() {
    let _module = Module::load();
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu").expect("a controller");
    let group = Group::new("waits");
    let (victim, folder) = (victim::path("waiter"), group.folder.display().to_string());
    let victim = victim.display().to_string();
    let output = command::run(&[
        "profile",
        "--off-cpu",
        "--min",
        "0",
        "--by",
        "kind,syscall",
        "--json",
        "--",
        &victim,
        &folder,
    ])
    .succeeded();
    println!("{}", output.stderr);
    let (rows, summary) = parsed(&output);
    assert_eq!(summary["unfinished"], Value::Null, "{summary}");
    let mut seen = Vec::new();
    for line in output.lines().filter(|line| !line.starts_with('{')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, count, own_ns] = words[..] else {
            panic!("{line}");
        };
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let (count, own_ns) = (number(count), number(own_ns));
        let kind = match name {
            "quota" => "cpu",
            name => name,
        };
        let function = format!("wait_{name}");
        let of_it = rows
            .iter()
            .filter(|row| row["key"]["kind"] == kind && has_function(row, &function));
        let of_it: Vec<&Value> = of_it.collect();
        let sum = |of: &str| -> u64 {
            let numbers = of_it.iter().map(|row| row[of].as_u64());
            numbers.map(|number| number.expect("a number")).sum()
        };
        let (waits, ns) = (sum("count"), sum("sum"));
        println!("{name}: {waits} waits, {ns} ns; by its own clock {count}, {own_ns} ns");
        let slack = own_ns * 3 / 100 + SLACK_NS * waits.max(count);
        match name {
            // It also runs meanwhile.
            "file" => assert!(ns <= own_ns && waits > 0, "{name}"),
            _ => assert!(ns.abs_diff(own_ns) <= slack && waits >= count, "{name}"),
        }
        seen.push(name);
    }
    assert_eq!(
        seen,
        ["sleep", "pipe", "socket", "poll", "lock", "file", "child", "stopped", "cpu", "quota"]
    );
}
