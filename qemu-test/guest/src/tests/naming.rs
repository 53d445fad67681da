// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: frames of stripped programs have names where the program's runtime needs them
//! itself.

use crate::command::{nsprobe, output};
use crate::instructions::go;
use crate::module::Module;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const SHFMT: &str = "/usr/bin/shfmt";
const SCRIPT: &str = "/var/tmp/naming.sh";

/// What shfmt's calls of a function look like, as JSON: at most nine.
fn hits_of(function: &str) -> Vec<Value> {
    let entry = go::function(Path::new(SHFMT), function);
    let spec = format!("{SHFMT}:{entry:#x}");
    let words = [
        "trace", "--json", "--stack", "--count", "9", &spec, "--", SHFMT, "-w", SCRIPT,
    ];
    let got = output(&mut nsprobe(&words)).succeeded();
    let lines = got.lines();
    let hits = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let hits: Vec<Value> = hits.filter(|line| line["type"] == "hit").collect();
    assert!(!hits.is_empty(), "{got:#?}");
    hits
}

test! { core, a_stripped_go_program_is_named, seconds = 120 }
/// Debian's Go programs have no symbols and no debug information.
fn a_stripped_go_program_is_named() {
    const NEXT: &str = "mvdan.cc/sh/v3/syntax.(*Parser).next";
    // Go inlines what is between it and its callers.
    const READ: &str = "internal/poll.(*FD).Read";
    let _module = Module::load();
    fs::write(SCRIPT, "if a; then b | c; fi\nd() { e; }\n").expect("/var/tmp is writable");
    let mut inlined = BTreeSet::new();
    let (nexts, reads) = (hits_of(NEXT), hits_of(READ));
    assert_eq!(nexts.len(), 9);
    let nexts = nexts.iter().map(|hit| (NEXT, hit));
    for (function, hit) in nexts.chain(reads.iter().map(|hit| (READ, hit))) {
        let frames = hit["stack"].as_array().expect("a stack");
        let mut names = Vec::new();
        for frame in frames {
            assert_eq!(frame["names_from"], "go", "{frame}");
            let functions = frame["functions"].as_array().expect("an array");
            for function in functions {
                let name = function["name"].as_str().expect("a name");
                let file = function["file"].as_str().expect("a file");
                assert!(file.ends_with(".go") || file.ends_with(".s"), "{function}");
                assert!(function["line"].as_u64() > Some(0), "{function}");
                if function["inlined"] == true {
                    inlined.insert(name.to_owned());
                }
                names.push(name);
            }
        }
        assert_eq!(names[0], function, "{names:?}");
        let outer = ["main.main", "runtime.main", "runtime.goexit"];
        assert!(names.ends_with(&outer), "{names:?}");
    }
    println!("inlined: {inlined:?}");
    assert!(inlined.contains("os.(*File).read"), "{inlined:?}");
    // Go keeps the names of inlined functions among all others: no name is made up.
    let file = fs::read(SHFMT).expect("it is there");
    for name in inlined {
        let stored = [b"\0", name.as_bytes(), b"\0"].concat();
        let is_there = file.windows(stored.len()).any(|bytes| bytes == stored);
        assert!(is_there, "{name} is no function of {SHFMT}");
    }
}
