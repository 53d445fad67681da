// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Records of tasks: the description of a thread at one moment, context switches and wake-ups.
//!
//! A thread is identified by its number in the session owner's pid namespace together with its
//! start time, since numbers are reused. A process is the thread whose number is the process's.

use super::record::header::{CodeMapping, Header};
use zerocopy::FromBytes;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most pid namespaces that a task is in: the kernel's `MAX_PID_NS_LEVEL`, and the first.
pub const TASK_LEVELS_MAX: usize = 33;
/// Most bytes of arguments in a [`TaskRecord`].
pub const TASK_ARGS_MAX: usize = 4096;

/// Longest [`TaskRecord`] in bytes, with what follows it.
pub const TASK_BYTES_MAX: usize =
    size_of::<TaskRecord>() + 2 * TASK_LEVELS_MAX * size_of::<TaskLevel>() + TASK_ARGS_MAX;

/// [`TaskRecord::what`]: the task is alive; an answer to [`TaskDump`](super::abi::TaskDump), in no
/// ring.
pub const TASK_ALIVE: u16 = 1;
/// [`TaskRecord::what`]: the task was made; it has not run yet. The levels of the task that
/// made it follow its own.
pub const TASK_FORK: u16 = 2;
/// [`TaskRecord::what`]: it executes another program. A thread that is not its process's first
/// takes the number and the start time of the first; `value` is the number that it had, or zero if
/// that is unknown in the session owner's namespace.
pub const TASK_EXEC: u16 = 3;
/// [`TaskRecord::what`]: it exits; `value` is its code for `wait(2)`, with [`TASK_LAST`] that of
/// its process.
pub const TASK_EXIT: u16 = 4;
/// [`TaskRecord::what`]: it has another name; `comm` is the new one.
pub const TASK_NAME: u16 = 5;
/// [`TaskRecord::what`]: it may be in other namespaces, after `setns(2)` or `unshare(2)`.
pub const TASK_NAMESPACES: u16 = 6;
/// [`TaskRecord::what`]: it was moved to another control group.
pub const TASK_CGROUP: u16 = 7;

/// [`TaskRecord::flags`]: a kernel thread.
pub const TASK_KERNEL: u32 = 1 << 0;
/// [`TaskRecord::flags`]: it was the last thread of its process to end.
pub const TASK_LAST: u32 = 1 << 1;
/// [`TaskRecord::flags`]: there were more arguments than these.
pub const TASK_ARGS_CUT: u32 = 1 << 2;
/// [`TaskRecord::flags`]: the arguments could not be read without a page fault.
pub const TASK_ARGS_ABSENT: u32 = 1 << 3;
/// [`TaskRecord::flags`]: it has exited, and its parent has not reaped it yet.
pub const TASK_ZOMBIE: u32 = 1 << 4;
/// [`TaskRecord::flags`]: it has no namespaces any more but that of pids: all others are
/// zero. So are those of a task that has ended.
pub const TASK_BARE: u32 = 1 << 5;
/// [`TaskRecord::flags`]: it is exiting. Its [`TASK_EXIT`] comes before or after this record: a
/// reader need not wait for it.
pub const TASK_ENDING: u32 = 1 << 6;

/// Index into [`TaskRecord::namespaces`]: mounts.
pub const NAMESPACE_MOUNT: usize = 0;
/// Index into [`TaskRecord::namespaces`]: host name.
pub const NAMESPACE_UTS: usize = 1;
/// Index into [`TaskRecord::namespaces`]: System V objects and message queues.
pub const NAMESPACE_IPC: usize = 2;
/// Index into [`TaskRecord::namespaces`]: network.
pub const NAMESPACE_NETWORK: usize = 3;
/// Index into [`TaskRecord::namespaces`]: users.
pub const NAMESPACE_USER: usize = 4;
/// Index into [`TaskRecord::namespaces`]: control groups.
pub const NAMESPACE_CGROUP: usize = 5;
/// Index into [`TaskRecord::namespaces`]: clocks.
pub const NAMESPACE_TIME: usize = 6;
/// Index into [`TaskRecord::namespaces`]: the pid namespace that its children will be in.
/// Its own is that of the last [`TaskLevel`].
pub const NAMESPACE_PID_CHILDREN: usize = 7;
/// How many namespaces [`TaskRecord::namespaces`] has.
pub const NAMESPACES: usize = 8;

