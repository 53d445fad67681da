// SPDX-License-Identifier: GPL-2.0-only
//! Makes a probe from its request and the session's programs, tables and limits.

use super::{
    Ending,
    Probes, //
};
use crate::{
    common::{
        abi::{
            Probe as ProbeRequest,
            Refusal,
            FRAMES_MAX,
            LATE_MAX,
            PROBE_COPIES,
            PROBE_FREEZES,
            PROBE_GO,
            PROBE_LATE,
            PROBE_RETURN_ONLY,
            PROBE_STACK,
            PROBE_STACK_IDS,
            SINK_COUNT,
            SINK_RECORD,
            SINK_SPAN,
            SINK_TABLE, //
        },
        program::Shortcut,
        table::Kind, //
    },
    context::Context,
    probe::{
        counters::Counters,
        entry_values::PendingCalls,
        limits::Limits,
        program::Program,
        request::{is_placeless, program_fits, validate_writes, Refused},
        under_way::{Function, UnderWay},
        Probe,
        Role,
        Sink, //
    },
    ring::Rings,
    stack::{
        mapping_cache::MappingCache,
        raw_copy::RawStacks,
        stack_table::StackTable, //
    },
    sys::{
        bottom_half::BottomHalves,
        memory::GFP_REQUEST,
        task_work::Slots,
        tracepoint::Listener,
        uprobe::Ends,
        vma::FileKey, //
    },
};
use core::sync::atomic::AtomicU32;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What the probes of one function's calls share. They follow each other in a request.
#[derive(Default)]
pub(super) struct Allowed {
    call: u32,
    writes: Option<Arc<AtomicU32>>,
    limits: Option<Arc<Limits>>,
    /// The counters of the first of them, by which `every` counts.
    counters: Option<Arc<Counters>>,
}

impl Allowed {
    /// Makes what the first probe of these calls asks for.
    fn set(&mut self, request: &ProbeRequest) -> Result<(), Refused> {
        let limits = Limits::of(request).map_err(|()| Refused(EINVAL, Refusal::BadLimit))?;
        if request.call == 0 || request.call != self.call {
            *self = Allowed {
                call: request.call,
                ..Allowed::default()
            };
        }
        if self.writes.is_none() && request.max_writes != 0 {
            self.writes = Some(Arc::new(AtomicU32::new(request.max_writes), GFP_REQUEST)?);
        }
        if let (None, Some(limits)) = (&self.limits, limits) {
            self.limits = Some(Arc::new(limits, GFP_REQUEST)?);
        }
        Ok(())
    }

    /// The counters of a probe, and those by which `every` counts.
    fn counters(&mut self) -> Result<(Arc<Counters>, Arc<Counters>), Refused> {
        let own = Arc::new(Counters::new()?, GFP_REQUEST)?;
        let first = self.counters.get_or_insert_with(|| own.clone()).clone();
        Ok((own, first))
    }
}

