// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: what /proc says of them, their state and the code that they have mapped; and
//! children that end with a test.

use std::fmt::Display;
use std::fs;
use std::ops::Range;
use std::process::Child;

/// The letter that proc(5) has for a task's state, "S" of one that sleeps; `None` when it is
/// gone. A task is `PID`, or `PID/task/TID`.
pub(crate) fn state_of(task: impl Display) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{task}/stat")).ok()?;
    // Its name, which may have any letters, ends at the last of these.
    stat.rsplit(") ").next()?.chars().next()
}

pub(crate) fn is_asleep(task: impl Display) -> bool {
    state_of(task) == Some('S')
}

/// Whether it has ended, and may wait for its parent to ask for it.
pub(crate) fn has_ended(pid: u32) -> bool {
    matches!(state_of(pid), None | Some('Z'))
}

/// A child that is killed with the value.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A range of addresses with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) addresses: Range<u64>,
    /// Where in the file the first of them is.
    pub(crate) offset: u64,
    /// The file, or the kernel's name in brackets, or nothing.
    pub(crate) path: String,
}

impl Code {
    /// One of a line of `/proc/PID/maps`.
    fn of(line: &str) -> Option<Code> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        if !words.next()?.contains('x') {
            return None;
        }
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Code {
            addresses: hex(start)?..hex(end)?,
            offset: hex(words.next()?)?,
            path: words.nth(2)?.trim_start().to_owned(),
        })
    }
}

/// What a process has mapped as code, by address; nothing when it is gone.
pub(crate) fn code_of(pid: u32) -> Vec<Code> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(Code::of).collect()
}
