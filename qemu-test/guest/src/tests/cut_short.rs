// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a task that is killed in the midst of a probed instruction, and one that is refused
//! while it is made, are counted as what they did.

use crate::binary;
use crate::group::Group;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi::{self, Probe};
use std::fs;

/// Whether a task waits for a page that never comes.
fn waits_for_a_page(pid: u32) -> bool {
    let at = fs::read_to_string(format!("/proc/{pid}/wchan"));
    at.is_ok_and(|at| at == "handle_userfault")
}

test! { full, who_is_killed_in_the_probed_instruction_was_there_once, module }
/// As a control group without memory does to it: the kill comes while the instruction faults.
/// Every other time its probes go before it does.
fn who_is_killed_in_the_probed_instruction_was_there_once() {
    const ROUNDS: u64 = 10;
    let _module = Module::load();
    let file = victim::path("never_there");
    let place = binary::function(&file, "loads").offset;
    let witness = Witness::new(&file, place);
    let (mut hits, mut returns) = (0, 0);
    for round in 1..=ROUNDS {
        let session = Session::with_rings(RING_BYTES);
        let entry = session.attach(&file, probe_at(place, abi::PROBE_STACK));
        let entry = entry.expect("a probe");
        let at_return = Probe {
            kind: abi::PROBE_RETURN,
            ..probe_at(place, 0)
        };
        let at_return = session.attach(&file, at_return).expect("a probe");
        let mut victim = Victim::start("never_there", &[]);
        let pid = victim.pid();
        victim.begin(1);
        let waits = || waits_for_a_page(pid);
        assert!(within(SOON, waits), "round {round}");
        if round % 2 == 0 {
            let both = [entry, at_return];
            session.detach(&both).expect("they are attached");
        }
        drop(victim);
        let counters = session.counters(entry);
        assert_eq!(counters.recorded, counters.hits, "{counters:?}");
        hits += counters.hits;
        returns += session.counters(at_return).hits;
    }
    assert_eq!((hits, returns), (ROUNDS, 0));
    assert_eq!(witness.hits(), ROUNDS);
}

test! { full, a_fork_bomb_at_its_limit_is_counted, module }
/// Of a process that is refused, the memory is a copy with breakpoints already.
fn a_fork_bomb_at_its_limit_is_counted() {
    const LIMIT: u64 = 40;
    const ROUNDS: u64 = 3;
    let _module = Module::load();
    let file = victim::path("fork_bomb");
    let place = binary::function(&file, "in_bomb").offset;
    let group = Group::new("nsprobe-bomb");
    let limit = group.folder.join("pids.max");
    fs::write(limit, LIMIT.to_string()).expect("it is ours");
    let mut bomb = Victim::start_command(&mut group.command(&file), &file);
    let session = Session::with_rings(RING_BYTES);
    session.only(&[bomb.pid()]).expect("it lives");
    let all = Session::with_rings(RING_BYTES);
    let probe = Probe {
        sink: abi::SINK_COUNT,
        ..probe_at(place, 0)
    };
    let own = session.attach(&file, probe).expect("a probe");
    let all_of_it = all.attach(&file, probe).expect("a probe");
    let witness = Witness::new(&file, place);
    let mut called = 0;
    for _ in 0..ROUNDS {
        called = bomb.order("9");
    }
    let events = fs::read_to_string(group.folder.join("pids.events")).expect("it is ours");
    println!("{called} calls; {events}");
    assert!(!events.contains("max 0\n"), "{events}");
    assert!(called > ROUNDS * LIMIT, "{called}");
    let hits = all.counters(all_of_it).hits;
    assert_eq!((hits, witness.hits()), (called, called));
    let counters = session.counters(own);
    assert_eq!(counters.aggregated, ROUNDS, "{counters:?}");
}
