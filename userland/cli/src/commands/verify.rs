// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe verify`: in which processes the breakpoints really are.
//!
//! The kernel ignores any error that keeps it from putting a breakpoint into a mapping
//! (`uprobe_mmap` of `kernel/events/uprobes.c`), and skips some kinds of mappings (`valid_vma`). So
//! a probe may see less than its user thinks, and nothing reports it. This command reads the memory
//! of every process that has the file mapped.

mod look;

use crate::args::VerifyPlan;
use crate::output::json;
use anyhow::Context;
use libnsprobe::Sink;
use look::{AtBreakpoint, Look, Seen};
use nsprobe_symbolize::FileOffset;
use nsprobe_text::{counted, escaped};
use nsprobe_trace::attach::probes::{Planned, PlannedProbe};
use nsprobe_trace::attach::run::Sinks;
use nsprobe_trace::attach::tracer::{Tracer, Wants};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::process::ExitCode;

/// Processes that are named for each reason.
const EXAMPLES: usize = 5;

pub(crate) fn run(plan: &VerifyPlan) -> anyhow::Result<ExitCode> {
    let mut tracer = Tracer::new(&plan.options)?;
    let wants = Wants::default();
    let planned = tracer.plan(&wants)?;
    let mut run = tracer.start(wants, planned, |_| Ok(Sinks::All(Sink::Count)))?;
    let seen = look::everywhere(&run.planned, &tracer.target);
    run.detach()?;
    let reports = reports(&run.planned, &seen.context("cannot look at all processes")?);
    let mut out = io::stdout().lock();
    let missing = reports.iter().any(|report| !report.missing.is_empty());
    match plan.json {
        true => reports
            .iter()
            .try_for_each(|report| json::line(&mut out, report))?,
        false => by_label(reports)
            .iter()
            .try_for_each(|report| report.write(&mut out))?,
    }
    Ok(ExitCode::from(u8::from(missing)))
}

/// Findings for one probe.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    r#type: &'static str,
    binary: String,
    function: String,
    #[serde(skip)]
    label: String,
    #[serde(skip)]
    pids: BTreeSet<u32>,
    #[serde(skip)]
    files: BTreeSet<Option<usize>>,
    file_offset: String,
    armed: usize,
    processes: usize,
    left_out: usize,
    missing: Vec<Missing>,
}

/// Mappings without the breakpoint, for one reason.
#[derive(Debug, Serialize)]
struct Missing {
    why: String,
    mappings: usize,
    pids: Vec<u32>,
    #[serde(skip)]
    names: Vec<String>,
}

fn reports(planned: &Planned, seen: &[Seen]) -> Vec<Report> {
    let of = |(index, probe): (usize, &PlannedProbe)| {
        let own: Vec<&Seen> = seen.iter().filter(|seen| seen.probe == index).collect();
        Report::new(planned, probe, &own)
    };
    planned.probes.iter().enumerate().map(of).collect()
}

/// The reports with those of one label added up: a name may stand for several files.
fn by_label(reports: Vec<Report>) -> Vec<Report> {
    let mut all: Vec<Report> = Vec::new();
    let mut places = HashMap::new();
    for report in reports {
        let place = *places.entry(report.label.clone()).or_insert(all.len());
        match all.get_mut(place) {
            Some(known) => known.add(report),
            None => all.push(report),
        }
    }
    all
}

impl Report {
    fn new(planned: &Planned, probe: &PlannedProbe, seen: &[&Seen]) -> Report {
        let is = |look: Look| seen.iter().filter(move |seen| seen.look == look);
        let armed = is(Look::Armed).count();
        let pids: BTreeSet<u32> = is(Look::Armed).map(|seen| seen.pid).collect();
        let mut reasons: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
        for one in seen {
            if let Look::Missing(why) = one.look {
                reasons.entry(why.text()).or_default().push(one);
            }
        }
        let file = probe.file.and_then(|file| planned.files.get(file));
        Report {
            r#type: "verify",
            binary: file.map_or_else(String::new, |file| file.path.display().to_string()),
            function: probe.function.clone(),
            label: probe.label.clone(),
            file_offset: format!("{:#x}", probe.offset.0),
            armed,
            processes: pids.len(),
            pids,
            files: BTreeSet::from([probe.file]),
            left_out: is(Look::LeftOut).count(),
            missing: reasons.into_iter().map(Missing::new).collect(),
        }
    }

