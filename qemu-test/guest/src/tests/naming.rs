// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: frames of stripped programs have names where the program's runtime needs them
//! itself.

use super::tests;
use crate::command::{nsprobe, output};
use crate::instructions::go;
use crate::module::Module;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

tests![a_stripped_go_program_is_named: 120];

const SHFMT: &str = "/usr/bin/shfmt";
const SCRIPT: &str = "/var/tmp/naming.sh";

/// Debian's Go programs have no symbols and no debug information.
fn a_stripped_go_program_is_named() {
    let _module = Module::load();
    fs::write(SCRIPT, "if a; then b | c; fi\nd() { e; }\n").expect("/var/tmp is writable");
    let entry = go::function(Path::new(SHFMT), "mvdan.cc/sh/v3/syntax.(*Parser).next");
    let spec = format!("{SHFMT}:{entry:#x}");
    let words = [
        "trace", "--json", "--stack", "--count", "9", &spec, "--", SHFMT, "-w", SCRIPT,
    ];
    let got = output(&mut nsprobe(&words)).succeeded();
    let lines = got.lines();
    let hits = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let hits: Vec<Value> = hits.filter(|line| line["type"] == "hit").collect();
    assert_eq!(hits.len(), 9, "{got:#?}");
    let mut inlined = BTreeSet::new();
    for hit in &hits {
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
        assert_eq!(
            names[0], "mvdan.cc/sh/v3/syntax.(*Parser).next",
            "{names:?}"
        );
        let outer = ["main.main", "runtime.main", "runtime.goexit"];
        assert!(names.ends_with(&outer), "{names:?}");
    }
    println!("inlined: {inlined:?}");
}
