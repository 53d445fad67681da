// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a call of a function is one hit, in whichever copy of the function it is, and
//! however many pieces of it the call goes through.

use crate::binary;
use crate::command::{self, Output};
use crate::module::Module;
use crate::victim;
use crate::witness::Witness;
use serde_json::Value;
use std::path::PathBuf;

const CALLS: u64 = 300;
const QUOTA: &str = "_ZN4shop11check_quotaEl";

fn program() -> PathBuf {
    victim::path("copies")
}

/// The victim's functions by the beginning of their raw names.
fn names(beginning: &str) -> Vec<String> {
    let all = binary::functions(&program()).into_iter();
    let mut names: Vec<String> = all
        .map(|function| function.name)
        .filter(|name| name.starts_with(beginning))
        .collect();
    names.sort();
    names
}

/// What `nsprobe VERB --json` tells of the victim's calls; `PROGRAM` is its path.
fn traced(words: &[&str]) -> (Output, Vec<Value>) {
    let path = program().display().to_string();
    let spec_of = |word: &&str| word.replace("PROGRAM", &path);
    let words: Vec<String> = words.iter().map(spec_of).collect();
    let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
    let calls = CALLS.to_string();
    all.extend(["--json", "--", &path, &calls]);
    let output = command::run(&all).succeeded();
    let told = output
        .lines()
        .any(|line| line == format!("checked {CALLS}"));
    assert!(told, "{output:#?}");
    let objects = output.lines().filter(|line| line.starts_with('{'));
    let objects = objects.map(|line| serde_json::from_str(line).expect("JSON"));
    let objects = objects.collect();
    (output, objects)
}

fn of_type<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["type"] == kind)
}

fn hits(objects: &[Value]) -> u64 {
    let summary = of_type(objects, "summary").last().expect("the last line");
    summary["hits"].as_u64().expect("a number")
}

test! { full, a_call_that_goes_on_in_a_cold_part_is_one_hit }
fn a_call_that_goes_on_in_a_cold_part_is_one_hit() {
    let _module = Module::load();
    assert_eq!(names(QUOTA), [QUOTA, &format!("{QUOTA}.cold")]);
    let file = program();
    let entry = binary::function(&file, QUOTA).offset;
    for (spec, wanted) in [
        ("PROGRAM:shop::check_quota", CALLS),
        ("PROGRAM:shop::check_quota(long)", CALLS),
        ("PROGRAM:`shop::check_quota(long)`", CALLS),
        ("PROGRAM:_ZN4shop11check_quotaEl", CALLS),
        ("PROGRAM:shop::*", CALLS),
        ("PROGRAM:*quota*", CALLS),
        ("PROGRAM:_ZN4shop*", CALLS),
        // With the copy of `scaled`, but not its pieces.
        ("PROGRAM:s*", 2 * CALLS),
    ] {
        let witness = Witness::new(&file, entry);
        let (output, objects) = traced(&["count", spec]);
        assert_eq!(witness.hits(), CALLS, "{spec}");
        assert_eq!(hits(&objects), wanted, "{spec}: {output:#?}");
    }
    // One line for a call, one row for a path, one trigger.
    let (_, objects) = traced(&["trace", "PROGRAM:shop::check_quota(arg1) if arg1 == 3"]);
    assert_eq!(of_type(&objects, "hit").count(), 1);
    let (_, objects) = traced(&["stacks", "PROGRAM:shop::check_quota"]);
    let rows = of_type(&objects, "row").filter(|row| row["of"] == "total");
    let counts: Vec<u64> = rows.filter_map(|row| row["count"].as_u64()).collect();
    assert_eq!(counts, [CALLS]);
    let words = [
        "trace",
        "--flight",
        "PROGRAM:scaled",
        "--trigger",
        "PROGRAM:shop::check_quota if arg1 == 0",
    ];
    let (output, _) = traced(&words);
    assert!(!output.stderr.contains(".cold"), "{output:#?}");
    // A piece is there by its own name alone, and is no function's beginning.
    let listed = command::run(&["list", &file.display().to_string()]).succeeded();
    assert!(listed.lines().any(|line| line.contains("check_quota")));
    assert!(
        !listed.lines().any(|line| line.contains("cold")),
        "{listed:#?}"
    );
    let (_, objects) = traced(&["count", &format!("PROGRAM:{QUOTA}.cold")]);
    assert_eq!(hits(&objects), CALLS / 3);
    let piece = format!("{}:{QUOTA}.cold", file.display());
    command::run(&["trace", &format!("{piece}(arg1)"), "--", "/bin/true"])
        .refused(&["only at the beginning of a function"]);
    command::run(&["hist", &piece, "--", "/bin/true"]).refused(&["only a whole function returns"]);
}

test! { full, copies_that_replace_a_function_count_under_its_name }
fn copies_that_replace_a_function_count_under_its_name() {
    let _module = Module::load();
    let copies = names("scaled");
    assert!(!copies.contains(&"scaled".to_owned()), "{copies:?}");
    let (_, objects) = traced(&["count", "PROGRAM:scaled"]);
    assert_eq!(hits(&objects), CALLS, "{copies:?}");
    // Which arguments are left, and where, the convention does not say.
    let path = program().display().to_string();
    let raw = copies.iter().find(|name| !name.contains("cold"));
    let raw = raw.expect("a copy");
    let (_, objects) = traced(&["trace", "PROGRAM:scaled(n)"]);
    let fields = of_type(&objects, "hit").map(|hit| &hit["fields"]["n"]);
    let values: Vec<u64> = fields.filter_map(Value::as_u64).collect();
    assert_eq!(values, (0..CALLS).collect::<Vec<_>>());
    command::run(&["trace", &format!("{path}:{raw}(arg1)"), "--", "/bin/true"])
        .refused(&["may have other arguments"]);
}
