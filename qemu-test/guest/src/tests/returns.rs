// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: returns are seen without breaking who returns, in whatever way functions are
//! left, and which way was taken is said.

use crate::command::{self, Output};
use crate::instructions::go;
use crate::module::Module;
use crate::victim;
use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A run of a victim under `nsprobe VERB --json`; it is called `VICTIM` in the words.
struct Leaving {
    objects: Vec<Value>,
    called: u64,
    returned: u64,
    stderr: String,
}

fn leaving(way: &str, times: u32, words: &[&str]) -> Leaving {
    let path = victim::path(if way == "panic" { "panics" } else { "leaves" });
    let path = path.to_str().expect("a plain name");
    let spec_of = |word: &&str| word.replace("VICTIM", path);
    let words: Vec<String> = words.iter().map(spec_of).collect();
    let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
    let times = times.to_string();
    all.extend(["--json", "--", path, way, &times]);
    let got: Output = command::run(&all).succeeded();
    let number = |name: &str| {
        let told = got.lines().find_map(|line| line.strip_prefix(name));
        told.and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("no {name}: {got:#?}"))
    };
    let objects = got.lines().filter(|line| line.starts_with('{'));
    Leaving {
        called: number("called "),
        returned: number("returned "),
        objects: objects
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect(),
        stderr: got.stderr.clone(),
    }
}

impl Leaving {
    fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |of| of["type"] == kind)
    }

    /// What the final table has counted in all.
    fn counted(&self) -> u64 {
        let rows = self.of_type("row").filter(|row| row["of"] == "total");
        rows.filter_map(|row| row["count"].as_u64()).sum()
    }
}

test! { core, exits_tell_what_return_probes_tell, module }
fn exits_tell_what_return_probes_tell() {
    let _module = Module::load();
    let path = victim::path("call_in_loop");
    let path = path.to_str().expect("a plain name");
    let spec =
        format!("{path}:call_begins_with_push($retval, n=arg1) if arg1 >= 5 && $retval < 90");
    let told = |how: &str| {
        let words = ["trace", "--json", "--return", how, &spec];
        let all = [&words[..], &["--", path, "begins_with_push", "100", "0"]].concat();
        let got = command::run(&all).succeeded();
        let objects = got
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let (hits, rest): (Vec<Value>, Vec<Value>) = objects
            .filter(|object: &Value| object.is_object())
            .partition(|object| object["type"] == "hit");
        let field = |hit: &Value| {
            let fields = &hit["fields"];
            assert_eq!(hit["return"], true, "{hit}");
            assert!(hit["elapsed_ns"].as_u64() > Some(0), "{hit}");
            (fields["$retval"].as_u64(), fields["n"].as_u64())
        };
        let summary = rest.into_iter().next_back().expect("the last line");
        let counts = ["hits", "recorded", "rejected"].map(|name| summary[name].clone());
        (hits.iter().map(field).collect::<Vec<_>>(), counts)
    };
    let (by_probe, counts) = told("uretprobe");
    let (at_exits, exit_counts) = told("ret");
    println!("{counts:?} {exit_counts:?}");
    let wanted: Vec<_> = (5..88).map(|n| (Some(n + 2), Some(n))).collect();
    assert_eq!(by_probe, wanted);
    assert_eq!(at_exits, wanted);
    assert_eq!(counts, exit_counts);
}

test! { core, a_panic_passes_a_traced_function, module }
fn a_panic_passes_a_traced_function() {
    let _module = Module::load();
    // That a return probe does end it is why the other way is taken by itself.
    let path = victim::path("panics");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:*::passed");
    let words = ["hist", "--return", "uretprobe", &spec, "--"];
    let ended = command::run(&[&words[..], &[path, "panic", "1"]].concat());
    assert_ne!(ended.code, 0, "{ended:#?}");
    let got = leaving("panic", 50, &["hist", "VICTIM:*::passed"]);
    println!("{}", got.stderr);
    assert_eq!((got.called, got.returned), (100, 50));
    assert_eq!(got.counted(), got.returned);
    let why = "are seen at their exits: exceptions or panics may pass through its functions";
    assert!(got.stderr.contains(why), "{}", got.stderr);
}

