// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Requests about tasks: which of their events to record, which tasks are alive, how long
//! containers ran, and which programs wait before they begin.

use super::super::task::TASK_BYTES_MAX;
use super::*;

/// [`Tasks::flags`]: forks, program starts and ends.
pub const TASKS_LIFE: u32 = 1 << 0;
/// [`Tasks::flags`]: new names.
pub const TASKS_NAMES: u32 = 1 << 1;
/// [`Tasks::flags`]: other namespaces and control groups.
pub const TASKS_MOVES: u32 = 1 << 2;
/// [`Tasks::flags`]: context switches. One is recorded if either thread is traced.
pub const TASKS_SWITCHES: u32 = 1 << 3;
/// [`Tasks::flags`]: wake-ups. One is recorded if the woken thread is traced.
pub const TASKS_WAKEUPS: u32 = 1 << 4;
/// [`Tasks::flags`]: CPU time by container is kept, for [`CpuTimes`]. Another request of the
/// session cannot turn it off again; the times keep counting.
pub const TASKS_CPU: u32 = 1 << 5;
/// [`Tasks::flags`]: tasks are traced regardless of the session's [`Filter`], if the session
/// owner's pid namespace sees them.
pub const TASKS_UNFILTERED: u32 = 1 << 6;

/// Most rows of [`CpuTimes`] for each CPU.
pub const CPU_ROWS_MAX: u32 = 1 << 16;

/// Which events of tasks are recorded from now on, after [`Setup`]. It takes the place of the
/// request before. Losses count as those of hits do, and for each kind in [`TaskCounters`].
///
/// Errors: `ENXIO` there are no rings, and more than [`TASKS_CPU`] was asked for; `EINVAL`;
/// `EOPNOTSUPP` the kernel lacks such events: `missing` says which; `EBUSY` too
/// many sessions record tasks; `ENOMEM`; `EPERM` when the caller may not trace.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tasks {
    /// Bytes of this struct.
    pub size: u32,
    /// `TASKS_*` bits; zero ends it.
    pub flags: u32,
    /// With [`TASKS_LIFE`]: most bytes of the arguments of a program that starts, at most
    /// [`TASK_ARGS_MAX`](super::super::task::TASK_ARGS_MAX); zero for none. Those of one program
    /// take at most an eighth of a ring.
    pub args_bytes: u32,
    /// With [`TASKS_CPU`]: rows for each CPU, 1 to [`CPU_ROWS_MAX`]. What the first request
    /// with it says holds.
    pub cpu_rows: u32,
    /// Out, on `EOPNOTSUPP`: the `TASKS_*` bits that the kernel does not support.
    pub missing: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Tasks>() == 24);

/// [`TaskDump::flags`]: a [`MappingsRecord`](super::super::task::MappingsRecord) follows the
/// record of each process that has memory of its own.
pub const DUMP_MAPPINGS: u32 = 1 << 0;
/// [`TaskDump::flags`]: with the arguments of processes.
pub const DUMP_ARGS: u32 = 1 << 1;

/// Least bytes of [`TaskDump::buffer_bytes`].
pub const DUMP_BYTES_MIN: usize = 2 * TASK_BYTES_MAX;

/// Writes records of the threads that are alive, as many as fit, in the order of their numbers in
/// the session owner's pid namespace; call it again until `next` is zero. Each is a
/// [`TaskRecord`](super::super::task::TaskRecord) of
/// [`TASK_ALIVE`](super::super::task::TASK_ALIVE). [`Filter`] applies, unless [`TASKS_UNFILTERED`]
/// was requested.
///
/// With [`TASKS_LIFE`] turned on before the first call, each thread that lived then is in an
/// answer, has a [`TASK_EXIT`](super::super::task::TASK_EXIT), or both; each one made since
/// has a [`TASK_FORK`](super::super::task::TASK_FORK), or is counted as lost. What has the
/// greater time is newer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskDump {
    /// Bytes of this struct.
    pub size: u32,
    /// `DUMP_*` bits.
    pub flags: u32,
    /// In: 0 at first, then the previous output. Out: where to continue; 0 at the end.
    pub next: u32,
    /// Out: the number of records written.
    pub count: u32,
    /// In: address of the room for records.
    pub buffer: u64,
    /// In: bytes of that room, at least [`DUMP_BYTES_MIN`].
    pub buffer_bytes: u32,
    /// Out: bytes that were written.
    pub written: u32,
}
const _: () = assert!(size_of::<TaskDump>() == 32);

/// Reads how long containers have run since [`TASKS_CPU`] was turned on, as many rows as
/// fit. Threads that run at this moment are in it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuTimes {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: 0 at first, then the previous output. Out: where to continue; 0 at the end.
    pub next: u32,
    /// Out: rows that were written.
    pub count: u32,
    /// In: address of the room for [`CpuTime`]s.
    pub buffer: u64,
    /// In: bytes of that room, at least one row.
    pub buffer_bytes: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: CLOCK_MONOTONIC of this answer, in nanoseconds.
    pub time_ns: u64,
    /// Out: nanoseconds for which there was no row.
    pub turned_away_ns: u64,
}
const _: () = assert!(size_of::<CpuTimes>() == 48);

