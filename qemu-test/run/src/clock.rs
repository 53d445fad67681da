// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the host's time stamp counter counts, which is also that of QEMU's guests without
//! KVM. A guest finds it out from timers that QEMU lets go on when it is given time: on a busy
//! host its clock ran up to ten times too fast, and every limit was over at once.
#![allow(unsafe_code, reason = "one instruction that reads a register")]

use std::arch::x86_64::_rdtsc;
use std::thread;
use std::time::{Duration, Instant};

const MEASURED: Duration = Duration::from_millis(50);
const READINGS: usize = 10;

/// Its frequency in kHz.
pub(crate) fn tsc_khz() -> u64 {
    let (tick, time) = moment();
    thread::sleep(MEASURED);
    let (later_tick, later) = moment();
    let ticks = u128::from(later_tick.wrapping_sub(tick));
    let ns = later.duration_since(time).as_nanos().max(1);
    u64::try_from(ticks * 1_000_000 / ns).unwrap_or(u64::MAX)
}

/// The counter and the clock at one moment: of several readings the one that took least.
fn moment() -> (u64, Instant) {
    let readings = (0..READINGS).map(|_| {
        // SAFETY: `rdtsc` reads a counter; Linux lets programs use it unless they ask not to.
        let before = unsafe { _rdtsc() };
        let time = Instant::now();
        // SAFETY: As above.
        let took = unsafe { _rdtsc() }.wrapping_sub(before);
        (took, before.wrapping_add(took / 2), time)
    });
    let best = readings.min_by_key(|(took, ..)| *took);
    let (_, tick, time) = best.expect("there is more than one reading");
    (tick, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_as_fast_each_time() {
        let (one, other) = (tsc_khz(), tsc_khz());
        assert!(one > 100_000, "{one} kHz");
        assert!(one.abs_diff(other) < one / 1000, "{one} kHz, {other} kHz");
    }
}
