// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: code that a program generates has the names that the program gives it, in its
//! own container, and no other ones.

use super::capsule::Folder;
use crate::command::{self, nsprobe, output, Output, Running};
use crate::container::{Container, Root};
use crate::module::Module;
use crate::oracle::SOON;
use crate::victim;
use serde_json::Value;
use std::fs;

/// Where the container has the victim.
const PROGRAM: &str = "/usr/local/bin/generates";

/// When it is there, the victim says something else of its code, or ends.
const GO_ON: &str = "/var/tmp/generates.go-on";

/// The frames of all hits that were printed as JSON.
fn stacks(got: &Output) -> Vec<Vec<Value>> {
    let lines = got.lines();
    let hits = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let hits = hits.filter(|line| line["type"] == "hit");
    let frames = |hit: Value| hit["stack"].as_array().expect("a stack").clone();
    hits.map(frames).collect()
}

/// The calls of a run of the victim: the frames of generated code.
fn generated(how: &str) -> (Vec<Value>, Output) {
    let path = victim::path("generates");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let words = ["trace", "--json", "--stack", &spec, "--"];
    let got = driven(&[&words[..], &[path, how, "3", GO_ON]].concat(), "\"hit\"");
    (of_the_victim(&got), got)
}

/// What a trace prints of the victim's three calls and three more, each of which has a line with
/// this text: the code is called otherwise when those of before are named.
fn driven(words: &[&str], hit: &str) -> Output {
    let _ = fs::remove_file(GO_ON);
    let mut trace = Running::start(words);
    let mut lines = String::new();
    for number in 1..=6 {
        loop {
            let line = trace.next_line(SOON).expect("a hit");
            lines += &format!("{line}\n");
            if line.contains(hit) {
                break;
            }
        }
        if number % 3 == 0 {
            fs::write(GO_ON, "").expect("/var/tmp is writable");
        }
    }
    let mut got = trace.ended().succeeded();
    got.stdout.insert_str(0, &lines);
    got
}

/// The frames of generated code in the six stacks of the victim.
fn of_the_victim(got: &Output) -> Vec<Value> {
    let stacks = stacks(got);
    assert_eq!(stacks.len(), 6, "{got:#?}");
    let frames = stacks.into_iter().map(|frames| {
        assert_eq!(frames[0]["functions"][0]["name"], "leaf", "{frames:#?}");
        assert_eq!(frames[2]["functions"][0]["name"], "main", "{frames:#?}");
        frames[1].clone()
    });
    frames.collect()
}

fn names(frames: &[Value]) -> Vec<&str> {
    let name = |frame: &Value| frame["functions"][0]["name"].as_str().map(str::len);
    assert!(frames.iter().all(|frame| name(frame) != Some(0)));
    let names = frames.iter().map(|frame| &frame["functions"][0]["name"]);
    names.map(|name| name.as_str().unwrap_or("?")).collect()
}

const BOTH: [&str; 6] = [
    "first",
    "first",
    "first",
    "second \u{1b}[31m",
    "second \u{1b}[31m",
    "second \u{1b}[31m",
];

test! { core, generated_code_has_the_names_of_its_map }
fn generated_code_has_the_names_of_its_map() {
    let _module = Module::load();
    let (frames, got) = generated("map");
    assert_eq!(names(&frames), BOTH, "{got:#?}");
    for frame in &frames {
        assert_eq!(frame["names_from"], "perf-map");
        assert_eq!(frame["functions"][0]["offset"], 6, "{frame}");
    }
    assert!(!got.stdout.contains('\u{1b}'), "{}", got.stdout);
    // It is left by its frame pointer, which nothing says that it keeps.
    for frames in stacks(&got) {
        let doubtful = [1, 2].map(|number| frames[number]["doubtful"] == Value::Bool(true));
        assert_eq!(doubtful, [false, true], "{frames:#?}");
    }
    assert_eq!(got.stdout.matches("\"may_lack_frames\":true").count(), 6);
    // People's terminals are not told what to do.
    let path = victim::path("generates");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let words = ["trace", "--stack", &spec, "--", path, "map", "3", GO_ON];
    let got = driven(&words, "  #1  ");
    let shown = got.stdout.matches("second \\x1b[31m+0x6  (/tmp/perf-");
    assert_eq!(shown.count(), 3, "{got:#?}");
    assert_eq!(got.stdout.matches("  #2  ? main+0x").count(), 6, "{got:#?}");
    assert!(!got.stdout.contains('\u{1b}'), "{got:#?}");
    let (frames, _) = generated("huge");
    assert_eq!(names(&frames), BOTH);
}

