// SPDX-License-Identifier: GPL-2.0-only
//! Records the events of tasks for a session.
//!
//! All of this runs in tracepoints, some with the run queue's lock held or in an interrupt. Its
//! locks are raw and keep interrupts off (`sys/lock.rs`), so that no event can occur while the same
//! CPU holds one of them, and nothing that has tracepoints is called under them. A hit that is
//! interrupted while it writes its record holds none of them: it has reserved its room, and later
//! records are reserved after it.

use crate::{
    common::{
        abi::{
            TASKS_CPU,
            TASKS_LIFE,
            TASKS_MOVES,
            TASKS_NAMES,
            TASKS_SWITCHES,
            TASKS_UNFILTERED,
            TASKS_WAKEUPS,
            TASK_KIND_CGROUP,
            TASK_KIND_EXEC,
            TASK_KIND_EXIT,
            TASK_KIND_FORK,
            TASK_KIND_NAME,
            TASK_KIND_NAMESPACES,
            TASK_KIND_SWITCH,
            TASK_KIND_WAKE, //
        },
        record::{body_of, KIND_SWITCH, KIND_TASK, KIND_WAKE},
        task::{
            SwitchRecord,
            WakeRecord,
            SWITCH_FROM_IDLE,
            SWITCH_PREEMPTED,
            SWITCH_TO_IDLE,
            TASK_ARGS_ABSENT,
            TASK_ARGS_CUT,
            TASK_CGROUP,
            TASK_EXEC,
            TASK_EXIT,
            TASK_FORK,
            TASK_LAST,
            TASK_NAME,
            TASK_NAMESPACES,
            WAKE_BEGUN,
            WAKE_DONE,
            WAKE_NEW, //
        }, //
    },
    context::Context,
    filter::Filter,
    sys::{
        self,
        any_task::{with_current, AnyTask, Look},
        lock::{raw_lock, RawLock},
        memory,
        program_start::{read_args, Args, Program},
        rcu_slot::Reading,
        task::Current,
        task_points::{Switch, TaskHook, Wake}, //
    },
    tasks::{
        counters::{End, TaskCounts},
        cpu_times::CpuTable,
        record::{Described, Levels}, //
    }, //
};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release}, //
};
use kernel::{
    prelude::*,
    sync::{Arc, SetOnce}, //
};
use zerocopy::transmute_ref;

const SWITCH_WORDS: usize = size_of::<SwitchRecord>() / 8;
const WAKE_WORDS: usize = size_of::<WakeRecord>() / 8;
/// The fraction of a ring that the arguments of one program may take.
const ARGS_SHARE: u64 = 8;
/// `TASK_REPORT_MAX` of include/linux/sched.h: preempted in the kernel.
const STATE_PREEMPTED: u16 = 0x100;

/// The task events of a session.
pub(crate) struct TaskEvents {
    context: Arc<Context>,
    /// The recorded events, as `TASKS_*`.
    flags: AtomicU32,
    /// The maximum number of bytes of a program's arguments.
    args_bytes: AtomicU32,
    counts: TaskCounts,
    /// A buffer for the arguments of one program on each CPU; set once arguments are requested.
    args: SetOnce<KVVec<RawLock<KVVec<u64>>>>,
    /// Set once CPU times are kept.
    pub(crate) cpu_times: SetOnce<CpuTable>,
}

impl TaskEvents {
    /// Records nothing yet.
    pub(crate) fn new(context: Arc<Context>) -> Result<Self> {
        Ok(TaskEvents {
            context,
            flags: AtomicU32::new(0),
            args_bytes: AtomicU32::new(0),
            counts: TaskCounts::new()?,
            args: SetOnce::new(),
            cpu_times: SetOnce::new(),
        })
    }

