// SPDX-License-Identifier: MIT OR Apache-2.0
//! The containers of a capsule, derived from its tasks.

use crate::tasks::{NamedContainer, Place, Places};
use libnsprobe::common::record::Hit;
use nsprobe_capsule::model::Container;
use nsprobe_capsule::Contents;
use std::collections::HashMap;
use std::rc::Rc;

/// The containers that a capsule knows.
#[derive(Debug, Default)]
pub struct CapsulePlaces {
    by_group: HashMap<u64, Rc<NamedContainer>>,
    by_namespace: HashMap<u64, Rc<NamedContainer>>,
}

impl CapsulePlaces {
    /// Those of these containers that have a name; the later word on one counts.
    pub fn new(containers: &[Container]) -> CapsulePlaces {
        let mut places = CapsulePlaces::default();
        for container in containers {
            let Some(known) = known(container).map(Rc::new) else {
                continue;
            };
            if container.cgroup != 0 {
                places.by_group.insert(container.cgroup, Rc::clone(&known));
            }
            if container.pid_namespace_id != 0 {
                places
                    .by_namespace
                    .insert(container.pid_namespace_id, known);
            }
        }
        places
    }

    /// The place of the hit's thread at that time; `None` if unknown.
    pub(crate) fn of_hit(&self, contents: &Contents, hit: &Hit) -> Option<Place> {
        let task = contents.tasks.at(hit.tid, hit.time_ns);
        match task {
            Some(task) => Some(Place::at(task, hit.time_ns, self)),
            None => self.container(0, hit.pidns_id).map(Place::Container),
        }
    }
}

impl Places for CapsulePlaces {
    fn container(&self, cgroup: u64, pid_namespace: u64) -> Option<Rc<NamedContainer>> {
        let by_group = self.by_group.get(&cgroup);
        let known = by_group.or_else(|| self.by_namespace.get(&pid_namespace));
        known.map(Rc::clone)
    }
}

fn known(container: &Container) -> Option<NamedContainer> {
    let runtime = container.runtime.as_deref().unwrap_or("container");
    Some(NamedContainer {
        name: container.name.clone()?,
        runtime: runtime.to_owned(),
        id: container.id.clone(),
        pod: container.pod.clone(),
    })
}
