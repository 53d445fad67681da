// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks: their events, the living tasks, and how long containers ran.

use crate::error::{Error, Result};
use crate::session::Session;
use crate::sys;
use nix::errno::Errno;
use nsprobe_common::abi::{self, CpuTime, TaskCount, CPU_ALL, DUMP_ARGS, DUMP_MAPPINGS};
use nsprobe_common::record::Record;
use std::os::fd::AsFd;
use zerocopy::IntoBytes;

/// Bytes that a dump asks for at a time.
const DUMP_BYTES: usize = 256 << 10;
/// Rows of CPU times that are asked for at a time.
const CPU_ROWS: usize = 1024;

/// What is recorded of tasks, from a request on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskOptions {
    /// `TASKS_*`: what is recorded; none ends it.
    pub flags: u32,
    /// Most bytes of a program's arguments, with [`TASKS_LIFE`](abi::TASKS_LIFE).
    pub args_bytes: u32,
    /// Rows of CPU times for each CPU, with [`TASKS_CPU`](abi::TASKS_CPU).
    pub cpu_rows: u32,
}

/// What a dump has of each task, beside its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// The code that each process has mapped.
    pub mappings: bool,
    /// The arguments of each process.
    pub args: bool,
}

/// The tasks that lived at the time of a dump.
#[derive(Clone, Debug, Default)]
pub struct TaskDump {
    words: Vec<u64>,
}

/// How long containers ran, since the times are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// When this was so, in the clock of the records.
    pub time_ns: u64,
    /// For each CPU, pid namespace and control group. Two may have the same numbers, when
    /// one namespace came after another that is gone.
    pub rows: Vec<CpuTime>,
    /// Nanoseconds for which there was no row.
    pub turned_away_ns: u64,
}

/// Events of tasks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounters {
    /// By `TASK_KIND_*`.
    pub kinds: [TaskCount; abi::TASK_KINDS],
}

impl TaskCounters {
    /// Whether every event is accounted for: the conservation law.
    pub fn balance(&self) -> bool {
        self.kinds.iter().all(|kind| {
            let sum = [kind.recorded, kind.filtered, kind.lost].map(u128::from);
            u128::from(kind.seen) == sum.iter().sum::<u128>()
        })
    }
}

impl TaskDump {
    /// The records: tasks, and mappings after their process.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = self.words.as_bytes();
        std::iter::from_fn(move || {
            // They were looked at when they came.
            let (record, length) = Record::parse(rest).ok()??;
            rest = rest.get(length..)?;
            Some(record)
        })
        .flatten()
    }

    /// The records as the kernel wrote them.
    pub fn as_bytes(&self) -> &[u8] {
        self.words.as_bytes()
    }

    /// Appends the records of an answer, when they are as many as it says.
    fn add(&mut self, words: &[u64], count: u32) -> Option<()> {
        let mut rest = words.as_bytes();
        for _ in 0..count {
            let (_, length) = Record::parse(rest).ok()??;
            rest = rest.get(length..)?;
        }
        self.words.extend_from_slice(words);
        rest.is_empty().then_some(())
    }
}

fn failed(request: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Request { request, errno }
}

impl Session {
    /// Records events of tasks from now on, instead of what was asked for before. Times, once
    /// they are kept, are kept on.
    pub fn set_tasks(&mut self, options: &TaskOptions) -> Result<()> {
        let asked = abi::Tasks {
            flags: options.flags,
            args_bytes: options.args_bytes,
            cpu_rows: options.cpu_rows,
            ..abi::Tasks::default()
        };
        sys::tasks(self.as_fd(), asked).map_err(|(errno, missing)| match errno {
            Errno::EOPNOTSUPP => Error::NoTaskEvents(missing),
            Errno::EBUSY => Error::TaskSessions,
            errno => failed("TASKS")(errno),
        })
    }

    /// All threads that live now and count; in the order of their numbers.
    pub fn dump_tasks(&self, options: DumpOptions) -> Result<TaskDump> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(options.mappings, DUMP_MAPPINGS) | flag(options.args, DUMP_ARGS);
        let mut dump = TaskDump::default();
        let mut buffer = vec![0u64; DUMP_BYTES / 8];
        let mut next = 0;
        loop {
            let answer = sys::task_dump(self.as_fd(), flags, next, &mut buffer)
                .map_err(failed("TASK_DUMP"))?;
            let words = buffer.get(..answer.written as usize / 8);
            words
                .and_then(|words| dump.add(words, answer.count))
                .ok_or(Error::Answer("TASK_DUMP"))?;
            // Numbers rise, or this would not end.
            if answer.next != 0 && answer.next <= next {
                return Err(Error::Answer("TASK_DUMP"));
            }
            next = answer.next;
            if next == 0 {
                return Ok(dump);
            }
        }
    }

    /// How long containers have run since [`TASKS_CPU`](abi::TASKS_CPU) was asked for.
    pub fn cpu_times(&self) -> Result<CpuTimes> {
        let mut times = CpuTimes::default();
        let mut buffer = vec![CpuTime::default(); CPU_ROWS];
        let mut next = 0;
        loop {
            let answer =
                sys::cpu_times(self.as_fd(), next, &mut buffer).map_err(failed("CPU_TIMES"))?;
            let rows = buffer.get(..answer.count as usize);
            times
                .rows
                .extend_from_slice(rows.ok_or(Error::Answer("CPU_TIMES"))?);
            if next == 0 {
                times.time_ns = answer.time_ns;
            }
            times.turned_away_ns = answer.turned_away_ns;
            if answer.next != 0 && answer.next <= next {
                return Err(Error::Answer("CPU_TIMES"));
            }
            next = answer.next;
            if next == 0 {
                return Ok(times);
            }
        }
    }

    /// Events of tasks by outcome, on all CPUs.
    pub fn task_counters(&self) -> Result<TaskCounters> {
        self.task_counters_of(CPU_ALL)
    }

    /// The counters of one CPU.
    pub fn task_counters_on(&self, cpu: u16) -> Result<TaskCounters> {
        self.task_counters_of(cpu.into())
    }

    fn task_counters_of(&self, cpu: u32) -> Result<TaskCounters> {
        let answer = sys::task_counters(self.as_fd(), cpu).map_err(failed("TASK_COUNTERS"))?;
        Ok(TaskCounters {
            kinds: answer.kinds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_common::record::{Header, KIND_LOST};

    /// Two records of a gap.
    fn two() -> Vec<u64> {
        let header = Header {
            word: 32,
            kind: KIND_LOST,
            reserved: 0,
        };
        let first = u64::from_ne_bytes(header.as_bytes().try_into().expect("8 bytes"));
        [first, 1, 2, 3].repeat(2)
    }

    #[test]
    fn an_answer_must_hold_what_it_says() {
        let two = two();
        let mut dump = TaskDump::default();
        assert_eq!(dump.add(&two, 2), Some(()));
        assert_eq!(dump.add(&two, 2), Some(()));
        assert_eq!(dump.records().count(), 4);
        for (words, count) in [(&two[..], 1), (&two[..], 3), (&two[..7], 2)] {
            assert_eq!(TaskDump::default().add(words, count), None, "{count}");
        }
        assert_eq!(TaskDump::default().add(&[], 0), Some(()));
    }

    #[test]
    fn counters_balance_by_kind() {
        let mut counters = TaskCounters::default();
        assert!(counters.balance());
        counters.kinds[3] = TaskCount {
            seen: 6,
            recorded: 3,
            filtered: 2,
            lost: 1,
        };
        assert!(counters.balance());
        counters.kinds[4].lost = 1;
        assert!(!counters.balance());
    }
}
