// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's clocks at one moment: start times are of one, records of another.

use nix::time::{clock_gettime, ClockId};
use std::time::Duration;

/// Readings of clocks, one right after the other, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_BOOTTIME, of start times.
    pub boot_ns: u64,
    /// CLOCK_REALTIME: since 1970.
    pub(crate) real_ns: u64,
}

impl Clocks {
    /// Reads the clocks.
    pub fn now() -> anyhow::Result<Clocks> {
        let read = |clock| {
            let time = Duration::from(clock_gettime(clock)?);
            Ok::<_, nix::Error>(time.as_nanos() as u64)
        };
        Ok(Clocks {
            boot_ns: read(ClockId::CLOCK_BOOTTIME)?,
            real_ns: read(ClockId::CLOCK_REALTIME)?,
        })
    }

    /// Time since that start.
    pub fn age(&self, start_ns: u64) -> Duration {
        Duration::from_nanos(self.boot_ns.saturating_sub(start_ns))
    }

    /// That start in nanoseconds since 1970.
    pub(crate) fn real(&self, start_ns: u64) -> u64 {
        let age = self.age(start_ns).as_nanos() as u64;
        self.real_ns.saturating_sub(age)
    }
}
