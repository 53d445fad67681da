// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks that were there when a recording began: LTTng's state dump.
//!
//! LTTng writes it in the order of `lttng_statedump_process_ns` in lttng-statedump-impl.c, and
//! the values of the process state are those of the enumerations there.

use super::{At, KernelEvent, KernelEvents, StatedumpShape};
use crate::error::CtfError;
use crate::trace::Trace;
use crate::types::Value;
use nsprobe_common::task::{
    TaskDetails, TaskRecord, NAMESPACE_CGROUP, NAMESPACE_IPC, NAMESPACE_MOUNT, NAMESPACE_NETWORK,
    NAMESPACE_TIME, NAMESPACE_USER, NAMESPACE_UTS, TASK_BARE, TASK_KERNEL, TASK_ZOMBIE,
};

/// `LTTNG_KERNEL_THREAD` of the thread types; user threads are zero.
const KERNEL_THREAD: u64 = 1;
/// `LTTNG_MODE_UNKNOWN` of the execution modes.
const MODE_UNKNOWN: u64 = 5;
/// `LTTNG_NONE` of the execution submodes.
const SUBMODE_NONE: u64 = 0;
/// Process states: `LTTNG_UNNAMED`, `_WAIT_CPU`, `_ZOMBIE` and `_WAIT`.
const UNNAMED: u64 = 0;
const WAIT_CPU: u64 = 2;
const ZOMBIE: u64 = 4;
const WAIT: u64 = 5;
/// `TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE`.
const WAITING_STATES: u32 = 3;
/// Inode number of the first user namespace (`PROC_USER_INIT_INO`).
const FIRST_USER_NAMESPACE: u32 = 0xefff_fffd;
/// A user or group that is not known: `(uid_t)-1`, which no user has.
const NOBODY_KNOWN: u32 = u32::MAX;
/// A user namespace's level that is not known.
const LEVEL_UNKNOWN: i64 = -1;
/// LTTng's address of the table of open files, which a record has not: no table has it.
const NO_TABLE: u64 = 0;
/// All of the dump is on one CPU's stream, as LTTng's is.
const DUMP_CPU: u32 = 0;

/// Namespaces whose events are alike.
const PLAIN: [(KernelEvent, usize); 6] = [
    (KernelEvent::CgroupNs, NAMESPACE_CGROUP),
    (KernelEvent::IpcNs, NAMESPACE_IPC),
    (KernelEvent::MntNs, NAMESPACE_MOUNT),
    (KernelEvent::NetNs, NAMESPACE_NETWORK),
    (KernelEvent::UtsNs, NAMESPACE_UTS),
    (KernelEvent::TimeNs, NAMESPACE_TIME),
];

impl KernelEvents {
    /// A dump begins.
    pub fn dump_start(&self, trace: &mut Trace, time_ns: u64) -> Result<(), CtfError> {
        self.write(trace, KernelEvent::DumpStart, dump_at(time_ns), &[])
    }

    /// Ends the dump: all its events were written.
    pub fn dump_end(&self, trace: &mut Trace, time_ns: u64) -> Result<(), CtfError> {
        self.write(trace, KernelEvent::DumpEnd, dump_at(time_ns), &[])
    }

    /// A task of a dump.
    pub(super) fn alive(
        &self,
        trace: &mut Trace,
        record: &TaskRecord,
        details: &TaskDetails<'_>,
    ) -> Result<(), CtfError> {
        let at = dump_at(record.time_ns);
        let tid = details.outer().tid;
        self.process_state(trace, at, record, details)?;
        for (number, level) in details.levels.iter().enumerate().rev() {
            let values = [
                tid.into(),
                level.tid.into(),
                level.pid.into(),
                level.ppid.into(),
                (number as u64).into(),
                level.inum.into(),
            ];
            self.write(trace, KernelEvent::PidNs, at, &values)?;
        }
        if record.flags & TASK_BARE == 0 {
            self.user_namespace(trace, at, record, tid)?;
            for (event, index) in PLAIN {
                let inum = record.namespaces.get(index).copied().unwrap_or(0);
                self.write(trace, event, at, &[tid.into(), inum.into()])?;
            }
        }
        self.cgroup(trace, at, record, tid)
    }

    /// One event, or one for each pid namespace, the deepest first.
    fn process_state(
        &self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        details: &TaskDetails<'_>,
    ) -> Result<(), CtfError> {
        let outer = details.outer();
        let is_kernel = record.flags & TASK_KERNEL != 0;
        let states: [Value<'_>; 4] = [
            (if is_kernel { KERNEL_THREAD } else { 0 }).into(),
            MODE_UNKNOWN.into(),
            SUBMODE_NONE.into(),
            status(record).into(),
        ];
        let name = Value::text(&record.comm);
        let [tid, pid, ppid, cpu] = [outer.tid, outer.pid, outer.ppid, record.cpu].map(Value::from);
        if self.shape == StatedumpShape::New {
            let mut values = vec![tid, pid, ppid, name];
            values.extend(states);
            values.extend([cpu, NO_TABLE.into()]);
            return self.write(trace, KernelEvent::ProcessState, at, &values);
        }
        for (number, level) in details.levels.iter().enumerate().rev() {
            let [vtid, vpid, vppid, inum] =
                [level.tid, level.pid, level.ppid, level.inum].map(Value::from);
            let mut values = vec![tid.clone(), vtid, pid.clone(), vpid, ppid.clone(), vppid];
            values.push(name.clone());
            values.extend(states.iter().cloned());
            values.extend([(number as u64).into(), inum, cpu.clone()]);
            self.write(trace, KernelEvent::ProcessState, at, &values)?;
        }
        Ok(())
    }

    /// LTTng continues with the namespaces around it, and reports the user as each numbers it; a
    /// record has neither, but for the first one.
    fn user_namespace(
        &self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        tid: u32,
    ) -> Result<(), CtfError> {
        let inum = record.namespaces.get(NAMESPACE_USER).copied().unwrap_or(0);
        let (user, level) = match inum {
            FIRST_USER_NAMESPACE => (record.uid, 0),
            _ => (NOBODY_KNOWN, LEVEL_UNKNOWN),
        };
        let values = [
            tid.into(),
            user.into(),
            NOBODY_KNOWN.into(),
            level.into(),
            inum.into(),
        ];
        self.write(trace, KernelEvent::UserNs, at, &values)
    }
}

fn dump_at(time_ns: u64) -> At {
    At {
        cpu: DUMP_CPU,
        time_ns,
    }
}

/// The state of a task in LTTng's terms: a running task counts as waiting for a CPU.
fn status(record: &TaskRecord) -> u64 {
    match (record.flags & TASK_ZOMBIE, record.state) {
        (TASK_ZOMBIE, _) => ZOMBIE,
        (_, 0) => WAIT_CPU,
        (_, state) if state & WAITING_STATES != 0 => WAIT,
        _ => UNNAMED,
    }
}
