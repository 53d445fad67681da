// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a reader maps can neither be widened nor turned against the
//! kernel, whatever the reader writes into it.

use super::conservation::{called_by_the_tracer, place_of};
use super::garbage::Seed;
use crate::cpu::RealTimeAlone;
use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Ring, Session, PAGE, RING_BYTES};
use crate::steps::{field, register, step};
use crate::sys::{self, Forked, Mapping};
use crate::victim::Victim;
use nix::libc::{self, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use nsprobe_common::abi::{self, Filter, Probe};
use nsprobe_common::program::{Operation, Register, Step};
use nsprobe_common::record::{Frame, BUSY, KIND_HIT, KIND_LOST, KIND_OBJECT, LENGTH};
use std::collections::HashSet;
use std::time::Duration;

test! { core, only_the_two_right_mappings_are_given, module }
fn only_the_two_right_mappings_are_given() {
    let _module = Module::load();
    let (page, data) = (PAGE as u64, 4 * PAGE);
    let session = Session::with_rings(data as u64);
    let stride = session.made.mmap_stride;
    assert!(
        stride >= 2 * page + data as u64 && stride.is_multiple_of(page),
        "{stride}"
    );
    let both = PROT_READ | PROT_WRITE;
    let all = PAGE + data;
    let end = u64::from(session.made.rings) * stride;
    let bad = [
        ("a writable producer", page, all, both, MAP_SHARED),
        ("a write-only producer", page, all, PROT_WRITE, MAP_SHARED),
        ("a private producer", page, all, PROT_READ, MAP_PRIVATE),
        ("a private writable producer", page, all, both, MAP_PRIVATE),
        ("a private consumer", 0, PAGE, both, MAP_PRIVATE),
        (
            "an executable producer",
            page,
            all,
            PROT_READ | PROT_EXEC,
            MAP_SHARED,
        ),
        (
            "an executable consumer",
            0,
            PAGE,
            both | PROT_EXEC,
            MAP_SHARED,
        ),
        (
            "consumer and producer in one",
            0,
            2 * PAGE,
            PROT_READ,
            MAP_SHARED,
        ),
        ("all in one", 0, 2 * PAGE + data, PROT_READ, MAP_SHARED),
        ("all in one, writable", 0, 2 * PAGE + data, both, MAP_SHARED),
        ("a page too little", page, all - PAGE, PROT_READ, MAP_SHARED),
        ("a page too much", page, all + PAGE, PROT_READ, MAP_SHARED),
        (
            "the middle of the data",
            3 * page,
            data,
            PROT_READ,
            MAP_SHARED,
        ),
        ("behind the last ring", end, PAGE, both, MAP_SHARED),
        (
            "behind the last ring's page",
            end + page,
            all,
            PROT_READ,
            MAP_SHARED,
        ),
        ("between two rings", stride - page, PAGE, both, MAP_SHARED),
        ("far behind", 1 << 62, PAGE, both, MAP_SHARED),
        ("everything", 0, end as usize, PROT_READ, MAP_SHARED),
    ];
    for (name, offset, bytes, protection, flags) in bad {
        let mapped = Mapping::new(&session, offset, bytes, protection, flags);
        // The last page of a stride may be the last of the data: refused too.
        assert!(mapped.is_err(), "{name} was given");
    }
    let bare = Session::open();
    let mapped = Mapping::new(&bare, 0, PAGE, both, MAP_SHARED);
    assert!(mapped.is_err(), "a ring before SETUP was given");
    for _ in 0..3 {
        assert_eq!(session.rings().len(), session.made.rings as usize);
    }
    Mapping::new(&session, 0, PAGE, PROT_READ, MAP_SHARED).expect("a consumer that only reads");
}

test! { full, mappings_cannot_be_widened, module }
fn mappings_cannot_be_widened() {
    let _module = Module::load();
    let session = Session::with_rings(4 * PAGE as u64);
    let ring = session.rings().remove(0);
    for protection in [PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC] {
        let got = errno(
            ring.producer.protect(protection),
            "mprotect of the producer",
        );
        assert_eq!(got, libc::EACCES);
    }
    let got = errno(
        ring.consumer.protect(PROT_READ | PROT_EXEC),
        "mprotect of the consumer",
    );
    assert_eq!(got, libc::EACCES);
    let bytes = ring.producer.bytes();
    let Err((producer, error)) = ring.producer.resize(bytes + PAGE) else {
        panic!("mremap has made the producer larger")
    };
    println!("mremap: {error}");
    let Err((consumer, _)) = ring.consumer.resize(2 * PAGE) else {
        panic!("mremap has made the consumer larger")
    };
    // A child of fork has neither: it would read for its parent.
    for (name, mapping) in [("producer", &producer), ("consumer", &consumer)] {
        match sys::fork().expect("fork") {
            Forked::Child => {
                mapping.word(0);
                sys::exit_now(0)
            }
            Forked::Parent(child) => {
                let status = sys::wait(child);
                let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
                assert_eq!(signal, Some(libc::SIGSEGV), "{name}: status {status:#x}");
            }
        }
    }
    // Nor does a part of one go.
    let got = errno(producer.punch(PAGE, PAGE), "munmap of a part");
    assert_eq!(got, libc::EINVAL);
    producer.word(PAGE);
    consumer.set_word(0, consumer.word(0));
}

test! { full, a_mapping_outlives_its_descriptor, module }
fn a_mapping_outlives_its_descriptor() {
    let module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, 0);
    let rings = session.rings();
    drop(session);
    victim.call(10);
    // The open file lives on in its mappings, and so does the session.
    assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    let mut records = Records::default();
    records.drain(&rings);
    assert_eq!(records.hits.len(), 10);
    drop(rings);
    assert!(victim.text_is_restored(function.offset));
}

