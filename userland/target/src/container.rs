// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container: found by the name or id that its runtime gave it, or by the
//! inode number of its pid namespace.

mod podman;

use crate::nearest::nearest;
use crate::process::all_processes;
use crate::{mappings, processes_in_pid_namespace, Error, Library, Process, Result};
use podman::{Known, Store};
use std::collections::HashSet;

/// Most names that an error lists.
const NAMES_MAX: usize = 5;
/// Shortest beginning of an id that is taken for one, in digits.
const ID_PREFIX_MIN: usize = 4;
/// The inode number of the first pid namespace, which is also the lowest of all
/// (the kernel's `PROC_PID_INIT_INO`).
const NAMESPACE_INODE_MIN: u32 = 0xefff_fffc;

/// The software that runs a container. Each has a file of its own that reads
/// its state; systemd-nspawn, docker and others come here later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Runtime {
    /// podman, of root or of another user.
    Podman,
    /// Unknown: only the pid namespace is known.
    Bare,
}

/// A running container.
#[derive(Debug)]
pub struct Container {
    /// Its name; `pid:[INODE]` when only the namespace is known.
    pub name: String,
    /// Its runtime's id.
    pub id: Option<String>,
    /// Who runs it.
    pub runtime: Runtime,
    /// Its first process.
    pub init: Process,
}

impl Container {
    /// The running container that `spec` names: a podman name, a podman id or
    /// unique prefix of one, or the inode number of a pid namespace (decimal).
    /// Root's containers come before those of other users.
    pub fn find(spec: &str) -> Result<Container> {
        Container::find_among(&podman::stores(), spec)
    }

    fn find_among(stores: &[Store], spec: &str) -> Result<Container> {
        let (lists, problems): (Vec<_>, Vec<_>) = stores.iter().map(Store::containers).unzip();
        let known: Vec<Known> = lists.into_iter().flatten().collect();
        if let Some(found) = the_one(&known, spec)? {
            return Ok(Container {
                name: found.name().to_owned(),
                id: Some(found.id.clone()),
                runtime: Runtime::Podman,
                init: found.init()?,
            });
        }
        if let Some(inum) = namespace_inode(spec) {
            return Container::of_namespace(inum);
        }
        // What could not be read may have held it.
        if let Some(problem) = problems.into_iter().flatten().next() {
            return Err(problem);
        }
        Err(Error::NoSuchContainer {
            spec: spec.to_owned(),
            nearest: known_names(&known, spec),
        })
    }

    /// All running containers with a pid namespace of their own that have a name, an id
    /// or an inode number (of that namespace) that `fits`, the oldest first.
    pub fn all(fits: impl Fn(&str) -> bool) -> Result<Vec<Container>> {
        let census = Census::take()?;
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for pid in all_processes()? {
            // Those that end meanwhile are none.
            let Ok(process) = Process::open(pid) else {
                continue;
            };
            let is_new = process.pid_namespace().is_ok_and(|inum| seen.insert(inum));
            if is_new {
                all.extend(
                    census
                        .container_of(process)
                        .filter(|one| one.is_called(&fits)),
                );
            }
        }
        Ok(all)
    }

    /// The container that a process is in, unless it is in our own pid namespace.
    pub fn of(process: Process) -> Result<Option<Container>> {
        Ok(Census::take()?.container_of(process))
    }

    /// Whether its name, id or the inode number of its pid namespace `fits`.
    pub fn is_called(&self, fits: impl Fn(&str) -> bool) -> bool {
        fits(&self.name)
            || self.id.as_deref().is_some_and(&fits)
            || self
                .pid_namespace()
                .is_ok_and(|inum| fits(&inum.to_string()))
    }

    /// Whatever runs in a pid namespace.
    fn of_namespace(inum: u32) -> Result<Container> {
        let is_first = |process: &Process| {
            process
                .namespace_pids()
                .is_ok_and(|pids| pids.last() == Some(&1))
        };
        let processes = processes_in_pid_namespace(inum)?
            .into_iter()
            .filter_map(|pid| Process::open(pid).ok())
            .filter(|process| process.pid_namespace().is_ok_and(|found| found == inum));
        // Its first process may be a zombie or of nobody we can see.
        let mut oldest = None;
        for process in processes {
            if is_first(&process) {
                oldest = Some(process);
                break;
            }
            oldest = oldest.or(Some(process));
        }
        Ok(Container {
            name: bare_name(inum),
            id: None,
            runtime: Runtime::Bare,
            init: oldest.ok_or(Error::EmptyNamespace { inum })?,
        })
    }

