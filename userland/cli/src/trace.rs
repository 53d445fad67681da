// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe trace`: set up, follow, sum up.

mod events;
mod printer;

use crate::args::TracePlan;
use crate::command::{self, Started, Stopped};
use crate::names::Names;
use crate::probes::Planned;
use crate::summary::{self, ProbeLabel, Summary};
use crate::target::Target;
use anyhow::Context;
use events::{Event, Events};
use libnsprobe::{Device, Error, Probe, ProbeId, Reader, Session};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::Signal;
use nsprobe_symbolize::escaped;
use printer::Printer;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Records below the watermark are fetched after this time.
const FLUSH: Duration = Duration::from_millis(50);
/// How long a command may take to end after we passed a signal on to it.
const GRACE: Duration = Duration::from_secs(2);

/// A trace that runs.
struct Trace<'a> {
    plan: &'a TracePlan,
    target: &'a Target,
    session: Session,
    reader: Reader,
    ids: Vec<ProbeId>,
    labels: Vec<ProbeLabel>,
    printer: Printer,
    command: Option<Started>,
    begun: Instant,
}

/// Traces.
pub(crate) fn run(plan: &TracePlan) -> anyhow::Result<ExitCode> {
    let target = Target::find(&plan.who)?;
    let planned = target.within(Planned::new(&target, &plan.probes))?;
    let (trace, events) = Trace::begin(plan, &target, planned)?;
    trace.follow(events)
}

/// Each object that stacks name is an open file for a while. Not for the
/// command, which has inherited ours by now.
fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With the lower limit, files beyond it stay without names.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Tells the user something that is no error.
fn note(plan: &TracePlan, text: &str) {
    if !plan.quiet {
        eprintln!("nsprobe: {}", escaped(text));
    }
}

impl<'a> Trace<'a> {
    /// Attaches the probes, then lets the command run.
    fn begin(
        plan: &'a TracePlan,
        target: &'a Target,
        mut planned: Planned,
    ) -> anyhow::Result<(Trace<'a>, Events)> {
        let (mut session, reader) = Device::open()?.setup(&plan.setup)?;
        let stopped = start(target)?;
        raise_file_limit();
        let events = Events::new(stopped.as_ref().map(Stopped::pid))?;
        let filter = target.filter(stopped.as_ref().map(Stopped::pid), &mut planned.notes)?;
        if let Some(filter) = filter {
            let set = session.filter(&filter);
            set.with_context(|| format!("cannot trace {}", target.describe()))?;
            target.check_alive()?;
        }
        // Other processes are traced from here on, before `attach` is through.
        let start_ns = Reader::now();
        let ids = attach(&mut session, &planned, plan.stack)?;
        for text in &planned.notes {
            note(plan, text);
        }
        note(plan, &announcement(&planned, target));
        let labels = ProbeLabel::all(&planned);
        // Without stacks nothing more is needed of the files.
        let files = if plan.stack {
            planned.files
        } else {
            Vec::new()
        };
        let command = stopped.map(Stopped::release).transpose()?;
        let trace = Trace {
            plan,
            target,
            session,
            reader,
            printer: Printer::new(plan, labels.clone(), &ids, Names::new(files), start_ns),
            ids,
            labels,
            command,
            begun: Instant::now(),
        };
        Ok((trace, events))
    }

    /// Prints records until the end.
    fn follow(mut self, events: Events) -> anyhow::Result<ExitCode> {
        let deadline = self.plan.timeout.map(|timeout| self.begun + timeout);
        let mut grace: Option<Instant> = None;
        let ended_by = loop {
            let wait = next_wait(deadline, grace);
            match events.wait(&self.session, self.target.pidfd(), wait)? {
                Event::Signal { signal, by_process } => {
                    if self.command.is_none() || grace.is_some() {
                        break format!("interrupted by {signal}");
                    }
                    self.pass_on(signal, by_process);
                    grace = Some(Instant::now() + GRACE);
                }
                Event::TargetEnded => break format!("{} ended", self.target.describe()),
                Event::ReaderGone => return Ok(ExitCode::SUCCESS),
                Event::Records | Event::Nothing => {}
            }
            self.drain(Reader::settled())?;
            if self.printer.is_full() {
                break match self.printer.printed() {
                    1 => "1 call was printed".to_owned(),
                    printed => format!("{printed} calls were printed"),
                };
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break "the time is over".to_owned();
            }
            if grace.is_some_and(|grace| now >= grace) {
                break "interrupted; the command does not end".to_owned();
            }
        };
        self.end(ended_by)
    }

