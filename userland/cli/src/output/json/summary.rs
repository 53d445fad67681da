// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last line of a trace, and of a capsule that is printed.

use super::counters::CountersLine;
use super::line::line;
use libnsprobe::{Counters, HoldReport};
use nsprobe_trace::summary::{MissedCalls, Summary};
use serde::Serialize;
use std::io::{Result, Write};

#[derive(Serialize)]
struct SummaryLine<'a> {
    r#type: &'static str,
    seconds: f64,
    ended_by: &'a str,
    printed: u64,
    #[serde(flatten)]
    total: CountersLine,
    #[serde(flatten)]
    missed: MissedCalls,
    balanced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<StacksLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldLine>,
    probes: Vec<ProbeLine<'a>>,
    names: Vec<&'a str>,
}

#[derive(Serialize)]
struct StacksLine {
    cut: u64,
    finished_from_copies: u64,
    taken_late: u64,
    unwind_files: u64,
    unwind_bytes: u64,
    unwind_dropped_bytes: u64,
}

impl StacksLine {
    fn new(summary: &Summary) -> StacksLine {
        let rows = summary.rows.as_ref();
        StacksLine {
            cut: summary.total().stacks_cut,
            finished_from_copies: summary.finished,
            taken_late: summary.late,
            unwind_files: rows.map_or(0, |rows| rows.files),
            unwind_bytes: rows.map_or(0, |rows| rows.bytes),
            unwind_dropped_bytes: rows.map_or(0, |rows| rows.dropped_bytes),
        }
    }
}

/// Programs of new containers.
#[derive(Serialize)]
struct HeldLine {
    programs: u64,
    overdue: u64,
    interrupted: u64,
    not_held: u64,
    longest_ns: u64,
    is_over: bool,
}

impl From<&HoldReport> for HeldLine {
    fn from(held: &HoldReport) -> HeldLine {
        HeldLine {
            programs: held.held,
            overdue: held.overdue,
            interrupted: held.interrupted,
            not_held: held.not_held,
            longest_ns: held.longest.as_nanos() as u64,
            is_over: held.is_over,
        }
    }
}

#[derive(Serialize)]
struct ProbeLine<'a> {
    probe: u32,
    binary: &'a str,
    function: &'a str,
    file_offset: String,
    #[serde(flatten)]
    counters: CountersLine,
    #[serde(flatten)]
    missed: MissedCalls,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cpus: Vec<CpuLine>,
}

#[derive(Serialize)]
struct CpuLine {
    cpu: u16,
    #[serde(flatten)]
    counters: CountersLine,
}

fn cpu_line((cpu, counters): (&u16, &Counters)) -> CpuLine {
    CpuLine {
        cpu: *cpu,
        counters: (*counters).into(),
    }
}

/// Writes the last line of a trace.
pub(crate) fn summary(out: &mut impl Write, summary: &Summary) -> Result<()> {
    line(
        out,
        &SummaryLine {
            r#type: "summary",
            seconds: summary.elapsed.as_secs_f64(),
            ended_by: &summary.ended_by,
            printed: summary.printed,
            total: summary.total().into(),
            missed: summary.missed(),
            balanced: summary.problem().is_none(),
            stacks: summary.has_stacks.then(|| StacksLine::new(summary)),
            held: summary.held.as_ref().map(HeldLine::from),
            probes: summary
                .probes
                .iter()
                .map(|probe| ProbeLine {
                    probe: probe.id,
                    binary: &probe.binary,
                    function: &probe.function,
                    file_offset: probe.offset.to_string(),
                    counters: probe.counters.into(),
                    missed: probe.missed,
                    cpus: probe.cpus.iter().map(cpu_line).collect(),
                })
                .collect(),
            names: summary.names.iter().map(|line| &*line.whole).collect(),
        },
    )
}
