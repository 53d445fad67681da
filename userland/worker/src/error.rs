// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a file gives no names or rows, and how a child ends.

use nix::sys::signal::Signal;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a file cannot be asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The parser refuses the file: it says why.
    #[error("{0}")]
    Refused(String),
    /// The parser came to an end, or to none, on this file; it is asked about no more.
    #[error("the parser {0} on this file")]
    Fatal(Death),
    /// The file cannot be looked at or handed on.
    #[error("the file cannot be handed to the parser: {0}")]
    Unreadable(String),
    /// The child cannot be started, or cannot give up its privileges.
    #[error("{0}")]
    NoSandbox(String),
    /// Children died so often lately that no more is started for now.
    #[error("the parser died {0} times within a minute: no more is started for now")]
    TooManyDeaths(usize),
}

/// How a child came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Death {
    /// By a signal.
    Signal(i32),
    /// By itself.
    Exit(i32),
    /// It panicked: it still lives, but is asked no more.
    Panicked,
    /// It did not answer in time, and was killed.
    Hung(Duration),
    /// It answered what is no answer, and was killed.
    Nonsense,
}

impl Death {
    /// What a status says.
    pub(crate) fn of(status: ExitStatus) -> Death {
        match status.signal() {
            Some(signal) => Death::Signal(signal),
            None => Death::Exit(status.code().unwrap_or_default()),
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The filter's own signal, see `filter.rs`.
            Death::Signal(libc::SIGSYS) => f.write_str("was killed by its seccomp filter (SIGSYS)"),
            Death::Signal(signal) => match Signal::try_from(*signal) {
                Ok(signal) => write!(f, "died of {signal}"),
                Err(_) => write!(f, "died of signal {signal}"),
            },
            Death::Exit(code) => write!(f, "ended with status {code}"),
            Death::Panicked => f.write_str("panicked"),
            Death::Hung(limit) => write!(f, "gave no answer within {} s", limit.as_secs_f32()),
            Death::Nonsense => f.write_str("gave an answer that makes no sense"),
        }
    }
}

/// An error of the system as one of ours.
pub(crate) fn unreadable(error: impl Into<io::Error>) -> WorkerError {
    WorkerError::Unreadable(error.into().to_string())
}
