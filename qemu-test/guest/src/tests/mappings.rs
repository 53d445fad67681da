// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what a reader maps can neither be widened nor turned against the
//! kernel, whatever the reader writes into it.

use super::garbage::Random;
use super::tests;
use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, Session, PAGE, RING_BYTES};
use crate::sys::{self, Forked, Mapping};
use crate::victim::Victim;
use nix::libc::{self, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use nsprobe_common::abi;

tests![
    only_the_two_right_mappings_are_given,
    mappings_cannot_be_widened,
    a_mapping_outlives_its_descriptor,
    no_consumer_position_does_harm,
];

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
    let consumer = Mapping::new(&session, 0, PAGE, PROT_READ, MAP_SHARED);
    drop(consumer);
}

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
    // Parts may go; the rest must stay what it is.
    if producer.punch(PAGE, PAGE).is_ok() {
        producer.word(0);
    }
    consumer.set_word(0, consumer.word(0));
}

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

fn no_consumer_position_does_harm() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(abi::RING_BYTES_MIN);
    session.only(&[victim.pid()]).expect("it lives");
    let id = session.probe(victim.file(), &function, abi::PROBE_STACK);
    let rings = session.rings();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    const CALLS: u64 = 20_000;
    victim.begin(CALLS);
    while session.counters(id).hits < CALLS {
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
        }
    }
    assert_eq!(victim.finish(), CALLS);
    let counters = session.counters(id);
    println!("{counters:?}");
    assert!(
        counters.recorded > 0 && counters.lost_full > 0,
        "{counters:?}"
    );
    let announced: u64 = rings.iter().map(|ring| ring.lost()).sum();
    assert!(announced >= counters.lost_full, "{announced} {counters:?}");
    // Back to the truth, all is well again.
    for ring in &rings {
        ring.consumer.set_word(0, ring.produced());
    }
    victim.call(10);
    let mut records = Records::default();
    records.drain(&rings);
    assert_eq!(records.hits.len(), 10);
    assert_eq!(session.counters(id).recorded, counters.recorded + 10);
}
