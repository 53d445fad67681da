// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container that runs, held by its first process.

use super::join::is_below;
use super::processes::Living;
use super::{cgroups, Container, Containers, Runtime};
use crate::process::all_processes;
use crate::{
    mappings, processes_in_pid_namespace, Library, PidSpace, Process, Result, TargetError,
};
use std::collections::HashSet;

/// A running container. It is the one that was found as long as its first process lives.
#[derive(Debug)]
pub struct Running {
    /// What is known of it.
    pub container: Container,
    /// Its first process; of a control group the oldest one.
    pub init: Process,
}

/// What distinguishes the tasks of a container from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerTasks {
    /// They are in this pid namespace, or in one below.
    PidNamespace(PidSpace),
    /// They are in the control group of this id, or in one below.
    Cgroup(u64),
    /// Nothing but a list of them, which is [`Running::processes`].
    Processes,
}

impl Running {
    /// The running container that `spec` names, see [`Containers::find`].
    pub fn find(spec: &str) -> Result<Running> {
        Containers::take()?.find(spec)
    }

    /// All running containers with a pid namespace of their own that are called so, see
    /// [`Container::is_called`].
    pub fn all(fits: impl Fn(&str) -> bool) -> Result<Vec<Running>> {
        let containers = Containers::take()?.into_all().into_iter();
        let wanted = containers.filter(|one| {
            let owns = one.init.is_some_and(|init| init.owns_namespace);
            owns && one.is_running() && one.is_called(&fits)
        });
        // Those that end meanwhile are none.
        Ok(wanted.filter_map(|one| Running::hold(one).ok()).collect())
    }

    /// Holds a container that was running when it was looked at.
    pub fn hold(container: Container) -> Result<Running> {
        let ended = |why: String| TargetError::NotRunning {
            name: container.name.clone(),
            why,
        };
        let Some(init) = container.init.filter(|_| container.is_running()) else {
            let why = container.problems.last().cloned();
            return Err(ended(why.unwrap_or_else(|| "it has no process".to_owned())));
        };
        let process = match Process::open(init.pid) {
            Err(TargetError::NoSuchProcess { pid }) => {
                return Err(ended(format!("its process {pid} has exited")))
            }
            other => other?,
        };
        if process.start_time() != init.start_time {
            return Err(ended(format!("{} is another process by now", init.pid)));
        }
        Ok(Running {
            container,
            init: process,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.container.name
    }

    /// The first process's pid namespace.
    pub fn pid_namespace(&self) -> Result<PidSpace> {
        self.init.pid_namespace()
    }

    /// What distinguishes its tasks from others. A container started with `--pid=host`, or in a
    /// pod, shares its pid namespace: that would let others in.
    pub fn scope(&self) -> Result<ContainerTasks> {
        let by_group = matches!(self.container.runtime, Runtime::Service | Runtime::Cgroup);
        let owns = self.container.init.is_some_and(|init| init.owns_namespace);
        let id = self.container.cgroup.as_ref().and_then(|cgroup| cgroup.id);
        Ok(match id {
            Some(id) if by_group || !owns => ContainerTasks::Cgroup(id),
            _ if owns => ContainerTasks::PidNamespace(self.pid_namespace()?),
            _ if self.container.runtime == Runtime::Bare => {
                ContainerTasks::PidNamespace(self.pid_namespace()?)
            }
            _ => ContainerTasks::Processes,
        })
    }

    /// The pids (as the host sees them) of the container's processes, rising, also of those
    /// in containers within.
    pub fn processes(&self) -> Result<Vec<u32>> {
        if let (Some(cgroup), false) = (&self.container.cgroup, self.owns_namespace()) {
            let is_in = |pid: &u32| {
                let task = Process::open(*pid)
                    .ok()
                    .and_then(|process| Living::task(&process));
                task.is_some_and(|task| is_below(&task.cgroup, &cgroup.path))
            };
            return Ok(all_processes()?.into_iter().filter(is_in).collect());
        }
        match self.owns_namespace() || self.container.runtime == Runtime::Bare {
            true => processes_in_pid_namespace(self.pid_namespace()?),
            false => self.descendants(),
        }
    }

    fn owns_namespace(&self) -> bool {
        self.container.init.is_some_and(|init| init.owns_namespace)
    }

    /// The first process, and what it has started, as far as the parents live.
    fn descendants(&self) -> Result<Vec<u32>> {
        let mut found = HashSet::from([self.init.pid()]);
        let parent = |pid: u32| Some((pid, Process::open(pid).ok()?.parent().ok()?));
        let all: Vec<(u32, u32)> = all_processes()?.into_iter().filter_map(parent).collect();
        loop {
            let before = found.len();
            for (pid, parent) in &all {
                if found.contains(parent) {
                    found.insert(*pid);
                }
            }
            if found.len() == before {
                break;
            }
        }
        let mut pids: Vec<u32> = found.into_iter().collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// The libraries of that soname or file name that the container's processes
    /// have mapped: one entry a file, never empty.
    pub fn find_library(&self, name: &str) -> Result<Vec<Library>> {
        let mapped = self.processes()?.into_iter().filter_map(|pid| {
            // A process that ended meanwhile has nothing mapped.
            Some((pid, Process::open(pid).ok()?.mappings().ok()?))
        });
        mappings::find_library(mappings::files(mapped), name)
    }

    /// Whether a process is in it, or in a container within.
    pub fn has(&self, process: &Process) -> bool {
        let is_inside = self.pid_namespace().ok() == process.pid_namespace().ok();
        let task = || Living::task(process);
        match &self.container.cgroup {
            Some(cgroup) if !self.owns_namespace() => {
                task().is_some_and(|task| is_below(&task.cgroup, &cgroup.path))
            }
            _ => is_inside,
        }
    }
}

/// The control group of that path, with its id.
pub(super) fn cgroup(path: &str) -> super::Cgroup {
    super::Cgroup {
        id: cgroups::id_of(path),
        path: path.to_owned(),
    }
}