    /// Adds the findings for a probe of the same label.
    fn add(&mut self, other: Report) {
        self.files.extend(other.files);
        self.armed += other.armed;
        self.pids.extend(other.pids);
        self.processes = self.pids.len();
        self.left_out += other.left_out;
        self.missing.extend(other.missing);
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let missing: usize = self.missing.iter().map(|missing| missing.mappings).sum();
        write!(
            out,
            "{}: armed in {} of {}, in {}",
            escaped(&self.label),
            self.armed,
            counted(self.armed + missing, "mapping"),
            counted(self.processes, "process")
        )?;
        if self.files.len() > 1 {
            write!(out, ", of {}", counted(self.files.len(), "file"))?;
        }
        match self.left_out {
            0 => writeln!(out)?,
            count => writeln!(
                out,
                "; {} of other processes not counted",
                counted(count, "mapping")
            )?,
        }
        for missing in &self.missing {
            let more = missing.mappings.saturating_sub(missing.names.len());
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = missing.names.join(", ");
            writeln!(out, "  not in {}: {}{more}", missing.why, escaped(&names))?;
        }
        Ok(())
    }
}

impl Missing {
    fn new((why, seen): (&str, Vec<&Seen>)) -> Missing {
        let name = |seen: &&Seen| format!("{} ({})", seen.pid, seen.comm);
        Missing {
            why: why.to_owned(),
            mappings: seen.len(),
            pids: seen.iter().map(|seen| seen.pid).collect(),
            names: seen.iter().take(EXAMPLES).map(name).collect(),
        }
    }
}

/// Offsets of a probe's breakpoints.
fn breakpoints(probe: &PlannedProbe) -> Vec<FileOffset> {
    match &probe.exits {
        Some(exits) => {
            let entry = std::iter::once(probe.breakpoint);
            entry.chain(exits.places()).collect()
        }
        None => vec![probe.breakpoint],
    }
}

impl AtBreakpoint {
    /// Its wording in the report.
    fn text(self) -> &'static str {
        match self {
            AtBreakpoint::Shared => "shared mappings, where the kernel puts no breakpoints",
            AtBreakpoint::Writable => "writable mappings, where the kernel puts no breakpoints",
            AtBreakpoint::OtherFile => {
                "other files of the same build-id, which need probes of their own"
            }
            AtBreakpoint::Replaced => {
                "mappings of another file than is at the path now (replaced, copied up in an \
                 overlay, or below a mount), which -p and -c probe, too, if it has the function"
            }
            AtBreakpoint::Changed => "mappings whose code somebody else has changed",
            AtBreakpoint::Unreadable => "mappings that cannot be read",
            AtBreakpoint::Bare => {
                "plain mappings: a process forked by one that is not traced, or the kernel could \
                 not do it"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_several_files_has_one_line() {
        let report = |label: &str, file, pid| Report {
            r#type: "verify",
            binary: String::new(),
            function: String::new(),
            label: label.to_owned(),
            pids: BTreeSet::from([pid]),
            files: BTreeSet::from([Some(file)]),
            file_offset: String::new(),
            armed: 1,
            processes: 1,
            left_out: 0,
            missing: Vec::new(),
        };
        let all = vec![
            report("libc.so.6:write", 0, 7),
            report("app:main", 1, 7),
            report("libc.so.6:write", 2, 7),
            report("libc.so.6:write", 3, 8),
        ];
        let mut out = Vec::new();
        for report in by_label(all) {
            report.write(&mut out).unwrap();
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "libc.so.6:write: armed in 3 of 3 mappings, in 2 processes, of 3 files\n\
             app:main: armed in 1 of 1 mapping, in 1 process\n"
        );
    }
}
