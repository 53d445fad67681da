// SPDX-License-Identifier: GPL-2.0-only
//! The gate of a session: programs that start in a new mount namespace wait there before their first
//! instruction, until the reader has probed them or the limit is reached.
//!
//! A program waits in a task work, on its way from `execve` to user space: it holds no lock of the
//! kernel's, the parent of a `vfork` goes on already, and whatever interrupts a sleep ends the wait.

use crate::{
    common::abi::{self, HELD_MAX, HOLD_OVERDUE_MAX},
    context::Context,
    sys::{
        self,
        any_task::{with_current, AnyTask, Look},
        file_ref::HeldRoot,
        memory::{self, GFP_REQUEST},
        program_start::Program,
        task::Current,
        task_points::{Listening, TaskHook, STARTS},
        task_walk::next_task,
        task_work::{Slots, TaskWork},
    },
};
use core::{
    ops::Deref,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    },
};
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{Arc, CondVar, CondVarTimeoutResult, Mutex},
    time::msecs_to_jiffies, //
};

/// Programs between `execve` and the gate, those that wait included.
const ARRIVALS: usize = 4 * HELD_MAX as usize;
/// Released programs that are remembered.
const KNOWN_MAX: usize = 1024;
/// Programs of one container that wait at a time: it must not keep others from waiting.
const SHARE_MAX: usize = HELD_MAX as usize / 4;
const NS_PER_MS: u64 = 1_000_000;

/// A program where it is run: its file, in a root directory of a mount namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Start {
    mount_namespace: u64,
    root: (u64, u64),
    file: (u64, u64),
}

impl Start {
    /// That of the current task; `None` while it exits.
    fn of_current() -> Option<Self> {
        let root = HeldRoot::of_current()?.place();
        let file = Program::of_current()?.key;
        Some(Start {
            mount_namespace: with_current(|task| task.mount_namespace_id(Look::Own)),
            root,
            file: (file.dev, file.ino),
        })
    }
}

/// A program that waits.
struct WaitingProgram {
    id: u64,
    pid: u32,
    start: Start,
    /// The container, as [`SessionOwner::container`](crate::filter::SessionOwner::container) has it.
    container: u64,
    /// Whether the reader knows of it.
    is_seen: bool,
    is_released: bool,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GateEnd {
    Released,
    Overdue,
    Interrupted,
}

/// What is behind the gate's lock.
struct Programs {
    /// How long each waits at most; zero when the gate is open.
    limit_ms: u32,
    waiting: KVVec<WaitingProgram>,
    /// Those that were released, the oldest of which is replaced next.
    known: KVVec<Start>,
    oldest_known: usize,
    /// As `abi::Hold` reports them; `held` is the last id, too.
    report: abi::Hold,
    /// Programs that reached the limit since one was released.
    overdue_in_a_row: u32,
}

impl Programs {
    fn new() -> Result<Self> {
        Ok(Programs {
            limit_ms: 0,
            waiting: memory::room(HELD_MAX as usize)?,
            known: memory::room(KNOWN_MAX)?,
            oldest_known: 0,
            report: abi::Hold::default(),
            overdue_in_a_row: 0,
        })
    }

    /// Adds a program that has to wait; its number.
    fn add(&mut self, start: Start, pid: u32, container: u64) -> Option<u64> {
        if self.limit_ms == 0 || self.known.contains(&start) {
            return None;
        }
        let id = self.report.held.wrapping_add(1);
        let waiting = WaitingProgram {
            id,
            pid,
            start,
            container,
            is_seen: false,
            is_released: false,
        };
        let mut share = self.waiting.iter().filter(|one| one.container == container);
        let is_used_up = share.nth(SHARE_MAX - 1).is_some();
        if is_used_up || self.waiting.push_within_capacity(waiting).is_err() {
            self.report.not_held = self.report.not_held.wrapping_add(1);
            return None;
        }
        self.report.held = id;
        Some(id)
    }

