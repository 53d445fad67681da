// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: files of containers are parsed by processes that can do nothing else, and what
//! becomes of these costs no other container's names.

#[path = "../../../../userland/worker/tests/support/endless.rs"]
mod endless;

use crate::command::{nsprobe, output, Running};
use crate::container::Container;
use crate::module::Module;
use crate::oracle::within;
use crate::sys;
use crate::victim;
use nix::libc;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where containers have `many_names`, or what was made of it.
const PROGRAM: &str = "/many_names";
/// Waits until the program is there, and becomes it.
const WAIT: &str = "while ! [ -x /begin ]; do sleep 0.1; done; exec /many_names";
const SPEC: &str = "libc.so.6:usleep";
const LIMIT: Duration = Duration::from_secs(60);
/// How long a parser may take for a file.
const PARSERS_TIME: Duration = Duration::from_secs(30);

/// A container that runs a program.
fn container(name: &str, program: &Path) -> Container {
    let container = Container::run(name, &["sh", "-c", WAIT]);
    container.copy(program, PROGRAM);
    container.copy(program, "/begin");
    container
}

fn trace(words: &[&str]) -> Running {
    let common = ["trace", SPEC, "--stack", "--json", "--no-cache"];
    Running::start(&[&common[..], words].concat())
}

/// The processes that parse for another.
fn parsers(of: u32) -> Vec<u32> {
    let wanted = format!("__parse\0{of}\0");
    let processes = fs::read_dir("/proc").expect("/proc is mounted");
    let is_parser = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&wanted)
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_parser)
        .collect()
}

/// The next hit of a process.
fn next_hit(trace: &mut Running, pid: u32) -> Value {
    let until = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < until, "no hit of {pid}");
        let line = trace.wait_for("\"hit\"", LIMIT);
        let hit: Value = serde_json::from_str(&line).expect("a line of JSON");
        if hit["pid"] == pid {
            return hit;
        }
    }
}

/// The frame of the program itself that called the C library, in a hit.
fn caller(hit: &Value) -> &Value {
    let frames = hit["stack"].as_array().expect("a stack");
    let is_program = |frame: &&Value| frame["path"].as_str().is_some_and(|path| path == PROGRAM);
    frames
        .iter()
        .find(is_program)
        .unwrap_or_else(|| panic!("no frame of the program: {hit}"))
}

fn name(frame: &Value) -> &str {
    frame["functions"][0]["name"].as_str().unwrap_or_default()
}

/// Why a frame has no name.
fn why(frame: &Value) -> &str {
    frame["unresolved"].as_str().unwrap_or_default()
}

/// The next hit of a process whose caller is in a file that was given up. Its other frames may
/// say so before it does: each place is asked for by itself.
fn given_up(trace: &mut Running, pid: u32) -> Value {
    const GIVEN_UP: &str = "the parser gave no answer within";
    loop {
        // Lines are not read as JSON up to there: that would take longer than printing them.
        let line = trace.wait_for(GIVEN_UP, 2 * LIMIT);
        let hit: Value = serde_json::from_str(&line).expect("a line of JSON");
        assert_eq!(hit["pid"], pid);
        if why(caller(&hit)).contains(GIVEN_UP) {
            return hit;
        }
    }
}

/// Asserts that the next hits of a process are named, by this number of different names; when the
/// last one was.
fn named(trace: &mut Running, pid: u32, count: usize) -> u64 {
    let (mut last, mut time_ns) = (String::new(), 0);
    for _ in 0..count {
        let hit = next_hit(trace, pid);
        let name = name(caller(&hit));
        assert!(name.starts_with("from_") && name != last, "{name}: {hit}");
        last = name.to_owned();
        time_ns = hit["time_ns"].as_u64().expect("a time");
    }
    time_ns
}

