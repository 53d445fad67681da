// SPDX-License-Identifier: GPL-2.0-only
//! The probes of a session, and what they are made of: programs and tables.
//!
//! Whatever can be refused is refused while probes are prepared, before the first
//! breakpoint goes in.

use crate::{
    common::{
        abi::{
            Probe as ProbeRequest,
            Refusal,
            FRAMES_MAX,
            LATE_MAX,
            PROBES_MAX,
            PROBE_COPIES,
            PROBE_FREEZES,
            PROBE_LATE,
            PROBE_RETURN_ONLY,
            PROBE_SAMPLE,
            PROBE_STACK,
            PROBE_STACK_IDS,
            SINK_COUNT,
            SINK_RECORD,
            SINK_SPAN,
            SINK_TABLE, //
        },
        table::Kind, //
    },
    context::{Follower, Shared},
    filter::Filter,
    probe::{
        counters::Counters,
        entry_values::Calls,
        limits::Limits,
        program::Program,
        request::{
            check,
            check_instruction,
            check_offsets,
            check_sampler,
            check_writes,
            fits,
            refused_by_kernel,
            Refused, //
        },
        samples::Samples,
        under_way::UnderWay,
        Probe,
        Role,
        Sink, //
    },
    ring::Rings,
    stack::{
        mapping_cache::MappingCache,
        raw_copy::Copies,
        stack_table::Stacks, //
    },
    sys::{
        cond_resched,
        inode::{PinnedInode, ReadableFile},
        later::Slots,
        memory::{self, GFP_REQUEST},
        sampler::Sampler,
        task::Mm,
        tracepoint::{Listener, SpaceHook},
        uprobe::{Batch, Ends, Place},
        vma::FileKey, //
    },
    table::Table,
    totals::PROBES, //
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Where a probe is in its life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Checked, and not attached yet.
    Prepared,
    Attached,
    /// Chosen to be detached, under the session's lock.
    Leaving,
    Detached,
}

/// What is known of every probe, also when it is detached.
pub(crate) struct Known {
    pub(crate) id: u32,
    pub(crate) file: FileKey,
    pub(crate) offset: u64,
    state: State,
    pub(crate) counters: Arc<Counters>,
}

impl Known {
    /// That of a probe that is not attached yet.
    fn prepared(probe: &Probe) -> Self {
        Known {
            id: probe.id,
            file: probe.file,
            offset: probe.offset,
            state: State::Prepared,
            counters: probe.counters.clone(),
        }
    }
}

/// The probes of a session, its programs and its tables.
pub(crate) struct Probes {
    /// While a filter follows children. Goes first: it knows no probe.
    forks: Option<Listener<Follower>>,
    /// While calls are followed to exits.
    endings: Option<Endings>,
    batch: Batch<Probe>,
    sampling: Option<Sampling>,
    known: KVVec<Known>,
    pub(crate) programs: KVec<Arc<Program>>,
    pub(crate) tables: KVec<Arc<Table>>,
    pub(crate) table_bytes: u64,
}

/// The probe whose hits are samples.
struct Sampling {
    id: u32,
    samples: Arc<Samples>,
    sampler: Sampler<Samples>,
}

impl Sampling {
    /// Ends it: all that was taken is counted.
    fn end(self) {
        drop(self.sampler);
        self.samples.end();
        PROBES.fetch_sub(1, Relaxed);
    }
}

/// Why probes were refused, and which one.
pub(crate) struct RefusedAt {
    pub(crate) index: u32,
    pub(crate) refused: Refused,
}

/// The file of the probe before: most probes of a request are in one.
#[derive(Default)]
struct LastFile(Option<(i32, ReadableFile, Arc<PinnedInode>)>);

