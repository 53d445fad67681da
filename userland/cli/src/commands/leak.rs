// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe leak`: what is allocated and not freed. The kernel keeps a row for each block, from the
//! call that allocates it to the one that frees it; here they are added up by stack.

mod blocks;
mod unprobed;

use crate::args::LeakPlan;
use crate::output::leaks::LeakPrinter;
use crate::output::lines::Output;
use crate::output::pictures::{outputs, About, PictureFile};
use crate::output::summary;
use blocks::Blocks;
use libnsprobe::common::abi::TASKS_LIFE;
use libnsprobe::common::record::Record;
use libnsprobe::common::task::TASK_EXEC;
use libnsprobe::{Reader, Rows, SetupOptions, Table, TableKind, TableSpec, TaskOptions};
use nsprobe_text::counted;
use nsprobe_trace::attach::probes::allocators;
use nsprobe_trace::attach::run::{Pace, Run, Sinks, TakenHits};
use nsprobe_trace::attach::tracer::{Tracer, Wants};
use nsprobe_trace::hits::live::Live;
use nsprobe_trace::hits::lookup::Lookup;
use nsprobe_trace::options::TargetSpec;
use nsprobe_trace::recording::task_records;
use nsprobe_trace::tasks::full_notes;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unprobed::Unprobed;

/// Interval between looks at the records.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between looks for blocks of processes that ended.
const DROP_PAUSE: Duration = Duration::from_secs(1);
/// Words of a block's key: its process and its address.
const KEY_WORDS: u32 = 2;

pub(crate) fn run(plan: &LeakPlan) -> anyhow::Result<ExitCode> {
    let options = &plan.options;
    let (out, picture) = outputs(plan.output.as_deref())?;
    let mut tracer = Tracer::new(options)?;
    let probed = match options.probes.is_empty() {
        true => allocators::names(),
        false => Vec::new(),
    };
    let wants = Wants {
        sink: nsprobe_spec::Sink::Spans {
            sample: plan.sample,
            probed: &probed,
        },
        setup: SetupOptions::usual(),
        stack: true,
        max_frames: plan.max_frames,
        ..Wants::default()
    };
    let planned = match options.probes.is_empty() {
        true => tracer.plan_allocators(&wants)?,
        false => tracer.plan(&wants)?,
    };
    let spec = TableSpec {
        kind: TableKind::Spans,
        key_words: KEY_WORDS,
        max_frames: 0,
        rows: plan.rows,
    };
    let mut table = None;
    let mut run = tracer.start(wants, planned, |session| {
        // Of processes that end, whose blocks are gone.
        session.set_tasks(&TaskOptions {
            flags: TASKS_LIFE,
            ..TaskOptions::default()
        })?;
        let table = table.insert(session.table(&spec)?);
        Ok(Sinks::Spans(table.id()))
    })?;
    // A block of an earlier moment may have been freed before `free` was probed. A command begins
    // when all is there.
    let since_ns = match options.who {
        TargetSpec::Command(_) => 0,
        _ => Reader::now(),
    };
    let Some(table) = table else {
        anyhow::bail!("there is no table");
    };
    let unprobed = options.probes.is_empty();
    let unprobed = unprobed.then(|| Unprobed::new(&run.planned.files));
    let mut leaks = Leaks {
        plan,
        table,
        blocks: Blocks::new(since_ns, plan.older_than, plan.sample),
        dropped: Instant::now(),
        unprobed,
        live: run.live(),
        printer: LeakPrinter::new(plan.printing.json, plan.top, out),
        picture,
    };
    leaks.follow(run)
}

/// The table of blocks, which is read again and again.
struct Leaks<'a> {
    plan: &'a LeakPlan,
    table: Table,
    blocks: Blocks,
    live: Live,
    /// When blocks of processes that ended were dropped last.
    dropped: Instant,
    /// None where the user has named the functions.
    unprobed: Option<Unprobed>,
    printer: LeakPrinter,
    picture: Option<PictureFile>,
}

