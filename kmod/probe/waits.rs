// SPDX-License-Identifier: GPL-2.0-only
//! Waits of tasks off the CPU, as hits of a probe that has no place.
//!
//! A hit begins when a task leaves its CPU, under the run queue's lock. It ends when the task gets
//! one again: if the wait was long enough, in an interrupt that comes before the task goes on. So a
//! task that sleeps keeps nothing of ours but a row, and is not waited for.

use super::{
    lock_holder,
    wait_rows::{Left, WaitRows},
    wakes::{waker, Wakes}, //
};
use crate::{
    common::{
        abi::{PROBE_LOCKS, WAITS_A_SECOND},
        limit::Bucket,
        program::Register,
        wait::{pair, takes_file, takes_futex, WaitKind, Waker}, //
    },
    probe::{
        counters::{Here, Outcome},
        hit::{Wait, Woken},
        limits::TokenBucket,
        Probe, //
    },
    sys::{
        self,
        any_task::AnyTask,
        by_interrupt::{ByInterrupt, Interrupting},
        kernel_stack,
        memory,
        rcu_slot::Reading,
        system_call,
        task_points::{Switch, TaskHook, Wake},
        uprobe::Regs, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{rcu, Arc}, //
};

/// `TASK_DEAD` of include/linux/sched.h: the task never gets a CPU again.
const STATE_DEAD: u32 = 0x80;

/// A wait that is over, as it is left to the interrupt.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    left: Left,
    took_ns: u64,
    ended_ns: u64,
}

/// The probe whose hits are waits.
struct Hits(Probe);

/// Follows the waits of a session.
pub(crate) struct Waits {
    hits: Arc<Hits>,
    min_ns: u64,
    rows: WaitRows,
    on: KVVec<OnCpu>,
    /// Whether only waits for locks are followed.
    only_locks: bool,
    wakes: Option<Arc<Wakes>>,
}

/// What a CPU needs.
struct OnCpu {
    interrupt: ByInterrupt<Hits>,
    /// What it may still take in this second.
    room: TokenBucket,
}

impl Waits {
    /// Follows waits from `min_ns` on; they are hits of this probe. `wakes` takes what ends them.
    pub(crate) fn new(probe: Probe, min_ns: u64, wakes: Option<Arc<Wakes>>) -> Result<Self> {
        kernel_stack::find_scheduler();
        let only_locks = probe.flags & PROBE_LOCKS != 0;
        let hits = Arc::new(Hits(probe), memory::GFP_REQUEST)?;
        let a_second = Bucket::new(WAITS_A_SECOND, WAITS_A_SECOND).ok_or(EINVAL)?;
        let on = memory::made_for_each_cpu(|| {
            Ok(OnCpu {
                interrupt: ByInterrupt::new(hits.clone()),
                room: TokenBucket::new(a_second),
            })
        })?;
        Ok(Waits {
            min_ns,
            rows: WaitRows::new()?,
            on,
            hits,
            only_locks,
            wakes,
        })
    }

    /// Accounts for the waits that go on. Task context, after the last switch.
    pub(crate) fn end(&self) {
        self.on.iter().for_each(|on| on.interrupt.wait());
        if let Some(interrupted) = self.hits.0.context.interrupted.as_ref() {
            interrupted.flush();
        }
        if let Some(here) = self.hits.0.counters.here(0) {
            here.unfinished(self.rows.count());
        }
    }

    /// The current task leaves its CPU; `clock_ns` is the scheduler's.
    #[inline]
    fn left(&self, here: Here<'_>, switch: &Switch<'_>, clock_ns: u64) {
        let task = &switch.prev;
        if !task.is_of_user() || switch.prev_state & STATE_DEAD != 0 {
            return;
        }
        let sequence = here.begin();
        if !self.admits(task, switch.reading) {
            return here.count(Outcome::Filtered);
        }
        let is_blocked = !switch.preempted && switch.prev_state != 0;
        let holder = match self.only_locks {
            true if is_blocked => self.holder(switch.reading),
            true => None,
            false => Some(0),
        };
        let Some(holder) = holder else {
            return here.count(Outcome::Rejected);
        };
        let left = Left {
            at_ns: clock_ns,
            run_delay_ns: task.run_delay_ns(),
            state: match switch.preempted {
                true => 0,
                false => switch.prev_state,
            },
            sequence: sequence as u32,
            holder,
            woken: Woken::default(),
        };
        if !self.rows.put(task.address(), &left) {
            here.count(Outcome::NoRow);
        }
    }

    /// Who holds the lock that the current task begins to wait for, as `Context::LockHolder`; none if
    /// it waits for something else.
    fn holder(&self, reading: Reading<'_>) -> Option<u64> {
        let owner = &self.hits.0.context.session_owner;
        Some(match lock_holder::of_current(reading)? {
            Some((proof, holder)) => pair(proof as u32, owner.tid(&holder)),
            None => 0,
        })
    }

