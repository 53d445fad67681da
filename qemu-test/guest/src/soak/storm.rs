// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: of programs that start and end by the thousand, each call is recorded with its
//! process.

use super::{figure, must_refuse, reached, Memory, Progress};
use crate::binary;
use crate::module::Module;
use crate::records::Records;
use crate::session::Session;
use crate::victim;
use crate::witness::Witness;
use nsprobe_common::abi;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

const PART: &str = "exec_storm";
const PROCESSES: u64 = 20_000;
/// Calls of each process.
const CALLS: u64 = 7;
/// Threads that start processes.
const THREADS: u64 = 4;
/// Processes between two looks at the rings, which hold all that these do.
const CHUNK: u64 = 1_000;
const RING_BYTES: u64 = 4 << 20;

/// Starts this number of processes and waits for them; their numbers.
fn start(file: &Path, count: u64) -> Vec<u32> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let ours = (thread..count).step_by(THREADS as usize);
                scope.spawn(move || {
                    let run = |_| {
                        let mut command = Command::new(file);
                        let mut child = command.arg(CALLS.to_string()).spawn().expect("a process");
                        let pid = child.id();
                        let status = child.wait().expect("ours");
                        assert!(status.success(), "{status}");
                        pid
                    };
                    ours.map(run).collect::<Vec<u32>>()
                })
            })
            .collect();
        let all = threads.into_iter();
        all.flat_map(|thread| thread.join().expect("it starts processes"))
            .collect()
    })
}

/// Whether each process that was started has its calls in the records, and no other has.
fn each_has(records: &Records, started: &[u32]) -> Result<u64, String> {
    // A number may come twice in a long run.
    let mut wanted: HashMap<u32, u64> = HashMap::new();
    for &pid in started {
        *wanted.entry(pid).or_default() += CALLS;
    }
    let mut found: HashMap<u32, u64> = HashMap::new();
    for (hit, _) in &records.hits {
        if hit.comm[..10] != *b"exit_soon\0" || hit.pid != hit.tid {
            return Err(format!("another program's: {hit:?}"));
        }
        *found.entry(hit.pid).or_default() += 1;
    }
    if found == wanted {
        return Ok(records.hits.len() as u64);
    }
    let differ = |(pid, calls): (&u32, &u64)| {
        let found = found.get(pid).copied().unwrap_or(0);
        (found != *calls).then(|| format!("{found} of {calls} calls of {pid}"))
    };
    let first = wanted.iter().find_map(differ);
    Err(first.unwrap_or_else(|| format!("{} processes, {} known", found.len(), wanted.len())))
}

pub(super) fn every_process_is_counted() {
    let _module = Module::load();
    let asked = figure(PROCESSES);
    let mut progress = Progress::new(PART, asked);
    let file = victim::path("exit_soon");
    let function = binary::function(&file, "short_work");
    let witness = Witness::new(&file, function.offset);
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(&file, &function, abi::PROBE_STACK | abi::PROBE_AT_ENTRY);
    let rings = session.rings();
    let (mut processes, mut recorded) = (0, 0);
    let mut memory = None;
    while processes < asked {
        let started = start(&file, CHUNK.min(asked - processes));
        processes += started.len() as u64;
        let counters = session.counters(id);
        let calls = processes * CALLS;
        assert_eq!((counters.hits, counters.recorded), (calls, calls));
        assert_eq!(witness.hits(), calls, "the kernel's own probe");
        let mut records = Records::default();
        records.drain(&rings);
        recorded += each_has(&records, &started).expect("each has its calls");
        if processes >= asked {
            records.hits.pop();
            must_refuse(PART, "a record less", each_has(&records, &started));
        }
        if memory.is_none() {
            memory = Some((Memory::begin(), processes));
        }
        progress.at(processes);
    }
    let (memory, from) = memory.expect("there was a chunk");
    memory.end(PART, processes - from);
    println!(
        "soak: {PART}: {processes} processes, {recorded} records = {} hits = {} of tracefs",
        session.counters(id).hits,
        witness.hits()
    );
    reached(PART, asked, processes, "processes");
}
