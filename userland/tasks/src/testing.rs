// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that were made up.

use crate::Tasks;
use nsprobe_common::task::{TaskDetails, TaskLevel, TaskRecord, NAMESPACES};

/// The opener's pid namespace.
pub(crate) const OUTER: u32 = 100;

/// A record with what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) record: TaskRecord,
    pub(crate) levels: Vec<TaskLevel>,
    pub(crate) parent: Vec<TaskLevel>,
}

impl Made {
    /// What happened, when, and to which thread.
    pub(crate) fn of(what: u16, time_ns: u64, tid: u32, start_ns: u64) -> Made {
        let record = TaskRecord {
            what,
            time_ns,
            start_ns,
            value: tid,
            namespaces: [3; NAMESPACES],
            ..TaskRecord::default()
        };
        let level = TaskLevel {
            id: u64::from(OUTER),
            inum: OUTER,
            tid,
            pid: tid,
            ppid: 1,
        };
        Made {
            record,
            levels: vec![level],
            parent: Vec::new(),
        }
    }

    pub(crate) fn of_process(mut self, pid: u32) -> Made {
        self.levels[0].pid = pid;
        self
    }

    pub(crate) fn below(mut self, ppid: u32) -> Made {
        self.levels[0].ppid = ppid;
        self
    }

    pub(crate) fn made_by(mut self, tid: u32) -> Made {
        self.parent = vec![TaskLevel {
            id: u64::from(OUTER),
            inum: OUTER,
            tid,
            pid: tid,
            ppid: 0,
        }];
        self
    }

    pub(crate) fn named(mut self, name: &str) -> Made {
        self.record.comm = [0; 16];
        self.record.comm[..name.len()].copy_from_slice(name.as_bytes());
        self
    }

    pub(crate) fn in_group(mut self, cgroup: u64) -> Made {
        self.record.cgroup = cgroup;
        self
    }
}

pub(crate) fn apply(tasks: &mut Tasks, made: &Made) {
    let details = TaskDetails {
        levels: &made.levels,
        parent: &made.parent,
        args: &[],
    };
    tasks.apply(&made.record, &details);
}
