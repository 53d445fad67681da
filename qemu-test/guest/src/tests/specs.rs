// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a spec asks for by name and type is what the program has, and what
//! is counted is what happened.

mod values;

use super::capsule::Folder;
use crate::command::{self, Output, Running};
use crate::container::Container;
use crate::module::Module;
use crate::oracle::within;
use crate::session::Session;
use crate::victim::{self, Victim};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

fn program() -> String {
    let path = victim::path("requests");
    path.to_str().expect("a plain name").to_string()
}

/// A spec of the victim's function.
fn handle(rest: &str) -> String {
    format!("{}:handle{rest}", program())
}

/// What the victim told of a request.
#[derive(Debug)]
struct Told(BTreeMap<String, String>);

impl Told {
    fn number(&self, name: &str) -> i64 {
        self.0[name].parse().expect("a number")
    }
}

/// What the victim told, and the objects that the program printed.
struct Both {
    line: u32,
    told: Vec<Told>,
    objects: Vec<Value>,
}

/// Runs a verb on the victim with this number of requests.
fn trace(verb: &str, words: &[&str], count: u32) -> (Both, Output) {
    let (program, count) = (program(), count.to_string());
    let mut all = vec![verb, "--json"];
    all.extend(words);
    all.extend(["--", &program, &count]);
    let got = command::run(&all).succeeded();
    let mut both = Both {
        line: 0,
        told: Vec::new(),
        objects: Vec::new(),
    };
    for line in got.lines() {
        if let Some(number) = line.strip_prefix("line ") {
            both.line = number.parse().expect("a number");
        } else if line.starts_with("request ") {
            let pairs = line.split(' ').filter_map(|word| word.split_once('='));
            let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string()));
            both.told.push(Told(pairs.collect()));
        } else {
            let object = serde_json::from_str(line);
            both.objects
                .push(object.unwrap_or_else(|error| panic!("{error}: {line}")));
        }
    }
    (both, got)
}

impl Both {
    fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .iter()
            .filter(move |object| object["type"] == kind)
    }

    /// The fields of each hit.
    fn fields(&self) -> Vec<&Value> {
        self.of_type("hit").map(|hit| &hit["fields"]).collect()
    }

    /// The rows of the final table: a part of their key, and the rest.
    fn totals(&self) -> Vec<&Value> {
        let rows = self.of_type("row");
        rows.filter(|row| row["of"] == "total").collect()
    }

    fn summary(&self) -> &Value {
        self.of_type("summary").last().expect("the last line")
    }
}

test! { core, members_arrays_enums_and_globals_are_fetched_by_name }
fn members_arrays_enums_and_globals_are_fetched_by_name() {
    let _module = Module::load();
    let spec = handle(
        "(fd=request->peer->fd, url=request->url, length=request->length, \
         peer=request->peer->name, color=request->peer->color, flags=request->peer->flags, \
         mode=request->peer->mode, weight=request->weight, id=request->ids[1], \
         ids=&request->ids[0]:bytes[8], number, flag, before=handled, arg2, p=request)",
    );
    let (both, _) = trace("trace", &[&spec], 12);
    let fields = both.fields();
    assert_eq!((fields.len(), both.told.len()), (12, 12));
    for (index, (found, told)) in fields.iter().zip(&both.told).enumerate() {
        println!("{found}");
        assert_eq!(found["fd"], told.number("fd"));
        assert_eq!(found["url"], told.0["url"].as_str());
        assert_eq!(found["length"], told.number("length"));
        assert_eq!(found["color"], told.0["color"].as_str());
        assert_eq!(found["before"], told.number("before"));
        assert_eq!(found["number"], index);
        assert_eq!(found["arg2"], index);
        assert_eq!(found["peer"], "10.0.0.1");
        assert_eq!((&found["flags"], &found["mode"]), (&5.into(), &17.into()));
        assert_eq!(found["weight"], 2.5);
        assert_eq!(found["id"], -22);
        assert_eq!(found["ids"], "0b00eaff21002c00");
        let letter = char::from(b'A' + (index % 26) as u8);
        assert_eq!(found["flag"], letter.to_string());
        assert!(found["p"].as_str().is_some_and(|p| p.starts_with("0x7f")));
    }
}

