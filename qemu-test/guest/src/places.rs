// SPDX-License-Identifier: MIT OR Apache-2.0
//! The victim that is all places for probes: `many_places`.

use crate::binary::Function;
use crate::session::probe_at;
use nsprobe_common::abi::{Probe, SINK_COUNT};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Bytes between two of them.
const STRIDE: u64 = 16;

/// Probes that count, on the first `count` places.
pub(crate) fn probes(file: &File, places: &Function, count: u64) -> Vec<Probe> {
    let probe = |number: u64| Probe {
        fd: file.as_raw_fd(),
        sink: SINK_COUNT,
        ..probe_at(places.offset + number * STRIDE, 0)
    };
    (0..count).map(probe).collect()
}