/// A task at one moment. After it are `levels` [`TaskLevel`]s of its own, from the session owner's
/// pid namespace to the task's, so at least one; `parent_levels` of the task that made it, none if
/// the owner's namespace does not see that task; and `args_bytes` of the arguments, each with its
/// NUL, then zeroes up to a multiple of 8.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskRecord {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC of the description, in nanoseconds.
    pub time_ns: u64,
    /// When it was made, CLOCK_BOOTTIME in nanoseconds.
    pub start_ns: u64,
    /// How long it has run on CPUs up to its last tick or switch, in nanoseconds.
    pub cpu_ns: u64,
    /// How long of that in user space, in nanoseconds, as the kernel divides it.
    pub user_ns: u64,
    /// And in the kernel.
    pub system_ns: u64,
    /// Id of its control group (cgroup v2): the inode number of the group's directory.
    pub cgroup: u64,
    /// `TASK_*`, what happened.
    pub what: u16,
    /// The number of levels after this struct.
    pub levels: u8,
    /// The number of the maker's levels after those.
    pub parent_levels: u8,
    /// `TASK_*` bits.
    pub flags: u32,
    /// The CPU that this was recorded on; of a [`TASK_ALIVE`], the one that it ran on last.
    pub cpu: u32,
    /// Of a [`TASK_ALIVE`] its state: bits as `prev_state` of the kernel's tracepoint
    /// `sched_switch` has them, 0 for one that runs or may run.
    pub state: u32,
    /// By `what`.
    pub value: u32,
    /// Of a [`TASK_EXEC`] the program, as an object of the session; zero for none.
    pub object: u32,
    /// Real user id, as the initial user namespace numbers it.
    pub uid: u32,
    /// Its priority in the kernel's numbering: 120 minus nice levels, below 100 for real-time.
    pub priority: u32,
    /// Inode numbers of its namespaces, by `NAMESPACE_*`; zero for one that could not be read.
    pub namespaces: [u32; NAMESPACES],
    /// Its name, NUL-padded.
    pub comm: [u8; 16],
    /// Bytes of the arguments after the levels.
    pub args_bytes: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<TaskRecord>() == 144);

/// A task as one pid namespace numbers it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TaskLevel {
    /// Id of the namespace, which is never reused.
    pub id: u64,
    /// Its inode number, which the kernel may reuse.
    pub inum: u32,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The process's parent; zero when this namespace does not see it, or there is none.
    pub ppid: u32,
}
const _: () = assert!(size_of::<TaskLevel>() == 24);

/// The data after a [`TaskRecord`].
#[derive(Clone, Copy, Debug)]
pub struct TaskDetails<'a> {
    /// The task in its namespaces, the session owner's first. Never empty.
    pub levels: &'a [TaskLevel],
    /// The task that made it, as well.
    pub parent: &'a [TaskLevel],
    /// Arguments, each with its NUL; the last may be truncated.
    pub args: &'a [u8],
}

impl<'a> TaskDetails<'a> {
    /// Parses the data after `task`; `None` if it does not match `task`.
    pub(super) fn parse(task: &TaskRecord, rest: &'a [u8]) -> Option<TaskDetails<'a>> {
        let (levels, rest) =
            <[TaskLevel]>::ref_from_prefix_with_elems(rest, task.levels.into()).ok()?;
        let (parent, rest) =
            <[TaskLevel]>::ref_from_prefix_with_elems(rest, task.parent_levels.into()).ok()?;
        let args = rest.get(..task.args_bytes as usize)?;
        (!levels.is_empty()).then_some(TaskDetails {
            levels,
            parent,
            args,
        })
    }

    /// The task in the session owner's pid namespace.
    pub fn outer(&self) -> TaskLevel {
        self.levels.first().copied().unwrap_or_default()
    }

    /// The task in its own pid namespace.
    pub fn own(&self) -> TaskLevel {
        self.levels.last().copied().unwrap_or_default()
    }
}

/// A context switch.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SwitchRecord {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The thread that ran, in the opener's pid namespace; zero for an idle CPU, or for one
    /// that this namespace does not see.
    pub prev_tid: u32,
    /// The thread that runs now, likewise.
    pub next_tid: u32,
    /// The state of the one that ran: bits as `prev_state` of the kernel's tracepoint
    /// `sched_switch` has them, with 0x100 when it would run on.
    pub prev_state: u16,
    /// The CPU.
    pub cpu: u16,
    /// Priority of the one that ran, as [`TaskRecord::priority`].
    pub prev_priority: u8,
    /// Priority of the one that runs.
    pub next_priority: u8,
    /// `SWITCH_*` bits.
    pub flags: u16,
}
const _: () = assert!(size_of::<SwitchRecord>() == 32);

/// [`SwitchRecord::flags`]: the thread that ran is the CPU's idle one.
pub const SWITCH_FROM_IDLE: u16 = 1 << 0;
/// [`SwitchRecord::flags`]: the thread that runs now is the CPU's idle one.
pub const SWITCH_TO_IDLE: u16 = 1 << 1;
/// [`SwitchRecord::flags`]: the one that ran could have run on: it was preempted, on its way to
/// user space too (where `prev_state` is 0), or has yielded.
pub const SWITCH_PREEMPTED: u16 = 1 << 2;

