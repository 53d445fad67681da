// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the program does what its help says, accounts for what it did, and
//! leaves nothing, however it ends.

use super::capsule::Folder;
use crate::binary::{self, Function};
use crate::command::{self, nsprobe, output, Running};
use crate::lab::Lab;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::session::Session;
use crate::threads::Stop;
use crate::victim::{self, Victim};
use nix::fcntl::{renameat2, RenameFlags, AT_FDCWD};
use nsprobe_common::abi;
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn path(name: &str) -> String {
    let path = victim::path(name);
    path.to_str().expect("a plain name").to_string()
}

fn hits(stdout: &str, function: &str) -> usize {
    let label = format!(":{function}");
    stdout.lines().filter(|line| line.contains(&label)).count()
}

fn nothing_is_left() -> bool {
    let info = Session::open().info();
    (info.sessions, info.probes) == (1, 0)
}

test! { core, a_command_is_traced_from_its_first_instruction_to_its_end }
fn a_command_is_traced_from_its_first_instruction_to_its_end() {
    let lab = Lab::new();
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    let got = lab
        .nsprobe(&["trace", &spec, "--", &program, "25"])
        .succeeded();
    println!("{}", got.stderr);
    assert_eq!(hits(&got.stdout, "short_work"), 25, "{}", got.stdout);
    // main is called before any tracer could have looked for the process.
    let spec = format!("{program}:main");
    let got = lab
        .nsprobe(&["trace", &spec, "--", &program, "1"])
        .succeeded();
    assert_eq!(hits(&got.stdout, "main"), 1, "{}", got.stdout);
    // nsprobe disables huge pages for itself, not for the command.
    let both = "grep -h THP_enabled /proc/self/status /proc/$PPID/status";
    let got = lab
        .nsprobe(&["trace", &spec, "--", "/bin/sh", "-c", both])
        .succeeded();
    assert_eq!(got.stdout, "THP_enabled:\t1\nTHP_enabled:\t0\n");
    assert!(nothing_is_left());
}

test! { full, a_command_that_fails_fails_the_trace }
fn a_command_that_fails_fails_the_trace() {
    let _module = Module::load();
    let spec = path("exit_soon") + ":short_work";
    let got = command::run(&["trace", &spec, "--", "/bin/false"]);
    assert_ne!(got.code, 0, "{got:#?}");
    let got = command::run(&["trace", &spec, "--", "/no/such/command"]).refused(&["/no/such"]);
    assert_eq!(got.stdout, "");
    assert!(nothing_is_left());
}

test! { full, count_and_timeout_end_a_trace }
fn count_and_timeout_end_a_trace() {
    let _module = Module::load();
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "2000"]);
    let spec = path("call_in_loop") + ":begins_with_push";
    let pid = victim.pid().to_string();
    for count in ["1", "17"] {
        let words = [
            "trace",
            "-p",
            &pid,
            "--count",
            count,
            "--timeout",
            "30",
            &spec,
        ];
        let got = command::run(&words).succeeded();
        assert_eq!(hits(&got.stdout, "begins_with_push").to_string(), count);
    }
    let started = Instant::now();
    let got = command::run(&["trace", "-p", &pid, "--timeout", "4.5", &spec]).succeeded();
    let elapsed = started.elapsed();
    assert!(hits(&got.stdout, "begins_with_push") > 10, "{got:#?}");
    let wanted = Duration::from_millis(4500)..Duration::from_secs(30);
    assert!(wanted.contains(&elapsed), "{elapsed:?}");
    assert!(nothing_is_left());
}

test! { full, one_process_of_several_is_traced }
fn one_process_of_several_is_traced() {
    let _module = Module::load();
    let start = || Victim::start("call_in_loop", &["begins_with_mov", "0", "2000"]);
    let (wanted, other) = (start(), start());
    let spec = path("call_in_loop") + ":begins_with_mov";
    let pid = wanted.pid().to_string();
    let words = [
        "trace",
        "-p",
        &pid,
        "--json",
        "--count",
        "20",
        "--timeout",
        "30",
        &spec,
    ];
    let got = command::run(&words).succeeded();
    let pids: Vec<u64> = objects(&got.stdout)
        .filter(|line| line["type"] == "hit")
        .filter_map(|line| line["pid"].as_u64())
        .collect();
    assert_eq!(pids, [u64::from(wanted.pid()); 20], "not {}", other.pid());
}

