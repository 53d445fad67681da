// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tasks do, in the events of lttng-modules: readers of LTTng's traces, such as Trace
//! Compass, know them by their names and fields. What these cannot tell has events of its own,
//! whose names begin with `nsprobe_`.

mod dump;
mod layout;
mod names;

pub use layout::{classes, KernelEvent, StatedumpShape};

use crate::error::CtfError;
use crate::trace::Trace;
use crate::types::{Channel, ChannelId, EventId, Value};
use layout::ALL;
use names::ThreadNames;
use nsprobe_common::task::{
    SwitchRecord, TaskDetails, TaskLevel, TaskRecord, WakeRecord, NAMESPACES, SWITCH_FROM_IDLE,
    SWITCH_TO_IDLE, TASK_ALIVE, TASK_CGROUP, TASK_EXEC, TASK_EXIT, TASK_FORK, TASK_LAST, TASK_NAME,
    TASK_NAMESPACES, WAKE_BEGUN, WAKE_DONE, WAKE_NEW,
};
use std::collections::HashMap;

/// The kernel's `MAX_RT_PRIO`: LTTng counts priorities from there.
const FIRST_NICE_PRIORITY: i64 = 100;
/// In place of a thread's number: the recorder's pid namespace does not see the thread.
const UNSEEN: i64 = -1;

/// Most pid namespaces that are remembered as announced.
const NAMESPACES_MAX: usize = 1 << 20;

/// Writes records of tasks into a channel of a trace.
#[derive(Debug)]
pub struct KernelEvents {
    channel: ChannelId,
    shape: StatedumpShape,
    /// By their place in [`ALL`].
    ids: Vec<EventId>,
    names: ThreadNames,
    /// The parent of each pid namespace that was announced.
    parents: HashMap<u32, u32>,
}

/// Where and when something was.
#[derive(Clone, Copy, Debug)]
struct At {
    cpu: u32,
    time_ns: u64,
}

impl KernelEvents {
    /// With a channel of their own.
    pub fn new(trace: &mut Trace, shape: StatedumpShape) -> Result<KernelEvents, CtfError> {
        let channel = trace.channel(Channel {
            name: "channel0".to_owned(),
            context: Vec::new(),
        });
        let classes = classes(shape).into_iter();
        let ids = classes.map(|class| trace.class(channel, class));
        Ok(KernelEvents {
            channel,
            shape,
            ids: ids.collect::<Result<_, _>>()?,
            names: ThreadNames::default(),
            parents: HashMap::new(),
        })
    }

    /// The channel.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Writes a context switch.
    pub fn switch(&self, trace: &mut Trace, record: &SwitchRecord) -> Result<(), CtfError> {
        let at = At {
            cpu: record.cpu.into(),
            time_ns: record.time_ns,
        };
        let idle = format!("swapper/{}", record.cpu);
        let thread = |tid: u32, idle_bit: u16| match (record.flags & idle_bit != 0, tid) {
            (true, _) => (Value::text(&idle), Value::Signed(0)),
            (false, 0) => (self.names.value(0), Value::Signed(UNSEEN)),
            (false, tid) => (self.names.value(tid), tid.into()),
        };
        let (prev_comm, prev_tid) = thread(record.prev_tid, SWITCH_FROM_IDLE);
        let (next_comm, next_tid) = thread(record.next_tid, SWITCH_TO_IDLE);
        let values = [
            prev_comm,
            prev_tid,
            priority(record.prev_priority.into()),
            Value::Unsigned(record.prev_state.into()),
            next_comm,
            next_tid,
            priority(record.next_priority.into()),
        ];
        self.write(trace, KernelEvent::Switch, at, &values)
    }

    /// Writes a wake-up; skips one of a later kind.
    pub fn wake(&self, trace: &mut Trace, record: &WakeRecord) -> Result<(), CtfError> {
        let event = match record.what {
            WAKE_BEGUN => KernelEvent::Waking,
            WAKE_DONE => KernelEvent::Wakeup,
            WAKE_NEW => KernelEvent::WakeupNew,
            _ => return Ok(()),
        };
        let at = At {
            cpu: record.cpu.into(),
            time_ns: record.time_ns,
        };
        let values = [
            self.names.value(record.tid),
            record.tid.into(),
            priority(record.priority.into()),
            Value::Unsigned(record.target_cpu.into()),
        ];
        self.write(trace, event, at, &values)
    }

