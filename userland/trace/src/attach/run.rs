// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common part of all verbs that probe: find the target, attach, wait, end. Each verb handles the
//! hits itself.

mod attach;
mod events;
mod new_containers;
pub mod options;
mod refused;

pub use attach::{Attached, Sinks};

use crate::attach::command::{self, Started, Stopped};
use crate::attach::held_starts::HeldStarts;
use crate::attach::probes::{Planned, PlannedProbe};
use crate::attach::target::Target;
use crate::attach::tracer::ProbeInputs;
use crate::attach::unwind_rows::{RowsReport, UnwindLoader};
use crate::hits::label::ProbeLabel;
use crate::hits::live::Live;
use crate::hits::lookup::Lookup;
use crate::names::probed_file::{FileId, ProbedFile};
use crate::names::{FrameNames, Progress, Threads};
use crate::placeless::Placeless;
use crate::signals::{self, Asked};
use crate::summary::{self, Summary};
use crate::tasks::FoundContainer;
use anyhow::Context;
use attach::attach;
use events::{Event, Events};
use libnsprobe::{Counters, Device, Error, Filter, HoldReport, ProbeId, Reader, Session};
use new_containers::{ContainerWatcher, LookResult, AT_ONCE};
use nix::sys::prctl::set_thp_disable;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::Signal;
use nsprobe_text::counted;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a command gets to end after we passed a signal on to it.
const GRACE: Duration = Duration::from_secs(2);
/// How often a filter is made anew as containers end meanwhile.
const FILTER_TRIES: usize = 8;

/// A run: probes that are attached, and the command when there is one.
pub struct Run<'a> {
    inputs: ProbeInputs<'a>,
    target: &'a Target,
    events: Events,
    new_containers: Option<ContainerWatcher<'a>>,
    sinks: Sinks,
    /// Number of functions that are followed to their exits.
    calls: u32,
    /// Number of the user's probes.
    planned_count: usize,
    /// The files that were known at the beginning, and where they lie.
    files: Vec<(PathBuf, FileId)>,
    /// Compiles unwind rows, when stacks are taken.
    rows: Option<UnwindLoader>,
    /// Look names up, when stacks are taken.
    threads: Option<Threads>,
    /// Probes added during the run, until the verb takes them.
    added: Option<Added>,
    /// How many files they are in.
    files_added: usize,
    command: Option<Started>,
    attached: Vec<Attached>,
    /// How long it lasted, once it is over.
    pub elapsed: Duration,
    /// The programs that waited for their probes, once it is over.
    held: Option<HoldReport>,
    /// How the command failed, once it is over.
    failure: Option<String>,
    /// Holds the probes.
    pub session: Session,
    /// Reads the session's rings.
    pub reader: Reader,
    /// What is attached.
    pub planned: Planned,
    /// Labels of the probes, in their order.
    pub labels: Vec<ProbeLabel>,
    /// When the first hit could come, in the clock of the records.
    pub start_ns: u64,
    /// The start again, for measuring time spans.
    pub begun: Instant,
}

/// Hits of a run that its caller has taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakenHits {
    /// Those that were printed, or added to rows of what was counted.
    pub printed: u64,
    /// Those that came out of the rings.
    pub received: u64,
    /// Those whose stacks came late, as a page was not there.
    pub late: u64,
}

/// Probes added during a run.
#[derive(Default)]
pub struct Added {
    /// Their labels.
    pub labels: Vec<ProbeLabel>,
    /// The files that hold their places.
    pub files: Vec<ProbedFile>,
    /// Whether more containers are traced.
    pub containers: bool,
    /// The names of those that were looked at.
    pub(crate) found: Vec<FoundContainer>,
}

/// Why a flight ends when one of its triggers is hit.
pub const TRIGGERED: &str = "the trigger was hit";

/// Returned by a verb's step: whether to wait before the next one.
pub enum Pace {
    /// Wait, then continue.
    Wait,
    /// Continue at once: more work is ready.
    Again,
    /// It is enough, for this reason.
    Enough(String),
}

