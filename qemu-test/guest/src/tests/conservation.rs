// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: every hit is accounted for, as one of `abi::Counters::ends`, and the kernel's own
//! counter agrees.

use crate::container::in_filter;
use crate::figures;
use crate::lab::Lab;
use crate::module::Module;
use crate::processes::code_of;
use crate::records::Records;
use crate::session::{probe_at, size, Session, RING_BYTES};
use crate::sys;
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi;
use nsprobe_common::record::Hit;
use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::time::{Duration, Instant};

test! { core, two_hundred_thousand_hits_are_those_of_the_kernel, module, seconds = 120 }
fn two_hundred_thousand_hits_are_those_of_the_kernel() {
    let calls = 200_000 / figures::parts(10) as u64;
    let lab = Lab::new();
    let mut victim = lab.caller("begins_with_push");
    let session = lab.session(RING_BYTES);
    let id = session.probe(&victim, 0);
    let rings = session.rings();
    let mut records = Records::default();
    victim.begin(calls);
    while session.counters(id).hits < calls {
        records.drain(&rings);
    }
    assert_eq!(victim.finish(), calls);
    records.drain(&rings);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!(counters.hits, calls);
    assert_eq!(victim.kernel_hits(), calls);
    assert_eq!(counters.recorded + counters.lost_full, calls);
    assert_eq!(counters.filtered, 0);
    assert_eq!(records.hits.len() as u64, counters.recorded);
    let on_cpus: u64 = (0..session.made.rings)
        .map(|cpu| session.counters_on(id, cpu).expect("a CPU").hits)
        .sum();
    assert_eq!(on_cpus, calls);
    let first = &records.hits[0].0;
    assert_eq!((first.pid, first.ns_pid), (victim.pid(), victim.pid()));
    assert_eq!(first.comm[..13], *b"call_in_loop\0");
}

test! { core, a_stopped_reader_loses_exactly_what_is_counted, module }
fn a_stopped_reader_loses_exactly_what_is_counted() {
    const CALLS: u64 = 5_000;
    let lab = Lab::new();
    let mut victim = lab.caller("begins_with_push");
    let session = lab.session(4096);
    let id = session.probe(&victim, 0);
    let rings = session.rings();
    victim.call(CALLS);
    let full = session.counters(id);
    println!("{full:?}");
    assert_eq!(full.hits, CALLS);
    assert_eq!(victim.kernel_hits(), CALLS);
    assert!(full.lost_full > CALLS / 2, "{full:?}");
    let mut records = Records::default();
    records.drain(&rings);
    assert_eq!(records.hits.len() as u64, full.recorded);
    // The next record of each CPU tells what that CPU lost.
    for cpu in 0..session.made.rings {
        let mut on_cpu = Command::new(victim.file());
        on_cpu.args(["begins_with_push", "1", "0"]);
        sys::run_on(1 << cpu);
        assert!(on_cpu.output().expect("it runs").status.success());
    }
    sys::run_on(u64::MAX >> 1);
    records.drain(&rings);
    let after = session.counters(id);
    assert_eq!(
        after.recorded - full.recorded,
        u64::from(session.made.rings)
    );
    assert_eq!(records.hits.len() as u64, after.recorded);
    assert_eq!(records.lost_count(), after.lost_full, "{:?}", records.lost);
    let in_pages: u64 = rings.iter().map(|ring| ring.lost()).sum();
    assert_eq!(in_pages, after.lost_full);
    for lost in &records.lost {
        assert!(lost.count > 0, "{lost:?}");
        // Two hits of one thread are not at the same time.
        match lost.count {
            1 => assert_eq!(lost.first_ns, lost.time_ns, "{lost:?}"),
            _ => assert!(lost.first_ns < lost.time_ns, "{lost:?}"),
        }
    }
}

test! { core, many_threads_on_all_cpus_are_counted_exactly, module, cpus = 2 }
fn many_threads_on_all_cpus_are_counted_exactly() {
    let (threads, calls) = (64u64, 200u64);
    let lab = Lab::new();
    let arguments = [threads.to_string(), calls.to_string()];
    let arguments = [arguments[0].as_str(), &arguments[1]];
    let mut victim = lab.victim("many_threads", &arguments, "in_thread");
    let session = lab.session(1 << 23);
    let id = session.probe(&victim, abi::PROBE_STACK);
    assert_eq!(victim.call(0), threads * calls);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!(counters.hits, threads * calls);
    assert_eq!(victim.kernel_hits(), threads * calls);
    let records = Records::of(&session);
    assert_eq!(records.hits.len() as u64, counters.recorded);
    assert_eq!(counters.lost_full, 0);
    let mut by_thread: HashMap<u32, u64> = HashMap::new();
    for (hit, _) in &records.hits {
        assert_eq!(hit.pid, victim.pid());
        *by_thread.entry(hit.tid).or_default() += 1;
    }
    assert_eq!(by_thread.len() as u64, threads);
    assert!(
        by_thread.values().all(|&hits| hits == calls),
        "{by_thread:?}"
    );
    assert_sequences(&records, id, 0);
}

