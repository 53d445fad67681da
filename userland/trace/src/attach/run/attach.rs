// SPDX-License-Identifier: MIT OR Apache-2.0
//! From planned probes to those that the kernel attaches.

use super::refused;
use crate::attach::probes::{Planned, PlannedProbe};
use crate::attach::tracer::ProbeInputs;
use crate::hits::label::{ProbeLabel, ProbeRole};
use crate::placeless::Placeless;
use anyhow::Context;
use libnsprobe::common::abi::Refusal;
use libnsprobe::{CallId, Error, HitLimits, Probe, ProbeId, ProgramId, Session, Sink, TableId};
use nsprobe_probes::ExitProbes;
use nsprobe_spec::StepProgram;
use nsprobe_text::escaped;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::num::NonZeroU32;
use std::rc::Rc;

/// Sinks for the hits of the probes.
pub enum Sinks {
    /// One sink for all probes.
    All(Sink),
    /// One for each probe, in their order.
    Each(Vec<Sink>),
    /// Programs begin and end spans in this table.
    Spans(TableId),
}

impl Sinks {
    /// The sink of a planned probe.
    fn of(&self, index: usize, probe: &PlannedProbe) -> Sink {
        match self {
            Sinks::All(sink) => *sink,
            Sinks::Each(sinks) => sinks.get(index).copied().unwrap_or(Sink::Count),
            Sinks::Spans(table) => match probe.delivers().is_some_and(StepProgram::begins_spans) {
                true => Sink::Span(*table),
                false => Sink::Count,
            },
        }
    }
}

/// A probe that is attached.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    pub(crate) id: ProbeId,
    /// Index of the planned probe that it belongs to.
    pub(crate) planned: usize,
    pub(crate) role: ProbeRole,
}

impl ProbeLabel {
    /// The labels of all planned probes, in their order.
    pub(crate) fn all(planned: &Planned, attached: &[Attached]) -> Vec<ProbeLabel> {
        let label = |of: &Attached| {
            let probe = planned.probes.get(of.planned)?;
            let file = probe.file.and_then(|file| planned.files.get(file));
            Some(ProbeLabel {
                id: of.id,
                planned: of.planned,
                role: of.role,
                label: escaped(&probe.label).to_string(),
                binary: file.map_or_else(String::new, |file| file.path.display().to_string()),
                file: file.map(|file| file.id),
                function: probe.function.clone(),
                offset: probe.offset,
                fields: Rc::clone(&probe.fields),
                symbols: file
                    .filter(|_| probe.fields.iter().any(|field| field.shape.has_addresses()))
                    .and_then(|file| file.functions.clone()),
            })
        };
        attached.iter().filter_map(label).collect()
    }
}

/// Attaches what was planned, but for places that the kernel refuses, and says which those are;
/// where one probe is nothing without another, all or nothing. `calls` is how many functions have
/// been followed to their exits before.
pub(super) fn attach(
    session: &mut Session,
    planned: &Planned,
    inputs: &ProbeInputs<'_>,
    sinks: &Sinks,
    calls: &mut u32,
) -> anyhow::Result<Vec<Attached>> {
    let mut requests = Requests {
        session,
        inputs,
        programs: HashMap::new(),
        probes: Vec::with_capacity(planned.probes.len()),
        roles: Vec::with_capacity(planned.probes.len()),
        placeless: Vec::new(),
        spans: match sinks {
            Sinks::Spans(table) => Some(*table),
            Sinks::All(_) | Sinks::Each(_) => None,
        },
    };
    for (index, probe) in planned.probes.iter().enumerate() {
        let sink = sinks.of(index, probe);
        let Some(file) = probe.file else {
            requests.placeless(index, probe, sink)?;
            continue;
        };
        let file = planned.files.get(file);
        let file = &file.context("a probe has no file")?.file;
        match &probe.exits {
            None => requests.whole(index, probe, file, sink)?,
            Some(exits) => {
                *calls = calls.checked_add(1).context("too many functions")?;
                let call = CallId(NonZeroU32::new(*calls).context("too many functions")?);
                let first = requests.probes.len();
                requests.begin(index, probe, file, call)?;
                requests.exits(index, probe, exits, file, (call, sink))?;
                if exits.is_go {
                    requests.are_of_go(first);
                }
            }
        }
    }
    let Requests {
        roles,
        probes,
        placeless,
        ..
    } = requests;
    // A leak is a call of one probe without that of another, and a flight ends by its trigger.
    let needs_all = matches!(sinks, Sinks::Spans(_))
        || planned.probes.iter().any(|probe| probe.is_trigger)
        || inputs.wants.max_writes > 0;
    let answers = match needs_all {
        true => session
            .attach(&probes)
            .map(|ids| ids.into_iter().map(Ok).collect()),
        false => session.attach_possible(&probes),
    };
    let answers = answers.map_err(|error| cannot(error, planned, &roles, sinks))?;
    let mut attached = Vec::with_capacity(answers.len());
    let mut refused = BTreeMap::new();
    for (answer, (planned, role)) in answers.into_iter().zip(&roles) {
        let planned = *planned;
        match answer {
            Ok(id) => attached.push(Attached {
                id,
                planned,
                role: *role,
            }),
            // All probes of a call have one error.
            Err(error) => drop(refused.insert(planned, error)),
        }
    }
    if attached.is_empty() {
        if let Some((_, error)) = refused.pop_first() {
            return Err(cannot(error, planned, &roles, sinks));
        }
    }
    if !refused.is_empty() {
        let labelled =
            |(at, error): (usize, Error)| Some((planned.probes.get(at)?.label.as_str(), error));
        let refused: Vec<_> = refused.into_iter().filter_map(labelled).collect();
        let text = refused::describe(planned.probes.len(), &refused);
        eprintln!("nsprobe: {}", escaped(&text));
    }
    for (planned, placeless) in placeless {
        let ids = session.attach(&[placeless]);
        let ids = ids.context("cannot sample CPUs or follow waits")?;
        let role = ProbeRole::Whole;
        attached.extend(ids.into_iter().map(|id| Attached { id, planned, role }));
    }
    Ok(attached)
}