fn objects(stdout: &str) -> impl Iterator<Item = Value> + '_ {
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
}

test! { full, wildcards_probe_every_match }
fn wildcards_probe_every_match() {
    let _module = Module::load();
    let mut victim = Victim::start("chain", &[]);
    let pid = victim.pid().to_string();
    let spec = path("chain") + ":level_*";
    let watcher = Session::open();
    let mut running = Running::start(&["trace", "-p", &pid, "--timeout", "30", &spec]);
    let attached = within(Duration::from_secs(10), || watcher.info().probes == 15);
    assert!(attached, "{} probes", watcher.info().probes);
    victim.call(1);
    running.wait_for("level_01", Duration::from_secs(20));
    running.wait_for("level_15", Duration::from_secs(20));
}

test! { core, each_line_of_json_is_an_object_and_they_add_up }
fn each_line_of_json_is_an_object_and_they_add_up() {
    let _module = Module::load();
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    let words = ["trace", "--json", "--stack", &spec, "--", &program, "300"];
    let got = command::run(&words).succeeded();
    let lines: Vec<Value> = objects(&got.stdout).collect();
    let of_type = |wanted: &str| lines.iter().filter(|line| line["type"] == wanted).count();
    println!("{}", lines.last().expect("a summary"));
    assert_eq!(of_type("hit"), 300);
    assert_eq!(of_type("summary"), 1);
    let last = lines.last().expect("a summary");
    assert_eq!(last["type"], "summary");
    let counters = &last["probes"][0];
    let number = |name: &str| counters[name].as_u64().unwrap_or(u64::MAX);
    assert_eq!((number("hits"), number("recorded")), (300, 300), "{last}");
    for line in lines.iter().filter(|line| line["type"] == "hit") {
        let frame = &line["stack"][1]["functions"][0];
        assert_eq!(frame["name"], "main", "{line}");
    }
}

test! { full, list_shows_what_can_be_probed }
fn list_shows_what_can_be_probed() {
    let listed = command::run(&["list", &(path("chain") + ":level_")]).succeeded();
    assert_eq!(
        listed
            .lines()
            .filter(|line| line.contains("level_"))
            .count(),
        15
    );
    assert!(!listed.stdout.contains("bottom"));
    let listed = command::run(&["list", "--json", &path("chain")]).succeeded();
    assert!(objects(&listed.stdout).count() > 15);
}

test! { full, a_reader_that_leaves_ends_the_trace_well }
fn a_reader_that_leaves_ends_the_trace_well() {
    let _module = Module::load();
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "1000"]);
    let spec = path("call_in_loop") + ":begins_with_push";
    let pid = victim.pid().to_string();
    let mut child = nsprobe(&["trace", "-p", &pid, "--timeout", "30", &spec])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is in the payload");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("a line");
    drop(stdout);
    let mut status = None;
    let ended = within(Duration::from_secs(10), || {
        status = child.try_wait().expect("ours");
        status.is_some()
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended, "it writes to nobody");
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    assert!(nothing_is_left());
}

test! { core, ctrl_c_ends_a_trace_with_its_summary }
fn ctrl_c_ends_a_trace_with_its_summary() {
    let lab = Lab::new();
    let words = ["begins_with_push", "0", "2000"];
    let victim = lab.victim("call_in_loop", &words, "begins_with_push");
    let spec = path("call_in_loop") + ":begins_with_push";
    let pid = victim.pid().to_string();
    let mut running = lab.tracing(1, &["trace", "-p", &pid, "--timeout", "100", &spec]);
    running.wait_for("begins_with_push", SOON);
    let (code, errors) = running.interrupt();
    println!("{errors}");
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("hits"), "{errors}");
    assert!(nothing_is_left());
}

test! { full, a_program_that_gets_no_memory_says_so_and_leaves_nothing, seconds = 120 }
/// What is missing first is the process that parses; 64 MB are enough for all.
fn a_program_that_gets_no_memory_says_so_and_leaves_nothing() {
    let _module = Module::load();
    let program = path("exit_soon");
    let spec = format!("{program}:short_work");
    for (megabytes, is_enough) in [(16, false), (64, true)] {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--as={}", megabytes << 20));
        let words = ["/payload/nsprobe", "trace", "--stack", &spec, "--"];
        let got = output(limited.args(words).args([&program, "3"]));
        println!("{megabytes} MB: {got:#?}");
        assert!(nothing_is_left(), "{megabytes} MB");
        if is_enough {
            assert_eq!(hits(&got.succeeded().stdout, "short_work"), 3);
        } else {
            got.refused(&["the parser process ended"]);
        }
    }
}

