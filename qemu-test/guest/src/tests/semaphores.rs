// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a USDT point's semaphore is counted in every process that has the
//! breakpoint, and in no other; afterwards it is what it was.

use crate::binary;
use crate::module::Module;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::libc;
use nsprobe_common::abi::{Probe, Refusal, FEATURE_SEMAPHORE};
use std::fs::File;

/// The victim's point with its semaphore.
fn point() -> Probe {
    let file = victim::path("with_semaphore");
    Probe {
        semaphore: binary::section(&file, ".probes"),
        ..probe_at(binary::function(&file, "step").offset, 0)
    }
}

fn start() -> Victim {
    Victim::start("with_semaphore", &[])
}

fn attach(session: &Session, probe: Probe) -> u32 {
    session
        .attach(&victim::path("with_semaphore"), probe)
        .unwrap_or_else(|(error, reply)| panic!("{error} {reply:?}"))
}

test! { full, a_semaphore_is_counted_up_and_down, module }
fn a_semaphore_is_counted_up_and_down() {
    let _module = Module::load();
    let mut victim = start();
    assert_eq!(victim.call(5), 0);
    let session = Session::with_rings(RING_BYTES);
    assert_ne!(session.info().features & FEATURE_SEMAPHORE, 0);
    let id = attach(&session, point());
    assert_eq!(victim.call(7), 1);
    assert_eq!(session.counters(id).recorded, 7);
    session.detach(&[id]).expect("it is attached");
    assert_eq!(victim.call(5), 0);
    assert_eq!(session.counters(id).hits, 7);
    let again = attach(&session, point());
    assert_eq!(victim.call(3), 1);
    assert_eq!(session.counters(again).hits, 3);
    drop(session);
    assert_eq!(victim.call(1), 0, "after close");
}

test! { full, processes_started_later_are_counted_too, module }
fn processes_started_later_are_counted_too() {
    let _module = Module::load();
    let session = Session::with_rings(RING_BYTES);
    let id = attach(&session, point());
    let mut victim = start();
    assert_eq!(victim.call(4), 1);
    assert_eq!(session.counters(id).hits, 4);
    drop(session);
    assert_eq!(victim.call(4), 0);
}

test! { full, a_filter_holds_for_the_semaphore_too, module }
fn a_filter_holds_for_the_semaphore_too() {
    let _module = Module::load();
    let (mut chosen, mut other) = (start(), start());
    let session = Session::with_rings(RING_BYTES);
    session.only(&[chosen.pid()]).expect("it lives");
    let id = attach(&session, point());
    assert_eq!((chosen.call(2), other.call(2)), (1, 0));
    assert_eq!(session.counters(id).hits, 2);
}

test! { core, a_process_that_spoils_its_semaphore_costs_itself_alone, module }
/// The probe was refused for everybody, as was each later filter.
fn a_process_that_spoils_its_semaphore_costs_itself_alone() {
    let _module = Module::load();
    let mut first = start();
    let spoiled = Victim::start("with_semaphore", &["spoiled"]);
    let also = Victim::start("with_semaphore", &["spoiled"]);
    let mut last = start();
    let session = Session::with_rings(RING_BYTES);
    let id = attach(&session, point());
    assert_eq!((first.call(3), last.call(4)), (1, 1));
    let counters = session.counters(id);
    assert_eq!((counters.hits, counters.processes_failed), (7, 2));
    let mut later = start();
    for good in [&mut last, &mut later] {
        let filter = session.only(&[spoiled.pid(), good.pid()]);
        filter.expect("one of them can be probed");
        let hits = session.counters(id).hits;
        assert_eq!(good.call(2), 1);
        let counters = session.counters(id);
        assert_eq!((counters.hits - hits, counters.processes_failed), (2, 1));
    }
    assert_eq!((first.call(1), last.call(1)), (0, 0));
    session.only(&[first.pid()]).expect("it lives");
    assert_eq!(session.counters(id).processes_failed, 0);
    drop(session);
    drop((spoiled, also));
}

test! { full, several_sessions_count_one_semaphore, module }
fn several_sessions_count_one_semaphore() {
    let _module = Module::load();
    let mut victim = start();
    let (one, two) = (
        Session::with_rings(RING_BYTES),
        Session::with_rings(RING_BYTES),
    );
    attach(&one, point());
    let id = attach(&two, point());
    // The kernel counts breakpoints, of which there is one.
    assert_eq!(victim.call(1), 1);
    drop(one);
    assert_eq!(victim.call(2), 1);
    assert_eq!(two.counters(id).hits, 3);
    drop(two);
    assert_eq!(victim.call(1), 0);
}

test! { full, impossible_semaphores_are_refused, module }
fn impossible_semaphores_are_refused() {
    let _module = Module::load();
    let mut victim = start();
    let point = point();
    let file = File::open(victim.file()).expect("the victim's file is there");
    let end = file.metadata().expect("it is open").len();
    let (session, other) = (
        Session::with_rings(RING_BYTES),
        Session::with_rings(RING_BYTES),
    );
    let path = victim.file().to_path_buf();
    let refused = |semaphore: u64, wanted: Refusal| {
        let probe = Probe { semaphore, ..point };
        let (error, reply) = other.attach(&path, probe).expect_err("a bad semaphore");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{semaphore:#x}");
        let reason = Refusal::from_u32(reply.reason);
        assert_eq!(reason, Some(wanted), "{semaphore:#x}");
    };
    for semaphore in [
        point.semaphore + 1,
        1,
        point.offset,
        point.offset + 2,
        (end + 1) & !1,
        end + 4096,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
    ] {
        refused(semaphore, Refusal::BadSemaphore);
    }
    // Another tracer has the instruction without a semaphore, and its probe goes on.
    let witness = Witness::new(victim.file(), point.offset);
    refused(point.semaphore, Refusal::SemaphoreConflict);
    drop(witness);
    // The kernel forgets a uprobe a while after its last consumer.
    let agrees = crate::oracle::within(std::time::Duration::from_secs(10), || {
        session.attach(victim.file(), point).is_ok()
    });
    assert!(agrees);
    assert_eq!(victim.call(1), 1);
    refused(0, Refusal::SemaphoreConflict);
    refused(point.semaphore + 2, Refusal::SemaphoreConflict);
    assert_eq!(victim.call(1), 1);
    assert_eq!(session.info().probes, 1);
}
