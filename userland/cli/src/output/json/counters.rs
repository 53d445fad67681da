// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a probe, within lines.

use libnsprobe::Counters;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Counters that only samples have.
const OF_SAMPLES: [&str; 5] = ["missed", "in_kernel", "idle", "kernel_threads", "by_clock"];
/// Counters that are rarely more than zero, and only shown then.
const RARE: [&str; 2] = ["processes_failed", "evicted"];

/// The counters of a probe, as every kind of line that has them shows them.
pub(crate) struct CountersLine(Counters);

impl From<Counters> for CountersLine {
    fn from(counters: Counters) -> CountersLine {
        CountersLine(counters)
    }
}

impl Serialize for CountersLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let has_samples = self.0.has_samples();
        let mut map = serializer.serialize_map(None)?;
        for (name, count) in self.0.all() {
            let is_shown = match name {
                name if OF_SAMPLES.contains(&name) => has_samples,
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
