// SPDX-License-Identifier: MIT OR Apache-2.0
//! The living processes, with what distinguishes containers.

use super::cgroup_path;
use crate::process::all_processes;
use crate::{PidSpace, Process, Result};

/// A process at first mount_view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) pid: u32,
    /// Its control group, from the root that we see on; `/..` is above it.
    pub(super) cgroup: String,
    pub(super) pid_namespace: PidSpace,
}

/// What is asked of some processes only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// When it started, in clock ticks since boot.
    pub(super) start_time: u64,
    pub(super) parent: u32,
    /// Its numbers in each pid namespace, ours first, its own last.
    pub(super) numbers: Vec<u32>,
    pub(super) mount_namespace: u64,
    pub(super) effective_uid: u32,
    /// What the users of its user namespace are in ours: first one, and how many.
    pub(super) users: Vec<(u32, u32)>,
}

impl Details {
    /// Whether it is the first of its pid namespace.
    pub(super) fn is_first(&self) -> bool {
        self.numbers.last() == Some(&1)
    }

    /// Whether a user other than root may have started it: a user cannot map another one into a
    /// user namespace of their own (`user_namespaces(7)`).
    pub(super) fn is_of(&self, user: u32) -> bool {
        let is_everybody = self.users.contains(&(0, u32::MAX));
        let maps =
            |(first, count): &(u32, u32)| user.checked_sub(*first).is_some_and(|n| n < *count);
        self.effective_uid == user || (!is_everybody && self.users.iter().any(maps))
    }
}

/// The processes of a machine; those of this one, or of a test.
pub(super) trait Processes {
    /// All that can be seen, by rising pid.
    fn all(&self) -> Result<Vec<Task>>;
    /// That of a process.
    fn pid_namespace(&self, pid: u32) -> Option<PidSpace>;
    /// `None` when it has ended, or is nothing that we may see.
    fn details(&self, pid: u32) -> Option<Details>;
    /// The inode number of a control group's directory, which is its id.
    fn cgroup_id(&self, path: &str) -> Option<u64>;
    /// Whether the processes of a control group are frozen.
    fn is_frozen(&self, path: &str) -> bool;
    /// Who owns a control group's directory, and makes groups in it.
    fn owner(&self, path: &str) -> Option<u32>;
}

/// Those that `/proc` shows.
pub(super) struct Living;

/// One of them alone.
pub(super) struct Alone<'a, P> {
    pub(super) among: &'a P,
    pub(super) task: &'a Task,
}

impl<P: Processes> Processes for Alone<'_, P> {
    fn all(&self) -> Result<Vec<Task>> {
        Ok(vec![self.task.clone()])
    }

    fn pid_namespace(&self, pid: u32) -> Option<PidSpace> {
        self.among.pid_namespace(pid)
    }

    fn details(&self, pid: u32) -> Option<Details> {
        self.among.details(pid)
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        self.among.cgroup_id(path)
    }

    fn is_frozen(&self, path: &str) -> bool {
        self.among.is_frozen(path)
    }

    fn owner(&self, path: &str) -> Option<u32> {
        self.among.owner(path)
    }
}

impl Processes for Living {
    fn all(&self) -> Result<Vec<Task>> {
        let task = |pid: u32| Living::task(&Process::open(pid).ok()?);
        // Those that end meanwhile are none.
        Ok(all_processes()?.into_iter().filter_map(task).collect())
    }

    fn pid_namespace(&self, pid: u32) -> Option<PidSpace> {
        Process::open(pid).ok()?.pid_namespace().ok()
    }

    fn details(&self, pid: u32) -> Option<Details> {
        let process = Process::open(pid).ok()?;
        let map = process.read("uid_map").ok()?;
        Some(Details {
            start_time: process.start_time(),
            parent: process.parent().ok()?,
            numbers: process.namespace_pids().ok()?,
            mount_namespace: process.mount_namespace().ok()?,
            effective_uid: process.effective_uid().ok()?,
            users: users(&String::from_utf8_lossy(&map)),
        })
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        super::cgroups::id_of(path)
    }

