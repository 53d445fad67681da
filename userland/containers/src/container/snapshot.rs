// SPDX-License-Identifier: MIT OR Apache-2.0
//! All containers at one moment, and which task is in which.

use super::cgroup_path::places;
use super::host::Host;
use super::join::{self, is_below};
use super::known::Findings;
use super::processes::{Alone, Living, Processes, Task};
use super::{cgroups, Container, ContainerState, Init, Pod, Runtime};
use crate::{PidSpace, Process, Result, TargetError};
use std::collections::HashMap;

/// Most containers that have ended and are kept in mind.
const GONE_MAX: usize = 4096;
/// Most control groups below those of containers that are known by their ids.
const GROUPS_MAX: usize = 1 << 16;

/// The containers of this machine, as they were at one moment; a later look adds to them.
#[derive(Debug, Default)]
pub struct Containers {
    all: Vec<Container>,
    /// Which of them has the control group of an id.
    by_cgroup: HashMap<u64, usize>,
    /// Which of them has made the pid namespace of an id.
    by_namespace: HashMap<u64, usize>,
    /// Our own pid namespace.
    ours: PidSpace,
    problems: Vec<TargetError>,
}

impl Containers {
    /// None yet: each is looked for when it is asked for.
    pub fn new() -> Result<Containers> {
        Ok(Containers {
            ours: our_namespace()?,
            ..Containers::default()
        })
    }

    /// Looks at this machine. What cannot be read is among [`Containers::problems`]; it fails
    /// only when the processes cannot be seen.
    pub fn take() -> Result<Containers> {
        let mut containers = Containers::default();
        containers.refresh()?;
        Ok(containers)
    }

    /// Looks again. Those that have ended are kept, and their state is [`ContainerState::Gone`], so
    /// that what they have left behind has a name.
    pub fn refresh(&mut self) -> Result<()> {
        let findings = findings();
        self.update(&Living, findings, our_namespace()?)
    }

    pub(super) fn update(
        &mut self,
        processes: &impl Processes,
        findings: Findings,
        ours: PidSpace,
    ) -> Result<()> {
        let mut new = join::join(processes, &findings.known, &findings.problems, ours)?;
        own_namespaces(&mut new);
        name_pods(&mut new, &findings.pods);
        let lives = |old: &Container| new.iter().any(|one| one.init == old.init || same(one, old));
        let old = std::mem::take(&mut self.all).into_iter();
        let mut all: Vec<Container> = old
            .filter(|old| old.init.is_some() && !lives(old))
            .map(|old| Container {
                state: ContainerState::Gone,
                ..old
            })
            .collect();
        let surplus = all.len().saturating_sub(GONE_MAX);
        all.drain(..surplus);
        all.append(&mut new);
        self.all = all;
        self.ours = ours;
        self.problems = findings.problems;
        self.index();
        Ok(())
    }

    /// Looks at containers by their first processes, without a look at all others, which takes long
    /// where there are thousands; false where that takes [`Containers::refresh`].
    pub fn look_at(&mut self, firsts: &[Process]) -> bool {
        if firsts.is_empty() {
            return true;
        }
        let findings = findings();
        let mut is_enough = true;
        for task in firsts.iter().filter_map(Living::task) {
            is_enough &= matches!(self.add_alone(&Living, &task, &findings), Ok(true));
        }
        is_enough
    }