test! { core, the_counters_balance_while_hits_go_on, module, cpus = 2, seconds = 120 }
/// At any moment the hits are those that are accounted for and those that are being handled,
/// of which each thread has one at most.
fn the_counters_balance_while_hits_go_on() {
    const THREADS: u64 = 4;
    let _module = Module::load();
    let mut victim = Victim::start("many_threads", &[&THREADS.to_string(), "1000000000000"]);
    let function = victim.function("in_thread");
    victim.begin(0);
    // Some find no room.
    let session = Session::with_rings(1 << 16);
    let id = session.probe(victim.file(), &function, abi::PROBE_STACK);
    let rings = session.rings();
    let mut records = Records::default();
    let read = || session.counters_on(id, abi::CPU_ALL).expect("its id");
    let mut before = read();
    let (mut readings, mut moved) = (0, 0);
    let until = Instant::now() + Duration::from_secs(100);
    while (readings < 2000 || moved < 200 || before.lost_full == 0) && Instant::now() < until {
        let now = read();
        let (then, parts) = (before.outcomes(), now.outcomes());
        let done: u64 = parts.iter().map(|(_, count)| count).sum();
        assert!(done <= now.hits, "more than came: {now:?}");
        assert!(done + THREADS >= before.hits, "{before:?}, then {now:?}");
        assert!(
            then.iter().zip(&parts).all(|(then, now)| then <= now),
            "{before:?}, {now:?}"
        );
        moved += u64::from(now.hits > before.hits);
        before = now;
        readings += 1;
        // Not before: a reader that is quick enough keeps them empty for ever.
        if readings % 100 == 0 && before.lost_full > 0 {
            records.drain(&rings);
        }
    }
    println!("{readings} readings, {moved} times there were new hits: {before:?}");
    assert!(
        moved >= 200 && before.lost_full > 0,
        "{moved} of {readings}: {before:?}"
    );
}

/// On each CPU every sequence number is there once, but for `gaps` in all. Their
/// order may differ from the ring's: a thread may be preempted between the two.
fn assert_sequences(records: &Records, id: u32, gaps: u64) {
    let mut seen: HashMap<u16, HashSet<u32>> = HashMap::new();
    for (hit, _) in records.hits_of(id) {
        let is_new = seen.entry(hit.cpu).or_default().insert(hit.sequence);
        assert!(is_new, "{hit:?} is there twice");
    }
    let missing = |numbers: &HashSet<u32>| {
        let last = numbers.iter().copied().max().unwrap_or(0);
        u64::from(last) - numbers.len() as u64
    };
    assert_eq!(seen.values().map(missing).sum::<u64>(), gaps);
}

test! { full, the_sequence_has_a_gap_for_every_lost_hit, module }
fn the_sequence_has_a_gap_for_every_lost_hit() {
    let _module = Module::load();
    // And with us the victim.
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(4096);
    let id = session.probe(victim.file(), &function, 0);
    let rings = session.rings();
    let mut records = Records::default();
    for _ in 0..20 {
        victim.call(100);
        records.drain(&rings);
    }
    // One more on each CPU, so that the last losses lie between two records.
    for cpu in 0..session.made.rings {
        sys::run_on(1 << cpu);
        let mut on_cpu = Command::new(victim.file());
        on_cpu.args(["begins_with_push", "1", "0"]);
        assert!(on_cpu.output().expect("it runs").status.success());
    }
    records.drain(&rings);
    let counters = session.counters(id);
    assert!(counters.lost_full > 0, "{counters:?}");
    assert_sequences(&records, id, counters.lost_full);
    assert_eq!(records.lost_count(), counters.lost_full);
}

test! { full, announcements_without_room_are_no_lost_hits, module }
/// What a ring says it lost are hits, also where the files of their stacks are announced.
fn announcements_without_room_are_no_lost_hits() {
    const CALLS: u64 = 200;
    let _module = Module::load();
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(4096);
    let plain = session.probe(victim.file(), &function, 0);
    victim.call(CALLS);
    let full = session.counters(plain);
    assert!(full.lost_full > 0, "{full:?}");
    // No file was announced yet, and none can be.
    let stacks = session.probe(victim.file(), &function, abi::PROBE_STACK);
    victim.call(CALLS);
    let [plain, stacks] = [plain, stacks].map(|id| session.counters(id));
    assert_eq!(plain.lost_full, full.lost_full + CALLS, "{plain:?}");
    assert_eq!(stacks.lost_full, CALLS, "{stacks:?}");
    let rings = session.rings();
    let lost: u64 = rings.iter().map(|ring| ring.lost()).sum();
    assert_eq!(lost, plain.lost_full + stacks.lost_full);
    let records = Records::of(&session);
    assert!(records.objects.is_empty(), "{:?}", records.objects);
}

