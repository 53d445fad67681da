// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: thousands of probes go in with one call and out with one, all or none,
//! whoever dies meanwhile.

use super::tests;
use crate::binary::Function;
use crate::module::Module;
use crate::oracle;
use crate::places::probes;
use crate::session::{Session, RING_BYTES};
use crate::threads::Stop;
use crate::victim::{self, Victim};
use nsprobe_common::abi::{self, Refusal};
use std::fs::File;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

tests![
    thousands_are_attached_hit_and_detached: 240,
    an_attach_that_fails_at_any_probe_leaves_nothing,
    forks_go_on_while_thousands_are_attached: 120,
    closing_the_session_detaches_thousands: 120,
    a_killed_attacher_leaves_nothing: 120,
];

/// What a guest of 512 MB has room for where memory is checked: 6 KB each, most of it the
/// kernel's own.
const MANY: u64 = 50_000;
/// What the stock guest has room for.
const MOST: u64 = 60_000;

fn open(victim: &Victim) -> File {
    File::open(victim.file()).expect("the victim's file is there")
}

fn assert_restored(victim: &Victim, places: &Function) {
    let changed = victim.changed_bytes(places.offset, places.bytes);
    assert_eq!(changed, 0, "breakpoints are left");
}

fn thousands_are_attached_hit_and_detached() {
    let _module = Module::load();
    let mut victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let file = open(&victim);
    for count in [1, 1_000, 10_000, MANY] {
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

/// Forks that were made while something was done.
#[derive(Debug)]
struct Forks {
    /// How long that took.
    elapsed: Duration,
    count: u32,
    slowest: Duration,
}

impl Forks {
    fn during(work: impl FnOnce()) -> Forks {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let forker = scope.spawn(|| {
                let (mut slowest, mut count) = (Duration::ZERO, 0);
                while !done.load(Ordering::Relaxed) || count == 0 {
                    let start = Instant::now();
                    let status = Command::new("/bin/true").status().expect("a fork");
                    assert!(status.success());
                    slowest = slowest.max(start.elapsed());
                    count += 1;
                }
                (slowest, count)
            });
            let begun = Instant::now();
            {
                let _stop = Stop(&done);
                work();
            }
            let elapsed = begun.elapsed();
            let (slowest, count) = forker.join().expect("it forks");
            Forks {
                elapsed,
                count,
                slowest,
            }
        })
    }

    /// Asserts that forks went on: none waited for the end of the work, and there were not many
    /// fewer than `idle` had in the same guest, with as much to do beside them.
    fn went_on(&self, what: &str, idle: &Forks) {
        println!("{what}: {self:?}, else {idle:?}");
        let rate = |forks: &Forks| f64::from(forks.count) / forks.elapsed.as_secs_f64();
        assert!(rate(self) * 8.0 > rate(idle), "{what}: forks wait");
        // The machine may stop for a while, as it does without us.
        let noise = 4 * idle.slowest;
        let waits = self.slowest > noise && self.slowest > self.elapsed / 2;
        assert!(!waits, "{what}: a fork waits for the end of it");
    }
}

fn forks_go_on_while_thousands_are_attached() {
    let _module = Module::load();
    let victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let file = open(&victim);
    let session = Session::with_rings(RING_BYTES);
    let mut probes = probes(&file, &places, MOST);
    let attaching = Forks::during(|| session.attach_all(&mut probes).expect("all are possible"));
    let ids: Vec<u32> = probes.iter().map(|probe| probe.id).collect();
    let detaching = Forks::during(|| session.detach(&ids).expect("all are attached"));
    assert_restored(&victim, &places);
    // Another busy process, as long as that took.
    let idle = Forks::during(|| {
        let begun = Instant::now();
        while begun.elapsed() < attaching.elapsed.max(detaching.elapsed) {
            std::hint::spin_loop();
        }
    });
    attaching.went_on("attaching", &idle);
    detaching.went_on("detaching", &idle);
}

fn closing_the_session_detaches_thousands() {
    let _module = Module::load();
    let mut victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let file = open(&victim);
    let session = Session::with_rings(RING_BYTES);
    session
        .attach_all(&mut probes(&file, &places, 10_000))
        .expect("all are possible");
    let start = Instant::now();
    drop(session);
    println!("closed in {:?}", start.elapsed());
    assert_restored(&victim, &places);
    assert_eq!(Session::open().info().probes, 0);
    victim.call(1);
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

fn a_killed_attacher_leaves_nothing() {
    let _module = Module::load();
    let mut victim = Victim::start("many_places", &[]);
    let places = victim.function("places");
    let itself = std::env::current_exe().expect("the tests' own program");
    // As often as it is killed in the middle: some are in, some are not.
    const MIDWAY: u32 = 3;
    let mut midway = 0;
    for _ in 0..10 {
        if midway == MIDWAY {
            break;
        }
        let mut attacher = Command::new(&itself)
            .args(["--role", "attach-many", &victim.pid().to_string()])
            .spawn()
            .expect("the tests' own program");
        let begun = oracle::within(oracle::SOON, || {
            victim.changed_bytes(places.offset, places.bytes) > 0
        });
        let there = victim.changed_bytes(places.offset, places.bytes);
        attacher.kill().expect("it is ours");
        let start = Instant::now();
        attacher.wait().expect("it is ours");
        println!("killed after {there}, gone in {:?}", start.elapsed());
        midway += u32::from(there < MANY);
        assert!(begun, "it attached nothing");
        assert_restored(&victim, &places);
        let info = Session::open().info();
        assert_eq!((info.sessions, info.probes), (1, 0));
        victim.call(1);
    }
    assert!(midway > 0, "all were in each time");
}

/// One call is enough for them.
const _: () = assert!(abi::ATTACH_MAX as u64 >= MANY);
