// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line as its users see it, as far as that needs no module: help,
//! and what is said of bad input. Golden texts lie in `tests/golden`; after a
//! wanted change, `UPDATE_GOLDEN=1 cargo test -p nsprobe` writes them anew.

#[path = "../../worker/tests/support/endless.rs"]
mod endless;

use crate::support::{check_golden, Scratch};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nsprobe");

fn nsprobe(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

/// What a user sees of a run: the command, all output, the exit code.
fn transcript(arguments: &[&str]) -> String {
    let output = nsprobe(arguments);
    let mut text = format!("$ nsprobe {}\n", arguments.join(" "));
    text.push_str(&String::from_utf8(output.stdout).unwrap());
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    writeln!(text, "[exit {}]\n", output.status.code().unwrap()).unwrap();
    text
}

/// Fails, exits with `code`, prints nothing on standard output, and says all of
/// `parts` in one line.
fn refuses(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = nsprobe(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for part in parts {
        assert!(text.contains(part), "{arguments:?}: no {part:?} in {text}");
    }
    if code == 1 {
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("nsprobe: "), "{text}");
    }
}

/// The verbs, as the help lists them.
fn verbs() -> Vec<String> {
    let help = String::from_utf8(nsprobe(&["--help"]).stdout).unwrap();
    let lines = help.lines().take_while(|line| *line != "Options:");
    let verbs = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    verbs
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_is_as_written() {
    let mut text = transcript(&["--help"]);
    let verbs = verbs();
    assert!(verbs.len() > 15, "{verbs:?}");
    for verb in &verbs {
        text.push_str(&transcript(&[verb, "--help"]));
    }
    for format in ["ctf", "flamegraph"] {
        text.push_str(&transcript(&["export", format, "--help"]));
    }
    check_golden("help.txt", &text);
}

#[test]
fn short_help_fits_a_screen_and_has_an_example() {
    let formats = ["ctf", "flamegraph", "folded", "pprof", "otlp", "speedscope"];
    let verbs = verbs();
    let lines = verbs.iter().map(|verb| vec![verb.as_str(), "-h"]);
    for words in lines.chain(formats.map(|format| vec!["export", format, "-h"])) {
        let help = String::from_utf8(nsprobe(&words).stdout).unwrap();
        assert!(help.lines().count() <= 40, "{words:?}:\n{help}");
        let has_example = help.contains("\nExample:\n  nsprobe ");
        assert!(has_example, "{words:?}:\n{help}");
    }
}

#[test]
fn shells_and_man_have_what_help_has() {
    let script = String::from_utf8(nsprobe(&["completions", "bash"]).stdout).unwrap();
    // As bash does at Tab, with the words so far.
    let complete = |words: &str| {
        let ask = format!(
            "COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9\n\
             _clap_complete_nsprobe nsprobe \"${{COMP_WORDS[-1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        let folder = Path::new(env!("CARGO_BIN_EXE_nsprobe")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        bash.args(["-c", &format!("{script}\n{ask}")])
            .env("PATH", path);
        String::from_utf8(bash.output().unwrap().stdout).unwrap()
    };
    assert_eq!(complete("nsprobe symb"), "symbolize\n");
    assert_eq!(
        complete("nsprobe count --by pid,co"),
        "pid,comm pid,container\n"
    );
    assert_eq!(complete("nsprobe report --by nsp"), "nspid\n");
    assert_eq!(complete("nsprobe trace --kernel-s"), "--kernel-stack\n");
    // No file is a container.
    assert!(!complete("nsprobe trace -c /etc/host").contains("/etc"));
    let scratch = Scratch::new("man");
    assert!(nsprobe(&["man", &scratch.path(".")]).status.success());
    let page = fs::read_to_string(scratch.path("nsprobe-trace.1")).unwrap();
    assert!(page.contains("kernel\\-stack"), "{page}");
}

#[test]
fn top_without_a_terminal_says_what_to_do() {
    refuses(&["top"], 1, &["terminal", "--batch", "--json"]);
    refuses(&["top", "--batch", "-n", "0"], 2, &["--count"]);
    refuses(&["ps", "--columns", "pid,nothing"], 2, &["nothing"]);
    refuses(
        &["ps", "-c", "no-such-container"],
        1,
        &["no-such-container"],
    );
}

#[test]
fn bad_command_lines_are_answered_with_code_2() {
    let mut text = String::new();
    for arguments in [
        &[][..],
        &["trace"],
        &["trace", "redis-server"],
        &["trace", "redis-server:"],
        &["trace", ":main"],
        &["trace", "/usr/bin/:main"],
        &["trace", "-c", "web", "-p", "1", "a:f"],
        &["trace", "-p", "1", "a:f", "--", "true"],
        &["trace", "-p", "zero", "a:f"],
        &["trace", "--count", "0", "a:f"],
        &["trace", "--timeout", "soon", "a:f"],
        &["trace", "--timeout", "-1", "a:f"],
        &["trace", "--ring-size", "0", "a:f"],
        &["trace", "--ring-size", "5000", "a:f"],
        &["trace", "--ring-size", "1G", "a:f"],
        &["trace", "--ring-size", "1024M", "a:f"],
        &["record", "a:f"],
        &["record", "-o", "x", "--json", "a:f"],
        &["record", "-o", "x"],
        &["record", "-o", "x", "--all", "-c", "web"],
        &["record", "-o", "x", "--all", "--every", "5"],
        &["record", "-o", "x", "-c", "web", "--keep-rows", "300"],
        &["record", "-o", "x", "--no-tasks", "--", "true"],
        &["record", "-o", "x", "-p", "1", "-n", "5"],
        &["record", "-o", "x", "--all", "--follow"],
        &["script"],
        &["report", "x", "--by", "size"],
        &["symbolize", "--capsule", "x"],
        &["list", ":main"],
        &["trase"],
    ] {
        text.push_str(&transcript(arguments));
    }
    check_golden("usage.txt", &text);
}

#[test]
fn a_process_that_does_not_exist_is_named() {
    refuses(&["trace", "-p", "4194305", "/bin/sh:main"], 1, &["4194305"]);
    refuses(&["list", "-p", "4194305", "/bin/sh"], 1, &["4194305"]);
}

#[test]
fn a_container_that_does_not_exist_is_named() {
    let arguments = ["trace", "-c", "no-such-container", "/bin/sh:main"];
    refuses(&arguments, 1, &["no-such-container"]);
}

#[test]
fn what_is_no_binary_is_told_as_what_it_is() {
    let scratch = Scratch::new("kinds");
    let (text, fifo) = (scratch.path("text"), scratch.path("fifo"));
    fs::write(&text, "#!/bin/sh\n").unwrap();
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    for (path, what) in [
        ("/etc", "directory"),
        (fifo.as_str(), "named pipe"),
        ("/dev/null", "character device"),
        (text.as_str(), "ELF"),
    ] {
        refuses(&["trace", &format!("{path}:main")], 1, &[path, what]);
        refuses(&["list", path], 1, &[path, what]);
    }
}

#[test]
fn names_that_are_not_there_are_answered_with_similar_ones() {
    let near = format!("{PROGRAM}x");
    refuses(&["list", &near], 1, &["no file", "nsprobe"]);
    let spec = format!("{PROGRAM}:mainn");
    refuses(&["trace", &spec], 1, &["no function mainn in", "main"]);
    let spec = format!("{PROGRAM}:main");
    let key = ["count", &spec, "--by", "contaner"];
    let points = "\n    contaner\n    ^^^^^^^^";
    refuses(
        &key,
        2,
        &["did you mean container?", "keys are func", points],
    );
    refuses(&["trace", "no-such-program:main"], 1, &["no-such-program"]);
    let command = ["trace", "sh:main", "--", "no-such-program"];
    refuses(&command, 1, &["no command `no-such-program`"]);
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let spec = "/tmp/\u{1b}[31m\u{202e}\nx:main";
    let output = nsprobe(&["trace", spec]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
}

#[test]
fn functions_are_listed_by_readable_names() {
    let output = nsprobe(&["list", &format!("{PROGRAM}:main")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.lines().any(|line| line == "main"), "{text}");
    let output = nsprobe(&["list", "--json", &format!("{PROGRAM}:mai?")]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.contains("\"symbol\":\"main\""), "{line}");
    assert!(line.contains("\"file_offset\":\"0x"), "{line}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut list = Command::new(PROGRAM)
        .args(["list", PROGRAM])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::with_capacity(16, list.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let output = list.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}

#[test]
fn without_the_module_the_answer_is_how_to_load_it() {
    if Path::new("/dev/nsprobe").exists() {
        nsprobe_testing::unfit("the module is loaded here");
        return;
    }
    refuses(&["status"], 1, &["/dev/nsprobe", "modprobe nsprobe"]);
    let spec = format!("{PROGRAM}:main");
    refuses(&["trace", &spec], 1, &["modprobe nsprobe"]);
    refuses(
        &["trace", &spec, "--", "sleep", "60"],
        1,
        &["modprobe nsprobe"],
    );
}

#[test]
fn a_stopped_command_becomes_the_command_when_it_is_continued() {
    let mut child = Command::new(PROGRAM)
        .args(["exec-stopped", "--", "/bin/sh", "sh", "-c", "exit 7"])
        .spawn()
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let flags = nix::sys::wait::WaitPidFlag::WUNTRACED;
    let status = nix::sys::wait::waitpid(pid, Some(flags)).unwrap();
    assert!(matches!(status, nix::sys::wait::WaitStatus::Stopped(..)));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// A program whose debug information no parser gets through: a million empty units, for
/// each of which 40,000 abbreviations are read.
fn endless_program(scratch: &Scratch) -> String {
    let (source, info, abbrev, program) = (
        scratch.path("endless.c"),
        scratch.path("info"),
        scratch.path("abbrev"),
        scratch.path("endless"),
    );
    fs::write(&source, "int main(int argc, char **argv) { return argc; }").unwrap();
    fs::write(&info, endless::UNIT.repeat(1_000_000)).unwrap();
    fs::write(&abbrev, endless::abbreviations(40_000)).unwrap();
    let made = nsprobe_testing::compiler("gcc")
        .args(["-o", &program, &source])
        .status();
    assert!(made.unwrap().success());
    let made = Command::new("objcopy")
        .arg(format!("--add-section=.debug_info={info}"))
        .arg(format!("--add-section=.debug_abbrev={abbrev}"))
        .arg(&program)
        .status();
    assert!(made.unwrap().success());
    program
}

/// The process that parses for another, when it has parsed for a while: what is killed before
/// has not begun.
fn parser(of: u32) -> Option<i32> {
    let wanted = format!("__parse\0{of}\0");
    let is_parser = |pid: &i32| {
        let read = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let behind_name = stat.rsplit(") ").next();
        let ticks = behind_name.and_then(|fields| fields.split(' ').nth(11)?.parse().ok());
        String::from_utf8_lossy(&read("cmdline")).contains(&wanted) && ticks > Some(20u64)
    };
    let processes = fs::read_dir("/proc").unwrap();
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut processes = processes.filter_map(|entry| pid(entry.ok()?));
    processes.find(is_parser)
}

#[test]
fn a_probed_file_that_ends_its_parser_is_refused_by_its_name() {
    let scratch = Scratch::new("ends-its-parser");
    let program = endless_program(&scratch);
    // What needs no debug information is found in it.
    let output = nsprobe(&["list", &format!("{program}:main")]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "main\n");
    let mut trace = Command::new(PROGRAM)
        .args(["trace", &format!("{program}:main(argc)")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The parser is killed, and the one that comes after it.
    let mut killed = Vec::new();
    let until = Instant::now() + Duration::from_secs(100);
    while trace.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "killed {killed:?}");
        if let Some(pid) = parser(trace.id()).filter(|pid| !killed.contains(pid)) {
            let pid = nix::unistd::Pid::from_raw(pid);
            if nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).is_ok() {
                killed.push(pid.as_raw());
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let output = trace.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), killed.len()), (Some(1), 2), "{text}");
    let says = format!("nsprobe: {program}: the parser died of SIGKILL on this file\n");
    assert_eq!(text, says);
}

#[test]
fn what_the_agent_is_to_do_is_checked() {
    let scratch = Scratch::new("agent");
    let path = scratch.path("agent.toml");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let documented = text("docs/agent.md");
    let documented = documented.split("```").nth(1).unwrap();
    let documented = documented.strip_prefix("toml").unwrap().to_owned();
    for (right, about) in [
        (documented, "2 metrics, 1 profile, 1 recording"),
        (
            text("packages/agent.toml"),
            "1 metric, 0 profiles, 0 recordings",
        ),
    ] {
        fs::write(&path, right).unwrap();
        let output = nsprobe(&["agent", "--check", &path]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{:?}", output.stderr);
        assert_eq!(said, format!("{path}: {about}\n"));
    }
    fs::write(&path, "metrics = 1\n").unwrap();
    refuses(
        &["agent", "--check", &path],
        2,
        &[&path, "unknown field `metrics`"],
    );
    let missing = scratch.path("missing");
    refuses(
        &["agent", "--check", &missing],
        2,
        &["cannot read", &missing],
    );
}