/// How long one CPU ran the threads of one pid namespace and one control group.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CpuTime {
    /// Id of the control group.
    pub cgroup: u64,
    /// Id of the pid namespace, which is never reused.
    pub pidns_id: u64,
    /// Its inode number, which the kernel may reuse.
    pub pidns_inum: u32,
    /// The CPU.
    pub cpu: u32,
    /// How long, in nanoseconds.
    pub runtime_ns: u64,
    /// How often a thread of theirs gave up the CPU or lost it.
    pub switches: u64,
}
const _: () = assert!(size_of::<CpuTime>() == 40);

/// Kinds of events in [`TaskCounters::kinds`], by their index.
pub const TASK_KINDS: usize = 8;
/// Index into [`TaskCounters::kinds`]: forks.
pub const TASK_KIND_FORK: usize = 0;
/// Index into [`TaskCounters::kinds`]: program starts.
pub const TASK_KIND_EXEC: usize = 1;
/// Index into [`TaskCounters::kinds`]: ends.
pub const TASK_KIND_EXIT: usize = 2;
/// Index into [`TaskCounters::kinds`]: new names.
pub const TASK_KIND_NAME: usize = 3;
/// Index into [`TaskCounters::kinds`]: other namespaces.
pub const TASK_KIND_NAMESPACES: usize = 4;
/// Index into [`TaskCounters::kinds`]: other control groups.
pub const TASK_KIND_CGROUP: usize = 5;
/// Index into [`TaskCounters::kinds`]: context switches.
pub const TASK_KIND_SWITCH: usize = 6;
/// Index into [`TaskCounters::kinds`]: wake-ups.
pub const TASK_KIND_WAKE: usize = 7;

/// The events of one kind, by outcome: `seen = recorded + filtered + lost`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TaskCount {
    /// Events, since the session's first [`Tasks`] that asked for them.
    pub seen: u64,
    /// Those in a ring.
    pub recorded: u64,
    /// Events whose tasks are not traced.
    pub filtered: u64,
    /// Events for which a ring had no room, or that came while it was frozen.
    pub lost: u64,
}
const _: () = assert!(size_of::<TaskCount>() == 32);

/// The events of tasks, by outcome.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskCounters {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the CPU, or [`CPU_ALL`].
    pub cpu: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: by `TASK_KIND_*`.
    pub kinds: [TaskCount; TASK_KINDS],
}
const _: () = assert!(size_of::<TaskCounters>() == 272);

/// [`Hold::flags`]: `limit_ms` is set; without it the request only reads.
pub const HOLD_SET: u32 = 1 << 0;
/// Largest [`Hold::limit_ms`].
pub const HOLD_MS_MAX: u32 = 10000;
/// Most programs of a session that wait at a time, of one container a quarter; more begin at once, and
/// count as `not_held`.
pub const HELD_MAX: u32 = 64;
/// Programs that reach the limit one after the other, after which no more are held.
pub const HOLD_OVERDUE_MAX: u32 = 3;

/// Makes programs wait before their first instruction until [`Held`] releases them, so that probes see
/// their first call: programs in mount namespaces that were made after the session's first `HOLD_SET`,
/// each file once for each root directory in each of these. Children of the process that opened the
/// session are not held. A signal, a debugger, a freezer and the end of the session end a wait at once.
///
/// The session's file is readable (`poll`) while [`Held`] has a program to return.
///
/// Errors: `EINVAL`; `EBUSY` too many sessions listen to tasks; `ENOMEM`; `EOPNOTSUPP` the kernel does
/// not report programs; `ENXIO` nothing was set yet; `EPERM` when the caller may not trace.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hold {
    /// Bytes of this struct.
    pub size: u32,
    /// [`HOLD_SET`], or zero.
    pub flags: u32,
    /// With [`HOLD_SET`]: how long a program waits at most, up to [`HOLD_MS_MAX`]; zero releases all
    /// and ends it. Out: the limit; zero also after [`HOLD_OVERDUE_MAX`] programs have reached it.
    pub limit_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: programs that have waited, or do.
    pub held: u64,
    /// Out: of those, the ones that reached the limit.
    pub overdue: u64,
    /// Out: of those, the ones that a signal, a debugger or a freezer let go on.
    pub interrupted: u64,
    /// Out: programs that would have waited, if others did not already.
    pub not_held: u64,
    /// Out: the longest wait that is over, in nanoseconds.
    pub longest_ns: u64,
}
const _: () = assert!(size_of::<Hold>() == 56);

/// Returns a program that waits, or releases one. What was released does not wait again: the latest
/// 1,024 are remembered.
///
/// Errors: `EINVAL`; `ENXIO` no [`Hold`] was set; `EPERM` when the caller may not trace.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Held {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the number of a program to release, which may wait no more; zero to get one.
    pub release: u64,
    /// Out: the number of a program that no call has returned before; zero if there is none, or one
    /// was released.
    pub id: u64,
    /// Out: the process, as the session owner's pid namespace numbers it.
    pub pid: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Held>() == 32);
