// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals that were made up, for tests.

use super::interval::{GroupUse, Interval, ProcessUse, ThreadUse};
use nsprobe_tasks::TaskId;
use nsprobe_trace::tasks::{NamedContainer, Place};
use std::rc::Rc;

pub(super) const MS: u64 = 1_000_000;

pub(super) fn container(name: &str) -> Place {
    Place::Container(Rc::new(NamedContainer {
        name: name.to_owned(),
        runtime: "podman".to_owned(),
        id: None,
        pod: None,
    }))
}

pub(super) fn thread(tid: u32, own_tid: u32, comm: &str, cpu_ms: u64) -> ThreadUse {
    ThreadUse {
        id: TaskId { tid, start_ns: 1 },
        own_tid,
        comm: comm.as_bytes().to_vec(),
        cpu_ns: cpu_ms * MS,
        has_ended: false,
    }
}

pub(super) fn process(threads: Vec<ThreadUse>) -> ProcessUse {
    ProcessUse {
        pid: threads[0].id.tid,
        own_pid: threads[0].own_tid,
        comm: threads[0].comm.clone(),
        cpu_ns: threads.iter().map(|thread| thread.cpu_ns).sum(),
        threads,
    }
}

pub(super) fn group(place: Place, cpu_ms: u64, processes: Vec<ProcessUse>) -> GroupUse {
    GroupUse {
        place,
        cpu_ns: cpu_ms * MS,
        switches: 10 * cpu_ms,
        threads: processes.iter().map(|process| process.threads.len()).sum(),
        living: processes.len(),
        processes,
    }
}

/// Two seconds of a machine of four CPUs: a busy container, an idle one with a deceiving
/// name, the host and the kernel.
pub(super) fn interval() -> Interval {
    let mut ended = thread(171, 9, "sh", 60);
    ended.has_ended = true;
    let redis = process(vec![
        thread(165, 1, "redis-server", 900),
        thread(170, 5, "bio_aof", 40),
    ]);
    let groups = vec![
        group(container("web"), 1010, vec![redis, process(vec![ended])]),
        group(
            container("\u{1b}[31mred"),
            0,
            vec![process(vec![thread(200, 1, "sleep", 0)])],
        ),
        group(
            Place::Host,
            250,
            vec![process(vec![thread(1, 1, "systemd", 250)])],
        ),
        group(
            Place::Kernel,
            3,
            vec![process(vec![thread(2, 2, "kthreadd", 3)])],
        ),
    ];
    Interval {
        elapsed_ns: 2000 * MS,
        cpus: 4,
        unaccounted_ns: 20 * MS,
        lost: 0,
        groups,
    }
}
