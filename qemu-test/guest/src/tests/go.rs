// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: calls of Go's functions are seen once each, from their entry to their return, with
//! their own values, while the stacks of goroutines move; and the program does not notice.

use crate::command::{self, Output};
use crate::debug_files::strip;
use crate::module::Module;
use crate::victim;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Goroutines that call.
const WORKERS: u64 = 8;
/// Calls of each of them: a multiple of the five kinds of calls.
const CALLS: u64 = 125;

/// What the victim said of its calls, sorted, and the goroutine of each worker.
#[derive(Debug)]
struct Said {
    calls: Vec<String>,
    goroutines: BTreeMap<String, u64>,
}

fn said_in(stdout: &str) -> Said {
    let of_kind = |kind: &'static str| stdout.lines().filter_map(move |l| l.strip_prefix(kind));
    let mut calls: Vec<String> = of_kind("call ").map(str::to_owned).collect();
    calls.sort();
    let goroutines = of_kind("worker ").map(|line| {
        let (worker, number) = line.split_once(" goroutine ").expect("both");
        (worker.to_owned(), number.parse().expect("a number"))
    });
    let said = Said {
        calls,
        goroutines: goroutines.collect(),
    };
    assert_eq!(said.goroutines.len() as u64, WORKERS, "{stdout}");
    assert!(stdout.ends_with("done\n") || stdout.contains("\ndone\n"));
    said
}

/// What it says when nobody looks.
fn untraced(program: &str) -> Said {
    let calls = CALLS.to_string();
    let out = Command::new(program).arg(&calls).output();
    let out = out.expect("it runs");
    assert!(out.status.success(), "{out:?}");
    said_in(&String::from_utf8(out.stdout).expect("text"))
}

/// Runs a verb on these functions of the victim; gives what that said, and the objects.
fn run(verb: &[&str], program: &str, functions: &[&str]) -> (Said, Vec<Value>, Output) {
    let specs = functions
        .iter()
        .map(|rest| format!("{program}:main.{rest}"));
    let specs: Vec<String> = specs.collect();
    let mut words: Vec<&str> = verb.to_vec();
    words.push("--json");
    words.extend(specs.iter().map(String::as_str));
    let calls = CALLS.to_string();
    let said = program.to_owned() + ".said";
    // Not to the pipe that nsprobe writes to: long writes of both would be mixed.
    let apart = "exec \"$0\" \"$1\" > \"$2\"";
    words.extend(["--", "/bin/sh", "-c", apart, program, &calls, &said]);
    let got = command::run(&words).succeeded();
    let said = fs::read_to_string(said).expect("text");
    let objects = got.lines().filter(|line| line.starts_with('{'));
    let objects = objects.map(|line| serde_json::from_str(line).expect("JSON"));
    let objects: Vec<Value> = objects.collect();
    let summary = objects.last().expect("the last line");
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(summary["lost_full"], 0, "{summary}");
    (said_in(&said), objects, got)
}

/// Asserts that both have the same lines, in whatever order.
fn assert_same(mut seen: Vec<String>, mut expected: Vec<String>) {
    seen.sort();
    expected.sort();
    let pairs = seen.iter().zip(&expected);
    let differ: Vec<_> = pairs.filter(|(seen, expected)| seen != expected).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(seen.len(), expected.len());
}

fn hits(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter(|object| object["type"] == "hit")
}

/// What an interface holds, as Go has it.
fn shown(value: &Value) -> String {
    match value.as_object().and_then(|held| held.iter().next()) {
        Some((name, held)) => format!("{name}({held})"),
        None => value.as_str().expect("nil").to_owned(),
    }
}

/// The elements of a slice of four bytes each, of which 16 are shown: all that the program made,
/// as it made them.
fn elements(value: &Value) -> String {
    let all: Vec<i64> = match value {
        Value::Array(all) => all.iter().filter_map(Value::as_i64).collect(),
        cut => {
            let first = cut["first"].as_array().expect("elements");
            let first: Vec<i64> = first.iter().filter_map(Value::as_i64).collect();
            assert_eq!(first, (0..16).map(|index| -index).collect::<Vec<i64>>());
            (0..cut["len"].as_i64().expect("a number"))
                .map(|index| -index)
                .collect()
        }
    };
    let all: Vec<String> = all.iter().map(i64::to_string).collect();
    format!("[{}]", all.join(" "))
}

