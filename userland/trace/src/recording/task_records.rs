// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks in a recording: those that live at the beginning, and the events by outcome.

use crate::options::TraceOptions;
use libnsprobe::common::abi::{
    TaskCount, TASK_KIND_CGROUP, TASK_KIND_EXEC, TASK_KIND_EXIT, TASK_KIND_FORK, TASK_KIND_NAME,
    TASK_KIND_NAMESPACES, TASK_KIND_SWITCH, TASK_KIND_WAKE,
};
use libnsprobe::common::task::TASK_ARGS_MAX;
use libnsprobe::{DumpOptions, Error, Session, TaskCounters, TaskDump, TaskOptions};
use nsprobe_capsule::model::TaskTotal;
use std::collections::BTreeMap;

/// Names of the kinds of events.
const KINDS: [(usize, &str); 8] = [
    (TASK_KIND_FORK, "fork"),
    (TASK_KIND_EXEC, "exec"),
    (TASK_KIND_EXIT, "exit"),
    (TASK_KIND_NAME, "name"),
    (TASK_KIND_NAMESPACES, "namespaces"),
    (TASK_KIND_CGROUP, "cgroup"),
    (TASK_KIND_SWITCH, "switch"),
    (TASK_KIND_WAKE, "wake"),
];
/// Most bytes of arguments that are recorded of a program that starts.
const ARGS_BYTES: u32 = 512;
const _: () = assert!(ARGS_BYTES as usize <= TASK_ARGS_MAX);

/// Has events of tasks recorded from here on; returns the living tasks. Events that the kernel does
/// not report are skipped, with a note.
pub fn begin(session: &mut Session, flags: u32, told: &TraceOptions) -> anyhow::Result<TaskDump> {
    if flags == 0 {
        return Ok(TaskDump::default());
    }
    let mut options = TaskOptions {
        flags,
        args_bytes: ARGS_BYTES,
        cpu_rows: 0,
    };
    match session.set_tasks(&options) {
        Err(error @ Error::NoTaskEvents(missing)) if options.flags & !missing != 0 => {
            told.note(&format!("{error}: the capsule lacks them"));
            options.flags &= !missing;
            session.set_tasks(&options)?;
        }
        result => result?,
    }
    Ok(dump(session)?)
}

/// The tasks that live now, of those whose events are recorded.
pub fn dump(session: &Session) -> Result<TaskDump, Error> {
    session.dump_tasks(DumpOptions {
        args: true,
        mappings: false,
    })
}

/// Events by name and outcome, without kinds that have none.
pub fn totals(counters: &TaskCounters) -> BTreeMap<String, TaskTotal> {
    let count = |kind: usize| counters.kinds.get(kind).copied().unwrap_or_default();
    let total = |count: TaskCount| TaskTotal {
        seen: count.seen,
        recorded: count.recorded,
        filtered: count.filtered,
        lost: count.lost,
    };
    let all = KINDS.iter().map(|(kind, name)| (*name, count(*kind)));
    all.filter(|(_, count)| count.seen > 0)
        .map(|(name, count)| (name.to_owned(), total(count)))
        .collect()
}
