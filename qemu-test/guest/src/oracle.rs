// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be true of the guest after every test, whatever the test was.

use crate::state::State;
use crate::{container, leftovers, markers, module, victim, witness};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// What tests may do to the kernel: load a module that is out of tree (O) and
/// not signed (E).
const ALLOWED_TAINT: u64 = 1 << 12 | 1 << 13;

/// How long what a test has ended may take to go: processes that were killed, mounts of theirs.
const GOING: Duration = Duration::from_secs(5);

/// Watches the kernel log, and what tests may change in the guest, from its making on.
pub(crate) struct Oracle {
    log: File,
    state: State,
    /// What else counts as trouble in the log.
    pub(crate) also: Option<&'static str>,
}

impl Oracle {
    pub(crate) fn new() -> Oracle {
        Oracle {
            log: end_of_log(),
            state: State::now(),
            also: None,
        }
    }

    /// What is wrong now, and in the log since the last call.
    pub(crate) fn troubles(&mut self) -> Vec<String> {
        let mut troubles = self.log_troubles();
        let taint = fs::read_to_string("/proc/sys/kernel/tainted").unwrap_or_default();
        let taint: u64 = taint.trim().parse().unwrap_or(u64::MAX);
        if taint & !ALLOWED_TAINT != 0 {
            troubles.push(format!("the kernel is tainted: {taint:#x}"));
        }
        if module::is_loaded() {
            troubles.push(format!("the module: {}", module::line()));
        }
        let probes = witness::listed();
        if !probes.is_empty() {
            troubles.push(format!("probes of tracefs: {probes}"));
        }
        let containers = container::left();
        if !containers.is_empty() {
            troubles.push(format!("containers: {containers}"));
        }
        let mut different = Vec::new();
        within(GOING, || {
            different = self.state.differences(&State::now());
            different.is_empty()
        });
        troubles.extend(different);
        troubles.extend(leftovers::breakpoints());
        troubles.extend(leftovers::breakpoints_in_new(victim::used()));
        victim::forget_used();
        troubles
    }

    /// After a failed test: undoes what it could not undo itself. What cannot be undone is
    /// told, once, and is no later test's fault.
    pub(crate) fn undo(&mut self) {
        container::remove_all();
        witness::remove_all();
        self.state.restore();
        module::unload_if_possible();
        let mut different = Vec::new();
        within(GOING, || {
            different = self.state.differences(&State::now());
            different.is_empty()
        });
        for left in different {
            println!("# cannot be undone: {left}");
        }
        self.state = State::now();
        self.log = end_of_log();
    }

    fn log_troubles(&mut self) -> Vec<String> {
        let mut troubles = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.log.read(&mut record) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    let line = text.lines().next().unwrap_or_default();
                    let line = line.split_once(';').map_or(line, |(_, line)| line);
                    let reason = markers::find(line).map(|marker| marker.reason);
                    let also = self.also.filter(|part| line.contains(part));
                    if let Some(reason) = reason.or(also) {
                        troubles.push(format!("kernel log: {reason}: {line}"));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return troubles,
                // Overwritten before it was read: go on with the oldest.
                Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => {}
                Err(error) => {
                    troubles.push(format!("kernel log: {error}"));
                    return troubles;
                }
            }
        }
    }
}

/// The kernel's log, behind what it has said already.
fn end_of_log() -> File {
    let mut log = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .expect("tests run as root");
    let mut line = [0; 8192];
    while log.read(&mut line).is_ok() {}
    log
}

/// Waits until something is true, at most for a time.
pub(crate) fn within(limit: Duration, mut what: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        // Before: what was looked at in time counts, however long the look took.
        let is_late = Instant::now() > until;
        if what() {
            return true;
        }
        if is_late {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