test! { core, parsers_have_no_privileges, seconds = 120 }
fn parsers_have_no_privileges() {
    let _module = Module::load();
    let container = container("pair-a", &victim::path("many_names"));
    let mut trace = trace(&["-c", "pair-a"]);
    named(&mut trace, container.pid(), 10);
    let parsers = parsers(trace.pid());
    // For names, more than one when there is much to do, and one for rows.
    assert!((2..=5).contains(&parsers.len()), "{parsers:?}");
    for pid in parsers {
        let path = format!("/proc/{pid}/status");
        let status = || fs::read_to_string(&path).expect("it lives");
        // The second one is started beside the trace, and gives up all of it at its start.
        within(LIMIT, || status().contains("Seccomp:\t2"));
        let status = status();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim_start_matches(':').trim())
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(value(set), Some("0000000000000000"), "{set}");
        }
        assert_eq!(value("Seccomp"), Some("2"));
        assert_eq!(value("NoNewPrivs"), Some("1"));
        assert_eq!(value("Uid"), Some("65534\t65534\t65534\t65534"));
        let first_to_go = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
        assert_eq!(first_to_go.expect("it lives").trim(), "1000");
    }
    let (code, errors) = trace.interrupt();
    assert_eq!(code, Some(0), "{errors}");
}

test! { full, parsers_are_there_before_the_first_hit, cpus = 2 }
/// Who has to be started first may come too late for the files of a container that is gone soon.
fn parsers_are_there_before_the_first_hit() {
    let _module = Module::load();
    let words = ["trace", "--stack", "--comm", "nobody", "libc.so.6:getppid"];
    let trace = Running::start(&words);
    // Two for names, as there are two CPUs, and one for rows.
    let all_there = within(LIMIT, || parsers(trace.pid()).len() == 3);
    assert!(all_there, "{:?}", parsers(trace.pid()));
    let (code, errors) = trace.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("0 recorded"), "{errors}");
}

