// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits of a probe by outcome.

use nsprobe_common::abi;
use serde::{Deserialize, Serialize};

/// A probe's hits by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Times the breakpoint was hit.
    pub hits: u64,
    /// Hits with a record in a ring.
    pub recorded: u64,
    /// Hits that were counted or went into a table.
    pub aggregated: u64,
    /// Hits of tasks that are not traced.
    pub filtered: u64,
    /// Hits that the probe's program did not require.
    pub rejected: u64,
    /// Of the rejected hits, those where a value was missing that would decide.
    pub undecided: u64,
    /// Hits lost because the ring was full.
    pub lost_full: u64,
    /// Hits for which the table had no row left.
    pub turned_away: u64,
    /// Recorded hits whose stack ended early.
    pub stacks_cut: u64,
    /// Changes that were made.
    pub written: u64,
    /// Changes that could not be made.
    pub write_failed: u64,
    /// Changes that the limit forbade, or whose record had no room.
    pub write_withheld: u64,
    /// Hits that `every` skipped.
    pub skipped: u64,
    /// Hits beyond the rate.
    pub limited: u64,
    /// Hits after the probe was turned off.
    pub off: u64,
    /// Calls whose returns the kernel does not follow.
    pub too_deep: u64,
    /// Hits while the rings were frozen.
    pub frozen: u64,
    /// Samples of tasks of which nothing can be read.
    pub missed: u64,
    /// Samples that were taken in the kernel, of the hits.
    pub in_kernel: u64,
    /// Samples of idle CPUs, which are no hits.
    pub idle: u64,
    /// Samples of kernel threads, which are no hits.
    pub kernel_threads: u64,
    /// Of all samples, those by the CPU clock.
    pub by_clock: u64,
    /// Waits that were too short.
    pub below: u64,
    /// Nanoseconds that these took together.
    pub below_ns: u64,
    /// Waits that could not be followed, as there were too many.
    pub no_row: u64,
    /// Waits that had not ended at the end.
    pub unfinished: u64,
    /// Processes in which the kernel could not set the breakpoint; of several probes the most, as
    /// they are the same processes.
    pub processes_failed: u64,
    /// Calls that were forgotten for others, as too many were under way.
    pub evicted: u64,
}

macro_rules! of_probe {
    (
        outcomes { $($outcome:ident: $item:ident,)* }
        others { $($other:ident,)* }
    ) => {
        impl Counters {
            /// How many hits ended under each outcome, by its name: together all hits.
            pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($outcome), self.$outcome)),*].into_iter()
            }

            /// Whether every hit is accounted for: the conservation law.
            pub fn balance(&self) -> bool {
                let sum: u128 = [$(self.$outcome),*].into_iter().map(u128::from).sum();
                u128::from(self.hits) == sum
            }

            /// All counters, by name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let all = [
                    ("hits", self.hits),
                    $((stringify!($outcome), self.$outcome),)*
                    $((stringify!($other), self.$other),)*
                    ("processes_failed", self.processes_failed),
                    ("evicted", self.evicted),
                ];
                all.into_iter()
            }

            /// Sets a counter by its name; other names are ignored.
            pub(crate) fn set(&mut self, name: &str, value: u64) {
                match name {
                    "hits" => self.hits = value,
                    $(stringify!($outcome) => self.$outcome = value,)*
                    $(stringify!($other) => self.$other = value,)*
                    "processes_failed" => self.processes_failed = value,
                    "evicted" => self.evicted = value,
                    _ => {}
                }
            }
        }

        impl From<abi::Counters> for Counters {
            fn from(of: abi::Counters) -> Counters {
                Counters {
                    hits: of.hits,
                    $($outcome: of.$outcome,)*
                    $($other: of.$other,)*
                    processes_failed: of.processes_failed,
                    evicted: of.evicted,
                }
            }
        }

        impl std::ops::AddAssign for Counters {
            fn add_assign(&mut self, other: Counters) {
                self.hits += other.hits;
                $(self.$outcome += other.$outcome;)*
                $(self.$other += other.$other;)*
                self.processes_failed = self.processes_failed.max(other.processes_failed);
                self.evicted += other.evicted;
            }
        }
    };
}
nsprobe_common::probe_counters!(of_probe);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_balance_or_not() {
        let mut counters = Counters {
            hits: 10,
            recorded: 6,
            filtered: 1,
            aggregated: 1,
            lost_full: 2,
            stacks_cut: 5,
            ..Counters::default()
        };
        assert!(counters.balance());
        counters += counters;
        assert!(counters.balance());
        counters.hits += 1;
        assert!(!counters.balance());
        let mut named = Counters::default();
        for (number, (name, _)) in counters.all().enumerate() {
            named.set(name, number as u64);
        }
        let numbers = named.all().map(|(_, value)| value);
        assert!(numbers.eq(0..counters.all().count() as u64));
    }
}
