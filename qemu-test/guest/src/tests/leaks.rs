// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `nsprobe leak` shows the blocks that a program has not freed, by the stack that
//! allocated them, as the program itself counts them, and no others.

use crate::command::{self, Output, Running};
use crate::module::Module;
use crate::oracle::SOON;
use crate::victim::{self, Victim};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Debian's jemalloc.
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// Blocks and bytes, by the function that leaks them.
type Sums = BTreeMap<String, (u64, u64)>;

/// What the program says that it leaks: `truth FUNCTION BLOCKS BYTES`.
fn truth(output: &Output) -> Sums {
    let mut sums = Sums::new();
    for line in output
        .lines()
        .filter_map(|line| line.strip_prefix("truth "))
    {
        let mut words = line.split(' ');
        let function = words.next().expect("a function");
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let sum = sums.entry(function.to_owned()).or_default();
        sum.0 += number().expect("blocks");
        sum.1 += number().expect("bytes");
    }
    assert!(!sums.is_empty(), "{output:#?}");
    sums
}

/// The functions of a row's stack, without parameters.
fn functions(row: &Value) -> Vec<&str> {
    let frames = row["stack"].as_array().expect("a stack").iter();
    let functions = frames.flat_map(|frame| frame["functions"].as_array().expect("a list"));
    let names = functions.filter_map(|one| one["name"].as_str());
    names
        .map(|name| name.split('(').next().unwrap_or(name))
        .collect()
}

/// The rows of the last look.
fn rows(output: &Output) -> Vec<Value> {
    let lines = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["type"] == "leak" && line["of"] == "total")
        .collect()
}

/// Adds a row to the function that leaks it, if there is one on its stack.
fn add(sums: &mut Sums, row: &Value) -> bool {
    let names = functions(row);
    let leaks = names.iter().find(|name| name.starts_with("leak_"));
    if let Some(function) = leaks {
        let number = |key: &str| row[key].as_u64().expect("a number");
        let sum = sums.entry((*function).to_owned()).or_default();
        sum.0 += number("blocks");
        sum.1 += number("bytes");
    }
    leaks.is_some()
}

/// What is shown to be leaked by the functions of a program; all else must be the libraries'.
fn shown(output: &Output, program: &str) -> Sums {
    let mut sums = Sums::new();
    for row in rows(output) {
        assert_eq!(row["stack_end"], "outermost", "{row:#}");
        if !add(&mut sums, &row) {
            let frames = row["stack"].as_array().expect("a stack");
            let is_own = |frame: &Value| frame["path"].as_str() == Some(program);
            let is_of_thread = functions(&row).contains(&"pthread_create");
            assert!(is_of_thread || !frames.iter().any(is_own), "{row:#}");
        }
    }
    sums
}

test! { core, leaks_are_those_that_programs_count_themselves, seconds = 120 }
fn leaks_are_those_that_programs_count_themselves() {
    let _module = Module::load();
    for (name, ways, preload, allocator) in [
        ("leaks", &["all"][..], "", "allocator: libc.so.6\n"),
        (
            "leaks",
            &["plain"],
            JEMALLOC,
            "allocator: libjemalloc.so.2, libc.so.6\n",
        ),
        ("leaks_containers", &[], "", "allocator: libc.so.6\n"),
    ] {
        let program = victim::path(name);
        let program = program.to_str().expect("a plain name");
        let words = ["leak", "--json", "--top", "1000", "--", program];
        let mut command = command::nsprobe(&[&words[..], ways].concat());
        if !preload.is_empty() {
            command.env("LD_PRELOAD", preload);
        }
        let output = command::output(&mut command).succeeded();
        println!("{}", output.stderr);
        assert_eq!(shown(&output, program), truth(&output), "{name} {preload}");
        assert!(output.stderr.contains(allocator), "{}", output.stderr);
        assert!(
            !output.stderr.contains("left by a jump"),
            "{}",
            output.stderr
        );
    }
}

/// The sums of the first look at which as many blocks are allocated.
fn look(running: &mut Running, blocks: u64) -> Value {
    let part = format!("\"blocks\":{blocks},\"bytes_more\"");
    let line = running.wait_for(&part, SOON);
    serde_json::from_str(&line).expect("JSON")
}

/// `nsprobe leak` of a victim, once it has printed its first look.
fn leak_of(victim: &Victim, words: &[&str]) -> Running {
    let pid = victim.pid().to_string();
    let all = ["leak", "--json", "-i", "0.3", "-p", &pid];
    let mut running = Running::start(&[&all[..], words].concat());
    running.wait_for("\"allocated\"", SOON);
    running
}

