// SPDX-License-Identifier: GPL-2.0-only
//! The probes of a session, with their programs and tables.
//!
//! Every refusal comes while probes are prepared, before the first breakpoint is inserted.

mod new_probe;
mod placeless;
mod prepare;

use crate::{
    common::abi::{
        Probe as ProbeRequest,
        Refusal,
        PROBES_MAX, //
    },
    context::{Context, Follower},
    filter::Filter,
    probe::{
        counters::Counters,
        program::Program,
        request::{is_one_call, is_placeless, refused_by_kernel, Refused},
        samples::Samples,
        waits::Waits,
        wakes::Wakes,
        Probe, //
    },
    sys::{
        memory::GFP_REQUEST,
        sampler::Sampler,
        task::Mm,
        task_points::Listening,
        tracepoint::{Listener, SpaceHook},
        uprobe::batch::Batch,
        vma::FileKey, //
    },
    table::Table,
    totals::PROBES, //
};
use core::sync::atomic::Ordering::Relaxed;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The state of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Checked, not attached yet.
    Prepared,
    Attached,
    /// Selected for detaching, under the session's lock.
    Leaving,
    Detached,
}

/// What the session keeps of every probe, also after it is detached.
pub(crate) struct ProbeEntry {
    pub(crate) id: u32,
    pub(crate) file: FileKey,
    pub(crate) offset: u64,
    state: State,
    pub(crate) counters: Arc<Counters>,
}

