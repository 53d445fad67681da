// SPDX-License-Identifier: GPL-2.0-only
//! Samples of tasks, as hits of a probe that has no place.
//!
//! A sample becomes a hit when it is taken. Samples that still wait for their task when the probe
//! is removed are not taken, and are no hits.

use crate::{
    probe::{
        counters::{Here, Outcome},
        hit::Origin,
        Probe, //
    },
    sys::{
        self,
        by_interrupt::with_user_regs,
        rcu_slot::Reading,
        sampler::{Sampled, Stopped},
        task::Current,
        task_work::TaskWork,
        uprobe::Regs, //
    }, //
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release}, //
};
use kernel::sync::rcu;

/// The probe whose hits are samples.
pub(crate) struct Samples {
    probe: Probe,
    is_over: AtomicBool,
}

/// A sample to be taken.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    /// The CPU that was interrupted.
    cpu: u32,
}

impl Samples {
    /// Makes the sampling side of this probe.
    pub(crate) fn new(probe: Probe) -> Self {
        Samples {
            probe,
            is_over: AtomicBool::new(false),
        }
    }

    /// Stops: no more samples are taken, and the pending ones are accounted for. Task context,
    /// sleeps.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Release);
        sys::wait_for_rcu();
    }

    /// Waits for stacks that interrupts have left. Task context, when none is left any more: no
    /// event of the sampler comes.
    pub(crate) fn flush(&self) {
        if let Some(interrupted) = self.probe.context.interrupted.as_ref() {
            interrupted.flush();
        }
    }

    /// Takes a sample; RCU is locked, as `regs` is valid only under it.
    fn take(&self, due: &Due, regs: &Regs<'_>, origin: Origin) {
        let here = self.probe.counters.here(due.cpu);
        if let (Some(here), false) = (here, self.is_over.load(Acquire)) {
            self.probe.sampled(regs, here, here.begin(), origin);
        }
    }

    /// What a sample of a task needs; `None` if the filter excludes the task.
    fn due(&self, current: &Current, here: Here<'_>) -> Option<Due> {
        let context = &*self.probe.context;
        let guard = rcu::read_lock();
        let reading = Reading::under_rcu(&guard);
        let filter = context.filter.get(reading);
        let excluded = filter.and_then(|filter| filter.excluded_program.as_ref());
        let is_excluded = excluded.is_some_and(|program| program.is_run_here(&reading));
        if !is_excluded && context.session_owner.admits(filter, current) {
            return Some(Due { cpu: here.cpu });
        }
        here.begin();
        here.count(Outcome::Filtered);
        None
    }
}

impl Sampled for Samples {
    fn interrupted(&self, stopped: Stopped, by_clock: bool) -> Option<Due> {
        let current = Current::get();
        let here = self.probe.counters.here(current.cpu_hint())?;
        if by_clock {
            here.by_clock();
        }
        match stopped {
            Stopped::Idle => here.idle(),
            Stopped::KernelThread => here.kernel_thread(),
            Stopped::Task => return self.due(&current, here),
        }
        None
    }

    fn sample_in_kernel(&self, due: &Due, regs: &Regs<'_>, ip: u64) {
        self.take(due, regs, Origin::Kernel(ip));
    }

    fn miss(&self, due: &Due) {
        let _guard = rcu::read_lock();
        let here = self.probe.counters.here(due.cpu);
        if let (Some(here), false) = (here, self.is_over.load(Acquire)) {
            here.begin();
            here.count(Outcome::Missed);
        }
    }
}

impl TaskWork for Samples {
    type Job = Due;

    fn run(&self, due: &Due) {
        if !with_user_regs(|regs| self.take(due, regs, Origin::User)) {
            self.miss(due);
        }
    }
}
