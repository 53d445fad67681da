// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever files, functions and threads are called, they forge no line, no frame, no
//! count and no container of what is printed, and are found by their names.

use super::capsule::{lines, Folder};
use crate::binary;
use crate::command::{self, Output};
use crate::debug_files::tool;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::processes::Killed;
use crate::tasks::Kept;
use crate::victim;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Of a file, and so of its threads: like a line of /proc/PID/maps, and what a terminal obeys.
const FILE: &str = "e\n7f00-8000 r-xp 0 00 1 (deleted)\u{1b}[2J\u{202e};main 9";
/// What a thread's name has room for.
const COMM: &str = "e\n7f00-8000 r-x";
/// Of a function: a frame, a count and a line more.
const FUNCTION: &str = "f;main 77\n\u{1b}[31mroot";
/// How it is printed in folded stacks.
const FOLDED: &str = "f:main 77\\n\\x1b[31mroot";

/// A program of such names, which calls the function all the time.
fn program(folder: &Folder) -> String {
    let (from, to) = (victim::path("named"), folder.path(FILE));
    let from = from.to_str().expect("a plain name");
    let rename = format!("charge={FUNCTION}");
    tool(
        "objcopy",
        &["--strip-debug", "--redefine-sym", &rename, from, &to],
    );
    to
}

/// Asserts that nothing but ends of lines is there that a terminal does not show as it is, and
/// that no line is the second one of a name.
fn is_harmless(got: &Output) {
    for text in [&got.stdout, &got.stderr] {
        let harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(harmful), "{text:?}");
        let forged = text.lines().find(|line| line.starts_with("7f00-8000"));
        assert_eq!(forged, None, "{text}");
    }
    let is_ours = |line: &str| line.starts_with("nsprobe: ") || line.starts_with(' ');
    assert!(got.stderr.lines().all(is_ours), "{got:#?}");
}

fn run(words: &[&str]) -> Output {
    let got = command::run(words).succeeded();
    is_harmless(&got);
    got
}

/// Asserts that a hit has the names as they are; how many frames it has.
fn frames_of(hit: &Value, path: &str) -> usize {
    let stack = hit["stack"].as_array().expect("a stack");
    assert_eq!(hit["comm"], COMM, "{hit}");
    assert_eq!(hit["binary"], path, "{hit}");
    assert_eq!(stack[0]["functions"][0]["name"], FUNCTION, "{hit}");
    assert_eq!(stack[0]["path"], path, "{hit}");
    stack.len()
}

/// Asserts that each folded stack has this many frames, the function innermost; how many hits
/// they count.
fn folded(got: &Output, frames: usize) -> u32 {
    let counts = got.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        let words: Vec<&str> = stack.split(';').collect();
        assert_eq!(
            (words.len(), words.last()),
            (frames, Some(&FOLDED)),
            "{line}"
        );
        count.parse::<u32>().expect("a number")
    });
    counts.sum()
}

/// Asserts that a namespace is listed as that alone whose maker calls itself, by a link and by
/// arguments, what watches over containers.
fn monitors_are_not_believed(folder: &Folder) {
    let forged = [
        ("su", "[lxc monitor] /var/lib/lxc", " victim"),
        ("conmon", "conmon", "--cid=victim"),
    ];
    let _forged = forged.map(|(name, arguments, last)| {
        let link = folder.path(name);
        symlink("/usr/bin/unshare", &link).expect("ours");
        let mut unshare = Command::new(link);
        unshare.arg0(arguments).args(["-Upf", "--kill-child"]);
        unshare.args(["sh", "-ec", "sleep 1000; :", last]);
        Killed(unshare.spawn().expect("it is in the guest"))
    });
    let mut got = String::new();
    let are_bare = within(SOON, || {
        got = run(&["containers", "--all"]).stdout;
        let bare = got.lines().filter(|line| line.starts_with("pid:["));
        bare.count() == forged.len()
    });
    assert!(are_bare && !got.contains("victim"), "{got}");
}

test! { core, hostile_names_forge_nothing_that_is_printed, seconds = 150 }
fn hostile_names_forge_nothing_that_is_printed() {
    let _module = Module::load();
    let folder = Folder::new("hostile-names");
    monitors_are_not_believed(&folder);
    let path = program(&folder);
    let offset = binary::function(Path::new(&path), FUNCTION).offset;
    let started = Kept::start(&path, &[]);
    let pid = started.pid().to_string();
    let by_path = format!("{path}:{offset:#x}");
    let by_name = format!("{FILE}:{offset:#x}");
    let capsule = folder.path("x.nsprobe");

    let common = ["trace", "--stack", "-n", "3", "-t", "30", "-p", &pid];
    let got = run(&[&common[..], &["--json", &by_path]].concat());
    assert!(got.stdout.is_ascii(), "{got:#?}");
    let objects = lines(&got.stdout);
    let hits = objects.iter().filter(|line| line["type"] == "hit");
    let frames: Vec<usize> = hits.map(|hit| frames_of(hit, &path)).collect();
    let [frames, ..] = frames[..] else {
        panic!("{got:#?}")
    };
    assert_eq!(objects.len(), 4, "{got:#?}");
    let got = run(&[&common[..], &[&by_name]].concat());
    assert_eq!(got.lines().count(), 3 * (1 + frames), "{got:#?}");

    let got = run(&["stacks", "--folded", "-t", "5", "-p", &pid, &by_path]);
    assert!(folded(&got, frames) > 0, "{got:#?}");
    let got = run(&["count", "--by", "comm", "-t", "5", "-p", &pid, &by_path]);
    assert_eq!(got.lines().count(), 2, "{got:#?}");
    let got = run(&["ps", "--all", "--columns", "pid,comm,command"]);
    let of_it = got
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(&pid));
    assert_eq!(of_it.count(), 1, "{got:#?}");
    run(&["list", &format!("{path}:main")]);
    run(&["verify", "-p", &pid, &by_path]);
    run(&[
        "record", "-o", &capsule, "--stack", "-n", "3", "-t", "30", "-p", &pid, &by_path,
    ]);
    let of_capsule = |words: &[&str]| run(&[words, &["-q", &capsule]].concat());
    let got = of_capsule(&["script"]);
    assert_eq!(got.lines().count(), 3 * (1 + frames), "{got:#?}");
    // It counts all hits that are recorded, of which some came after the third.
    let got = of_capsule(&["report", "--by", "comm"]);
    let rows = got
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(' '));
    assert_eq!(rows.count(), 1, "{got:#?}");
    assert!(folded(&of_capsule(&["report", "--folded"]), frames) >= 3);
    run(&["info", &capsule]);
}