test! { full, longjmp_leaves_calls_that_never_return, module }
fn longjmp_leaves_calls_that_never_return() {
    let _module = Module::load();
    for how in ["uretprobe", "ret"] {
        let got = leaving("jump", 50, &["hist", "--return", how, "VICTIM:passed"]);
        assert_eq!((got.called, got.returned), (100, 50));
        assert_eq!(got.counted(), got.returned, "{how}");
        // The calls that are wanted never return; the others come to the same place on
        // the stack, and are not taken for them.
        let spec = "VICTIM:passed if arg1 == 2";
        let got = leaving("jump", 50, &["hist", "--return", how, spec]);
        assert_eq!((got.called, got.counted()), (100, 0), "{how}");
    }
}

test! { core, calls_a_hundred_deep_all_return, module }
fn calls_a_hundred_deep_all_return() {
    let _module = Module::load();
    let got = leaving("deep", 10, &["hist", "--return", "ret", "VICTIM:recurse"]);
    assert_eq!((got.called, got.counted()), (1000, 1000));
    // The kernel follows 64 nested calls; what it leaves out, it leaves out whole. Also where
    // the entry runs a program.
    for spec in ["VICTIM:recurse", "VICTIM:recurse if arg1 < 1000"] {
        let got = leaving("deep", 10, &["hist", "--return", "uretprobe", spec]);
        assert_eq!((got.called, got.counted()), (1000, 640), "{spec}");
        let summary = got.of_type("summary").last().expect("the last line");
        assert_eq!(summary["too_deep"], 360, "{spec}");
        let is_said = got.stderr.contains("360 returns not seen");
        assert!(is_said, "{spec}: {}", got.stderr);
    }
}

test! { full, vfork_and_threads_keep_their_calls_apart, module }
fn vfork_and_threads_keep_their_calls_apart() {
    let _module = Module::load();
    for (way, calls) in [("vfork", 20), ("threads", 2000)] {
        for how in ["uretprobe", "ret"] {
            let words = ["hist", "--children", "--return", how, "VICTIM:passed"];
            let got = leaving(way, 20, &words);
            assert_eq!((got.called, got.returned), (calls, calls));
            assert_eq!(got.counted(), calls, "{way} {how}");
        }
    }
}

test! { full, exec_and_shared_memory_keep_their_calls_apart, module }
/// A call that an exec ends never returns; what the new program calls does. And two processes
/// that share their memory, but no thread group, are two.
fn exec_and_shared_memory_keep_their_calls_apart() {
    let _module = Module::load();
    for (way, began, returned) in [("exec", 40, 20), ("clone", 1000, 1000)] {
        for how in ["uretprobe", "ret"] {
            let words = ["hist", "--children", "--return", how, "VICTIM:passed"];
            let got = leaving(way, 20, &words);
            assert_eq!((got.called, got.returned), (began, returned), "{way}");
            assert_eq!(got.counted(), returned, "{way} {how}");
        }
    }
}

test! { full, exits_are_one_function_to_the_user, module }
fn exits_are_one_function_to_the_user() {
    let _module = Module::load();
    // `recurse` has two exits or more; all keys but the probe's are told apart.
    let words = [
        "count",
        "--return",
        "ret",
        "VICTIM:recurse",
        "--by",
        "func,odd=$retval & 1",
    ];
    let got = leaving("deep", 3, &words);
    let rows: Vec<&Value> = got
        .of_type("row")
        .filter(|row| row["of"] == "total")
        .collect();
    println!("{rows:?}");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["count"] == 150));
    let summary = got.of_type("summary").last().expect("the last line");
    let probes = summary["probes"].as_array().expect("an array");
    assert_eq!((probes.len(), summary["hits"].as_u64()), (1, Some(300)));
    assert_eq!(summary["balanced"], true);
}

/// Debian's own Go program, whose symbols Debian has taken away, with that of one function;
/// gone with the value.
struct Shfmt(PathBuf);

const SHFMT: &str = "/usr/bin/shfmt";

impl Shfmt {
    fn with(symbol: &str, function: &str) -> Shfmt {
        let shfmt = Shfmt(PathBuf::from(format!(
            "/var/tmp/shfmt-{}",
            std::process::id()
        )));
        let (offset, length) = go::extent(Path::new(SHFMT), function);
        let bytes = fs::read(SHFMT).expect("shfmt is in the guest");
        let elf = object::File::parse(&*bytes).expect("ELF");
        let text = elf.section_by_name(".text").expect("code");
        let (start, _) = text.file_range().expect("in the file");
        let symbol_there = format!("{symbol}=.text:{:#x},function,global", offset - start);
        let mut objcopy = Command::new("objcopy");
        objcopy.args(["--add-symbol", &symbol_there, SHFMT]);
        let made = objcopy.arg(&shfmt.0).status();
        assert!(made.expect("binutils is in the guest").success());
        shfmt.set_length(symbol, length);
        shfmt
    }

