// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks that `-c` selects.

use super::{Place, Places};
use crate::options::TargetSpec;
use nsprobe_containers::{ContainerTasks as TargetScope, PidSpace, Running, Runtime};
use nsprobe_tasks::Task;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Mount point of the control groups.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Most control groups of a container.
const CGROUPS_MAX: usize = 1 << 16;

/// The selected tasks.
#[derive(Debug, Default)]
pub struct SelectedTasks {
    container: Option<Wanted>,
    /// The container with whose end its tasks end.
    running: Option<Running>,
}

/// A container, identified by the data of tasks.
#[derive(Debug, Default)]
struct Wanted {
    id: Option<String>,
    /// The id of its pid namespace.
    pid_namespace: Option<u64>,
    /// Ids of its control group and of those below, when it shares its pid namespace.
    cgroups: HashSet<u64>,
    processes: HashSet<u32>,
}

impl SelectedTasks {
    /// Those that the user means. Fails for a container that is not there, or for several.
    pub fn find(who: &TargetSpec) -> anyhow::Result<SelectedTasks> {
        let TargetSpec::Container(spec) = who else {
            return Ok(SelectedTasks::default());
        };
        let found = Running::find(spec)?;
        let mut wanted = Wanted {
            id: found.container.id.clone(),
            ..Wanted::default()
        };
        match found.scope()? {
            TargetScope::PidNamespace(space) => wanted.pid_namespace = Some(space.id),
            TargetScope::Cgroup(id) => {
                wanted.cgroups.insert(id);
                let path = found.container.cgroup.as_ref().map(|cgroup| &cgroup.path);
                let path = path.map_or("", |path| path.trim_start_matches('/'));
                add_below(&Path::new(CGROUPS).join(path), &mut wanted.cgroups);
            }
            TargetScope::Processes => wanted.processes.extend(found.processes()?),
        }
        // The processes of a control group may end in any order.
        let ends = found.container.runtime != Runtime::Cgroup;
        Ok(SelectedTasks {
            container: Some(wanted),
            running: ends.then_some(found),
        })
    }

    /// The name of the container, once it has ended.
    pub fn ended(&self) -> Option<&str> {
        let running = self.running.as_ref()?;
        (!running.init.still_same()).then(|| running.name())
    }

    /// Whether a task is one of them.
    pub fn has(&self, task: &Task, places: &impl Places) -> bool {
        let Some(wanted) = &self.container else {
            return true;
        };
        let levels = task.levels.last().map_or(&[][..], |levels| levels);
        let mut ids = levels.iter().map(|level| level.id);
        let is_inside = wanted
            .pid_namespace
            .is_some_and(|wanted| ids.any(|id| id == wanted));
        let cgroup = task.cgroups.last().copied().unwrap_or(0);
        is_inside
            || wanted.cgroups.contains(&cgroup)
            || wanted.processes.contains(&task.pid())
            || wanted.is(&Place::of(task, places))
    }

    /// Whether a place, in pid namespaces of these ids, is one of theirs.
    pub fn has_place(&self, place: &Place, cgroup: u64, spaces: &[PidSpace]) -> bool {
        let Some(wanted) = &self.container else {
            return true;
        };
        let is_inside = wanted
            .pid_namespace
            .is_some_and(|id| spaces.iter().any(|space| space.id == id));
        is_inside || wanted.cgroups.contains(&cgroup) || wanted.is(place)
    }
}

impl Wanted {
    fn is(&self, place: &Place) -> bool {
        let id = place.known().and_then(|known| known.id.as_ref());
        id.is_some() && id == self.id.as_ref()
    }
}

/// Adds the ids of the control groups in a directory. Those that go meanwhile have none.
fn add_below(directory: &Path, ids: &mut HashSet<u64>) {
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop().filter(|_| ids.len() < CGROUPS_MAX) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if let Ok(found) = entry.metadata() {
                if found.is_dir() && ids.insert(found.ino()) {
                    left.push(entry.path());
                }
            }
        }
    }
}