impl LastFile {
    fn get(&mut self, fd: i32) -> Result<(&ReadableFile, Arc<PinnedInode>), Refused> {
        let known = match self.0.take() {
            Some(known) if known.0 == fd => known,
            _ => {
                let file = ReadableFile::from_fd(fd)?;
                let inode = Arc::new(file.inode()?, GFP_REQUEST)?;
                (fd, file, inode)
            }
        };
        let (_, file, inode) = self.0.insert(known);
        Ok((file, inode.clone()))
    }
}

/// What the probes of one function's calls share, which follow each other in a request.
#[derive(Default)]
struct Allowed {
    call: u32,
    writes: Option<Arc<AtomicU32>>,
    limits: Option<Arc<Limits>>,
    /// Of the first of them: `every` counts by these.
    counters: Option<Arc<Counters>>,
}

impl Allowed {
    /// Makes what a probe is the first to ask for.
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

    /// The counters of a probe, and those that `every` counts by.
    fn counters(&mut self) -> Result<(Arc<Counters>, Arc<Counters>), Refused> {
        let own = Arc::new(Counters::new()?, GFP_REQUEST)?;
        let first = self.counters.get_or_insert_with(|| own.clone()).clone();
        Ok((own, first))
    }
}

impl Probes {
    /// None yet.
    pub(crate) fn new() -> Self {
        Probes {
            forks: None,
            endings: None,
            batch: Batch::new(),
            sampling: None,
            known: KVVec::new(),
            programs: KVec::new(),
            tables: KVec::new(),
            table_bytes: 0,
        }
    }

    /// How many are attached.
    pub(crate) fn attached_count(&self) -> usize {
        let samplers: usize = self.sampling.is_some().into();
        self.batch.len().saturating_add(samplers)
    }

    /// Those that are attached.
    pub(crate) fn attached(&self) -> impl Iterator<Item = &Known> {
        self.known
            .iter()
            .filter(|known| known.state == State::Attached)
    }

    /// The probe with this id, attached or not.
    pub(crate) fn get(&self, id: u32) -> Option<&Known> {
        self.known.get(place(id)?)
    }

    /// Puts another filter in place, and breakpoints in and out as it wants. On failure
    /// the filter is the one before.
    pub(crate) fn set_filter(&mut self, shared: &Arc<Shared>, filter: Filter) -> Result {
        if filter.followed.is_some() && self.forks.is_none() {
            self.forks = Some(Listener::of_forks(Follower(shared.clone()))?);
        }
        let filter = KBox::new(filter, GFP_REQUEST)?;
        let (before, result) = shared
            .filter
            .replace(Some(filter), || self.batch.ask_again());
        if result.is_err() {
            // What fails to be taken out again is taken out at its next hit.
            let (failed, _) = shared.filter.replace(before, || self.batch.ask_again());
            drop(failed);
        }
        result
    }

    /// Attaches all of `requests` and fills in their ids, or attaches none.
    pub(crate) fn attach(
        &mut self,
        shared: &Arc<Shared>,
        requests: &mut [ProbeRequest],
    ) -> Result<(), RefusedAt> {
        if let [request] = &mut *requests {
            if request.kind == PROBE_SAMPLE {
                let started = self.start_sampling(shared, request);
                return started.map_err(|refused| RefusedAt { index: 0, refused });
            }
        }
        let known_before = self.known.len();
        if let Err(refused) = self.prepare_all(shared, requests) {
            self.batch.drop_prepared();
            self.known.truncate(known_before);
            return Err(refused);
        }
        let result = self.batch.register_prepared();
        // Ids under which something may have been recorded are not used again.
        let (used, after) = match &result {
            Ok(()) => (requests.len(), State::Attached),
            Err(failed) => (failed.before.saturating_add(1), State::Detached),
        };
        self.known.truncate(known_before.saturating_add(used));
        for known in self.known.iter_mut().skip(known_before) {
            known.state = after;
        }
        if requests.iter().any(|request| request.max_writes != 0) {
            pr_info!(
                "process {} attaches probes that may write: {}\n",
                shared.opener.pid(),
                requests.len()
            );
        }
        match result {
            Ok(()) => {
                PROBES.fetch_add(used as u32, Relaxed);
                Ok(())
            }
            Err(failed) => Err(RefusedAt {
                index: failed.before as u32,
                refused: refused_by_kernel(failed.error),
            }),
        }
    }