impl Probes {
    /// Makes the probe of a request, without a breakpoint.
    pub(super) fn probe(
        &mut self,
        context: &Arc<Context>,
        request: &ProbeRequest,
        id: u32,
        (ends, role): (Ends, Role),
        file: FileKey,
        allowed: &mut Allowed,
    ) -> Result<Probe, Refused> {
        let at_entry = self.program(request.entry_program)?;
        let at_return = self.program(request.return_program)?;
        let sink = self.sink(request)?;
        let spans = self.table(request.span)?;
        let entry_delivers = match role {
            Role::Whole => ends != Ends::Return && request.flags & PROBE_RETURN_ONLY == 0,
            Role::Begin | Role::End | Role::Leave => false,
        };
        let return_delivers = ends != Ends::Entry || role == Role::End;
        for (program, delivers) in [(&at_entry, entry_delivers), (&at_return, return_delivers)] {
            let summary = program.as_ref().map(|program| program.summary());
            if !program_fits(summary, &sink, spans.as_deref(), delivers, request) {
                return Err(Refused(EINVAL, Refusal::Mismatch));
            }
        }
        validate_writes(context, request, [&at_entry, &at_return])?;
        let overwrite = context.rings.as_ref().is_some_and(Rings::overwrite);
        if request.flags & PROBE_FREEZES != 0 && !overwrite {
            return Err(Refused(EINVAL, Refusal::UnknownValue));
        }
        prepare_calls(context, ends, at_entry.as_ref())?;
        if role != Role::Whole {
            self.follow_calls(context)?;
        }
        let by_interrupt = is_placeless(request.kind);
        prepare_stacks(context, request.flags, by_interrupt)?;
        allowed.set(request)?;
        let limits = allowed.limits.clone();
        let is_counted = matches!(sink, Sink::Count) && request.flags & PROBE_FREEZES == 0;
        let shortcut = at_entry.as_ref().and_then(|program| program.shortcut());
        let (counters, eligible) = allowed.counters()?;
        let report = match request.report_offset {
            0 => request.offset,
            offset => offset,
        };
        Ok(Probe {
            id,
            flags: request.flags,
            role,
            call: Function {
                number: request.call,
                is_go: request.flags & PROBE_GO != 0,
            },
            returns: None,
            max_frames: match request.max_frames {
                0 => FRAMES_MAX,
                frames => frames,
            },
            breakpoint_delta: request.offset.wrapping_sub(report),
            file,
            is_32bit_file: false,
            offset: request.offset,
            ends,
            is_plain: limits.is_none()
                && role == Role::Whole
                && request.flags & PROBE_RETURN_ONLY == 0,
            counts_only: matches!(sink, Sink::Count)
                && ends == Ends::Entry
                && role == Role::Whole
                && at_entry.is_none()
                && limits.is_none(),
            is_recorded: matches!(sink, Sink::Record)
                && limits.is_none()
                && request.flags & PROBE_FREEZES == 0,
            frees: match shortcut {
                Some(Shortcut::Ends(register)) if is_counted && ends == Ends::Entry => {
                    Some(register)
                }
                _ => None,
            },
            at_entry,
            at_return,
            sink,
            spans,
            writes_left: allowed.writes.clone(),
            limits,
            runaway: request.runaway,
            counters,
            eligible,
            late: None,
            context: context.clone(),
        })
    }

    /// Allocates room for calls that are followed to exits.
    fn follow_calls(&mut self, context: &Arc<Context>) -> Result {
        if context.under_way.as_ref().is_none() {
            context.under_way.populate(UnderWay::new()?);
        }
        if self.endings.is_none() {
            self.endings = Some(Listener::of_spaces(Ending(context.clone()))?);
        }
        Ok(())
    }

    /// The sink that a probe requests.
    fn sink(&self, request: &ProbeRequest) -> Result<Sink, Refused> {
        match (request.sink, self.table(request.table)?) {
            (SINK_RECORD, None) => Ok(Sink::Record),
            (SINK_COUNT, None) => Ok(Sink::Count),
            (SINK_TABLE, Some(table)) if table.shape().kind != Kind::Spans => {
                Ok(Sink::Table(table))
            }
            (SINK_SPAN, Some(table)) if table.shape().kind == Kind::Spans => Ok(Sink::Span(table)),
            (SINK_RECORD..=SINK_SPAN, _) => Err(Refused(EINVAL, Refusal::Mismatch)),
            _ => Err(Refused(EINVAL, Refusal::UnknownValue)),
        }
    }
}

/// Allocates room for the calls of a probe whose entries keep values.
fn prepare_calls(context: &Context, ends: Ends, entry: Option<&Arc<Program>>) -> Result {
    let keeps = entry.is_some_and(|program| program.summary().keeps != 0);
    if ends == Ends::Both && keeps && context.calls.as_ref().is_none() {
        context.calls.populate(PendingCalls::new()?);
    }
    Ok(())
}

/// Allocates what the stacks of a probe with these flags need.
fn prepare_stacks(context: &Context, flags: u32, by_interrupt: bool) -> Result {
    if flags & PROBE_STACK != 0 && context.mappings.as_ref().is_none() {
        context.mappings.populate(MappingCache::new()?);
    }
    if flags & PROBE_COPIES != 0 && context.raw_stacks.as_ref().is_none() {
        context.raw_stacks.populate(RawStacks::new()?);
    }
    if by_interrupt && flags & PROBE_COPIES != 0 && context.interrupted.as_ref().is_none() {
        context.interrupted.populate(BottomHalves::new()?);
    }
    if flags & PROBE_STACK_IDS != 0 && context.stacks.as_ref().is_none() {
        context.stacks.populate(StackTable::new()?);
    }
    if flags & PROBE_LATE != 0 && context.late.as_ref().is_none() {
        context.late.populate(Slots::new(LATE_MAX)?);
    }
    Ok(())
}
