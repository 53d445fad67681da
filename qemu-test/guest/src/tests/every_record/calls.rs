// SPDX-License-Identifier: MIT OR Apache-2.0
//! The victim `soak_calls`: threads whose calls can be told from each other by their
//! arguments.

use crate::binary::Function;
use crate::session::Session;
use crate::victim::Victim;
use crate::witness::Witness;
use std::path::Path;

/// A running `soak_calls`.
pub(super) struct Calls {
    victim: Victim,
    pub(super) threads: u64,
    pub(super) function: Function,
    /// Calls so far, of all threads, as the victim says.
    pub(super) total: u64,
}

impl Calls {
    pub(super) fn start(threads: u64, function: &str) -> Calls {
        let victim = Victim::start("soak_calls", &[&threads.to_string(), function]);
        let function = victim.function(function);
        Calls {
            victim,
            threads,
            function,
            total: 0,
        }
    }

    /// Has every thread call that often.
    pub(super) fn each(&mut self, calls: u64) {
        let before = self.total;
        self.total = self.victim.call(calls);
        assert_eq!(self.total, before + calls * self.threads);
    }

    pub(super) fn pid(&self) -> u32 {
        self.victim.pid()
    }

    pub(super) fn file(&self) -> &Path {
        self.victim.file()
    }

    pub(super) fn witness(&self) -> Witness {
        Witness::new(self.file(), self.function.offset)
    }
}

/// The third argument of a call: what `hash` in the victim's source says.
pub(super) fn hash(thread: u64, number: u64) -> u64 {
    let x = (thread << 40 | number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Whether a probe's counters, on all CPUs and on each, and the kernel's own counter for the
/// same instruction, all have this number of hits; and where they went.
pub(super) fn agreed(
    session: &Session,
    id: u32,
    witness: &Witness,
    calls: u64,
) -> Result<String, String> {
    // Waits until no hit is in flight; then the conservation law holds, or it panics.
    let counters = session.counters(id);
    let on_cpus: u64 = (0..session.made.rings)
        .map(|cpu| session.counters_on(id, cpu).map_or(0, |on| on.hits))
        .sum();
    let text = format!(
        "{calls} calls = {} hits ({on_cpus} by CPU) = {} of tracefs = {} counted + {} recorded \
         + {} lost + {} filtered",
        counters.hits,
        witness.hits(),
        counters.aggregated,
        counters.recorded,
        counters.lost_full,
        counters.filtered
    );
    let done = counters.aggregated + counters.recorded + counters.lost_full + counters.filtered;
    let all = [counters.hits, on_cpus, witness.hits(), done];
    match all == [calls; 4] {
        true => Ok(text),
        false => Err(text),
    }
}