    /// Adds the container whose first process a task is; false where that does not tell: one within
    /// another, or that shares its pid namespace.
    pub(super) fn add_alone(
        &mut self,
        processes: &impl Processes,
        task: &Task,
        findings: &Findings,
    ) -> Result<bool> {
        let mut claimed = findings.known.iter().filter_map(|known| known.claim.pid);
        let shares =
            |pid| pid != task.pid && processes.pid_namespace(pid) == Some(task.pid_namespace);
        if claimed.any(shares) {
            return Ok(false);
        }
        let is_it = |one: &Container| {
            let init = one.init.map(|init| (init.pid, init.pid_namespace));
            init == Some((task.pid, task.pid_namespace))
        };
        let known = self.all.iter().position(is_it);
        let has_name = |one: &Container| one.runtime != Runtime::Bare;
        if known.and_then(|at| self.all.get(at)).is_some_and(has_name) {
            return Ok(true);
        }
        let Some(details) = processes.details(task.pid) else {
            return Ok(false);
        };
        let is_outermost = details.numbers.len() == 2 && places(&task.cgroup).len() < 2;
        // A look at all forgets the oldest of those that are gone.
        let is_full = self.all.len() >= 2 * GONE_MAX;
        if !details.is_first() || !is_outermost || is_full {
            return Ok(false);
        }
        let alone = Alone {
            among: processes,
            task,
        };
        let mut new = join::join(&alone, &findings.known, &findings.problems, self.ours)?;
        own_namespaces(&mut new);
        name_pods(&mut new, &findings.pods);
        let Some(one) = new.into_iter().find(is_it) else {
            return Ok(false);
        };
        let was_stopped = |old: &Container| old.init.is_none() && identity(old) == identity(&one);
        let at = known.or_else(|| self.all.iter().position(was_stopped));
        let at = at.unwrap_or(self.all.len());
        match self.all.get_mut(at) {
            Some(old) => *old = one,
            None => self.all.push(one),
        }
        let mut left = GROUPS_MAX.saturating_sub(self.by_cgroup.len());
        self.index_groups(at, &mut left);
        self.index_namespace(at);
        Ok(true)
    }

    /// The container of a task, as the kernel reports it: the id of its control group (that of the
    /// directory; zero if it is not known) and the id of its pid namespace; neither is ever reused.
    /// A namespace that containers share tells nothing without a group.
    pub fn of(&self, cgroup_id: u64, pid_namespace: u64) -> Option<&Container> {
        let by = |at: &usize| self.all.get(*at);
        let space = self.by_namespace.get(&pid_namespace).and_then(by);
        let Some(group) = self.by_cgroup.get(&cgroup_id).and_then(by) else {
            return space.filter(|_| cgroup_id != 0 || self.sharers(pid_namespace).count() < 2);
        };
        // A namespace made within a container.
        let inner = space.filter(|space| space.runtime == Runtime::Bare);
        Some(inner.unwrap_or(group))
    }

    /// Whether a control group is that of a container, or below it.
    pub fn has_group(&self, cgroup_id: u64) -> bool {
        self.by_cgroup.contains_key(&cgroup_id)
    }

    /// The control group of the container that a process is in, as far as its name shows that it is
    /// one's.
    pub fn group_of(process: &Process) -> Option<u64> {
        let task = Living::task(process)?;
        let place = places(&task.cgroup).pop()?;
        cgroups::id_of(task.cgroup.get(..place.end)?)
    }

    /// The containers that run with their first process in a pid namespace.
    pub fn sharers(&self, pid_namespace: u64) -> impl Iterator<Item = &Container> {
        self.iter().filter(move |one| {
            let is_there = |init: &Init| init.pid_namespace.id == pid_namespace;
            one.is_running() && one.init.as_ref().is_some_and(is_there)
        })
    }

    /// The container that another one is within.
    pub fn around(&self, inner: &Container) -> Option<&Container> {
        let outer = inner.outer?;
        self.iter()
            .find(|one| one.init.is_some_and(|init| init.pid == outer))
    }

    /// The container of a process that lives; it looks again when it is in one that is not
    /// known yet.
    pub fn of_process(&mut self, process: &Process) -> Option<&Container> {
        let task = Living::task(process)?;
        let id = cgroups::id_of(&task.cgroup).unwrap_or(0);
        let may_be = task.pid_namespace != self.ours || !places(&task.cgroup).is_empty();
        let space = task.pid_namespace.id;
        if may_be && self.of(id, space).is_none() {
            // What was known is still there when it cannot be looked again.
            if !matches!(self.add_alone(&Living, &task, &findings()), Ok(true)) {
                let _ = self.refresh();
            }
        }
        if self.of(id, space).is_some() {
            return self.of(id, space);
        }
        // A control group that has no id here.
        let has = |one: &&Container| {
            let cgroup = one.cgroup.as_ref().filter(|cgroup| cgroup.id.is_none());
            cgroup.is_some_and(|cgroup| is_below(&task.cgroup, &cgroup.path))
        };
        self.all.iter().rfind(has)
    }