/// Asserts that arguments and results that have no register are those of the call.
fn spread(hit: &Value) {
    let field = |name: &str| &hit["fields"][name];
    let n = field("a").as_i64().expect("a number");
    let expected = match hit["return"] == true {
        false => json!({"a": n, "h": n + 7, "pair": [n, -7], "i": 3, "j": -4}),
        true => json!({
            "a": n, "pair": [-7, n], "$retval": n - 4, "$retval10": n + 1,
            "$retval11": n, "$retval12": 3,
        }),
    };
    assert_eq!(hit["fields"], expected, "{hit}");
}

/// Calls that have a return, by the name of the function, and those that have none.
fn counts(objects: &[Value]) -> BTreeMap<&str, (u64, u64)> {
    let summary = objects.last().expect("the last line");
    let probes = summary["probes"].as_array().expect("an array").iter();
    let counts = probes.map(|probe| {
        let number = |name: &str| probe[name].as_u64().expect("a number");
        let name = probe["function"].as_str().expect("a name");
        (name, (number("recorded"), number("unreturned")))
    });
    counts.collect()
}

test! { core, each_call_of_go_has_its_own_values, cpus = 2 }
/// Several results, strings, methods, generic functions, closures, panics that are recovered from,
/// and `runtime.Goexit`.
fn each_call_of_go_has_its_own_values() {
    let _module = Module::load();
    let program = victim::path("service").display().to_string();
    let quiet = untraced(&program);
    let functions = [
        "split%return(text, number, head, count, err, $goid)",
        "(*Server).handle%return(request.name, request.size, values.len, length, ok)",
        "(*Server).handle(number=request.size, first=values[0], fourth=values[3])",
        "(*Server).handle%return(request)",
        "stays%return(now=at[1], number, $retval)",
        "stays(before=at[1], number)",
        "largest[...]%return(number, $retval, $retval2)",
        "split%return(failed=number) if err != nil && number % 2 == 1",
        "makeAdder.func1%return(more, $retval, main.Base)",
        "spread(a, h, pair, i, j)",
        "spread%return(a, pair=$retval2, $retval, $retval10, $retval11, $retval12)",
        "recovers%return(number, result)",
        "describe(what, tags, counts)",
        "leaves%return(number)",
    ];
    let (loud, objects, got) = run(&["trace", "--ring-size", "4M"], &program, &functions);
    assert_eq!(loud.calls, quiet.calls, "{}", got.stderr);
    let (mut seen, mut moved) = (Vec::new(), 0);
    for hit in hits(&objects) {
        let field = |name: &str| &hit["fields"][name];
        let function = hit["function"].as_str().expect("a name");
        seen.push(match function {
            "main.split" if field("failed").is_u64() => format!("failed {}", field("failed")),
            "main.split" => {
                let text = field("text").as_str().expect("a string");
                let (_, worker) = text.split_once("-of-").expect("a worker");
                assert_eq!(field("$goid"), loud.goroutines[worker], "{hit}");
                let [number, head, count] = ["number", "head", "count"].map(field);
                let error = match field("err") {
                    nil if nil == "nil" => "<nil>",
                    error => error["*errors.errorString"].as_str().expect("a text"),
                };
                format!("split {text:?} {number} = {head} {count} {error:?}")
            }
            "main.(*Server).handle" if field("request").is_object() => {
                let members = ["name", "size", "retry"].map(|name| &field("request")[name]);
                let [name, size, retry] = members;
                format!("request {} {size} {retry}", name["len"])
            }
            "main.(*Server).handle" if hit["return"] != true => {
                let number = field("number").as_u64().expect("a number");
                let expected = |index: u64| match index < number % 7 {
                    true => Value::from(number + index),
                    false => Value::Null,
                };
                assert_eq!(
                    (field("first"), field("fourth")),
                    (&expected(0), &expected(3)),
                    "{hit}"
                );
                continue;
            }
            "main.(*Server).handle" => {
                let [name, size] = ["request.name", "request.size"].map(field);
                let [values, length, ok] = ["values.len", "length", "ok"].map(field);
                format!("handle {name} {size} {values} = {length} {ok}")
            }
            "main.makeAdder.func1" => {
                assert_eq!(*field("main.Base"), 1000, "{hit}");
                format!("add {} = {}", field("more"), field("$retval"))
            }
            "main.spread" => {
                spread(hit);
                format!("spread {}", field("a"))
            }
            // What the stack had that was moved is not shown, and nothing in its place.
            "main.stays" if hit["return"] == true => {
                let [now, retval] = ["now", "$retval"].map(field);
                assert!(now.is_null() || now == retval, "{hit}");
                moved += u64::from(now.is_null());
                format!("stays {} {retval}", field("number"))
            }
            "main.stays" => format!("stays {} {}", field("number"), field("before")),
            "main.describe" => {
                let [what, tags, counts] = ["what", "tags", "counts"].map(field);
                format!(
                    "describe {} {} {}",
                    shown(what),
                    tags["len"],
                    elements(counts)
                )
            }
            "main.recovers" => format!("recovers {} = {}", field("number"), field("result")),
            largest => {
                assert!(largest.starts_with("main.largest["), "{hit}");
                let [number, value, at] = ["number", "$retval", "$retval2"].map(field);
                format!("largest {number} = {value} {at}")
            }
        });
    }
    let expected = loud.calls.iter().flat_map(|call| {
        let words: Vec<&str> = call.split(' ').collect();
        match words.as_slice() {
            ["handle", name, size, _, _, _, retry] => {
                let length = name.len() - "\"\"".len();
                vec![call.clone(), format!("request {length} {size} {retry}")]
            }
            ["split", _, number, "=", "\"\"", ..] if number.ends_with('5') => {
                vec![call.clone(), format!("failed {number}")]
            }
            ["stays" | "spread", ..] => vec![call.clone(), call.clone()],
            _ => vec![call.clone()],
        }
    });
    assert_same(seen, expected.collect());
    assert!(moved > 0, "no stack was moved");
    let counts = counts(&objects);
    let all = WORKERS * CALLS;
    assert_eq!(counts["main.leaves"], (0, WORKERS));
    assert_eq!(counts["main.recovers"], (all / 5, 0));
}

