// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that a trace waits for: records, signals, the end of its target.

use crate::signals::{Asked, Signals};
use libnsprobe::Session;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_containers::Process;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// An event that ended the wait.
pub(super) enum Event {
    /// A ring has reached its watermark.
    Records,
    /// The time is over, or new containers may have appeared.
    Nothing,
    /// A signal that asks us to end.
    Signal(Asked),
    /// The process that the trace lives for is gone.
    TargetEnded,
    /// The reader of our output is gone, as `head` does.
    ReaderGone,
}

/// Signals, and the command's end.
pub(super) struct Events {
    signals: Signals,
    command: Option<Process>,
}

impl Events {
    /// From now on signals are events; `command` is the pid of the command.
    pub(super) fn new(command: Option<u32>) -> anyhow::Result<Events> {
        Ok(Events {
            // The first one is for the command.
            signals: Signals::new(&[], if command.is_some() { 2 } else { 1 })?,
            command: command.map(Process::open).transpose()?,
        })
    }

    /// Waits for at most `limit`, or until one of `others` is readable. Signals come before records:
    /// a flood of records must not hide a Ctrl-C.
    pub(super) fn wait<'o>(
        &self,
        session: &Session,
        target: Option<BorrowedFd<'_>>,
        others: impl Iterator<Item = BorrowedFd<'o>>,
        limit: Duration,
    ) -> anyhow::Result<Event> {
        let stdout = io::stdout();
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(session.as_fd(), PollFlags::POLLIN),
            // Only errors: that a pipe has no reader any more.
            PollFd::new(stdout.as_fd(), PollFlags::empty()),
        ];
        let ends = target.or(self.command.as_ref().map(Process::pidfd));
        fds.extend(ends.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // Rounded up, so that a deadline is over when its wait is.
        let limit = limit + Duration::from_micros(999);
        match poll(&mut fds, PollTimeout::try_from(limit)?) {
            Err(Errno::EINTR) => return Ok(Event::Nothing),
            ready => ready?,
        };
        let is_ready = |index: usize| fds.get(index).is_some_and(|fd| fd.any() == Some(true));
        if is_ready(0) {
            if let Some(asked) = self.signals.next() {
                return Ok(Event::Signal(asked));
            }
        }
        Ok(
            match (is_ready(2), ends.is_some() && is_ready(3), is_ready(1)) {
                (true, ..) => Event::ReaderGone,
                (_, true, _) => Event::TargetEnded,
                (_, _, true) => Event::Records,
                _ => Event::Nothing,
            },
        )
    }

    /// Whether a signal that asks us to end is pending.
    pub(super) fn is_interrupted(&self) -> bool {
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let [signals] = match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => fds,
            Err(_) => return false,
        };
        signals.any() == Some(true)
    }
}