/// How a run ended.
pub enum Ended {
    /// Ended for this reason.
    Because(String),
    /// The reader of our output closed it: print nothing more.
    ReaderGone,
}

impl Ended {
    /// Why the run ended, if anything is left to be written: with a `file` besides what is printed,
    /// that file.
    pub fn reason(self, file: bool) -> Option<String> {
        match self {
            Ended::Because(why) => Some(why),
            Ended::ReaderGone => file.then(|| "nobody reads what is printed".to_owned()),
        }
    }
}

/// Prepares this process to read records. A command is started before, and so inherits none of it.
fn prepare_to_read() {
    // khugepaged has the lowest priority and holds our mmap lock while it makes a huge page: on a
    // busy CPU the rings would fill up before it runs again.
    let _ = set_thp_disable(true);
    // Each object that stacks name stays open for a while.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With the lower limit, files beyond it stay without names.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

impl<'a> Run<'a> {
    /// Attaches the probes, then lets the command run, and the container whose program was `held`.
    /// `sinks` makes what the hits go into.
    pub(super) fn begin(
        inputs: ProbeInputs<'a>,
        target: &'a Target,
        held: Option<HeldStarts>,
        mut planned: Planned,
        sinks: impl FnOnce(&mut Session) -> anyhow::Result<Sinks>,
    ) -> anyhow::Result<Run<'a>> {
        let (mut session, reader) = Device::open()?.setup(&inputs.wants.setup)?;
        let stopped = start(target)?;
        prepare_to_read();
        let events = Events::new(
            inputs.options.stop.clone(),
            stopped.as_ref().map(Stopped::pid),
        )?;
        let detacher = session.detacher()?;
        if events.has_signals() {
            // A thread of ours that cannot be killed would keep the breakpoints.
            signals::at_forced_end(move || drop(detacher.detach_all()));
        }
        let started = stopped.as_ref().map(Stopped::pid);
        set_filter(&mut session, target, inputs.options.follow, || {
            let filter = target.filter(started, &mut planned.notes)?;
            inputs.options.narrow(filter)
        })?;
        target.check_alive()?;
        let sinks = sinks(&mut session)?;
        // Parsers start before anything is attached: without them, nothing is attached.
        let threads = match inputs.wants.stack {
            true => {
                let (options, memory) = (inputs.options, inputs.options.rows.names_bytes);
                let threads = Threads::start(options.parsers(), memory, options.quiet);
                Some(threads.context("files cannot be parsed safely; --no-sandbox does without")?)
            }
            false => None,
        };
        let rows = match inputs.wants.stack && !inputs.options.frame_pointers {
            true => Some(UnwindLoader::start(
                &session,
                inputs.options,
                Arc::clone(inputs.search),
            )?),
            false => None,
        };
        // A program that waits does not wait for rows as well: its first stacks are copied.
        if let (Some(rows), None) = (&rows, &held) {
            let limit = UnwindLoader::patience(target, inputs.options);
            let (since, mut progress) = (Instant::now(), Progress::new(inputs.options.quiet));
            rows.first(&session, &planned, target, limit, |left| {
                show_rows(&mut progress, since, left);
                !events.is_interrupted()
            });
            progress.hide();
        }
        // Other processes are traced from here on, before `attach` is through.
        let start_ns = Reader::now();
        let mut new_containers = ContainerWatcher::new(&inputs, target, &planned, &session)?;
        let mut calls = 0;
        let attached = attach(&mut session, &planned, &inputs, &sinks, &mut calls)?;
        if let Some(new_containers) = &mut new_containers {
            new_containers.hold(held)?;
        }
        let options = inputs.options;
        for text in &planned.notes {
            options.note(text);
        }
        options.note(&announcement(&planned, target));
        let labels = ProbeLabel::all(&planned, &attached);
        // A path of a container's file says nothing of this machine's.
        let is_ours = |file: &&ProbedFile| match target {
            Target::Host => target
                .at_path(&file.path)
                .is_some_and(|ours| file.is_at(ours.dev, ours.ino)),
            _ => true,
        };
        let files = planned.files.iter().filter(is_ours);
        let files = files.map(|file| (file.path.clone(), file.id)).collect();
        let command = stopped.map(Stopped::release).transpose()?;
        Ok(Run {
            inputs,
            target,
            events,
            new_containers,
            sinks,
            calls,
            rows,
            threads,
            planned_count: planned.probes.len(),
            files,
            added: None,
            files_added: 0,
            command,
            attached,
            elapsed: Duration::ZERO,
            held: None,
            failure: None,
            session,
            reader,
            planned,
            labels,
            start_ns,
            begun: Instant::now(),
        })
    }

    /// Waits until the end, and has `step` look at what there is at least as often as
    /// `pause` says.
    pub fn follow(
        &mut self,
        pause: Duration,
        mut step: impl FnMut(&mut Run<'a>) -> anyhow::Result<Pace>,
    ) -> anyhow::Result<Ended> {
        let deadline = self
            .inputs
            .options
            .timeout
            .map(|timeout| self.begun + timeout);
        let mut grace: Option<Instant> = None;
        let mut is_busy = false;
        let ended_by = loop {
            let pause = if is_busy { Duration::ZERO } else { pause };
            let due = self.new_containers.as_ref().and_then(ContainerWatcher::due);
            let wait = next_wait(pause, [deadline, grace, due]);
            let new_containers = self.new_containers.as_ref();
            let new_containers = new_containers.into_iter().flat_map(ContainerWatcher::fds);
            let target = self.target.pidfd();
            match self
                .events
                .wait(&self.session, target, new_containers, wait)?
            {
                Event::Signal(Asked { signal, by_process }) => {
                    if self.command.is_none() || grace.is_some() {
                        break format!("interrupted by {signal}");
                    }
                    self.pass_on(signal, by_process);
                    grace = Some(Instant::now() + GRACE);
                }
                // Of several processes the others may live.
                Event::TargetEnded if self.command.is_none() && !self.target.has_ended() => {}
                Event::TargetEnded => break format!("{} ended", self.target.describe()),
                Event::ReaderGone => return Ok(Ended::ReaderGone),
                Event::Stopped => break "it was stopped".to_owned(),
                Event::Records | Event::Nothing => {}
            }
            self.add_new_containers()?;
            is_busy = match step(self)? {
                Pace::Wait => false,
                Pace::Again => true,
                Pace::Enough(why) => break why,
            };
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break "the time is over".to_owned();
            }
            if grace.is_some_and(|grace| now >= grace) {
                break "interrupted; the command does not end".to_owned();
            }
        };
        Ok(Ended::Because(ended_by))
    }

    /// Probes what containers have that came lately.
    fn add_new_containers(&mut self) -> anyhow::Result<()> {
        for _ in 0..AT_ONCE {
            let new_containers = self.new_containers.as_mut();
            let found = new_containers.map(|new| new.look_at_held(&self.session));
            let Some(found) = found.transpose()?.flatten() else {
                break;
            };
            self.add_found(found)?;
        }
        let Some(new_containers) = &mut self.new_containers else {
            return Ok(());
        };
        new_containers.release()?;
        let found = new_containers.look(&self.session)?;
        self.add_found(found)
    }

    fn add_found(&mut self, found: LookResult) -> anyhow::Result<()> {
        if !found.named.is_empty() {
            let added = self.added.get_or_insert_default();
            added.found.extend(found.named);
        }
        if let (true, Some(new_containers)) = (found.has_joined, &mut self.new_containers) {
            set_filter(&mut self.session, self.target, true, || {
                new_containers.filter().map(Some)
            })?;
            self.added.get_or_insert_default().containers = true;
        }
        for planned in found.planned {
            if let Some(rows) = &self.rows {
                rows.load_queue().give_all(&planned);
            }
            let (session, calls) = (&mut self.session, &mut self.calls);
            match attach(session, &planned, &self.inputs, &self.sinks, calls) {
                Ok(attached) => self.add(planned, &attached),
                Err(error) => self.inputs.options.note(&format!("{error:#}")),
            }
        }
        Ok(())
    }

    fn add(&mut self, planned: Planned, attached: &[Attached]) {
        let mut labels = ProbeLabel::all(&planned, attached);
        for label in &mut labels {
            label.planned += self.planned_count;
        }
        self.planned_count += planned.probes.len();
        self.attached.extend(attached);
        self.labels.extend(labels.iter().cloned());
        self.files_added += planned.files.len();
        let added = self.added.get_or_insert_default();
        added.labels.extend(labels);
        added.files.extend(planned.files);
    }

    /// The only process that is traced; none where its children are, too.
    pub fn only_process(&self) -> Option<u32> {
        let started = self.command.as_ref().map(Started::pid);
        let only = self.target.only_process(started);
        only.filter(|_| !self.inputs.options.tasks.children)
    }

    /// The processes of the target; `None` if they are not known, as of the whole machine.
    pub fn pids(&self) -> Option<Vec<u32>> {
        self.target.pids()
    }

    /// How long the target's threads have lived since the run began, all together; `None` if that is
    /// not known.
    pub fn thread_time(&self) -> Option<Duration> {
        self.target.thread_time(self.begun.elapsed())
    }

    /// The lookup of names for hits. Call it once: it takes the probed files.
    pub fn live(&mut self) -> Live {
        let wants = &self.inputs.wants;
        let files = std::mem::take(&mut self.planned.files);
        // Without stacks nothing more is needed of the files.
        let files = if wants.stack { files } else { Vec::new() };
        let rows = self.rows.as_ref().map(UnwindLoader::load_queue);
        let search = Arc::clone(self.inputs.search);
        let names = FrameNames::new(files, rows, search, self.threads.take());
        Live::new(names, wants.kernel_stack)
    }

    /// Stops compiling rows; returns the report.
    fn end_rows(&mut self) -> Option<RowsReport> {
        let mut progress = Progress::new(self.inputs.options.quiet);
        progress.at_end();
        let since = Instant::now();
        let report = self.rows.take()?.end(|left| {
            show_rows(&mut progress, since, left);
            !signals::is_hurried()
        });
        progress.hide();
        report
    }

    /// How many files of later containers are probed; they stay so when those have ended.
    pub fn files_added(&self) -> usize {
        self.files_added
    }

    /// Probes added since the last call.
    pub fn take_added(&mut self) -> Option<Added> {
        self.added.take()
    }

    /// A signal for us is one for the command. The terminal sends its own to
    /// the whole group.
    fn pass_on(&self, signal: Signal, by_process: bool) {
        if let Some(command) = self.command.as_ref().filter(|_| by_process) {
            command.signal(signal);
        }
    }

    /// Freezes the rings permanently: the newest records stay. Returns whether a trigger had frozen
    /// them before: then that is why the run ended, even if another cause was seen first.
    pub fn freeze(&mut self) -> anyhow::Result<bool> {
        let is_triggered = self.session.is_frozen()?;
        self.session.freeze(&mut self.reader)?;
        Ok(is_triggered)
    }

    /// Detaches all probes and terminates a command that still runs. Records may be left in the
    /// rings.
    pub fn end(&mut self, live: &mut Live) -> anyhow::Result<()> {
        self.detach()?;
        live.names.at_end();
        self.failure = self.end_command();
        Ok(())
    }

    /// The hits of all probes by outcome.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let mut all = Counters::default();
        for probe in summary::probes(&self.session, &self.labels)? {
            all += probe.counters;
        }
        Ok(all)
    }

    /// Summarizes the run, of which the caller has taken these hits.
    pub fn sum_up(
        &mut self,
        live: &mut Live,
        ended_by: String,
        taken: TakenHits,
    ) -> anyhow::Result<Summary> {
        let rows = self.end_rows();
        Ok(Summary {
            elapsed: self.elapsed,
            ended_by,
            printed: taken.printed,
            received: taken.received,
            overwritten: self.reader.overwritten(),
            untraced: self.inputs.options.untraced(),
            has_stacks: self.inputs.wants.stack,
            probes: summary::probes(&self.session, &self.labels)?,
            tasks: BTreeMap::new(),
            names: live.names.sources(),
            finished: live.of(&self.session).finished(),
            late: taken.late,
            rows,
            held: self.held.take(),
            failure: self.failure.take(),
        })
    }

    /// Detaches all probes: from here on nothing changes.
    pub fn detach(&mut self) -> anyhow::Result<()> {
        self.events.printing();
        if let Some(new_containers) = &mut self.new_containers {
            self.held = new_containers.end_hold()?;
        }
        let ids: Vec<ProbeId> = self.attached.iter().map(|probe| probe.id).collect();
        signals::patiently(|| self.session.detach(&ids))?;
        self.elapsed = self.begun.elapsed();
        // Those that follow look at what comes.
        if self.new_containers.is_none() {
            self.note_replaced();
        }
        Ok(())
    }

    /// Reports paths that now lead to files without probes.
    fn note_replaced(&self) {
        let mut paths: Vec<&Path> = self.files.iter().map(|(path, _)| &**path).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            let opened = self.target.at_path(path);
            let Some(id) = opened.and_then(|opened| self.session.identify(&opened.file).ok())
            else {
                continue;
            };
            let id = FileId::from(id);
            if !self.files.iter().any(|(_, known)| *known == id) {
                self.inputs.options.note(&format!(
                    "another file came to {} meanwhile (replaced, copied up in an overlay, or a \
                     mount): processes that run it had no probes",
                    path.display()
                ));
            }
        }
    }

    /// Ends a command that still runs; returns a message if it failed by itself.
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

