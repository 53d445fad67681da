// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits of a probe by outcome.

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
    /// Processes in which the kernel could not set the breakpoint; of several probes the most, as
    /// they are the same processes.
    pub processes_failed: u64,
    /// Calls that were forgotten for others, as too many were under way.
    pub evicted: u64,
}

impl Counters {
    /// Whether they are of samples, of which there are some.
    pub fn has_samples(&self) -> bool {
        self.by_clock + self.idle + self.kernel_threads + self.in_kernel + self.missed > 0
    }

    /// Whether every hit is accounted for: the conservation law.
    pub fn balance(&self) -> bool {
        let parts = [
            self.recorded,
            self.aggregated,
            self.filtered,
            self.rejected,
            self.lost_full,
            self.turned_away,
            self.skipped,
            self.limited,
            self.off,
            self.frozen,
            self.missed,
        ];
        let sum: u128 = parts.iter().map(|&part| u128::from(part)).sum();
        u128::from(self.hits) == sum
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.hits += other.hits;
        self.recorded += other.recorded;
        self.aggregated += other.aggregated;
        self.filtered += other.filtered;
        self.rejected += other.rejected;
        self.undecided += other.undecided;
        self.lost_full += other.lost_full;
        self.turned_away += other.turned_away;
        self.stacks_cut += other.stacks_cut;
        self.written += other.written;
        self.write_failed += other.write_failed;
        self.write_withheld += other.write_withheld;
        self.skipped += other.skipped;
        self.limited += other.limited;
        self.off += other.off;
        self.too_deep += other.too_deep;
        self.frozen += other.frozen;
        self.missed += other.missed;
        self.in_kernel += other.in_kernel;
        self.idle += other.idle;
        self.kernel_threads += other.kernel_threads;
        self.by_clock += other.by_clock;
        self.evicted += other.evicted;
        self.processes_failed = self.processes_failed.max(other.processes_failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_common::abi;

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
        // A hit ends as what the interface says, and as nothing else.
        let fields = serde_json::to_value(Counters::default()).unwrap();
        let ends = abi::Counters::default().ends().map(|(name, _)| name);
        for name in fields
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != "hits")
        {
            let one = serde_json::json!({ "hits": 1, name: 1 });
            let one: Counters = serde_json::from_value(one).unwrap();
            assert_eq!(one.balance(), ends.contains(&name.as_str()), "{name}");
        }
    }
}
