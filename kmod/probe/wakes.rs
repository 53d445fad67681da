// SPDX-License-Identifier: GPL-2.0-only
//! Wake-ups of tasks that have waited, as hits of a probe that has no place: each is taken of the
//! task that wakes, in an interrupt that comes as soon as the scheduler's locks are released.

use crate::{
    common::{
        abi::WAITS_A_SECOND,
        limit::Bucket,
        wait::{may_send, Waker}, //
    },
    probe::{
        counters::Outcome,
        limits::TokenBucket,
        Probe, //
    },
    sys::{
        self,
        any_task::AnyTask,
        by_interrupt::{with_user_regs, ByInterrupt, Interrupting},
        memory,
        rcu_slot::Reading,
        system_call,
        uprobe::Regs, //
    }, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU64,
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The hit of a wake-up, as it is left to the interrupt.
#[derive(Clone, Copy)]
pub(crate) struct Noted {
    at_ns: u64,
    sequence: u64,
}

/// The probe whose hits are wake-ups.
struct Hits(Probe);

/// Takes the wake-ups of a session.
pub(crate) struct Wakes {
    hits: Arc<Hits>,
    min_ns: u64,
    on: KVVec<OnCpu>,
    is_over: AtomicBool,
}

/// What a CPU needs.
struct OnCpu {
    interrupt: ByInterrupt<Hits>,
    /// What it may still take in this second.
    room: TokenBucket,
    /// The task of the last hit, and its time.
    last: (AtomicUsize, AtomicU64),
}

impl Wakes {
    /// Of tasks that have waited for `min_ns`; they are hits of this probe.
    pub(crate) fn new(probe: Probe, min_ns: u64) -> Result<Self> {
        let hits = Arc::new(Hits(probe), memory::GFP_REQUEST)?;
        let a_second = Bucket::new(WAITS_A_SECOND, WAITS_A_SECOND).ok_or(EINVAL)?;
        let on = memory::made_for_each_cpu(|| {
            Ok(OnCpu {
                interrupt: ByInterrupt::new(hits.clone()),
                room: TokenBucket::new(a_second),
                last: Default::default(),
            })
        })?;
        Ok(Wakes {
            hits,
            min_ns,
            on,
            is_over: AtomicBool::new(false),
        })
    }

    /// Stops: no more wake-ups are taken, and each that was is counted. Task context, sleeps.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Release);
        sys::wait_for_rcu();
        self.on.iter().for_each(|on| on.interrupt.wait());
        if let Some(interrupted) = self.hits.0.context.interrupted.as_ref() {
            interrupted.flush();
        }
    }

    /// The current task, a program's, wakes one that has waited for `waited_ns`; gives the time of
    /// the hit. RCU is locked.
    #[inline(never)]
    pub(super) fn woken(&self, task: &AnyTask<'_>, waited_ns: u64, now_ns: u64) -> u64 {
        if waited_ns < self.min_ns || self.is_over.load(Acquire) {
            return now_ns;
        }
        let Some(here) = self.hits.0.counters.here_now() else {
            return now_ns;
        };
        let Some(on) = self.on.get(here.cpu as usize) else {
            return now_ns;
        };
        let (last_task, last_ns) = &on.last;
        let is_again = on.interrupt.has_left() && last_task.load(Relaxed) == task.address();
        if is_again {
            return last_ns.load(Relaxed);
        }
        let sequence = here.begin();
        if on.room.take(now_ns, 1) != Some(true) {
            here.count(Outcome::Limited);
            return now_ns;
        }
        let noted = Noted {
            at_ns: now_ns,
            sequence,
        };
        if !on.interrupt.leave(task.address(), noted) {
            here.count(Outcome::Missed);
            return now_ns;
        }
        last_task.store(task.address(), Relaxed);
        last_ns.store(now_ns, Relaxed);
        now_ns
    }
}

/// What the current CPU does, and for which task.
pub(super) fn waker(reading: Reading<'_>) -> (Waker, Option<AnyTask<'_>>) {
    let task = AnyTask::current(reading);
    if !sys::in_interrupt() {
        return match task.is_of_user() {
            true => (Waker::Thread, Some(task)),
            false => (Waker::Kernel, Some(task)),
        };
    }
    let mut sends = false;
    if sys::in_softirq() && task.is_of_user() {
        with_user_regs(|regs| {
            let call = system_call::of_current(regs);
            sends = call.number().is_some_and(may_send);
        });
    }
    match sends {
        true => (Waker::Sender, Some(task)),
        false => (Waker::Interrupt, None),
    }
}

impl Interrupting for Hits {
    type Left = Noted;

    fn run(&self, noted: &Noted, regs: &Regs<'_>) {
        if let Some(here) = self.0.counters.here_now() {
            self.0.woke(regs, here, noted.sequence, noted.at_ns);
        }
    }

    fn miss(&self, _noted: &Noted) {
        if let Some(here) = self.0.counters.here_now() {
            here.count(Outcome::Missed);
        }
    }
}
