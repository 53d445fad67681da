// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of new containers that wait before their first instruction, until they are probed.

use crate::options::TraceOptions;
use anyhow::Context;
use libnsprobe::{HeldProgram, HoldReport, StartGate};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Programs that wait, of which one is being looked at.
#[derive(Debug)]
pub(crate) struct HeldStarts {
    gate: StartGate,
    limit: Duration,
    current: Option<HeldProgram>,
}

impl HeldStarts {
    /// Programs wait from now on, if the options ask for that.
    pub(crate) fn new(options: &TraceOptions) -> anyhow::Result<Option<HeldStarts>> {
        if !options.follow || options.hold.is_zero() {
            return Ok(None);
        }
        let gate = StartGate::new(options.hold).context("cannot hold programs that start")?;
        Ok(Some(HeldStarts {
            gate,
            limit: options.hold,
            current: None,
        }))
    }

    /// Releases the program that was looked at last, and returns the process of the next one.
    pub(crate) fn next(&mut self) -> libnsprobe::Result<Option<u32>> {
        self.release()?;
        self.current = self.gate.next()?;
        Ok(self.current.map(|program| program.pid))
    }

    /// Releases the program that was looked at last.
    pub(crate) fn release(&mut self) -> libnsprobe::Result<()> {
        match self.current.take() {
            Some(program) => self.gate.release(program),
            None => Ok(()),
        }
    }

    /// From now on programs are looked at as they come: they wait again, should that be over.
    pub(crate) fn begin(&mut self) -> libnsprobe::Result<()> {
        self.release()?;
        self.gate.set_limit(self.limit)
    }

    /// Lets all go on, and says what was held.
    pub(crate) fn end(self) -> libnsprobe::Result<HoldReport> {
        self.gate.report()
    }
}

impl AsFd for HeldStarts {
    /// Readable while a program waits that was not looked at.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.gate.as_fd()
    }
}