    /// Whether a program may go on.
    fn may_go(&self, id: u64) -> bool {
        let own = self.waiting.iter().find(|one| one.id == id);
        self.limit_ms == 0 || own.is_none_or(|one| one.is_released)
    }

    /// Removes a program that goes on.
    fn remove(&mut self, id: u64, end: GateEnd, waited_ns: u64) {
        if let Some(at) = self.waiting.iter().position(|one| one.id == id) {
            drop(self.waiting.remove(at));
        }
        let report = &mut self.report;
        report.longest_ns = report.longest_ns.max(waited_ns);
        match end {
            GateEnd::Released => {}
            GateEnd::Interrupted => report.interrupted = report.interrupted.wrapping_add(1),
            GateEnd::Overdue => {
                report.overdue = report.overdue.wrapping_add(1);
                self.overdue_in_a_row = self.overdue_in_a_row.wrapping_add(1);
                if self.overdue_in_a_row >= HOLD_OVERDUE_MAX {
                    self.limit_ms = 0;
                }
            }
        }
    }

    /// Releases a program, and all that are the same.
    fn release(&mut self, id: u64) {
        let Some(start) = self.waiting.iter().find(|one| one.id == id) else {
            return;
        };
        let start = start.start;
        self.overdue_in_a_row = 0;
        let same = self.waiting.iter_mut().filter(|one| one.start == start);
        same.for_each(|one| one.is_released = true);
        // There is room for as many as are remembered.
        if let Err(back) = self.known.push_within_capacity(start) {
            if let Some(oldest) = self.known.get_mut(self.oldest_known) {
                *oldest = back.0;
            }
            self.oldest_known = self.oldest_known.wrapping_add(1) % KNOWN_MAX;
        }
    }
}

/// The gate, which the programs that wait at it keep.
#[pin_data]
pub(crate) struct StartGate {
    context: Arc<Context>,
    /// The newest mount namespace of when the gate was made.
    newest: u64,
    slots: Arc<Slots<StartGate>>,
    /// Programs that found no slot.
    turned_away: AtomicU64,
    #[pin]
    programs: Mutex<Programs>,
    #[pin]
    changed: CondVar,
}

impl StartGate {
    /// How long programs wait at most from now on; zero opens the gate.
    pub(crate) fn set_limit(&self, limit_ms: u32) {
        let mut programs = self.programs.lock();
        programs.limit_ms = limit_ms;
        programs.overdue_in_a_row = 0;
        self.changed.notify_all();
    }

    /// Releases a program, and all that are the same.
    pub(crate) fn release(&self, id: u64) {
        self.programs.lock().release(id);
        self.changed.notify_all();
    }

    /// A program that waits and was not returned before: its number and its pid.
    pub(crate) fn next(&self) -> Option<(u64, u32)> {
        let mut programs = self.programs.lock();
        let next = programs.waiting.iter_mut().find(|one| !one.is_seen)?;
        next.is_seen = true;
        Some((next.id, next.pid))
    }

    /// Whether `next` would return one.
    pub(crate) fn has_unseen(&self) -> bool {
        let programs = self.programs.lock();
        let is_unseen = programs.waiting.iter().any(|one| !one.is_seen);
        is_unseen
    }

    /// What `HOLD` reports.
    pub(crate) fn report(&self) -> abi::Hold {
        let programs = self.programs.lock();
        let report = &programs.report;
        abi::Hold {
            limit_ms: programs.limit_ms,
            not_held: report.not_held.wrapping_add(self.turned_away.load(Relaxed)),
            ..*report
        }
    }

    /// Whether a program that `task`, the current one, starts may have to wait.
    #[inline]
    fn stops(&self, task: &AnyTask<'_>) -> bool {
        if task.mount_namespace_id(Look::Own) <= self.newest {
            return false;
        }
        let session_owner = &self.context.session_owner;
        let is_ours = task.parent().is_some_and(|one| session_owner.is(one));
        !is_ours && session_owner.has_in_view(task)
    }
}

impl TaskWork for StartGate {
    type Job = ();