test! { core, conditions_choose_the_calls }
fn conditions_choose_the_calls() {
    let _module = Module::load();
    for (condition, wanted) in [
        (
            "number >= 3 && request->url == \"/odd\"",
            [3, 5, 7, 9].as_slice(),
        ),
        ("request->url ~ \"/ev*\" && number < 4", &[0, 2]),
        ("request->peer->color == 6", &[0, 3, 6, 9]),
        ("$comm != \"requests\"", &[]),
        ("handled > 80 || number == 0", &[0, 8, 9]),
    ] {
        let spec = handle(&format!("(number) if {condition}"));
        let (both, _) = trace("trace", &[&spec], 10);
        let found: Vec<i64> = both
            .fields()
            .iter()
            .map(|fields| fields["number"].as_i64().expect("a number"))
            .collect();
        assert_eq!(found, wanted, "{condition}");
        let summary = both.summary();
        let rejected = 10 - wanted.len();
        assert_eq!(summary["rejected"], rejected, "{condition}: {summary}");
        assert_eq!(
            (&summary["hits"], &summary["undecided"]),
            (&10.into(), &0.into())
        );
    }
    // Several specs of one place: each with its own condition, and those that do the same once.
    let specs = ["number >= 7", "number < 2", "number < 2"];
    let specs = specs.map(|condition| handle(&format!(" if {condition}")));
    let (both, got) = trace("count", &[&specs[0], &specs[1], &specs[2]], 10);
    let rows: Vec<(&Value, &Value)> = both
        .totals()
        .iter()
        .map(|row| (&row["key"]["func"], &row["count"]))
        .collect();
    let name = |condition: &str| Value::from(format!("requests:handle if {condition}"));
    let (first, second) = (name("number >= 7"), name("number < 2"));
    let (three, two) = (Value::from(3), Value::from(2));
    assert_eq!(rows, [(&first, &three), (&second, &two)], "{got:#?}");
    let names = ["libc.so.6:getpid", "libc.so.6:__getpid"];
    let got = command::run(&["count", names[0], names[1], "--", "/bin/true"]).succeeded();
    assert!(got.stderr.contains("is the same place as"), "{got:#?}");
}

test! { core, a_return_has_its_value_its_arguments_and_its_time }
fn a_return_has_its_value_its_arguments_and_its_time() {
    let _module = Module::load();
    let spec = handle(
        "($retval, number, url=request->url, early=entry(handled), late=handled) if number > 1",
    );
    let (both, _) = trace("trace", &[&spec], 8);
    let hits: Vec<&Value> = both.of_type("hit").collect();
    assert_eq!(hits.len(), 6);
    for (hit, told) in hits.iter().zip(&both.told[2..]) {
        let fields = &hit["fields"];
        assert_eq!(hit["return"], true);
        assert!(hit["elapsed_ns"].as_u64().is_some_and(|ns| ns > 0));
        assert_eq!(fields["$retval"], told.number("result"), "{hit}");
        assert_eq!(fields["url"], told.0["url"].as_str());
        assert_eq!(fields["early"], told.number("before"));
        assert_eq!(fields["late"], told.number("before") + told.number("local"));
    }
    // What the entry rejects has no return.
    assert_eq!(both.summary()["rejected"], 2);
    assert_eq!(both.summary()["hits"], 8);
}

