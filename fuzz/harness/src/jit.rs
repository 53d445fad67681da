// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes tell of the code that they generate.

use crate::elf::is_shown_safely;
use nsprobe_symbolize::{JitDump, JitName, PerfMap};

/// `perf-PID.map`, taken in two pieces.
pub(crate) fn perf_map(bytes: &[u8]) {
    let mut map = PerfMap::default();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    map.append(first);
    map.append(second);
    for address in [0, 0x1000, 0x7f00_0000_1000, u64::MAX] {
        check(map.at(address));
    }
    let _ = map.left_out();
}

/// `jit-PID.dump`, taken in two pieces.
pub(crate) fn dump(bytes: &[u8]) {
    let mut dump = JitDump::default();
    for there in [bytes.len() / 2, bytes.len()] {
        let there = bytes.get(..there).unwrap_or_default();
        let read = |at: u64, length: usize| {
            let at = usize::try_from(at).ok()?;
            let part = there.get(at..at.checked_add(length)?)?;
            Some(part.to_vec())
        };
        while !dump.append(read) {}
    }
    for (address, time) in [(0, 0), (0x1000, 7), (0x7f00_0000_1000, u64::MAX)] {
        let then = dump.at(address, time);
        assert!(then.since_ns <= time && time <= then.until_ns);
        check(then.name);
    }
    let _ = dump.left_out();
}

fn check(name: Option<JitName>) {
    if let Some(name) = name {
        is_shown_safely(&name.name);
        is_shown_safely(name.file.as_deref().unwrap_or_default());
    }
}
