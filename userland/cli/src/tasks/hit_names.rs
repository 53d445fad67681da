// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of the containers that hits come from, while a trace runs.

use super::{Key, LivePlaces, Namer};
use libnsprobe::Session;
use nsprobe_containers::{PidSpace, Process};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Knows containers by the ids of their pid namespaces. Those that start later are looked for
/// by a thread of their own: their first hits may be printed before there is a name.
pub(crate) struct HitNames {
    /// Our own pid namespace, which is no container's.
    own: u64,
    names: HashMap<u64, String>,
    namer: Namer,
}

impl HitNames {
    /// With the containers that run now.
    pub(crate) fn start() -> anyhow::Result<HitNames> {
        let mut places = LivePlaces::default();
        places.refresh()?;
        Ok(HitNames {
            own: Process::open(std::process::id())?.pid_namespace()?.id,
            names: places.namespaces(),
            namer: Namer::start()?,
        })
    }

    /// Names for the containers of pid namespaces: each has a name of its own.
    pub(crate) fn names(&mut self, ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        let mut name = |id: u64| match self.name(id) {
            Some(name) => name,
            // Also of containers that share it, as with --pid=host.
            None if id == self.own => "(host)".to_owned(),
            None => format!("(pid namespace {id})"),
        };
        distinct(ids.iter().map(|id| (*id, name(*id))).collect())
    }

    /// As `names`, but waits for look-ups in progress: nothing is found later.
    pub(crate) fn all_names(&mut self, ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        self.names(ids);
        let found = self.namer.finish().into_iter();
        self.names
            .extend(found.map(|found| (found.key.pid_namespace.id, found.known.name)));
        self.names(ids)
    }

    /// The name of the container of a pid namespace's id. Not escaped.
    pub(crate) fn name(&mut self, id: u64) -> Option<String> {
        if id == self.own || id == 0 {
            return None;
        }
        if !self.names.contains_key(&id) {
            self.namer.want(Key {
                cgroup: 0,
                pid_namespace: PidSpace { id, inum: 0 },
            });
            let found = self.namer.found().into_iter();
            let found = found.map(|found| (found.key.pid_namespace.id, found.known.name));
            self.names.extend(found);
        }
        self.names.get(&id).cloned()
    }
}

/// Notes on the container that took its share of a table, and of the stacks that have ids: there was
/// no room left for more of it.
pub(crate) fn full_notes(
    session: &Session,
    turned_away_of: Option<u64>,
) -> anyhow::Result<Vec<String>> {
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
