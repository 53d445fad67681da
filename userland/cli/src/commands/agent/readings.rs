// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a job has measured, for those that ask for it from other threads.

use libnsprobe::Counters;
use nsprobe_telemetry::Family;
use nsprobe_trace::signals::Stop;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is waited for: a job that is busy for longer answers what it knew before.
const PATIENCE: Duration = Duration::from_secs(3);

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Whether its probes are attached.
    pub(super) is_up: bool,
    /// Its hits by outcome.
    pub(super) counters: Counters,
    /// Its metrics.
    pub(super) families: Vec<Family>,
}

/// A reading that several threads ask for and one thread makes.
#[derive(Debug)]
pub(super) struct Readings {
    /// Wakes the thread that makes it.
    stop: Stop,
    state: Mutex<State>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Readings that were asked for, and of these, made.
    asked: u64,
    made: u64,
    last: Reading,
}

impl Readings {
    pub(super) fn new(stop: Stop) -> Readings {
        Readings {
            stop,
            state: Mutex::default(),
            made: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hits of all earlier runs, as far as they were read.
    pub(super) fn counters(&self) -> Counters {
        self.lock().last.counters
    }

    /// Asks for a reading, and says which one it is.
    pub(super) fn ask(&self) -> u64 {
        let mut state = self.lock();
        state.asked += 1;
        self.stop.wake();
        state.asked
    }

    /// Waits for a reading, or takes the last one.
    pub(super) fn answer(&self, asked: u64) -> Reading {
        let until = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while state.last.is_up && state.made < asked {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.made.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.last.clone()
    }

    /// What is to be made, if it was asked for.
    pub(super) fn asked(&self) -> Option<u64> {
        let state = self.lock();
        (state.asked > state.made).then_some(state.asked)
    }

    /// Hands a reading out to those that have asked up to `asked`.
    pub(super) fn set(&self, asked: u64, reading: Reading) {
        let mut state = self.lock();
        state.made = state.made.max(asked);
        state.last = reading;
        self.made.notify_all();
    }

    /// Sets whether the probes are attached; the last reading stays.
    pub(super) fn set_up(&self, is_up: bool) {
        self.lock().last.is_up = is_up;
        self.made.notify_all();
    }
}
