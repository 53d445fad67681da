// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A token bucket in one word.
//!
//! The word is a time: the one at which all tokens taken so far would have been taken at the steady
//! rate. It may be ahead of the clock by the worth of a burst. (Known from networks as the generic
//! cell rate algorithm, ITU-T I.371.)

/// The maximum rate, in tokens per second.
pub const RATE_MAX: u32 = 100_000_000;

/// The rate and the size of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Nanoseconds per token.
    interval_ns: u64,
    /// The worth of a full bucket, in nanoseconds.
    burst_ns: u64,
}

impl Bucket {
    /// A bucket that gets `rate` tokens per second and holds `burst`; `None` if these are out of
    /// range.
    pub const fn new(rate: u32, burst: u32) -> Option<Bucket> {
        if rate == 0 || rate > RATE_MAX || burst == 0 {
            return None;
        }
        let interval_ns = match 1_000_000_000u64.checked_div(rate as u64) {
            Some(interval) => interval,
            None => return None,
        };
        Some(Bucket {
            interval_ns,
            burst_ns: interval_ns.saturating_mul(burst as u64),
        })
    }

    /// Takes `tokens` out of a bucket whose word is `state`: its word afterwards, or `None` if it
    /// holds fewer. A new bucket is full, its word zero.
    pub const fn take(self, state: u64, now_ns: u64, tokens: u32) -> Option<u64> {
        let from = if state > now_ns { state } else { now_ns };
        let after = from.saturating_add(self.interval_ns.saturating_mul(tokens as u64));
        if after.saturating_sub(now_ns) > self.burst_ns {
            return None;
        }
        Some(after)
    }

    /// The word of a bucket after taking `tokens` even if it holds fewer: later callers wait for
    /// the missing ones.
    pub const fn owe(self, state: u64, tokens: u32) -> u64 {
        state.saturating_add(self.interval_ns.saturating_mul(tokens as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn there_is_no_bucket_of_nothing() {
        assert_eq!(Bucket::new(0, 1), None);
        assert_eq!(Bucket::new(1, 0), None);
        assert_eq!(Bucket::new(RATE_MAX + 1, 1), None);
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let bucket = Bucket::new(1000, 3).unwrap();
        let (mut state, mut taken) = (0, Vec::new());
        for ms in 0..10u64 {
            for _ in 0..5 {
                if let Some(after) = bucket.take(state, 5_000_000_000 + ms * 1_000_000, 1) {
                    state = after;
                    taken.push(ms);
                }
            }
        }
        assert_eq!(taken, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_is_owed_is_waited_for() {
        let bucket = Bucket::new(1000, 3).unwrap();
        let now = 5_000_000_000;
        let state = bucket.owe(bucket.take(0, now, 1).unwrap(), 9);
        // Ten were taken of three.
        let later = |ms: u64| bucket.take(state, now + ms * 1_000_000, 1);
        assert_eq!((later(7), later(8).is_some()), (None, true));
    }

    proptest! {
        /// As a bucket that is counted in tokens does, whose interval is a whole number
        /// of nanoseconds.
        #[test]
        fn it_does_what_a_plain_bucket_does(
            interval in 1u64..10_000,
            burst in 1u32..50,
            steps in proptest::collection::vec((0u64..100_000, 1u32..4), 1..200),
        ) {
            let bucket = Bucket { interval_ns: interval, burst_ns: interval * u64::from(burst) };
            let (mut state, mut now) = (0, 1 << 40);
            // In nanoseconds' worth of tokens.
            let (mut level, full) = (bucket.burst_ns, bucket.burst_ns);
            for (later, tokens) in steps {
                now += later;
                level = full.min(level + later);
                let worth = interval * u64::from(tokens);
                let plain = level >= worth;
                let taken = bucket.take(state, now, tokens);
                prop_assert_eq!(taken.is_some(), plain);
                if let Some(after) = taken {
                    state = after;
                    level -= worth;
                }
            }
        }

        #[test]
        fn no_numbers_overflow(rate in 1..=RATE_MAX, burst in 1u32.., state: u64, now: u64, tokens: u32) {
            let bucket = Bucket::new(rate, burst).unwrap();
            if let Some(after) = bucket.take(state, now, tokens) {
                prop_assert!(after >= now);
            }
        }
    }
}
