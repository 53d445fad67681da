// SPDX-License-Identifier: MIT OR Apache-2.0
//! All threads that are known.

use crate::task::{End, EndCause, Origin, Task, TaskId};
use nsprobe_common::task::{
    TaskDetails, TaskRecord, TASK_ALIVE, TASK_ENDING, TASK_EXEC, TASK_EXIT, TASK_LAST, TASK_ZOMBIE,
};
use std::collections::{BTreeSet, HashMap};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Threads that have ended; of more, those that ended first are forgotten.
    pub ended: usize,
    /// Changes of each thing of a thread; of more, the oldest are forgotten.
    pub changes: usize,
}

impl Default for HistoryLimits {
    fn default() -> HistoryLimits {
        HistoryLimits {
            ended: 1 << 16,
            changes: 1 << 10,
        }
    }
}

/// The parent of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// There is none, or the opener's pid namespace does not see it.
    None,
    /// This process.
    Process(u32),
    /// This process was, and has ended. No record says which process took its place.
    Ended(u32),
}

/// Threads over time.
#[derive(Debug, Default)]
pub struct Tasks {
    limits: HistoryLimits,
    tasks: HashMap<TaskId, Task>,
    /// Start times of the threads that have, or had, a number; rising.
    starts: HashMap<u32, Vec<u64>>,
    /// Those that have ended, by when.
    ended: BTreeSet<(u64, TaskId)>,
    /// When a thread of that number took the place of its process's first.
    moved: HashMap<u32, u64>,
    /// The dump that is being read: when it was begun, and which tasks were in it.
    dump: Option<(u64, BTreeSet<TaskId>)>,
    /// How many dumps were read to their end.
    dumps: u32,
    /// When the last one of those was begun.
    dumped_ns: u64,
    forgotten: u64,
}

impl Tasks {
    /// None yet.
    pub fn new(limits: HistoryLimits) -> Tasks {
        Tasks {
            limits,
            ..Tasks::default()
        }
    }

    /// From here on answers to a dump come, which was asked for at this time (CLOCK_MONOTONIC,
    /// in nanoseconds).
    pub fn dump_begun(&mut self, time_ns: u64) {
        self.dump = Some((time_ns, BTreeSet::new()));
    }

    /// The dump has been read to its end: those that were there before it and are not in it
    /// have ended.
    pub fn dump_ended(&mut self) {
        let Some((begun, seen)) = self.dump.take() else {
            return;
        };
        let living = self.tasks.values().filter(|task| task.is_alive());
        let missed = living.filter(|task| task.last_ns < begun && !seen.contains(&task.id));
        let missed: Vec<TaskId> = missed.map(|task| task.id).collect();
        for id in missed {
            self.end(id, begun, EndCause::Missed);
        }
        self.dumps += 1;
        self.dumped_ns = self.dumped_ns.max(begun);
        self.forget();
    }

    /// Takes a record, of a dump or of a ring.
    pub fn apply(&mut self, record: &TaskRecord, details: &TaskDetails<'_>) -> TaskId {
        let id = TaskId {
            tid: details.outer().tid,
            start_ns: record.start_ns,
        };
        if let (TASK_ALIVE, Some((_, seen))) = (record.what, &mut self.dump) {
            seen.insert(id);
        }
        let is_new = !self.tasks.contains_key(&id);
        let before = self.tasks.get(&id).map_or(0, |task| task.active_ns);
        let origin = match (record.what, self.dumps) {
            (TASK_ALIVE, 0) => Origin::Dump,
            _ => Origin::Late,
        };
        let task = self.tasks.entry(id);
        let task = task.or_insert_with(|| Task::new(id, origin, record.time_ns));
        task.note(record, details, self.limits.changes);
        match record.what {
            TASK_EXIT => {
                let (code, last) = (record.value, record.flags & TASK_LAST != 0);
                self.end(id, record.time_ns, EndCause::Exit { code, last });
            }
            TASK_ALIVE if record.flags & TASK_ZOMBIE != 0 => {
                self.end(id, record.time_ns, EndCause::Zombie);
            }
            // It does what the dead do not: it took over from another, or the record of its end
            // was one of the first thread's, whose place it took.
            _ if record.time_ns > before && record.flags & TASK_ENDING == 0 => {
                self.revive(id, record.time_ns);
            }
            _ => {}
        }
        if record.what == TASK_EXEC {
            self.leave_number(record, id);
        }
        if is_new {
            self.enter(id);
        }
        self.settle(id);
        self.forget();
        id
    }