test! { core, a_stripped_program_of_go_is_traced_and_counted }
fn a_stripped_program_of_go_is_traced_and_counted() {
    let _module = Module::load();
    let stripped = PathBuf::from(format!("/var/tmp/service-{}", std::process::id()));
    strip(&victim::path("service"), &stripped);
    let program = stripped.display().to_string();
    let listed = command::run(&["list", &program]).succeeded();
    let mut names: Vec<&str> = listed.lines().collect();
    for name in [
        "main.split",
        "main.(*Server).handle",
        "main.makeAdder.func1",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    // A call of one that leads to another of its name would count twice.
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    let functions = [
        "split%return(number=arg3, count=$retval3, $goid)",
        "(*Server).handle%return(size=(s32)arg4, length=$retval)",
    ];
    let (said, objects, _) = run(&["trace", "--ring-size", "4M"], &program, &functions);
    let mut seen: Vec<String> = Vec::new();
    for hit in hits(&objects) {
        let field = |name: &str| hit["fields"][name].as_u64().expect("a number");
        seen.push(match hit["function"].as_str() {
            Some("main.split") => {
                let worker = (field("number") / CALLS).to_string();
                assert_eq!(field("$goid"), said.goroutines[&worker], "{hit}");
                format!("split {} {}", field("number"), field("count"))
            }
            _ => format!("handle {} {}", field("size"), field("length")),
        });
    }
    let expected = said.calls.iter().filter_map(|call| {
        let words: Vec<&str> = call.split(' ').collect();
        match words.as_slice() {
            ["split", _, number, "=", _, count, ..] => Some(format!("split {number} {count}")),
            ["handle", _, size, _, "=", length, _] => Some(format!("handle {size} {length}")),
            _ => None,
        }
    });
    assert_same(seen, expected.collect());
    are_counted(&program);
    fs::remove_file(stripped).expect("it is ours");
}

/// Asserts that calls of the program are counted by goroutine, and by how long they took.
fn are_counted(program: &str) {
    let (said, objects, _) = run(&["count", "--by", "$goid"], program, &["split"]);
    let rows = objects.iter().filter(|object| object["type"] == "row");
    let rows = rows.map(|row| {
        let goid = row["key"]["$goid"].as_u64().expect("a number");
        (goid, row["count"].as_u64().expect("a number"))
    });
    let rows: BTreeMap<u64, u64> = rows.collect();
    let each = said.goroutines.values().map(|goid| (*goid, CALLS * 2 / 5));
    assert_eq!(rows, each.collect());
    let (_, objects, _) = run(&["hist"], program, &["split"]);
    let row = objects.iter().find(|object| object["type"] == "row");
    assert_eq!(row.expect("a row")["count"], WORKERS * CALLS * 2 / 5);
}