    /// objcopy gives symbols no length.
    fn set_length(&self, symbol: &str, length: u64) {
        let mut bytes = fs::read(&self.0).expect("it was made");
        let elf = object::File::parse(&*bytes).expect("ELF");
        let mut symbols = elf.symbols();
        let ours = symbols.find(|one| one.name() == Ok(symbol));
        let index = ours.expect("it was added").index().0;
        let table = elf.section_by_name(".symtab").expect("it has a symbol");
        let (start, _) = table.file_range().expect("in the file");
        // The last of the six fields of Elf64_Sym.
        let at = start as usize + 24 * index + 16;
        bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
        fs::write(&self.0, bytes).expect("it is ours");
    }
}

impl Drop for Shfmt {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

test! { core, go_programs_get_no_return_probe, module }
/// Go copies a stack that has become too small, and finds there what a return probe has put.
fn go_programs_get_no_return_probe() {
    const SCRIPT: &str = "/var/tmp/returns.sh";
    let _module = Module::load();
    fs::write(SCRIPT, "if a; then b | c; fi\nd() { e; }\n").expect("/var/tmp is writable");
    let next = "mvdan.cc/sh/v3/syntax.(*Parser).next";
    let shfmt = Shfmt::with("parser_next", next);
    let path = shfmt.0.to_str().expect("a plain name");
    let spec = format!("{path}:parser_next");
    let command = ["--", path, "-w", SCRIPT];
    // Its first instruction may run twice in a call, when the stack has to grow.
    let body = format!("{path}:{:#x}", go::body(&shfmt.0, next));
    let words = [&["count", "--json", &body][..], &command].concat();
    let entered = total(&command::run(&words).succeeded());
    assert!(entered > 9, "{entered}");
    let words = [&["hist", "--return", "uretprobe", &spec][..], &command].concat();
    command::run(&words).refused(&["a return probe would break it: Go moves stacks"]);
    // It returns as often as it was called.
    let words = [&["hist", "--json", &spec][..], &command].concat();
    let got = command::run(&words).succeeded();
    assert!(
        got.stderr.contains("it is a Go program, whose stacks move"),
        "{got:#?}"
    );
    // A call whose stack moves meanwhile ends unknown, and is counted. A stack moves when it
    // grows, by doubling: seldom.
    let unknown = undecided(&got);
    println!("{unknown} of {entered} calls with a stack that moved meanwhile");
    assert!(unknown <= 2, "{got:#?}");
    assert_eq!(total(&got) + unknown, entered, "{got:#?}");
    let _ = fs::remove_file(SCRIPT);
}

/// The sum of the rows of the final table.
fn total(got: &Output) -> u64 {
    let rows = objects(got).filter(|line| line["type"] == "row" && line["of"] == "total");
    rows.filter_map(|row| row["count"].as_u64()).sum()
}

/// Hits of which a value was not known, by the summary.
fn undecided(got: &Output) -> u64 {
    let summaries = objects(got).filter(|line| line["type"] == "summary");
    summaries
        .map(|summary| summary["undecided"].as_u64().expect("a number"))
        .sum()
}

fn objects(got: &Output) -> impl Iterator<Item = Value> + '_ {
    let lines = got.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("JSON"))
}

test! { full, what_cannot_be_seen_at_exits_is_said, module }
fn what_cannot_be_seen_at_exits_is_said() {
    let _module = Module::load();
    let library = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let refused = |spec: &str, part: &str| {
        let spec = format!("{library}:{spec}");
        command::run(&["trace", "--return", "ret", &spec]).refused(&[part]);
    };
    refused(
        "abort($retval)",
        "it has no instruction by which it returns",
    );
    refused(
        "opendir($retval)",
        "it leaves by a jump to another function at 0x",
    );
    let bad = command::run(&["trace", "--return", "sometimes", "/bin/true:main"]);
    assert_eq!(bad.code, 2, "{bad:#?}");
}
