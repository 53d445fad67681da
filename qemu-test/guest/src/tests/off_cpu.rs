// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a thread waits for, where and how long, is what its own clock says; and each wait
//! is accounted for.

use crate::command::{self, Output, Running};
use crate::container::Root;
use crate::figures;
use crate::group::Group;
use crate::module::Module;
use crate::oracle::SOON;
use crate::runtimes::Bundle;
use crate::session::{probe_at, Session};
use crate::victim;
use nsprobe_common::abi::{self, Probe, Refusal};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// What a wait may differ from what the victim's clocks say.
const SLACK_NS: u64 = 1_000_000;

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

/// The functions in the stack of a row, the innermost first.
fn functions(row: &Value) -> Vec<&str> {
    functions_of(&row["stack"])
}

fn functions_of(stack: &Value) -> Vec<&str> {
    let frames = stack.as_array().expect("a stack");
    let functions = frames
        .iter()
        .flat_map(|frame| frame["functions"].as_array().expect("a list"));
    functions
        .filter_map(|function| function["name"].as_str())
        .collect()
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
        "--kernel-stack",
        "--by",
        "kind,syscall,could_run=$runnable > 0",
        "--json",
        "--",
        &victim,
        &folder,
    ])
    .succeeded();
    println!("{}", output.stderr);
    let (rows, summary) = parsed(&output);
    assert_eq!(summary["unfinished"], Value::Null, "{summary}");
    // The kernel's frames begin with what has called the scheduler.
    let in_scheduler = |row: &Value| {
        let all = functions(row);
        all.contains(&"schedule") || all.contains(&"__schedule")
    };
    assert!(!rows.iter().any(in_scheduler));
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
        let in_it = rows
            .iter()
            .filter(|row| functions(row).contains(&function.as_str()));
        // What is over may still have to wait for a CPU.
        let (of_it, for_cpu): (Vec<&Value>, Vec<&Value>) = in_it
            .filter(|row| row["key"]["kind"] == kind || row["key"]["kind"] == "cpu")
            .partition(|row| row["key"]["kind"] == kind);
        let sum = |rows: &[&Value], of: &str| -> u64 {
            let numbers = rows.iter().map(|row| row[of].as_u64());
            numbers.map(|number| number.expect("a number")).sum()
        };
        let waits = sum(&of_it, "count");
        let (ns, cpu_ns) = (sum(&of_it, "sum"), sum(&for_cpu, "sum"));
        println!("{name}: {waits} waits, {ns} ns + {cpu_ns} ns for a CPU; by its own clock {count}, {own_ns} ns");
        let slack = own_ns * 3 / 100 + SLACK_NS * waits.max(count);
        match name {
            "cpu" => assert!(
                of_it.iter().all(|row| row["key"]["could_run"] == true),
                "{of_it:#?}"
            ),
            "sleep" => assert!(of_it.iter().all(|row| functions(row)[0] == "do_nanosleep")),
            _ => {}
        }
        match name {
            // It waits while it writes, too.
            "file" => assert!(ns + cpu_ns + slack >= own_ns && waits > 0, "{name}"),
            // What the function waits for a CPU may be before and after. On a loaded machine what
            // it waits for may be there already.
            _ => assert!(
                (ns.saturating_sub(slack)..=ns + cpu_ns + slack).contains(&own_ns) && waits > 0,
                "{name}"
            ),
        }
        seen.push(name);
    }
    assert_eq!(
        seen,
        ["sleep", "pipe", "socket", "poll", "lock", "file", "child", "stopped", "cpu", "quota"]
    );
}

