// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what is said of a container comes from that container, goes for
//! that container only, and does not hold it.

use crate::binary;
use crate::command::{self, nsprobe, output, Output, Running};
use crate::container::{pid_namespace, pid_space, Container, Root};
use crate::lab::Lab;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::processes::code_of;
use crate::records::Records;
use crate::session::{size, Session, RING_BYTES};
use crate::sys;
use crate::victim;
use crate::witness::Witness;
use nix::libc;
use nsprobe_common::abi::{self, Filter};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the container has `served` and the host `served_on_host`.
const PROGRAM: &str = "/usr/local/bin/served";

/// A file of the host's at the path of a container's; gone with the value.
struct Decoy;

impl Decoy {
    fn new() -> Decoy {
        fs::create_dir_all("/usr/local/bin").expect("the root is writable");
        fs::copy(victim::path("served_on_host"), PROGRAM).expect("the decoy is there");
        Decoy
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        let _ = fs::remove_file(PROGRAM);
    }
}

fn served() -> Root {
    Root::with("served", PROGRAM)
}

/// Asserts that no name of the host's file is anywhere.
fn without_decoy(output: Output) -> Output {
    for text in [&output.stdout, &output.stderr] {
        assert!(
            !text.contains("decoy_"),
            "the host's file was read: {output:#?}"
        );
    }
    output
}

const TRACE: [&str; 6] = ["trace", "-c", "served", "--stack", "--timeout", "30"];

test! { core, names_come_from_the_container_beside_a_decoy, seconds = 120 }
fn names_come_from_the_container_beside_a_decoy() {
    let _module = Module::load();
    let _decoy = Decoy::new();
    let root = served();
    let container = Container::over("served", &root.folder, &[PROGRAM]);
    let spec = format!("{PROGRAM}:real_function");
    let got = output(nsprobe(&TRACE).args(["--count", "5", &spec])).succeeded();
    let got = without_decoy(got);
    println!("{}{}", got.stdout, got.stderr);
    for name in ["real_function", "real_caller", "main", PROGRAM] {
        assert!(got.stdout.contains(name), "no {name}: {}", got.stdout);
    }
    let hits = got
        .lines()
        .filter(|line| line.contains("served:real_function"));
    assert_eq!(hits.count(), 5);
    // The same for machines.
    let got = output(nsprobe(&TRACE).args(["--count", "3", "--json", &spec])).succeeded();
    let got = without_decoy(got);
    let pid = container.pid();
    let mut hits = 0;
    for line in got.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        if line["type"] != "hit" {
            continue;
        }
        hits += 1;
        assert_eq!(line["pid"], pid);
        assert_eq!(line["container_pid"], 1);
        assert_eq!(line["pid_namespace"], pid_namespace(pid));
        let name = |frame: usize| line["stack"][frame]["functions"][0]["name"].clone();
        assert_eq!(
            [name(0), name(1), name(2)],
            ["real_function", "real_caller", "main"]
        );
    }
    assert_eq!(hits, 3);
    // The decoy's function is not in the container, and the answer knows it.
    let spec = format!("{PROGRAM}:decoy_function");
    let got = output(nsprobe(&TRACE).arg(&spec)).refused(&["decoy_function"]);
    assert!(!got.stderr.contains("decoy_caller"), "{got:#?}");
    let listed = command::run(&["list", "-c", "served", PROGRAM]).succeeded();
    let listed = without_decoy(listed);
    assert!(listed.lines().any(|line| line.contains("real_caller")));
}

test! { core, a_namespace_that_cannot_be_joined_is_an_error, seconds = 120 }
/// In a user namespace, with seccomp or a broken kernel `setns` fails; then
/// the host's file of that name is the worst of all answers.
fn a_namespace_that_cannot_be_joined_is_an_error() {
    let _module = Module::load();
    let _decoy = Decoy::new();
    let root = served();
    let container = Container::over("served", &root.folder, &[PROGRAM]);
    let pid = container.pid().to_string();
    let who: [&[&str]; 2] = [&["-c", "served"], &["-p", &pid]];
    for who in who {
        for function in ["real_function", "decoy_function"] {
            let spec = format!("{PROGRAM}:{function}");
            for errno in [libc::EPERM, libc::EINVAL, libc::ENOMEM] {
                let mut command = nsprobe(&["trace", "--stack", "--timeout", "10"]);
                command.args(who).arg(&spec);
                sys::with_failing_call(&mut command, libc::SYS_setns, errno);
                let got = output(&mut command).refused(&["namespace"]);
                println!("{}", got.stderr.trim_end());
                assert_eq!(got.stdout, "", "{got:#?}");
                assert!(!got.stderr.contains("decoy_caller"), "{got:#?}");
            }
            // May open the device, may not join: no CAP_SYS_ADMIN, which setns
            // wants, nor CAP_SYS_CHROOT.
            let mut command = nsprobe(&["trace", "--stack", "--timeout", "10"]);
            command.args(who).arg(&spec);
            sys::without_capabilities(&mut command, &[21, 18]);
            let got = output(&mut command).refused(&["namespace"]);
            println!("{}", got.stderr.trim_end());
            assert_eq!(got.stdout, "", "{got:#?}");
            assert!(!got.stderr.contains("decoy_caller"), "{got:#?}");
        }
    }
    let info = Session::open().info();
    assert_eq!((info.sessions, info.probes), (1, 0));
}

