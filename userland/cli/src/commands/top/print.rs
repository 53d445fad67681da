// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals as tables for pipes, and as JSON.

use super::draw::NAME_MIN;
use super::interval::{GroupUse, Interval, ProcessUse};
use super::rows::{rows, Choice, TopRow};
use crate::output::columns::{self, Head};
use crate::output::json;
use nsprobe_text::counted;
use nsprobe_trace::tasks::{Place, PlaceLine};
use serde::Serialize;
use std::io::{Result, Write};

const HEADS: [Head; 6] = [
    Head::Right("%CPU"),
    Head::Right("%ALL"),
    Head::Right("SWITCHES"),
    Head::Right("PROC"),
    Head::Right("THRD"),
    Head::Left("NAME"),
];

/// Columns that go where lines have no room, those that matter least first.
const LEAST: [&str; 4] = ["%ALL", "SWITCHES", "PROC", "THRD"];

/// Writes an interval as a table.
pub(super) fn table(
    out: &mut impl Write,
    interval: &Interval,
    choice: &Choice,
    width: Option<usize>,
) -> Result<()> {
    writeln!(
        out,
        "{:.3} s: CPU {:.1} % of {} %{}",
        interval.elapsed_ns as f64 / 1e9,
        interval.percent(interval.cpu_ns()),
        100 * interval.cpus,
        match interval.lost {
            0 => String::new(),
            lost => format!(", {} of tasks lost", counted(lost, "record")),
        }
    )?;
    let mut cells: Vec<Vec<String>> = rows(interval, choice)
        .iter()
        .map(|row| cells(row, interval))
        .collect();
    let mut heads = HEADS.to_vec();
    columns::fit(&mut heads, &mut cells, width, NAME_MIN, &LEAST);
    columns::write(out, &heads, &cells, width)?;
    writeln!(out)
}

fn cells(row: &TopRow, interval: &Interval) -> Vec<String> {
    let optional = |number: Option<u64>| number.map_or(String::new(), |n| n.to_string());
    vec![
        format!("{:.1}", interval.percent(row.cpu_ns)),
        format!("{:.1}", interval.percent_of_all(row.cpu_ns)),
        optional(row.switches),
        optional(row.processes.map(|count| count as u64)),
        optional(row.threads.map(|count| count as u64)),
        format!("{}{}", "  ".repeat(row.depth), row.name),
    ]
}

#[derive(Serialize)]
struct IntervalLine {
    r#type: &'static str,
    time_ns: u64,
    elapsed_ns: u64,
    cpus: u32,
    cpu_ns: u64,
    unaccounted_ns: u64,
    lost: u64,
    groups: Vec<GroupLine>,
}

#[derive(Serialize)]
struct GroupLine {
    #[serde(flatten)]
    place: PlaceLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_namespace: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_namespace_id: Option<u64>,
    cpu_ns: u64,
    percent: f64,
    switches: u64,
    processes: usize,
    threads: usize,
    remainder_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran: Option<Vec<ProcessLine>>,
}

#[derive(Serialize)]
struct ProcessLine {
    pid: u32,
    container_pid: u32,
    comm: String,
    cpu_ns: u64,
    threads: Vec<ThreadLine>,
}

#[derive(Serialize)]
struct ThreadLine {
    tid: u32,
    container_tid: u32,
    start_ns: u64,
    comm: String,
    cpu_ns: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}

/// Writes an interval as a line for machines; `time_ns` is that of its end.
pub(super) fn line(
    out: &mut impl Write,
    interval: &Interval,
    choice: &Choice,
    time_ns: u64,
) -> Result<()> {
    let shown = super::rows::groups(interval, choice).into_iter();
    json::line(
        out,
        &IntervalLine {
            r#type: "interval",
            time_ns,
            elapsed_ns: interval.elapsed_ns,
            cpus: interval.cpus,
            cpu_ns: interval.cpu_ns(),
            unaccounted_ns: interval.unaccounted_ns,
            lost: interval.lost,
            groups: shown
                .map(|group| GroupLine::new(group, interval, choice.all))
                .collect(),
        },
    )
}

impl GroupLine {
    fn new(group: &GroupUse, interval: &Interval, processes: bool) -> GroupLine {
        let space = match group.place {
            Place::Namespace(space) => Some(space),
            _ => None,
        };
        GroupLine {
            place: PlaceLine::new(&group.place),
            pid_namespace: space.map(|space| space.inum),
            pid_namespace_id: space.map(|space| space.id),
            cpu_ns: group.cpu_ns,
            percent: interval.percent(group.cpu_ns),
            switches: group.switches,
            processes: group.living,
            threads: group.threads,
            remainder_ns: group.remainder_ns(),
            ran: processes.then(|| group.processes.iter().map(ProcessLine::new).collect()),
        }
    }
}

impl ProcessLine {
    fn new(process: &ProcessUse) -> ProcessLine {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let threads = process.threads.iter().map(|thread| ThreadLine {
            tid: thread.id.tid,
            container_tid: thread.own_tid,
            start_ns: thread.id.start_ns,
            comm: text(&thread.comm),
            cpu_ns: thread.cpu_ns,
            ended: thread.has_ended,
        });
        ProcessLine {
            pid: process.pid,
            container_pid: process.own_pid,
            comm: text(&process.comm),
            cpu_ns: process.cpu_ns,
            threads: threads.collect(),
        }
    }
}
