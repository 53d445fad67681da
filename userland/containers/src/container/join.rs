// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins what the state files say with the processes that live: each process is in one
//! container or in none, and a container that no file tells of is one nevertheless.
//!
//! Processes are known by their control group, as far as it is named by a runtime or by a
//! state file, else by a pid namespace that is not ours. State files name what was found so.
//! They may be old, or a user's who writes what he wants: a pid in them counts only when its
//! start time or its control group agrees, and, for a user's, when the process can be one of
//! his. Names and arguments of processes tell nothing: any user chooses those.

use super::cgroup_path::{self, PathContainer};
use super::known::KnownContainer;
use super::processes::{Details, Processes, Task};
use super::{Container, Runtime};
use crate::{PidSpace, Result, TargetError};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the processes of a container have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupKey {
    /// The path of a control group.
    Cgroup(String),
    /// A pid namespace.
    Namespace(PidSpace),
    /// Nothing: only the first is known.
    Process(u32),
}

impl GroupKey {
    /// The path of the control group, if that identifies its processes.
    fn path(&self) -> Option<&str> {
        match self {
            GroupKey::Cgroup(path) => Some(path),
            _ => None,
        }
    }
}

/// Processes that are in one container.
#[derive(Debug, Default)]
struct Group {
    /// Their places among the tasks.
    members: Vec<usize>,
    /// The place of what the state files say.
    known: Option<usize>,
    /// The pid of the first process.
    init: Option<u32>,
}

/// The containers, those that run first; with what could not be read.
pub(super) fn join(
    processes: &impl Processes,
    known: &[KnownContainer],
    problems: &[TargetError],
    ours: PidSpace,
) -> Result<Vec<Container>> {
    let tasks = processes.all()?;
    let by_pid = tasks
        .iter()
        .enumerate()
        .map(|(at, task)| (task.pid, at))
        .collect();
    let mut join = Join {
        processes,
        known,
        problems,
        ours,
        claims: Vec::new(),
        declared: HashMap::new(),
        details: RefCell::default(),
        tasks,
        by_pid,
        groups: BTreeMap::new(),
    };
    join.check_claims();
    join.group();
    join.find_first();
    join.split_namespaces();
    join.name_namespaces();
    join.add_lone();
    Ok(join.containers())
}

struct Join<'a, P> {
    processes: &'a P,
    known: &'a [KnownContainer],
    problems: &'a [TargetError],
    /// Our own pid namespace.
    ours: PidSpace,
    tasks: Vec<Task>,
    by_pid: HashMap<u32, usize>,
    details: RefCell<HashMap<u32, Option<Details>>>,
    /// For each that is known: its first process, or why there is none.
    claims: Vec<std::result::Result<u32, Option<String>>>,
    /// Control groups that believable state files name.
    declared: HashMap<String, usize>,
    groups: BTreeMap<GroupKey, Group>,
}

