// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which container a user means.

use super::cgroup_path::{is_hex, service};
use super::join::is_below;
use super::processes::{Living, Processes, Task};
use super::running::cgroup;
use super::NAMESPACE_INODE_MIN;
use super::{bare_name, cgroups, Container, ContainerState, Containers, Init, Running, Runtime};
use crate::{all_processes, Process, Result, TargetError};
use nsprobe_text::nearest;

/// Most names that an error lists.
const NAMES_MAX: usize = 5;
/// Most containers of one name that an error lists.
const MATCHES_MAX: usize = 20;
/// Shortest beginning of an id that is taken for one, in digits.
const ID_PREFIX_MIN: usize = 4;

/// What a user has typed.
struct Spec<'a> {
    whole: &'a str,
    /// That which was named in front of it.
    runtime: Option<Runtime>,
    rest: &'a str,
}

impl<'a> Spec<'a> {
    fn parse(whole: &'a str) -> Spec<'a> {
        let named = whole
            .split_once(':')
            .and_then(|(runtime, rest)| Some((runtime.parse().ok()?, rest)));
        let (runtime, rest) = match named {
            Some((runtime, rest)) => (Some(runtime), rest),
            None => (None, whole),
        };
        Spec {
            whole,
            runtime,
            rest,
        }
    }

    fn may_be(&self, runtime: Runtime) -> bool {
        self.runtime.is_none_or(|wanted| wanted == runtime)
    }
}

impl Containers {
    /// The running container that `spec` names: its name, an id or a unique beginning of one,
    /// `RUNTIME:` in front of these, `POD/CONTAINER`, `NAMESPACE/POD/CONTAINER`, the inode
    /// number of a pid namespace (decimal, or as `pid:[INODE]`), a unit of systemd's
    /// (`NAME.service`, `NAME.scope`), or a control group (its path, or its directory). Root's
    /// containers come before those of other users, and those that run before those that do
    /// not.
    pub fn find(&self, spec: &str) -> Result<Running> {
        let spec = Spec::parse(spec);
        if let Some(found) = self.known_as(&spec)? {
            return Running::hold(found.clone());
        }
        if let Some(inum) = namespace_inode(spec.rest).filter(|_| spec.may_be(Runtime::Bare)) {
            return self.of_namespace(inum);
        }
        if let Some(found) = of_service(&spec)? {
            return Running::hold(found);
        }
        if let Some(found) = self.of_cgroup(&spec)? {
            return Running::hold(found);
        }
        Err(TargetError::NoSuchContainer {
            spec: spec.whole.to_owned(),
            nearest: self.known_names(spec.rest),
            unread: self.problems().iter().map(ToString::to_string).collect(),
        })
    }

    /// The one that has the name or the id.
    fn known_as(&self, spec: &Spec<'_>) -> Result<Option<&Container>> {
        let text = spec.rest;
        let of_runtime =
            |one: &&Container| spec.may_be(one.runtime) && one.state != ContainerState::Gone;
        let all = || self.iter().filter(of_runtime);
        let exact = |one: &&Container| {
            one.name == text
                || one.id.as_deref() == Some(text)
                || one.aliases.iter().any(|alias| alias == text)
                || one.pod_paths().iter().any(|path| path == text)
                || one.inside.is_none() && unit_of(one) == Some(text)
        };
        let is_prefix = text.len() >= ID_PREFIX_MIN && is_hex(text);
        let begins = |one: &&Container| {
            is_prefix && one.id.as_deref().is_some_and(|id| id.starts_with(text))
        };
        // What a user calls his own, or its control group, is a claim.
        for is_roots in [true, false] {
            let all = || all().filter(|one| one.user.is_none() == is_roots);
            let mut found: Vec<&Container> = all().filter(exact).collect();
            if found.is_empty() {
                found = all().filter(begins).collect();
            }
            if !found.is_empty() {
                return the_one(spec.whole, found);
            }
        }
        Ok(None)
    }

    /// Whatever runs in a pid namespace.
    fn of_namespace(&self, inum: u32) -> Result<Running> {
        let made = self.iter().find(|one| {
            let owns = one
                .init
                .is_some_and(|init| init.owns_namespace && init.pid_namespace.inum == inum);
            owns && one.is_running()
        });
        if let Some(found) = made {
            return Running::hold(found.clone());
        }
        let member = |pid: u32| {
            let process = Process::open(pid).ok()?;
            let space = process.pid_namespace().ok()?;
            (space.inum == inum).then_some((space, process))
        };
        let found: Vec<_> = all_processes()?.into_iter().filter_map(member).collect();
        // The number may go to another namespace meanwhile.
        let newest = found.iter().map(|(space, _)| *space).max();
        let of_newest = found
            .into_iter()
            .filter(|(space, _)| Some(*space) == newest);
        let mut members: Vec<Process> = of_newest.map(|(_, process)| process).collect();
        // Its first process may be a zombie or of a user that we cannot see.
        let is_later = |process: &Process| {
            let numbers = process.namespace_pids();
            !numbers.is_ok_and(|pids| pids.last() == Some(&1))
        };
        members.sort_by_key(|process| (is_later(process), process.pid()));
        let pids = members.iter().map(Process::pid).collect();
        let first = members
            .into_iter()
            .next()
            .ok_or(TargetError::EmptyNamespace { inum })?;
        let container = Container {
            name: bare_name(inum),
            ..of_processes(Runtime::Bare, first.pid(), pids)?
        };
        Ok(Running {
            container,
            init: first,
        })
    }

