// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: while others attach and detach at the same instruction, a probe counts every
//! hit; and behind a detach no probe has another one.

use super::calls::{agreed, Calls};
use super::{figure, must_refuse, reached, Progress};
use crate::module::Module;
use crate::session::{probe_at, Session};
use crate::threads::Stop;
use nsprobe_common::abi::{self, Counters, Probe, SINK_COUNT};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PART: &str = "race";
/// Threads that attach and detach, and as many that call.
const THREADS: u64 = 4;
const SECONDS: u64 = 120;
const ROUNDS: u64 = 20_000;
const HITS: u64 = 2_000_000;
/// Hits of the first probe that a round waits for.
const HITS_OF_ROUND: u64 = 32;
/// Calls of each thread at a time.
const CHUNK: u64 = 2_000;
/// Between two looks at how many there are, which should not take the callers' CPUs.
const PAUSE: Duration = Duration::from_micros(200);
/// A session keeps the counters of probes that are gone: so it ends now and then.
const ROUNDS_OF_SESSION: u64 = 50;

/// What comes and goes at the same instruction: a probe that counts, one that records, one
/// with a stack, and a return.
fn probes(offset: u64) -> [Probe; 4] {
    [
        Probe {
            sink: SINK_COUNT,
            ..probe_at(offset, 0)
        },
        probe_at(offset, 0),
        probe_at(offset, abi::PROBE_STACK | abi::PROBE_AT_ENTRY),
        Probe {
            kind: abi::PROBE_RETURN,
            sink: SINK_COUNT,
            ..probe_at(offset, abi::PROBE_AT_ENTRY)
        },
    ]
}

/// Whether a probe has had no hit since, behind its detach.
fn unchanged(before: &Counters, after: &Counters) -> Result<u64, String> {
    match before.hits == after.hits {
        true => Ok(after.hits),
        false => Err(format!("{before:?}, later {after:?}")),
    }
}

/// How far the threads are.
#[derive(Default)]
struct Done {
    rounds: AtomicU64,
    hits: AtomicU64,
    stop: AtomicBool,
}

fn attach_and_detach(file: &Path, offset: u64, done: &Done) {
    let mut round = 0;
    while !done.stop.load(Ordering::Relaxed) {
        let session = Session::with_rings(1 << 16);
        // Those of the round before, with what they counted.
        let mut gone: Vec<(u32, Counters)> = Vec::new();
        while !done.stop.load(Ordering::Relaxed) {
            let ids = probes(offset)
                .map(|probe| session.attach(file, probe).expect("it can be attached"));
            let first = || session.counters_on(ids[0], abi::CPU_ALL).expect("its id");
            // Calls come until all rounds are done.
            while first().hits < HITS_OF_ROUND && !done.stop.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
            }
            session.detach(&ids).expect("they are attached");
            // Nothing is in flight any more, so that they balance at once.
            let counted = ids.map(|id| (id, session.counters(id)));
            for (id, before) in &gone {
                unchanged(before, &session.counters(*id)).expect("no hit behind DETACH");
            }
            let hits: u64 = counted.iter().map(|(_, counters)| counters.hits).sum();
            gone = counted.to_vec();
            done.hits.fetch_add(hits, Ordering::Relaxed);
            done.rounds.fetch_add(1, Ordering::Relaxed);
            round += 1;
            if round % ROUNDS_OF_SESSION == 0 {
                break;
            }
        }
    }
}

pub(super) fn nothing_is_lost_under_fire() {
    let _module = Module::load();
    let (seconds, rounds, hits) = (figure(SECONDS), figure(ROUNDS), figure(HITS));
    let mut progress = Progress::new(PART, rounds);
    let mut calls = Calls::start(THREADS, "begins_with_push");
    let (file, offset) = (calls.file().to_path_buf(), calls.function.offset);
    let witness = calls.witness();
    let steady = Session::with_rings(4096);
    let probe = Probe {
        sink: SINK_COUNT,
        ..probe_at(offset, 0)
    };
    let id = steady.attach(&file, probe).expect("a probe");
    let done = Done::default();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let stop = Stop(&done.stop);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| attach_and_detach(&file, offset, &done)))
            .collect();
        let failed = || threads.iter().any(|thread| thread.is_finished());
        let reached = || {
            start.elapsed().as_secs() >= seconds
                && done.rounds.load(Ordering::Relaxed) >= rounds
                && done.hits.load(Ordering::Relaxed) >= hits
        };
        while !reached() && !failed() {
            calls.each(CHUNK);
            progress.at(done.rounds.load(Ordering::Relaxed));
        }
        drop(stop);
        for thread in threads {
            thread.join().expect("each round is right");
        }
    });
    let elapsed = start.elapsed().as_secs();
    let text = agreed(&steady, id, &witness, calls.total).expect("every call is a hit");
    println!("soak: {PART}: the probe that stayed: {text}");
    let before = steady.counters(id);
    calls.each(1);
    let after = steady.counters(id);
    must_refuse(PART, "a hit behind a detach", unchanged(&before, &after));
    drop(steady);
    drop(witness);
    assert!(calls.is_restored(), "a breakpoint is left");
    reached(PART, seconds, elapsed, "seconds");
    reached(PART, rounds, done.rounds.into_inner(), "rounds");
    reached(
        PART,
        hits,
        done.hits.into_inner(),
        "hits of what came and went",
    );
}