/// The error with what cannot be probed.
fn cannot(
    error: Error,
    planned: &Planned,
    roles: &[(usize, ProbeRole)],
    sinks: &Sinks,
) -> anyhow::Error {
    let Error::Attach { index, reason, .. } = &error else {
        return error.into();
    };
    let probe = roles
        .get(*index)
        .and_then(|(at, _)| planned.probes.get(*at));
    let label = probe.map_or_else(|| "the functions".to_owned(), |probe| probe.label.clone());
    // `leak`, whose sinks are spans, has no such option.
    let insists = match (reason, sinks) {
        (Refusal::NeedsAnswer, Sinks::All(_) | Sinks::Each(_)) => {
            " (--force probes it nevertheless)"
        }
        _ => "",
    };
    anyhow::anyhow!("cannot probe {label}: {error}{insists}")
}

/// Requests to the kernel.
struct Requests<'f, 'r> {
    session: &'r mut Session,
    inputs: &'r ProbeInputs<'r>,
    /// Those that were uploaded.
    programs: HashMap<Rc<StepProgram>, ProgramId>,
    probes: Vec<Probe<'f>>,
    /// For each request, its planned probe and its role.
    roles: Vec<(usize, ProbeRole)>,
    /// What has no place is attached one by one.
    placeless: Vec<(usize, Probe<'f>)>,
    /// The table of spans.
    spans: Option<TableId>,
}

impl<'f> Requests<'f, '_> {
    /// A probe that is one for the kernel, too.
    fn whole(
        &mut self,
        index: usize,
        probe: &PlannedProbe,
        file: &'f File,
        sink: Sink,
    ) -> anyhow::Result<()> {
        let entry = self.upload(probe.entry.as_ref())?;
        let ret = self.upload(probe.ret.as_ref())?;
        let mut request = request(probe, file, self.inputs, sink).with_programs(entry, ret);
        if probe.is_trigger {
            request = request.freezing();
        }
        let request = self.with_spans(request, probe.delivers());
        self.push(index, ProbeRole::Whole, request);
        Ok(())
    }

    /// Requests what has no place.
    fn placeless(&mut self, index: usize, probe: &PlannedProbe, sink: Sink) -> anyhow::Result<()> {
        let entry = self.upload(probe.entry.as_ref())?;
        let request = match probe.placeless().context("a probe has no file")? {
            Placeless::Samples { hz } => Probe::samples(hz),
            Placeless::Waits { min_ns } => {
                let waits = Probe::waits(min_ns);
                match self.inputs.wants.asks_holders() {
                    true => waits.of_locks(),
                    false => waits,
                }
            }
            Placeless::Wakes { min_ns } => Probe::wakes(min_ns),
        };
        let request = common(request.with_programs(entry, None), self.inputs, sink);
        let request = request.with_limits(HitLimits::default());
        self.placeless.push((index, request));
        Ok(())
    }

    /// The entry of a function whose returns are seen at its exits.
    fn begin(
        &mut self,
        index: usize,
        probe: &PlannedProbe,
        file: &'f File,
        call: CallId,
    ) -> anyhow::Result<()> {
        let entry = self.upload(probe.entry.as_ref())?;
        let request = Probe::entry(file, probe.breakpoint.0)
            .reported_at(probe.offset.0)
            .begins(call)
            .with_programs(entry, None)
            .with_limits(self.inputs.options.limits);
        let request = self.with_writes(request, probe.entry.as_ref());
        self.push(index, ProbeRole::Begin, request);
        Ok(())
    }

