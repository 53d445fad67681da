// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task in words: for people, and for machines.

use super::{Clocks, Place};
use libnsprobe::common::task::{
    TaskLevel, NAMESPACE_CGROUP, NAMESPACE_IPC, NAMESPACE_MOUNT, NAMESPACE_NETWORK,
    NAMESPACE_PID_CHILDREN, NAMESPACE_TIME, NAMESPACE_USER, NAMESPACE_UTS,
};
use nsprobe_tasks::{EndCause, Namespaces, Origin, Program, Task, Times};
use nsprobe_text::escaped;
use serde::Serialize;

/// Letters of `TaskRecord::state`'s bits, as ps(1) has them.
const STATES: [(u32, char); 7] = [
    (0x01, 'S'),
    (0x02, 'D'),
    (0x04, 'T'),
    (0x08, 't'),
    (0x20, 'Z'),
    (0x10, 'X'),
    (0x40, 'P'),
];
/// A kernel thread that waits without a load of its own.
const IDLE: u32 = 0x80;

/// Whether a task has a number: it lives, or its parent has not fetched its exit code.
pub fn is_there(task: &Task) -> bool {
    task.is_alive() || task.end.is_some_and(|end| end.cause == EndCause::Zombie)
}

/// State of a task, as ps(1) shows it.
pub fn state_letter(task: &Task) -> char {
    match task.end.map(|end| end.cause) {
        Some(EndCause::Zombie) => return 'Z',
        Some(_) => return 'X',
        None => {}
    }
    let state = task.times.state;
    if state & IDLE != 0 {
        return 'I';
    }
    let known = STATES.iter().find(|(bit, _)| state & bit != 0);
    known.map_or('R', |(_, letter)| *letter)
}

/// The arguments, one by one.
pub(crate) fn arguments(program: &Program) -> Vec<&[u8]> {
    let args = program.args.strip_suffix(b"\0").unwrap_or(&program.args);
    match args.is_empty() {
        true => Vec::new(),
        false => args.split(|byte| *byte == 0).collect(),
    }
}

/// A command as it could have been typed, escaped; the name in brackets where there are no
/// arguments, as of kernel threads.
pub fn command_line(task: &Task) -> String {
    let program = task.programs.last();
    let words: Vec<String> = program
        .map(arguments)
        .unwrap_or_default()
        .into_iter()
        .map(|word| escaped(word).to_string())
        .collect();
    if words.is_empty() {
        return format!("[{}]", escaped(task.comm()));
    }
    let is_cut = program.is_some_and(|program| program.is_cut);
    let more = if is_cut { " ..." } else { "" };
    format!("{}{more}", words.join(" "))
}

/// A task for machines.
#[derive(Serialize)]
pub struct TaskLine {
    r#type: &'static str,
    pid: u32,
    tid: u32,
    ppid: u32,
    levels: Vec<LevelLine>,
    start_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_s: Option<f64>,
    state: char,
    cpu_ns: u64,
    user_ns: u64,
    system_ns: u64,
    cpu: u32,
    priority: u32,
    uid: u32,
    comm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Vec<String>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    args_cut: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    kernel_thread: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    seen_late: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<EndLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<NamespacesLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    #[serde(flatten)]
    place: PlaceLine,
}

/// Place of a task, for JSON.
#[derive(Clone, Serialize)]
pub struct PlaceLine {
    r#in: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

#[derive(Serialize)]
struct LevelLine {
    pid_namespace: u32,
    pid_namespace_id: u64,
    pid: u32,
    tid: u32,
    ppid: u32,
}

#[derive(Serialize)]
struct EndLine {
    time_ns: u64,
    how: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u32>,
}

#[derive(Serialize)]
struct NamespacesLine {
    mnt: u32,
    uts: u32,
    ipc: u32,
    net: u32,
    user: u32,
    cgroup: u32,
    time: u32,
    pid_for_children: u32,
}

impl PlaceLine {
    /// As JSON has the place.
    pub fn new(place: &Place) -> PlaceLine {
        let known = place.known();
        PlaceLine {
            r#in: place.kind(),
            container: known.map(|known| known.name.clone()),
            runtime: known.map(|known| known.runtime.clone()),
            container_id: known.and_then(|known| known.id.clone()),
            pod: known.and_then(|known| known.pod.clone()),
        }
    }
}

impl TaskLine {
    /// A task that is there; `clocks` are those of the same moment.
    pub fn new(task: &Task, place: &Place, clocks: Option<Clocks>) -> TaskLine {
        let own = task.levels.last().map_or(&[][..], |levels| levels);
        let program = task.programs.last();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let words = |program: &Program| arguments(program).into_iter().map(text).collect();
        let started = |clocks: Clocks| clocks.real(task.id.start_ns) as f64 / 1e9;
        TaskLine {
            r#type: "task",
            pid: task.pid(),
            tid: task.id.tid,
            ppid: task.outer().ppid,
            levels: own.iter().map(LevelLine::new).collect(),
            start_ns: task.id.start_ns,
            started_s: clocks.map(started),
            state: state_letter(task),
            cpu_ns: task.times.cpu_ns,
            user_ns: task.times.user_ns,
            system_ns: task.times.system_ns,
            cpu: task.times.cpu,
            priority: task.times.priority,
            uid: task.users.last().copied().unwrap_or_default(),
            comm: text(task.comm()),
            args: program.filter(|program| !program.is_absent).map(words),
            args_cut: program.is_some_and(|program| program.is_cut),
            kernel_thread: task.is_kernel,
            seen_late: task.origin == Origin::Late,
            ended: task.end.map(EndLine::new),
            cgroup: task.cgroups.last().copied(),
            namespaces: task.namespaces.last().map(NamespacesLine::new),
            threads: None,
            place: PlaceLine::new(place),
        }
    }

    /// The line of a process: its number of threads, and how long they have run together.
    pub fn of_process(self, threads: usize, times: &Times) -> TaskLine {
        TaskLine {
            r#type: "process",
            threads: Some(threads),
            cpu_ns: times.cpu_ns,
            user_ns: times.user_ns,
            system_ns: times.system_ns,
            ..self
        }
    }
}

impl LevelLine {
    fn new(level: &TaskLevel) -> LevelLine {
        LevelLine {
            pid_namespace: level.inum,
            pid_namespace_id: level.id,
            pid: level.pid,
            tid: level.tid,
            ppid: level.ppid,
        }
    }
}

impl EndLine {
    fn new(end: nsprobe_tasks::End) -> EndLine {
        let (how, code) = match end.cause {
            EndCause::Exit { code, .. } => ("exit", Some(code)),
            EndCause::BecameFirst => ("became-first", None),
            EndCause::Zombie => ("zombie", None),
            EndCause::Reused => ("number-reused", None),
            EndCause::Missed => ("missed", None),
        };
        EndLine {
            time_ns: end.time_ns,
            how,
            code,
        }
    }
}

impl NamespacesLine {
    fn new(all: &Namespaces) -> NamespacesLine {
        NamespacesLine {
            mnt: all[NAMESPACE_MOUNT],
            uts: all[NAMESPACE_UTS],
            ipc: all[NAMESPACE_IPC],
            net: all[NAMESPACE_NETWORK],
            user: all[NAMESPACE_USER],
            cgroup: all[NAMESPACE_CGROUP],
            time: all[NAMESPACE_TIME],
            pid_for_children: all[NAMESPACE_PID_CHILDREN],
        }
    }
}
