// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe trace` and `set`: a line for each hit, and for each change, as it comes.

pub(crate) mod backlog;

use crate::args::TracePlan;
use crate::output::lines::Output;
use crate::output::records::RecordPrinter;
use crate::output::summary;
use backlog::Backlog;
use libnsprobe::Sink;
use nsprobe_text::counted;
use nsprobe_trace::attach::run::{self, Ended, Pace, Run, Sinks, TakenHits};
use nsprobe_trace::attach::tracer::{Tracer, Wants};
use nsprobe_trace::hits::live::Live;
use nsprobe_trace::tasks::HitNames;
use std::process::ExitCode;
use std::time::Duration;

/// Records below the watermark are fetched after this time.
const FLUSH: Duration = Duration::from_millis(50);

pub(crate) fn run(plan: &TracePlan) -> anyhow::Result<ExitCode> {
    let options = &plan.options;
    let out = Output::to_file(plan.output.as_deref())?;
    // Before a program waits for its probes.
    let containers = HitNames::start()?;
    let mut tracer = Tracer::new(options)?;
    let wants = wants(plan);
    let planned = tracer.plan(&wants)?;
    let containers = containers.within(&tracer.target)?;
    let mut run = tracer.start(wants, planned, |_| Ok(Sinks::All(Sink::Record)))?;
    let mut live = run.live().with_containers(containers);
    let labels = run.labels.clone();
    let mut printer =
        RecordPrinter::new(plan.printing.json, plan.count, labels, run.start_ns).to(out);
    let mut backlog = Backlog::default();
    let ended = run.follow(FLUSH, |run| {
        if let Some(added) = run.take_added() {
            live.learn(&added);
            live.names.add(added.files);
            printer.add(added.labels);
        }
        if plan.setup.overwrite {
            return Ok(match run.session.is_frozen()? {
                true => Pace::Enough(run::TRIGGERED.to_owned()),
                false => Pace::Wait,
            });
        }
        backlog.take(run, &mut live)?;
        let more = backlog.print(run, &mut live, &mut printer)?;
        live.names.close_idle();
        Ok(match (printer.is_full(), printer.printed()) {
            (false, _) if more => Pace::Again,
            (false, _) => Pace::Wait,
            (true, printed) => Pace::Enough(format!("{} printed", counted(printed, "call"))),
        })
    })?;
    match ended {
        Ended::Because(why) => end(plan, run, live, printer, backlog, why),
        Ended::ReaderGone => Ok(ExitCode::SUCCESS),
    }
}

/// What a trace wants of its probes.
pub(crate) fn wants(plan: &TracePlan) -> Wants<'_> {
    Wants {
        sink: nsprobe_spec::Sink::Record,
        changes: &plan.changes,
        max_writes: plan.max_writes,
        setup: plan.setup,
        records: true,
        stack: plan.stack,
        kernel_stack: plan.kernel_stack,
        ..Wants::default()
    }
}

/// Detaches, prints what is left, and sums up.
fn end(
    plan: &TracePlan,
    mut run: Run<'_>,
    mut live: Live,
    mut printer: RecordPrinter,
    mut backlog: Backlog,
    mut ended_by: String,
) -> anyhow::Result<ExitCode> {
    if plan.setup.overwrite && run.freeze()? {
        ended_by = run::TRIGGERED.to_owned();
    }
    run.end(&mut live)?;
    backlog.empty(&mut run, &mut live, &mut printer)?;
    printer.print_waiting(&mut live.of(&run.session))?;
    let taken = TakenHits {
        printed: printer.printed(),
        received: printer.received(),
        late: printer.late(),
    };
    let summary = run.sum_up(&mut live, ended_by, taken)?;
    printer.summary(&summary)?;
    summary::tell(&summary, plan.printing.detail)
}
