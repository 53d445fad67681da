// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's own files name its code, and no other ones.

use super::*;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program itself serves as a child, not this test of its parts: `cargo test` builds
/// both.
fn children() -> Options {
    let test = std::env::current_exe().expect("/proc is mounted");
    let folder = test.ancestors().nth(2).expect("a folder of tests");
    Options {
        program: folder.join("nsprobe"),
        ..Options::default()
    }
}

/// Our own map, of which there is one at a time; gone with the value.
struct Map {
    path: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

static ONE: Mutex<()> = Mutex::new(());

impl Map {
    fn new(text: &str) -> Map {
        let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = tmp(format!("perf-{}.map", std::process::id()));
        fs::write(&path, text).expect("/tmp is writable");
        Map { path, _alone }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn now() -> Moment {
    Moment {
        pid: std::process::id(),
        time_ns: monotonic_ns(),
    }
}

fn name(jit: &mut Jit, address: u64, moment: Moment) -> Result<String, String> {
    let named = jit.name(address, false, moment).named;
    match named.functions.first() {
        Some(function) => Ok(function.function.clone()),
        None => Err(named.unresolved.clone().expect("a reason")),
    }
}

#[test]
fn a_map_is_read_as_it_grows_and_anew_when_it_is_another() {
    let mut jit = Jit::new(children());
    let before = now();
    let map = Map::new("1000 10 first\n");
    let after = now();
    assert_eq!(name(&mut jit, 0x1008, after).as_deref(), Ok("first"));
    assert_eq!(
        jit.name(0x1010, true, after).named.functions[0].function_offset,
        Some(0x10)
    );
    // The file of a process is read once for all hits up to then.
    fs::write(&map.path, "1000 10 first\n1000 10 second\n").expect("/tmp is writable");
    assert_eq!(name(&mut jit, 0x1008, before).as_deref(), Ok("first"));
    assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("second"));
    fs::write(&map.path, "1000 10 third\n").expect("/tmp is writable");
    assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("third"));
    let why = name(&mut jit, 0x2000, now()).expect_err("it has no such code");
    assert!(why.contains("does not name it"), "{why}");
}

#[test]
fn a_child_that_dies_costs_the_names_of_its_process() {
    let mut jit = Jit::new(children());
    let map = Map::new("1000 10 first\n");
    assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("first"));
    let known = jit.processes.values().next().expect("it is known");
    let child = known.reader.child.as_ref().expect("it reads").pid();
    let child = nix::unistd::Pid::from_raw(child as i32);
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).expect("it is ours");
    fs::write(&map.path, "1000 10 first\n2000 10 second\n").expect("/tmp is writable");
    for _ in 0..2 {
        let why = name(&mut jit, 0x2008, now()).expect_err("nobody has read it");
        assert!(why.contains("died of SIGKILL"), "{why}");
    }
}

/// Another process, and where its map lies.
fn sleeper() -> (std::process::Child, PathBuf) {
    let mut sleep = std::process::Command::new("sleep");
    let child = sleep.arg("60").spawn().expect("there is sleep");
    let path = tmp(format!("perf-{}.map", child.id()));
    (child, path)
}

/// The code of a process that has ended keeps its names, and they are not looked up again.
#[test]
fn what_was_read_of_a_process_outlives_it() {
    let (mut sleeps, path) = sleeper();
    let pid = sleeps.id();
    fs::write(&path, "1000 10 first\n").expect("/tmp is writable");
    let moment = |time_ns| Moment { pid, time_ns };
    let mut jit = Jit::new(children());
    let lived = moment(monotonic_ns());
    let early = name(&mut jit, 0x1008, lived);
    let unread = name(&mut jit, 0x1008, moment(lived.time_ns - 1));
    sleeps.kill().expect("it is our child");
    sleeps.wait().expect("it is our child");
    let late = moment(monotonic_ns());
    for _ in 0..2 {
        let why = name(&mut jit, 0x1008, late).expect_err("it cannot have been hit");
        assert!(why.contains("its process is gone"), "{why}");
    }
    assert!(jit.gone[&late.pid] >= late.time_ns);
    for then in [early, unread, name(&mut jit, 0x1008, lived)] {
        assert_eq!(then.as_deref(), Ok("first"));
    }
    fs::remove_file(path).expect("it is ours");
}

#[test]
fn code_of_no_known_moment_is_named_as_of_the_last_look() {
    let last = |jit: &mut Jit, pid, address| {
        let named = jit.name_last(address, false, pid).named;
        let function = named.functions.first();
        function.map(|function| function.function.clone())
    };
    let (mut sleeps, path) = sleeper();
    let pid = sleeps.id();
    fs::write(&path, "1000 10 first\n2000 10 other\n").expect("/tmp is writable");
    let mut jit = Jit::new(children());
    jit.look_at(pid);
    assert_eq!(last(&mut jit, pid, 0x1008).as_deref(), Some("first"));
    let more = "1000 10 first\n2000 10 other\n1000 10 second\n";
    fs::write(&path, more).expect("/tmp is writable");
    jit.look_at(pid);
    assert_eq!(last(&mut jit, pid, 0x1008).as_deref(), Some("second"));
    sleeps.kill().expect("it is our child");
    sleeps.wait().expect("it is our child");
    jit.look_at(pid);
    assert_eq!(last(&mut jit, pid, 0x1008).as_deref(), Some("second"));
    assert_eq!(last(&mut jit, pid, 0x2008).as_deref(), Some("other"));
    assert_eq!(last(&mut jit, pid, 0x3000), None);
    // The same address in another process is other code.
    assert_eq!(last(&mut jit, std::process::id(), 0x1008), None);
    fs::remove_file(path).expect("it is ours");
}

#[test]
fn hits_of_a_process_that_had_the_number_are_not_named() {
    let mut jit = Jit::new(children());
    let long_ago = Moment {
        time_ns: 1,
        ..now()
    };
    let why = name(&mut jit, 0x1008, long_ago).expect_err("we were not there");
    assert!(why.contains("its process is gone"), "{why}");
}

/// For `bench/NAMES.md`: `cargo test --release -p nsprobe --bins -- --ignored --nocapture
/// what_a_name_costs`.
#[test]
#[ignore = "a measurement"]
fn what_a_name_costs() {
    const NAMES: u32 = 100_000;
    let mut jit = Jit::new(children());
    let _map = Map::new("1000 10 first\n");
    let then = now();
    let begun = Instant::now();
    (0..NAMES).for_each(|_| drop(jit.name(0x1008, true, then)));
    println!("{:?} a name", begun.elapsed() / NAMES);
    let process = Process::open(then.pid).expect("it is ours");
    let begun = Instant::now();
    (0..NAMES).for_each(|_| assert!(process.still_same()));
    println!(
        "{:?} to see whether a process is the same",
        begun.elapsed() / NAMES
    );
}
