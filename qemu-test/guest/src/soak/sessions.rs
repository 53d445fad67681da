// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: sessions leave nothing behind, however many there were, and many at once see the
//! same hits.

use super::calls::{hash, Calls};
use super::{figure, must_refuse, reached, Memory, Progress};
use crate::module::Module;
use crate::records::Records;
use crate::session::{probe_at, Session};
use crate::steps::{field, register};
use nsprobe_common::abi::{self, Probe};
use nsprobe_common::program::Register;

const PART: &str = "sessions";
const SESSIONS: u64 = 20_000;
/// Sessions at once.
const AT_ONCE: u64 = 64;
/// Threads that open and close them: a session's end waits for those who are in a handler.
const THREADS: u64 = 8;
/// Calls that each session sees.
const CALLS: u64 = 3;

fn open(calls: &Calls) -> (Session, u32) {
    let session = Session::with_rings(4096);
    session.only(&[calls.pid()]).expect("it lives");
    let steps = [
        register(0, Register::Rsi),
        register(1, Register::Rdx),
        field(0),
        field(1),
    ];
    let probe = Probe {
        entry_program: session.upload(&steps, b"").expect("a sound program"),
        ..probe_at(
            calls.function.offset,
            abi::PROBE_STACK | abi::PROBE_AT_ENTRY,
        )
    };
    let id = session.attach(calls.file(), probe).expect("a probe");
    (session, id)
}

/// Whether a session has recorded these calls, and no others.
fn has(session: &Session, id: u32, numbers: std::ops::Range<u64>) -> Result<u64, String> {
    let counters = session.counters(id);
    let records = Records::of(session);
    let fields = records.details.iter().map(|(_, fields)| fields.as_slice());
    let mut fields: Vec<&[u64]> = fields.collect();
    // A thread that went to another CPU has its records in two rings.
    fields.sort_unstable();
    let wanted: Vec<[u64; 3]> = numbers.map(|n| [0b11, n, hash(0, n)]).collect();
    let calls = wanted.len() as u64;
    match fields == wanted && (counters.hits, counters.recorded) == (calls, calls) {
        true => Ok(calls),
        false => Err(format!("{fields:x?} is not {wanted:x?}; {counters:?}")),
    }
}

/// Opens this number of sessions, has all of them see some calls, and closes them.
fn round(calls: &mut Calls, count: u64, watcher: &Session) -> u64 {
    let seen = &*calls;
    let mut sessions: Vec<(Session, u32)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let ours = (thread..count).step_by(THREADS as usize).count();
                scope.spawn(move || (0..ours).map(|_| open(seen)).collect::<Vec<_>>())
            })
            .collect();
        let all = threads.into_iter();
        all.flat_map(|thread| thread.join().expect("sessions open"))
            .collect()
    });
    let info = watcher.info();
    let there = (u64::from(info.sessions), u64::from(info.probes));
    assert_eq!(there, (count + 1, count), "sessions and probes");
    let before = calls.total;
    calls.each(CALLS);
    let mut hits = 0;
    for (session, id) in &sessions {
        hits += has(session, *id, before..calls.total).expect("its calls");
    }
    if before == 0 {
        let (session, id) = &sessions[0];
        let verdict = has(session, *id, before..calls.total);
        must_refuse(PART, "records that were read before", verdict);
    }
    std::thread::scope(|scope| {
        while !sessions.is_empty() {
            let some =
                sessions.split_off(sessions.len().saturating_sub((AT_ONCE / THREADS) as usize));
            scope.spawn(|| drop(some));
        }
    });
    let info = watcher.info();
    assert_eq!((info.sessions, info.probes), (1, 0), "left behind");
    assert!(calls.is_restored(), "a breakpoint is left");
    hits
}

pub(super) fn sessions_leave_nothing() {
    let module = Module::load();
    let asked = figure(SESSIONS);
    let mut progress = Progress::new(PART, asked);
    let mut calls = Calls::start(1, "begins_with_push");
    let watcher = Session::open();
    let (mut sessions, mut hits) = (0, 0);
    let mut memory = None;
    while sessions < asked {
        hits += round(&mut calls, AT_ONCE, &watcher);
        sessions += AT_ONCE;
        // Before that the kernel's own caches grow.
        if memory.is_none() && sessions >= asked / 10 {
            memory = Some((Memory::begin(), sessions));
        }
        progress.at(sessions);
    }
    let (memory, from) = memory.expect("there was a round");
    memory.end(PART, sessions - from);
    drop(watcher);
    assert_eq!(module.references(), 0);
    println!("soak: {PART}: {sessions} sessions, {AT_ONCE} at once, {hits} records = {hits} hits");
    reached(PART, asked, sessions, "sessions");
}
