// SPDX-License-Identifier: MIT OR Apache-2.0
//! From planned probes to those that the kernel attaches.

use super::Wanted;
use crate::probes::{Planned, PlannedProbe};
use anyhow::Context;
use libnsprobe::{Error, Probe, ProbeId, ProgramId, Session, Sink, Table, TableKind, TableSpec};
use nsprobe_plan::Code;
use std::collections::HashMap;
use std::fs::File;
use std::rc::Rc;

/// What the hits of the probes go into.
pub(crate) enum Sinks {
    /// The same for all.
    All(Sink),
    /// One for each probe, in their order.
    Each(Vec<Sink>),
}

impl Sinks {
    /// That of a planned probe.
    fn of(&self, probe: usize) -> Sink {
        match self {
            Sinks::All(sink) => *sink,
            Sinks::Each(sinks) => sinks.get(probe).copied().unwrap_or(Sink::Count),
        }
    }
}

/// What a probe of the kernel's is to a probe of the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// All of it.
    Whole,
    /// It begins the calls that exits end.
    Begin,
    /// One of the function's exits.
    Exit,
}

/// A probe that is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    pub(crate) id: ProbeId,
    /// Which of the planned probes it belongs to.
    pub(crate) planned: usize,
    pub(crate) role: Role,
}

/// Calls that may be under way between a function's entry and its exits.
const SPANS_MAX: u32 = 1 << 14;

/// Attaches all that was planned, or nothing. `spans` is where calls are that are under
/// way, once it is needed.
pub(super) fn attach(
    session: &mut Session,
    planned: &Planned,
    wanted: &Wanted<'_>,
    sinks: &Sinks,
    spans: &mut Option<Table>,
) -> anyhow::Result<Vec<Attached>> {
    let mut programs = HashMap::new();
    let mut requests = Vec::with_capacity(planned.probes.len());
    let mut roles = Vec::with_capacity(planned.probes.len());
    let has_spans = |probe: &PlannedProbe| probe.exits.as_ref().is_some_and(|e| e.begin.is_some());
    if spans.is_none() && planned.probes.iter().any(has_spans) {
        *spans = Some(session.table(&TableSpec {
            kind: TableKind::Spans,
            key_words: nsprobe_plan::SPAN_KEY_WORDS,
            max_frames: 0,
            rows: SPANS_MAX,
        })?);
    }
    for (index, probe) in planned.probes.iter().enumerate() {
        let file = planned.files.get(probe.file);
        let file = &file.context("a probe has no file")?.file;
        let Some(exits) = &probe.exits else {
            let entry = upload(session, &mut programs, probe.entry.as_ref())?;
            let ret = upload(session, &mut programs, probe.ret.as_ref())?;
            let mut request = request(probe, file, wanted).with_programs(entry, ret);
            if probe.is_trigger {
                request = request.freezing();
            }
            roles.push((index, Role::Whole));
            requests.push(request.with_sink(sinks.of(index)));
            continue;
        };
        let spans = spans.as_ref().filter(|_| exits.begin.is_some());
        if let Some(spans) = spans {
            let begin = upload(session, &mut programs, exits.begin.as_ref())?;
            let request = Probe::entry(file, probe.breakpoint.0)
                .reported_at(probe.offset.0)
                .with_programs(begin, None)
                .ending_spans_of(spans.id());
            roles.push((index, Role::Begin));
            requests.push(request.with_sink(Sink::Span(spans.id())));
        }
        let program = upload(session, &mut programs, exits.exit.as_ref())?;
        for place in &exits.places {
            // The return address is on top of the stack again.
            let mut request = Probe::entry(file, place.0);
            if *place > probe.offset {
                request = request.reported_at(probe.offset.0);
            }
            if let Some(spans) = spans {
                request = request.ending_spans_of(spans.id());
            }
            if probe.is_trigger {
                request = request.freezing();
            }
            let request = common(request, wanted).with_programs(program, None);
            roles.push((index, Role::Exit));
            requests.push(request.with_sink(sinks.of(index)));
        }
    }
    let ids = session.attach(&requests).map_err(|error| {
        let Error::Attach { index, .. } = &error else {
            return error.into();
        };
        let probe = roles
            .get(*index)
            .and_then(|(at, _)| planned.probes.get(*at));
        let label = probe.map_or_else(|| "the functions".to_owned(), |probe| probe.label.clone());
        anyhow::Error::new(error).context(format!("cannot probe {label}"))
    })?;
    let attached = |(id, (planned, role))| Attached { id, planned, role };
    Ok(ids.into_iter().zip(roles).map(attached).collect())
}

/// The request for a probe, but for its programs and its sink.
fn request<'f>(probe: &PlannedProbe, file: &'f File, wanted: &Wanted<'_>) -> Probe<'f> {
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
    common(request, wanted).with_max_writes(wanted.max_writes)
}

/// What all probes of a run have in common.
fn common<'f>(mut request: Probe<'f>, wanted: &Wanted<'_>) -> Probe<'f> {
    if wanted.stack {
        request = request.with_stack().with_max_frames(wanted.max_frames);
    }
    if wanted.stack {
        request = request.with_late_stacks();
        if wanted.records {
            request = request.with_stack_ids();
        }
        if !wanted.options.frame_pointers {
            request = request.with_copies();
        }
    }
    if wanted.kernel_stack {
        request = request.with_kernel_stack();
    }
    request.with_limits(wanted.options.limits)
}

/// The id of a program, which is uploaded once.
fn upload(
    session: &mut Session,
    programs: &mut HashMap<Rc<Code>, ProgramId>,
    code: Option<&Rc<Code>>,
) -> anyhow::Result<Option<ProgramId>> {
    let Some(code) = code else {
        return Ok(None);
    };
    if let Some(id) = programs.get(code) {
        return Ok(Some(*id));
    }
    let id = session.program(&code.steps, &code.data)?;
    programs.insert(Rc::clone(code), id);
    Ok(Some(id))
}