test! { full, parsers_that_are_killed_cost_no_names, seconds = 120 }
fn parsers_that_are_killed_cost_no_names() {
    let _module = Module::load();
    let container = container("pair-a", &victim::path("many_names"));
    // podman is asked once: it takes a while to answer.
    let pid = container.pid();
    let mut trace = trace(&["-c", "pair-a"]);
    named(&mut trace, pid, 30);
    for _ in 0..4 {
        for pid in parsers(trace.pid()) {
            // One that was just killed may be gone.
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        // What is from before them says nothing, and a second death over one question is for
        // good.
        let killed_ns = sys::monotonic_ns();
        while named(&mut trace, pid, 1) < killed_ns {}
        named(&mut trace, pid, 30);
    }
    let pid = trace.pid();
    let (code, errors) = trace.interrupt();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    assert!(within(LIMIT, || parsers(pid).is_empty()));
}

/// Calls code that it has generated for ever, and says so in a map.
const GENERATES: &str = "while ! [ -x /begin ]; do sleep 0.1; done; exec /generates map 0";

fn generates(name: &str) -> Container {
    let container = Container::run(name, &["sh", "-c", GENERATES]);
    let program = victim::path("generates");
    container.copy(&program, "/generates");
    container.copy(&program, "/begin");
    container
}

/// Waits for a hit of a process whose generated frame is as wanted; all others are named.
fn generated(trace: &mut Running, pid: u32, is_wanted: impl Fn(&Value) -> bool) {
    let until = Instant::now() + LIMIT;
    loop {
        let hit = next_hit(trace, pid);
        let frames = hit["stack"].as_array().expect("a stack");
        assert_eq!(
            (name(&frames[0]), name(&frames[2])),
            ("leaf", "main"),
            "{hit}"
        );
        if is_wanted(&frames[1]) {
            return;
        }
        assert!(Instant::now() < until, "{hit}");
    }
}

test! { full, a_killed_parser_of_generated_code_costs_its_own_process_only, seconds = 150 }
fn a_killed_parser_of_generated_code_costs_its_own_process_only() {
    let _module = Module::load();
    let first = generates("generated-a");
    let words = [
        "trace",
        "/generates:leaf",
        "--stack",
        "--json",
        "--no-cache",
    ];
    let follow = ["-c", "generated-*", "--follow"];
    let mut trace = Running::start(&[&words[..], &follow].concat());
    let is_named = |frame: &Value| name(frame) == "first";
    generated(&mut trace, first.pid(), is_named);
    for pid in parsers(trace.pid()) {
        // One that was just killed may be gone.
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
    generated(&mut trace, first.pid(), |frame| {
        let why = frame["unresolved"].as_str().unwrap_or_default();
        why.contains("the parser died of SIGKILL")
    });
    let second = generates("generated-b");
    generated(&mut trace, second.pid(), is_named);
    generated(&mut trace, first.pid(), |frame| !is_named(frame));
    let (code, errors) = trace.interrupt();
    assert_eq!(code, Some(0), "{errors}");
}

/// Puts other bytes in the place of a section's.
fn replace_section(file: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let number = |file: &[u8], at: usize, length: usize| {
        let bytes = file.get(at..at + length).expect("inside the file");
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let table = number(file, 40, 8);
    let names = table + number(file, 62, 2) * 64;
    let names = number(file, names + 24, 8);
    let wanted = [name.as_bytes(), b"\0"].concat();
    let header = (0..number(file, 60, 2))
        .map(|index| table + index * 64)
        .find(|header| {
            let at = names + number(file, *header, 4);
            file[at..].starts_with(&wanted)
        })
        .unwrap_or_else(|| panic!("no section {name}"));
    let offset = file.len();
    file.extend(bytes);
    for (at, value) in [(8, 0), (24, offset), (32, bytes.len())] {
        file[header + at..header + at + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
}

/// A program whose debug information no parser gets through: a million empty units, for
/// each of which 40,000 abbreviations are read.
fn bomb() -> PathBuf {
    let mut file = fs::read(victim::path("many_names")).expect("the victim is there");
    replace_section(&mut file, ".debug_info", &endless::UNIT.repeat(1_000_000));
    replace_section(&mut file, ".debug_abbrev", &endless::abbreviations(40_000));
    let path = victim::path("many_names").with_extension("bomb");
    fs::copy(victim::path("many_names"), &path).expect("for its mode");
    fs::write(&path, file).expect("/var/tmp is writable");
    path
}

test! { full, a_file_that_its_parser_does_not_get_through_costs_its_own_names_only, cpus = 2, seconds = 330 }
fn a_file_that_its_parser_does_not_get_through_costs_its_own_names_only() {
    let _module = Module::load();
    let sound = container("pair-sound", &victim::path("many_names"));
    let mut trace = trace(&["-c", "pair-*", "--follow", "--timeout", "300"]);
    named(&mut trace, sound.pid(), 20);
    let hostile = container("pair-hostile", &bomb());
    // Output does not wait until the parser is given up.
    let hit = next_hit(&mut trace, hostile.pid());
    assert_eq!(
        (name(caller(&hit)), why(caller(&hit))),
        ("", "its file is not read yet"),
        "{hit}"
    );
    named(&mut trace, sound.pid(), 50);
    let hit = given_up(&mut trace, hostile.pid());
    assert_eq!(name(caller(&hit)), "");
    // Those of its libraries are as good as ever.
    assert_eq!(name(&hit["stack"][0]), "usleep");
    named(&mut trace, sound.pid(), 50);
    // It is asked about no more: that would take as long again.
    let begun = Instant::now();
    let hit = given_up(&mut trace, hostile.pid());
    assert_eq!(name(caller(&hit)), "");
    assert!(begun.elapsed() < PARSERS_TIME, "{:?}", begun.elapsed());
    let (code, errors) = trace.interrupt();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("the parser gave no answer"), "{errors}");
}

test! { full, parsers_keep_no_file_of_a_container, seconds = 150 }
fn parsers_keep_no_file_of_a_container() {
    let _module = Module::load();
    let first = container("pair-a", &victim::path("many_names"));
    let mut trace = trace(&["-c", "pair-*", "--follow"]);
    named(&mut trace, first.pid(), 20);
    let parsers = parsers(trace.pid());
    let held = |pid: &u32| {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
        links.filter_map(Result::ok).count()
    };
    assert!(parsers.iter().any(|pid| held(pid) > 3));
    first.remove().expect("nothing holds it");
    // The socket, and /dev/null for last words.
    let all_are_bare = || parsers.iter().all(|pid| held(pid) == 3);
    assert!(within(LIMIT, all_are_bare));
    let (code, errors) = trace.interrupt();
    assert_eq!(code, Some(0), "{errors}");
}

test! { full, without_a_sandbox_nothing_is_traced_unless_asked_for }
fn without_a_sandbox_nothing_is_traced_unless_asked_for() {
    let _module = Module::load();
    let program = victim::path("many_names");
    let spec = format!("{}:from_000", program.display());
    let traced = |words: &[&str]| {
        let mut command = nsprobe(&["trace", &spec, "--stack", "--count", "1"]);
        command.args(words).arg("--").arg(&program);
        sys::with_failing_call(&mut command, libc::SYS_seccomp, libc::EINVAL);
        output(&mut command)
    };
    let got = traced(&[]).refused(&["cannot be parsed safely", "--no-sandbox", "seccomp"]);
    assert_eq!(got.stdout, "");
    let got = traced(&["--no-sandbox"]).succeeded();
    assert!(got.stdout.contains("#1  main"), "{got:#?}");
}

/// A command line whose parsers are given up after a tenth of the usual time: what is shown
/// is that they are, and what of.
fn impatient(words: &[&str]) -> std::process::Command {
    let mut command = nsprobe(words);
    command.env("NSPROBE_PARSER_SECONDS", "6");
    command
}

/// Probes that need debug information, of which one in ten calls hits.
const TYPED: &str = "/many_names:from_??0(x)";

test! { core, a_probed_file_that_ends_its_parser_is_refused_and_others_are_traced, seconds = 290 }
fn a_probed_file_that_ends_its_parser_is_refused_and_others_are_traced() {
    let _module = Module::load();
    let _hostile = container("pair-hostile", &bomb());
    let _sound = container("pair-sound", &victim::path("many_names"));
    let traced = |name, probe| {
        let words = ["trace", "-c", name, probe, "--count", "2", "--json"];
        output(&mut impatient(&words))
    };
    let begun = Instant::now();
    let got = traced("pair-hostile", TYPED);
    println!("{}, after {:?}", got.stderr, begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(90));
    let got = got.refused(&[PROGRAM, "the parser gave no answer within"]);
    assert_eq!((got.code, got.stdout.as_str()), (1, ""));
    let got = traced("pair-sound", TYPED).succeeded();
    let is_hit = |line: &&str| line.contains("\"x\":") && line.contains("from_");
    assert_eq!(got.lines().filter(is_hit).count(), 2, "{got:#?}");
    // What needs no debug information is probed in both.
    for name in ["pair-hostile", "pair-sound"] {
        traced(name, "/many_names:from_??0").succeeded();
    }
}

test! { full, a_newcomer_that_ends_its_parser_is_left_out, seconds = 290 }
fn a_newcomer_that_ends_its_parser_is_left_out() {
    let _module = Module::load();
    let sound = container("pair-sound", &victim::path("many_names"));
    let words = ["trace", "-c", "pair-*", "--follow", TYPED, "--json"];
    let mut trace = Running::start_command(&mut impatient(&words));
    next_hit(&mut trace, sound.pid());
    let _hostile = container("pair-hostile", &bomb());
    let later = container("pair-later", &victim::path("many_names"));
    next_hit(&mut trace, later.pid());
    next_hit(&mut trace, sound.pid());
    let (code, errors) = trace.interrupt();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    let says = "container pair-hostile is not probed: /many_names: the parser gave no answer";
    assert!(errors.contains(says), "{errors}");
}
