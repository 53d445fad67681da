// SPDX-License-Identifier: MIT OR Apache-2.0
//! The containers of this machine, found by their runtimes' files and control groups.

use super::{ContainerKey, FoundContainer, NamedContainer, Places};
use libnsprobe::Reader;
use nsprobe_containers::container::Runtime;
use nsprobe_containers::{Container, Containers, PidSpace};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Most pid namespaces within one another: the kernel has no more (`MAX_PID_NS_LEVEL`).
const NESTED_MAX: usize = 32;

/// The known containers, including those that have ended.
#[derive(Debug, Default)]
pub struct LivePlaces {
    all: Containers,
}

impl LivePlaces {
    /// Looks for containers again, and keeps those that were known before.
    pub fn refresh(&mut self) -> anyhow::Result<()> {
        Ok(self.all.refresh()?)
    }

    /// Looks for the containers of these keys alone. False if they may be others' still: that takes a
    /// look at all.
    pub(crate) fn look_for(&mut self, keys: &[ContainerKey]) -> bool {
        let mut is_enough = true;
        let mut firsts = Vec::new();
        let namespaces = keys.iter().map(|key| key.pid_namespace.id);
        let namespaces: BTreeSet<u64> = namespaces.filter(|id| *id != 0).collect();
        for id in namespaces {
            match PidSpace::first_process(id) {
                Ok(first) => firsts.extend(first),
                Err(_) => is_enough = false,
            }
        }
        is_enough &= self.all.look_at(&firsts);
        let is_known = |key: &ContainerKey| key.cgroup == 0 || self.all.has_group(key.cgroup);
        is_enough && keys.iter().all(is_known)
    }

    /// Those that have a pid namespace of their own, by its id; a namespace within one is a part of
    /// it.
    pub(crate) fn namespaces(&self) -> HashMap<u64, NamedContainer> {
        let named = |one: &Container| {
            let init = one.init.filter(|init| init.owns_namespace)?;
            Some((init.pid_namespace.id, known(self.shown(one)?)))
        };
        self.all.iter().filter_map(named).collect()
    }

    /// The others, by their control groups and pid namespaces.
    pub(crate) fn groups(&self) -> HashMap<(u64, u64), NamedContainer> {
        let named = |one: &Container| {
            let init = one.init.filter(|init| !init.owns_namespace)?;
            let group = one.cgroup.as_ref()?.id?;
            Some(((group, init.pid_namespace.id), known(one)))
        };
        let all = self.all.iter().filter(|one| is_container(one));
        all.filter_map(named).collect()
    }

    /// What pid namespaces are called that containers share.
    pub(crate) fn shared(&self) -> HashMap<u64, String> {
        let inits = self.all.iter().filter_map(|one| one.init);
        let shared = inits.filter(|init| !init.owns_namespace);
        let called = shared.map(|init| {
            let id = init.pid_namespace.id;
            let sharers = self.all.sharers(id).filter(|one| is_container(one));
            let names: Vec<&str> = sharers.map(|one| one.name.as_str()).collect();
            (id, format!("{} (one pid namespace)", names.join(" or ")))
        });
        called.collect()
    }

    fn shown<'a>(&'a self, one: &'a Container) -> Option<&'a Container> {
        shown(&self.all, one)
    }
}

/// The container that one of `all` is shown as.
fn shown<'a>(all: &'a Containers, one: &'a Container) -> Option<&'a Container> {
    let mut outwards = std::iter::successors(Some(one), |one| all.around(one));
    outwards
        .by_ref()
        .take(NESTED_MAX)
        .find(|one| is_container(one))
}

/// The name by which a container is known that has just started, unless it shares its pid namespace.
pub(crate) fn name_of(all: &Containers, one: &Container) -> Option<FoundContainer> {
    let init = one.init.filter(|init| init.owns_namespace)?;
    Some(FoundContainer {
        key: ContainerKey {
            cgroup: 0,
            pid_namespace: init.pid_namespace,
        },
        known: known(shown(all, one)?),
        time_ns: Reader::now(),
    })
}

impl Places for LivePlaces {
    fn container(&self, cgroup: u64, pid_namespace: u64) -> Option<Rc<NamedContainer>> {
        let found = self.all.of(cgroup, pid_namespace)?;
        self.shown(found).map(|one| Rc::new(known(one)))
    }
}

/// Whether a runtime made it as a container: an unnamed namespace, a service or a control group is
/// not shown as one.
pub(super) fn is_container(one: &Container) -> bool {
    !matches!(
        one.runtime,
        Runtime::Bare | Runtime::Service | Runtime::Cgroup
    )
}

pub(super) fn known(one: &Container) -> NamedContainer {
    NamedContainer {
        name: one.name.clone(),
        runtime: one.runtime.name().to_owned(),
        id: one.id.clone(),
        pod: one.pod.as_ref().map(ToString::to_string),
    }
}