    /// Writes what happened to a task; skips what a later version knows. `program` is
    /// the path of what it executes, as far as that is known.
    pub fn task(
        &mut self,
        trace: &mut Trace,
        record: &TaskRecord,
        details: &TaskDetails<'_>,
        program: Option<&[u8]>,
    ) -> Result<(), CtfError> {
        let at = At {
            cpu: record.cpu,
            time_ns: record.time_ns,
        };
        let tid = details.outer().tid;
        self.names.set(tid, record.comm);
        self.tell_namespaces(trace, at, details.levels)?;
        match record.what {
            TASK_ALIVE => self.alive(trace, record, details),
            TASK_FORK => self.fork(trace, at, record, details),
            TASK_EXEC => self.exec(trace, at, record, tid, program),
            TASK_EXIT => self.exit(trace, at, record, tid),
            TASK_NAME => {
                let values = [self.names.value(tid), tid.into()];
                self.write(trace, KernelEvent::TaskName, at, &values)
            }
            TASK_NAMESPACES => self.namespaces(trace, at, record, tid),
            TASK_CGROUP => self.cgroup(trace, at, record, tid),
            _ => Ok(()),
        }
    }

    /// Announces pid namespaces that are new, or had another parent.
    fn tell_namespaces(
        &mut self,
        trace: &mut Trace,
        at: At,
        levels: &[TaskLevel],
    ) -> Result<(), CtfError> {
        let mut parent = 0;
        for (number, level) in levels.iter().enumerate() {
            if self.parents.get(&level.inum) != Some(&parent) {
                if self.parents.len() >= NAMESPACES_MAX {
                    self.parents.clear();
                }
                self.parents.insert(level.inum, parent);
                let values = [level.inum.into(), parent.into(), (number as u64).into()];
                self.write(trace, KernelEvent::PidNamespace, at, &values)?;
            }
            parent = level.inum;
        }
        Ok(())
    }

    fn fork(
        &self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        details: &TaskDetails<'_>,
    ) -> Result<(), CtfError> {
        let (child, own) = (details.outer(), details.own());
        let maker = details.parent.first().copied();
        let maker_namespace = details.parent.last().map_or(0, |level| level.inum);
        let number = |part: fn(&TaskLevel) -> u32| {
            maker.map_or(Value::Signed(UNSEEN), |maker| part(&maker).into())
        };
        let tids = details.levels.iter().map(|level| level.tid.into());
        let values = [
            // A task begins with the name of the one that makes it.
            Value::text(&record.comm),
            number(|maker| maker.tid),
            number(|maker| maker.pid),
            maker_namespace.into(),
            Value::text(&record.comm),
            child.tid.into(),
            Value::List(tids.collect()),
            child.pid.into(),
            own.inum.into(),
        ];
        self.write(trace, KernelEvent::Fork, at, &values)
    }

    fn exec(
        &mut self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        tid: u32,
        program: Option<&[u8]>,
    ) -> Result<(), CtfError> {
        let old_tid = match record.value {
            0 => tid,
            old_tid => old_tid,
        };
        if old_tid != tid {
            self.names.forget(old_tid);
        }
        let comm = names::without_padding(&record.comm);
        let values = [
            Value::text(program.unwrap_or(comm)),
            tid.into(),
            old_tid.into(),
        ];
        self.write(trace, KernelEvent::Exec, at, &values)
    }

    fn exit(
        &self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        tid: u32,
    ) -> Result<(), CtfError> {
        let mut values = vec![
            Value::text(&record.comm),
            tid.into(),
            priority(record.priority),
        ];
        if self.shape == StatedumpShape::New {
            values.push(u32::from(record.flags & TASK_LAST != 0).into());
        }
        self.write(trace, KernelEvent::Exit, at, &values)?;
        let values = [tid.into(), record.value.into()];
        self.write(trace, KernelEvent::TaskExit, at, &values)
    }

    fn namespaces(
        &self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        tid: u32,
    ) -> Result<(), CtfError> {
        let mut values: Vec<Value<'_>> = Vec::with_capacity(1 + NAMESPACES);
        values.push(tid.into());
        values.extend(record.namespaces.iter().map(|inum| Value::from(*inum)));
        self.write(trace, KernelEvent::TaskNamespaces, at, &values)
    }

    fn cgroup(
        &self,
        trace: &mut Trace,
        at: At,
        record: &TaskRecord,
        tid: u32,
    ) -> Result<(), CtfError> {
        let values = [tid.into(), record.cgroup.into()];
        self.write(trace, KernelEvent::TaskCgroup, at, &values)
    }

    fn write(
        &self,
        trace: &mut Trace,
        event: KernelEvent,
        at: At,
        values: &[Value<'_>],
    ) -> Result<(), CtfError> {
        let place = ALL.iter().position(|(known, ..)| *known == event);
        let id = place.and_then(|place| self.ids.get(place));
        let id = *id.ok_or(CtfError::NoClass)?;
        trace.event(id, at.cpu, at.time_ns, &[], values)
    }
}

/// As LTTng counts them: 20 plus nice levels, below zero for real-time.
fn priority(priority: u32) -> Value<'static> {
    Value::Signed(i64::from(priority) - FIRST_NICE_PRIORITY)
}