impl Leaks<'_> {
    fn follow(&mut self, mut run: Run<'_>) -> anyhow::Result<ExitCode> {
        let mut next = self.plan.interval.map(|interval| run.begun + interval);
        let ended = run.follow(PAUSE, |run| {
            self.records(run, Reader::settled())?;
            if let Some(unprobed) = &mut self.unprobed {
                for note in unprobed.notes(&run.session) {
                    self.plan.options.note(&note);
                }
            }
            if self.blocks.has_ended() && self.dropped.elapsed() >= DROP_PAUSE {
                self.rows(run)?;
                self.dropped = Instant::now();
            }
            if let (Some(at), Some(interval)) = (next, self.plan.interval) {
                if Instant::now() >= at {
                    next = Some(at + interval);
                    let rows = self.rows(run)?;
                    self.look(run, &rows, "interval")?;
                }
            }
            Ok(Pace::Wait)
        })?;
        match ended.reason(self.picture.is_some()) {
            Some(why) => self.end(run, why),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Pins the files that stacks name, and takes the ends of processes.
    fn records(&mut self, run: &mut Run<'_>, until_ns: u64) -> anyhow::Result<()> {
        let batch = run.reader.collect(until_ns)?;
        for record in batch.records() {
            match record {
                Record::Object(object) => self.live.names.announce(&run.session, object),
                Record::Task(task, details) => {
                    self.blocks.note(task, details.levels);
                    let process = details.levels.first().filter(|_| task.what == TASK_EXEC);
                    if let (Some(unprobed), Some(level)) = (&mut self.unprobed, process) {
                        unprobed.started(level.pid);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The blocks of processes that run; those of others are dropped from the table.
    fn rows(&mut self, run: &Run<'_>) -> anyhow::Result<Rows> {
        let rows = run.session.rows(&self.table)?;
        self.without_ended(run, rows)
    }

    /// These rows without those of processes that have ended.
    fn without_ended(&mut self, run: &Run<'_>, mut rows: Rows) -> anyhow::Result<Rows> {
        if self.blocks.has_ended() {
            let mut lookup = self.live.of(&run.session);
            let ended = self.blocks.take_ended(&mut rows, |id| lookup.stack(id));
            run.session.drop_spans(&self.table, &ended)?;
        }
        Ok(rows)
    }

    /// Prints what is allocated now.
    fn look(&mut self, run: &Run<'_>, rows: &Rows, of: &'static str) -> anyhow::Result<()> {
        let mut lookup = self.live.of(&run.session);
        let stack = |id| lookup.stack(id);
        let mut look = self.blocks.look(rows, Reader::now(), stack);
        look.unknown_frees = unknown_frees(run)?;
        let at = run.begun.elapsed();
        let mut printed = self.printer.look(&mut lookup, &look, at, of);
        let is_lost = |error: &io::Error| error.kind() != io::ErrorKind::BrokenPipe;
        if of == "total" && printed.as_ref().is_err_and(is_lost) {
            self.printer.redirect(Output::to_stderr());
            let again = self.printer.look(&mut lookup, &look, at, of);
            printed = again.and(printed);
        }
        printed?;
        if of == "total" {
            if let Some(picture) = self.picture.take() {
                let about = About::this_command(run.begun.elapsed());
                let profile = self.printer.profile(&mut lookup, &look, &about);
                picture.write(&profile, self.plan.options.quiet)?;
            }
        }
        Ok(())
    }

    /// Detaches, prints what is allocated, and sums up.
    fn end(&mut self, mut run: Run<'_>, ended_by: String) -> anyhow::Result<ExitCode> {
        // Probes are not detached all at once: frees would be missing.
        let rows = run.session.rows(&self.table)?;
        run.end(&mut self.live)?;
        self.records(&mut run, u64::MAX)?;
        let rows = self.without_ended(&run, rows)?;
        let printed = self.look(&run, &rows, "total");
        let mut summary = run.sum_up(&mut self.live, ended_by, TakenHits::default())?;
        summary.tasks = task_records::totals(&run.session.task_counters()?);
        for (probe, planned) in summary.probes.iter_mut().zip(&run.planned.probes) {
            if planned.only_frees() {
                // Nothing was unreadable: there was no such block.
                probe.counters.undecided = 0;
            }
        }
        let unknown = unknown_frees(&run)?;
        if unknown > 0 && self.plan.sample == 0 {
            self.plan.options.note(&format!(
                "{} of blocks without a row: allocated before the start or a fork, turned away by the \
                 full table, or freed already (a thread's cache that ends)",
                counted(unknown, "free")
            ));
        }
        self.printer.summary(&summary)?;
        if summary.task_total().lost > 0 {
            self.plan.options.note(
                "where the end of a process was lost, its blocks are shown as those of one that runs",
            );
        }
        let code = summary::tell(&summary, self.plan.printing.detail)?;
        for note in full_notes(&run.session, rows.turned_away_of)? {
            self.plan.options.note(&note);
        }
        printed.map(|()| code)
    }
}

/// Frees of blocks that are not known. A function that frees within another one's call ends no span
/// itself, and is no such free.
fn unknown_frees(run: &Run<'_>) -> anyhow::Result<u64> {
    let mut unknown = 0;
    for label in &run.labels {
        let planned = run.planned.probes.get(label.planned);
        if planned.is_some_and(|probe| probe.only_frees() && !probe.at_return) {
            unknown += run.session.counters(label.id)?.undecided;
        }
    }
    Ok(unknown)
}
