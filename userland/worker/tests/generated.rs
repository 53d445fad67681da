// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a process tells of the code that it generates is read by a child of its own,
//! on as it grows, and costs that process's names alone.

use crate::support::{file, is_dead, options, soon, Folder};
use nsprobe_worker::{Generated, GeneratedFile, Worker};
use std::fs::{self, File};
use std::time::Duration;

fn name(code: &mut Generated, address: u64, time_ns: u64) -> Option<String> {
    let then = code.at(address, time_ns).unwrap();
    assert!(then.holds_at(time_ns));
    then.found.map(|(_, name)| name.name)
}

/// Reads all that is new in a map.
fn read(code: &mut Generated, map: &File, from: u64) -> u64 {
    let end = map.metadata().unwrap().len();
    let read = code.read(GeneratedFile::Map, map, from, end).unwrap();
    assert!(read.is_all);
    read.to
}

#[test]
fn a_map_is_read_on_and_anew() {
    let folder = Folder::new("generated");
    let mut code = Generated::start(&Worker::new(options())).unwrap();
    assert_eq!(name(&mut code, 0x1000, 1), None);
    let path = folder.file("map", b"1000 10 first\n2000 1");
    let to = read(&mut code, &file(&path), 0);
    assert_eq!(name(&mut code, 0x100f, 1).as_deref(), Some("first"));
    assert_eq!(name(&mut code, 0x2000, 1), None);
    fs::write(&path, b"1000 10 first\n2000 10 second\n").unwrap();
    read(&mut code, &file(&path), to);
    assert_eq!(name(&mut code, 0x2000, 1).as_deref(), Some("second"));
    read(&mut code, &file(&path), 0);
    assert_eq!(name(&mut code, 0x1000, 1).as_deref(), Some("first"));
    // Nothing is read where it says that it ends.
    let cut = code.read(GeneratedFile::Map, &file(&path), 0, 14).unwrap();
    assert_eq!((cut.to, cut.is_all), (14, true));
    assert_eq!(name(&mut code, 0x2000, 1), None);
}

#[test]
fn large_maps_are_read_in_turns() {
    let folder = Folder::new("generated-large");
    let mut patient = options();
    // What bounds a turn is how much it reads; the usual limit is not what is tested.
    patient.limits.query = Duration::from_secs(60);
    let mut code = Generated::start(&Worker::new(patient)).unwrap();
    let lines: String = (0..1 << 19)
        .map(|n| format!("{:x} 10 f{n}\n", 0x1000 + 16 * n))
        .collect();
    let path = folder.file("map", lines.as_bytes());
    let (map, end) = (file(&path), lines.len() as u64);
    let (mut from, mut turns) = (0, 0);
    while from < end {
        let read = code.read(GeneratedFile::Map, &map, from, end).unwrap();
        assert!(read.to > from && read.is_all == (read.to == end));
        (from, turns) = (read.to, turns + 1);
    }
    assert!(turns > 1, "{turns}");
    let last = 0x1000 + 16 * ((1 << 19) - 1);
    assert_eq!(name(&mut code, last, 1).as_deref(), Some("f524287"));
    assert!(code.memory_bytes() > 1 << 20);
}

#[test]
fn a_child_that_dies_is_not_replaced() {
    let worker = Worker::new(options());
    let (mut code, mut other) = (
        Generated::start(&worker).unwrap(),
        Generated::start(&worker).unwrap(),
    );
    let pid = nix::unistd::Pid::from_raw(code.pid() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    soon(|| is_dead(code.pid()));
    for _ in 0..2 {
        assert!(code.at(0x1000, 1).is_err());
    }
    assert_eq!(name(&mut other, 0x1000, 1), None);
    let pid = other.pid();
    drop(other);
    soon(|| is_dead(pid));
}
