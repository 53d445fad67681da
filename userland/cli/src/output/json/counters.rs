// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a probe, within lines.

use libnsprobe::Counters;
use serde::Serialize;

/// The counters of a probe, as every kind of line that has them shows them.
#[derive(Serialize)]
pub(crate) struct CountersLine {
    hits: u64,
    recorded: u64,
    aggregated: u64,
    filtered: u64,
    rejected: u64,
    undecided: u64,
    lost_full: u64,
    turned_away: u64,
    written: u64,
    write_failed: u64,
    write_withheld: u64,
    skipped: u64,
    limited: u64,
    off: u64,
    too_deep: u64,
    frozen: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    samples: Option<SamplesLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks_cut: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes_failed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    evicted: Option<u64>,
}

/// Counters that only samples have.
#[derive(Debug, Serialize)]
struct SamplesLine {
    missed: u64,
    in_kernel: u64,
    idle: u64,
    kernel_threads: u64,
    by_clock: u64,
}

impl SamplesLine {
    /// `None` for a probe that is hit at a place.
    fn of(counters: &Counters) -> Option<SamplesLine> {
        let line = SamplesLine {
            missed: counters.missed,
            in_kernel: counters.in_kernel,
            idle: counters.idle,
            kernel_threads: counters.kernel_threads,
            by_clock: counters.by_clock,
        };
        counters.has_samples().then_some(line)
    }
}

impl From<Counters> for CountersLine {
    fn from(counters: Counters) -> CountersLine {
        CountersLine {
            hits: counters.hits,
            recorded: counters.recorded,
            aggregated: counters.aggregated,
            filtered: counters.filtered,
            rejected: counters.rejected,
            undecided: counters.undecided,
            lost_full: counters.lost_full,
            turned_away: counters.turned_away,
            written: counters.written,
            write_failed: counters.write_failed,
            write_withheld: counters.write_withheld,
            skipped: counters.skipped,
            limited: counters.limited,
            off: counters.off,
            too_deep: counters.too_deep,
            frozen: counters.frozen,
            samples: SamplesLine::of(&counters),
            stacks_cut: Some(counters.stacks_cut),
            processes_failed: Some(counters.processes_failed).filter(|&failed| failed > 0),
            evicted: Some(counters.evicted).filter(|&evicted| evicted > 0),
        }
    }
}