    /// Checks `requests` and makes their probes, without breakpoints yet. On failure some are
    /// prepared.
    fn prepare_all(
        &mut self,
        shared: &Arc<Shared>,
        requests: &mut [ProbeRequest],
    ) -> Result<(), RefusedAt> {
        let mut last = LastFile::default();
        let mut allowed = Allowed::default();
        for (index, request) in requests.iter_mut().enumerate() {
            let prepared = self.prepare(shared, request, &mut last, &mut allowed);
            prepared.map_err(|refused| RefusedAt {
                index: index as u32,
                refused,
            })?;
            cond_resched();
        }
        self.check_repeated(requests.len())
    }

    /// Checks that none of the `new` prepared probes repeats another of the session.
    fn check_repeated(&self, new: usize) -> Result<(), RefusedAt> {
        let before = self.batch.len();
        let all = before.saturating_add(new);
        // A hash table of numbers from 1 on, at most half full.
        let numbers = memory::zeroed::<u32>(all.saturating_mul(2).next_power_of_two());
        let mut numbers = numbers.map_err(|error| RefusedAt {
            index: 0,
            refused: Refused(error, Refusal::NoMemory),
        })?;
        let mask = numbers.len().wrapping_sub(1);
        for number in 0..all {
            let Some(probe) = self.batch.hook(number) else {
                break;
            };
            let mixed = (probe.file.ino ^ probe.offset.rotate_left(32))
                .wrapping_add(probe.call.into())
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut at = (mixed >> 32) as usize;
            while let Some(taken) = numbers.get_mut(at & mask) {
                let Some(other) = (*taken as usize).checked_sub(1) else {
                    *taken = (number as u32).wrapping_add(1);
                    break;
                };
                if self
                    .batch
                    .hook(other)
                    .is_some_and(|other| probe.repeats(other))
                {
                    return Err(RefusedAt {
                        index: number.saturating_sub(before) as u32,
                        refused: Refused(EEXIST, Refusal::Twice),
                    });
                }
                at = at.wrapping_add(1);
            }
            cond_resched();
        }
        Ok(())
    }

    /// Checks a request for samples, and begins to take them. Out of line, as `attach` has
    /// enough on its stack.
    #[inline(never)]
    fn start_sampling(
        &mut self,
        shared: &Arc<Shared>,
        request: &mut ProbeRequest,
    ) -> Result<(), Refused> {
        let kind = check(request)?;
        check_sampler(request)?;
        if self.sampling.is_some() {
            return Err(Refused(EEXIST, Refusal::Twice));
        }
        let id = self.next_id()?;
        let probe = self.probe(
            shared,
            request,
            id,
            kind,
            FileKey::NONE,
            &mut Allowed::default(),
        )?;
        memory::push(&mut self.known, Known::prepared(&probe))?;
        let samples = Arc::new(Samples::new(probe), GFP_REQUEST);
        let sampling = samples.map_err(Error::from).and_then(|samples| {
            Ok(Sampling {
                id,
                sampler: Sampler::start(request.offset, samples.clone())?,
                samples,
            })
        });
        let state = match &sampling {
            Ok(_) => State::Attached,
            Err(_) => State::Detached,
        };
        if let Some(known) = self.known.last_mut() {
            known.state = state;
        }
        self.sampling = Some(sampling.map_err(refused_by_kernel)?);
        PROBES.fetch_add(1, Relaxed);
        request.id = id;
        Ok(())
    }