    /// The thread.
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id)
    }

    /// The thread that had this number (in the opener's pid namespace) at a time.
    pub fn at(&self, tid: u32, time_ns: u64) -> Option<&Task> {
        let starts = self.starts.get(&tid)?;
        let tasks = starts.iter().rev().filter_map(|start| {
            let start_ns = *start;
            self.tasks.get(&TaskId { tid, start_ns })
        });
        tasks.into_iter().find(|task| task.lived_at(time_ns))
    }

    /// The thread that has this number now.
    pub fn now(&self, tid: u32) -> Option<&Task> {
        self.at(tid, u64::MAX)
    }

    /// All that are known, living and ended, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// Those that live, as far as is known, in no order.
    pub fn living(&self) -> impl Iterator<Item = &Task> {
        self.all().filter(|task| task.is_alive())
    }

    /// How many threads that have ended were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The parent of a thread's process, in the opener's pid namespace.
    pub fn parent(&self, task: &Task) -> Parent {
        match task.outer().ppid {
            0 => Parent::None,
            pid => match self.has_process(pid) {
                // One that nothing is known of may be outside of what is recorded.
                Some(false) => Parent::Ended(pid),
                Some(true) | None => Parent::Process(pid),
            },
        }
    }

    /// Whether a process lives: a thread of it does. None when nothing is known of it.
    fn has_process(&self, pid: u32) -> Option<bool> {
        if self.now(pid).is_some() {
            return Some(true);
        }
        self.starts.get(&pid)?;
        // The first thread may end before others.
        Some(self.living().any(|task| task.pid() == pid))
    }

    /// Ends a thread at a time, unless it has done something since, or its end is known better.
    fn end(&mut self, id: TaskId, time_ns: u64, cause: EndCause) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.dead_ns = task.dead_ns.max(time_ns);
        let is_told = |cause| matches!(cause, EndCause::Exit { .. } | EndCause::BecameFirst);
        let is_better = match task.end {
            // A first thread whose place another took ends twice.
            Some(end) if is_told(end.cause) => {
                matches!(cause, EndCause::Exit { .. }) && end.time_ns <= time_ns
            }
            Some(_) => is_told(cause),
            None => time_ns >= task.active_ns || cause == EndCause::Reused,
        };
        if !is_better {
            return;
        }
        if let Some(end) = task.end.replace(End { time_ns, cause }) {
            self.ended.remove(&(end.time_ns, id));
        }
        self.ended.insert((time_ns, id));
    }

    /// A thread that did something after what was taken for its end.
    fn revive(&mut self, id: TaskId, time_ns: u64) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        if let Some(end) = task.end.filter(|_| task.dead_ns < time_ns) {
            task.end = None;
            self.ended.remove(&(end.time_ns, id));
        }
    }

    /// Of a thread that took the place of its process's first, the number that it had is free.
    fn leave_number(&mut self, record: &TaskRecord, id: TaskId) {
        let old = record.value;
        if old == 0 || old == id.tid {
            return;
        }
        let moved = self.moved.entry(old).or_default();
        *moved = record.time_ns.max(*moved);
        let starts = self.starts.get(&old).into_iter().flatten().rev();
        let mut had = starts.map(|start| TaskId {
            tid: old,
            start_ns: *start,
        });
        let was_there = |id: &TaskId| {
            let task = self.tasks.get(id);
            task.is_some_and(|task| task.first_ns <= record.time_ns)
        };
        if let Some(id) = had.find(was_there) {
            self.end(id, record.time_ns, EndCause::BecameFirst);
        }
    }

    /// Enters a new thread under its number: it cannot have it together with another.
    fn enter(&mut self, id: TaskId) {
        let starts = self.starts.entry(id.tid).or_default();
        let at = starts.partition_point(|start| *start < id.start_ns);
        starts.insert(at, id.start_ns);
        if let Some(start) = at.checked_sub(1).and_then(|at| starts.get(at)).copied() {
            let since = self.tasks.get(&id).map_or(0, |task| task.first_ns);
            let start_ns = start;
            self.end(TaskId { start_ns, ..id }, since, EndCause::Reused);
        }
    }

    /// Ends a thread whose records came after what shows that it is gone.
    fn settle(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id).filter(|task| task.is_alive()) else {
            return;
        };
        let (first, last) = (task.first_ns, task.last_ns);
        let moved = self.moved.get(&id.tid).copied();
        if let Some(moved) = moved.filter(|moved| first < *moved) {
            self.end(id, moved, EndCause::BecameFirst);
        }
        if let Some(since) = self.since_reused(id) {
            self.end(id, since, EndCause::Reused);
        }
        if last < self.dumped_ns {
            self.end(id, self.dumped_ns, EndCause::Missed);
        }
    }

    /// When the thread that had this one's number next is known to have had it.
    fn since_reused(&self, id: TaskId) -> Option<u64> {
        let starts = self.starts.get(&id.tid)?;
        let next = starts.partition_point(|start| *start <= id.start_ns);
        let start_ns = *starts.get(next)?;
        let task = self.tasks.get(&TaskId { start_ns, ..id })?;
        Some(task.first_ns)
    }

    /// Forgets those that ended first, when there are too many.
    fn forget(&mut self) {
        while self.ended.len() > self.limits.ended {
            let Some((_, id)) = self.ended.pop_first() else {
                return;
            };
            self.tasks.remove(&id);
            self.forgotten += 1;
            if let Some(starts) = self.starts.get_mut(&id.tid) {
                starts.retain(|start| *start != id.start_ns);
                if starts.is_empty() {
                    self.starts.remove(&id.tid);
                    self.moved.remove(&id.tid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