test! { core, leaks_of_a_running_process_grow_and_shrink }
fn leaks_of_a_running_process_grow_and_shrink() {
    let _module = Module::load();
    let mut victim = Victim::start("leaks", &["orders"]);
    victim.call(10);
    let mut all = leak_of(&victim, &[]);
    victim.call(20);
    let first = look(&mut all, 20);
    assert_eq!(
        (&first["bytes"], &first["unknown_frees"]),
        (&2000.into(), &0.into())
    );
    // Five are older than the trace.
    victim.order("-25");
    let second = look(&mut all, 0);
    assert_eq!(second["unknown_frees"], 5);
    victim.call(3000);
    let third = look(&mut all, 3000);
    assert_eq!(
        (&third["ended_blocks"], &third["turned_away"]),
        (&0.into(), &0.into())
    );
}

test! { full, leaks_of_other_allocators_are_asked_for_or_said }
fn leaks_of_other_allocators_are_asked_for_or_said() {
    let _module = Module::load();
    let path = |name| victim::path(name).display().to_string();
    let (glibc, musl) = (path("leaks"), path("leaks_musl"));
    let own = ["--alloc", "libc.so.6:malloc", "--free", "libc.so.6:free"];
    let words = ["leak", "--json", "--", &*glibc, "plain"];
    let output = command::run(&[&words[..2], &own, &words[2..]].concat()).succeeded();
    let (shown, truth) = (shown(&output, &glibc), truth(&output));
    assert_eq!(shown["leak_malloc"], truth["leak_malloc"]);
    assert!(!shown.contains_key("leak_calloc"), "{shown:?}");

    let later = format!("exec env LD_PRELOAD={JEMALLOC} sleep 1000");
    let traced = format!("exec {} leak -- sh -c '{later}' 2>&1", command::FILE);
    let mut running = Running::start_command(Command::new("sh").args(["-c", &traced]));
    let note = "libjemalloc.so.2 mapped, which had not been found at the start";
    running.wait_for(note, SOON);
    running.interrupt();

    // Functions of musl are hidden, without symbols and unwind rows. The interpreter that its program
    // names lies where a server answers.
    let loader = path("ld-musl-x86_64.so.1");
    let output = command::run(&["leak", "--json", "--", &*loader, &*musl, "plain"]).succeeded();
    let (mut shown, mut truth) = (Sums::new(), self::truth(&output));
    let others = rows(&output)
        .iter()
        .filter(|row| !add(&mut shown, row))
        .count();
    // Nothing leads from its strdup to its caller.
    assert!(truth.remove("leak_strdup").is_some());
    assert_eq!((shown, others), (truth, 1));
    assert!(output.stderr.contains("allocator: ld-musl-x86_64.so.1\n"));

    // The calloc of musl calls malloc, which draws, too; that of glibc ends in memset.
    for program in [&[&*loader, &*musl][..], &[&*glibc]] {
        let words = ["leak", "--json", "--sample", "2K", "--"];
        let output = command::run(&[&words, program, &["plain"]].concat()).succeeded();
        let rows = rows(&output);
        let is_calloc = |name: &&str| ["calloc", "__libc_calloc"].contains(name);
        let calls = |row: &Value, at: usize| functions(row).get(at).is_some_and(is_calloc);
        assert!(rows.iter().any(|row| calls(row, 0)), "{rows:#?}");
        assert!(!rows.iter().any(|row| calls(row, 1)), "{rows:#?}");
        let errors = &output.stderr;
        assert!(!errors.contains("left by a jump"), "{errors}");
    }
}

test! { full, leaks_are_counted_or_estimated_where_not_all_blocks_are_kept }
fn leaks_are_counted_or_estimated_where_not_all_blocks_are_kept() {
    let _module = Module::load();
    let mut victim = Victim::start("leaks", &["orders"]);
    // A table of few rows has room for few blocks, and says for how many not.
    let mut few = leak_of(&victim, &["--rows", "1"]);
    victim.call(100);
    // The last row of a set of eight is not for the container that has the other seven.
    let full = look(&mut few, 7);
    assert_eq!(
        (&full["bytes"], &full["turned_away"]),
        (&700.into(), &93.into())
    );
    drop(few);

    // By samples, all of them are estimated, with a standard error that is said.
    let mut sampled = leak_of(&victim, &["--sample", "1K"]);
    victim.call(2000);
    let about = loop {
        let line = sampled.wait_for("\"allocated\"", SOON);
        let about: Value = serde_json::from_str(&line).expect("JSON");
        if about["blocks"] != 0 && about["blocks_more"] == 0 {
            break about;
        }
    };
    let number = |key: &str| about[key].as_f64().expect("a number");
    let (blocks, error) = (number("blocks"), number("blocks_error"));
    println!("about {blocks} of 2000, ±{error}");
    assert!((blocks - 2000.0).abs() < 2.5 * error, "{about}");
}
