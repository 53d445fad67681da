// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that wait before their first instruction, until they are probed.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::session::failed;
use crate::sys;
use nix::errno::Errno;
use nsprobe_common::abi::HOLD_MS_MAX;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A gate where programs wait that start in mount namespaces made after it. Dropping it lets all go
/// on, as does the end of this process.
#[derive(Debug)]
pub struct StartGate {
    file: File,
}

/// A program that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldProgram {
    id: u64,
    /// Its process, in our pid namespace.
    pub pid: u32,
}

/// What a gate has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldReport {
    /// Programs that waited.
    pub held: u64,
    /// Of those, the ones that reached the limit.
    pub overdue: u64,
    /// Of those, the ones that a signal, a debugger or a freezer let go on.
    pub interrupted: u64,
    /// Programs that did not wait, as too many did already.
    pub not_held: u64,
    /// The longest wait.
    pub longest: Duration,
    /// Several reached the limit one after the other: programs wait no more.
    pub is_over: bool,
}

impl StartGate {
    /// Longest limit.
    pub const LIMIT_MAX: Duration = Duration::from_millis(HOLD_MS_MAX as u64);

    /// A gate where each program waits for at most `limit`, rounded up to milliseconds.
    pub fn new(limit: Duration) -> Result<StartGate> {
        let file = Device::open()?.into_file();
        let gate = StartGate { file };
        gate.set_limit(limit)?;
        Ok(gate)
    }

    /// Has each program wait for at most `limit` from now on, also if that is over.
    pub fn set_limit(&self, limit: Duration) -> Result<()> {
        let limit_ms = limit.as_nanos().div_ceil(1_000_000).max(1);
        let limit_ms = u32::try_from(limit_ms).unwrap_or(u32::MAX);
        let set = sys::hold(self.file.as_fd(), Some(limit_ms));
        set.map(drop).map_err(|errno| match errno {
            Errno::EBUSY => Error::TaskSessions,
            errno => failed("HOLD")(errno),
        })
    }

    /// A program that waits, and that no call has returned before. Does not wait.
    pub fn next(&self) -> Result<Option<HeldProgram>> {
        let held = sys::held(self.file.as_fd(), 0).map_err(failed("HELD"))?;
        let program = HeldProgram {
            id: held.id,
            pid: held.pid,
        };
        Ok(Some(program).filter(|program| program.id != 0))
    }

    /// Lets a program go on, and all others of the same file in the same mount namespace.
    pub fn release(&self, program: HeldProgram) -> Result<()> {
        let released = sys::held(self.file.as_fd(), program.id);
        released.map(drop).map_err(failed("HELD"))
    }

    /// What it has done so far.
    pub fn report(&self) -> Result<HoldReport> {
        let hold = sys::hold(self.file.as_fd(), None).map_err(failed("HOLD"))?;
        Ok(HoldReport {
            held: hold.held,
            overdue: hold.overdue,
            interrupted: hold.interrupted,
            not_held: hold.not_held,
            longest: Duration::from_nanos(hold.longest_ns),
            is_over: hold.limit_ms == 0,
        })
    }
}

impl AsFd for StartGate {
    /// Readable while there is a program that `next` would return.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
