// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's tracepoints of tasks. Each is registered once for the whole module, from the first
//! session that requests it until the last one drops it; each call is passed to all listeners.
//!
//! Contexts that listeners must respect (7.2): forks, program starts and exits come in task
//! context, with interrupts on; a new name, too, of any task; moves to another control group under
//! a spin lock with interrupts off; other namespaces with preemption off; a switch with the run
//! queue's lock held; a wake-up under scheduler locks, in any context but NMI. So no listener
//! sleeps, wakes a task, or takes a lock with interrupts on.
//!
//! Listeners are found through slots that are read under RCU, as a tracepoint's own functions are.
//! Neither is waited for while the other lock is held.

mod calls;

use super::{
    any_task::AnyTask,
    helpers,
    memory::GFP_REQUEST,
    rcu_slot::{RcuSlot, Reading},
    tracepoint::find, //
};
use crate::common::abi::{
    TASKS_CPU, TASKS_LIFE, TASKS_MOVES, TASKS_NAMES, TASKS_SWITCHES, TASKS_WAKEUPS,
};
use core::{
    ffi::{c_void, CStr},
    sync::atomic::{AtomicUsize, Ordering::Relaxed}, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::{global_lock, rcu, Arc}, //
};

/// The maximum number of sessions that listen at a time.
const LISTENERS_MAX: usize = 64;

/// As the `TASKS_*`: the beginnings of wake-ups alone. No session requests it by itself.
pub(crate) const WAKERS: u32 = 1 << 31;
/// As the `TASKS_*`: the starts of programs alone. No session requests it by itself.
pub(crate) const STARTS: u32 = 1 << 30;

/// A switch from one task to another.
pub(crate) struct Switch<'a> {
    /// The previous task: the current one.
    pub(crate) prev: AnyTask<'a>,
    /// The next task.
    pub(crate) next: AnyTask<'a>,
    /// The state in which the previous task was left.
    pub(crate) prev_state: u32,
    /// Whether it was preempted in the kernel.
    pub(crate) preempted: bool,
    /// The RCU section of the call.
    pub(crate) reading: Reading<'a>,
}

/// The stage of a wake-up.
#[derive(Clone, Copy)]
pub(crate) enum Wake {
    /// It begins.
    Begun,
    /// The task may run.
    Done,
    /// The task is new, and may run.
    New,
}