/// Mount points of containers that the host still has.
pub(super) fn overlays() -> usize {
    let mounts = fs::read_to_string("/proc/mounts").expect("/proc is mounted");
    mounts
        .lines()
        .filter(|line| line.starts_with("overlay "))
        .count()
}

test! { core, a_container_is_removable_right_after_and_while_another_is_traced, seconds = 120 }
fn a_container_is_removable_right_after_and_while_another_is_traced() {
    let _module = Module::load();
    let root = served();
    let spec = format!("{PROGRAM}:real_function");
    let before = overlays();
    let first = Container::over("first", &root.folder, &[PROGRAM]);
    let second = Container::over("second", &root.folder, &[PROGRAM]);
    // Traced, with stacks, names and objects; and then not any more.
    let trace = |name: &str| -> Vec<String> {
        let words = [
            "trace",
            "-c",
            name,
            "--stack",
            "--json",
            "--timeout",
            "300",
            &spec,
        ];
        words.map(String::from).to_vec()
    };
    let words = trace("first");
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.extend(["--count", "3"]);
    command::run(&words).succeeded();
    std::thread::sleep(Duration::from_secs(1));
    // While the program runs and traces another.
    let words = trace("second");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut running = Running::start(&words);
    running.wait_for("real_caller", SOON);
    let started = Instant::now();
    first.remove().expect("the first container is removable");
    println!("removed in {:?}", started.elapsed());
    assert_eq!(overlays(), before + 1, "its overlay is still mounted");
    // Not what it printed before.
    let removed_ns = sys::monotonic_ns();
    let is_later = |line: String| {
        let hit: Value = serde_json::from_str(&line).expect("JSON");
        hit["time_ns"]
            .as_u64()
            .is_some_and(|time| time > removed_ns)
            && line.contains("real_caller")
    };
    while !is_later(running.next_line(SOON).expect("the trace goes on")) {}
    // And the traced one itself.
    second.remove().expect("the traced container is removable");
    let gone = within(SOON, || overlays() == before);
    assert!(gone, "the traced container's overlay is still mounted");
    // That its container went is the end of the trace, and no failure.
    let (code, errors) = running.interrupt();
    assert_eq!(code, Some(0), "{errors}");
}

/// Waits until a process has the code of a program mapped: podman is back before the first
/// process of a container has executed it.
pub(super) fn wait_for_code(pid: u32, program: &str) {
    let has_it = || code_of(pid).iter().any(|code| code.path == program);
    let is_there = within(SOON, has_it);
    assert!(is_there, "{pid} does not run {program}");
}