    /// The control group that a path means.
    fn of_cgroup(&self, spec: &Spec<'_>) -> Result<Option<Container>> {
        if !spec.may_be(Runtime::Cgroup) || !spec.rest.contains('/') {
            return Ok(None);
        }
        let Some(path) = cgroups::path_of(spec.rest) else {
            return Ok(None);
        };
        let has = |one: &&Container| {
            one.cgroup
                .as_ref()
                .is_some_and(|cgroup| cgroup.path == path)
        };
        if let Some(found) = self.iter().filter(|one| one.is_running()).find(has) {
            return Ok(Some(found.clone()));
        }
        let is_there = cgroups::directory(&path).is_some_and(|directory| directory.is_dir());
        if !is_there {
            return Ok(None);
        }
        let tasks = Living.all()?.into_iter();
        let inside = tasks.filter(|task| is_below(&task.cgroup, &path));
        of_group(Runtime::Cgroup, &path, &path, inside.collect()).map(Some)
    }

    /// The names most similar to `wanted`, or some if none is.
    fn known_names(&self, wanted: &str) -> Vec<String> {
        let named = || self.iter().filter(|one| one.runtime != Runtime::Bare);
        let names = || named().flat_map(|one| one.aliases.iter().chain([&one.name]).cloned());
        let similar = nearest(wanted, names(), NAMES_MAX);
        if similar.is_empty() {
            named()
                .map(|one| one.name.clone())
                .take(NAMES_MAX)
                .collect()
        } else {
            similar
        }
    }
}

/// The one of several that is meant.
fn the_one<'a>(spec: &str, mut found: Vec<&'a Container>) -> Result<Option<&'a Container>> {
    // One that does not run does not get in the way.
    if found.iter().any(|one| one.is_running()) {
        found.retain(|one| one.is_running());
    }
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => Err(ambiguous(spec, several.iter().map(|one| one.describe()))),
    }
}

fn ambiguous(spec: &str, matches: impl Iterator<Item = String>) -> TargetError {
    TargetError::AmbiguousContainer {
        spec: spec.to_owned(),
        matches: matches.take(MATCHES_MAX).collect(),
    }
}

/// The unit of systemd's that a container is.
fn unit_of(container: &Container) -> Option<&str> {
    let name = container.cgroup.as_ref()?.path.rsplit('/').next()?;
    let is_unit = name.ends_with(".scope") || name.ends_with(".service");
    is_unit.then_some(name)
}

/// The processes of a service.
fn of_service(spec: &Spec<'_>) -> Result<Option<Container>> {
    if !spec.may_be(Runtime::Service) || !spec.rest.ends_with(".service") {
        return Ok(None);
    }
    let mut groups: Vec<(String, Vec<Task>)> = Vec::new();
    for task in Living.all()? {
        let found = service(&task.cgroup).filter(|(name, _)| name == spec.rest);
        let Some(path) = found.and_then(|(_, end)| task.cgroup.get(..end)) else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| known == path) {
            Some((_, tasks)) => tasks.push(task),
            None => groups.push((path.to_owned(), vec![task])),
        }
    }
    match groups.len() {
        0 => Ok(None),
        1 => {
            let (path, tasks) = groups.remove(0);
            of_group(Runtime::Service, spec.rest, &path, tasks).map(Some)
        }
        _ => Err(ambiguous(
            spec.whole,
            groups.into_iter().map(|(path, _)| path),
        )),
    }
}

/// A control group as a container.
fn of_group(runtime: Runtime, name: &str, path: &str, tasks: Vec<Task>) -> Result<Container> {
    let oldest = tasks.iter().filter_map(|task| {
        let details = Living.details(task.pid)?;
        Some((details.start_time, task.pid))
    });
    let (_, first) = oldest.min().ok_or_else(|| TargetError::NotRunning {
        name: name.to_owned(),
        why: "no process is in its control group".to_owned(),
    })?;
    let pids = tasks.iter().map(|task| task.pid).collect();
    Ok(Container {
        name: name.to_owned(),
        cgroup: Some(cgroup(path)),
        ..of_processes(runtime, first, pids)?
    })
}

/// A container of processes of which the first is known.
fn of_processes(runtime: Runtime, first: u32, mut processes: Vec<u32>) -> Result<Container> {
    let process = Process::open(first)?;
    processes.sort_unstable();
    Ok(Container {
        runtime,
        init: Some(Init {
            pid: first,
            start_time: process.start_time(),
            pid_namespace: process.pid_namespace()?,
            mount_namespace: process.mount_namespace()?,
            is_first: false,
            owns_namespace: false,
        }),
        state: ContainerState::Running,
        processes,
        ..Container::nameless()
    })
}

/// The number, if it can be that of a pid namespace.
fn namespace_inode(text: &str) -> Option<u32> {
    let bare = text
        .strip_prefix("pid:[")
        .and_then(|rest| rest.strip_suffix(']'));
    let inum = bare.unwrap_or(text).parse().ok()?;
    (inum >= NAMESPACE_INODE_MIN).then_some(inum)
}

#[cfg(test)]
mod tests;