/// A listener to events of tasks, of which it does nothing by default. Runs in the contexts above: no
/// method may sleep, fault or panic.
pub(crate) trait TaskHook: Send + Sync + 'static {
    /// The current task has made `child`, which does not run yet.
    fn made(&self, _maker: &AnyTask<'_>, _child: &AnyTask<'_>) {}
    /// The current task executes another program; its thread's number was `old_tid`, as the
    /// initial namespace numbers it.
    fn executed(&self, _task: &AnyTask<'_>, _old_tid: u32) {}
    /// The current task ends; whether it is the last thread of its process.
    fn exited(&self, _task: &AnyTask<'_>, _is_last: bool) {}
    /// A task is about to get another name.
    fn renamed(&self, _task: &AnyTask<'_>, _comm: &[u8; 16]) {}
    /// The current task may be in other namespaces.
    fn in_other_namespaces(&self, _task: &AnyTask<'_>) {}
    /// A task is in another control group.
    fn in_other_cgroup(&self, _task: &AnyTask<'_>) {}
    /// A CPU switches from one task to another.
    fn switched(&self, _switch: &Switch<'_>) {}
    /// A task is woken.
    fn woken(&self, _task: &AnyTask<'_>, _how: Wake, _reading: Reading<'_>) {}
}

/// A tracepoint, or a kprobe that replaces one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    Made,
    Executed,
    Exited,
    Renamed,
    CgroupAttached,
    Switched,
    Waking,
    Wakeup,
    WakeupNew,
    /// A kprobe, as the kernel has no tracepoint for it.
    Namespaces,
}

const POINTS: [Point; 10] = [
    Point::Made,
    Point::Executed,
    Point::Exited,
    Point::Renamed,
    Point::CgroupAttached,
    Point::Switched,
    Point::Waking,
    Point::Wakeup,
    Point::WakeupNew,
    Point::Namespaces,
];

impl Point {
    /// The `TASKS_*` that need it.
    fn of(self) -> u32 {
        match self {
            // Covers more than `sched_process_fork`: also workers that the kernel makes of a
            // process's threads (io_uring, vhost). It comes before any other task can wake the new
            // one.
            Point::Made | Point::Exited => TASKS_LIFE,
            Point::Executed => TASKS_LIFE | STARTS,
            Point::Renamed => TASKS_NAMES,
            Point::CgroupAttached => TASKS_MOVES | TASKS_CPU,
            Point::Switched => TASKS_SWITCHES | TASKS_CPU,
            Point::Waking => TASKS_WAKEUPS | WAKERS,
            Point::Wakeup | Point::WakeupNew => TASKS_WAKEUPS,
            Point::Namespaces => TASKS_MOVES,
        }
    }

    /// The tracepoint, and the function that is registered there.
    fn tracepoint(self) -> Option<(&'static CStr, *mut c_void)> {
        Some(match self {
            Point::Made => (c"task_newtask", calls::made as *mut c_void),
            Point::Executed => (c"sched_process_exec", calls::executed as *mut c_void),
            Point::Exited => (c"sched_process_exit", calls::exited as *mut c_void),
            Point::Renamed => (c"task_rename", calls::renamed as *mut c_void),
            Point::CgroupAttached => (c"cgroup_attach_task", calls::cgroup_attached as *mut c_void),
            Point::Switched => (c"sched_switch", calls::switched as *mut c_void),
            Point::Waking => (c"sched_waking", calls::waking as *mut c_void),
            Point::Wakeup => (c"sched_wakeup", calls::wakeup as *mut c_void),
            Point::WakeupNew => (c"sched_wakeup_new", calls::wakeup_new as *mut c_void),
            Point::Namespaces => return None,
        })
    }

    fn register(self) -> Result {
        let Some((name, probe)) = self.tracepoint() else {
            // SAFETY: `namespaces_probed` is what it must be; it is registered once, as the
            // registry's lock is held and its count was zero.
            return to_result(unsafe {
                helpers::nsprobe_namespaces_probe(calls::namespaces_probed)
            });
        };
        let point = find(name).ok_or(ENOENT)?;
        // SAFETY: One of the kernel's own tracepoints, which stay for ever; the function
        // takes what it gives (`tracepoint.c` lets the compiler check that) and no data.
        to_result(unsafe {
            bindings::tracepoint_probe_register(point.as_ptr(), probe, core::ptr::null_mut())
        })
    }

    /// Calls may still be running afterwards.
    fn unregister(self) {
        let Some((name, probe)) = self.tracepoint() else {
            // SAFETY: It was registered. Task context.
            return unsafe { helpers::nsprobe_namespaces_unprobe() };
        };
        if let Some(point) = find(name) {
            // SAFETY: It was registered with this function and no data. Task context.
            unsafe {
                bindings::tracepoint_probe_unregister(point.as_ptr(), probe, core::ptr::null_mut());
            }
        }
    }
}

/// The number of listeners of each point.
struct Registry {
    users: [u32; POINTS.len()],
}

global_lock! {
    // SAFETY: `set_up` comes before the device, by which alone one gets here.
    unsafe(uninit) static REGISTRY: Mutex<Registry> = Registry { users: [0; POINTS.len()] };
}

type Slot = RcuSlot<Arc<dyn TaskHook>>;

/// The listeners.
static SLOTS: [Slot; LISTENERS_MAX] = [const { RcuSlot::new() }; LISTENERS_MAX];
/// An upper bound of the slots in use.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);

/// Makes the registry.
///
/// # Safety
///
/// Once, when the module is loaded.
unsafe fn init() {
    // SAFETY: By this function's contract.
    unsafe { REGISTRY.init() };
}

/// The module's part in this, made when it is loaded.
pub(crate) struct Ready(());

impl Ready {
    /// To be called once, before there is a device; a second call has no effect.
    pub(crate) fn new() -> Self {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        if CALLS.fetch_add(1, Relaxed) == 0 {
            // SAFETY: The first call, which is that of the module's start.
            unsafe { init() };
        }
        Ready(())
    }
}

/// A registered listener, until this is dropped, which sleeps.
///
/// # Invariants
///
/// The slot belongs to this one; it is one user of each point of `wants`.
pub(crate) struct Listening {
    slot: usize,
    wants: u32,
}

impl Listening {
    /// A listener without events. `EBUSY` if too many sessions listen.
    pub(crate) fn new(hook: Arc<dyn TaskHook>) -> Result<Self> {
        let _registry = REGISTRY.lock();
        let mut hook = KBox::new(hook, GFP_REQUEST)?;
        for (index, slot) in SLOTS.iter().enumerate() {
            match slot.fill(hook) {
                Ok(()) => {
                    SLOTS_USED.fetch_max(index.wrapping_add(1), Relaxed);
                    // INVARIANT: It was free, and no point is requested.
                    return Ok(Listening {
                        slot: index,
                        wants: 0,
                    });
                }
                Err(back) => hook = back,
            }
        }
        Err(EBUSY)
    }

    /// Delivers these `TASKS_*` from now on. On an error nothing changes, and the error has the
    /// `TASKS_*` that failed. Events that are no longer requested have stopped when this returns.
    pub(crate) fn want(&mut self, wants: u32) -> Result<(), (Error, u32)> {
        let mut registry = REGISTRY.lock();
        let before = self.wants;
        let is_new = |point: Point| point.of() & before == 0 && point.of() & wants != 0;
        let is_over = |point: Point| point.of() & before != 0 && point.of() & wants == 0;
        for (index, point) in POINTS.into_iter().enumerate() {
            if !is_new(point) {
                continue;
            }
            if let Err(error) = registry.add(index, point) {
                registry.remove_all(|other, at| at < index && is_new(other));
                wait_for_calls();
                return Err((error, point.of() & wants));
            }
        }
        // INVARIANT: What is new was added, and what is over is removed.
        registry.remove_all(|point, _| is_over(point));
        self.wants = wants;
        // Also if a point stays, for another session or for what is still requested: a call may be
        // delivering an event that was requested until now.
        if before & !wants != 0 {
            wait_for_calls();
        }
        Ok(())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Nothing that is added can be missing.
        let _ = self.want(0);
        let _registry = REGISTRY.lock();
        // INVARIANT: The slot was this one's.
        drop(SLOTS.get(self.slot).and_then(RcuSlot::take_out));
        let used = SLOTS
            .iter()
            .rposition(|slot| slot.with(|hook| hook.is_some()));
        SLOTS_USED.store(used.map_or(0, |last| last.wrapping_add(1)), Relaxed);
    }
}

impl Registry {
    fn has(&self, index: usize) -> bool {
        self.users.get(index).is_some_and(|users| *users != 0)
    }

    /// One more user of a point.
    fn add(&mut self, index: usize, point: Point) -> Result {
        if !self.has(index) {
            point.register()?;
        }
        if let Some(users) = self.users.get_mut(index) {
            *users = users.wrapping_add(1);
        }
        Ok(())
    }

    /// One user less of each point that is chosen by itself and its index. Calls of those
    /// that have none left may be under way.
    fn remove_all(&mut self, is_chosen: impl Fn(Point, usize) -> bool) {
        for ((index, point), users) in POINTS.into_iter().enumerate().zip(&mut self.users) {
            if is_chosen(point, index) {
                *users = users.wrapping_sub(1);
                if *users == 0 {
                    point.unregister();
                }
            }
        }
    }
}

/// Waits until no call of a point is under way that began before. Task context, sleeps.
fn wait_for_calls() {
    // SAFETY: Task context, in no tracepoint's function.
    unsafe { helpers::nsprobe_tracepoints_sync() };
}

/// Passes each listener to `tell`, which must not sleep.
#[inline(always)]
fn each(mut tell: impl FnMut(&dyn TaskHook, Reading<'_>)) {
    let guard = rcu::read_lock();
    let reading = Reading::under_rcu(&guard);
    for slot in SLOTS.iter().take(SLOTS_USED.load(Relaxed)) {
        if let Some(hook) = slot.get(reading) {
            tell(&**hook, reading);
        }
    }
}
