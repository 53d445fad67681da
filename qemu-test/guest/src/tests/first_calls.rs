// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: with --follow, programs in new mount namespaces are traced from their first call on, by
//! waiting for their probes before their first instruction; and no wait is longer than --hold.

use crate::command::{Notes, Running};
use crate::container::{Container, Root};
use crate::module::Module;
use crate::victim;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// The victim's file, by its path in each mount namespace.
const PROGRAM: &str = "/mnt/first_call";
/// What it is given, on a page that nothing has touched before.
const TEXT: &str = "a text that was never read";
/// A limit that no wait reaches on a slow machine.
const HOLD: &str = "10";

/// The objects of a trace that is ended, and their summary.
fn ended((trace, _): (Running, Notes)) -> (Vec<Value>, Value) {
    let (code, lines, _) = trace.finish();
    assert_eq!(code, Some(0));
    let objects = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut objects: Vec<Value> = objects.collect();
    let summary = objects.pop().expect("the last line");
    assert_eq!(summary["balanced"], true, "{summary}");
    (objects, summary)
}

/// What the call with this number is given.
fn fields_of(number: u64) -> Value {
    json!({"text": TEXT, "number": number})
}

test! { core, the_first_string_of_a_program_is_read }
/// Its page is not present, as nothing has read it before.
fn the_first_string_of_a_program_is_read() {
    const PROGRAMS: u64 = 100;
    let _module = Module::load();
    let program = victim::path("first_call").display().to_string();
    let function = format!("{program}:first_call");
    let fields = "(text=arg1:string, number=arg2)";
    let if_it_fits = format!("{function}{fields} if arg1 ~ \"a text that*\"");
    let mut trace = Notes::of(&["trace", "--json", &if_it_fits]);
    trace.0.attached(1);
    let mut count = Running::start(&["count", "--json", "--by", "text=arg1:string", &function]);
    count.attached(2);
    for number in 0..PROGRAMS {
        let mut one = Command::new(&program);
        one.args(["one", &number.to_string()]);
        assert!(one.status().expect("it runs").success());
    }
    let (_, lines, errors) = count.finish();
    let rows = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let rows: Vec<Value> = rows.collect();
    assert_eq!(rows[0]["key"]["text"], TEXT, "{rows:#?} {errors}");
    assert_eq!(rows[0]["count"], PROGRAMS, "{rows:#?}");
    let (hits, _) = ended(trace);
    let fields = hits.iter().map(|hit| hit["fields"].clone());
    assert!(fields.eq((0..PROGRAMS).map(fields_of)), "{hits:#?}");
}

test! { core, each_program_is_traced_from_its_first_call_on, cpus = 2 }
/// Each has a mount namespace and a file of its own, and calls once.
fn each_program_is_traced_from_its_first_call_on() {
    const PROGRAMS: u64 = 20;
    let _module = Module::load();
    fs::copy(victim::path("first_call"), PROGRAM).expect("/mnt is writable");
    let spec = format!("{PROGRAM}:first_call(text=arg1:string, number=arg2)");
    let trace = Notes::of(&["trace", "--json", "--follow", "--hold", HOLD, &spec]);
    trace.1.wait_for("tracing", LIMIT);
    let count = PROGRAMS.to_string();
    let all = Command::new(PROGRAM).args(["each", &count]).status();
    assert!(all.expect("it runs").success());
    let (hits, summary) = ended(trace);
    fs::remove_file(PROGRAM).expect("it is ours");
    let fields = hits.iter().map(|hit| hit["fields"].clone());
    assert!(fields.eq((0..PROGRAMS).map(fields_of)), "{hits:#?}");
    let held = &summary["held"];
    assert_eq!(held["programs"], PROGRAMS, "{held}");
    assert_eq!(held["overdue"], 0, "{held}");
}

test! { core, containers_that_end_at_once_are_traced_and_named, cpus = 2, seconds = 100 }
fn containers_that_end_at_once_are_traced_and_named() {
    const PROGRAM: &str = "/first_call";
    let _module = Module::load();
    let root = Root::with("first_call", PROGRAM);
    let spec = format!("{PROGRAM}:first_call(number=arg2)");
    let who = ["-c", "brief-*", "--follow", "--hold", HOLD];
    let trace = Notes::of(&[&["trace", "--json"], &who[..], &[&spec]].concat());
    trace.1.wait_for("waiting for one", LIMIT);
    let mut expected = BTreeMap::new();
    for number in ["1", "2", "3", "4"] {
        let name = format!("brief-{number}");
        let container = Container::over(&name, &root.folder, &[PROGRAM, "one", number]);
        expected.insert(name, number.to_owned());
        container.wait();
    }
    let (hits, _) = ended(trace);
    let named = hits.iter().map(|hit| {
        let name = hit["container"].as_str().expect("a name");
        (name.to_owned(), hit["fields"]["number"].to_string())
    });
    assert_eq!(named.collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(hits.len(), expected.len());
}