test! { core, waits_of_containers_have_the_stacks_of_their_wakers, cpus = 2, seconds = 100 }
/// One waits for another, which waits for a third, and none keeps frame pointers.
fn waits_of_containers_have_the_stacks_of_their_wakers() {
    const PROGRAM: &str = "/relay";
    let _module = Module::load();
    let root = Root::called("relay", "relay", PROGRAM);
    let relays = ["a", "b", "c"].map(|role| {
        let command = [PROGRAM, role, "/tmp"];
        Bundle::with("crun", &format!("relay-{role}"), &root.folder, &command)
    });
    let picture = "/var/tmp/relay.folded";
    let words = [
        "profile",
        "--off-cpu",
        "--wakers",
        "-c",
        "relay-?",
        "-t",
        "1",
    ];
    let output = [
        "--follow",
        "--by",
        "container,kind",
        "--json",
        "-o",
        picture,
    ];
    let output = command::run(&[&words[..], &output].concat()).succeeded();
    println!("{}", output.stderr);
    let (rows, _) = parsed(&output);
    let folded = fs::read_to_string(picture).expect("a picture");
    println!("{folded}");
    for (container, kind, waits_in, waker, wakes_in) in [
        (
            "relay-a",
            "pipe",
            "take_work",
            "relay in relay-b",
            "pass_on",
        ),
        (
            "relay-b",
            "socket",
            "await_order",
            "relay in relay-c",
            "send_order",
        ),
        ("relay-c", "sleep", "make_order", "timer", ""),
    ] {
        let of_it = |row: &&Value| {
            row["key"]["container"] == container
                && row["key"]["kind"] == kind
                && row["count"].as_u64() > Some(5)
        };
        let of_it: Vec<&Value> = rows.iter().filter(of_it).collect();
        let [row] = of_it[..] else {
            panic!("{container}: {rows:#?}");
        };
        assert_eq!(row["key"]["waker"], waker, "{row:#}");
        assert!(functions(row).contains(&waits_in), "{row:#}");
        let is_whole = |end: &Value| *end == "outermost" || end.is_null();
        assert!(
            is_whole(&row["stack_end"]) && is_whole(&row["waker_stack_end"]),
            "{row:#}"
        );
        let mut parts = vec![container, kind, "main", waits_in, "woken by"];
        if !wakes_in.is_empty() {
            let stack = functions_of(&row["waker_stack"]);
            assert!(
                stack.contains(&wakes_in) && stack.contains(&"main"),
                "{row:#}"
            );
            parts.extend([waker, wakes_in, "main"]);
        }
        let has_all = |line: &&str| {
            let mut rest = *line;
            parts.iter().all(|part| match rest.split_once(part) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
        };
        assert!(
            folded.lines().any(|line| has_all(&line)),
            "{parts:?} in {folded}"
        );
    }
    drop(relays);
    fs::remove_file(picture).expect("it is there");
}

test! { core, holders_of_locks_are_the_right_ones_or_unknown, cpus = 2 }
/// Also where a lock of another kind has the number of a thread in the place of an owner.
fn holders_of_locks_are_the_right_ones_or_unknown() {
    let _module = Module::load();
    let victim = victim::path("contends").display().to_string();
    let output = command::run(&["lock", "--json", "--", &victim]).succeeded();
    println!("{}", output.stderr);
    let (rows, _) = parsed(&output);
    let mutexes = 100 + 4 * 10;
    let mut of_holders = [0, 0];
    let (mut rwlocks, mut decoys) = (0, 0);
    for row in &rows {
        let count = row["count"].as_u64().expect("a number");
        let (key, stack) = (&row["key"], functions(row));
        let holder = key["holder"].as_str().expect("a name");
        let names = [("alice/", "hold_as_alice"), ("bob/", "hold_as_bob")];
        match () {
            _ if stack.contains(&"wait_for_mutex") => {
                let at = names.iter().position(|(name, _)| holder.starts_with(name));
                let at = at.unwrap_or_else(|| panic!("{row:#}"));
                let releases = functions_of(&row["holder_stack"]);
                assert!(releases.contains(&names[at].1), "{row:#}");
                assert_eq!(key["kind"], "mutex");
                let lock = key["lock"].as_str().expect("a name");
                assert!(lock.starts_with("mutexes"), "{row:#}");
                of_holders[at] += count;
            }
            _ if stack.contains(&"wait_for_rwlock") => {
                assert_eq!((holder, &key["kind"]), ("-", &Value::from("rwlock")));
                assert!(
                    functions_of(&row["waker_stack"]).contains(&"hold_others"),
                    "{row:#}"
                );
                rwlocks += count;
            }
            _ if stack.contains(&"wait_for_decoy") => {
                let lock = key["lock"].as_str().expect("a name");
                assert!(lock.starts_with("decoy (contends+0x"), "{row:#}");
                assert_eq!(holder, "-");
                assert!(
                    functions_of(&row["waker_stack"]).contains(&"hold_others"),
                    "{row:#}"
                );
                decoys += count;
            }
            _ => {}
        }
    }
    assert_eq!((of_holders, rwlocks, decoys), ([mutexes / 2; 2], 4, 4));
}

/// Threads that sleep, most of the time, in the full run.
const HERD: u64 = 1000;

test! { core, no_wait_is_lost_and_no_sleeper_keeps_the_module, module, cpus = 2 }
/// Whatever tasks do meanwhile: they start and end, are traced, stopped, frozen, interrupted, and lose
/// their CPU.
fn no_wait_is_lost_and_no_sleeper_keeps_the_module() {
    const CPU: &str = "/sys/devices/system/cpu/cpu1/online";
    let module = Module::load();
    let sleepers = HERD / figures::parts(4) as u64;
    let group = Group::new("herd");
    let mut command = group.command(&victim::path("waiter"));
    let mut herd = Running::start_command(command.args(["herd", &sleepers.to_string()]));
    herd.wait_for("ready", SOON);
    let session = Session::with_rings(1 << 16);
    let flags = abi::PROBE_STACK | abi::PROBE_COPIES | abi::PROBE_LATE | abi::PROBE_KERNEL_STACK;
    let waits = Probe {
        fd: -1,
        kind: abi::PROBE_WAIT,
        ..probe_at(0, flags)
    };
    let mut wakes = [Probe {
        kind: abi::PROBE_WAKE,
        ..waits
    }];
    let attached = session.attach_all(&mut wakes);
    attached.expect("wake-ups are hits");
    let [wakes] = wakes;
    let mut attached = [waits];
    session
        .attach_all(&mut attached)
        .expect("waits are followed");
    let late = Probe {
        kind: abi::PROBE_WAKE,
        ..waits
    };
    let (_, reply) = session.attach_all(&mut [late]).expect_err("one is enough");
    assert_eq!(reply.reason, Refusal::Twice as u32);
    // Another one, for which all waits are too short.
    let patient = Session::with_rings(1 << 12);
    let mut below = [Probe {
        offset: 3_600_000_000_000,
        ..waits
    }];
    patient
        .attach_all(&mut below)
        .expect("waits are followed twice");
    let [below] = below;
    let (_, reply) = session.attach_all(&mut [waits]).expect_err("one is enough");
    assert_eq!(reply.reason, Refusal::Twice as u32);
    let script = "\"$0\" 2 20 20 >/dev/null; \
        strace -f -o /dev/null sh -c 'for n in 1 2 3; do /bin/true; done'; \
        awk 'BEGIN { for (n = 0; n < 5; n++) system(\"true\") }'; \
        echo 1 >\"$1/cgroup.freeze\"; until grep -q 'frozen 1' \"$1/cgroup.events\"; do :; done; \
        echo 0 >\"$1/cgroup.freeze\"; \
        kill -STOP $2; until grep -q '^State:.T' /proc/$2/status; do :; done; kill -CONT $2";
    fs::write(CPU, "0").expect("a CPU goes");
    let storm = Command::new("sh")
        .args(["-c", script])
        .arg(victim::path("task_storm"))
        .args([&group.folder.display().to_string(), &herd.pid().to_string()])
        .status();
    fs::write(CPU, "1").expect("a CPU comes");
    assert!(storm.expect("there is a shell").success());
    session.detach(&[attached[0].id]).expect("it is attached");
    let counters = session.counters(attached[0].id);
    println!("{counters:?}");
    assert_eq!((counters.no_row, counters.processes_failed), (0, 0));
    assert!(
        counters.unfinished >= sleepers / 2 && counters.recorded + counters.lost_full > sleepers,
        "{counters:?}"
    );
    // Of those that may be missed: they end, or start a program.
    assert!(counters.missed < counters.hits / 10, "{counters:?}");
    // Each is in one outcome.
    session.detach(&[wakes.id]).expect("it is attached");
    let counters = session.counters(wakes.id);
    println!("{counters:?}");
    let outcomes = [
        counters.recorded,
        counters.lost_full,
        counters.missed,
        counters.limited,
    ];
    assert_eq!(outcomes.iter().sum::<u64>(), counters.hits, "{counters:?}");
    assert!(counters.recorded + counters.lost_full > 100, "{counters:?}");
    patient.detach(&[below.id]).expect("it is attached");
    let counters = patient.counters(below.id);
    assert!(
        counters.below >= sleepers && counters.below_ns > 0,
        "{counters:?}"
    );
    assert_eq!(
        (counters.recorded, counters.lost_full, counters.missed),
        (0, 0, 0)
    );
    drop(patient);
    drop(session);
    module.unload();
}
