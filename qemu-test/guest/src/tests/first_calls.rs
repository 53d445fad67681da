// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: with --follow, programs in new mount namespaces are traced from their first call on, by
//! waiting for their probes before their first instruction; and no wait is longer than --hold.

use crate::command::{Notes, Running};
use crate::container::{Container, Root};
use crate::group::Group;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::victim;
use libnsprobe::{SessionStatus, StartGate};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nsprobe_common::abi::{HELD_MAX, HOLD_OVERDUE_MAX};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// The victim's file, by its path in each mount namespace.
const PROGRAM: &str = "/mnt/first_call";
/// What it is given, on a page that nothing has touched before.
const TEXT: &str = "a text that was never read";
/// A limit that no wait reaches on a slow machine.
const HOLD: &str = "10";

/// The objects of a trace that is ended, and their summary.
fn ended((trace, _): (Running, Notes)) -> (Vec<Value>, Value) {
    let (code, lines, _) = trace.finish();
    assert_eq!(code, Some(0));
    let objects = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut objects: Vec<Value> = objects.collect();
    let summary = objects.pop().expect("the last line");
    assert_eq!(summary["balanced"], true, "{summary}");
    (objects, summary)
}

/// The sessions of others that have programs wait.
fn gates() -> Vec<SessionStatus> {
    let sessions = libnsprobe::sessions().expect("/proc is mounted");
    let gates = sessions.into_iter().filter(|one| one.hold_ms.is_some());
    gates.collect()
}

/// What the call with this number is given.
fn fields_of(number: u64) -> Value {
    json!({"text": TEXT, "number": number})
}

test! { core, the_first_string_of_a_program_is_read }
/// Its page is not present, as nothing has read it before.
fn the_first_string_of_a_program_is_read() {
    const PROGRAMS: u64 = 100;
    let _module = Module::load();
    let program = victim::path("first_call").display().to_string();
    let function = format!("{program}:first_call");
    let fields = "(text=arg1:string, number=arg2)";
    let if_it_fits = format!("{function}{fields} if arg1 ~ \"a text that*\"");
    let mut trace = Notes::of(&["trace", "--json", &if_it_fits]);
    trace.0.attached(1);
    let mut count = Running::start(&["count", "--json", "--by", "text=arg1:string", &function]);
    count.attached(2);
    for number in 0..PROGRAMS {
        let mut one = Command::new(&program);
        one.args(["one", &number.to_string()]);
        assert!(one.status().expect("it runs").success());
    }
    let (_, lines, errors) = count.finish();
    let rows = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let rows: Vec<Value> = rows.collect();
    assert_eq!(rows[0]["key"]["text"], TEXT, "{rows:#?} {errors}");
    assert_eq!(rows[0]["count"], PROGRAMS, "{rows:#?}");
    let (hits, _) = ended(trace);
    let fields = hits.iter().map(|hit| hit["fields"].clone());
    assert!(fields.eq((0..PROGRAMS).map(fields_of)), "{hits:#?}");
}

test! { core, each_program_is_traced_from_its_first_call_on, cpus = 2 }
/// Each has a mount namespace and a file of its own, and calls once.
fn each_program_is_traced_from_its_first_call_on() {
    const PROGRAMS: u64 = 8;
    let _module = Module::load();
    fs::copy(victim::path("first_call"), PROGRAM).expect("/mnt is writable");
    let spec = format!("{PROGRAM}:first_call(text=arg1:string, number=arg2)");
    let trace = Notes::of(&["trace", "--json", "--follow", "--hold", HOLD, &spec]);
    trace.1.wait_for("tracing", LIMIT);
    let count = PROGRAMS.to_string();
    let all = Command::new(PROGRAM).args(["each", &count]).status();
    assert!(all.expect("it runs").success());
    let (hits, summary) = ended(trace);
    fs::remove_file(PROGRAM).expect("it is ours");
    let fields = hits.iter().map(|hit| hit["fields"].clone());
    assert!(fields.eq((0..PROGRAMS).map(fields_of)), "{hits:#?}");
    let held = &summary["held"];
    assert_eq!(held["programs"], PROGRAMS, "{held}");
    assert_eq!(held["overdue"], 0, "{held}");
}

