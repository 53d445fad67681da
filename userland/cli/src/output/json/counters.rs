// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a probe, within lines.

use libnsprobe::Counters;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Counters that few probes have, and that are only shown when they are more than zero: those of
/// samples, of waits, and others.
const RARE: [&str; 11] = [
    "missed",
    "in_kernel",
    "idle",
    "kernel_threads",
    "by_clock",
    "below",
    "below_ns",
    "no_row",
    "unfinished",
    "processes_failed",
    "evicted",
];

/// The counters of a probe, as every kind of line that has them shows them.
pub(crate) struct CountersLine(Counters);

impl From<Counters> for CountersLine {
    fn from(counters: Counters) -> CountersLine {
        CountersLine(counters)
    }
}

impl Serialize for CountersLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, count) in self.0.all() {
            let is_shown = match name {
                name if RARE.contains(&name) => count > 0,
                _ => true,
            };
            if is_shown {
                map.serialize_entry(name, &count)?;
            }
        }
        map.end()
    }
}