test! { core, a_filter_on_one_of_two_containers_of_one_file_records_only_that_one, seconds = 120 }
fn a_filter_on_one_of_two_containers_of_one_file_records_only_that_one() {
    let _module = Module::load();
    let root = served();
    let first = Container::over("first", &root.folder, &[PROGRAM]);
    let second = Container::over("second", &root.folder, &[PROGRAM]);
    // podman is asked once: it takes a while to answer.
    let (first_pid, second_pid) = (first.pid(), second.pid());
    wait_for_code(first_pid, PROGRAM);
    wait_for_code(second_pid, PROGRAM);
    let space = pid_space(first_pid);
    let file = PathBuf::from(format!("/proc/{first_pid}/root{PROGRAM}"));
    let lower = root.folder.join(PROGRAM.trim_start_matches('/'));
    let function = binary::function(&lower, "real_function");
    // The kernel counts both: it is one inode.
    let witness = Witness::new(&lower, function.offset);
    let session = Session::with_rings(RING_BYTES);
    let mut filter = Filter {
        size: size::<Filter>(),
        flags: abi::FILTER_PIDNS,
        pidns_pid: first_pid,
        pidns_id: space.id,
        ..Filter::default()
    };
    session.filter(&mut filter).expect("its namespace");
    let id = session.probe(&file, &function, abi::PROBE_STACK);
    let other = Session::with_rings(RING_BYTES);
    other.only(&[second_pid]).expect("it lives");
    let other_id = other.probe(&file, &function, 0);
    let (rings, mut records) = (session.rings(), Records::default());
    let both_run = within(SOON, || {
        records.drain(&rings);
        records.hits.len() > 10 && other.counters(other_id).recorded > 10
    });
    assert!(both_run, "{} hits of the first", records.hits.len());
    drop(other);
    let counters = session.counters(id);
    println!("{counters:?}, the kernel {}", witness.hits());
    for (hit, _) in &records.hits {
        assert_eq!((hit.pidns_id, hit.pidns_inum), (space.id, space.inum));
        assert_eq!((hit.pid, hit.ns_pid), (first_pid, 1));
    }
    assert!(witness.hits() > counters.recorded, "it does not count both");
    // The object is the file beneath the overlay.
    let inode = fs::metadata(&lower).expect("it is there").ino();
    assert!(records
        .objects
        .values()
        .any(|object| object.identity.ino == inode));
    drop(witness);
    // Where nobody else probes, the other does not even trap.
    let offset = function.offset;
    let text = |pid: u32| victim::text(pid, Path::new(PROGRAM), offset);
    assert_eq!(text(first_pid)[0], 0xcc, "the first has no breakpoint");
    let untouched = victim::from_file(&lower, offset);
    assert_eq!(text(second_pid), untouched, "the second has a breakpoint");
    // Its mapped rings would keep it.
    drop((session, rings));
    assert_eq!(text(first_pid), untouched);
    // By the program, the other way round.
    let spec = format!("{PROGRAM}:real_function");
    let words = [
        "trace",
        "-c",
        "second",
        "--json",
        "--count",
        "20",
        "--timeout",
        "300",
        &spec,
    ];
    let got = command::run(&words).succeeded();
    let hits = got.lines().filter(|line| line.contains("\"hit\""));
    let pids = hits.map(|line| serde_json::from_str::<Value>(line).expect("JSON")["pid"].clone());
    assert_eq!(pids.collect::<Vec<_>>(), vec![Value::from(second_pid); 20]);
}

test! { full, a_program_of_debian_in_a_container_is_named, seconds = 120 }
fn a_program_of_debian_in_a_container_is_named() {
    let lab = Lab::new();
    let container = lab.redis("web");
    let spec = "/usr/bin/redis-server:setCommand";
    let words = ["trace", "-c", "web", "--stack", "--count", "3", spec];
    let mut running = lab.tracing(1, &words);
    container.set(300);
    let line = running.wait_for("redis-server:setCommand", SOON);
    assert!(line.contains("/1 "), "no pid of the container's: {line}");
    let first = running.wait_for("#0 ", SOON);
    assert!(first.contains("setCommand"), "{first}");
    let caller = running.wait_for("#1 ", SOON);
    println!("{line}\n{first}\n{caller}");
    assert!(caller.contains("call"), "{caller}");
    assert_eq!(running.ended().code, 0);
    // By soname, in the process's own libc.
    let pid = container.pid().to_string();
    let words = ["trace", "-p", &pid, "--count", "2", "libc.so.6:read"];
    let mut running = lab.tracing(1, &words);
    container.set(300);
    running.wait_for("libc.so.6:", SOON);
    drop(running);
    // A copy-up: the path leads to another file than the one that runs. Once that was "0 hits".
    container
        .exec(&["chown", "33", "/usr/bin/redis-server"])
        .expect("root may");
    let running = lab.tracing(2, &["count", "-c", "web", spec]);
    container.set(100);
    let (code, lines, errors) = running.finish();
    assert!(code == Some(0) && errors.contains("means both"), "{errors}");
    assert!(lines.iter().any(|line| line.contains(" 100 ")), "{lines:?}");
}

/// The process called `comm` that lives in another pid namespace than ours.
pub(super) fn process_elsewhere(comm: &str) -> Option<u32> {
    let here = pid_namespace(std::process::id());
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim_end() == comm
        })
        .find(|&pid| pid_namespace(pid) != here)
}
