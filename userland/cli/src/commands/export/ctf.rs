// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe export ctf`: a capsule as a trace in the Common Trace Format.

mod about;
mod columns;
mod dump;
mod hits;
mod notes;

use crate::args::CtfPlan;
use anyhow::Context;
use hits::Hits;
use libnsprobe::common::record::{Lost, Record};
use libnsprobe::common::task::{TaskDetails, TaskRecord};
use notes::Notes;
use nsprobe_capsule::model::Summary;
use nsprobe_capsule::Contents;
use nsprobe_ctf::kernel::{KernelEvents, StatedumpShape};
use nsprobe_ctf::{ChannelId, Totals, Trace};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::hits::assembler::{HitAssembler, Ready};
use nsprobe_trace::hits::views::Views;
use nsprobe_trace::recording::capsule::{Capsule, Offline};
use std::process::ExitCode;

pub(crate) fn run(plan: &CtfPlan) -> anyhow::Result<ExitCode> {
    let mut capsule = Capsule::open(&plan.file)?;
    let totals = write(plan, &mut capsule).context("cannot export")?;
    if !plan.quiet {
        let directory = plan.directory.display().to_string();
        eprintln!(
            "nsprobe: {} in {}, {} discarded: {}",
            counted(totals.events, "event"),
            counted(totals.streams, "stream"),
            totals.discarded,
            escaped(&directory)
        );
    }
    Ok(match capsule.tell_missing() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn write(plan: &CtfPlan, capsule: &mut Capsule) -> anyhow::Result<Totals> {
    let description = about::description(capsule, plan);
    let trace = Trace::create(&plan.directory, description)?;
    let views = Views::new(capsule.labels(), capsule.start_ns());
    let Capsule { reader, contents } = capsule;
    let mut export = Export::new(trace, contents, views, plan.shape)?;
    let span = dump::span(reader)?;
    if let Some((start_ns, end_ns)) = span {
        export.kernel.dump_start(&mut export.trace, start_ns)?;
        reader.each_task_before(|record| export.record(record))?;
        export.kernel.dump_end(&mut export.trace, end_ns)?;
    }
    reader.each_record(|record| export.record(record))?;
    export.finish()
}

/// A capsule that is being exported.
struct Export<'a> {
    trace: Trace,
    contents: &'a Contents,
    offline: Offline<'a>,
    views: Views,
    waiting: HitAssembler,
    kernel: KernelEvents,
    hits: Hits,
    notes: Notes,
    losses: Losses,
}

impl<'a> Export<'a> {
    fn new(
        mut trace: Trace,
        contents: &'a Contents,
        views: Views,
        shape: StatedumpShape,
    ) -> anyhow::Result<Export<'a>> {
        let kernel = KernelEvents::new(&mut trace, shape)?;
        let hits = Hits::new(&mut trace, contents);
        let notes = Notes::new(&mut trace)?;
        notes.containers_and_objects(&mut trace, contents, views.start_ns())?;
        Ok(Export {
            losses: Losses {
                waiting: None,
                latest: (hits.channel(), 0, views.start_ns()),
                told: 0,
            },
            trace,
            contents,
            offline: Offline::new(contents),
            views,
            waiting: HitAssembler::default(),
            kernel,
            hits,
            notes,
        })
    }

    fn record(&mut self, record: Record<'_>) -> anyhow::Result<()> {
        if let Some((channel, cpu, time_ns)) = self.place(&record) {
            self.losses.settle(&mut self.trace, channel, cpu, time_ns)?;
        }
        let trace = &mut self.trace;
        match record {
            Record::Hit(..) | Record::LateStack(..) => {
                if let Some(ready) = self.waiting.receive(record) {
                    self.hit(&ready)?;
                }
            }
            Record::Task(task, details) => self.task(task, &details)?,
            Record::Switch(switch) => self.kernel.switch(trace, switch)?,
            Record::Wake(wake) => self.kernel.wake(trace, wake)?,
            Record::Write(write) => {
                let label = self.views.label(write.probe);
                self.notes.write(trace, write, label)?;
            }
            Record::Off(off) => self.notes.off(trace, off, self.views.label(off.probe))?,
            Record::Lost(lost) => self.losses.note(lost),
            Record::StackCopy(..)
            | Record::Mappings(..)
            | Record::Object(_)
            | Record::Unknown(..) => {}
        }
        Ok(())
    }

    /// The channel, CPU and time of what a record becomes.
    fn place(&self, record: &Record<'_>) -> Option<(ChannelId, u32, u64)> {
        let (hits, kernel) = (self.hits.channel(), self.kernel.channel());
        match record {
            Record::Hit(hit, _) => Some((hits, hit.cpu.into(), hit.time_ns)),
            Record::Write(write) => Some((hits, write.cpu, write.time_ns)),
            Record::Task(task, _) => Some((kernel, task.cpu, task.time_ns)),
            Record::Switch(switch) => Some((kernel, switch.cpu.into(), switch.time_ns)),
            Record::Wake(wake) => Some((kernel, wake.cpu.into(), wake.time_ns)),
            _ => None,
        }
    }

    fn hit(&mut self, ready: &Ready<'_>) -> anyhow::Result<()> {
        let Export {
            trace,
            offline,
            views,
            hits,
            ..
        } = self;
        let written = views.of(offline, ready, |view| hits.write(trace, view));
        // A capsule knows what it knows at once.
        written.unwrap_or(Ok(()))
    }

    fn task(&mut self, task: &TaskRecord, details: &TaskDetails<'_>) -> anyhow::Result<()> {
        let object = self.contents.objects.get(&task.object);
        let path = object.and_then(|object| object.path.as_ref());
        let program = path.map(|path| path.0.as_slice());
        self.kernel.task(&mut self.trace, task, details, program)?;
        Ok(())
    }

    /// Writes the hits whose stacks did not come, and the losses that no record announced.
    fn finish(mut self) -> anyhow::Result<Totals> {
        while let Some(waiting) = self.waiting.pop() {
            self.hit(&Ready::Waited(waiting))?;
        }
        let (channel, cpu, mut time_ns) = self.losses.latest;
        self.losses.settle(&mut self.trace, channel, cpu, time_ns)?;
        if let Some(summary) = &self.contents.summary {
            time_ns = time_ns.max(self.views.start_ns().saturating_add(summary.elapsed_ns));
            let untold = untold(summary, self.losses.told);
            if untold > 0 {
                self.trace.loss(channel, cpu, time_ns, untold)?;
            }
        }
        Ok(self.trace.finish()?)
    }
}

