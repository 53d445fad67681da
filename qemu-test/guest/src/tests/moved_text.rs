// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever a program does to the mappings of its code, the probes in it do it no harm
//! and count what the kernel's own count.

use super::tests;
use crate::binary;
use crate::module::Module;
use crate::oracle::within;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nsprobe_common::abi::{self, Probe};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

tests![
    code_that_is_moved_and_changed_is_counted_as_the_kernel_counts,
    pages_with_breakpoints_are_merged_and_taken_apart,
];

/// Copies of its code that the victim has.
const COPIES: u64 = 4;

/// A victim that changes the mappings of its code, and where the function in it is.
struct Mover {
    victim: Victim,
    file: PathBuf,
    place: u64,
}

impl Mover {
    fn new() -> Mover {
        let file = victim::path("moves_text");
        let place = binary::function(&file, "moved").offset;
        let victim = Victim::start("moves_text", &[&place.to_string()]);
        Mover {
            victim,
            file,
            place,
        }
    }

    fn counted(&self) -> (Session, u32) {
        let session = Session::with_rings(RING_BYTES);
        let probe = Probe {
            sink: abi::SINK_COUNT,
            ..probe_at(self.place, 0)
        };
        let id = session.attach(&self.file, probe).expect("a probe");
        (session, id)
    }
}

/// A page that is read from the file again has no breakpoint any more: the kernel does not
/// notice, so no probe sees some of the calls. The victim looks at the result of each.
fn code_that_is_moved_and_changed_is_counted_as_the_kernel_counts() {
    const CHANGES: u64 = 800;
    let _module = Module::load();
    let mut mover = Mover::new();
    let (session, id) = mover.counted();
    let witness = Witness::new(&mover.file, mover.place);
    let called = mover.victim.order(&format!("{CHANGES} change"));
    let hits = session.counters(id).hits;
    println!("{called} calls, {hits} hits");
    assert_eq!(hits, witness.hits());
    assert!(called >= CHANGES && hits > called / 4 && hits <= called);
    // A probe that comes and goes while others stay, and one in what is as it is now.
    let (other, other_id) = mover.counted();
    let before = hits;
    mover.victim.order(&format!("{CHANGES} change"));
    let (hits, others) = (session.counters(id).hits, other.counters(other_id).hits);
    assert_eq!((hits, hits - before), (witness.hits(), others));
    drop((session, other, witness));
    // Nothing is left in any of them.
    mover.victim.order("100 call");
    mover.victim.order("400 change");
}

/// The kernel merges pages of the same content, until this is dropped.
struct Merging(Vec<(&'static str, String)>);

impl Merging {
    fn on() -> Merging {
        let settings = [("sleep_millisecs", "1"), ("pages_to_scan", "1000")];
        let settings = settings.into_iter().chain([("run", "1")]);
        let before = settings.map(|(name, value)| {
            let file = Merging::file(name);
            let before = fs::read_to_string(&file).expect("the kernel has KSM");
            fs::write(&file, value).expect("root");
            (name, before)
        });
        Merging(before.collect())
    }

    fn file(name: &str) -> String {
        format!("/sys/kernel/mm/ksm/{name}")
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        // First of all they are taken apart.
        let _ = fs::write(Merging::file("run"), "2");
        for (name, before) in &self.0 {
            let _ = fs::write(Merging::file(name), before);
        }
    }
}

/// All copies have the same breakpoint, so they become one page.
fn pages_with_breakpoints_are_merged_and_taken_apart() {
    let _module = Module::load();
    let mut mover = Mover::new();
    let (session, id) = mover.counted();
    let witness = Witness::new(&mover.file, mover.place);
    let merging = Merging::on();
    mover.victim.order("0 merge");
    let merged = format!("/proc/{}/ksm_merging_pages", mover.victim.pid());
    let is_merged = || {
        let pages = fs::read_to_string(&merged).expect("it lives");
        pages.trim().parse::<u64>().expect("a number") >= COPIES
    };
    assert!(within(Duration::from_secs(30), is_merged), "none is merged");
    assert_eq!(mover.victim.order("50 call"), 50 * COPIES);
    let hits = session.counters(id).hits;
    assert_eq!((hits, witness.hits()), (50 * COPIES, 50 * COPIES));
    drop(witness);
    // Those of another kind in merged pages.
    let (other, other_id) = mover.counted();
    drop(session);
    mover.victim.order("50 call");
    assert_eq!(other.counters(other_id).hits, 50 * COPIES);
    drop(other);
    mover.victim.order("50 call");
    drop(merging);
}
