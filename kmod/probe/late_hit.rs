// SPDX-License-Identifier: GPL-2.0-only
//! Late hits: memory that the program of a probe reads was not present, and a handler must not wait
//! for it.
//!
//! On its way back to user space the task fetches the memory and runs the program again, with the
//! registers of the hit. Until then nothing has changed but what an emulated probed instruction has
//! written below the stack. A program that writes, or ends a span, is run once.

use crate::{
    probe::{
        counters::Here,
        entry_values::PendingCall,
        hit::{Hit, Origin},
        program::{Missed, Program},
        Probe, //
    },
    sys::{
        regs::RegisterFile,
        task::Current,
        task_work::TaskWork,
        uprobe::Ends,
        user_mem,
        vma::is_all, //
    }, //
};
use core::cell::Cell;
use kernel::sync::Arc;

/// Late hits of a session at a time; the memory of more is missing.
pub(crate) const LATE_HITS_MAX: usize = 256;
/// The maximum number of reads that one hit waits for.
const FETCHES_MAX: usize = 16;

/// A hit to be handled later.
pub(crate) struct LateHit {
    regs: RegisterFile,
    cpu: u32,
    sequence: u32,
    now_ns: u64,
    address: u64,
    ended: Option<PendingCall>,
    missed: Missed,
}

impl Missed {
    /// Whether fetching it waits for a disk at most: no user-space process and no device serves it.
    fn may_be_fetched(&self) -> bool {
        is_all(self.address, self.bytes.into(), |mapping| {
            mapping.is_of_memory_or_disk()
        })
    }

    fn fetch(&self) -> Result<(), user_mem::Fault> {
        user_mem::fetch(self.address, self.bytes.into())
    }
}

impl Probe {
    /// Whether its hits may be handled later.
    pub(crate) fn may_be_late(&self) -> bool {
        let programs = || self.at_entry.iter().chain(&self.at_return);
        let is_pure = |program: &Arc<Program>| {
            let summary = program.summary();
            !summary.writes && summary.ends_span.is_none()
        };
        self.ends == Ends::Entry
            && programs().any(|program| program.summary().reads_memory)
            && programs().all(is_pure)
    }

    /// Has a hit handled later, as its program has missed memory; false if that would be of no use,
    /// or could do harm.
    #[cold]
    pub(super) fn is_postponed(&self, hit: &Hit<'_>, missed: Missed) -> bool {
        let Some(late) = &self.late else {
            return false;
        };
        // Where a stack was moved from is not kept: the job is on the kernel's stack.
        if hit.moved_from.is_some() || !missed.may_be_fetched() {
            return false;
        }
        let slots = self.context.late_hits.as_ref();
        let Some(slot) = slots.and_then(|slots| slots.take()) else {
            return false;
        };
        let job = LateHit {
            regs: hit.regs.copy(),
            cpu: hit.here.cpu,
            sequence: hit.sequence,
            now_ns: hit.now_ns,
            address: hit.address,
            ended: hit.ended,
            missed,
        };
        // The task handles it after this.
        let is_queued = slot.queue(late.clone(), job);
        if is_queued {
            hit.here.postpone();
        }
        is_queued
    }

    /// Handles a hit; if that misses memory, and `may_wait`, it does nothing and returns what it
    /// misses.
    fn handle_late(&self, job: &LateHit, here: Here<'_>, may_wait: bool) -> Option<Missed> {
        let program = match job.ended {
            Some(_) => &self.at_return,
            None => &self.at_entry,
        };
        let program = program.as_ref()?;
        let (current, missed) = (Current::get(), Cell::new(None));
        let postpones = |other| {
            missed.set(may_wait.then_some(other));
            may_wait
        };
        job.regs.as_of_hit(|regs| {
            let hit = Hit {
                regs,
                session_owner: &self.context.session_owner,
                current: &current,
                here,
                sequence: job.sequence,
                now_ns: job.now_ns,
                address: job.address,
                origin: Origin::Breakpoint,
                ended: job.ended,
                moved_from: None,
            };
            self.run_and_deliver(program, &hit, &mut 0, &mut None, &postpones);
        });
        missed.get()
    }
}

impl TaskWork for Probe {
    type Job = LateHit;

    fn run(&self, job: &LateHit) {
        let Some(here) = self.counters.here(job.cpu) else {
            return;
        };
        let mut missed = job.missed;
        for left in (0..FETCHES_MAX).rev() {
            let is_there = missed.may_be_fetched() && missed.fetch().is_ok();
            here.resume();
            match self.handle_late(job, here, is_there && left > 0) {
                Some(other) => missed = other,
                None => return,
            }
            here.postpone();
        }
    }
}