impl ProbeEntry {
    /// The entry of a probe that is not attached yet.
    fn prepared(probe: &Probe) -> Self {
        ProbeEntry {
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
    /// Set while a filter follows children. Dropped first: it refers to no probe.
    forks: Option<Listener<Follower>>,
    /// Set while calls are followed to exits.
    endings: Option<Endings>,
    batch: Batch<Probe>,
    sampling: Option<Sampling>,
    waiting: Option<Waiting>,
    waking: Option<Waking>,
    known: KVVec<ProbeEntry>,
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
    /// Stops sampling; every sample taken is counted.
    fn end(self) {
        drop(self.sampler);
        self.samples.end();
        self.samples.flush();
        PROBES.fetch_sub(1, Relaxed);
    }
}

/// The probe whose hits are waits.
struct Waiting {
    id: u32,
    listening: Listening,
    waits: Arc<Waits>,
}

impl Waiting {
    /// Stops following waits; every one is counted.
    fn end(self) {
        drop(self.listening);
        self.waits.end();
        PROBES.fetch_sub(1, Relaxed);
    }
}

/// The probe whose hits are wake-ups. Waits that are followed share it.
struct Waking {
    id: u32,
    wakes: Arc<Wakes>,
}

impl Waking {
    /// Stops taking wake-ups; each that was taken is counted.
    fn end(self) {
        self.wakes.end();
        PROBES.fetch_sub(1, Relaxed);
    }
}

/// Why a request was refused, and which probe of it.
pub(crate) struct RefusedAt {
    pub(crate) index: u32,
    pub(crate) refused: Refused,
}

impl Probes {
    /// Makes an empty set.
    pub(crate) fn new() -> Self {
        Probes {
            forks: None,
            endings: None,
            batch: Batch::new(),
            sampling: None,
            waiting: None,
            waking: None,
            known: KVVec::new(),
            programs: KVec::new(),
            tables: KVec::new(),
            table_bytes: 0,
        }
    }

    /// The number of attached probes.
    pub(crate) fn attached_count(&self) -> usize {
        let placeless = [
            self.sampling.is_some(),
            self.waiting.is_some(),
            self.waking.is_some(),
        ];
        let placeless = placeless.into_iter().filter(|is_there| *is_there).count();
        self.batch.len().saturating_add(placeless)
    }

    /// The attached probes.
    pub(crate) fn attached(&self) -> impl Iterator<Item = &ProbeEntry> {
        self.known
            .iter()
            .filter(|known| known.state == State::Attached)
    }

    /// The probe with this id, attached or not.
    pub(crate) fn get(&self, id: u32) -> Option<&ProbeEntry> {
        self.known.get(place(id)?)
    }

    /// Replaces the filter, and inserts and removes breakpoints as it requires. On failure the old
    /// filter stays.
    pub(crate) fn set_filter(&mut self, context: &Arc<Context>, filter: Filter) -> Result {
        if filter.followed.is_some() && self.forks.is_none() {
            self.forks = Some(Listener::of_forks(Follower(context.clone()))?);
        }
        let filter = KBox::new(filter, GFP_REQUEST)?;
        let (before, result) = context
            .filter
            .replace(Some(filter), || self.batch.ask_again());
        if result.is_err() {
            // A breakpoint whose removal fails here is removed at its next hit.
            let (failed, _) = context.filter.replace(before, || self.batch.ask_again());
            drop(failed);
        }
        result
    }

    /// Attaches all of `requests` and fills in their ids, or attaches none; if `is_partial` those
    /// whose place the kernel takes.
    pub(crate) fn attach(
        &mut self,
        context: &Arc<Context>,
        requests: &mut [ProbeRequest],
        is_partial: bool,
    ) -> Result<(), RefusedAt> {
        if let [request] = &mut *requests {
            if is_placeless(request.kind) {
                let started = self.start_placeless(context, request);
                return started.map_err(|refused| RefusedAt { index: 0, refused });
            }
        }
        let known_before = self.known.len();
        if let Err(refused) = self.prepare_all(context, requests, is_partial) {
            self.batch.drop_prepared(0);
            self.known.truncate(known_before);
            return Err(refused);
        }
        let registered_before = self.batch.len();
        let prepared = self.batch.prepared().saturating_sub(registered_before);
        let result = self.batch.register_prepared(is_partial);
        // Ids under which something may have been recorded are never reused.
        let (used, after) = match &result {
            Ok(()) => (prepared, State::Attached),
            Err(failed) => (failed.before.saturating_add(1), State::Detached),
        };
        self.known.truncate(known_before.saturating_add(used));
        for known in self.known.iter_mut().skip(known_before) {
            known.state = after;
        }
        if requests.iter().any(|request| request.max_writes != 0) {
            pr_info!(
                "process {} attaches probes that may write: {}\n",
                context.session_owner.pid(),
                requests.len()
            );
        }
        match result {
            Ok(()) => {
                PROBES.fetch_add(used as u32, Relaxed);
                self.drop_refused(registered_before, requests);
                Ok(())
            }
            Err(failed) => Err(RefusedAt {
                index: failed.before as u32,
                refused: refused_by_kernel(failed.error),
            }),
        }
    }

    /// Takes back the calls of which the kernel has refused a probe, and says why. `before` of the
    /// batch's probes are not of these requests.
    fn drop_refused(&mut self, before: usize, requests: &mut [ProbeRequest]) {
        let prepared = requests.iter_mut().filter(|request| request.id != 0);
        let mut has_refused = false;
        for (request, error) in prepared.zip(self.batch.refused(before)) {
            if let Some(error) = error {
                let Refused(error, reason) = refused_by_kernel(error);
                (request.refused, request.error) = (reason as u32, error.to_errno().unsigned_abs());
                has_refused = true;
            }
        }
        if !has_refused {
            return;
        }
        for call in requests.chunk_by_mut(is_one_call) {
            let refused = call.iter().find(|request| request.refused != 0);
            let Some((reason, error)) = refused.map(|refused| (refused.refused, refused.error))
            else {
                continue;
            };
            for request in call {
                if let Some(known) = place(request.id).and_then(|at| self.known.get_mut(at)) {
                    known.state = State::Leaving;
                }
                (request.id, request.refused, request.error) = (0, reason, error);
            }
        }
        self.unregister_leaving();
    }

    /// Unregisters the probes that are leaving; they are detached then.
    fn unregister_leaving(&mut self) {
        let known = &self.known;
        let before = self.batch.len();
        self.batch.unregister_if(|probe| {
            place(probe.id)
                .and_then(|at| known.get(at))
                .is_some_and(|known| known.state == State::Leaving)
        });
        let gone = before.saturating_sub(self.batch.len());
        PROBES.fetch_sub(gone as u32, Relaxed);
        for known in self.known.iter_mut() {
            if known.state == State::Leaving {
                known.state = State::Detached;
            }
        }
    }

    /// The id of the next probe.
    fn next_id(&self) -> Result<u32, Refused> {
        match (self.known.len() as u32).wrapping_add(1) {
            id @ ..=PROBES_MAX => Ok(id),
            _ => Err(Refused(ENOSPC, Refusal::TooMany)),
        }
    }

    /// Detaches the probes with these ids, all or none. `EINVAL` if an id is repeated.
    pub(crate) fn detach(&mut self, ids: &[u32]) -> Result {
        let marked = mark(&mut self.known, ids);
        if marked.is_ok() {
            self.unregister_leaving();
            let sampling = self.sampling.take_if(|sampling| ids.contains(&sampling.id));
            sampling.into_iter().for_each(Sampling::end);
            let waiting = self.waiting.take_if(|waiting| ids.contains(&waiting.id));
            waiting.into_iter().for_each(Waiting::end);
            let waking = self.waking.take_if(|waking| ids.contains(&waking.id));
            waking.into_iter().for_each(Waking::end);
        }
        for known in ids.iter().filter_map(|id| place(*id)) {
            match self.known.get_mut(known) {
                // None is detached.
                Some(known) if known.state == State::Leaving => known.state = State::Attached,
                _ => (),
            }
        }
        marked
    }

    /// The program with this id; `None` for zero.
    fn program(&self, id: u32) -> Result<Option<Arc<Program>>, Refused> {
        let Some(index) = place(id) else {
            return Ok(None);
        };
        let program = self.programs.get(index);
        let program = program.ok_or(Refused(ENOENT, Refusal::NoSuchId))?;
        Ok(Some(program.clone()))
    }

    /// The table with this id; `None` for zero.
    pub(crate) fn table(&self, id: u32) -> Result<Option<Arc<Table>>, Refused> {
        let Some(index) = place(id) else {
            return Ok(None);
        };
        let table = self.tables.get(index);
        Ok(Some(
            table.ok_or(Refused(ENOENT, Refusal::NoSuchId))?.clone(),
        ))
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(self.forks.take());
        drop(self.endings.take());
        self.sampling.take().into_iter().for_each(Sampling::end);
        self.waiting.take().into_iter().for_each(Waiting::end);
        self.waking.take().into_iter().for_each(Waking::end);
        let attached = self.batch.len() as u32;
        // Waits for the handlers, which hold what they use.
        self.batch.unregister_if(|_| true);
        // Only after that: a task that sees no probe attached may look for breakpoints.
        PROBES.fetch_sub(attached, Relaxed);
    }
}

/// The index of the probe with this id among the entries.
fn place(id: u32) -> Option<usize> {
    (id as usize).checked_sub(1)
}

/// Marks the attached probes with these ids as leaving. On failure some may be marked.
fn mark(known: &mut [ProbeEntry], ids: &[u32]) -> Result {
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

/// Frees the followed calls of an address space that ends.
struct Ending(Arc<Context>);

impl SpaceHook for Ending {
    fn ended(&self, space: &Mm) {
        if let Some(calls) = self.0.under_way.as_ref() {
            calls.space_ended(space.number());
        }
    }
}

/// Listens for the end of address spaces.
type Endings = Listener<Ending>;
