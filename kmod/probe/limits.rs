// SPDX-License-Identifier: GPL-2.0-only
//! The limits of a probe: which of its hits are skipped, and the rate of hits that turns it off.

use crate::common::{abi::Probe as ProbeRequest, limit::Bucket};
use core::sync::atomic::{
    AtomicBool,
    AtomicU64,
    Ordering::Relaxed, //
};

/// Hits of a CPU between two checks of the probe's rate: a check costs more than a hit.
pub(crate) const LOOK_EVERY: u32 = 256;
/// Attempts to take from a bucket that other CPUs take from, too.
const ATTEMPTS: usize = 8;

/// A bucket that all CPUs take from.
pub(crate) struct TokenBucket {
    bucket: Bucket,
    state: AtomicU64,
}

impl TokenBucket {
    /// Makes a full bucket.
    pub(crate) fn new(bucket: Bucket) -> Self {
        TokenBucket {
            bucket,
            state: AtomicU64::new(0),
        }
    }

    /// Whether there were that many tokens. `None` if other CPUs kept taking some meanwhile.
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

    /// Takes tokens even if there are too few.
    pub(crate) fn owe(&self, tokens: u32) {
        let more = |state| Some(self.bucket.owe(state, tokens));
        let _ = self.state.fetch_update(Relaxed, Relaxed, more);
    }
}

/// Why a hit is not delivered.
pub(crate) enum Skip {
    /// Skipped by `every`.
    Skipped,
    /// Over the rate limit.
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
    /// The limits that a request asks for, if any. `Err` if they are invalid.
    pub(crate) fn of(request: &ProbeRequest) -> Result<Option<Self>, ()> {
        if request.burst != 0 && request.rate == 0 {
            return Err(());
        }
        let burst = match request.burst {
            0 => request.rate,
            burst => burst,
        };
        let rate = bucket(request.rate, burst)?;
        // Allows that rate for a second, or a higher one for a shorter time.
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

    /// Checks the rate of the probe's hits; returns true if that turns the probe off. `hits` is the
    /// number of hits on this CPU.
    pub(crate) fn look(&self, hits: u64, now_ns: impl FnOnce() -> u64) -> bool {
        let Some(runaway) = &self.runaway else {
            return false;
        };
        if hits % u64::from(LOOK_EVERY) != 0 {
            return false;
        }
        // If other CPUs were faster on every attempt, they have checked the rate, too.
        let is_well = runaway.take(now_ns(), LOOK_EVERY).unwrap_or(true);
        !is_well && !self.off.swap(true, Relaxed)
    }

    /// Why hit number `number` of this CPU, counted from one, is not delivered; `None` if it is.
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
