// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe script`: prints a capsule as a trace would have been printed.

use crate::args::{Detail, ScriptPlan};
use crate::output::records::RecordPrinter;
use crate::output::summary;
use nsprobe_trace::hits::lookup::Lookup;
use nsprobe_trace::recording::capsule::{Capsule, Offline};
use std::process::ExitCode;

pub(crate) fn run(plan: &ScriptPlan) -> anyhow::Result<ExitCode> {
    let mut capsule = Capsule::open(&plan.file)?;
    capsule.require_hits(&plan.file)?;
    let header = capsule.contents.header.as_ref();
    let count = header.and_then(|header| header.count);
    let mut printer = RecordPrinter::new(plan.json, count, capsule.labels(), capsule.start_ns());
    let mut offline = Offline::new(&capsule.contents);
    capsule
        .reader
        .each_record(|record| -> anyhow::Result<()> { Ok(printer.print(&mut offline, record)?) })?;
    printer.print_waiting(&mut offline)?;
    printer.flush()?;
    let finished = offline.finished();
    let mut code = ExitCode::SUCCESS;
    if let Some(mut summary) = capsule.summary() {
        summary.printed = printer.printed();
        summary.late = printer.late();
        summary.finished = finished;
        printer.summary(&summary)?;
        code = summary::tell(&summary, plan.detail)?;
    }
    capsule.tell_unrecorded(&plan.file, plan.detail == Detail::Quiet);
    Ok(match capsule.tell_missing() {
        true => code,
        false => ExitCode::FAILURE,
    })
}
