// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events and their fields. Those of lttng-modules are as its files
//! `instrumentation/events/sched.h` and `lttng-statedump.h` have them; a test compares them
//! with `tests/golden/lttng-*.txt`.

use crate::types::{EventClass, Field, Type};

/// How a state dump writes the state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatedumpShape {
    /// As lttng-modules 2.11 did: once for each pid namespace of a task, the deepest first,
    /// with the numbers that it has there.
    #[default]
    Old,
    /// As lttng-modules 2.12 and later do: once for each task.
    New,
}

impl StatedumpShape {
    /// The version of lttng-modules whose layout it is: major, minor, patch level.
    pub fn version(self) -> [u32; 3] {
        match self {
            StatedumpShape::Old => [2, 11, 9],
            StatedumpShape::New => [2, 16, 0],
        }
    }
}

/// An event of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// One thread took another's place.
    Switch,
    /// A thread is being woken.
    Waking,
    /// A thread was woken.
    Wakeup,
    /// A new thread was woken.
    WakeupNew,
    /// A task was made.
    Fork,
    /// It executes another program.
    Exec,
    /// It ends.
    Exit,
    /// A state dump begins.
    DumpStart,
    /// The dump is complete.
    DumpEnd,
    /// A task that is there.
    ProcessState,
    /// Its pid namespaces, one by one.
    PidNs,
    /// Its user namespace.
    UserNs,
    /// Its cgroup namespace.
    CgroupNs,
    /// Its IPC namespace.
    IpcNs,
    /// Its mount namespace.
    MntNs,
    /// Its network namespace.
    NetNs,
    /// Its UTS namespace.
    UtsNs,
    /// Its time namespace.
    TimeNs,
    /// A pid namespace that was not met before.
    PidNamespace,
    /// A task has another name.
    TaskName,
    /// A task ended, and how.
    TaskExit,
    /// A task is in other namespaces.
    TaskNamespaces,
    /// The control group that a task is in.
    TaskCgroup,
}

/// Types of fields, by the C types that LTTng makes them of.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldType {
    /// `pid_t` and `int`.
    Int,
    /// `unsigned int`, `uid_t` and `gid_t`.
    Unsigned,
    /// `u64`.
    Wide,
    /// `long`.
    Long,
    /// `bool`.
    Bool,
    /// A pointer, in hexadecimal.
    Pointer,
    /// `char[TASK_COMM_LEN]`.
    Comm,
    /// A string.
    Text,
    /// `pid_t`s, their number a `u8`.
    Pids,
}

use FieldType::{Bool, Comm, Int, Long, Pids, Pointer, Text, Unsigned, Wide};

const WAKE: &[(&str, FieldType)] = &[
    ("comm", Comm),
    ("tid", Int),
    ("prio", Int),
    ("target_cpu", Int),
];
const NAMESPACE: &[(&str, FieldType)] = &[("tid", Int), ("ns_inum", Unsigned)];

/// `lttng_statedump_process_state` of the old shape.
const PROCESS_STATE_OLD: &[(&str, FieldType)] = &[
    ("tid", Int),
    ("vtid", Int),
    ("pid", Int),
    ("vpid", Int),
    ("ppid", Int),
    ("vppid", Int),
    ("name", Comm),
    ("type", Int),
    ("mode", Int),
    ("submode", Int),
    ("status", Int),
    ("ns_level", Int),
    ("ns_inum", Unsigned),
    ("cpu", Unsigned),
];

/// `sched_process_exit` of kernels before 6.16.
const EXIT_OLD: &[(&str, FieldType)] = &[("comm", Comm), ("tid", Int), ("prio", Int)];

/// An event, its name, and its fields with their types.
type Layout = (
    KernelEvent,
    &'static str,
    &'static [(&'static str, FieldType)],
);