    /// All of them: those that have ended since the first look, those that run, those that
    /// have stopped.
    pub fn iter(&self) -> impl Iterator<Item = &Container> {
        self.all.iter()
    }

    pub(super) fn into_all(self) -> Vec<Container> {
        self.all
    }

    /// What could not be read, so that names may be missing.
    pub fn problems(&self) -> &[TargetError] {
        &self.problems
    }

    fn index(&mut self) {
        self.by_cgroup.clear();
        self.by_namespace.clear();
        let mut left = GROUPS_MAX;
        // Those within come later, and take their groups from those around.
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        let depth = |at: &usize| {
            let cgroup = self.all.get(*at).and_then(|one| one.cgroup.as_ref());
            cgroup.map_or(0, |cgroup| cgroup.path.len())
        };
        order.sort_by_key(depth);
        for at in order {
            self.index_groups(at, &mut left);
        }
        for at in 0..self.all.len() {
            self.index_namespace(at);
        }
    }

    /// Notes the control groups of a container, at most as many as are `left`.
    fn index_groups(&mut self, at: usize, left: &mut usize) {
        let Some(container) = self.all.get(at) else {
            return;
        };
        if let Some(cgroup) = &container.cgroup {
            let below = match container.is_running() {
                true => cgroups::ids_below(&cgroup.path, *left),
                false => Vec::new(),
            };
            *left = left.saturating_sub(below.len());
            // A group of an ended container is never another's: ids are not used again.
            let ids = below.into_iter().chain(cgroup.id);
            self.by_cgroup.extend(ids.map(|id| (id, at)));
        }
    }

    /// Notes the pid namespace that a container has made.
    fn index_namespace(&mut self, at: usize) {
        let init = self.all.get(at).and_then(|one| one.init);
        let made = init.filter(|init| init.is_first);
        self.by_namespace
            .extend(made.map(|init| (init.pid_namespace.id, at)));
    }
}

fn our_namespace() -> Result<PidSpace> {
    Process::open(std::process::id())?.pid_namespace()
}

/// What the runtimes' files say.
fn findings() -> Findings {
    let mut findings = Findings::default();
    let host = Host::this(&mut findings);
    findings.and_all_of(&host)
}

/// Whether it is one that has stopped, and was known before as what it is now.
fn same(one: &Container, old: &Container) -> bool {
    one.init.is_none() && old.init.is_none() && identity(one) == identity(old)
}

/// What identifies a container that has no process.
fn identity(container: &Container) -> (Runtime, Option<u32>, Option<&str>, &str) {
    (
        container.runtime,
        container.user,
        container.id.as_deref(),
        &container.name,
    )
}

/// Gives pods of which only the uid is known their names.
fn name_pods(all: &mut [Container], pods: &HashMap<String, Pod>) {
    for pod in all.iter_mut().filter_map(|one| one.pod.as_mut()) {
        let named = pods.get(&pod.name).filter(|_| pod.namespace.is_none());
        if let Some(named) = named {
            pod.namespace.clone_from(&named.namespace);
            pod.name.clone_from(&named.name);
        }
    }
}

/// Notes which of them do not share their pid namespace.
fn own_namespaces(all: &mut [Container]) {
    let mut users: HashMap<PidSpace, usize> = HashMap::new();
    for init in all.iter().filter_map(|one| one.init) {
        *users.entry(init.pid_namespace).or_default() += 1;
    }
    for init in all.iter_mut().filter_map(|one| one.init.as_mut()) {
        let is_alone = users.get(&init.pid_namespace) == Some(&1);
        init.owns_namespace = init.is_first && is_alone;
    }
}
