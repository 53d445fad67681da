// SPDX-License-Identifier: GPL-2.0-only
//! Which of a probe's hits are delivered when not all are to be, and when a probe is
//! hit so often that it is turned off.

use crate::common::{abi::Probe as ProbeRequest, limit::Bucket};
use core::sync::atomic::{
    AtomicBool,
    AtomicU64,
    Ordering::Relaxed, //
};

/// Hits of a CPU between two looks at how often a probe is hit: the look would cost more
/// than the hit.
pub(crate) const LOOK_EVERY: u32 = 256;
/// Attempts at a bucket that other CPUs take from, too.
const ATTEMPTS: usize = 8;

/// A bucket that all CPUs take from.
pub(crate) struct TokenBucket {
    bucket: Bucket,
    state: AtomicU64,
}

impl TokenBucket {
    /// A full one.
    pub(crate) fn new(bucket: Bucket) -> Self {
        TokenBucket {
            bucket,
            state: AtomicU64::new(0),
        }
    }

    /// Whether there were that many tokens. `None` when too many others take some.
    pub(crate) fn take(&self, now_ns: u64, tokens: u32) -> Option<bool> {
        let mut state = self.state.load(Relaxed);
        for _ in 0..ATTEMPTS {
            let Some(after) = self.bucket.take(state, now_ns, tokens) else {
                return Some(false);
            };
            match self.state.compare_exchange(state, after, Relaxed, Relaxed) {
                Ok(_) => return Some(true),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Takes tokens that need not be there.
    pub(crate) fn owe(&self, tokens: u32) {
        let more = |state| Some(self.bucket.owe(state, tokens));
        let _ = self.state.fetch_update(Relaxed, Relaxed, more);
    }
}

/// Why a hit is not delivered.
pub(crate) enum Skip {
    /// `every` skips it.
    Skipped,
    /// There were too many in a short time.
    Limited,
}

/// The limits of one probe.
pub(crate) struct Limits {
    every: u32,
    rate: Option<TokenBucket>,
    runaway: Option<TokenBucket>,
    off: AtomicBool,
}

impl Limits {
    /// Those that a request asks for, if any. `Err` when there are no such.
    pub(crate) fn of(request: &ProbeRequest) -> Result<Option<Self>, ()> {
        if request.burst != 0 && request.rate == 0 {
            return Err(());
        }
        let burst = match request.burst {
            0 => request.rate,
            burst => burst,
        };
        let rate = bucket(request.rate, burst)?;
        // What is hit that often for a second, or more often for less long.
        let worth = request.runaway.max(LOOK_EVERY.saturating_mul(2));
        let runaway = bucket(request.runaway, worth)?;
        if request.every <= 1 && rate.is_none() && runaway.is_none() {
            return Ok(None);
        }
        Ok(Some(Limits {
            every: request.every,
            rate,
            runaway,
            off: AtomicBool::new(false),
        }))
    }

    /// Whether the probe was turned off.
    pub(crate) fn is_off(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// Looks at how often the probe is hit; `true` when that turns it off just now.
    /// `hits` is how many there were on this CPU.
    pub(crate) fn look(&self, hits: u64, now_ns: impl FnOnce() -> u64) -> bool {
        let Some(runaway) = &self.runaway else {
            return false;
        };
        if hits % u64::from(LOOK_EVERY) != 0 {
            return false;
        }
        // Where others were faster again and again they have looked, too.
        let is_well = runaway.take(now_ns(), LOOK_EVERY).unwrap_or(true);
        !is_well && !self.off.swap(true, Relaxed)
    }

    /// Why a hit is not delivered, which is number `number` of this CPU, from one on;
    /// `None` when it is.
    pub(crate) fn skip(&self, number: u64, now_ns: u64) -> Option<Skip> {
        let place = number.wrapping_sub(1).checked_rem(self.every.into());
        if place.unwrap_or(0) != 0 {
            return Some(Skip::Skipped);
        }
        let rate = self.rate.as_ref()?;
        match rate.take(now_ns, 1) {
            Some(true) => None,
            Some(false) | None => Some(Skip::Limited),
        }
    }
}

fn bucket(rate: u32, burst: u32) -> Result<Option<TokenBucket>, ()> {
    match rate {
        0 => Ok(None),
        rate => Ok(Some(TokenBucket::new(Bucket::new(rate, burst).ok_or(())?))),
    }
}
