// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: every hit is counted, once, by whatever way the kernel comes to it.

use super::calls::{agreed, Calls};
use super::{figure, must_refuse, reached, Progress};
use crate::module::Module;
use crate::session::{probe_at, Session};
use nsprobe_common::abi::{Probe, SINK_COUNT};

const PART: &str = "exact_hits";
const HITS: u64 = 24_000_000;
const THREADS: u64 = 4;
/// Calls of each thread at a time.
const CHUNK: u64 = 100_000;

/// An instruction that the kernel emulates, one that it runs out of line, step by step, and
/// one that it replaces by a call.
const FUNCTIONS: [&str; 3] = ["begins_with_push", "begins_with_mov", "begins_with_nop10"];

pub(super) fn every_hit_is_counted() {
    let _module = Module::load();
    let asked = figure(HITS);
    let mut progress = Progress::new(PART, asked);
    let mut hits = 0;
    for name in FUNCTIONS {
        let each = asked.div_ceil(FUNCTIONS.len() as u64 * THREADS);
        let mut calls = Calls::start(THREADS, name);
        let witness = calls.witness();
        let session = Session::with_rings(4096);
        let probe = Probe {
            sink: SINK_COUNT,
            ..probe_at(calls.function.offset, 0)
        };
        let id = session.attach(calls.file(), probe).expect("a probe");
        let mut left = each;
        while left > 0 {
            let chunk = left.min(CHUNK);
            calls.each(chunk);
            left -= chunk;
            agreed(&session, id, &witness, calls.total).expect("every call is a hit");
            progress.at(hits + calls.total);
        }
        let text = agreed(&session, id, &witness, calls.total).expect("every call is a hit");
        println!("soak: {PART}: {name}: {text}");
        hits += calls.total;
        // A call that the check does not know of.
        let known = calls.total;
        calls.each(1);
        let verdict = agreed(&session, id, &witness, known);
        must_refuse(PART, "four calls more than are known", verdict);
        drop(witness);
        drop(session);
        let is_restored = match name {
            "begins_with_nop10" => calls.nop10_is_restored(),
            _ => calls.is_restored(),
        };
        assert!(is_restored, "{name}: a breakpoint is left");
    }
    reached(PART, asked, hits, "hits");
}
