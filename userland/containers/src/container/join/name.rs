// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the containers that were found are called, and what they are within.

use super::{is_below, Group, GroupKey, Join};
use crate::container::processes::Processes;
use crate::container::{bare_name, Cgroup, Container, ContainerState, Init, Runtime};
use crate::TargetError;

impl<P: Processes> Join<'_, P> {
    /// The containers: those that run, and those that only the state files know.
    pub(super) fn containers(&self) -> Vec<Container> {
        let made = |(key, group)| Some(((key, group), self.container(key, group)?));
        let (running, mut all): (Vec<(&GroupKey, &Group)>, Vec<Container>) =
            self.groups.iter().filter_map(made).unzip();
        self.tell_outer(&running, &mut all);
        for (container, (_, group)) in all.iter_mut().zip(&running) {
            self.tell_why(container);
            // A container makes control groups of its own, and calls them as it likes.
            if group.known.is_none() {
                container.name_within();
            }
        }
        let joined: Vec<usize> = running
            .iter()
            .filter_map(|(_, group)| group.known)
            .collect();
        for (at, known) in self.known.iter().enumerate() {
            // A log that is left of a container is none.
            if !joined.contains(&at) && known.runtime != Runtime::Engine {
                let why = self.claims.get(at).and_then(|claim| claim.clone().err());
                all.push(Container::stopped(known, why.flatten()));
            }
        }
        all
    }

    fn container(&self, key: &GroupKey, group: &Group) -> Option<Container> {
        let pid = group.init?;
        let (task, details) = (self.task(pid)?, self.details(pid)?);
        let mut container = match group.known.and_then(|at| self.known.get(at)) {
            Some(known) => Container::known(known),
            None => Container::nameless(),
        };
        let places = key.path().map(|path| self.places(path)).unwrap_or_default();
        let is_unknown = container.name.is_empty() || container.runtime == Runtime::Engine;
        if let Some(place) = places.last() {
            container.called_by(place, is_unknown);
        }
        if container.name.is_empty() {
            container.name = bare_name(task.pid_namespace.inum);
        }
        container.init = Some(Init {
            pid,
            start_time: details.start_time,
            pid_namespace: task.pid_namespace,
            mount_namespace: details.mount_namespace,
            is_first: details.is_first() && task.pid_namespace != self.ours,
            owns_namespace: false,
        });
        let path = key.path().map(str::to_owned);
        let is_frozen = path
            .as_ref()
            .is_some_and(|path| self.processes.is_frozen(path));
        container.state = if is_frozen {
            ContainerState::Paused
        } else {
            ContainerState::Running
        };
        container.cgroup = path.map(|path| Cgroup {
            id: self.processes.cgroup_id(&path),
            path,
        });
        let members = group.members.iter().filter_map(|at| self.tasks.get(*at));
        container.processes = members.map(|task| task.pid).collect();
        container.processes.sort_unstable();
        Some(container)
    }

    /// Says of each which other it is within.
    fn tell_outer(&self, groups: &[(&GroupKey, &Group)], all: &mut [Container]) {
        let outer: Vec<Option<usize>> =
            (0..all.len()).map(|at| self.outer_of(groups, at)).collect();
        let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
        let inits: Vec<Option<u32>> = groups.iter().map(|(_, group)| group.init).collect();
        let around = |at: usize| outer.get(at).copied().flatten();
        for (at, container) in all.iter_mut().enumerate() {
            // Parents of parents end, also where processes come and go meanwhile.
            let outwards = std::iter::successors(around(at), |at| around(*at)).take(names.len());
            let mut path: Vec<&str> = outwards
                .filter_map(|at| names.get(at).map(String::as_str))
                .collect();
            path.reverse();
            container.outer = around(at).and_then(|outer| inits.get(outer).copied().flatten());
            container.inside = Some(path.join("/")).filter(|path| !path.is_empty());
        }
    }

    /// The place of the innermost container around another.
    fn outer_of(&self, groups: &[(&GroupKey, &Group)], at: usize) -> Option<usize> {
        let (key, group) = groups.get(at)?;
        let own = key.path();
        let path = match own {
            Some(path) => path,
            None => &self.task(group.init?)?.cgroup,
        };
        // What made a namespace of its own may be in the control group of the container.
        let is_around = |outer: &str| is_below(path, outer) && own != Some(outer);
        let around = groups.iter().enumerate().filter_map(|(at, (key, _))| {
            let outer = key.path().filter(|outer| is_around(outer))?;
            Some((outer.len(), at))
        });
        let innermost = around.max().map(|(_, at)| at);
        innermost.or_else(|| self.parents_group(groups, group, at))
    }

    /// The container that the parent of the first process is in.
    fn parents_group(
        &self,
        groups: &[(&GroupKey, &Group)],
        group: &Group,
        own: usize,
    ) -> Option<usize> {
        let parent = self.details(group.init?)?.parent;
        let at = *self.by_pid.get(&parent)?;
        let found = groups
            .iter()
            .position(|(_, other)| other.members.contains(&at));
        found.filter(|found| *found != own)
    }

    /// Says why there is no better name than an id.
    fn tell_why(&self, container: &mut Container) {
        let is_named = container
            .id
            .as_deref()
            .is_none_or(|id| !id.starts_with(&container.name));
        if is_named {
            return;
        }
        if let Some(outer) = &container.inside {
            let why = format!("only its id is known: its state is within container {outer}");
            container.problems.push(why);
            return;
        }
        let words = container.runtime.state_words();
        let concerns = |error: &&TargetError| match error {
            TargetError::StateUnreadable { path, .. }
            | TargetError::StateMalformed { path, .. } => {
                let path = path.to_string_lossy();
                words.is_empty() || words.iter().any(|word| path.contains(word))
            }
            _ => false,
        };
        let why = self.problems.iter().find(concerns);
        container.problems.push(match why {
            Some(error) => format!("only its id is known: {error}"),
            None => "only its id is known: no state file that is read here has it".to_owned(),
        });
    }
}
