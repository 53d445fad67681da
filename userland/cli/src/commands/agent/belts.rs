// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent may take of the machine: where it takes more, profiles take fewer samples.

use super::own::Usage;
use super::say;
use crate::args::BeltsPlan;
use nsprobe_telemetry::{Family, NumberPoint, Points};
use nsprobe_trace::placeless::Placeless;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long CPU time is added up before it is judged.
const SPAN: Duration = Duration::from_secs(60);
/// How long it has to be little before more is taken again.
const CALM: Duration = Duration::from_secs(600);
/// The part of a limit that is little, so that twice as much is within it.
const LITTLE: f64 = 0.4;
/// The part of the memory's limit from which on less is kept.
const NEARLY: f64 = 0.9;
/// How often the rate is halved at most.
const LEVELS: u32 = 4;

/// The limits, and how far the rate has fallen.
#[derive(Debug)]
pub(super) struct Belts(Mutex<State>);

#[derive(Debug)]
struct State {
    limits: BeltsPlan,
    /// The rate is the configured one divided by two to this power.
    level: u32,
    since: (Instant, Usage),
    /// Whether the time since then begins with a start, which takes more than what follows.
    is_warming: bool,
    /// Since when it has taken little.
    calm: Option<Instant>,
}

impl Belts {
    pub(super) fn new(limits: BeltsPlan) -> Belts {
        Belts(Mutex::new(State {
            limits,
            level: 0,
            since: (Instant::now(), Usage::now()),
            is_warming: true,
            calm: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, limits: BeltsPlan) {
        self.lock().limits = limits;
    }

    /// How often the rate is halved.
    pub(super) fn level(&self) -> u32 {
        self.lock().level
    }

    /// Looks at what was taken, if it is time; once a second is often enough.
    pub(super) fn look(&self) {
        let mut state = self.lock();
        let (begun, before) = state.since;
        let elapsed = begun.elapsed();
        if elapsed >= SPAN {
            let now = Usage::now();
            state.since = (Instant::now(), now);
            if std::mem::take(&mut state.is_warming) {
                return;
            }
            let used = now.cpu_seconds - before.cpu_seconds;
            let level = state.level;
            state.judge(100.0 * used / elapsed.as_secs_f64(), now.memory_bytes);
            state.is_warming = state.level != level;
        }
    }

    /// How far the rate has fallen, as a metric.
    pub(super) fn family(&self) -> Family {
        Family {
            name: "nsprobe_agent_rate_divisor".to_owned(),
            help: "Profiles take this part of their samples, as the agent took too much".to_owned(),
            unit: None,
            points: Points::Gauge(vec![NumberPoint {
                labels: Vec::new(),
                value: f64::from(1 << self.level()),
            }]),
        }
    }
}

impl State {
    fn judge(&mut self, cpu_percent: f64, memory_bytes: u64) {
        let limits = self.limits;
        let of_memory = memory_bytes as f64 / limits.memory_bytes as f64;
        let is_over = cpu_percent > limits.cpu_percent || of_memory > NEARLY;
        let is_little = cpu_percent < limits.cpu_percent * LITTLE && of_memory < LITTLE;
        let took = format!(
            "{cpu_percent:.1} % of a CPU (of {} %) and {} MB (of {} MB)",
            limits.cpu_percent,
            memory_bytes >> 20,
            limits.memory_bytes >> 20
        );
        if is_over && self.level < LEVELS {
            self.level += 1;
            say(&format!(
                "took {took}: profiles take half the samples from now on"
            ));
        }
        if !is_little || self.level == 0 {
            self.calm = None;
            return;
        }
        let calm = *self.calm.get_or_insert_with(Instant::now);
        if calm.elapsed() >= CALM {
            self.level -= 1;
            self.calm = None;
            say(&format!(
                "took {took}: profiles take twice the samples from now on"
            ));
        }
    }
}

/// Fewer samples, or only longer waits.
pub(super) fn slowed(placeless: Placeless, level: u32) -> Placeless {
    match placeless {
        Placeless::Samples { hz } => Placeless::Samples {
            hz: (hz >> level).max(1),
        },
        Placeless::Waits { min_ns } => Placeless::Waits {
            min_ns: min_ns.max(1) << level,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_while_too_much_is_taken_and_stays_then() {
        let mut state = State {
            limits: BeltsPlan {
                cpu_percent: 1.0,
                memory_bytes: 200 << 20,
            },
            level: 0,
            since: (Instant::now(), Usage::default()),
            is_warming: false,
            calm: None,
        };
        state.judge(0.9, 50 << 20);
        assert_eq!(state.level, 0);
        for level in [1, 2, 3, 4, 4] {
            state.judge(1.1, 50 << 20);
            assert_eq!(state.level, level);
        }
        // It takes a while before it rises again.
        state.judge(0.1, 50 << 20);
        assert_eq!((state.level, state.calm.is_some()), (4, true));
        state.judge(0.5, 50 << 20);
        assert_eq!((state.level, state.calm), (4, None));
        state.level = 0;
        state.judge(0.1, 190 << 20);
        assert_eq!(state.level, 1);
        let slow = slowed(Placeless::Samples { hz: 19 }, 2);
        assert_eq!(slow, Placeless::Samples { hz: 4 });
    }
}