test! { full, structs_and_arrays_are_shown_whole }
fn structs_and_arrays_are_shown_whole() {
    let _module = Module::load();
    let spec = handle(
        "(peer=*request->peer, ids=request->ids, $params, low=number:bits, from=$stack0:symbol, \
         outside=request:symbol)",
    );
    let (both, _) = trace("trace", &[&spec], 6);
    let fields = both.fields();
    assert_eq!((fields.len(), both.told.len()), (6, 6));
    for (index, (found, told)) in fields.iter().zip(&both.told).enumerate() {
        let peer = serde_json::json!({
            "fd": told.number("fd"), "name": "10.0.0.1", "flags": 5, "mode": 17,
            "color": told.0["color"],
        });
        assert_eq!(found["peer"], peer);
        assert_eq!(found["ids"], serde_json::json!([11, -22, 33, 44]));
        assert_eq!(found["number"], index);
        assert!(found["request"].is_string() && found["flag"].is_string());
        assert_eq!(found["low"], format!("{index:#b}"));
        // The return address, and one that is no function's.
        let from = found["from"].as_str().expect("a name");
        assert!(from.starts_with("main+0x"), "{from}");
        assert_eq!(found["outside"], found["request"]);
    }
    // For people.
    let program = program();
    let got = command::run(&["trace", "-q", &spec, "--", &program, "1"]).succeeded();
    let wanted =
        "peer={fd=7, name=\"10.0.0.1\", flags=5, mode=17, color=BLUE} ids=[11, -22, 33, 44]";
    assert!(got.stdout.contains(wanted), "{}", got.stdout);
}

test! { full, a_return_has_what_was_on_its_callers_stack }
/// The function overwrites its argument; what it was given is meant.
fn a_return_has_what_was_on_its_callers_stack() {
    let _module = Module::load();
    let spec = format!(
        "{}:weigh%return(length=whole.length, id=whole.ids[1], number, $retval)",
        program()
    );
    let (both, _) = trace("trace", &[&spec], 6);
    let fields = both.fields();
    assert_eq!((fields.len(), both.told.len()), (6, 6));
    for (index, (found, told)) in fields.iter().zip(&both.told).enumerate() {
        assert_eq!(found["length"], 1000 + index);
        assert_eq!(
            (&found["id"], &found["number"]),
            (&(-22).into(), &index.into())
        );
        assert_eq!(found["$retval"], told.number("weight"));
    }
}

test! { full, locals_are_fetched_at_a_line }
fn locals_are_fetched_at_a_line() {
    let _module = Module::load();
    let (both, _) = trace("count", &[&handle("")], 1);
    let spec = format!(
        "{}:requests.c:{}(local, number, handled)",
        program(),
        both.line
    );
    let (both, _) = trace("trace", &[&spec], 6);
    let fields = both.fields();
    assert_eq!(fields.len(), 6);
    for (found, told) in fields.iter().zip(&both.told) {
        assert_eq!(found["local"], told.number("local"));
        let after = told.number("before") + told.number("local");
        assert_eq!(found["handled"], after);
    }
}

test! { full, a_function_is_found_where_it_was_inlined }
fn a_function_is_found_where_it_was_inlined() {
    let _module = Module::load();
    let spec = format!("{}:thrice(value)", program());
    command::run(&["trace", &spec, "--", "/bin/true"]).refused(&[
        "thrice",
        "is inlined wherever it is called",
        "--inlined probes there",
    ]);
    let (both, _) = trace("trace", &["--inlined", &spec], 5);
    let values: Vec<&Value> = both
        .fields()
        .iter()
        .map(|fields| &fields["value"])
        .collect();
    assert_eq!(values, [0, 1, 2, 3, 4]);
}

