// SPDX-License-Identifier: MIT OR Apache-2.0
//! The containers of this machine, found by their runtimes' files and control groups.

use super::{Known, Places};
use nsprobe_containers::container::Runtime;
use nsprobe_containers::{Container, Containers};
use std::collections::HashMap;
use std::rc::Rc;

/// The known containers, including those that have ended.
#[derive(Debug, Default)]
pub(crate) struct LivePlaces {
    all: Containers,
}

impl LivePlaces {
    /// Looks for containers again, and keeps those that were known before.
    pub(crate) fn refresh(&mut self) -> anyhow::Result<()> {
        Ok(self.all.refresh()?)
    }

    /// The names of those that have a pid namespace of their own, by its id.
    pub(crate) fn namespaces(&self) -> HashMap<u64, String> {
        let named = self.all.iter().filter(|one| is_container(one));
        let name = |one: &Container| {
            let init = one.init.filter(|init| init.owns_namespace)?;
            Some((init.pid_namespace.id, one.name.clone()))
        };
        named.filter_map(name).collect()
    }
}

impl Places for LivePlaces {
    fn container(&self, cgroup: u64, pid_namespace: u64) -> Option<Rc<Known>> {
        let found = self.all.of(cgroup, pid_namespace);
        found
            .filter(|one| is_container(one))
            .map(|one| Rc::new(known(one)))
    }
}

/// Whether a runtime made it as a container: an unnamed namespace, a service or a control group is
/// not shown as one.
fn is_container(one: &Container) -> bool {
    !matches!(
        one.runtime,
        Runtime::Bare | Runtime::Service | Runtime::Cgroup
    )
}

fn known(one: &Container) -> Known {
    Known {
        name: one.name.clone(),
        runtime: one.runtime.name().to_owned(),
        id: one.id.clone(),
        pod: one.pod.as_ref().map(ToString::to_string),
    }
}