    /// Whether the container has a pid namespace of its own. One started with
    /// `--pid=host` has not: a filter by its namespace would let in others.
    pub fn has_own_pid_namespace(&self) -> Result<bool> {
        let ours = Process::open(std::process::id())?.pid_namespace()?;
        let first = self.init.namespace_pids()?.last() == Some(&1);
        Ok(first && self.pid_namespace()? != ours)
    }

    /// The inode number of the first process's pid namespace.
    pub fn pid_namespace(&self) -> Result<u32> {
        self.init.pid_namespace()
    }

    /// The pids (as the host sees them) of the container's processes, rising.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let id = match &self.id {
            Some(id) if !self.has_own_pid_namespace()? => id,
            _ => return processes_in_pid_namespace(self.pid_namespace()?),
        };
        let ours = |pid: &u32| {
            *pid == self.init.pid()
                || Process::open(*pid).is_ok_and(|p| podman::belongs(&p, id).unwrap_or(false))
        };
        Ok(all_processes()?.into_iter().filter(ours).collect())
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
}

/// What the runtimes know of their containers.
struct Census {
    known: Vec<Known>,
    /// Our own pid namespace.
    ours: u32,
}

impl Census {
    fn take() -> Result<Census> {
        let stores = podman::stores();
        // What cannot be read names nothing; the containers are there nevertheless.
        let known = stores.iter().flat_map(|store| store.containers().0);
        Ok(Census {
            known: known.collect(),
            ours: Process::open(std::process::id())?.pid_namespace()?,
        })
    }

    /// The container of a process, with the process in place of its first one; none
    /// when it has ended, or is in our own pid namespace.
    fn container_of(&self, process: Process) -> Option<Container> {
        let inum = process.pid_namespace().ok()?;
        if inum == self.ours {
            return None;
        }
        let belongs = |known: &&Known| podman::belongs(&process, &known.id).unwrap_or(false);
        let known = self.known.iter().find(belongs);
        Some(Container {
            name: known.map_or_else(|| bare_name(inum), |known| known.name().to_owned()),
            id: known.map(|known| known.id.clone()),
            runtime: known.map_or(Runtime::Bare, |_| Runtime::Podman),
            init: process,
        })
    }
}

/// What a container is called of which only the pid namespace is known.
fn bare_name(inum: u32) -> String {
    format!("pid:[{inum}]")
}

/// The known container that `spec` names, if any.
fn the_one<'a>(known: &'a [Known], spec: &str) -> Result<Option<&'a Known>> {
    let exact = |k: &&Known| k.id == spec || k.names.iter().any(|name| name == spec);
    let is_prefix = spec.len() >= ID_PREFIX_MIN && podman::is_hex(spec);
    let begins = |k: &&Known| is_prefix && k.id.starts_with(spec);
    let mut found: Vec<&Known> = known.iter().filter(exact).collect();
    if found.is_empty() {
        found = known.iter().filter(begins).collect();
    }
    // Another user's container does not get in the way of root's.
    if found.iter().any(|k| k.user.is_none()) {
        found.retain(|k| k.user.is_none());
    }
    found.dedup();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => Err(Error::AmbiguousContainer {
            spec: spec.to_owned(),
            matches: several.iter().map(|k| describe(k)).collect(),
        }),
    }
}

/// Name, short id and owner.
fn describe(known: &Known) -> String {
    let id = known.id.get(..12).unwrap_or(&known.id);
    match known.user {
        None => format!("{} ({id})", known.name()),
        Some(user) => format!("{} ({id}, user {user})", known.name()),
    }
}

/// The names most similar to `spec`, or some when none is.
fn known_names(known: &[Known], spec: &str) -> Vec<String> {
    let names = || known.iter().flat_map(|k| k.names.iter().cloned());
    let similar = nearest(spec, names(), NAMES_MAX);
    if similar.is_empty() {
        names().take(NAMES_MAX).collect()
    } else {
        similar
    }
}

/// The number, if it can be that of a pid namespace.
fn namespace_inode(spec: &str) -> Option<u32> {
    let inum = spec.parse().ok()?;
    (inum >= NAMESPACE_INODE_MIN).then_some(inum)
}

#[cfg(test)]
#[path = "container/tests.rs"]
mod tests;
