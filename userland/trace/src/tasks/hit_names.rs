// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of the containers that hits come from, while a trace runs.

use super::live::{is_container, known};
use super::{ContainerKey, FoundContainer, LivePlaces, NamedContainer, Namer, CONTAINERS_MAX};
use crate::attach::run::Added;
use crate::attach::target::Target;
use libnsprobe::Session;
use lru::LruCache;
use nsprobe_containers::container::ContainerTasks;
use nsprobe_containers::{Containers, PidSpace, Process};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// How long it is believed that a process is in a control group.
const GROUP_AGE: Duration = Duration::from_secs(1);
/// Most processes of which that is kept.
const GROUPS_MAX: usize = 1 << 14;

/// The container of a pid namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowContainer {
    /// None, or one that shares our own pid namespace.
    Own,
    /// It has a name; several that share a pid namespace have one together.
    Known(NamedContainer),
    /// It has none, or none yet.
    Unknown,
}

/// Knows containers by the ids of their pid namespaces, and those that share one by the control
/// groups of their processes. Those that start later are looked for by a thread of their own: their
/// first hits may be printed before there is a name.
pub struct HitNames {
    /// Our own pid namespace, which is no container's.
    own: u64,
    /// By control group, zero where that does not matter, and pid namespace.
    names: LruCache<(u64, u64), NamedContainer>,
    /// What namespaces are called that containers share.
    shared: HashMap<u64, String>,
    groups: HashMap<u32, (Instant, Option<u64>)>,
    namer: Namer,
}

impl HitNames {
    /// With the containers that run now.
    pub fn start() -> anyhow::Result<HitNames> {
        let mut places = LivePlaces::default();
        places.refresh()?;
        let mut names = LruCache::new(CONTAINERS_MAX);
        for (id, name) in places.namespaces() {
            names.put((0, id), name);
        }
        for (key, name) in places.groups() {
            names.put(key, name);
        }
        Ok(HitNames {
            own: Process::open(std::process::id())?.pid_namespace()?.id,
            names,
            shared: places.shared(),
            groups: HashMap::new(),
            namer: Namer::start()?,
        })
    }

    /// Of hits in a container alone: where it shares its pid namespace, those are its own. Of a
    /// group, those that it was found with, which may have ended.
    pub fn within(mut self, target: &Target) -> anyhow::Result<HitNames> {
        if let Target::Group(group) = target {
            for container in group.members.iter().map(|one| &one.container) {
                let init = container.init.filter(|init| init.owns_namespace);
                if let (Some(init), true) = (init, is_container(container)) {
                    let id = init.pid_namespace.id;
                    self.names.get_or_insert((0, id), || known(container));
                }
            }
        }
        if let Target::Container(running) = target {
            if is_container(&running.container)
                && matches!(running.scope()?, ContainerTasks::Cgroup(_))
            {
                let id = running.pid_namespace()?.id;
                self.names.put((0, id), known(&running.container));
            }
        }
        Ok(self)
    }

    /// Names for the containers of pid namespaces: each has a name of its own.
    pub fn names(&mut self, ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        let mut name = |id: u64| match (self.name(id), self.shared.get(&id)) {
            (Some(name), _) => name,
            // Also of containers that share it, as with --pid=host.
            _ if id == self.own => "(host)".to_owned(),
            (None, Some(shared)) => shared.clone(),
            (None, None) => format!("(pid namespace {id})"),
        };
        distinct(ids.iter().map(|id| (*id, name(*id))).collect())
    }

    /// The container of a pid namespace's id, as far as it is known; else it is looked for.
    pub fn container(&mut self, id: u64) -> RowContainer {
        if self.name(id).is_some() {
            let known = self.names.get(&(0, id));
            return known.map_or(RowContainer::Unknown, |known| {
                RowContainer::Known(known.clone())
            });
        }
        match self.shared.get(&id) {
            _ if id == self.own || id == 0 => RowContainer::Own,
            Some(shared) => RowContainer::Known(NamedContainer {
                name: shared.clone(),
                runtime: String::new(),
                id: None,
                pod: None,
            }),
            None => RowContainer::Unknown,
        }
    }

    /// As `names`, but waits for look-ups in progress: nothing is found later.
    pub fn all_names(&mut self, ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        self.names(ids);
        let found = self.namer.finish();
        self.take(found);
        self.names(ids)
    }

    /// The name of the container of a hit, by its process and by the id of its pid namespace. Not
    /// escaped.
    pub(crate) fn of_hit(&mut self, pid: u32, id: u64) -> Option<String> {
        let name = self.name(id);
        name.or_else(|| {
            let group = self.group_of(pid)?;
            self.look_up(group, id)
        })
    }

    /// The name of the container of a pid namespace's id.
    fn name(&mut self, id: u64) -> Option<String> {
        let known = self.names.get(&(0, id));
        match known {
            None if id != self.own && id != 0 => self.look_up(0, id),
            known => known.map(|known| known.name.clone()),
        }
    }