test! { core, calls_are_counted_by_what_is_wanted }
fn calls_are_counted_by_what_is_wanted() {
    let _module = Module::load();
    let (both, _) = trace("count", &[&handle("")], 50);
    let totals = both.totals();
    assert_eq!(totals.len(), 1);
    assert_eq!(totals[0]["count"], 50);
    assert_eq!(totals[0]["key"]["func"], "requests:handle");
    assert_eq!(both.summary()["aggregated"], 50);
    assert_eq!(both.summary()["recorded"], 0);
    let by = [
        "--by",
        "url=request->url:string[8],comm,rest=number%2",
        "--sum",
        "number",
    ];
    let (both, _) = trace("count", &[&[handle("").as_str()], &by[..]].concat(), 50);
    let mut rows: Vec<(&str, i64, i64, i64)> = both
        .totals()
        .iter()
        .map(|row| {
            assert_eq!(row["key"]["comm"], "requests");
            let number = |value: &Value| value.as_i64().expect("a number");
            (
                row["key"]["url"].as_str().expect("a string"),
                number(&row["key"]["rest"]),
                number(&row["count"]),
                number(&row["sum"]),
            )
        })
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, [("/even", 0, 25, 600), ("/odd", 1, 25, 625)]);
}

test! { core, values_and_times_are_spread_over_buckets }
fn values_and_times_are_spread_over_buckets() {
    let _module = Module::load();
    let words = ["--of", "request->length", "--linear", "1000:10:5"];
    let (both, _) = trace("hist", &[&[handle("").as_str()], &words[..]].concat(), 60);
    let totals = both.totals();
    assert_eq!(totals.len(), 1);
    let row = totals[0];
    assert_eq!(
        (&row["count"], &row["least"], &row["greatest"]),
        (&60.into(), &1000.into(), &1059.into())
    );
    let counts: Vec<i64> = row["buckets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|bucket| bucket[2].as_i64().expect("a number"))
        .collect();
    assert_eq!(counts, [10, 10, 10, 10, 10, 10]);
    // Times of calls, of those that are wanted.
    let (both, got) = trace("hist", &[&handle(" if number >= 10")], 60);
    let totals = both.totals();
    assert_eq!(totals[0]["count"], 50, "{}", got.stdout);
    assert!(totals[0]["least"].as_i64().is_some_and(|ns| ns > 0));
    assert_eq!(both.summary()["rejected"], 10);
    // For people.
    let program = program();
    let got = command::run(&["hist", &handle(""), "--", &program, "60"]).succeeded();
    assert!(
        got.stdout.contains("requests:handle: 60 calls"),
        "{}",
        got.stdout
    );
    assert!(got.stdout.contains("p99"), "{}", got.stdout);
}

test! { core, stacks_are_counted_and_folded }
fn stacks_are_counted_and_folded() {
    let _module = Module::load();
    let program = program();
    let folder = Folder::new("stacks");
    let file = folder.path("handle.folded");
    let words = [
        "stacks",
        "--folded",
        "-o",
        &file,
        "-q",
        &handle(""),
        "--",
        &program,
        "30",
    ];
    let got = command::run(&words).succeeded();
    let written = fs::read_to_string(&file).expect("it is written");
    for text in [&got.stdout, &written] {
        // The compiler may have made several calls of the one.
        let counts = text
            .lines()
            .filter_map(|line| line.split_once(";main;handle "));
        let counts = counts.map(|(_, count)| count.parse::<u32>().expect("a number"));
        assert_eq!(counts.sum::<u32>(), 30, "{text}");
    }
    let (both, _) = trace("stacks", &[&handle(""), "--sum", "number"], 30);
    let totals = both.totals();
    let sum = |key: &str| -> i64 {
        let numbers = totals.iter().filter_map(|row| row[key].as_i64());
        numbers.sum()
    };
    assert_eq!((sum("count"), sum("sum")), (30, 435));
    let names: Vec<&Value> = totals[0]["stack"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|frame| &frame["functions"][0]["name"])
        .collect();
    assert_eq!(names[..2], ["handle", "main"]);
}

test! { full, breakpoints_go_behind_the_mark_of_a_branch_target }
fn breakpoints_go_behind_the_mark_of_a_branch_target() {
    let _module = Module::load();
    let name = "begins_with_endbr64";
    let victim = Victim::start("call_in_loop", &[name, "0", "1000"]);
    let function = victim.function(name);
    let pid = victim.pid().to_string();
    let spec = format!("{}:{name}(arg1)", victim.file().display());
    let byte = |at: usize| victim::text(victim.pid(), victim.file(), function.offset)[at];
    for (exact, place, other) in [(false, 4, 0), (true, 0, 4)] {
        let mut words = vec!["trace", "--json", "--stack", "-p", &pid, &spec];
        if exact {
            words.push("--exact");
        }
        let mut running = Running::start(&words);
        let line = running.wait_for("\"hit\"", Duration::from_secs(20));
        assert_eq!((byte(place), byte(other) == 0xcc), (0xcc, false), "{exact}");
        // Wherever the breakpoint is: the function, its argument and its caller.
        let hit: Value = serde_json::from_str(&line).expect("an object");
        let frame = |index: usize| &hit["stack"][index]["functions"][0];
        assert_eq!(frame(0)["name"], name);
        assert_eq!(frame(0)["offset"], 0, "{line}");
        assert_eq!(frame(1)["name"], format!("call_{name}"));
        assert!(hit["fields"]["arg1"].is_u64());
        let (code, errors) = running.interrupt();
        assert_eq!(code, Some(0), "{errors}");
        assert!(victim.text_is_restored(function.offset));
    }
}

test! { full, bad_specs_are_refused_with_the_place }
fn bad_specs_are_refused_with_the_place() {
    let _module = Module::load();
    for (rest, parts) in [
        (":handle(nothing)", &["no variable `nothing`", "^"][..]),
        (":handle(request->urk)", &["no member `urk`", "url", "^"]),
        (":handle(number->x)", &["no members", "^"]),
        (":handle(request->peer)(", &["should end", "^"]),
        (":handle if request->url > ", &["value is missing", "^"]),
        (":handle if request->url == 'x", &["quote", "^"]),
        (
            ":handle($retval, number, request, flag, entry(handled), entry(request->length))",
            &["keeps 4 values", "^"],
        ),
        (":handle(local)", &["local", "^"]),
        // Values of the wrong type.
        (":handle if number == \"x\"", &["neither a string", "^"]),
        (":handle if \"a\" == 5", &["a number is no string", "^"]),
        (":handle if request->url ~ 5", &["ends in *", "^"]),
        (":handle(number:string)", &["neither a string", "^"]),
        (":handle(number[3])", &["neither a pointer nor", "^"]),
        (":handle(*number)", &["neither a pointer nor", "^"]),
        (":handle($comm + 1)", &["can only be compared", "^"]),
        (":handle(number:float)", &["no format `float`", "^"]),
        (
            ":handle(request->url:string[100000])",
            &["from 1 to 256", "^"],
        ),
        (":handle+0x1(%rdi)", &["middle of an instruction"]),
        (":handle+0xffff", &["bytes long"]),
        (":requests.c:9999", &["no code at or after"]),
        (":nowhere.c:1", &["no source file"]),
        (":handel", &["did you mean handle"]),
        (":0x10", &["not in code"]),
        (":main+0x4%return", &["whole function"]),
    ] {
        let spec = program() + rest;
        let got = command::run(&["trace", &spec, "--", "/bin/true"]);
        for part in parts {
            assert!(got.stderr.contains(part), "{spec}: no {part:?}: {got:#?}");
        }
        assert_eq!(got.stdout, "");
        // What is wrong in the spec is pointed at; else there is no such place.
        let code = if parts.contains(&"^") { 2 } else { 1 };
        assert_eq!(got.code, code, "{spec}: {got:#?}");
    }
    for (words, part) in [
        (&["count", "--by", "nothing"][..], "no key `nothing`"),
        (&["count", "--by", "flag,"], "value is missing"),
        (&["count", "--rows", "0"], "0"),
        (&["hist", "--linear", "0:0:5"], "STEP"),
        (&["count", "--by", "arg1:string[256]"], "key is"),
    ] {
        let spec = handle("");
        let got = command::run(&[words, &[&spec, "--", "/bin/true"]].concat());
        assert_eq!((got.code, &*got.stdout), (2, ""), "{words:?}: {got:#?}");
        assert!(got.stderr.contains(part), "{words:?}: {got:#?}");
    }
}

test! { full, names_come_from_the_debug_information_in_a_container, seconds = 120 }
/// The container has the program, the machine another one at that path.
fn names_come_from_the_debug_information_in_a_container() {
    const INSIDE: &str = "/usr/local/bin/requests";
    let _module = Module::load();
    let container = Container::run("requests", &["sleep", "1000"]);
    container.copy(&victim::path("requests"), INSIDE);
    let wrong = format!("{INSIDE}:handle(nothing)");
    let got = command::run(&["trace", "-c", "requests", &wrong]);
    assert_eq!(got.code, 2, "{got:#?}");
    assert!(got.stderr.contains("no variable `nothing`"), "{got:#?}");
    let spec = format!("{INSIDE}:handle(number, url=request->url, color=request->peer->color)");
    let words = [
        "trace", "-c", "requests", "--json", "-n", "6", "-t", "30", &spec,
    ];
    let mut running = Running::start(&words);
    // Once it is probed, each request counts.
    assert!(within(Duration::from_secs(20), || Session::open()
        .info()
        .probes
        == 1));
    container
        .exec(&[INSIDE, "6"])
        .expect("it is in the container");
    let hits: Vec<Value> = (0..6)
        .map(|_| running.wait_for("\"hit\"", Duration::from_secs(20)))
        .map(|line| serde_json::from_str(&line).expect("an object"))
        .collect();
    drop(running);
    for hit in hits {
        let fields = &hit["fields"];
        let number = fields["number"].as_i64().expect("a number");
        assert_eq!(fields["url"], ["/even", "/odd"][number as usize % 2]);
        assert_eq!(
            fields["color"],
            if number % 3 == 0 { "BLUE" } else { "GREEN" }
        );
    }
}

test! { full, names_and_children_choose_who_counts }
fn names_and_children_choose_who_counts() {
    let _module = Module::load();
    let program = program();
    let script = format!("{program} 3; {program} 4");
    let count = |more: &[&str]| -> u64 {
        let spec = handle("");
        let words = [
            &["count", "--json"],
            more,
            &[&spec, "--", "sh", "-c", &script],
        ]
        .concat();
        let got = command::run(&words).succeeded();
        let last = got.lines().last().expect("the summary");
        let summary: Value = serde_json::from_str(last).expect("an object");
        summary["aggregated"].as_u64().expect("a number")
    };
    // Neither run is the shell itself, except that it may become the last one.
    assert_eq!(count(&["--children"]), 7);
    assert_eq!(count(&["--children", "--comm", "requests"]), 7);
    assert_eq!(count(&["--children", "--comm", "sh"]), 0);
    assert_eq!(count(&["--children", "--uid", "12345"]), 0);
    // Who did not ask for them is told of it.
    let leaves = crate::victim::path("leaves").display().to_string();
    let passed = format!("{leaves}:via_exec");
    for (words, told) in [
        (
            ["sh", "-c", &*format!("{script}; true")],
            "no hits in the command's first process",
        ),
        ([&*leaves, "exec", "150"], "of other processes filtered"),
    ] {
        let spec = if words[0] == "sh" {
            handle("")
        } else {
            passed.clone()
        };
        let got = command::run(&[&["count", &spec, "--"], &words[..]].concat()).succeeded();
        let hint = got.stderr.lines().find(|line| line.contains("--children"));
        assert!(hint.is_some_and(|hint| hint.contains(told)), "{got:#?}");
    }
    command::run(&["count", "--children", &handle("")]);
    let got = command::run(&["count", "--children", &handle("")]);
    assert_eq!(got.code, 2, "{got:#?}");
    let wrong = ["count", "--cgroup", "/proc", &handle(""), "--", "/bin/true"];
    command::run(&wrong).refused(&["cgroup v2"]);
}
