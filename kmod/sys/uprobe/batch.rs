// SPDX-License-Identifier: GPL-2.0-only
//! The consumers of a session: they come to their uprobes together, and leave together.

use super::{
    failed_spaces::FailedSpaces,
    is_of_the_place,
    Ends,
    Hook,
    Member,
    Place, //
};
use crate::sys::{
    cond_resched,
    memory,
    on_kworker::{self, Caller}, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// Why consumers could not be registered.
pub(crate) struct Failed {
    /// How many of the prepared ones were registered, for a while.
    pub(crate) before: usize,
    /// What the next one met. `EINTR` when the caller was killed.
    pub(crate) error: Error,
}

/// Consumers: first those that are registered, then those that are prepared to be.
/// Dropping it unregisters all of them; that sleeps.
///
/// Registering and unregistering lock out every `fork` of the machine, for one
/// consumer at a time: waiting forks go between two of them (`dup_mmap_sem` of
/// `kernel/events/uprobes.c` hands itself over in order).
pub(crate) struct Batch<H: Hook> {
    members: KVVec<Member<H>>,
    registered: usize,
    /// Where requests fail; made with the first member.
    failed: Option<Arc<FailedSpaces>>,
}

impl<H: Hook> Batch<H> {
    /// No consumers.
    pub(crate) fn new() -> Self {
        Batch {
            members: KVVec::new(),
            registered: 0,
            failed: None,
        }
    }

    /// How many are registered.
    pub(crate) fn len(&self) -> usize {
        self.registered
    }

    /// The hook of this number: those that are registered come first, then the prepared ones.
    pub(crate) fn hook(&self, number: usize) -> Option<&H> {
        self.members.get(number).map(|member| &member.consumer.hook)
    }

    /// Makes a consumer for [`register_prepared`](Self::register_prepared).
    pub(crate) fn prepare(&mut self, place: Place, ends: Ends, hook: H) -> Result {
        let failed = match &self.failed {
            Some(failed) => failed.clone(),
            None => self.failed.insert(FailedSpaces::new()?).clone(),
        };
        let member = Member::new(place, ends, hook, failed)?;
        memory::push(&mut self.members, member)
    }

    /// How many are registered or prepared.
    pub(crate) fn prepared(&self) -> usize {
        self.members.len()
    }

    /// Gives up what was prepared, but for the first ones: `keep` of all members.
    pub(crate) fn drop_prepared(&mut self, keep: usize) {
        self.members.truncate(keep.max(self.registered));
    }

    /// Registers what was prepared: all or none, or if `is_partial` all that the kernel takes; the
    /// others count as registered until the next [`unregister_if`](Self::unregister_if), and
    /// [`refused`](Self::refused) gives their errors. Task context, sleeps.
    pub(crate) fn register_prepared(&mut self, is_partial: bool) -> Result<(), Failed> {
        let mut result = Ok(());
        on_kworker::run(&mut |caller| {
            result = self.register_here(caller, is_partial);
            if result.is_err() {
                let first = self.registered;
                self.unregister_here(first, |_| true);
            }
            self.settle();
        });
        match result {
            Ok(()) => self.registered = self.members.len(),
            Err(_) => self.drop_prepared(0),
        }
        result
    }

    fn register_here(&mut self, caller: &Caller<'_>, is_partial: bool) -> Result<(), Failed> {
        self.forget_failed();
        let prepared = self.members.iter_mut().skip(self.registered);
        for (before, member) in prepared.enumerate() {
            let registered = match caller.is_killed() {
                true => Err(EINTR),
                false => member.register(caller),
            };
            match registered {
                Err(error) if is_partial && error != EINTR => member.refused = Some(error),
                registered => registered.map_err(|error| Failed { before, error })?,
            }
            cond_resched();
        }
        Ok(())
    }

    /// Why members from this number on were not registered; `None` for those that were.
    pub(crate) fn refused(&self, first: usize) -> impl Iterator<Item = Option<Error>> + '_ {
        self.members.iter().skip(first).map(|member| member.refused)
    }

    fn forget_failed(&self) {
        if let Some(failed) = &self.failed {
            failed.clear();
        }
    }

    /// Waits until no handler sees a visitor. Kernel worker.
    fn settle(&self) {
        if self
            .failed
            .as_ref()
            .is_some_and(|failed| failed.end_passes())
        {
            // SAFETY: We are in task context and not in a handler: this waits until every
            // handler that may have seen one has returned.
            unsafe { bindings::uprobe_unregister_sync() };
        }
    }

    /// Unregisters the consumers whose hook `wanted` selects, and waits until none of their
    /// handlers runs. Nothing may be prepared. Task context, sleeps; never from a handler.
    pub(crate) fn unregister_if(&mut self, mut wanted: impl FnMut(&H) -> bool + Send) {
        on_kworker::run(&mut |_| self.unregister_here(0, &mut wanted));
        self.members.retain(|member| member.uprobe.is_some());
        self.registered = self.members.len();
    }

    /// Asks every hook again which processes need the breakpoint, and inserts and removes
    /// breakpoints. If it fails for one, the others are done all the same. Nothing may be prepared.
    /// Task context, sleeps.
    ///
    /// `uprobe_apply` is for the kernel alone. So another consumer with the same filter joins each
    /// uprobe for a moment: when it joins, breakpoints are inserted where the hook needs them, and
    /// when it leaves, they are removed where no consumer needs them.
    pub(crate) fn ask_again(&mut self) -> Result {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        on_kworker::run(&mut |caller| {
            self.forget_failed();
            for member in self.members.iter() {
                match member.visit_until_done(caller) {
                    // No process will carry it. The others have nothing to do with that.
                    Err(error) if is_of_the_place(error) => member.consumer.hook.failed_in(1),
                    visited => result = result.and(visited),
                }
                cond_resched();
            }
            self.settle();
        });
        result
    }

    /// Unregisters the consumers from index `first` on that `wanted` selects, with one grace period
    /// for all.
    fn unregister_here(&mut self, first: usize, mut wanted: impl FnMut(&H) -> bool) {
        let mut any = false;
        for member in self.members.iter_mut().skip(first) {
            if wanted(&member.consumer.hook) {
                any |= member.unregister();
                cond_resched();
            }
        }
        if any {
            // SAFETY: We are in task context and not in a handler: this waits until every
            // handler that may have seen the consumers has returned.
            unsafe { bindings::uprobe_unregister_sync() };
        }
    }
}

impl<H: Hook> Drop for Batch<H> {
    fn drop(&mut self) {
        self.unregister_if(|_| true);
    }
}
