// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: millions of requests that no program makes do no harm. The generator is that
//! of the tests; here it begins anew again and again, in two processes side by side.

use super::{figure, must_refuse, reached, Progress};
use crate::module::Module;
use crate::session::Session;
use crate::sys::{self, Forked};
use crate::tests::garbage::{garbage_calls, Random};
use nsprobe_common::abi::NR_TASK_COUNTERS;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::panic::catch_unwind;

const PART: &str = "garbage";
const CALLS: u64 = 3_000_000;
/// Requests that there are.
const REQUESTS: u64 = NR_TASK_COUNTERS as u64 + 1;
/// Calls of a process between two seeds.
const CHUNK: u64 = 25_000;
/// Processes at once.
const AT_ONCE: u64 = 2;
/// How many of each request must be accepted, and as many refused, in a million calls.
const OF_A_MILLION: u64 = 200;

/// By request: how many were accepted, and how many refused.
type Answers = BTreeMap<u32, [u64; 2]>;

/// Makes calls in a process of its own, which tells its answers.
fn start(seed: u64, calls: u64) -> (i32, std::io::PipeReader) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    match sys::fork().expect("fork") {
        Forked::Parent(child) => (child, reader),
        Forked::Child => {
            drop(reader);
            let answers = catch_unwind(|| garbage_calls(Random(seed), calls));
            let told = answers.is_ok_and(|answers| {
                let line = |(nr, accepted, refused)| format!("{nr} {accepted} {refused}\n");
                let text: String = answers.into_iter().map(line).collect();
                writer.write_all(text.as_bytes()).is_ok()
            });
            sys::exit_now(i32::from(!told))
        }
    }
}

fn add(all: &mut Answers, (child, mut reader): (i32, std::io::PipeReader)) {
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    assert_eq!(sys::wait(child), 0, "a process that made calls has failed");
    for line in text.lines() {
        let mut words = line.split(' ').map(|word| word.parse::<u64>());
        let mut next = || words.next().expect("three words").expect("numbers");
        let of_request = all.entry(next() as u32).or_default();
        of_request[0] += next();
        of_request[1] += next();
    }
}

/// Whether each request was accepted and refused often enough: what is always refused at the
/// door tests the door only.
fn both_ways(answers: &Answers, calls: u64) -> Result<u64, String> {
    let least = calls * OF_A_MILLION / 1_000_000;
    let few = answers
        .iter()
        .find(|(_, [accepted, refused])| *accepted.min(refused) < least.max(1));
    match few {
        None => Ok(answers.len() as u64),
        Some(few) => Err(format!("request {few:?}, {least} of both are wanted")),
    }
}

pub(super) fn no_call_does_harm() {
    let _module = Module::load();
    let asked = figure(CALLS);
    let mut progress = Progress::new(PART, asked);
    // Odd, and so never zero, which the generator would stay at.
    let seed = sys::monotonic_ns() | 1;
    println!("soak: {PART}: the seed of seeds is {seed:#x}");
    let mut seeds = Random(seed);
    let mut answers = Answers::new();
    let count = |answers: &Answers| answers.values().flatten().sum::<u64>();
    while count(&answers) < asked {
        let left = (asked - count(&answers)).div_ceil(AT_ONCE);
        let children: Vec<_> = (0..AT_ONCE)
            .map(|_| start(seeds.next(), left.min(CHUNK)))
            .collect();
        children
            .into_iter()
            .for_each(|child| add(&mut answers, child));
        let info = Session::open().info();
        assert_eq!((info.sessions, info.probes), (1, 0), "left behind");
        progress.at(count(&answers));
    }
    for (nr, [accepted, refused]) in &answers {
        println!("soak: {PART}: request {nr}: {accepted} accepted, {refused} refused");
    }
    let calls = count(&answers);
    let requests = both_ways(&answers, calls).expect("both ways");
    let mut spoiled = answers.clone();
    spoiled.insert(0, [0, calls]);
    must_refuse(PART, "a request always refused", both_ways(&spoiled, calls));
    reached(PART, asked, calls, "calls");
    reached(PART, REQUESTS, requests, "requests");
}