    /// Waits in the current task.
    fn run(&self, (): &()) {
        if with_current(|task| task.is_ending()) {
            return;
        }
        let Some(start) = Start::of_current() else {
            return;
        };
        let (current, session_owner) = (Current::get(), &self.context.session_owner);
        let pid = session_owner.ids(&current).pid;
        let container = session_owner.container(&current);
        let since_ns = sys::now_ns();
        let mut programs = self.programs.lock();
        let Some(id) = programs.add(start, pid, container) else {
            return;
        };
        self.context.waiter.wake();
        let (end, waited_ns) = loop {
            let waited_ns = sys::now_ns().wrapping_sub(since_ns);
            if programs.may_go(id) {
                break (GateEnd::Released, waited_ns);
            }
            let limit_ns = u64::from(programs.limit_ms).wrapping_mul(NS_PER_MS);
            let left_ns = limit_ns.saturating_sub(waited_ns);
            if left_ns == 0 {
                break (GateEnd::Overdue, waited_ns);
            }
            let left = msecs_to_jiffies(left_ns.div_ceil(NS_PER_MS) as u32);
            if let CondVarTimeoutResult::Signal { .. } =
                self.changed.wait_interruptible_timeout(&mut programs, left)
            {
                break (GateEnd::Interrupted, sys::now_ns().wrapping_sub(since_ns));
            }
        };
        programs.remove(id, end, waited_ns);
        if programs.limit_ms == 0 {
            self.changed.notify_all();
        }
    }
}

/// Passes the starts of programs to the gate.
struct Arrivals(Arc<StartGate>);

impl TaskHook for Arrivals {
    fn executed(&self, task: &AnyTask<'_>, _old_tid: u32) {
        let gate = &self.0;
        if !gate.stops(task) {
            return;
        }
        match gate.slots.take() {
            // One that exits does not start.
            Some(slot) => drop(slot.queue(gate.clone(), ())),
            None => drop(gate.turned_away.fetch_add(1, Relaxed)),
        }
    }
}

/// The gate of a session that lives; it opens when this is dropped.
pub(crate) struct OpenGate {
    gate: Arc<StartGate>,
    _listening: Listening,
}

impl OpenGate {
    /// A gate for mount namespaces that are made from now on. Task context, sleeps.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let newest = newest_mount_namespace(context);
        let (slots, programs) = (Slots::new(ARRIVALS)?, Programs::new()?);
        let gate = Arc::pin_init(
            pin_init!(StartGate {
                context: context.clone(),
                newest,
                slots,
                turned_away: AtomicU64::new(0),
                programs <- new_mutex!(programs),
                changed <- new_condvar!(),
            }),
            GFP_REQUEST,
        )?;
        let hook = Arc::new(Arrivals(gate.clone()), GFP_REQUEST)?;
        let mut listening = Listening::new(hook)?;
        listening.want(STARTS).map_err(|(error, _)| match error {
            ENOMEM => error,
            _ => sys::eopnotsupp(),
        })?;
        Ok(OpenGate {
            gate,
            _listening: listening,
        })
    }
}

impl Deref for OpenGate {
    type Target = StartGate;

    fn deref(&self) -> &StartGate {
        &self.gate
    }
}

impl Drop for OpenGate {
    fn drop(&mut self) {
        self.gate.set_limit(0);
    }
}

/// The greatest id of the mount namespaces that processes are in.
fn newest_mount_namespace(context: &Context) -> u64 {
    let namespace = context.session_owner.namespace();
    let (mut newest, mut from) = (0, 1);
    while let Some((number, id)) =
        next_task(namespace, from, |task| task.mount_namespace_id(Look::Wait))
    {
        newest = newest.max(id);
        from = number.wrapping_add(1);
        sys::cond_resched();
    }
    newest
}
