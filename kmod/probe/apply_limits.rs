// SPDX-License-Identifier: GPL-2.0-only
//! Which hits a probe's limits take away, and the end of a probe that is hit too often.

use crate::{
    common::{
        abi::PROBE_RETURN_ONLY,
        record::{body_of, OffRecord, KIND_OFF}, //
    },
    probe::{
        counters::{End, Here},
        hit::Hit,
        limits::{Limits, Skip},
        Probe, //
    },
    sys::{self, uprobe::Ends}, //
};
use zerocopy::transmute_ref;

const OFF_WORDS: usize = size_of::<OffRecord>() / 8;

impl Probe {
    /// Whether the probe was turned off, or is now: by hit number `sequence` of this CPU,
    /// where zero is none.
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

    /// What a hit ends as that the probe's limits leave out. Of a call only the
    /// beginning is looked at, if that is delivered.
    #[inline(never)]
    pub(super) fn skipped(&self, limits: &Limits, hit: &Hit<'_>) -> Option<End> {
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
            Skip::Skipped => Some(End::Skipped),
            Skip::Limited => Some(End::Limited),
        }
    }

    /// Counts a hit that goes nowhere. An entry whose return alone counts was not
    /// counted as a hit yet.
    pub(super) fn turn_away(&self, here: &Here<'_>, end: End) {
        if self.flags & PROBE_RETURN_ONLY != 0 {
            here.begin();
        }
        here.end(end);
    }
}