/// Losses beyond the `told` ones that records announced: records lost after the last one of a
/// ring, and those that the capsule had no room for.
fn untold(summary: &Summary, told: u64) -> u64 {
    let probes = summary.probes.iter();
    let full = probes.filter_map(|probe| probe.counters.get("lost_full").copied());
    let tasks = summary.tasks.values().map(|total| total.lost);
    let full = full.chain(tasks).fold(0, u64::saturating_add);
    let unwritten = summary.unwritten.saturating_add(summary.unwritten_tasks);
    full.saturating_sub(told).saturating_add(unwritten)
}

/// Losses announced by records, which do not say on which CPU: they are reported at the next
/// record.
struct Losses {
    waiting: Option<(u64, u64)>,
    /// Position of the last write: channel, CPU and time.
    latest: (ChannelId, u32, u64),
    told: u64,
}

impl Losses {
    fn note(&mut self, lost: &Lost) {
        let (_, before) = self.waiting.unwrap_or_default();
        self.waiting = Some((lost.time_ns, before.saturating_add(lost.count)));
    }

    /// There is a record of that channel, CPU and time.
    fn settle(
        &mut self,
        trace: &mut Trace,
        channel: ChannelId,
        cpu: u32,
        time_ns: u64,
    ) -> anyhow::Result<()> {
        self.latest = (channel, cpu, time_ns.max(self.latest.2));
        if let Some((lost_ns, count)) = self.waiting.take() {
            self.told = self.told.saturating_add(count);
            trace.loss(channel, cpu, lost_ns.min(time_ns), count)?;
        }
        Ok(())
    }
}
