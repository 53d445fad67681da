// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe trace` and `set`: a line for each hit, and for each change, as it comes.

pub(crate) mod backlog;

use crate::args::spec::CountedTexts;
use crate::args::TracePlan;
use crate::attach::probes::options::CompileOptions;
use crate::attach::run::options::AttachOptions;
use crate::attach::run::{self, Ended, Pace, Run, Sinks};
use crate::attach::target::Target;
use crate::hits::live::Live;
use crate::hits::lookup::Lookup;
use crate::names::search::Search;
use crate::names::Names;
use crate::output::lines::Output;
use crate::output::records::RecordPrinter;
use crate::output::summary::{self, Summary};
use crate::tasks::HitNames;
use backlog::Backlog;
use libnsprobe::{Session, Sink};
use nsprobe_symbolize::counted;
use nsprobe_worker::{Limits, Worker};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Records below the watermark are fetched after this time.
const FLUSH: Duration = Duration::from_millis(50);

pub(crate) fn run(plan: &TracePlan) -> anyhow::Result<ExitCode> {
    let options = &plan.options;
    let out = Output::to_file(plan.output.as_deref())?;
    let target = Target::find(&options.who, options.timeout)?;
    let search = Search::of(target.viewers(), options)?;
    let parser = options.parser();
    let compile = compile_options(plan, &search, &parser);
    let planned = run::plan(&target, options, &compile)?;
    let wanted = attach_options(plan, compile);
    let containers = HitNames::start()?.within(&target)?;
    let record = |_: &mut Session| Ok(Sinks::All(Sink::Record));
    let mut run = Run::begin(wanted, &target, planned, record)?;
    // Without stacks nothing more is needed of the files.
    let files = match plan.stack {
        true => std::mem::take(&mut run.planned.files),
        false => Vec::new(),
    };
    run.planned.files.clear();
    let names = Names::new(
        files,
        run.load_queue(),
        Arc::clone(&search),
        run.take_threads(),
    );
    let mut live = Live::new(names, plan.kernel_stack).with_containers(containers);
    let labels = run.labels.clone();
    let mut printer = RecordPrinter::new(options.json, plan.count, labels, run.start_ns).to(out);
    let mut backlog = Backlog::default();
    let ended = run.follow(FLUSH, |run| {
        if let Some(added) = run.take_added() {
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

/// Options for finding and compiling the places of a trace.
pub(crate) fn compile_options<'a>(
    plan: &'a TracePlan,
    search: &'a Arc<Search>,
    parser: &'a Worker,
) -> CompileOptions<'a> {
    let options = &plan.options;
    CompileOptions {
        search,
        parser,
        limits: Limits::default(),
        sink: nsprobe_spec::Sink::Record,
        counted: CountedTexts::default(),
        at_return: false,
        max_probes: options.max_probes,
        inlined: options.inlined,
        exact: options.exact,
        fast_nops: options.fast_nops,
        changes: &plan.changes,
        returns: options.returns,
        force: options.force,
        names_conditions: options.probes.len() > 1,
    }
}

/// Options for creating the probes of a trace.
pub(crate) fn attach_options<'a>(
    plan: &'a TracePlan,
    compile: CompileOptions<'a>,
) -> AttachOptions<'a> {
    AttachOptions {
        options: &plan.options,
        compile,
        setup: plan.setup,
        stack: plan.stack,
        records: true,
        kernel_stack: plan.kernel_stack,
        max_frames: 0,
        max_writes: plan.max_writes,
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
    run.detach()?;
    let elapsed = run.begun.elapsed();
    live.names.at_end();
    backlog.empty(&mut run, &mut live, &mut printer)?;
    printer.print_waiting(&mut live.of(&run.session))?;
    let failure = run.end_command();
    let rows = run.end_rows();
    let summary = Summary {
        elapsed,
        ended_by,
        printed: printer.printed(),
        received: printer.received(),
        overwritten: run.reader.overwritten(),
        untraced: plan.options.untraced(),
        has_stacks: plan.stack,
        probes: summary::probes(&run.session, &run.labels)?,
        tasks: BTreeMap::new(),
        names: live.names.sources(),
        finished: live.of(&run.session).finished(),
        late: printer.late(),
        rows,
    };
    printer.summary(&summary)?;
    summary.tell(plan.options.detail(), failure)
}