    /// The exits of a function.
    fn exits(
        &mut self,
        index: usize,
        probe: &PlannedProbe,
        exits: &ExitProbes<Rc<StepProgram>>,
        file: &'f File,
        (call, sink): (CallId, Sink),
    ) -> anyhow::Result<()> {
        let returns = exits
            .returns
            .iter()
            .map(|place| (*place, probe.ret.as_ref()));
        let by_argument = exits.by_argument.iter();
        let by_argument = by_argument.map(|(place, code)| (*place, Some(code)));
        for (place, code) in returns.chain(by_argument) {
            let ret = self.upload(code)?;
            // The return address is on top of the stack again.
            let request = Probe::entry(file, place.0).reported_at(probe.offset.0);
            let mut request = common(request, self.inputs, sink)
                .ends(call)
                .with_programs(None, ret);
            if probe.is_trigger {
                request = request.freezing();
            }
            let request = self.with_writes(request, code);
            let request = self.with_spans(request, code.map(Rc::as_ref));
            self.push(index, ProbeRole::Exit, request);
        }
        for place in &exits.handed_on {
            let request = Probe::instruction(file, place.0).reported_at(probe.offset.0);
            self.push(index, ProbeRole::HandOn, request.leaves(call));
        }
        for (place, decides) in &exits.left {
            let decides = self.upload(decides.as_ref())?;
            let request = Probe::instruction(file, place.0)
                .reported_at(probe.offset.0)
                .leaves(call)
                .with_programs(decides, None);
            self.push(index, ProbeRole::Leave, request);
        }
        Ok(())
    }

    /// Marks the requests from this one on as those of calls of Go.
    fn are_of_go(&mut self, first: usize) {
        for request in self.probes.iter_mut().skip(first) {
            *request = request.of_go();
        }
    }

    fn push(&mut self, index: usize, role: ProbeRole, request: Probe<'f>) {
        self.probes.push(match self.inputs.options.force {
            true => request.that_may_hang(),
            false => request,
        });
        self.roles.push((index, role));
    }

    /// The request with leave to write, when its program does.
    fn with_writes<'p>(&self, request: Probe<'p>, code: Option<&Rc<StepProgram>>) -> Probe<'p> {
        match code {
            Some(code) if code.changes() => request.with_max_writes(self.inputs.wants.max_writes),
            _ => request,
        }
    }

    /// The request with the table whose spans its program ends.
    fn with_spans<'p>(&self, request: Probe<'p>, code: Option<&StepProgram>) -> Probe<'p> {
        match self.spans {
            Some(table) if code.is_some_and(StepProgram::ends_spans) => {
                request.ending_spans_of(table)
            }
            _ => request,
        }
    }

    /// The id of a program, which is uploaded once.
    fn upload(&mut self, code: Option<&Rc<StepProgram>>) -> anyhow::Result<Option<ProgramId>> {
        let Some(code) = code else {
            return Ok(None);
        };
        if let Some(id) = self.programs.get(code) {
            return Ok(Some(*id));
        }
        let id = self.session.program(&code.steps, &code.data)?;
        self.programs.insert(Rc::clone(code), id);
        Ok(Some(id))
    }
}

/// The request for a probe, but for its programs.
fn request<'f>(
    probe: &PlannedProbe,
    file: &'f File,
    inputs: &ProbeInputs<'_>,
    sink: Sink,
) -> Probe<'f> {
    let mut request = match probe.at_function {
        true => Probe::entry(file, probe.breakpoint.0).reported_at(probe.offset.0),
        false => Probe::instruction(file, probe.offset.0),
    };
    if let Some(semaphore) = probe.semaphore {
        request = request.with_semaphore(semaphore.0);
    }
    if probe.at_return {
        request = request.as_call(true);
    }
    common(request, inputs, sink).with_max_writes(inputs.wants.max_writes)
}

/// Sets the sink, and the options that all probes of a run share.
fn common<'f>(request: Probe<'f>, inputs: &ProbeInputs<'_>, sink: Sink) -> Probe<'f> {
    let mut request = request.with_sink(sink).with_limits(inputs.options.limits);
    if inputs.wants.stack && sink != Sink::Count {
        request = request
            .with_stack()
            .with_max_frames(inputs.wants.max_frames);
        if inputs.wants.records || matches!(sink, Sink::Span(_)) {
            request = request.with_stack_ids();
        }
        // A span begins at once: its stack cannot come later.
        if !matches!(sink, Sink::Span(_)) {
            request = request.with_late_stacks();
            if !inputs.options.frame_pointers {
                request = request.with_copies();
            }
        }
    }
    if inputs.wants.kernel_stack {
        request = request.with_kernel_stack();
    }
    request
}