test! { full, a_module_of_another_version_is_refused }
/// A debugger changes the module's answer in the program's memory: the only
/// other way would be a second module.
fn a_module_of_another_version_is_refused() {
    let _module = Module::load();
    let spec = path("exit_soon") + ":short_work";
    let condition = format!("condition 1 $rsi == {:#x}", abi::INFO);
    let commands = [
        // Of its own accord it would expect Rust here, or not, as the build has it.
        "set language c",
        "set pagination off",
        "set startup-with-shell off",
        "handle SIGCHLD nostop noprint",
        "catch syscall ioctl",
        &condition,
        "run",
        "continue",
        // nsprobe_info.version and version_min.
        "set {int}($rdx + 8) = 99",
        "set {int}($rdx + 12) = 98",
        "delete",
        "continue",
        "print $_exitcode",
    ];
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    gdb.args(["--args", command::FILE, "trace", "--timeout", "10", &spec]);
    let got = output(gdb.stdin(Stdio::null()));
    println!("{}{}", got.stdout, got.stderr);
    let text = got.stdout + &got.stderr;
    let ours = format!("version {}", abi::Version::CURRENT as u32);
    for part in ["versions 98 to 99", &ours, "same release", "$1 = 1"] {
        assert!(text.contains(part), "no {part:?}");
    }
}

/// The inode and the offset of the one probe that a process has, as the kernel tells them.
fn probe_of(pid: u32) -> (u64, u64) {
    let folder = format!("/proc/{pid}/fdinfo");
    let files = fs::read_dir(&folder).expect("it lives");
    let texts = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
    let lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("probe:"))
        .collect();
    let [line] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    // `probe: ID dev D ino I offset 0xO …`
    let words: Vec<&str> = line.split_whitespace().collect();
    let offset = words[7].trim_start_matches("0x");
    let (inode, offset) = (words[5].parse(), u64::from_str_radix(offset, 16));
    (inode.expect(line), offset.expect(line))
}

test! { full, a_path_that_changes_meanwhile_is_one_file, seconds = 120 }
/// Another program takes its place and gives it back, all the time. The function is where the
/// file that is probed has it, not where the other one has.
fn a_path_that_changes_meanwhile_is_one_file() {
    const ROUNDS: usize = 5;
    let _module = Module::load();
    let folder = Folder::new("swapped");
    let files = ["served", "served_update"].map(|name| {
        let file = folder.path(name);
        fs::copy(victim::path(name), &file).expect("there is room");
        let inode = fs::metadata(&file).expect("it is there").ino();
        let function = binary::function(Path::new(&file), "real_caller");
        (file, inode, function)
    });
    let [(file, _, one), (other_file, _, other)] = &files;
    let is_in = |a: &Function, b: &Function| a.holds(b.offset) || b.holds(a.offset);
    assert!(!is_in(one, other), "{one:?} {other:?}");
    let spec = format!("{file}:real_caller");
    let (done, mut probed) = (AtomicBool::new(false), HashSet::new());
    std::thread::scope(|scope| {
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (here, exchange) = (AT_FDCWD, RenameFlags::RENAME_EXCHANGE);
                let swapped = renameat2(here, file.as_str(), here, other_file.as_str(), exchange);
                swapped.expect("both are ours");
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        for round in 0..ROUNDS {
            let mut trace = Running::start(&["trace", &spec]);
            trace.attached(1);
            let (inode, offset) = probe_of(trace.pid());
            println!("round {round}: {inode} {offset:#x}");
            let of = files.iter().find(|(_, is, _)| *is == inode);
            let (_, _, function) = of.expect("one of the two");
            assert!(function.holds(offset), "{offset:#x} of {function:?}");
            probed.insert(inode);
            assert_eq!(trace.interrupt().0, Some(0));
        }
    });
    println!("{} of two files were probed", probed.len());
}