test! { core, containers_that_end_at_once_are_traced_and_named, cpus = 2, seconds = 100 }
fn containers_that_end_at_once_are_traced_and_named() {
    const PROGRAM: &str = "/first_call";
    let _module = Module::load();
    let root = Root::with("first_call", PROGRAM);
    let spec = format!("{PROGRAM}:first_call(number=arg2)");
    let who = ["-c", "brief-*", "--follow", "--hold", HOLD];
    let trace = Notes::of(&[&["trace", "--json"], &who[..], &[&spec]].concat());
    trace.1.wait_for("waiting for one", LIMIT);
    let profile = Running::start(&[&["profile", "-F", "99"], &who[..]].concat());
    assert!(within(SOON, || gates().len() == 2));
    let mut expected = BTreeMap::new();
    for number in ["1", "2"] {
        let name = format!("brief-{number}");
        let container = Container::over(&name, &root.folder, &[PROGRAM, "one", number]);
        expected.insert(name, number.to_owned());
        container.wait();
    }
    let (code, errors) = profile.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        errors.contains("container brief-2: its tasks are recorded, too"),
        "{errors}"
    );
    let (hits, _) = ended(trace);
    let named = hits.iter().map(|hit| {
        let name = hit["container"].as_str().expect("a name");
        (name.to_owned(), hit["fields"]["number"].to_string())
    });
    assert_eq!(named.collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(hits.len(), expected.len());
}

/// A program that waits in a mount namespace of its own.
struct Held(Child);

impl Held {
    fn start() -> Held {
        let words = ["-m", PROGRAM, "one", "1"];
        let child = Command::new("unshare").args(words).spawn();
        let held = Held(child.expect("unshare is in the guest"));
        let is_held = || {
            let status = held.status();
            status.contains("Name:\tfirst_call\n") && status.contains("State:\tS")
        };
        assert!(within(SOON, is_held), "{}", held.status());
        held
    }

    fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32);
        kill(pid, signal).expect("it is there");
    }

    /// It ends, and by itself if `is_well`.
    fn ends(mut self, is_well: bool) {
        let status = self.0.wait().expect("the child is ours");
        assert_eq!(status.success(), is_well, "{status}");
    }
}