    fn look_up(&mut self, cgroup: u64, id: u64) -> Option<String> {
        if !self.names.contains(&(cgroup, id)) {
            self.namer.want(ContainerKey {
                cgroup,
                pid_namespace: PidSpace { id, inum: 0 },
            });
            let found = self.namer.found();
            self.take(found);
        }
        let known = self.names.get(&(cgroup, id));
        known.map(|known| known.name.clone())
    }

    /// The pid namespace that stands for the container of another: its first.
    pub fn whole(&self, id: u64) -> u64 {
        let Some(known) = self.names.peek(&(0, id)).filter(|known| known.id.is_some()) else {
            return id;
        };
        let same = self.names.iter().filter(|(_, other)| *other == known);
        let spaces = same.map(|((_, space), _)| *space);
        spaces.min().unwrap_or(id)
    }

    /// Takes the names of containers that were added.
    pub fn learn(&mut self, added: &Added) {
        self.take(added.found.clone());
    }

    fn take(&mut self, found: Vec<FoundContainer>) {
        for found in found {
            let ContainerKey {
                cgroup,
                pid_namespace,
            } = found.key;
            self.names.put((cgroup, pid_namespace.id), found.known);
        }
    }

    /// The control group of the container that a process is in.
    fn group_of(&mut self, pid: u32) -> Option<u64> {
        let now = Instant::now();
        if self.groups.len() >= GROUPS_MAX {
            self.groups.clear();
        }
        let kept = self.groups.get(&pid);
        if let Some((_, group)) = kept.filter(|(read, _)| now < *read + GROUP_AGE) {
            return *group;
        }
        let group = Process::open(pid).ok();
        let group = group.and_then(|process| Containers::group_of(&process));
        // One that has ended was where it was last.
        let group = group.or_else(|| self.groups.get(&pid).and_then(|(_, group)| *group));
        self.groups.insert(pid, (now, group));
        group
    }
}

/// Notes on the container that took its share of a table, and of the stacks that have ids: there was
/// no room left for more of it.
pub fn full_notes(session: &Session, turned_away_of: Option<u64>) -> anyhow::Result<Vec<String>> {
    let full = [
        (
            turned_away_of,
            "rows of the table: its further hits have no row; try more --rows",
        ),
        (
            session.stacks_full_of()?,
            "room for stacks: its further hits have none",
        ),
    ];
    let ids: BTreeSet<u64> = full.iter().filter_map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let names = HitNames::start()?.all_names(&ids);
    let note = |(id, what)| Some(format!("{} has its share of the {what}", names.get(&id?)?));
    Ok(full.into_iter().filter_map(note).collect())
}

/// Makes names distinct: containers with the same name get their id appended.
fn distinct(mut names: BTreeMap<u64, String>) -> BTreeMap<u64, String> {
    let mut users: HashMap<String, usize> = HashMap::new();
    for name in names.values() {
        *users.entry(name.clone()).or_default() += 1;
    }
    for (id, name) in &mut names {
        if users.get(name).is_some_and(|users| *users > 1) {
            name.push_str(&format!(" (pid namespace {id})"));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_one_namespace_are_told_by_the_groups_of_processes() {
        let group = |group| (Instant::now() + Duration::from_secs(60), Some(group));
        let name = |name: &str| NamedContainer {
            name: name.to_owned(),
            runtime: "podman".to_owned(),
            id: Some(format!("{name}'s id")),
            pod: None,
        };
        let mut known = LruCache::new(CONTAINERS_MAX);
        for (key, called) in [
            ((0, 78), "web"),
            ((0, 90), "web"),
            ((5, 77), "ts"),
            ((6, 77), "tt"),
            ((6, 1), "host's"),
        ] {
            known.put(key, name(called));
        }
        let mut names = HitNames {
            own: 1,
            names: known,
            shared: HashMap::from([(77, "ts or tt (one pid namespace)".to_owned())]),
            groups: HashMap::from([(10, group(5)), (11, group(6)), (12, group(7))]),
            namer: Namer::start().expect("a thread"),
        };
        let mut of = |pid, id| names.of_hit(pid, id);
        assert_eq!(of(10, 77).as_deref(), Some("ts"));
        assert_eq!(of(11, 77).as_deref(), Some("tt"));
        assert_eq!(of(12, 77), None);
        assert_eq!(of(11, 78).as_deref(), Some("web"));
        assert_eq!(of(11, 1).as_deref(), Some("host's"));
        assert_eq!([90, 78, 77, 79].map(|id| names.whole(id)), [78, 78, 77, 79]);
        let table = names.names(&BTreeSet::from([1, 77, 78, 79]));
        let table: Vec<&str> = table.values().map(String::as_str).collect();
        let own = "(host)";
        let shared = "ts or tt (one pid namespace)";
        assert_eq!(table, [own, shared, "web", "(pid namespace 79)"]);
    }

    #[test]
    fn containers_of_one_name_are_not_one() {
        let names = [(7, "web"), (8, "db"), (9, "web")].map(|(id, name)| (id, name.to_owned()));
        let distinct = distinct(names.into());
        let distinct: Vec<&str> = distinct.values().map(String::as_str).collect();
        assert_eq!(
            distinct,
            ["web (pid namespace 7)", "db", "web (pid namespace 9)"]
        );
    }
}