    fn is_frozen(&self, path: &str) -> bool {
        super::cgroups::is_frozen(path)
    }

    fn owner(&self, path: &str) -> Option<u32> {
        super::cgroups::owner(path)
    }
}

impl Living {
    /// A process at first mount_view.
    pub(super) fn task(process: &Process) -> Option<Task> {
        let cgroup = process.read("cgroup").ok()?;
        Some(Task {
            pid: process.pid(),
            cgroup: cgroup_of(&String::from_utf8_lossy(&cgroup)),
            pid_namespace: process.pid_namespace().ok()?,
        })
    }
}

/// Of the paths in `/proc/PID/cgroup` (`cgroups(7)`) that in which a container is found, and of
/// several the deepest; where there is none that of version 2, or if that says nothing, as on
/// machines of version 1, the longest of the others.
fn cgroup_of(text: &str) -> String {
    let line = |line: &str| {
        let (version, rest) = line.split_once(':')?;
        let path = rest.split_once(':')?.1;
        // A group that was removed meanwhile has this after it.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        Some((version == "0", path.to_owned()))
    };
    let depth = |path: &str| {
        let places = cgroup_path::places(path);
        places.last().map_or(0, |place| place.end)
    };
    let all = text.lines().filter_map(line);
    let rank = |(is_second, path): &(bool, String)| {
        let says = *is_second && path.len() > 1;
        (depth(path), says, path.len())
    };
    let best = all.max_by_key(rank);
    best.map(|(_, path)| path).unwrap_or_default()
}

/// The users in a `uid_map` (`user_namespaces(7)`): inside, outside, how many.
fn users(text: &str) -> Vec<(u32, u32)> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().skip(1).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_one_group_of_version_2() {
        assert_eq!(cgroup_of("0::/a/b\n"), "/a/b");
        assert_eq!(cgroup_of("0::/a:b (deleted)\n"), "/a:b");
        let first = "12:pids:/docker/1\n1:name=systemd:/docker/12\n0::/\n";
        assert_eq!(cgroup_of(first), "/docker/12");
        assert_eq!(cgroup_of("0::/\n"), "/");
        assert_eq!(cgroup_of("3:cpu:/longer/than/it\n0::/a\n"), "/a");
        assert_eq!(cgroup_of(""), "");
    }

    #[test]
    fn of_two_hierarchies_that_counts_which_has_a_container() {
        let id = "6f05bbd9b8b6ccbd5c5b1c1c47e6bb6c2d27e0b3d9f0b8a5a2e6f0d1c3b4a596";
        for (text, path) in [
            (
                "4:pids:/docker/ID\n0::/system.slice/docker.service\n",
                "/docker/ID",
            ),
            (
                "4:pids:/docker\n0::/system.slice/docker-ID.scope\n",
                "/system.slice/docker-ID.scope",
            ),
            (
                "4:pids:/docker/ID\n1:name=systemd:/docker/ID/init.scope\n0::/init.scope\n",
                "/docker/ID/init.scope",
            ),
            ("4:pids:/docker/ID\n0::/docker/ID\n", "/docker/ID"),
            // One within, which only one of them shows.
            (
                "4:pids:/docker/ID\n0::/docker/ID/lxc.payload.in\n",
                "/docker/ID/lxc.payload.in",
            ),
        ] {
            assert_eq!(
                cgroup_of(&text.replace("ID", id)),
                path.replace("ID", id),
                "{text}"
            );
        }
    }

    #[test]
    fn a_process_is_of_the_user_who_is_mapped_into_it() {
        let of = |map: &str, uid: u32| Details {
            users: users(map),
            effective_uid: uid,
            ..Details::default()
        };
        let everybody = "         0          0 4294967295\n";
        assert!(of(everybody, 1000).is_of(1000));
        assert!(!of(everybody, 0).is_of(1000));
        let mine = "0 1000 1\n1 100000 65536\n";
        assert!(of(mine, 1000).is_of(1000));
        assert!(of(mine, 100_032).is_of(1000));
        assert!(!of(mine, 100_032).is_of(1001));
    }
}
