// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own probes on the same places: a counter that is not
//! of this project's making.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const EVENTS: &str = "/sys/kernel/tracing/uprobe_events";
const PROFILE: &str = "/sys/kernel/tracing/uprobe_profile";
const KERNEL_EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
const KERNEL_PROFILE: &str = "/sys/kernel/tracing/kprobe_profile";

/// A probe of tracefs at a place in a file; gone with the value.
pub(crate) struct Witness {
    name: String,
}

fn write(file: &str, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(file)
        .unwrap_or_else(|error| panic!("{file}: {error}"));
    file.write_all(text.as_bytes())
        .unwrap_or_else(|error| panic!("{text:?}: {error}"));
}

impl Witness {
    /// Begins to count.
    pub(crate) fn new(file: &Path, offset: u64) -> Witness {
        Witness::of("p", file, &format!("{offset:#x}"))
    }

    /// Begins to count at a USDT point, whose semaphore is at another offset.
    pub(crate) fn of_point(file: &Path, offset: u64, semaphore: u64) -> Witness {
        Witness::of("p", file, &format!("{offset:#x}({semaphore:#x})"))
    }

    /// Begins to count returns of the function there.
    pub(crate) fn of_return(file: &Path, offset: u64) -> Witness {
        Witness::of("r", file, &format!("{offset:#x}"))
    }

    fn of(kind: &str, file: &Path, place: &str) -> Witness {
        let witness = Witness::make(kind, file, place);
        witness.enable(true);
        witness
    }

    fn make(kind: &str, file: &Path, place: &str) -> Witness {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("w{}_{number}", std::process::id());
        write(
            EVENTS,
            &format!("{kind}:witness/{name} {}:{place}\n", file.display()),
        );
        Witness { name }
    }

    fn enable(&self, on: bool) {
        let file = format!("/sys/kernel/tracing/events/witness/{}/enable", self.name);
        fs::write(file, if on { "1" } else { "0" }).expect("the probe is there");
    }

    /// Hits so far, of all processes.
    pub(crate) fn hits(&self) -> u64 {
        let profile = fs::read_to_string(PROFILE).expect("tracefs is mounted");
        let line = profile.lines().find(|line| line.contains(&self.name));
        let hits = line.and_then(|line| line.split_whitespace().next_back());
        hits.and_then(|hits| hits.parse().ok())
            .unwrap_or_else(|| panic!("no line for {}: {profile:?}", self.name))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.enable(false);
        write(EVENTS, &format!("-:witness/{}\n", self.name));
    }
}

/// All probes that tracefs has.
pub(crate) fn listed() -> String {
    fs::read_to_string(EVENTS).unwrap_or_default()
}

/// How often a function of the kernel was called, by a probe of tracefs; gone with the value.
pub(crate) struct KernelCalls {
    name: String,
}

impl KernelCalls {
    /// Begins to count.
    pub(crate) fn of(function: &str) -> KernelCalls {
        let name = format!("{function}_{}", std::process::id());
        write(KERNEL_EVENTS, &format!("p:calls/{name} {function}\n"));
        let calls = KernelCalls { name };
        calls.enable(true);
        calls
    }

    fn enable(&self, on: bool) {
        let file = format!("/sys/kernel/tracing/events/calls/{}/enable", self.name);
        write(&file, if on { "1" } else { "0" });
    }

    /// Those counted so far.
    pub(crate) fn count(&self) -> u64 {
        let profile = fs::read_to_string(KERNEL_PROFILE).expect("tracefs is mounted");
        let line = profile
            .lines()
            .find(|line| line.split_whitespace().next() == Some(&self.name));
        let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        count.unwrap_or_else(|| panic!("{} is not in {profile}", self.name))
    }
}

impl Drop for KernelCalls {
    fn drop(&mut self) {
        self.enable(false);
        write(KERNEL_EVENTS, &format!("-:calls/{}\n", self.name));
    }
}