    /// Whether the current task is traced.
    #[inline]
    fn admits(&self, task: &AnyTask<'_>, reading: Reading<'_>) -> bool {
        let context = &*self.hits.0.context;
        let filter = context.filter.get(reading);
        let excluded = filter.and_then(|filter| filter.excluded_program.as_ref());
        let is_excluded = excluded.is_some_and(|program| program.is_run_here(&reading));
        !is_excluded && context.session_owner.admits(filter, task)
    }

    /// A task gets this CPU.
    #[inline]
    fn came(&self, here: Here<'_>, task: &AnyTask<'_>, clock_ns: u64) {
        if !task.is_of_user() {
            return;
        }
        let Some(left) = self.rows.take(task.address()) else {
            return;
        };
        let took_ns = clock_ns.saturating_sub(left.at_ns);
        if took_ns < self.min_ns {
            return here.below(took_ns);
        }
        self.take(here, task, left, took_ns);
    }

    /// Leaves a wait that was long enough to the interrupt.
    #[inline(never)]
    fn take(&self, here: Here<'_>, task: &AnyTask<'_>, left: Left, took_ns: u64) {
        let now_ns = sys::now_ns();
        let Some(on) = self.on.get(here.cpu as usize) else {
            return here.count(Outcome::Missed);
        };
        if on.room.take(now_ns, 1) != Some(true) {
            return here.count(Outcome::Limited);
        }
        let over = Over {
            left,
            took_ns,
            ended_ns: now_ns,
        };
        if !on.interrupt.leave(task.address(), over) {
            here.count(Outcome::Missed);
        }
    }

    /// What the current CPU does, which wakes a task that has waited since `left_ns`.
    #[inline(never)]
    fn wake(&self, left_ns: u64, reading: Reading<'_>) -> Woken {
        let at_ns = sys::now_ns();
        let (waker, task) = waker(reading);
        let Some(task) = task else {
            return woken(at_ns, waker, 0);
        };
        let owner = &self.hits.0.context.session_owner;
        if !owner.has_in_view(&task) {
            return woken(at_ns, Waker::Unknown, 0);
        }
        let tid = owner.tid(&task);
        let takes = matches!(waker, Waker::Thread | Waker::Sender);
        let at_ns = match self.wakes.as_ref().filter(|_| takes) {
            Some(wakes) => {
                let waited_ns = sys::scheduler_clock_ns().saturating_sub(left_ns);
                wakes.woken(&task, waited_ns, at_ns)
            }
            None => at_ns,
        };
        woken(at_ns, waker, tid)
    }
}

fn woken(at_ns: u64, waker: Waker, tid: u32) -> Woken {
    Woken {
        at_ns,
        by: pair(waker as u32, tid),
    }
}

impl TaskHook for Waits {
    fn switched(&self, switch: &Switch<'_>) {
        let Some(here) = self.hits.0.counters.here_now() else {
            return;
        };
        let clock_ns = sys::scheduler_clock_ns();
        self.left(here, switch, clock_ns);
        self.came(here, &switch.next, clock_ns);
    }

    fn woken(&self, task: &AnyTask<'_>, how: Wake, reading: Reading<'_>) {
        if let Wake::Begun = how {
            let wake = |left_ns| self.wake(left_ns, reading);
            self.rows.note_wake(task.address(), wake);
        }
    }
}

impl Interrupting for Hits {
    type Left = Over;

    fn run(&self, over: &Over, regs: &Regs<'_>) {
        let Some(here) = self.0.counters.here_now() else {
            return;
        };
        let guard = rcu::read_lock();
        let reading = Reading::under_rcu(&guard);
        let call = system_call::of_current(regs);
        let argument = regs.get(Register::Rdi).unwrap_or(0);
        let fd = argument as u32;
        let left = &over.left;
        let takes_file = |number: &u32| left.state != 0 && takes_file(*number);
        let waits_at_lock = |number: &u32| left.state != 0 && takes_futex(*number);
        let run_delay_ns = AnyTask::current(reading).run_delay_ns();
        let wait = Wait {
            kind: WaitKind::of(left.state, call, argument, || {
                system_call::file_kind(fd, reading)
            }),
            call: call.number(),
            file: call.number().filter(takes_file).map(|_| fd),
            for_cpu_ns: run_delay_ns.saturating_sub(left.run_delay_ns),
            woken: left.woken,
            lock: call.number().filter(waits_at_lock).map(|_| argument),
            holder: left.holder,
        };
        let time = over.ended_ns.saturating_sub(over.took_ns)..over.ended_ns;
        self.0.waited(regs, here, left.sequence.into(), time, wait);
    }

    fn miss(&self, _over: &Over) {
        if let Some(here) = self.0.counters.here_now() {
            here.count(Outcome::Missed);
        }
    }
}
