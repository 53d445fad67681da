// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be true of the guest after every test, whatever the test was.

use crate::state::State;
use crate::{markers, victim};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// How long what a test has ended may take to go on a busy machine: processes that were
/// killed, mounts of theirs.
const GOING: Duration = Duration::from_secs(30);

/// How long each kind of what is left may take to be undone.
const UNDOING: Duration = Duration::from_secs(10);

/// Watches the kernel log, and what tests may change in the guest, from its making on.
pub(crate) struct Oracle {
    log: File,
    state: State,
    /// How long what a test has ended may take to go.
    pub(crate) going: Duration,
}

impl Oracle {
    pub(crate) fn new() -> Oracle {
        Oracle {
            log: end_of_log(),
            state: State::at_begin(),
            going: GOING,
        }
    }

    /// What is wrong now, and in the log since the last call.
    pub(crate) fn troubles(&mut self) -> Vec<String> {
        let mut troubles = Vec::new();
        within(self.going, || {
            troubles = self.state.differences();
            troubles.is_empty()
        });
        troubles.extend(self.log_troubles());
        victim::forget_used();
        troubles
    }

    /// After a failed test: undoes what it could not undo itself. What cannot be undone, in
    /// words, is no later test's fault.
    pub(crate) fn undo(&mut self) -> Vec<String> {
        self.state.restore(UNDOING);
        let left = self.state.differences();
        self.state = State::now();
        self.log = end_of_log();
        left
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
                    if let Some(reason) = reason {
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

/// The kernel's log, after what it has said already.
pub(crate) fn end_of_log() -> File {
    let mut log = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .expect("tests run as root");
    let mut line = [0; 8192];
    while log.read(&mut line).is_ok() {}
    log
}

/// How long a busy machine may take for what takes a second: it ends what hangs.
pub(crate) const SOON: Duration = Duration::from_secs(100);

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
