// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: thousands of probes go in with one call and out with one, all or none,
//! whoever dies meanwhile.

use crate::binary::Function;
use crate::figures;
use crate::module::Module;
use crate::places::probes;
use crate::session::{Session, RING_BYTES};
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi::{self, Refusal};
use std::fs::File;
use std::process::ExitCode;
use std::time::Instant;

/// What a guest of 512 MB has room for where memory is checked: 6 KB each, most of it the
/// kernel's own.
const MANY: u64 = 50_000;

fn open(victim: &Victim) -> File {
    File::open(victim.file()).expect("the victim's file is there")
}

fn assert_restored(victim: &Victim, places: &Function) {
    let changed = victim.changed_bytes(places.offset, places.bytes);
    assert_eq!(changed, 0, "breakpoints are left");
}

test! { core, thousands_are_attached_hit_and_detached, module, seconds = 240 }
fn thousands_are_attached_hit_and_detached() {
    let _module = Module::load();
    let mut victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let file = open(&victim);
    for count in [1, MANY / figures::parts(10) as u64] {
        let session = Session::with_rings(RING_BYTES);
        let mut probes = probes(&file, &places, count);
        let start = Instant::now();
        session.attach_all(&mut probes).expect("all are attached");
        let attached = start.elapsed();
        assert_eq!(u64::from(session.info().probes), count);
        assert_eq!(victim.changed_bytes(places.offset, places.bytes), count);
        victim.call(1);
        for probe in &probes {
            let counters = session.counters(probe.id);
            assert_eq!((counters.hits, counters.aggregated), (1, 1), "{probe:?}");
        }
        let ids: Vec<u32> = probes.iter().map(|probe| probe.id).collect();
        let start = Instant::now();
        session.detach(&ids).expect("all are attached");
        let detached = start.elapsed();
        println!("{count} probes: attached in {attached:?}, detached in {detached:?}");
        assert_eq!(session.info().probes, 0);
        assert_restored(&victim, &places);
        victim.call(1);
        assert_eq!(session.counters(ids[0]).hits, 1);
    }
}

test! { core, an_attach_that_fails_at_any_probe_leaves_nothing, module }
fn an_attach_that_fails_at_any_probe_leaves_nothing() {
    const COUNT: usize = 6;
    let _module = Module::load();
    let victim = Victim::start("many_places", &[]);
    let (places, trap) = (victim.function("places"), victim.function("trap"));
    let file = open(&victim);
    let session = Session::with_rings(RING_BYTES);
    let outside = file.metadata().expect("it is open").len();
    for wrong in 0..COUNT {
        // One that the module refuses, and one that only the kernel does.
        for (offset, reason) in [
            (outside, Refusal::OutsideFile),
            (trap.offset, Refusal::Kernel),
        ] {
            let mut probes = probes(&file, &places, COUNT as u64);
            probes[wrong].offset = offset;
            let (error, reply) = session
                .attach_all(&mut probes)
                .expect_err("one is impossible");
            assert_eq!(reply.failed, wrong as u32, "{error}");
            assert_eq!(Refusal::from_u32(reply.reason), Some(reason), "{error}");
            assert_eq!(session.info().probes, 0);
            assert_restored(&victim, &places);
        }
    }
    // The session is as good as new.
    let mut probes = probes(&file, &places, COUNT as u64);
    session.attach_all(&mut probes).expect("all are possible");
    assert_eq!(session.info().probes, COUNT as u32);
    // Ids that records may bear are not given again.
    assert!(probes[0].id > 1);
}

test! { core, one_place_that_cannot_be_probed_costs_itself_alone, module }
/// Of ten thousand places all were refused for one. Calls that are followed are probed at all of
/// their places or at none.
fn one_place_that_cannot_be_probed_costs_itself_alone() {
    /// Which one is the kernel's to refuse; where a call begins whose exit is nowhere.
    const TRAP: usize = 900;
    const CALL: usize = 1_000;
    let count = 10_000 / figures::parts(5) as u64;
    let _module = Module::load();
    let mut victim = Victim::start("many_places", &[]);
    let (places, trap) = (victim.function("places"), victim.function("trap"));
    let file = open(&victim);
    let session = Session::with_rings(RING_BYTES);
    let mut probes = probes(&file, &places, count);
    let mut wanted = probes.clone();
    wanted[TRAP].offset = trap.offset;
    // And one whose exit can be probed.
    for (number, call) in [(CALL, 1), (CALL + 2, 2)] {
        (wanted[number].kind, wanted[number].call) = (abi::PROBE_BEGIN, call);
        (wanted[number + 1].kind, wanted[number + 1].call) = (abi::PROBE_END, call);
    }
    wanted[CALL + 1].offset = file.metadata().expect("it is open").len();
    let attached = session.attach_with(abi::ATTACH_PARTIAL, &mut wanted);
    attached.expect("the others are attached");
    let refused = wanted.iter().enumerate().filter(|(_, probe)| probe.id == 0);
    let refused: Vec<_> = refused
        .map(|(number, probe)| (number, Refusal::from_u32(probe.refused), probe.error as i32))
        .collect();
    let outside = Some(Refusal::OutsideFile);
    assert_eq!(
        refused,
        [
            (TRAP, Some(Refusal::Kernel), libc::ENOEXEC),
            (CALL, outside, libc::ENOEXEC),
            (CALL + 1, outside, libc::ENOEXEC),
        ]
    );
    assert_eq!(u64::from(session.info().probes), count - 3);
    assert_eq!(victim.changed_bytes(places.offset, places.bytes), count - 3);
    victim.call(1);
    for probe in [0, TRAP - 1, TRAP + 1, CALL + 4].map(|number| wanted[number]) {
        assert_eq!(session.counters(probe.id).hits, 1, "{probe:?}");
    }
    // What has nothing to do with a place is an error still.
    probes[1].kind = 0;
    let (_, reply) = session
        .attach_with(abi::ATTACH_PARTIAL, &mut probes)
        .expect_err("no such kind");
    assert_eq!(Refusal::from_u32(reply.reason), Some(Refusal::UnknownValue));
    drop(session);
    assert_restored(&victim, &places);
}

/// Attaches as many as there are, and waits to be killed.
pub(crate) fn attach_for_ever(pid: &str) -> ExitCode {
    let file = victim::path("many_places");
    let places = crate::binary::function(&file, "places");
    let session = Session::with_rings(RING_BYTES);
    session
        .only(&[pid.parse().expect("a number")])
        .expect("it lives");
    let file = File::open(file).expect("the victim's file is there");
    let _ = session.attach_all(&mut probes(&file, &places, MANY));
    loop {
        std::thread::park();
    }
}

/// One call is enough for them.
const _: () = assert!(abi::ATTACH_MAX as u64 >= MANY);
