// SPDX-License-Identifier: MIT OR Apache-2.0
//! The containers of a recording: those that it was asked for, and those that its tasks and
//! hits turn out to be in.

use crate::attach::target::Target;
use crate::tasks::{space_of, ContainerKey, FoundContainer, Namer};
use libnsprobe::common::record::Record;
use libnsprobe::common::task::TaskDetails;
use libnsprobe::Copied;
use nsprobe_capsule::model::Container;
use nsprobe_containers::{PidSpace, Process, Running};

/// The containers known so far.
pub fn of_target(target: &Target) -> Vec<Container> {
    let all = match target {
        Target::Container(container) => std::slice::from_ref(container.as_ref()),
        Target::Group(group) => &group.members,
        Target::Host | Target::Processes(_) | Target::Command(_) => &[],
    };
    all.iter().map(of_running).collect()
}

fn of_running(running: &Running) -> Container {
    let one = &running.container;
    let init = one.init.filter(|init| init.owns_namespace);
    let space = init.map_or(PidSpace::default(), |init| init.pid_namespace);
    Container {
        pid_namespace_id: space.id,
        pid_namespace: space.inum,
        name: Some(one.name.clone()),
        pid: running.init.pid(),
        cgroup: one
            .cgroup
            .as_ref()
            .and_then(|cgroup| cgroup.id)
            .unwrap_or(0),
        runtime: Some(one.runtime.name().to_owned()),
        id: one.id.clone(),
        pod: one.pod.as_ref().map(ToString::to_string),
        known_ns: 0,
    }
}

/// Finds the containers that records name.
pub(crate) struct Containers {
    namer: Namer,
    /// Our own pid namespace, which is no container's.
    own: PidSpace,
}

impl Containers {
    /// Begins.
    pub(crate) fn new() -> anyhow::Result<Containers> {
        Ok(Containers {
            namer: Namer::start()?,
            own: Process::open(std::process::id())?.pid_namespace()?,
        })
    }

    /// Looks for the containers of these records.
    pub(crate) fn note(&mut self, copied: &Copied) {
        copied
            .records()
            .for_each(|record| self.note_record(&record));
    }

    /// Looks for the containers of a record.
    pub(crate) fn note_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Task(task, details) => self.note_task(task.cgroup, details),
            Record::Hit(hit, _) if hit.pidns_id != self.own.id => self.namer.want(ContainerKey {
                cgroup: 0,
                pid_namespace: PidSpace {
                    id: hit.pidns_id,
                    inum: hit.pidns_inum,
                },
            }),
            _ => {}
        }
    }

    fn note_task(&mut self, cgroup: u64, details: &TaskDetails<'_>) {
        // The first level is our own.
        let inner = details.levels.get(1..).unwrap_or_default();
        let (last, outer) = match inner.split_last() {
            Some((last, outer)) => (space_of(last), outer),
            None => (PidSpace::default(), inner),
        };
        self.namer.want(ContainerKey {
            cgroup,
            pid_namespace: last,
        });
        for level in outer {
            self.namer.want(ContainerKey {
                cgroup: 0,
                pid_namespace: space_of(level),
            });
        }
    }

    /// Containers found since the last call.
    pub(crate) fn found(&mut self) -> Vec<Container> {
        self.namer.found().into_iter().map(model).collect()
    }

    /// The rest of what is found.
    pub(crate) fn finish(&mut self) -> Vec<Container> {
        self.namer.finish().into_iter().map(model).collect()
    }
}

pub(super) fn model(found: FoundContainer) -> Container {
    let FoundContainer {
        key,
        known,
        time_ns,
    } = found;
    Container {
        pid_namespace_id: key.pid_namespace.id,
        pid_namespace: key.pid_namespace.inum,
        name: Some(known.name),
        pid: 0,
        cgroup: key.cgroup,
        runtime: Some(known.runtime),
        id: known.id,
        pod: known.pod,
        known_ns: time_ns,
    }
}