/// The call's number, as a field.
const NUMBER: [Step; 2] = [register(0, Register::Rdi), field(0)];
/// More than any record of this test has.
const RECORD_BYTES_MAX: u64 = 512;

/// The kinds of records that this test has.
const KINDS: [u64; 3] = [KIND_HIT as u64, KIND_OBJECT as u64, KIND_LOST as u64];

/// Where the records begin whose end is `end`, the earliest that is still there. There is one
/// near the oldest byte, unless a record lies over others.
fn oldest(ring: &Ring, begin: u64, end: u64) -> u64 {
    let bytes = ring.data_bytes();
    if end - begin <= bytes {
        return begin;
    }
    let word = |position: u64| ring.producer.word(PAGE + (position & (bytes - 1)) as usize);
    let is_begin = |start: &u64| {
        let mut position = *start;
        while position < end {
            let header = word(position);
            let is_known = KINDS.contains(&(header >> 32)) && header as u32 & BUSY == 0;
            let length = header & u64::from(LENGTH);
            if !is_known || !(16..=RECORD_BYTES_MAX).contains(&length) || length % 8 != 0 {
                return false;
            }
            position += length;
        }
        position == end
    };
    let starts = (end - bytes..end - bytes + RECORD_BYTES_MAX).step_by(8);
    let words: Vec<u64> = (end - bytes..end).step_by(8).map(word).collect();
    starts
        .clone()
        .find(is_begin)
        .unwrap_or_else(|| panic!("no record begins in {starts:?}: {words:x?}"))
}

test! { core, no_consumer_position_does_harm, module, cpus = 2, seconds = 120 }
/// The reader lies about what it has read while calls are recorded. Then what was recorded is
/// read: each record is whole, one of the calls of that time, and there once.
fn no_consumer_position_does_harm() {
    const ROUNDS: u64 = 150;
    let _module = Module::load();
    let mut victims = [0; 3].map(|_| Victim::caller("begins_with_push"));
    let function = victims[0].function("begins_with_push");
    let pids = victims.each_ref().map(Victim::pid);
    let session = Session::with_rings(abi::RING_BYTES_MIN);
    session.only(&pids).expect("they live");
    let probe = Probe {
        entry_program: session.upload(&NUMBER, b"").expect("a sound program"),
        ..probe_at(function.offset, abi::PROBE_STACK | abi::PROBE_AT_ENTRY)
    };
    let id = session.attach(victims[0].file(), probe).expect("a probe");
    let rings = session.rings();
    let seed = Seed::of_this_run();
    let mut random = seed.random();
    let (mut whole_rounds, mut all_hits, mut read, mut lies) = (0, 0, 0, 0);
    for round in 0..ROUNDS {
        // Nothing is written at this moment: here begin the round's records.
        let begins: Vec<u64> = rings.iter().map(Ring::produced).collect();
        for (ring, begin) in rings.iter().zip(&begins) {
            ring.consumer.set_word(0, *begin);
        }
        let before = session.counters(id);
        // Some rounds fit into the rings, others go around.
        let calls = random.pick(&[5, 5, 5, 50, 300]);
        all_hits += calls * victims.len() as u64;
        victims.iter_mut().for_each(|victim| victim.begin(calls));
        while session.counters_on(id, abi::CPU_ALL).expect("a probe").hits < all_hits {
            for ring in &rings {
                let real = ring.produced();
                let wild = random.next();
                let lie = random.pick(&[
                    wild,
                    0,
                    u64::MAX,
                    real.wrapping_add(8),
                    real.wrapping_sub(8),
                    real.wrapping_sub(abi::RING_BYTES_MIN),
                    real.wrapping_add(abi::RING_BYTES_MIN),
                    real.wrapping_sub(wild % 4096),
                    real | 1,
                    real,
                    real,
                ]);
                ring.consumer.set_word(0, lie);
                lies += 1;
            }
        }
        for victim in &mut victims {
            victim.finish();
        }
        let counters = session.counters(id);
        assert_eq!(counters.hits, all_hits, "{counters:?}");
        let recorded = counters.recorded - before.recorded;
        let mut records = Records::default();
        let mut is_whole = true;
        for (ring, begin) in rings.iter().zip(begins) {
            let start = oldest(ring, begin, ring.produced());
            is_whole &= start == begin;
            ring.consumer.set_word(0, start);
            records.add(&ring.read(true));
        }
        let mut seen = HashSet::new();
        for ((hit, frames), (_, fields)) in records.hits.iter().zip(&records.details) {
            assert!(hit.probe == id && pids.contains(&hit.pid), "{hit:?}");
            assert_eq!((frames.len() > 2, fields.len()), (true, 2), "{hit:?}");
            let number = fields[1];
            assert!(number < calls, "round {round}: call {number} of {calls}");
            assert!(seen.insert((hit.pid, number)), "call {number} twice");
            let Frame::Object { offset, .. } = frames[0] else {
                panic!("{frames:?}");
            };
            assert_eq!(offset, function.offset);
        }
        let found = records.hits.len() as u64;
        match is_whole {
            true => assert_eq!(found, recorded, "round {round}: {counters:?}"),
            false => assert!((1..=recorded).contains(&found), "{found} of {recorded}"),
        }
        whole_rounds += u64::from(is_whole);
        read += found;
    }
    let counters = session.counters(id);
    println!("{lies} lies, {read} records read, {whole_rounds} whole rounds, {counters:?}");
    assert!(whole_rounds > 20 && whole_rounds < ROUNDS, "{whole_rounds}");
    assert!(counters.recorded > 1000 && counters.lost_full > 0);
    let announced: u64 = rings.iter().map(|ring| ring.lost()).sum();
    assert_eq!(announced, counters.lost_full, "{counters:?}");
    // Back to the truth, all is well again.
    for ring in &rings {
        ring.consumer.set_word(0, ring.produced());
    }
    victims[0].call(10);
    let mut records = Records::default();
    records.drain(&rings);
    assert_eq!(records.hits.len(), 10);
    assert_eq!(session.counters(id).recorded, counters.recorded + 10);
}

