// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a flight recorder holds the newest hits without a gap, up to the one that
//! ended it, and every other one is counted.

use crate::command;
use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session};
use crate::sys;
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi::{self, Freeze, Probe, Refusal};
use nsprobe_common::record::Frame;
use serde_json::Value;
use std::io::Read;

/// What a FREEZE with these flags says.
fn freeze(session: &Session, flags: u32) -> Result<bool, std::io::Error> {
    let mut freeze = Freeze {
        size: size::<Freeze>(),
        flags,
        ..Freeze::default()
    };
    sys::ioctl(session, abi::FREEZE, &mut freeze)?;
    Ok(freeze.frozen == 1)
}

const RING_BYTES: u64 = 4096;

/// A session whose rings overwrite, with a probe.
fn recorder(victim: &Victim, function: &str, flags: u32) -> (Session, u32) {
    let mut session = Session::open();
    session
        .setup(RING_BYTES, abi::SETUP_OVERWRITE)
        .expect("it can be");
    session.only(&[victim.pid()]).expect("it lives");
    let id = session.probe(victim.file(), &victim.function(function), flags);
    (session, id)
}

/// Hits that were overwritten in all rings.
fn overwritten(session: &Session) -> u64 {
    session.rings().iter().map(|ring| ring.overwritten()).sum()
}

/// There are hits, and their numbers are the last ones of each CPU.
fn check_newest(session: &Session, id: u32, records: &Records) {
    assert!(records.hits.len() >= 10, "a ring has room for more");
    for cpu in 0..session.made.rings {
        let of_cpu = records
            .hits
            .iter()
            .filter(|(hit, _)| u32::from(hit.cpu) == cpu);
        let numbers: Vec<u64> = of_cpu.map(|(hit, _)| hit.sequence.into()).collect();
        let last = session.counters_on(id, cpu).expect("a CPU").recorded;
        let first = last - numbers.len() as u64;
        assert_eq!(
            numbers,
            (first + 1..=last).collect::<Vec<u64>>(),
            "CPU {cpu}"
        );
    }
}

test! { full, the_newest_hits_are_there_without_a_gap }
fn the_newest_hits_are_there_without_a_gap() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let (session, id) = recorder(&victim, "begins_with_push", abi::PROBE_STACK);
    // Fewer than there is room for, then many more.
    assert!(!freeze(&session, 0).expect("it answers"));
    assert_eq!(victim.call(10_000), 10_000);
    assert!(freeze(&session, abi::FREEZE_NOW).expect("it can be"));
    assert!(freeze(&session, abi::FREEZE_NOW).expect("twice is once"));
    let records = Records::of(&session);
    let counters = session.counters(id);
    println!(
        "{counters:?}, {} hits, {} gone",
        records.hits.len(),
        overwritten(&session)
    );
    assert_eq!((counters.recorded, counters.lost_full), (10_000, 0));
    assert_eq!(records.hits.len() as u64 + overwritten(&session), 10_000);
    check_newest(&session, id, &records);
    // What comes now is counted as what it is.
    victim.call(100);
    let counters = session.counters(id);
    assert_eq!((counters.frozen, counters.hits), (100, 10_100));
    assert_eq!(Records::of(&session).hits.len(), 0);
}

test! { full, a_trigger_ends_the_record_with_its_own_hit }
fn a_trigger_ends_the_record_with_its_own_hit() {
    let _module = Module::load();
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_push");
    sys::run_on(u64::MAX >> 1);
    let (session, id) = recorder(&victim, "begins_with_push", 0);
    // The caller's 3,000th hit.
    let outer = Probe {
        every: u32::MAX,
        ..probe_at(
            victim.function("call_begins_with_push").offset,
            abi::PROBE_FREEZES,
        )
    };
    victim.call(2_999);
    let trigger = session.attach(victim.file(), outer).expect("a probe");
    assert!(!freeze(&session, 0).expect("it answers"));
    victim.call(1_000);
    assert!(freeze(&session, 0).expect("it answers"));
    let records = Records::of(&session);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!((counters.recorded, counters.frozen), (2_999, 1_000));
    let last = records
        .hits
        .iter()
        .max_by_key(|(hit, _)| hit.time_ns)
        .expect("hits");
    assert_eq!((last.0.probe, last.0.sequence), (trigger, 1));
    let before = records.hits_of(id).map(|(hit, _)| hit.sequence).max();
    assert_eq!(before, Some(2_999));
}