impl<P: Processes> Join<'_, P> {
    fn details(&self, pid: u32) -> Option<Details> {
        let mut kept = self.details.borrow_mut();
        let details = kept.entry(pid);
        details
            .or_insert_with(|| self.processes.details(pid))
            .clone()
    }

    fn task(&self, pid: u32) -> Option<&Task> {
        self.tasks.get(*self.by_pid.get(&pid)?)
    }

    /// Which state files name a living process of their container.
    fn check_claims(&mut self) {
        self.claims = self.known.iter().map(|known| self.claim(known)).collect();
        for (at, known) in self.known.iter().enumerate() {
            let (Some(path), Some(Ok(pid))) = (&known.claim.cgroup, self.claims.get(at)) else {
                continue;
            };
            let is_in = self
                .task(*pid)
                .is_some_and(|task| is_below(&task.cgroup, path));
            if is_in && path.len() > 1 && may_declare(known, path) {
                self.declared.entry(path.clone()).or_insert(at);
            }
        }
    }

    fn claim(&self, known: &KnownContainer) -> std::result::Result<u32, Option<String>> {
        let claim = &known.claim;
        let pid = claim.pid.ok_or(claim.problem.clone())?;
        let gone = || Some(format!("its process {pid} has exited"));
        let (Some(task), Some(details)) = (self.task(pid), self.details(pid)) else {
            return Err(gone());
        };
        let agrees = match claim.start_time {
            Some(time) => details.start_time == time,
            None => self.is_confirmed(known, task),
        };
        let may_be = known.user.is_none_or(|user| details.is_of(user));
        match agrees && may_be {
            true => Ok(pid),
            false => Err(Some(format!("{pid} is another process by now"))),
        }
    }

    /// The containers in the path of a control group, with the user who has made the outermost:
    /// the owner of a group makes others in it, of any name.
    fn places(&self, path: &str) -> Vec<PathContainer> {
        let mut places = cgroup_path::places(path);
        if let Some(place) = places.first_mut().filter(|place| place.user.is_none()) {
            let owner = self.processes.owner(place.parent(path));
            place.user = owner.filter(|user| *user != 0);
        }
        places
    }

    /// Whether the control group says that the process is the container's.
    fn is_confirmed(&self, known: &KnownContainer, task: &Task) -> bool {
        let is_called = |name: &str| name == known.id || known.names.iter().any(|n| n == name);
        let cgroup = known.claim.cgroup.as_deref();
        let is_in = cgroup.is_some_and(|path| path.len() > 1 && is_below(&task.cgroup, path));
        let places = self.places(&task.cgroup);
        let named = places.first().filter(|place| is_called(&place.name));
        is_in || named.is_some_and(|place| may_be_in(known, place))
    }

    /// Puts each process into the group of its innermost container.
    fn group(&mut self) {
        for (at, task) in self.tasks.iter().enumerate() {
            let key = match self
                .end_of(&task.cgroup)
                .and_then(|end| task.cgroup.get(..end))
            {
                Some(path) => GroupKey::Cgroup(path.to_owned()),
                None if task.pid_namespace != self.ours => GroupKey::Namespace(task.pid_namespace),
                None => continue,
            };
            self.groups.entry(key).or_default().members.push(at);
        }
    }

    /// Where in a path its innermost container ends.
    fn end_of(&self, path: &str) -> Option<usize> {
        let named = cgroup_path::places(path).last().map(|place| place.end);
        let ends = path
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([path.len()]);
        let is_declared = |end: &usize| {
            let part = path.get(..*end);
            part.is_some_and(|part| self.declared.contains_key(part))
        };
        let declared = ends.filter(is_declared).last();
        named.max(declared)
    }

    /// Finds for each control group what is known of it, and its first process.
    fn find_first(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        for (key, group) in &mut groups {
            if let GroupKey::Cgroup(path) = key {
                let oldest = self.oldest(&group.members);
                group.known = self.known_of(path, oldest);
                let claimed = group.known.and_then(|at| self.claimed_in(at, path));
                group.init = claimed.or(oldest);
            }
        }
        // Those of which everything has ended meanwhile.
        groups.retain(|key, group| group.init.is_some() || !matches!(key, GroupKey::Cgroup(_)));
        self.groups = groups;
    }

    /// The process that a state file names, if it is in the control group.
    fn claimed_in(&self, at: usize, path: &str) -> Option<u32> {
        let pid = self.claims.get(at)?.as_ref().ok().copied()?;
        let is_in = self
            .task(pid)
            .is_some_and(|task| is_below(&task.cgroup, path));
        is_in.then_some(pid)
    }

    /// The process that was first: the first of the outermost pid namespace, or the oldest.
    fn oldest(&self, members: &[usize]) -> Option<u32> {
        let pids = members.iter().filter_map(|at| self.tasks.get(*at));
        let ranked = pids.filter_map(|task| {
            let details = self.details(task.pid)?;
            let depth = details.numbers.len();
            Some((!details.is_first(), depth, details.start_time, task.pid))
        });
        ranked.min().map(|(.., pid)| pid)
    }

    /// What the state files say of a control group with that first process.
    fn known_of(&self, path: &str, init: Option<u32>) -> Option<usize> {
        if let Some(at) = self.declared.get(path) {
            return Some(*at);
        }
        let places = self.places(path);
        // What is within a container was made there; the files of this machine know nothing
        // of it, whatever it is called.
        let [place] = places.as_slice() else {
            return None;
        };
        let details = self.details(init?)?;
        let fits = |(at, known): &(usize, &KnownContainer)| {
            let is_it = is_of_place(known, place);
            let is_claimed = self.claimed_in(*at, path).is_some();
            let can_be = || known.user.is_none_or(|user| details.is_of(user));
            is_it && (is_claimed || (can_be() && may_be_in(known, place)))
        };
        let all = self.known.iter().enumerate().filter(fits);
        // One that names a process of it comes first, then root's.
        let ranked = all.min_by_key(|(at, known)| {
            let is_claimed = self.claimed_in(*at, path).is_some();
            (!is_claimed, known.user.is_some())
        });
        ranked.map(|(at, _)| at)
    }

    /// Gives pid namespaces of their own that were made within a container to themselves, and
    /// what joined a container's namespace from elsewhere to the container.
    fn split_namespaces(&mut self) {
        let mut moved: Vec<(GroupKey, usize)> = Vec::new();
        let mut owners: Vec<(PidSpace, GroupKey)> = Vec::new();
        for (key, group) in &self.groups {
            let Some(init) = group.init.and_then(|pid| self.task(pid)) else {
                continue;
            };
            let is_first = self.details(init.pid).is_some_and(|init| init.is_first());
            if is_first && init.pid_namespace != self.ours {
                owners.push((init.pid_namespace, key.clone()));
            }
            let inner = group
                .members
                .iter()
                .filter(|at| self.is_below_first(**at, init));
            moved.extend(inner.map(|at| (key.clone(), *at)));
        }
        for (key, at) in moved {
            self.move_to_namespace(&key, at);
        }
        for (space, owner) in owners {
            let Some(joined) = self.groups.remove(&GroupKey::Namespace(space)) else {
                continue;
            };
            if let Some(group) = self.groups.get_mut(&owner) {
                group.members.extend(joined.members);
            }
        }
    }

    /// Whether a task is in a pid namespace below that of its container's first process.
    fn is_below_first(&self, at: usize, init: &Task) -> bool {
        let Some(task) = self.tasks.get(at) else {
            return false;
        };
        let is_other = ![init.pid_namespace, self.ours].contains(&task.pid_namespace);
        let depth = |pid| self.details(pid).map(|details| details.numbers.len());
        is_other && depth(task.pid) > depth(init.pid)
    }

    fn move_to_namespace(&mut self, key: &GroupKey, at: usize) {
        let Some(task) = self.tasks.get(at) else {
            return;
        };
        let space = GroupKey::Namespace(task.pid_namespace);
        if let Some(group) = self.groups.get_mut(key) {
            group.members.retain(|member| *member != at);
        }
        self.groups.entry(space).or_default().members.push(at);
    }

    /// Names containers that are known only by a pid namespace.
    fn name_namespaces(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        for (key, group) in &mut groups {
            let GroupKey::Namespace(_) = key else {
                continue;
            };
            let is_member = |pid: &u32| {
                let member = self.by_pid.get(pid);
                member.is_some_and(|at| group.members.contains(at))
            };
            let claims = self.claims.iter().zip(self.known).enumerate();
            let named = claims.filter_map(|(at, (claim, known))| {
                let pid = claim.as_ref().ok().copied().filter(is_member)?;
                // What root says comes first.
                Some((known.user.is_some(), at, pid))
            });
            let claim = named.min();
            let oldest = || self.oldest(&group.members);
            group.init = claim.map(|(.., pid)| pid).or_else(oldest);
            group.known = claim.map(|(_, at, _)| at);
        }
        groups.retain(|_, group| group.init.is_some());
        self.groups = groups;
    }

    /// Adds the containers that run without anything of their own that could identify their
    /// processes: only the first is known.
    fn add_lone(&mut self) {
        let groups = || self.groups.values();
        let joined: HashSet<usize> = groups().filter_map(|group| group.known).collect();
        let taken: HashSet<usize> = groups().flat_map(|group| group.members.clone()).collect();
        for (at, claim) in self.claims.iter_mut().enumerate() {
            let Ok(pid) = *claim else { continue };
            let member = self.by_pid.get(&pid).copied();
            match member.filter(|_| !joined.contains(&at)) {
                // Each process is in one container.
                Some(member) if taken.contains(&member) => {
                    *claim = Err(Some(format!("{pid} is another container's process")));
                }
                Some(member) => {
                    let group = Group {
                        members: vec![member],
                        known: Some(at),
                        init: Some(pid),
                    };
                    self.groups.entry(GroupKey::Process(pid)).or_insert(group);
                }
                None => (),
            }
        }
    }
}

