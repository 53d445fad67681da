// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: returns are seen without harm to the program, in whatever way its functions are left,
//! with the values of their own calls.

use crate::command::{self, Output};
use crate::figures;
use crate::module::Module;
use crate::victim;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// What a program says of a function: its calls, those that returned, and those that left by a
/// jump to a place that is computed.
type Calls = [u64; 3];

/// What is printed by a victim as "WAY CALLED RETURNED LEFT".
fn told(text: &str) -> BTreeMap<String, Calls> {
    let numbers = |line: &str| {
        let mut words = line.split(' ');
        let way = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        Some((way, numbers.try_into().ok()?))
    };
    text.lines().filter_map(numbers).collect()
}

/// The way that a function of `leaves` is left by.
fn way_of(function: &str) -> &str {
    let way = function.strip_prefix("via_").expect("one of those");
    let several = ["flags", "flood"];
    let one = several.iter().find(|one| way.starts_with(**one));
    one.unwrap_or(&way)
}

fn objects(got: &Output) -> Vec<Value> {
    let lines = got.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// What a victim says when nobody looks.
fn untraced(command: &[&str]) -> BTreeMap<String, Calls> {
    let (program, words) = command.split_first().expect("a program");
    let out = Command::new(program).args(words).output().expect("it runs");
    assert!(out.status.success(), "{out:?}");
    told(&String::from_utf8(out.stdout).expect("text"))
}

test! { core, every_way_out_of_a_function_is_seen, module, cpus = 2 }
/// Exceptions, longjmp, cancelled threads, other stacks, other threads, jumps to other functions,
/// recursion, programs and processes that end inside of a call: the program does what it does
/// untraced, and each return comes with the value and the argument of its own call.
fn every_way_out_of_a_function_is_seen() {
    let _module = Module::load();
    let path = victim::path("leaves").display().to_string();
    let calls = (1000 / figures::parts(5)).to_string();
    let command = [&*path, "all", &calls];
    let wanted = untraced(&command);
    assert_eq!(wanted.len(), 20);
    let spec = format!("{path}:via_*(n=arg1, tripled=entry(arg1 * 3), $retval)");
    let words = [
        "trace",
        "--json",
        "--children",
        "--ring-size",
        "4M",
        &spec,
        "--",
    ];
    let got = command::run(&[&words[..], &command].concat()).succeeded();
    let objects = objects(&got);
    assert_eq!(told(&got.stdout), wanted, "{}", got.stderr);
    let mut seen: BTreeMap<String, Calls> = BTreeMap::new();
    for hit in objects.iter().filter(|line| line["type"] == "hit") {
        let function = hit["function"].as_str().expect("a name");
        let way = way_of(function);
        let fields = &hit["fields"];
        let [n, tripled, retval] = ["n", "tripled", "$retval"].map(|name| fields[name].as_u64());
        let n = n.expect("a number");
        assert_eq!((tripled, retval), (Some(n * 3), Some(n + 1)), "{hit}");
        assert!(hit["elapsed_ns"].as_u64() > Some(0), "{hit}");
        seen.entry(way.to_owned()).or_default()[1] += 1;
    }
    let summary = objects.last().expect("the last line");
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(summary["lost_full"], 0, "{summary}");
    for probe in summary["probes"].as_array().expect("an array") {
        let function = probe["function"].as_str().expect("a name");
        let way = way_of(function);
        let [recorded, unreturned, left] =
            ["recorded", "unreturned", "left_by_jump"].map(|name| probe[name].as_u64());
        let seen = seen.entry(way.to_owned()).or_default();
        seen[0] += recorded.zip(unreturned).map_or(0, |(a, b)| a + b) + left.unwrap_or(0);
        seen[2] += left.unwrap_or(0);
    }
    assert_eq!(seen, wanted);
}

test! { full, hundreds_of_processes_end_inside_of_calls, module, cpus = 2, seconds = 170 }
fn hundreds_of_processes_end_inside_of_calls() {
    let _module = Module::load();
    let path = victim::path("leaves").display().to_string();
    for way in ["exec", "exit", "vfork"] {
        let spec = format!("{path}:via_{way}%return(n=arg1, $retval)");
        let command = [&*path, way, "10000"];
        let words = ["trace", "--json", "--children", &spec, "--"];
        let got = command::run(&[&words[..], &command].concat()).succeeded();
        let [began, returned, _] = told(&got.stdout)[way];
        assert!(began >= 200, "{way}: {began}");
        let summary = objects(&got).pop().expect("the last line");
        let seen = ["recorded", "unreturned"].map(|name| summary[name].as_u64());
        assert_eq!(
            seen,
            [Some(returned), Some(began - returned)],
            "{way}: {summary}"
        );
    }
}

test! { core, what_would_harm_a_program_is_refused, module }
fn what_would_harm_a_program_is_refused() {
    let _module = Module::load();
    let path = |name| victim::path(name).display().to_string();
    let (leaves, go) = (path("leaves"), path("service"));
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let refused = |words: &[&str], spec: &str, part: &str| {
        let all = [words, &[spec]].concat();
        command::run(&all).refused(&[part]);
    };
    let spec = |file: &str, place: &str| format!("{file}:{place}");
    let deep = spec(&leaves, "via_deep");
    refused(
        &["hist", "--return", "uretprobe"],
        &deep,
        "--force allows return probes",
    );
    refused(
        &["hist", "--return", "uretprobe", "--force"],
        &spec(&go, "main.split"),
        "is a Go program",
    );
    refused(&["trace"], &spec(&go, "main.split(head)"), "is a result");
    // It leads from assembly language to the function.
    let by_stack = spec(&go, "runtime.newproc.abi0%return");
    refused(&["trace"], &by_stack, "assembly language");
    refused(
        &["trace"],
        &spec(libc, "abort($retval)"),
        "no instruction by which it returns",
    );
    refused(
        &["count"],
        &spec(&leaves, "via_tail+0x1"),
        "in the middle of an instruction",
    );
    refused(&["count"], &spec(libc, "0x40"), "not in code");
}

test! { core, exits_are_one_function_to_the_user, module }
/// Keys, conditions that the entry decides, several values of the entry, and times, of a function
/// with several exits that calls itself.
fn exits_are_one_function_to_the_user() {
    let _module = Module::load();
    let path = victim::path("leaves").display().to_string();
    let spec = format!("{path}:via_deep if arg1 % 100 > 49 && $retval % 4 < 2");
    let by = "func,odd=$retval & 1,low=entry(arg1) % 2";
    let words = [
        "hist", "--json", "--by", by, &spec, "--", &path, "deep", "1000",
    ];
    let got = command::run(&words).succeeded();
    let objects = objects(&got);
    let number = |value: &Value| value.as_u64().expect("a number");
    let row = |row: &Value| {
        let key = &row["key"];
        [&key["odd"], &key["low"], &row["count"]].map(number)
    };
    let rows = objects.iter().filter(|line| line["of"] == "total");
    let mut rows: Vec<[u64; 3]> = rows.map(row).collect();
    rows.sort_unstable();
    assert_eq!(rows, [[0, 1, 130], [1, 0, 120]]);
    let summary = objects.last().expect("the last line");
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(summary["hits"], 1000, "{summary}");
    assert_eq!(summary["rejected"], 750, "{summary}");
    assert_eq!(
        summary["probes"].as_array().map(Vec::len),
        Some(1),
        "{summary}"
    );
}

test! { core, a_panic_passes_a_traced_function, module }
fn a_panic_passes_a_traced_function() {
    let _module = Module::load();
    let path = victim::path("panics").display().to_string();
    let spec = format!("{path}:*::passed");
    let got = command::run(&[
        "count",
        "--json",
        &format!("{spec}%return"),
        "--",
        &path,
        "panic",
        "50",
    ]);
    let got = got.succeeded();
    let said = |name: &str| {
        let number = got.lines().find_map(|line| line.strip_prefix(name));
        number.and_then(|number| number.parse().ok())
    };
    assert_eq!((said("called "), said("returned ")), (Some(100), Some(50)));
    let summary = objects(&got).pop().expect("the last line");
    assert_eq!(
        summary["aggregated"].as_u64(),
        said("returned "),
        "{summary}"
    );
}