test! { full, processes_that_end_at_once_are_counted, module }
fn processes_that_end_at_once_are_counted() {
    let _module = Module::load();
    let file = victim::path("exit_soon");
    let function = crate::binary::function(&file, "short_work");
    let witness = Witness::new(&file, function.offset);
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(&file, &function, abi::PROBE_STACK | abi::PROBE_AT_ENTRY);
    const PROCESSES: u64 = 50;
    for _ in 0..PROCESSES {
        let status = Command::new(&file).arg("7").status();
        assert!(status.expect("it starts").success());
    }
    let counters = session.counters(id);
    assert_eq!(counters.hits, 7 * PROCESSES, "{counters:?}");
    assert_eq!(witness.hits(), 7 * PROCESSES);
    let records = Records::of(&session);
    assert_eq!(records.hits.len() as u64, 7 * PROCESSES);
    let pids: std::collections::HashSet<u32> = records.hits.iter().map(|(h, _)| h.pid).collect();
    assert_eq!(pids.len() as u64, PROCESSES);
}

test! { full, threads_and_children_that_end_at_once_are_counted, module }
/// Also where a child runs in its parent's memory; of each the call and its return.
fn threads_and_children_that_end_at_once_are_counted() {
    const EACH: u64 = 300;
    let _module = Module::load();
    let mut victim = Victim::start("short_tasks", &[]);
    let function = victim.function("in_task");
    let witness = Witness::new(victim.file(), function.offset);
    let session = Session::with_rings(4 << 20);
    let entry = session.probe(victim.file(), &function, abi::PROBE_STACK);
    let at_return = abi::Probe {
        kind: abi::PROBE_RETURN,
        sink: abi::SINK_COUNT,
        ..probe_at(function.offset, 0)
    };
    let at_return = session
        .attach(victim.file(), at_return)
        .expect("it can be probed");
    victim.order(&format!("{EACH} thread"));
    assert_eq!(victim.order(&format!("{EACH} vfork")), 2 * EACH);
    let [hits, returns] = [entry, at_return].map(|id| session.counters(id).hits);
    assert_eq!([hits, returns, witness.hits()], [2 * EACH; 3]);
    let mut records = Records::of(&session);
    records.hits.sort_by_key(|(hit, _)| hit.time_ns);
    let threads = &records.hits[..EACH as usize];
    assert!(threads.iter().all(|(hit, _)| hit.pid == victim.pid()));
    let tasks: HashSet<u32> = records.hits.iter().map(|(hit, _)| hit.tid).collect();
    assert_eq!(tasks.len() as u64, 2 * EACH);
}

test! { full, two_sessions_do_not_disturb_each_other, module }
fn two_sessions_do_not_disturb_each_other() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let small = Session::with_rings(4096);
    let large = Session::with_rings(1 << 22);
    let small_id = small.probe(victim.file(), &function, 0);
    victim.call(100);
    let large_id = large.probe(victim.file(), &function, abi::PROBE_STACK);
    let twice_id = large.probe(victim.file(), &function, 0);
    victim.call(5000);
    let small_counters = small.counters(small_id);
    assert_eq!(small_counters.hits, 5100);
    assert!(small_counters.lost_full > 0);
    for id in [large_id, twice_id] {
        let counters = large.counters(id);
        assert_eq!((counters.hits, counters.recorded), (5000, 5000));
    }
    drop(small);
    victim.call(100);
    assert_eq!(large.counters(large_id).recorded, 5100);
    let records = Records::of(&large);
    assert_eq!(records.hits_of(large_id).count(), 5100);
    assert_eq!(records.hits_of(twice_id).count(), 5100);
    assert!(records
        .hits_of(twice_id)
        .all(|(_, frames)| frames.is_empty()));
    drop(large);
    assert!(victim.text_is_restored(function.offset));
}

