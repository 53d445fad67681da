// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines made by hand, for tests.

use super::processes::{Details, Processes, Task};
use crate::{PidSpace, Result};

/// Our own pid namespace.
pub(super) const OURS: u32 = 0xf000_0000;

/// A pid namespace that never had another's number.
pub(super) fn space(inum: u32) -> PidSpace {
    PidSpace {
        id: inum.into(),
        inum,
    }
}

/// Users that are all the machine's.
const EVERYBODY: [(u32, u32); 1] = [(0, u32::MAX)];
/// Those of a user namespace that user 1000 may make.
pub(super) const MINE: [(u32, u32); 2] = [(1000, 1), (100_000, 65_536)];

/// A machine whose processes a test has made up.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) tasks: Vec<(Task, Details)>,
    pub(super) frozen: Vec<String>,
    /// Control groups that users own.
    pub(super) owned: Vec<(String, u32)>,
}

impl Machine {
    /// Adds a process; its start time is its pid. `numbers` begins with the pid.
    pub(super) fn add(
        &mut self,
        cgroup: &str,
        pid_namespace: u32,
        numbers: &[u32],
    ) -> &mut Details {
        let pid = numbers[0];
        let task = Task {
            pid,
            cgroup: cgroup.to_owned(),
            pid_namespace: space(pid_namespace),
        };
        let details = Details {
            start_time: pid.into(),
            parent: 1,
            numbers: numbers.to_vec(),
            mount_namespace: 1,
            effective_uid: 0,
            users: EVERYBODY.to_vec(),
        };
        self.tasks.push((task, details));
        &mut self.tasks.last_mut().unwrap().1
    }
}

impl Processes for Machine {
    fn all(&self) -> Result<Vec<Task>> {
        Ok(self.tasks.iter().map(|(task, _)| task.clone()).collect())
    }

    fn pid_namespace(&self, pid: u32) -> Option<PidSpace> {
        let found = self.tasks.iter().find(|(task, _)| task.pid == pid);
        found.map(|(task, _)| task.pid_namespace)
    }

    fn details(&self, pid: u32) -> Option<Details> {
        let found = self.tasks.iter().find(|(task, _)| task.pid == pid);
        found.map(|(_, details)| details.clone())
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        Some(path.len() as u64)
    }

    fn is_frozen(&self, path: &str) -> bool {
        self.frozen.iter().any(|frozen| frozen == path)
    }

    fn owner(&self, path: &str) -> Option<u32> {
        let owned = self.owned.iter().find(|(owned, _)| owned == path);
        Some(owned.map_or(0, |(_, user)| *user))
    }
}
