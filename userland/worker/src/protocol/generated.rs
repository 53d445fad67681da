// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of generated code.

use nsprobe_symbolize::JitName;
use serde::{Deserialize, Serialize};

/// Longest name or path, in bytes: that of a line of a map, all of it no UTF-8.
const NAME_BYTES_MAX: usize = 32 << 10;

/// Kind of a file that describes generated code.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum GeneratedFile {
    /// `perf-PID.map`.
    Map,
    /// `jit-PID.dump`.
    Dump,
}

/// What is at an address, as far as was read.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct GeneratedName {
    /// The name, and the file that has it; `None` if there is none.
    pub found: Option<(GeneratedFile, JitName)>,
    /// From when on and until when that holds (CLOCK_MONOTONIC, in nanoseconds).
    pub since_ns: u64,
    /// The first nanosecond when it may not hold.
    pub until_ns: u64,
}

impl GeneratedName {
    /// Whether it is about that time.
    pub fn holds_at(&self, time_ns: u64) -> bool {
        (self.since_ns..self.until_ns).contains(&time_ns)
    }

    pub(super) fn is_sound(&self) -> bool {
        let Some((_, name)) = &self.found else {
            return true;
        };
        let file = name.file.as_deref().unwrap_or_default();
        name.name.len() <= NAME_BYTES_MAX && file.len() <= NAME_BYTES_MAX
    }
}