test! { core, no_record_goes_over_an_unfinished_one, module }
/// The reader takes the CPU from a task that is in the midst of a record, and says again and
/// again that it has read all, while it is hit itself: what it records has the rest of the ring
/// and no more. Up to 512 bytes it finds no record unfinished: a task that was in the midst of a
/// short one held up all others of its CPU.
fn no_record_goes_over_an_unfinished_one() {
    const ENOUGH: usize = 10;
    const SHORT: usize = 400;
    const RING: u64 = 16 << 10;
    /// Less than any hit has.
    const HIT_BYTES_MIN: u64 = 64;
    let _module = Module::load();
    sys::run_on(1);
    let session = Session::with_rings(RING);
    let mut include_self = Filter {
        size: size::<Filter>(),
        flags: abi::FILTER_SELF,
        ..Filter::default()
    };
    session.filter(&mut include_self).expect("a filter");
    let place = place_of(called_by_the_tracer as *const () as u64);
    let this = std::env::current_exe().expect("/proc is mounted");
    // Our program is in the host's folder.
    let own = session.attach(&this, probe_at(place, abi::PROBE_MAY_HANG));
    let own = own.expect("a probe");
    let victim = Victim::start("call_in_loop", &["begins_with_push", "0", "0"]);
    let bytes = step(Operation::FieldBytes, 0, 0, 0, 256, 0);
    let attach = |steps: &[Step]| {
        let probe = Probe {
            entry_program: session.upload(steps, b"").expect("a sound program"),
            ..probe_at(victim.function("begins_with_push").offset, 0)
        };
        session.attach(victim.file(), probe).expect("a probe")
    };
    let short = attach(&[register(0, Register::Rsp), bytes]);
    let ring = session.rings().remove(0);
    let mut records = Records::default();
    let mut unfinished = HashSet::new();
    let _alone = RealTimeAlone::new();
    sys::run_before_others();
    for _ in 0..SHORT {
        std::thread::sleep(Duration::from_micros(100));
        records.add(&ring.read(true));
        assert_eq!(ring.consumer.word(0), ring.produced(), "an unfinished one");
    }
    session.detach(&[short]).expect("it is attached");
    // Long records take their time.
    let others = attach(&[register(0, Register::Rsp), bytes, bytes]);
    while unfinished.len() < ENOUGH {
        std::thread::sleep(Duration::from_micros(100));
        records.add(&ring.read(true));
        let begin = ring.consumer.word(0);
        if begin == ring.produced() {
            continue;
        }
        for number in 0..2 * RING / HIT_BYTES_MIN {
            ring.consumer.set_word(0, ring.produced());
            called_by_the_tracer(number);
        }
        let used = ring.produced() - begin;
        assert!(used <= RING, "{used} bytes from the unfinished record on");
        assert!(used > RING / 2, "{used} bytes alone were recorded");
        ring.consumer.set_word(0, begin);
        unfinished.insert(begin);
    }
    session.detach(&[own, others]).expect("they are attached");
    records.add(&ring.read(true));
    for id in [own, short, others] {
        let counters = session.counters(id);
        println!("{counters:?}");
        assert_eq!(records.hits_of(id).count() as u64, counters.recorded);
    }
}