test! { core, a_program_that_waits_goes_on_when_it_is_disturbed, cpus = 2 }
/// Here nsprobe never looks at it, as it is stopped.
fn a_program_that_waits_goes_on_when_it_is_disturbed() {
    const HOLD: Duration = Duration::from_secs(10);
    let _module = Module::load();
    fs::copy(victim::path("first_call"), PROGRAM).expect("/mnt is writable");
    let stopped = || {
        let spec = format!("{PROGRAM}:first_call");
        let trace = Notes::of(&["trace", "--follow", "--hold", "10", &spec]);
        trace.1.wait_for("tracing", LIMIT);
        let pid = Pid::from_raw(trace.0.pid() as i32);
        kill(pid, Signal::SIGSTOP).expect("it runs");
        (trace, pid)
    };
    let in_time = |what: &str, does: &dyn Fn(Held)| {
        let held = Held::start();
        let begun = Instant::now();
        does(held);
        let took = begun.elapsed();
        println!("{what}: {took:?}");
        assert!(took < HOLD / 2, "{what}: {took:?}");
    };
    let (trace, pid) = stopped();
    in_time("killed", &|held| {
        held.signal(Signal::SIGKILL);
        held.ends(false);
    });
    in_time("stopped", &|held| {
        held.signal(Signal::SIGSTOP);
        assert!(within(SOON, || held.status().contains("State:\tT")));
        held.signal(Signal::SIGCONT);
        held.ends(true);
    });
    in_time("frozen", &|held| {
        let group = Group::new("held");
        group.take(held.0.id());
        let freeze = |word| fs::write(group.folder.join("cgroup.freeze"), word);
        let events = || fs::read_to_string(group.folder.join("cgroup.events"));
        freeze("1").expect("it can be frozen");
        assert!(within(SOON, || events().is_ok_and(|all| all.contains("frozen 1"))));
        freeze("0").expect("it can be frozen");
        held.ends(true);
    });
    // gdb itself takes seconds to begin.
    let held = Held::start();
    let process = held.0.id().to_string();
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-ex", "info registers rip", "-p", &process]);
    let gdb = gdb.output().expect("gdb is in the guest");
    let out = String::from_utf8_lossy(&gdb.stdout);
    assert!(out.contains("rip "), "{out}");
    held.ends(true);
    let begun = Instant::now();
    let mut spawner = Running::start_command(Command::new(PROGRAM).args(["spawn", "1"]));
    spawner.wait_for("spawned", HOLD / 2);
    println!("its parent: {:?}", begun.elapsed());
    // Some have not waited to the end: ten at once wait anew.
    kill(pid, Signal::SIGKILL).expect("it runs");
    drop((trace, spawner));
    let (trace, pid) = stopped();
    let held: Vec<Held> = (0..10).map(|_| Held::start()).collect();
    let gates: Vec<_> = gates().iter().map(|one| (one.hold_ms, one.held)).collect();
    assert_eq!(gates, [(Some(10_000), 10)]);
    let begun = Instant::now();
    kill(pid, Signal::SIGKILL).expect("it runs");
    held.into_iter().for_each(|held| held.ends(true));
    let took = begun.elapsed();
    println!("after the end of nsprobe: {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    drop(trace);
    fs::remove_file(PROGRAM).expect("it is ours");
}

test! { core, no_program_waits_longer_than_the_limit, cpus = 2 }
/// It serves the file system that nsprobe looks for its files in.
fn no_program_waits_longer_than_the_limit() {
    let _module = Module::load();
    let program = victim::path("first_call");
    fs::copy(&program, "/mnt/file").expect("/mnt is writable");
    let trace = Notes::of(&[
        "trace",
        "--json",
        "--follow",
        "--hold",
        "1",
        "/mnt/file:first_call",
    ]);
    trace.1.wait_for("tracing", LIMIT);
    let mut server = Running::start_command(Command::new(&program).args(["serve", "/mnt"]));
    server.wait_for("serves", LIMIT);
    let (_, summary) = ended(trace);
    fs::remove_file("/mnt/file").expect("it is ours");
    let held = &summary["held"];
    assert_eq!(held["overdue"], 1, "{held}");
    let longest_ns = held["longest_ns"].as_u64();
    assert!(longest_ns < Some(4_000_000_000), "{held}");
}

/// Starts a program in a mount namespace of its own, not as a child of this process.
fn start_apart(program: &Path) -> Running {
    let words = ["-c", "unshare -m \"$0\" one 1; :"];
    Running::start_command(Command::new("sh").args(words).arg(program))
}

test! { core, a_gate_is_readable_and_has_room_for_each_container, cpus = 2 }
fn a_gate_is_readable_and_has_room_for_each_container() {
    /// Of one container.
    const SHARE: usize = HELD_MAX as usize / 4;
    const MORE: usize = 3;
    let _module = Module::load();
    let program = victim::path("first_call");
    let gate = StartGate::new(StartGate::LIMIT_MAX).expect("the module is loaded");
    let is_readable = |timeout| {
        let mut fds = [PollFd::new(gate.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(timeout).expect("it fits")).expect("it is open") == 1
    };
    assert!(!is_readable(Duration::ZERO));
    // A child of the gate's owner is not held.
    let own = Command::new("unshare")
        .arg("-m")
        .arg(&program)
        .args(["one", "1"])
        .status();
    assert!(own.expect("unshare is in the guest").success());
    assert_eq!(gate.report().expect("it is open").held, 0);
    let all: Vec<Running> = (0..SHARE + MORE).map(|_| start_apart(&program)).collect();
    let is_full = || {
        let report = gate.report().expect("it is open");
        (report.held, report.not_held) == (SHARE as u64, MORE as u64)
    };
    assert!(within(SOON, is_full), "{:?}", gate.report());
    // Another container than ours has its own share.
    let words = ["-c", "unshare -mpf \"$0\" one 1; :"];
    let other = Running::start_command(Command::new("sh").args(words).arg(&program));
    assert!(within(SOON, || gate.report().expect("it is open").held
        > SHARE as u64));
    let mut count = 0;
    while is_readable(Duration::ZERO) {
        let held = gate.next().expect("it is open").expect("it is readable");
        let name = fs::read_to_string(format!("/proc/{}/comm", held.pid));
        assert_eq!(name.expect("it waits"), "first_call\n");
        gate.release(held).expect("it is open");
        count += 1;
    }
    assert_eq!(count, SHARE + 1);
    let ended = all.into_iter().chain([other]).map(Running::ended);
    assert!(ended.into_iter().all(|output| output.code == 0));
    // Asleep until one comes.
    let waking = std::thread::spawn(move || start_apart(&program).ended().code);
    assert!(is_readable(SOON));
    let held = gate.next().expect("it is open").expect("it is readable");
    gate.release(held).expect("it is open");
    assert_eq!(waking.join().expect("no panic"), 0);
    // Nobody looks any more.
    gate.set_limit(Duration::from_millis(1))
        .expect("it is open");
    let program = victim::path("first_call");
    for _ in 0..=HOLD_OVERDUE_MAX {
        start_apart(&program).ended();
    }
    let report = gate.report().expect("it is open");
    assert_eq!(
        (report.overdue, report.is_over),
        (HOLD_OVERDUE_MAX.into(), true)
    );
}