/// All events, with the fields that they have in the new shape.
#[rustfmt::skip]
pub(super) const ALL: [Layout; 23] = [
    (KernelEvent::Switch, "sched_switch", &[
        ("prev_comm", Comm), ("prev_tid", Int), ("prev_prio", Int), ("prev_state", Long),
        ("next_comm", Comm), ("next_tid", Int), ("next_prio", Int),
    ]),
    (KernelEvent::Waking, "sched_waking", WAKE),
    (KernelEvent::Wakeup, "sched_wakeup", WAKE),
    (KernelEvent::WakeupNew, "sched_wakeup_new", WAKE),
    (KernelEvent::Fork, "sched_process_fork", &[
        ("parent_comm", Comm), ("parent_tid", Int), ("parent_pid", Int),
        ("parent_ns_inum", Unsigned),
        ("child_comm", Comm), ("child_tid", Int), ("vtids", Pids), ("child_pid", Int),
        ("child_ns_inum", Unsigned),
    ]),
    (KernelEvent::Exec, "sched_process_exec", &[
        ("filename", Text), ("tid", Int), ("old_tid", Int),
    ]),
    (KernelEvent::Exit, "sched_process_exit", &[
        ("comm", Comm), ("tid", Int), ("prio", Int), ("group_dead", Bool),
    ]),
    (KernelEvent::DumpStart, "lttng_statedump_start", &[]),
    (KernelEvent::DumpEnd, "lttng_statedump_end", &[]),
    (KernelEvent::ProcessState, "lttng_statedump_process_state", &[
        ("tid", Int), ("pid", Int), ("ppid", Int), ("name", Comm), ("type", Int), ("mode", Int),
        ("submode", Int), ("status", Int), ("cpu", Unsigned), ("file_table_address", Pointer),
    ]),
    (KernelEvent::PidNs, "lttng_statedump_process_pid_ns", &[
        ("tid", Int), ("vtid", Int), ("vpid", Int), ("vppid", Int), ("ns_level", Int),
        ("ns_inum", Unsigned),
    ]),
    (KernelEvent::UserNs, "lttng_statedump_process_user_ns", &[
        ("tid", Int), ("vuid", Unsigned), ("vgid", Unsigned), ("ns_level", Int),
        ("ns_inum", Unsigned),
    ]),
    (KernelEvent::CgroupNs, "lttng_statedump_process_cgroup_ns", NAMESPACE),
    (KernelEvent::IpcNs, "lttng_statedump_process_ipc_ns", NAMESPACE),
    (KernelEvent::MntNs, "lttng_statedump_process_mnt_ns", NAMESPACE),
    (KernelEvent::NetNs, "lttng_statedump_process_net_ns", NAMESPACE),
    (KernelEvent::UtsNs, "lttng_statedump_process_uts_ns", NAMESPACE),
    (KernelEvent::TimeNs, "lttng_statedump_process_time_ns", NAMESPACE),
    (KernelEvent::PidNamespace, "nsprobe_pid_namespace", &[
        ("ns_inum", Unsigned), ("parent_ns_inum", Unsigned), ("ns_level", Int),
    ]),
    (KernelEvent::TaskName, "nsprobe_task_name", &[("comm", Comm), ("tid", Int)]),
    (KernelEvent::TaskExit, "nsprobe_task_exit", &[("tid", Int), ("status", Unsigned)]),
    (KernelEvent::TaskNamespaces, "nsprobe_task_namespaces", &[
        ("tid", Int), ("mnt_ns", Unsigned), ("uts_ns", Unsigned), ("ipc_ns", Unsigned),
        ("net_ns", Unsigned), ("user_ns", Unsigned), ("cgroup_ns", Unsigned),
        ("time_ns", Unsigned), ("pid_ns_for_children", Unsigned),
    ]),
    (KernelEvent::TaskCgroup, "nsprobe_task_cgroup", &[("tid", Int), ("cgroup", Wide)]),
];

impl FieldType {
    fn kind(self) -> Type {
        match self {
            Int => Type::signed(32),
            Unsigned => Type::unsigned(32),
            Wide => Type::unsigned(64),
            Long => Type::signed(64),
            Bool => Type::unsigned(8),
            Pointer => Type::hex(),
            Comm => Type::Name { bytes: 16 },
            Text => Type::Text,
            Pids => Type::Sequence {
                length_bits: 8,
                element: Box::new(Type::signed(32)),
            },
        }
    }
}

/// The classes of all events in that shape.
pub fn classes(shape: StatedumpShape) -> Vec<EventClass> {
    let fields = |event, fields| match (shape, event) {
        (StatedumpShape::Old, KernelEvent::ProcessState) => PROCESS_STATE_OLD,
        (StatedumpShape::Old, KernelEvent::Exit) => EXIT_OLD,
        _ => fields,
    };
    let class = |(event, name, new): Layout| EventClass {
        name: name.to_owned(),
        fields: fields(event, new)
            .iter()
            .map(|(name, kind)| Field::new(*name, kind.kind()))
            .collect(),
    };
    ALL.into_iter().map(class).collect()
}
