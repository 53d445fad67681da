// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread, and what is known of its life.

use crate::history::History;
use nsprobe_common::task::{
    TaskDetails, TaskLevel, TaskRecord, NAMESPACES, TASK_ARGS_ABSENT, TASK_ARGS_CUT, TASK_BARE,
    TASK_ENDING, TASK_EXEC, TASK_FORK, TASK_KERNEL,
};

/// Which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// Its number in the opener's pid namespace.
    pub tid: u32,
    /// When it was made, CLOCK_BOOTTIME in nanoseconds. A thread that executes a program in
    /// its process's first thread's place takes over that one's time, too.
    pub start_ns: u64,
}

/// How a thread became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the record of its fork.
    Fork,
    /// It was there before.
    Dump,
    /// By a later record: that of its fork is missing.
    Late,
}

/// The end of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When, or by when, in CLOCK_MONOTONIC nanoseconds.
    pub time_ns: u64,
    /// How that is known.
    pub cause: EndCause,
}

/// How the end of a thread is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// By its record.
    Exit {
        /// The code as `wait(2)` reports it.
        code: u32,
        /// It was the last thread of its process to end.
        last: bool,
    },
    /// It executed a program and took the place of its process's first thread.
    BecameFirst,
    /// It had ended when it was seen first, and its parent had not asked for its code.
    Zombie,
    /// Another thread has its number: the record of its end is missing.
    Reused,
    /// It was in no answer to a later dump: the record of its end is missing.
    Missed,
}

/// A program that a process executes, or executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file, as an object of the session; zero when it is not known.
    pub object: u32,
    /// The arguments, each with its NUL.
    pub args: Box<[u8]>,
    /// There were more arguments than these.
    pub is_cut: bool,
    /// The arguments could not be read.
    pub is_absent: bool,
}

/// Inode numbers of namespaces, by `NAMESPACE_*`.
pub type Namespaces = [u32; NAMESPACES];

/// What changes too often to be kept: the latest that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How long it has run on CPUs, in nanoseconds.
    pub cpu_ns: u64,
    /// How long of that in user space, in nanoseconds.
    pub user_ns: u64,
    /// And in the kernel.
    pub system_ns: u64,
    /// Its state, as `TaskRecord::state` has it.
    pub state: u32,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// Its priority as the kernel counts.
    pub priority: u32,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which one.
    pub id: TaskId,
    /// How it became known.
    pub origin: Origin,
    /// Time of its first record.
    pub first_ns: u64,
    /// Time of its last record.
    pub last_ns: u64,
    /// Time of the last record that does not say that the task has begun to end.
    pub(crate) active_ns: u64,
    /// The last time at which it was known to have ended.
    pub(crate) dead_ns: u64,
    /// Whether it is a thread of the kernel's.
    pub is_kernel: bool,
    /// The thread that made it, in the namespaces that it was in, the opener's first; empty
    /// when that is not known.
    pub maker: Box<[TaskLevel]>,
    /// Its numbers in its pid namespaces, the opener's first.
    pub levels: History<Box<[TaskLevel]>>,
    /// Its name, NUL-padded.
    pub names: History<[u8; 16]>,
    /// Its control group.
    pub cgroups: History<u64>,
    /// Its namespaces but that of pids, which never changes and is in its last level.
    pub namespaces: History<Namespaces>,
    /// Its real user.
    pub users: History<u32>,
    /// Its programs.
    pub programs: History<Program>,
    /// What changes all the time.
    pub times: Times,
    /// Its end; none while it lives.
    pub end: Option<End>,
}

impl Task {
    /// A thread of which this is the first record.
    pub(crate) fn new(id: TaskId, origin: Origin, time_ns: u64) -> Task {
        Task {
            id,
            origin,
            first_ns: time_ns,
            last_ns: 0,
            active_ns: 0,
            dead_ns: 0,
            is_kernel: false,
            maker: Box::default(),
            levels: History::default(),
            names: History::default(),
            cgroups: History::default(),
            namespaces: History::default(),
            users: History::default(),
            programs: History::default(),
            times: Times::default(),
            end: None,
        }
    }

    /// Takes what a record says, whenever that was. Each history keeps `most` changes.
    pub(crate) fn note(&mut self, record: &TaskRecord, details: &TaskDetails<'_>, most: usize) {
        let time = record.time_ns;
        self.first_ns = self.first_ns.min(time);
        if record.flags & TASK_ENDING == 0 {
            self.active_ns = self.active_ns.max(time);
        }
        self.is_kernel |= record.flags & TASK_KERNEL != 0;
        if record.what == TASK_FORK {
            self.origin = Origin::Fork;
            self.maker = details.parent.into();
        }
        self.levels.note(time, details.levels.into(), most);
        self.names.note(time, record.comm, most);
        self.users.note(time, record.uid, most);
        if record.cgroup != 0 {
            self.cgroups.note(time, record.cgroup, most);
        }
        // A task that has ended has none any more, which says nothing of what it had.
        if record.flags & TASK_BARE == 0 {
            self.namespaces.note(time, record.namespaces, most);
        }
        self.note_program(record, details, most);
        if time >= self.last_ns {
            self.last_ns = time;
            self.times = Times {
                cpu_ns: record.cpu_ns,
                user_ns: record.user_ns,
                system_ns: record.system_ns,
                state: record.state,
                cpu: record.cpu,
                priority: record.priority,
            };
        }
    }

    fn note_program(&mut self, record: &TaskRecord, details: &TaskDetails<'_>, most: usize) {
        let is_absent = record.flags & TASK_ARGS_ABSENT != 0;
        if record.what != TASK_EXEC && details.args.is_empty() && !is_absent {
            return;
        }
        let program = Program {
            object: record.object,
            args: details.args.into(),
            is_cut: record.flags & TASK_ARGS_CUT != 0,
            is_absent,
        };
        self.programs.note(record.time_ns, program, most);
    }

    /// Whether it lives, as far as is known.
    pub fn is_alive(&self) -> bool {
        self.end.is_none()
    }

    /// Whether it lived at that time, as far as is known.
    pub fn lived_at(&self, time_ns: u64) -> bool {
        let begun = self.origin != Origin::Fork || self.first_ns <= time_ns;
        begun && self.end.is_none_or(|end| time_ns <= end.time_ns)
    }

    /// It as the opener's pid namespace numbers it.
    pub fn outer(&self) -> TaskLevel {
        let levels = self.levels.last();
        let first = levels.and_then(|levels| levels.first());
        first.copied().unwrap_or_default()
    }

    /// It as its own pid namespace numbers it.
    pub fn own(&self) -> TaskLevel {
        let levels = self.levels.last();
        let last = levels.and_then(|levels| levels.last());
        last.copied().unwrap_or_default()
    }

    /// Its process, in the opener's pid namespace.
    pub fn pid(&self) -> u32 {
        self.outer().pid
    }

    /// Whether it is the thread that its process is named by.
    pub fn is_first(&self) -> bool {
        self.outer().pid == self.id.tid
    }

    /// Its name, without what pads it; none when there is no record of it.
    pub fn comm(&self) -> &[u8] {
        self.names.last().map_or(&[], comm_of)
    }
}

/// A name without what pads it.
pub fn comm_of(comm: &[u8; 16]) -> &[u8] {
    let end = comm.iter().position(|byte| *byte == 0);
    comm.get(..end.unwrap_or(comm.len())).unwrap_or_default()
}