test! { full, writers_on_all_cpus_leave_whole_records, cpus = 2 }
fn writers_on_all_cpus_leave_whole_records() {
    let (threads, calls) = (16u64, 2_000u64);
    let _module = Module::load();
    let arguments = [threads.to_string(), calls.to_string()];
    let mut victim = Victim::start("many_threads", &[&arguments[0], &arguments[1]]);
    let (session, id) = recorder(&victim, "in_thread", abi::PROBE_STACK);
    victim.begin(0);
    while session
        .counters_on(id, abi::CPU_ALL)
        .expect("it is there")
        .hits
        < threads * calls / 2
    {
        assert!(!freeze(&session, 0).expect("it answers"));
    }
    freeze(&session, abi::FREEZE_NOW).expect("it can be");
    let records = Records::of(&session);
    assert_eq!(victim.finish(), threads * calls);
    let counters = session.counters(id);
    println!(
        "{counters:?}, {} hits, {} gone",
        records.hits.len(),
        overwritten(&session)
    );
    // A writer that had begun when the record was ended comes to its end after that.
    let late = Records::of(&session);
    let there = (records.hits.len() + late.hits.len()) as u64;
    assert!(there >= 10, "a ring has room for more");
    assert_eq!(there + overwritten(&session), counters.recorded);
    assert_eq!(counters.hits, threads * calls);
    let place = victim.function("in_thread").offset;
    for (hit, frames) in records.hits.iter().chain(&late.hits) {
        let is_there =
            matches!(frames[..], [Frame::Object { offset, .. }, _, ..] if offset == place);
        assert!(is_there, "{hit:?}: {frames:x?}");
    }
}

test! { full, a_record_begins_anew }
fn a_record_begins_anew() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let (session, id) = recorder(&victim, "begins_with_push", 0);
    for round in 1..=3u64 {
        victim.call(20);
        freeze(&session, abi::FREEZE_NOW).expect("it can be");
        assert_eq!(Records::of(&session).hits.len(), 20, "round {round}");
        assert!(!freeze(&session, abi::FREEZE_END).expect("it can be"));
        assert_eq!(session.counters(id).recorded, 20 * round);
    }
    // A reader that gives back what it was never given does no harm.
    for ring in session.rings() {
        ring.consumer.set_word(0, u64::MAX - 7);
    }
    victim.call(10_000);
    freeze(&session, abi::FREEZE_NOW).expect("it can be");
    check_newest(&session, id, &Records::of(&session));
}

test! { full, read_is_busy_until_the_end_of_the_record }
fn read_is_busy_until_the_end_of_the_record() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let (session, id) = recorder(&victim, "begins_with_push", 0);
    victim.call(5_000);
    let mut buffer = vec![0u8; 1 << 16];
    let busy = (&session.file).read(&mut buffer).map(drop);
    assert_eq!(errno(busy, "read"), libc::EBUSY);
    freeze(&session, abi::FREEZE_NOW).expect("it can be");
    let count = (&session.file).read(&mut buffer).expect("records");
    let words: Vec<u64> = buffer[..count]
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let mut records = Records::default();
    records.add(&words);
    println!("{} hits", records.hits.len());
    assert!(records.hits.len() > 20);
    check_newest(&session, id, &records);
}

