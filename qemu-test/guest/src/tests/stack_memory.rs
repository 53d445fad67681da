// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks are followed through memory of every kind, and looking at them changes
//! nothing of it.

use super::moved_text::Merging;
use super::short_of_memory::{in_one_piece, number};
use crate::module::Module;
use crate::oracle::within;
use crate::records::Records;
use crate::session::{Session, RING_BYTES};
use crate::setting::Setting;
use crate::victim::Victim;
use nsprobe_common::abi;
use nsprobe_common::record::StackEnd;
use std::fs;
use std::time::Duration;

/// Huge pages of a file system of their own; given back with the value.
struct HugePages(Setting);

impl HugePages {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    fn new(count: u32) -> HugePages {
        let pages = HugePages(Setting::new(Self::FILE, &count.to_string()));
        let are_there = || {
            pages.0.put(&count.to_string());
            number("/proc/meminfo", "HugePages_Total:") == u64::from(count)
        };
        assert!(in_one_piece(are_there), "no huge pages");
        pages
    }

    /// How many are not taken.
    fn free() -> u64 {
        number("/proc/meminfo", "HugePages_Free:")
    }
}

/// Frames of the victim's chain, with the function and its caller.
const WHOLE: usize = 7;

test! { full, stacks_go_through_memory_of_every_kind, module }
/// Memory that is there is read; what the first touch would take, or make grow, is not.
fn stacks_go_through_memory_of_every_kind() {
    const CALLS: usize = 20;
    const KINDS: [(&str, StackEnd, usize); 8] = [
        ("huge", StackEnd::Outermost, WHOLE),
        ("huge-untouched", StackEnd::Fault, 2),
        ("transparent-huge", StackEnd::Outermost, WHOLE),
        ("merged", StackEnd::Outermost, WHOLE),
        ("shared", StackEnd::Outermost, WHOLE),
        ("shared-untouched", StackEnd::Fault, 2),
        ("growing", StackEnd::Outermost, WHOLE),
        ("below-growing", StackEnd::Fault, 2),
    ];
    let _module = Module::load();
    let _pages = HugePages::new(2);
    let _merging = Merging::on();
    let mut victim = Victim::start("stack_memory", &[]);
    let session = Session::with_rings(RING_BYTES);
    // To be waited for, where that can be.
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY | abi::PROBE_LATE;
    let id = session.probe(victim.file(), &victim.function("on_other_memory"), flags);
    let rings = session.rings();
    for (kind, end, frames) in KINDS {
        if kind == "merged" {
            victim.order("0 merged");
            let merged = format!("/proc/{}/ksm_merging_pages", victim.pid());
            let is_merged = || {
                let pages = fs::read_to_string(&merged).expect("it lives");
                pages.trim().parse::<u64>().expect("a number") >= 8
            };
            assert!(within(Duration::from_secs(20), is_merged), "none is merged");
        }
        let free = HugePages::free();
        victim.order(&format!("{CALLS} {kind}"));
        let mut records = Records::default();
        records.drain(&rings);
        let got: Vec<_> = records
            .hits_of(id)
            .map(|(hit, frames)| (StackEnd::from_u8(hit.stack_end), frames.len()))
            .collect();
        assert_eq!(got, [(Some(end), frames); CALLS], "{kind}");
        assert_eq!(records.late.len(), 0, "{kind}");
        let took = free - HugePages::free();
        assert_eq!(took, u64::from(kind == "huge"), "{kind}");
    }
    victim.end();
}
