// SPDX-License-Identifier: GPL-2.0-only
//! Applies a probe's limits to its hits, and turns a probe off that is hit too often.

use crate::{
    common::{
        abi::PROBE_RETURN_ONLY,
        record::{body_of, OffRecord, KIND_OFF}, //
    },
    probe::{
        counters::{Here, Outcome},
        hit::Hit,
        limits::{Limits, Skip},
        Probe, //
    },
    sys::{self, uprobe::Ends}, //
};
use zerocopy::transmute_ref;

const OFF_WORDS: usize = size_of::<OffRecord>() / 8;

impl Probe {
    /// Whether the probe is off. Hit number `sequence` of this CPU may turn it off; zero stands for
    /// no hit.
    #[inline(always)]
    pub(super) fn is_off(&self, here: &Here<'_>, sequence: u64) -> bool {
        match &self.limits {
            Some(limits) => self.look(limits, here, sequence),
            None => false,
        }
    }

    #[inline(never)]
    fn look(&self, limits: &Limits, here: &Here<'_>, sequence: u64) -> bool {
        if sequence != 0 && limits.look(sequence, sys::now_ns) {
            let record = OffRecord {
                time_ns: sys::now_ns(),
                probe: self.id,
                limit: self.runaway,
                ..OffRecord::default()
            };
            let words: &[u64; OFF_WORDS] = transmute_ref!(&record);
            let parts = [body_of(words), &[], &[], &[]];
            self.context
                .append(here.cpu, KIND_OFF, &parts, record.time_ns);
        }
        limits.is_off()
    }

    /// Applies the limits; `Some(end)` skips this hit. A return passes if its entry was delivered,
    /// as the limits were applied to that.
    #[inline(never)]
    pub(super) fn skipped(&self, limits: &Limits, hit: &Hit<'_>) -> Option<Outcome> {
        let began =
            hit.ended.is_some() && self.ends == Ends::Both && self.flags & PROBE_RETURN_ONLY == 0;
        if began {
            return None;
        }
        let number = match self.eligible.here(hit.here.cpu) {
            Some(here) => here.eligible(),
            None => 1,
        };
        match limits.skip(number, hit.now_ns)? {
            Skip::Skipped => Some(Outcome::Skipped),
            Skip::Limited => Some(Outcome::Limited),
        }
    }

    /// Counts a hit that is not delivered. An entry of a return-only probe was not counted as a hit
    /// before.
    pub(super) fn turn_away(&self, here: &Here<'_>, outcome: Outcome) {
        if self.flags & PROBE_RETURN_ONLY != 0 {
            here.begin();
        }
        here.count(outcome);
    }
}
