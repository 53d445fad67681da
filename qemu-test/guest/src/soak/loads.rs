// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the module comes and goes a thousand times, also from under programs that are in
//! its handlers, and leaves nothing.

use super::calls::Calls;
use super::{figure, must_refuse, reached, Memory, Progress};
use crate::module::Module;
use crate::session::{probe_at, Session};
use crate::threads::Stop;
use nsprobe_common::abi::{self, CPU_ALL};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const PART: &str = "loads";
const LOADS: u64 = 1_000;
const UNDER_FIRE: u64 = 200;
/// Threads that call.
const THREADS: u64 = 4;
/// Calls of each at a time.
const CHUNK: u64 = 1_000;
/// Hits that a load under fire waits for.
const HITS: u64 = 200;

/// Whether nothing of the module is there.
fn gone() -> Result<(), String> {
    let device = Path::new(abi::DEVICE).exists();
    let module = crate::module::line();
    match !device && module.is_empty() {
        true => Ok(()),
        false => Err(format!("device: {device}; module: {module:?}")),
    }
}

fn idle() {
    let module = Module::load();
    let session = Session::open();
    assert_eq!(session.info().sessions, 1);
    drop(session);
    assert_eq!(module.references(), 0);
    drop(module);
    gone().expect("nothing is left");
}

/// Loads it, has probes hit, and takes it away while they still are; the hits.
fn under_fire(file: &Path, offset: u64, round: u64) -> u64 {
    let module = Module::load();
    let session = Session::with_rings(1 << 16);
    let ids = [0, abi::PROBE_STACK | abi::PROBE_AT_ENTRY].map(|flags| {
        let probe = probe_at(offset, flags);
        session.attach(file, probe).expect("it can be attached")
    });
    while session.counters_on(ids[1], CPU_ALL).expect("its id").hits < HITS {
        std::thread::yield_now();
    }
    // Every other time a detach takes the probes away, and nothing is in flight then: what was
    // hit balances. Else the session's end does.
    let hits = match round.is_multiple_of(2) {
        true => {
            session.detach(&ids).expect("they are attached");
            ids.map(|id| session.counters(id))
        }
        false => ids.map(|id| session.counters_on(id, CPU_ALL).expect("its id")),
    };
    let hits = hits.iter().map(|counters| counters.hits).sum();
    drop(session);
    drop(module);
    gone().expect("nothing is left");
    hits
}

pub(super) fn loads_leave_nothing() {
    let (asked, asked_under_fire) = (figure(LOADS), figure(UNDER_FIRE));
    let mut progress = Progress::new(PART, asked + asked_under_fire);
    let module = Module::load();
    must_refuse(PART, "a module that is loaded", gone());
    drop(module);
    let warm = asked.div_ceil(10);
    (0..warm).for_each(|_| idle());
    let memory = Memory::begin();
    for load in warm..asked {
        idle();
        progress.at(load);
    }
    memory.end(PART, asked - warm);
    let mut calls = Calls::start(THREADS, "begins_with_push");
    // The kernel's own probe: the instruction is a breakpoint, whoever else is there.
    let witness = calls.witness();
    let (file, offset) = (calls.file().to_path_buf(), calls.function.offset);
    let stop = AtomicBool::new(false);
    let (hits, called) = std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                calls.each(CHUNK);
            }
            calls.total
        });
        let stop = Stop(&stop);
        let mut hits = 0;
        let memory = Memory::begin();
        for load in 0..asked_under_fire {
            // A caller that has failed would be waited for in vain.
            assert!(!calling.is_finished(), "the victim has ended");
            hits += under_fire(&file, offset, load);
            progress.at(asked + load);
        }
        memory.end(PART, asked_under_fire);
        drop(stop);
        (hits, calling.join().expect("the victim calls"))
    });
    assert_eq!(witness.hits(), called, "the kernel's own probe");
    println!(
        "soak: {PART}: {hits} hits at {asked_under_fire} loads under fire, {called} calls = {} \
         hits of tracefs",
        witness.hits()
    );
    drop(witness);
    assert!(calls.is_restored(), "a breakpoint is left");
    reached(PART, asked, asked, "loads");
    reached(PART, asked_under_fire, asked_under_fire, "loads under fire");
}