/// [`WakeRecord::what`]: the waker has begun (`sched_waking`).
pub const WAKE_BEGUN: u8 = 1;
/// [`WakeRecord::what`]: the thread may run (`sched_wakeup`).
pub const WAKE_DONE: u8 = 2;
/// [`WakeRecord::what`]: the thread is new and may run (`sched_wakeup_new`).
pub const WAKE_NEW: u8 = 3;

/// A thread was woken.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WakeRecord {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The woken thread, in the session owner's pid namespace.
    pub tid: u32,
    /// The thread that ran meanwhile, which is the waker with [`WAKE_BEGUN`] unless
    /// an interrupt was; zero for an idle CPU, or for one that this namespace does not see.
    pub by_tid: u32,
    /// The CPU that this was recorded on.
    pub cpu: u16,
    /// The CPU that the thread will run on.
    pub target_cpu: u16,
    /// `WAKE_*`.
    pub what: u8,
    /// The woken thread's priority, as [`TaskRecord::priority`].
    pub priority: u8,
    /// Zero.
    pub reserved: u16,
}
const _: () = assert!(size_of::<WakeRecord>() == 32);

/// The code that a process has mapped, at one moment: `mappings` [`CodeMapping`]s follow.
/// An answer to [`TaskDump`](super::abi::TaskDump), in no ring.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MappingsRecord {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// When the process was made, CLOCK_BOOTTIME in nanoseconds.
    pub start_ns: u64,
    /// The process, in the session owner's pid namespace.
    pub pid: u32,
    /// The number of mappings after this struct.
    pub mappings: u32,
    /// The number of mappings that did not fit; all ones if none could be read, as they were being
    /// changed for too long.
    pub left_out: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<MappingsRecord>() == 40);

/// The mappings after `record`; `None` if they do not match `record`.
pub(super) fn mappings<'a>(record: &MappingsRecord, rest: &'a [u8]) -> Option<&'a [CodeMapping]> {
    let all = <[CodeMapping]>::ref_from_bytes(rest).ok()?;
    (all.len() == record.mappings as usize).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::super::record::{Corrupt, Record, KIND_MAPPINGS, KIND_TASK};
    use super::*;
    use zerocopy::IntoBytes;
    extern crate std;
    use std::vec::Vec;

    /// `parts` in 8-byte aligned memory, after a header of `kind` that has their length.
    fn record(kind: u16, parts: &[&[u8]]) -> Vec<u64> {
        let mut bytes: Vec<u8> = parts.concat();
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        let words = bytes.chunks(8);
        words
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect()
    }

    fn level(inum: u32, tid: u32) -> TaskLevel {
        TaskLevel {
            inum,
            tid,
            ..TaskLevel::default()
        }
    }

    #[test]
    fn a_task_comes_back_with_its_levels_its_maker_and_its_arguments() {
        let levels = [level(1, 700), level(2, 7)];
        let maker = [level(1, 600)];
        let task = TaskRecord {
            levels: 2,
            parent_levels: 1,
            args_bytes: 5,
            ..TaskRecord::default()
        };
        let parts: [&[u8]; 4] = [
            task.as_bytes(),
            levels.as_bytes(),
            maker.as_bytes(),
            b"ls\0-l\0\0\0",
        ];
        let words = record(KIND_TASK, &parts);
        let (found, length) = Record::parse(words.as_bytes()).unwrap().unwrap();
        assert_eq!(length, 8 * words.len());
        let Some(Record::Task(_, details)) = found else {
            panic!("not a task")
        };
        assert_eq!(details.levels, levels);
        assert_eq!(details.parent, maker);
        assert_eq!(details.args, b"ls\0-l");
        assert_eq!((details.outer().tid, details.own().tid), (700, 7));
    }

    #[test]
    fn a_task_that_claims_more_than_it_has_is_corrupt() {
        let claims = [
            (0, 0, 0),
            (2, 0, 0),
            (1, 1, 0),
            (1, 0, 1),
            (255, 255, u32::MAX),
        ];
        for (levels, parent_levels, args_bytes) in claims {
            let task = TaskRecord {
                levels,
                parent_levels,
                args_bytes,
                ..TaskRecord::default()
            };
            let words = record(KIND_TASK, &[task.as_bytes(), level(1, 1).as_bytes()]);
            assert!(
                matches!(Record::parse(words.as_bytes()), Err(Corrupt::Length(_))),
                "{levels} {parent_levels} {args_bytes}"
            );
        }
    }

    #[test]
    fn mappings_are_as_many_as_the_record_says() {
        for (claimed, fits) in [(1, true), (0, false), (2, false)] {
            let head = MappingsRecord {
                mappings: claimed,
                ..MappingsRecord::default()
            };
            let one = CodeMapping::default();
            let words = record(KIND_MAPPINGS, &[head.as_bytes(), one.as_bytes()]);
            assert_eq!(Record::parse(words.as_bytes()).is_ok(), fits, "{claimed}");
        }
    }
}