/// Sets a filter, if `make` gives one; `again`, when a process of it has ended meanwhile.
fn set_filter(
    session: &mut Session,
    target: &Target,
    again: bool,
    mut make: impl FnMut() -> anyhow::Result<Option<Filter>>,
) -> anyhow::Result<()> {
    let mut tries = if again { FILTER_TRIES } else { 1 };
    while let Some(filter) = make()? {
        tries -= 1;
        match session.filter(&filter) {
            Err(Error::NoProcess | Error::StaleNamespace(_)) if tries > 0 => {}
            set => return set.with_context(|| format!("cannot trace {}", target.describe())),
        }
    }
    Ok(())
}

/// The message that tracing starts.
fn announcement(planned: &Planned, target: &Target) -> String {
    let target = target.describe();
    let is_part = |probe: &&PlannedProbe| probe.placeless().is_some_and(Placeless::is_part);
    let parts = planned.probes.iter().take_while(is_part).count();
    match planned.probes.get(parts..).unwrap_or_default() {
        [] => format!("recording tasks of {target}"),
        [probe] => match probe.placeless() {
            Some(Placeless::Samples { hz }) => format!("sampling {target}, {hz} times a second"),
            Some(Placeless::Waits { .. }) => format!("following waits of {target}"),
            _ => format!("tracing {} of {target}", probe.label),
        },
        probes => format!("tracing {} functions of {target}", probes.len()),
    }
}

fn show_rows(progress: &mut Progress, since: Instant, left: usize) {
    let left = counted(left, "file");
    progress.show(since, || format!("compiling unwind rows of {left}…"));
}

fn next_wait(pause: Duration, limits: [Option<Instant>; 3]) -> Duration {
    let now = Instant::now();
    let left = |limit: Instant| limit.saturating_duration_since(now);
    let limits = limits.into_iter().flatten().map(left);
    limits.fold(pause, Duration::min)
}

fn start(target: &Target) -> anyhow::Result<Option<Stopped>> {
    match target {
        Target::Command(program) => program.start_stopped().map(Some),
        _ => Ok(None),
    }
}
