// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: `nsprobe verify` tells in which mappings a probe is armed, and why not in
//! the others.

use super::containers::wait_for_code;
use crate::command::{self, Output};
use crate::container::{Container, Root};
use crate::module::Module;
use crate::session::{Session, PAGE, RING_BYTES};
use crate::sys::Mapping;
use crate::victim::{self, Victim};
use nix::libc::{MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use serde_json::Value;
use std::fs::{self, File};
use std::process::Command;

fn spec() -> String {
    format!(
        "{}:begins_with_push",
        victim::path("call_in_loop").display()
    )
}

/// What is told of the one probe.
fn verified(words: &[&str]) -> (Value, Output) {
    let got = command::run(&[&["verify", "--json"], words].concat());
    println!("{}", got.stdout);
    let line = got.stdout.lines().next().expect("a line");
    (serde_json::from_str(line).expect("JSON"), got)
}

test! { core, every_process_is_armed_or_left_out }
fn every_process_is_armed_or_left_out() {
    let _module = Module::load();
    let victims = [(); 3].map(|()| Victim::caller("begins_with_push"));
    let (told, got) = verified(&[&spec()]);
    assert_eq!(got.code, 0, "{got:#?}");
    assert_eq!((&told["armed"], &told["processes"]), (&3.into(), &3.into()));
    assert_eq!(
        (&told["left_out"], told["missing"].as_array()),
        (&0.into(), Some(&vec![]))
    );
    let pid = victims[1].pid().to_string();
    let (told, got) = verified(&["-p", &pid, &spec()]);
    assert_eq!(got.code, 0, "{got:#?}");
    assert_eq!((&told["armed"], &told["left_out"]), (&1.into(), &2.into()));
    // Nothing stays behind.
    let offset = victims[0].function("begins_with_push").offset;
    assert!(victims.iter().all(|victim| victim.text_is_restored(offset)));
    let text = command::run(&["verify", &spec()]).succeeded();
    assert!(text
        .stdout
        .contains("begins_with_push: armed in 3 of 3 mappings, in 3 processes"));
}

test! { full, a_breakpoint_that_became_a_call_is_one }
fn a_breakpoint_that_became_a_call_is_one() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_nop10");
    let place = victim.function("begins_with_nop10");
    // Somebody else's probe that was hit: what verify attaches finds the call there.
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(victim.file(), &place, 0);
    victim.call(100);
    assert_eq!(session.counters(id).hits, 100);
    let changed = victim.changed_bytes(place.offset, 10);
    assert!(
        changed > 1,
        "the kernel has not optimised it: {changed} bytes"
    );
    let spec = format!("{}:begins_with_nop10", victim.file().display());
    let (told, got) = verified(&["--fast-nops", &spec]);
    assert_eq!((got.code, &told["armed"]), (0, &1.into()), "{got:#?}");
}

test! { full, what_the_kernel_leaves_out_is_told }
fn what_the_kernel_leaves_out_is_told() {
    let _module = Module::load();
    let _victim = Victim::caller("begins_with_push");
    let path = victim::path("call_in_loop");
    let file = File::options().read(true).open(&path).expect("it is there");
    let bytes = fs::metadata(&path).expect("it is there").len() as usize;
    let bytes = bytes.next_multiple_of(PAGE);
    // Mappings of ours, of all that is in the file: neither kind gets a breakpoint.
    let writable = Mapping::new(&file, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    let shared = Mapping::new(&file, 0, bytes, PROT_READ, MAP_SHARED);
    let _mappings = [writable.expect("mmap"), shared.expect("mmap")];
    let (told, got) = verified(&[&spec()]);
    assert_eq!(got.code, 1, "{got:#?}");
    assert_eq!(told["armed"], 1);
    let missing = told["missing"].as_array().expect("an array");
    let me = Value::from(vec![std::process::id()]);
    assert_eq!(missing.len(), 2);
    assert!(
        missing.iter().all(|missing| missing["pids"] == me),
        "{missing:?}"
    );
    let why: Vec<&str> = missing.iter().filter_map(|m| m["why"].as_str()).collect();
    assert!(
        why.iter().any(|why| why.starts_with("shared mappings")),
        "{why:?}"
    );
    assert!(
        why.iter().any(|why| why.starts_with("writable mappings")),
        "{why:?}"
    );
    let text = command::run(&["verify", &spec()]);
    assert!(
        text.stdout.contains("armed in 1 of 3 mappings"),
        "{text:#?}"
    );
}

test! { full, a_copy_of_the_file_is_told }
fn a_copy_of_the_file_is_told() {
    let _module = Module::load();
    let folder = format!("/var/tmp/copies-{}", std::process::id());
    fs::create_dir_all(&folder).expect("a folder");
    let copy = format!("{folder}/call_in_loop");
    fs::copy(victim::path("call_in_loop"), &copy).expect("a copy");
    let mut command = Command::new(&copy);
    let running = Victim::start_command(command.arg("begins_with_push"), copy.as_ref());
    let (told, got) = verified(&[&spec()]);
    assert_eq!(got.code, 1, "{got:#?}");
    let missing = &told["missing"][0];
    assert_eq!(missing["pids"], Value::from(vec![running.pid()]));
    let why = missing["why"].as_str().expect("a reason");
    assert!(why.starts_with("other files of the same build-id"), "{why}");
    drop(running);
    fs::remove_dir_all(folder).expect("it is ours");
}

test! { full, containers_are_told_apart, seconds = 120 }
fn containers_are_told_apart() {
    let _module = Module::load();
    let program = "/usr/local/bin/served";
    let root = Root::with("served", program);
    // Two overlays over one file: the kernel's probe is in both, unless the filter says no.
    let first = Container::over("first", &root.folder, &[program]);
    let second = Container::over("second", &root.folder, &[program]);
    wait_for_code(first.pid(), program);
    wait_for_code(second.pid(), program);
    let inside = format!("{program}:real_function");
    let (told, got) = verified(&["-c", &first.name, &inside]);
    assert_eq!(got.code, 0, "{got:#?}");
    assert_eq!((&told["armed"], &told["left_out"]), (&1.into(), &1.into()));
    let lower = format!("{}{program}:real_function", root.folder.display());
    let (told, got) = verified(&[&lower]);
    assert_eq!(got.code, 0, "{got:#?}");
    assert_eq!((&told["armed"], &told["left_out"]), (&2.into(), &0.into()));
}