    /// The id of the next probe.
    fn next_id(&self) -> Result<u32, Refused> {
        match (self.known.len() as u32).wrapping_add(1) {
            id @ ..=PROBES_MAX => Ok(id),
            _ => Err(Refused(ENOSPC, Refusal::TooMany)),
        }
    }

    /// Checks a request and makes its probe, without a breakpoint yet.
    fn prepare(
        &mut self,
        shared: &Arc<Shared>,
        request: &mut ProbeRequest,
        last: &mut LastFile,
        allowed: &mut Allowed,
    ) -> Result<(), Refused> {
        let kind = check(request)?;
        if request.kind == PROBE_SAMPLE {
            // It has an `Attach` of its own.
            return Err(Refused(EINVAL, Refusal::UnknownValue));
        }
        let (file, inode) = last.get(request.fd)?;
        check_offsets(request, inode.size())?;
        let returns = check_instruction(file, request.offset)?;
        let id = self.next_id()?;
        let mut probe = self.probe(shared, request, id, kind, inode.key(), allowed)?;
        // Where the function begins, a return probe of somebody else's would be in the way: one
        // that has just left may still write to where the return address was.
        if probe.role == Role::End && probe.ahead != 0 {
            probe.returns = returns;
        }
        memory::push(&mut self.known, Known::prepared(&probe))?;
        let place = Place {
            inode,
            offset: request.offset,
            semaphore: request.semaphore,
        };
        self.batch.prepare(place, kind.0, probe)?;
        request.id = id;
        Ok(())
    }

    fn probe(
        &mut self,
        shared: &Arc<Shared>,
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
            if !fits(summary, &sink, spans.as_deref(), delivers, request) {
                return Err(Refused(EINVAL, Refusal::Mismatch));
            }
        }
        check_writes(shared, request, [&at_entry, &at_return])?;
        let overwrite = shared.rings.as_ref().is_some_and(Rings::overwrite);
        if request.flags & PROBE_FREEZES != 0 && !overwrite {
            return Err(Refused(EINVAL, Refusal::UnknownValue));
        }
        prepare_calls(shared, ends, at_entry.as_ref())?;
        if role != Role::Whole {
            self.follow_calls(shared)?;
        }
        prepare_stacks(shared, request.flags)?;
        allowed.set(request)?;
        let limits = allowed.limits.clone();
        let (counters, eligible) = allowed.counters()?;
        let report = match request.report_offset {
            0 => request.offset,
            offset => offset,
        };
        Ok(Probe {
            id,
            flags: request.flags,
            role,
            call: request.call,
            returns: None,
            max_frames: match request.max_frames {
                0 => FRAMES_MAX,
                frames => frames,
            },
            ahead: request.offset.wrapping_sub(report),
            file,
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
            at_entry,
            at_return,
            sink,
            spans,
            writes_left: allowed.writes.clone(),
            limits,
            runaway: request.runaway,
            counters,
            eligible,
            shared: shared.clone(),
        })
    }

    /// Makes room for calls that are followed to exits.
    fn follow_calls(&mut self, shared: &Arc<Shared>) -> Result {
        if shared.under_way.as_ref().is_none() {
            shared.under_way.populate(UnderWay::new()?);
        }
        if self.endings.is_none() {
            self.endings = Some(Listener::of_spaces(Ending(shared.clone()))?);
        }
        Ok(())
    }

    /// Detaches the probes with these ids, all or none. `EINVAL` when one is there
    /// twice.
    pub(crate) fn detach(&mut self, ids: &[u32]) -> Result {
        let marked = mark(&mut self.known, ids);
        if marked.is_ok() {
            let known = &self.known;
            let before = self.batch.len();
            self.batch.unregister_if(|probe| {
                place(probe.id)
                    .and_then(|at| known.get(at))
                    .is_some_and(|known| known.state == State::Leaving)
            });
            let gone = before.saturating_sub(self.batch.len());
            PROBES.fetch_sub(gone as u32, Relaxed);
            let sampling = self.sampling.take_if(|sampling| ids.contains(&sampling.id));
            sampling.into_iter().for_each(Sampling::end);
        }
        let after = match marked {
            Ok(()) => State::Detached,
            Err(_) => State::Attached,
        };
        for known in ids.iter().filter_map(|id| place(*id)) {
            match self.known.get_mut(known) {
                Some(known) if known.state == State::Leaving => known.state = after,
                _ => (),
            }
        }
        marked
    }

    /// The program with this id; none for zero.
    fn program(&self, id: u32) -> Result<Option<Arc<Program>>, Refused> {
        let Some(index) = place(id) else {
            return Ok(None);
        };
        let program = self.programs.get(index);
        let program = program.ok_or(Refused(ENOENT, Refusal::NoSuchId))?;
        Ok(Some(program.clone()))
    }

    /// The table with this id; none for zero.
    pub(crate) fn table(&self, id: u32) -> Result<Option<Arc<Table>>, Refused> {
        let Some(index) = place(id) else {
            return Ok(None);
        };
        let table = self.tables.get(index);
        Ok(Some(
            table.ok_or(Refused(ENOENT, Refusal::NoSuchId))?.clone(),
        ))
    }

    /// The sink that a probe asks for.
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