    /// A signal for us is one for the command. The terminal sends its own to
    /// the whole group.
    fn pass_on(&self, signal: Signal, by_process: bool) {
        if let Some(command) = self.command.as_ref().filter(|_| by_process) {
            command.signal(signal);
        }
    }

    fn drain(&mut self, until_ns: u64) -> anyhow::Result<()> {
        let batch = self.reader.collect(until_ns)?;
        self.printer.print(&self.session, &batch)?;
        drop(batch);
        self.printer.rest()?;
        Ok(())
    }

    /// Detaches, prints what is left, and sums up.
    fn end(mut self, ended_by: String) -> anyhow::Result<ExitCode> {
        self.session.detach(&self.ids)?;
        let elapsed = self.begun.elapsed();
        self.drain(u64::MAX)?;
        let failure = self.end_command();
        let summary = Summary {
            elapsed,
            ended_by,
            printed: self.printer.printed(),
            received: self.printer.received(),
            has_stacks: self.plan.stack,
            probes: summary::probes(&self.session, &self.labels, &self.ids)?,
            names: self.printer.sources(),
        };
        self.printer.summary(&summary)?;
        if !self.plan.quiet {
            // At once, so that the command's output does not come in between.
            let mut text = Vec::new();
            summary.write(&mut text)?;
            std::io::stderr().write_all(&text)?;
        }
        let problem = summary.problem();
        for error in problem.iter().chain(&failure) {
            eprintln!("nsprobe: {}", escaped(error));
        }
        Ok(ExitCode::from(u8::from(
            problem.is_some() || failure.is_some(),
        )))
    }

    /// Ends a command that still runs; tells of one that failed by itself.
    fn end_command(&mut self) -> Option<String> {
        let command = self.command.as_mut()?;
        match command.ended() {
            Some(status) => command::failure(status),
            None => {
                command.terminate();
                None
            }
        }
    }
}

/// What is about to be traced.
fn announcement(planned: &Planned, target: &Target) -> String {
    let target = target.describe();
    match planned.probes.as_slice() {
        [probe] => format!("tracing {} of {target}", probe.label),
        probes => format!("tracing {} functions of {target}", probes.len()),
    }
}

fn next_wait(deadline: Option<Instant>, grace: Option<Instant>) -> Duration {
    let now = Instant::now();
    let left = |limit: Instant| limit.saturating_duration_since(now);
    let limits = deadline.into_iter().chain(grace).map(left);
    limits.fold(FLUSH, Duration::min)
}

fn start(target: &Target) -> anyhow::Result<Option<Stopped>> {
    match target {
        Target::Command(program) => program.start_stopped().map(Some),
        _ => Ok(None),
    }
}

fn attach(session: &mut Session, planned: &Planned, stack: bool) -> anyhow::Result<Vec<ProbeId>> {
    let mut requests = Vec::with_capacity(planned.probes.len());
    for probe in &planned.probes {
        let file = planned
            .files
            .get(probe.file)
            .context("a probe has no file")?;
        let request = Probe::entry(&file.file, probe.offset.0);
        requests.push(if stack { request.with_stack() } else { request });
    }
    session.attach(&requests).map_err(|error| {
        let Error::Attach { index, .. } = &error else {
            return error.into();
        };
        let label = planned.probes.get(*index).map(|probe| probe.label.clone());
        let label = label.unwrap_or_else(|| "the functions".to_owned());
        anyhow::Error::new(error).context(format!("cannot probe {label}"))
    })
}
