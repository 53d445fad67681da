// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a task is: in which container, on the host, or in the kernel.

use libnsprobe::common::task::TaskLevel;
use nsprobe_containers::PidSpace;
use nsprobe_tasks::Task;
use std::rc::Rc;

/// A container that tasks are in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedContainer {
    /// Its name, as its runtime has it; from a container's files, so not escaped.
    pub name: String,
    /// Its runtime, such as `podman`.
    pub runtime: String,
    /// Its id, as its runtime has it.
    pub id: Option<String>,
    /// The pod that it belongs to.
    pub pod: Option<String>,
}

/// The pid namespace of a level.
pub fn space_of(level: &TaskLevel) -> PidSpace {
    PidSpace {
        id: level.id,
        inum: level.inum,
    }
}

/// Finds containers by what the kernel reports of a task.
pub trait Places {
    /// The container of a control group (0 for one that is not known) and of the id of a pid
    /// namespace.
    fn container(&self, cgroup: u64, pid_namespace: u64) -> Option<Rc<NamedContainer>>;
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// In a container that has a name.
    Container(Rc<NamedContainer>),
    /// In a pid namespace of which nothing else is known.
    Namespace(PidSpace),
    /// In no container.
    Host,
    /// It is one of the kernel's own threads.
    Kernel,
}

impl Place {
    /// The place of a task now, or when it was last seen.
    pub fn of(task: &Task, places: &impl Places) -> Place {
        Place::at(task, u64::MAX, places)
    }

    /// The place of a task at a time.
    pub(crate) fn at(task: &Task, time_ns: u64, places: &impl Places) -> Place {
        if task.is_kernel {
            return Place::Kernel;
        }
        let levels = task.levels.at(time_ns).map_or(&[][..], |levels| levels);
        let cgroup = task.cgroups.at(time_ns).copied().unwrap_or(0);
        Place::found(cgroup, levels.iter().map(space_of), places)
    }

    /// The place of a control group in these pid namespaces, the opener's first.
    pub fn found(
        cgroup: u64,
        spaces: impl DoubleEndedIterator<Item = PidSpace> + ExactSizeIterator,
        places: &impl Places,
    ) -> Place {
        let depth = spaces.len();
        let mut own = None;
        // A namespace within a container's is a part of that container.
        for (above, space) in spaces.rev().enumerate() {
            let is_outermost = above + 1 == depth;
            // The opener's own namespace identifies no container: there, only the control group
            // does.
            let asked = match (above, is_outermost) {
                (0, true) => Some((cgroup, 0)),
                (0, false) => Some((cgroup, space.id)),
                (_, false) => Some((0, space.id)),
                (_, true) => None,
            };
            let known = asked.and_then(|(group, id)| places.container(group, id));
            if let Some(known) = known {
                return Place::Container(known);
            }
            if !is_outermost {
                own = own.or(Some(space));
            }
        }
        own.map_or(Place::Host, Place::Namespace)
    }

    /// Name for the user. Not escaped.
    pub fn name(&self) -> String {
        match self {
            Place::Container(known) => known.name.clone(),
            Place::Namespace(space) => format!("pid:[{}]", space.inum),
            Place::Host => "(host)".to_owned(),
            Place::Kernel => "(kernel)".to_owned(),
        }
    }

    /// The container that it is, when there is a name for it.
    pub fn known(&self) -> Option<&NamedContainer> {
        match self {
            Place::Container(known) => Some(known),
            Place::Namespace(_) | Place::Host | Place::Kernel => None,
        }
    }

    /// Whether it is a container, even one without a name.
    pub fn is_container(&self) -> bool {
        matches!(self, Place::Container(_) | Place::Namespace(_))
    }

    /// Name for JSON: `container`, `namespace`, `host`, `kernel`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Place::Container(_) => "container",
            Place::Namespace(_) => "namespace",
            Place::Host => "host",
            Place::Kernel => "kernel",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl Places for Two {
        fn container(&self, cgroup: u64, pid_namespace: u64) -> Option<Rc<NamedContainer>> {
            let name = match (cgroup, pid_namespace) {
                (7, _) => "by group",
                (_, 200) => "by namespace",
                _ => return None,
            };
            Some(Rc::new(NamedContainer {
                name: name.to_owned(),
                runtime: "test".to_owned(),
                id: None,
                pod: None,
            }))
        }
    }

    #[test]
    fn a_task_is_where_its_group_or_its_namespaces_say() {
        let space = |inum: &u32| PidSpace {
            id: u64::from(*inum),
            inum: *inum,
        };
        let name =
            |cgroup, inums: &[u32]| Place::found(cgroup, inums.iter().map(space), &Two).name();
        assert_eq!(name(1, &[100]), "(host)");
        assert_eq!(name(7, &[100]), "by group");
        assert_eq!(name(1, &[100, 200]), "by namespace");
        assert_eq!(name(7, &[100, 200]), "by group");
        assert_eq!(name(1, &[100, 200, 300]), "by namespace");
        assert_eq!(name(1, &[100, 300, 400]), "pid:[400]");
        assert_eq!(
            name(1, &[200]),
            "(host)",
            "our own namespace is no container to us"
        );
    }
}