/// Whether a group is another or below it.
pub(super) fn is_below(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the writer of a state file can have made that control group: for a user's file, one
/// below the group that systemd gave to the user.
fn may_declare(known: &KnownContainer, path: &str) -> bool {
    let Some(user) = known.user else { return true };
    path.contains(&format!("/user@{user}.service/"))
}

/// Whether the owner of a state file can have made a place: users make theirs, of any name,
/// below what was given to them.
fn may_be_in(known: &KnownContainer, place: &PathContainer) -> bool {
    place.user == known.user || place.user.is_none()
}

/// Whether a place in a path can be that of the container.
fn is_of_place(known: &KnownContainer, place: &PathContainer) -> bool {
    let is_id = place.name.len() >= 12 && cgroup_path::is_hex(&place.name);
    if is_id {
        return known.id == place.name;
    }
    let is_kin = match place.runtime {
        Runtime::Lxc => matches!(known.runtime, Runtime::Lxc | Runtime::Lxd | Runtime::Incus),
        Runtime::Nspawn => matches!(known.runtime, Runtime::Nspawn | Runtime::Machine),
        runtime => runtime == known.runtime,
    };
    // lxc's groups have the id, of which other names are a part.
    let is_named = || place.runtime != Runtime::Lxc && known.names.contains(&place.name);
    is_kin && (known.id == place.name || is_named())
}

mod name;

#[cfg(test)]
mod tests;
