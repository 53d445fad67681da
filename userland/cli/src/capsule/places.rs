// SPDX-License-Identifier: MIT OR Apache-2.0
//! The containers of a capsule, by what its tasks tell.

use crate::tasks::{Known, Place, Places};
use libnsprobe::common::record::Hit;
use nsprobe_capsule::model::Container;
use nsprobe_capsule::Contents;
use std::collections::HashMap;
use std::rc::Rc;

/// Containers by when they were known.
type Dated = Vec<(u64, Rc<Known>)>;

/// The containers that a capsule knows.
#[derive(Debug, Default)]
pub(crate) struct CapsulePlaces {
    by_group: HashMap<u64, Dated>,
    by_namespace: HashMap<u32, Dated>,
}

/// The same as they were at a time.
pub(crate) struct PlacesAt<'a> {
    all: &'a CapsulePlaces,
    time_ns: u64,
}

impl CapsulePlaces {
    /// Those of these containers that have a name.
    pub(crate) fn new(containers: &[Container]) -> CapsulePlaces {
        let mut places = CapsulePlaces::default();
        for container in containers {
            let Some(known) = known(container) else {
                continue;
            };
            let dated = (container.known_ns, Rc::new(known));
            if container.cgroup != 0 {
                let group = places.by_group.entry(container.cgroup).or_default();
                group.push(dated.clone());
            }
            if container.pid_namespace != 0 {
                let namespace = places.by_namespace.entry(container.pid_namespace);
                namespace.or_default().push(dated);
            }
        }
        places
    }

    /// As they were at a time.
    pub(crate) fn at(&self, time_ns: u64) -> PlacesAt<'_> {
        PlacesAt { all: self, time_ns }
    }

    /// Where the thread of a hit was then; none when nothing tells.
    pub(crate) fn of_hit(&self, contents: &Contents, hit: &Hit) -> Option<Place> {
        let places = self.at(hit.time_ns);
        let task = contents.tasks.at(hit.tid, hit.time_ns);
        match task {
            Some(task) => Some(Place::at(task, hit.time_ns, &places)),
            None => places.container(0, hit.pidns_inum).map(Place::Container),
        }
    }
}

impl Places for PlacesAt<'_> {
    fn container(&self, cgroup: u64, pid_namespace: u32) -> Option<Rc<Known>> {
        let by_group = self.all.by_group.get(&cgroup);
        let by_namespace = self.all.by_namespace.get(&pid_namespace);
        by_group
            .or(by_namespace)
            .and_then(|dated| at(dated, self.time_ns))
    }
}

/// The one that was known last by then. A name is known a little later than its container
/// has tasks: without one before, the first.
fn at(dated: &Dated, time_ns: u64) -> Option<Rc<Known>> {
    let mut before = dated.iter().filter(|(known_ns, _)| *known_ns <= time_ns);
    let found = before.next_back().or(dated.first());
    found.map(|(_, known)| Rc::clone(known))
}

fn known(container: &Container) -> Option<Known> {
    let runtime = container.runtime.as_deref().unwrap_or("container");
    Some(Known {
        name: container.name.clone()?,
        runtime: runtime.to_owned(),
        id: container.id.clone(),
        pod: container.pod.clone(),
    })
}