    /// The recorded events, as `TASKS_*`.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Acquire)
    }

    /// Sets the events to record from now on, as `TASKS_*`.
    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Release);
    }

    /// Sets how many bytes of the arguments are recorded. Task context.
    pub(crate) fn set_args(&self, bytes: u32) -> Result {
        let fits = self.context.rings.as_ref();
        let fits = fits.map_or(0, |rings| rings.ring_bytes() / ARGS_SHARE);
        if bytes != 0 && self.args.as_ref().is_none() {
            self.args.populate(args_room()?);
        }
        self.args_bytes
            .store(u64::from(bytes).min(fits) as u32, Relaxed);
        Ok(())
    }

    /// The events by outcome.
    pub(crate) fn counts(&self) -> &TaskCounts {
        &self.counts
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Whether a task is traced.
    fn admits(&self, filter: Option<&Filter>, task: &AnyTask<'_>) -> bool {
        let session_owner = &self.context.session_owner;
        match self.has(TASKS_UNFILTERED) {
            true => session_owner.has_in_view(task),
            false => session_owner.admits(filter, task),
        }
    }

    /// A task's tid for the session owner; zero for one that it does not see, and for an idle one.
    fn tid(&self, task: &AnyTask<'_>) -> u32 {
        let session_owner = &self.context.session_owner;
        match session_owner.namespace().is_initial() {
            // Also for a task that has been reaped, and leaves its CPU for the last time.
            true => task.number(),
            false if task.is_idle() => 0,
            false => session_owner.tid(task),
        }
    }

    /// Whether a task is traced now.
    pub(crate) fn counts_now(&self, task: &AnyTask<'_>) -> bool {
        self.context.filter.with(|filter| self.admits(filter, task))
    }

    /// Records an event of `task`, if the task is traced; `fill` adds what only the caller knows.
    fn record(
        &self,
        kind: usize,
        what: u16,
        task: &AnyTask<'_>,
        how: Look,
        counts: bool,
        fill: impl FnOnce(&mut Described, &mut Levels),
    ) {
        let cpu = Current::get().cpu_hint();
        let mut levels = Levels::new();
        let described = match counts {
            true => Described::new(
                &self.context.session_owner,
                task,
                how,
                sys::now_ns(),
                &mut levels,
            ),
            false => None,
        };
        let Some(mut described) = described else {
            return self.counts.count(cpu, kind, End::Filtered);
        };
        described.record.what = what;
        described.record.cpu = cpu;
        fill(&mut described, &mut levels);
        self.put(cpu, kind, &described, &levels, &[]);
    }

    fn put(&self, cpu: u32, kind: usize, described: &Described, levels: &Levels, args: &[u64]) {
        let is_in = described.with_words(|task| {
            let parts = [task, levels.as_slice(), args, &[]];
            self.append(cpu, KIND_TASK, &parts, described.record.time_ns)
        });
        let end = if is_in { End::Recorded } else { End::Lost };
        self.counts.count(cpu, kind, end);
    }

    fn append(&self, cpu: u32, kind: u16, parts: &[&[u64]; 4], now_ns: u64) -> bool {
        self.context.append_quietly(cpu, kind, parts, now_ns)
    }

    /// The program that the current task starts, as an object; zero for none.
    fn program(&self, cpu: u32, task: &Described) -> u32 {
        let Some(program) = Program::of_current() else {
            return 0;
        };
        match self
            .context
            .objects
            .identify_program(program, task.pid, true)
        {
            Ok(found) => {
                if found.is_new {
                    self.context
                        .announce_quietly(cpu, found.id, task.record.time_ns);
                }
                found.id
            }
            Err(_) => 0,
        }
    }

    /// Records the start of a program with its arguments.
    fn put_exec(&self, cpu: u32, described: &mut Described, levels: &Levels) {
        let bytes = self.args_bytes.load(Relaxed) as usize;
        let all = self.args.as_ref().filter(|_| bytes != 0);
        let Some(room) = all.and_then(|all| all.get(cpu as usize)) else {
            return self.put(cpu, TASK_KIND_EXEC, described, levels, &[]);
        };
        // Interrupts are off, so the buffer is this CPU's while its lock is held.
        let mut room = room.lock();
        let Args { found, is_cut } = read_args(&mut room, bytes);
        described.record.args_bytes = found as u32;
        described.record.flags |= match (found, is_cut) {
            (_, false) => 0,
            (0, true) => TASK_ARGS_ABSENT,
            (_, true) => TASK_ARGS_CUT,
        };
        let words = room.get(..found.div_ceil(8)).unwrap_or(&[]);
        self.put(cpu, TASK_KIND_EXEC, described, levels, words);
    }

    fn record_switch(&self, cpu: u32, switch: &Switch<'_>, counts: bool) {
        let end = match counts {
            false => End::Filtered,
            true => self.put_switch(cpu, switch),
        };
        self.counts.count(cpu, TASK_KIND_SWITCH, end);
    }

    fn put_switch(&self, cpu: u32, switch: &Switch<'_>) -> End {
        let Switch { prev, next, .. } = switch;
        let state = match switch.preempted {
            true => STATE_PREEMPTED,
            false => prev.state_left(switch.prev_state) as u16,
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let could_run = state == 0 || switch.preempted;
        let record = SwitchRecord {
            time_ns: sys::now_ns(),
            prev_tid: self.tid(prev),
            next_tid: self.tid(next),
            prev_state: state,
            cpu: cpu as u16,
            prev_priority: prev.priority() as u8,
            next_priority: next.priority() as u8,
            flags: flag(prev.is_idle(), SWITCH_FROM_IDLE)
                | flag(next.is_idle(), SWITCH_TO_IDLE)
                | flag(could_run && !prev.is_idle(), SWITCH_PREEMPTED),
            ..SwitchRecord::default()
        };
        let words: &[u64; SWITCH_WORDS] = transmute_ref!(&record);
        let parts = [body_of(words), &[], &[], &[]];
        match self.append(cpu, KIND_SWITCH, &parts, record.time_ns) {
            true => End::Recorded,
            false => End::Lost,
        }
    }

    fn put_wake(&self, cpu: u32, task: &AnyTask<'_>, how: Wake) -> End {
        let by_tid = with_current(|by| self.tid(by));
        let record = WakeRecord {
            time_ns: sys::now_ns(),
            tid: self.tid(task),
            by_tid,
            cpu: cpu as u16,
            target_cpu: task.cpu() as u16,
            what: match how {
                Wake::Begun => WAKE_BEGUN,
                Wake::Done => WAKE_DONE,
                Wake::New => WAKE_NEW,
            },
            priority: task.priority() as u8,
            ..WakeRecord::default()
        };
        let words: &[u64; WAKE_WORDS] = transmute_ref!(&record);
        let parts = [body_of(words), &[], &[], &[]];
        match self.append(cpu, KIND_WAKE, &parts, record.time_ns) {
            true => End::Recorded,
            false => End::Lost,
        }
    }
}

/// Allocates buffers for arguments on each CPU.
fn args_room() -> Result<KVVec<RawLock<KVVec<u64>>>> {
    let words = crate::common::task::TASK_ARGS_MAX / 8;
    memory::made_for_each_cpu(|| {
        let room = memory::zeroed(words)?;
        Ok(raw_lock!(room))
    })
}

impl TaskHook for TaskEvents {
    fn made(&self, maker: &AnyTask<'_>, child: &AnyTask<'_>) {
        if !self.has(TASKS_LIFE) {
            return;
        }
        let counts = self.context.filter.with(|filter| {
            // The tracepoint of the session's `Follower` runs later.
            if let Some(filter) = filter {
                filter.follow(maker, child);
            }
            self.admits(filter, maker) || self.admits(filter, child)
        });
        self.record(
            TASK_KIND_FORK,
            TASK_FORK,
            child,
            Look::Own,
            counts,
            |described, levels| {
                described.add_maker(&self.context.session_owner, maker, levels);
            },
        );
    }

    fn executed(&self, task: &AnyTask<'_>, old_tid: u32) {
        if !self.has(TASKS_LIFE) {
            return;
        }
        let cpu = Current::get().cpu_hint();
        let (session_owner, mut levels) = (&self.context.session_owner, Levels::new());
        let described = match self.counts_now(task) {
            true => Described::new(session_owner, task, Look::Own, sys::now_ns(), &mut levels),
            false => None,
        };
        let Some(mut described) = described else {
            return self.counts.count(cpu, TASK_KIND_EXEC, End::Filtered);
        };
        described.record.what = TASK_EXEC;
        described.record.cpu = cpu;
        described.record.value = session_owner.old_tid(task, old_tid);
        described.record.object = self.program(cpu, &described);
        self.put_exec(cpu, &mut described, &levels);
    }

    fn exited(&self, task: &AnyTask<'_>, is_last: bool) {
        if !self.has(TASKS_LIFE) {
            return;
        }
        let counts = self.counts_now(task);
        self.record(
            TASK_KIND_EXIT,
            TASK_EXIT,
            task,
            Look::Own,
            counts,
            |described, _| {
                described.record.value = task.exit_code();
                if is_last {
                    described.record.flags |= TASK_LAST;
                }
            },
        );
    }

    fn renamed(&self, task: &AnyTask<'_>, comm: &[u8; 16]) {
        if !self.has(TASKS_NAMES) {
            return;
        }
        let counts = self.counts_now(task);
        let how = if task.is_current() {
            Look::Own
        } else {
            Look::Try
        };
        self.record(
            TASK_KIND_NAME,
            TASK_NAME,
            task,
            how,
            counts,
            |described, _| {
                described.record.comm = *comm;
            },
        );
    }

    fn in_other_namespaces(&self, task: &AnyTask<'_>) {
        if self.has(TASKS_MOVES) {
            let counts = self.counts_now(task);
            let (kind, what) = (TASK_KIND_NAMESPACES, TASK_NAMESPACES);
            self.record(kind, what, task, Look::Own, counts, |_, _| {});
        }
    }

    fn in_other_cgroup(&self, task: &AnyTask<'_>) {
        if let Some(table) = self.cpu_times.as_ref() {
            table.moved(task);
        }
        if self.has(TASKS_MOVES) {
            let counts = self.counts_now(task);
            let (kind, what) = (TASK_KIND_CGROUP, TASK_CGROUP);
            self.record(kind, what, task, Look::Try, counts, |_, _| {});
        }
    }

    fn switched(&self, switch: &Switch<'_>) {
        let cpu = Current::get().cpu_hint();
        if self.has(TASKS_CPU) {
            if let Some(table) = self.cpu_times.as_ref() {
                table.switched(cpu, &switch.prev, &switch.next);
            }
        }
        if self.has(TASKS_SWITCHES) {
            let counts = self.context.filter.with(|filter| {
                [&switch.prev, &switch.next]
                    .into_iter()
                    .any(|task| !task.is_idle() && self.admits(filter, task))
            });
            self.record_switch(cpu, switch, counts);
        }
    }

    fn woken(&self, task: &AnyTask<'_>, how: Wake, _: Reading<'_>) {
        if !self.has(TASKS_WAKEUPS) {
            return;
        }
        let cpu = Current::get().cpu_hint();
        let end = match self.counts_now(task) {
            true => self.put_wake(cpu, task, how),
            false => End::Filtered,
        };
        self.counts.count(cpu, TASK_KIND_WAKE, end);
    }
}
