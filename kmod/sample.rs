// SPDX-License-Identifier: GPL-2.0-only
//! Samples of tasks, as hits of a probe that has no place.
//!
//! A sample is a hit when its interrupt comes, and ends as what a hit ends as. Those that wait
//! for their task when the probe goes are off.

use crate::{
    counters::{End, Here},
    event::Origin,
    probe::Probe,
    sys::{
        later::Later,
        sampler::{with_user_regs, Sampled, Stopped},
        swap::Reading,
        task::Current,
        uprobe::Regs, //
    },
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::Relaxed, //
};
use kernel::sync::rcu;

/// The probe whose hits are samples.
pub(crate) struct Samples {
    probe: Probe,
    is_over: AtomicBool,
}

/// A sample that is to be taken.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    /// The CPU that was interrupted.
    cpu: u32,
    sequence: u64,
}

impl Samples {
    /// Those of this probe.
    pub(crate) fn new(probe: Probe) -> Self {
        Samples {
            probe,
            is_over: AtomicBool::new(false),
        }
    }

    /// No sample is taken any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn take(&self, due: &Due, regs: &Regs<'_>, origin: Origin) {
        let Some(here) = self.probe.counters.here(due.cpu) else {
            return;
        };
        match self.is_over.load(Relaxed) {
            true => here.end(End::Off),
            false => self.probe.sampled(regs, here, due.sequence, origin),
        }
    }

    fn end_as(&self, due: &Due, end: End) {
        if let Some(here) = self.probe.counters.here(due.cpu) {
            here.end(end);
        }
    }

    /// Counts a sample of a task; none when the filter leaves it out.
    fn begin(&self, current: &Current, here: Here<'_>) -> Option<Due> {
        let sequence = here.begin();
        let shared = &*self.probe.shared;
        let guard = rcu::read_lock();
        let filter = shared.filter.get(Reading::under_rcu(&guard));
        if shared.opener.admits(filter, current) {
            let cpu = here.cpu;
            return Some(Due { cpu, sequence });
        }
        here.end(End::Filtered);
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
            Stopped::Task => return self.begin(&current, here),
        }
        None
    }

    fn sample_in_kernel(&self, due: &Due, regs: &Regs<'_>, ip: u64) {
        self.take(due, regs, Origin::Kernel(ip));
    }

    fn miss(&self, due: &Due) {
        self.end_as(due, End::Missed);
    }
}

impl Later for Samples {
    type Job = Due;

    fn run(&self, due: &Due) {
        if !with_user_regs(|regs| self.take(due, regs, Origin::User)) {
            self.miss(due);
        }
    }
}