test! { full, only_rings_that_overwrite_are_frozen }
fn only_rings_that_overwrite_are_frozen() {
    let _module = Module::load();
    let victim = Victim::caller("begins_with_push");
    let bare = Session::open();
    assert_eq!(errno(freeze(&bare, abi::FREEZE_NOW), "FREEZE"), libc::ENXIO);
    let plain = Session::with_rings(RING_BYTES);
    assert_eq!(
        errno(freeze(&plain, abi::FREEZE_NOW), "FREEZE"),
        libc::EINVAL
    );
    let trigger = probe_at(
        victim.function("begins_with_push").offset,
        abi::PROBE_FREEZES,
    );
    let (_, reply) = plain
        .attach(victim.file(), trigger)
        .expect_err("it has no such rings");
    assert_eq!(reply.reason, Refusal::UnknownValue as u32);
    let (session, _) = recorder(&victim, "begins_with_push", 0);
    for flags in [3, 4, u32::MAX] {
        assert_eq!(errno(freeze(&session, flags), "FREEZE"), libc::EINVAL);
    }
}

test! { core, a_user_has_the_calls_before_a_trigger }
fn a_user_has_the_calls_before_a_trigger() {
    let _module = Module::load();
    let path = victim::path("call_in_loop");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:begins_with_push(n=arg1)");
    let trigger = format!("{path}:call_begins_with_push if arg1 == 7000");
    let words = [
        "trace",
        "--json",
        "--flight",
        "--stack",
        "--ring-size",
        "16K",
        &spec,
    ];
    // It ends while we print: what it says must not come to stand within our lines.
    let quietly = "exec \"$@\" >/dev/null";
    let run = [
        "--trigger",
        &trigger,
        "--",
        "sh",
        "-c",
        quietly,
        "sh",
        path,
        "begins_with_push",
        "9000",
        "0",
    ];
    sys::run_on(1);
    let got = command::run(&[&words[..], &run].concat()).succeeded();
    sys::run_on(u64::MAX >> 1);
    let objects: Vec<Value> = got
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(Value::is_object)
        .collect();
    let hits: Vec<&Value> = objects.iter().filter(|of| of["type"] == "hit").collect();
    let numbers: Vec<u64> = hits
        .iter()
        .filter_map(|hit| hit["fields"]["n"].as_u64())
        .collect();
    let first = 7_000 - numbers.len() as u64;
    assert_eq!(numbers, (first..7_000).collect::<Vec<u64>>());
    assert!(numbers.len() > 50, "{}", numbers.len());
    let last = hits.last().expect("hits");
    assert_eq!(last["function"], "call_begins_with_push");
    // Names are there although announcements were overwritten.
    let caller = &hits[0]["stack"][1]["functions"][0]["name"];
    assert_eq!(caller, "call_begins_with_push");
    let summary = objects.last().expect("the last line");
    assert_eq!(
        (&summary["balanced"], &summary["recorded"]),
        (&true.into(), &7_001.into())
    );
    assert!(got.stderr.contains("the trigger was hit"), "{}", got.stderr);
    assert!(
        got.stderr.contains("older hits overwritten"),
        "{}",
        got.stderr
    );
    // Also when the command has ended before anybody looked.
    let trigger_at_end = format!("{path}:call_begins_with_push if arg1 == 99");
    let run = ["--trigger", &trigger_at_end, "--", path];
    let calls = ["begins_with_push", "100", "0"];
    let got = command::run(&[&words[..5], &["1M", &spec], &run, &calls].concat()).succeeded();
    assert!(got.stderr.contains("the trigger was hit"), "{}", got.stderr);
    // Without a trigger it is the end of the command.
    let run = ["--", path, "begins_with_push", "100", "0"];
    let got = command::run(&[&words[..5], &["1M", &spec], &run].concat()).succeeded();
    assert_eq!(
        got.lines()
            .filter(|line| line.contains("\"type\":\"hit\""))
            .count(),
        100
    );
    let bad = command::run(&["trace", "--trigger", &trigger, &spec]);
    assert_eq!(bad.code, 2, "{bad:#?}");
}
