// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that a trace waits for: records, signals, the end of its target.

use crate::signals::{self, Asked, Signals, Stop};
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
    /// Another thread ends this run.
    Stopped,
    /// A signal that asks us to end.
    Signal(Asked),
    /// The process that the trace lives for is gone.
    TargetEnded,
    /// The reader of our output is gone, as `head` does.
    ReaderGone,
}

/// Signals, and the command's end.
pub(super) struct Events {
    /// None where they are not for this run.
    signals: Option<Signals>,
    stop: Option<Stop>,
    command: Option<Process>,
}

impl Events {
    /// From now on signals are events, unless a `stop` takes their place; `command` is the pid of
    /// the command.
    pub(super) fn new(stop: Option<Stop>, command: Option<u32>) -> anyhow::Result<Events> {
        // The first one is for the command.
        let for_us = if command.is_some() { 2 } else { 1 };
        let signals = match stop {
            Some(_) => None,
            None => Some(Signals::new(&[], for_us)?),
        };
        Ok(Events {
            signals,
            stop,
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
        let asked = match (&self.signals, &self.stop) {
            (Some(signals), _) => signals.as_fd(),
            (None, Some(stop)) => stop.as_fd(),
            (None, None) => session.as_fd(),
        };
        let mut fds = vec![
            PollFd::new(asked, PollFlags::POLLIN),
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
        if let Some(stop) = &self.stop {
            if is_ready(0) {
                stop.take();
            }
            if stop.is_set() {
                return Ok(Event::Stopped);
            }
        }
        if is_ready(0) {
            if let Some(asked) = self.signals.as_ref().and_then(Signals::next) {
                return Ok(Event::Signal(asked));
            }
        }
        Ok(
            match (
                is_ready(2) && self.signals.is_some(),
                ends.is_some() && is_ready(3),
                is_ready(1),
            ) {
                (true, ..) => Event::ReaderGone,
                (_, true, _) => Event::TargetEnded,
                (_, _, true) => Event::Records,
                _ => Event::Nothing,
            },
        )
    }

    /// Whether signals that ask us to end are for this run.
    pub(super) fn has_signals(&self) -> bool {
        self.signals.is_some()
    }

    /// A second signal is one for results, and leaves this to us.
    pub(super) fn printing(&self) {
        if self.signals.is_some() {
            signals::printing();
        }
    }

    /// Whether a signal that asks us to end is pending.
    pub(super) fn is_interrupted(&self) -> bool {
        let Some(signals) = &self.signals else {
            return self.stop.as_ref().is_some_and(Stop::is_set);
        };
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let [signals] = match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => fds,
            Err(_) => return false,
        };
        signals.any() == Some(true)
    }
}