impl Drop for Probes {
    fn drop(&mut self) {
        drop(self.forks.take());
        drop(self.endings.take());
        self.sampling.take().into_iter().for_each(Sampling::end);
        let attached = self.batch.len() as u32;
        // Waits for its handlers; they hold what they use.
        self.batch.unregister_if(|_| true);
        // Only now: who sees that none is attached may look for breakpoints.
        PROBES.fetch_sub(attached, Relaxed);
    }
}

/// Where the probe with this id stands among those that are known.
fn place(id: u32) -> Option<usize> {
    (id as usize).checked_sub(1)
}

/// Marks the attached probes with these ids as leaving. On failure some may be
/// marked.
fn mark(known: &mut [Known], ids: &[u32]) -> Result {
    for id in ids {
        let known = place(*id).and_then(|at| known.get_mut(at)).ok_or(ENOENT)?;
        match known.state {
            State::Attached => known.state = State::Leaving,
            State::Leaving => return Err(EINVAL),
            State::Prepared | State::Detached => return Err(ENOENT),
        }
    }
    Ok(())
}

/// Makes room for the calls of a probe whose entries keep values.
fn prepare_calls(shared: &Shared, ends: Ends, entry: Option<&Arc<Program>>) -> Result {
    let keeps = entry.is_some_and(|program| program.summary().keeps != 0);
    if ends == Ends::Both && keeps && shared.calls.as_ref().is_none() {
        shared.calls.populate(Calls::new()?);
    }
    Ok(())
}

/// Makes room for what the stacks of a probe with these flags need.
fn prepare_stacks(shared: &Shared, flags: u32) -> Result {
    if flags & PROBE_STACK != 0 && shared.mappings.as_ref().is_none() {
        shared.mappings.populate(MappingCache::new()?);
    }
    if flags & PROBE_COPIES != 0 && shared.copies.as_ref().is_none() {
        shared.copies.populate(Copies::new()?);
    }
    if flags & PROBE_STACK_IDS != 0 && shared.stacks.as_ref().is_none() {
        shared.stacks.populate(Stacks::new()?);
    }
    if flags & PROBE_LATE != 0 && shared.late.as_ref().is_none() {
        shared.late.populate(Slots::new(LATE_MAX)?);
    }
    Ok(())
}

/// What a session hears of spaces that end.
struct Ending(Arc<Shared>);

impl SpaceHook for Ending {
    fn ended(&self, space: &Mm) {
        if let Some(calls) = self.0.under_way.as_ref() {
            calls.space_ended(space.number());
        }
    }
}

/// Listens to the ends of spaces.
type Endings = Listener<Ending>;