test! { full, generated_code_has_the_names_and_lines_of_its_dump }
fn generated_code_has_the_names_and_lines_of_its_dump() {
    let _module = Module::load();
    let (frames, got) = generated("dump");
    assert_eq!(names(&frames), BOTH, "{got:#?}");
    for frame in &frames {
        assert_eq!(frame["names_from"], "jitdump");
        let function = &frame["functions"][0];
        assert_eq!(
            (&function["file"], &function["line"]),
            (&"generated.js".into(), &42.into())
        );
    }
}

test! { full, maps_of_others_name_nothing }
/// TRUST A2: a map that somebody else wrote, or one of a process that had the number.
fn maps_of_others_name_nothing() {
    let _module = Module::load();
    for (how, why) in [
        ("older", "is older than the process"),
        ("strange", "belongs to user 12345, but the process to 0"),
    ] {
        let (frames, got) = generated(how);
        assert_eq!(names(&frames), ["?"; 6], "{got:#?}");
        for frame in &frames {
            let told = frame["unresolved"].as_str().expect("a reason");
            assert!(told.contains(why), "{told}");
        }
    }
}

/// A file of the guest's; gone with the value.
struct Decoy(String);

impl Decoy {
    fn new(pid: u32) -> Decoy {
        let path = format!("/tmp/perf-{pid}.map");
        fs::write(&path, "0 7fffffffffff decoy\n1000 4000000 decoy\n").expect("/tmp is writable");
        Decoy(path)
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

test! { core, maps_of_a_container_are_its_own, seconds = 120 }
fn maps_of_a_container_are_its_own() {
    let _module = Module::load();
    for (how, path) in [("map", "/tmp/perf-1.map"), ("dump", "/var/tmp/jit-1.dump")] {
        let root = Root::with("generates", PROGRAM);
        fs::create_dir_all(root.folder.join("var/tmp")).expect("it is ours");
        let container = Container::over("generates", &root.folder, &[PROGRAM, how, "0"]);
        let _decoys = [Decoy::new(1), Decoy::new(container.pid())];
        let spec = format!("{PROGRAM}:leaf");
        let words = [
            "trace",
            "-c",
            "generates",
            "--json",
            "--stack",
            "--count",
            "5",
            &spec,
        ];
        let got = output(nsprobe(&words).args(["--timeout", "30"])).succeeded();
        let stacks = stacks(&got);
        assert_eq!(stacks.len(), 5, "{got:#?}");
        for frames in stacks {
            assert_eq!(frames[1]["functions"][0]["name"], "first", "{frames:#?}");
            assert_eq!(frames[1]["path"], path);
        }
        // Nothing of ours is left in there.
        container.remove().expect("nobody holds it");
    }
}

/// Node takes a while to map it, so it is not looked for in a process.
const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

const SCRIPT: &str = "const fs = require('fs');
function writesALine(n) { let s = 0; for (let i = 0; i < 100; i++) s += i * n;
    fs.writeSync(1, s + '\\n'); }
function callsTheWriter(n) { writesALine(n); }
let n = 0; setInterval(() => { for (let i = 0; i < 20; i++) callsTheWriter(n++); }, 20);";

test! { full, functions_of_node_in_a_container_are_named, cpus = 2, seconds = 240 }
fn functions_of_node_in_a_container_are_named() {
    let _module = Module::load();
    // Both functions stay on the stack when they are optimized.
    let flags = [
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        "--no-turbo-inlining",
    ];
    let words = [&["node"], &flags[..], &["-e", SCRIPT]].concat();
    let container = Container::run("node", &words);
    let trace = [
        "trace",
        "-c",
        "node",
        "--json",
        "--stack",
        "--timeout",
        "60",
        "--count",
        "200",
    ];
    // Node writes the map by the same function.
    let got = output(nsprobe(&trace).arg(format!("{LIBC}:write if arg1 == 1"))).succeeded();
    assert_node_is_named(&stacks(&got));
    let folder = Folder::new("node");
    let capsule = folder.path("node.nsprobe");
    let record = [
        "record", "-o", &capsule, "-c", "node", "--stack", "-t", "60",
    ];
    let mut record = nsprobe(&record);
    let record = record.args(["--count", "200"]);
    output(record.arg(format!("{LIBC}:write if arg1 == 1"))).succeeded();
    container.remove().expect("nobody holds it");
    // Neither the process nor its map is there any more.
    let got = command::run(&["script", "--json", &capsule]).succeeded();
    assert_node_is_named(&stacks(&got));
    let got = command::run(&["report", "--folded", "-q", &capsule]).succeeded();
    let is_whole = |line: &&str| {
        let caller = line.find("callsTheWriter");
        caller.is_some_and(|at| line[at..].contains("writesALine"))
    };
    let counts = got.stdout.lines().filter(is_whole);
    let counts = counts.map(|line| line.rsplit(' ').next().unwrap_or(line));
    let count: usize = counts.map(|count| count.parse().unwrap_or(0)).sum();
    assert!(count >= 180, "{count}: {got:#?}");
}

/// All of them are, but those that came before node's own file was read: after that, nothing
/// leads to generated code.
fn assert_node_is_named(stacks: &[Vec<Value>]) {
    const EARLY_MAX: usize = 20;
    const SHORT_MAX: usize = 10;
    assert_eq!(stacks.len(), 200);
    let is_named = |frames: &Vec<Value>| {
        let functions = frames
            .iter()
            .filter(|frame| frame["names_from"] == "perf-map");
        let names = functions.filter_map(|frame| frame["functions"][0]["name"].as_str());
        let names: Vec<&str> = names.collect();
        let has = |wanted: &str| names.iter().any(|name| name.contains(wanted));
        has("writesALine") && has("callsTheWriter")
    };
    let early = stacks.iter().position(is_named).expect("none is named");
    let (before, behind) = stacks.split_at(early);
    println!("{early} of {} are early", stacks.len());
    assert!(early <= EARLY_MAX, "{early}");
    for frames in before {
        let why = frames.last().map(|frame| &frame["unresolved"]);
        assert_eq!(why, Some(&"its file is not read yet".into()), "{frames:#?}");
    }
    // A few end in the code of a file, before any generated code.
    let is_short = |frames: &&Vec<Value>| frames.iter().all(|frame| frame["path"].is_string());
    let unnamed = behind.iter().filter(|frames| !is_named(frames));
    let (short, nameless): (Vec<_>, Vec<_>) = unnamed.partition(is_short);
    println!(
        "{} of {} come to no generated code",
        short.len(),
        stacks.len()
    );
    assert!(short.len() <= SHORT_MAX, "{short:#?}");
    assert_eq!(nameless.first(), None);
}

/// Files that tell of the victim's code.
fn told_files() -> Vec<String> {
    let folders = [("/tmp", "perf-"), ("/var/tmp", "jit-")];
    let files = folders.iter().flat_map(|(folder, prefix)| {
        let entries = fs::read_dir(folder).expect("it is there").flatten();
        let names = entries.map(|entry| entry.path().display().to_string());
        names.filter(move |name| name.starts_with(&format!("{folder}/{prefix}")))
    });
    files.collect()
}

test! { full, a_capsule_names_the_code_of_its_time }
/// The same bytes are called otherwise later, the process ends, and its files are removed:
/// each hit has the name of its time.
fn a_capsule_names_the_code_of_its_time() {
    let _module = Module::load();
    let folder = Folder::new("code");
    let path = victim::path("generates");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    for (how, source) in [("map", "perf-map"), ("dump", "jitdump")] {
        let capsule = folder.path(how);
        let words = ["record", "-o", &capsule, "--stack", &spec, "--"];
        let words = [&words[..], &[path, how, "3"]].concat();
        command::run(&words).succeeded();
        let told = told_files();
        assert!(!told.is_empty(), "it told nothing of its code");
        for file in told {
            fs::remove_file(file).expect("it is the victim's");
        }
        let got = command::run(&["script", "--json", &capsule]).succeeded();
        let frames = of_the_victim(&got);
        assert_eq!(names(&frames), BOTH, "{got:#?}");
        assert!(frames.iter().all(|frame| frame["names_from"] == source));
        let got = command::run(&["report", "--folded", "-q", &capsule]).succeeded();
        let lines: Vec<&str> = got.stdout.lines().collect();
        let wanted = ["first;leaf 3", "second \\x1b[31m;leaf 3"];
        for wanted in wanted {
            let has = lines.iter().any(|line| line.ends_with(wanted));
            assert!(has, "{wanted}: {lines:#?}");
        }
    }
}
