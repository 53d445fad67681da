// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits that have no place in a file: samples of CPUs, waits of tasks, and what ends waits.

/// What such hits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeless {
    /// Samples of each CPU.
    Samples {
        /// How many a second.
        hz: u32,
    },
    /// Waits of tasks off the CPU.
    Waits {
        /// How long they take at least.
        min_ns: u64,
    },
    /// Wake-ups of tasks, which are parts of waits.
    Wakes {
        /// How long the tasks have waited at least.
        min_ns: u64,
    },
}

/// Names in place of a function's.
const SAMPLES: &str = "cpu-samples";
const WAITS: &str = "waits";
const WAKES: &str = "wake-ups";

impl Placeless {
    /// The rate in Hz, of samples.
    pub fn samples_hz(self) -> Option<u32> {
        match self {
            Placeless::Samples { hz } => Some(hz),
            Placeless::Waits { .. } | Placeless::Wakes { .. } => None,
        }
    }

    /// Whether such hits are parts of others, and do not count by themselves.
    pub fn is_part(self) -> bool {
        matches!(self, Placeless::Wakes { .. })
    }

    /// Its name in place of a function's.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Placeless::Samples { .. } => SAMPLES,
            Placeless::Waits { .. } => WAITS,
            Placeless::Wakes { .. } => WAKES,
        }
    }

    /// Its number in place of an offset.
    pub(crate) fn number(self) -> u64 {
        match self {
            Placeless::Samples { hz } => hz.into(),
            Placeless::Waits { min_ns } | Placeless::Wakes { min_ns } => min_ns,
        }
    }

    /// What the hits of a probe are, by its file, its function and its offset; `None` if it has a
    /// place.
    pub(crate) fn of(binary: &str, function: &str, number: u64) -> Option<Placeless> {
        match function {
            _ if !binary.is_empty() => None,
            SAMPLES => Some(Placeless::Samples {
                hz: u32::try_from(number).ok()?,
            }),
            WAITS => Some(Placeless::Waits { min_ns: number }),
            WAKES => Some(Placeless::Wakes { min_ns: number }),
            _ => None,
        }
    }

    /// What all of these are, but for parts of others.
    pub(crate) fn of_all(all: impl Iterator<Item = Option<Placeless>>) -> Option<Placeless> {
        let mut all = all.filter(|one| !one.is_some_and(Placeless::is_part));
        let first = all.next()??;
        all.all(|one| one == Some(first)).then_some(first)
    }
}