test! { core, only_the_wanted_process_is_recorded, module }
fn only_the_wanted_process_is_recorded() {
    let lab = Lab::new();
    let mut wanted = lab.caller("begins_with_push");
    let mut other = lab.caller("begins_with_push");
    let session = lab.session(RING_BYTES);
    session.only(&[wanted.pid()]).expect("it lives");
    let id = session.probe(&wanted, 0);
    wanted.call(100);
    other.call(1000);
    assert_eq!(wanted.kernel_hits(), 1100);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert_eq!(counters.recorded, 100);
    // Those of the other were filtered if the trap was there at all, which is
    // the witness's doing.
    assert_eq!(counters.filtered, counters.hits - 100);
    let records = Records::of(&session);
    assert!(records.hits.iter().all(|(hit, _)| hit.pid == wanted.pid()));
    wanted.alone();
    other.alone();
    let before = session.counters(id).hits;
    other.call(1000);
    assert_eq!(session.counters(id).hits, before, "the other still traps");
    assert!(other.text_is_restored());
    // Another process of the same number is not the one that was meant.
    let number = wanted.pid();
    wanted.end();
    let mut next = of_number(number);
    next.call(10);
    assert_eq!(session.counters(id).recorded, 100);
}

/// A victim with a number that is free.
fn of_number(number: u32) -> Victim {
    for _ in 0..50 {
        let last = (number - 1).to_string();
        std::fs::write("/proc/sys/kernel/ns_last_pid", last).expect("root");
        // Another process may take it.
        let victim = Victim::caller("begins_with_push");
        if victim.pid() == number {
            return victim;
        }
    }
    panic!("{number} is never free");
}

#[inline(never)]
pub(super) extern "C" fn called_by_the_tracer(n: u64) -> u64 {
    std::hint::black_box(n) + 1
}

test! { full, the_tracer_itself_is_left_out_unless_wanted, module }
fn the_tracer_itself_is_left_out_unless_wanted() {
    let _module = Module::load();
    let this = std::env::current_exe().expect("/proc is mounted");
    let offset = place_of(called_by_the_tracer as *const () as u64);
    let ours = in_filter(std::process::id());
    let attached = |flags| {
        let session = Session::with_rings(RING_BYTES);
        if flags != 0 {
            let is_listed = flags == abi::FILTER_PIDNS_LIST;
            let mut filter = abi::Filter {
                size: size::<abi::Filter>(),
                flags,
                pidns_list: if is_listed { &raw const ours as u64 } else { 0 },
                pidns_count: is_listed.into(),
                ..abi::Filter::default()
            };
            session.filter(&mut filter).expect("a filter");
        }
        // Our program is on a file system that a server answers for.
        let probe = probe_at(offset, abi::PROBE_MAY_HANG);
        let id = session.attach(&this, probe).expect("our own file");
        (session, id)
    };
    // The breakpoint is there for this one, so the others' handlers have to decide.
    let (_wants_it, _) = attached(abi::FILTER_SELF);
    for (flags, recorded) in [(0, 0), (abi::FILTER_SELF, 10), (abi::FILTER_PIDNS_LIST, 0)] {
        let (session, id) = attached(flags);
        for n in 0..10 {
            called_by_the_tracer(n);
        }
        assert_eq!(session.counters(id).recorded, recorded, "flags {flags}");
    }
}

/// Offset in our own file of an address of ours.
pub(super) fn place_of(address: u64) -> u64 {
    let mut code = code_of(std::process::id()).into_iter();
    let code = code.find(|code| code.addresses.contains(&address));
    let code = code.expect("our code is mapped");
    code.offset + address - code.addresses.start
}

test! { core, the_optimised_probe_records_the_same, module }
/// The kernel replaces a probe on a ten-byte nop by a call after its first
/// hit: another way in, the same record.
fn the_optimised_probe_records_the_same() {
    let lab = Lab::new();
    let mut victim = lab.caller("begins_with_nop10");
    let session = lab.session(1 << 22);
    let id = session.probe(&victim, abi::PROBE_STACK | abi::PROBE_AT_ENTRY);
    victim.call(10_000);
    let changed = victim.changed_bytes(victim.function.offset, 10);
    assert!(changed > 1, "it is no call: {changed} bytes changed");
    assert_eq!(session.counters(id).recorded, 10_000);
    assert_eq!(victim.kernel_hits(), 10_000);
    let records = Records::of(&session);
    let (first, first_frames) = &records.hits[0];
    let key = |hit: &Hit| (hit.words, hit.stack_end, hit.pid, hit.comm);
    for (hit, frames) in &records.hits {
        assert_eq!(key(hit), key(first), "hit {}", hit.sequence);
        assert_eq!(frames, first_frames, "hit {}", hit.sequence);
    }
    assert_eq!(
        first_frames[0],
        crate::tests::stacks::place(1, victim.function.offset)
    );
    drop(session);
    victim.alone();
    victim.call(10);
}
