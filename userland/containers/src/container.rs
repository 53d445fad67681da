// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers of all runtimes: what runs now, what it is called, and which process is in
//! which.
//!
//! No daemon is asked. [`Containers`] joins the runtimes' own state files with the control
//! groups and pid namespaces of all living processes, so that a container is found although
//! its state cannot be read, and named although nobody but its runtime knows its name.

mod cgroup_path;
mod cgroups;
mod containerd;
mod crio;
mod docker;
mod find;
mod host;
mod join;
mod known;
mod kubernetes;
mod lxc;
mod machined;
#[cfg(test)]
mod made;
mod oci;
mod podman;
mod processes;
mod running;
mod runtime;
#[cfg(test)]
mod scratch;
mod snapshot;
mod state_file;

pub use running::{ContainerTasks, Running};
pub use runtime::{Pod, Runtime, UnknownRuntime};
pub use snapshot::Containers;

use crate::{PidSpace, Result};
use cgroup_path::{is_hex, PathContainer};
use known::KnownContainer;

/// Digits of an id that people are shown.
const SHORT_ID: usize = 12;
/// The inode number of the first pid namespace, which is also the lowest of all
/// (the kernel's `PROC_PID_INIT_INO`).
const NAMESPACE_INODE_MIN: u32 = 0xefff_fffc;

/// A container, as it was when it was looked at; it holds nothing. Data from state files is as
/// untrusted as their writer: escape it before it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name; the beginning of its id when that is all that is known, and
    /// `pid:[INODE]` when only the namespace is.
    pub name: String,
    /// Others that it goes by.
    pub aliases: Vec<String>,
    /// Its runtime's id; of runtimes that know names only, none.
    pub id: Option<String>,
    /// The runtime.
    pub runtime: Runtime,
    /// Its first process, if it runs.
    pub init: Option<Init>,
    /// The control group that its processes are in, if it has one of its own.
    pub cgroup: Option<Cgroup>,
    /// The image, or the directory, that it was made from.
    pub image: Option<String>,
    /// The pod that it is in.
    pub pod: Option<Pod>,
    /// The user who runs it, unless root.
    pub user: Option<u32>,
    /// When it was made, in seconds since 1970.
    pub created: Option<i64>,
    /// Whether it runs.
    pub state: ContainerState,
    /// The name of the container that it is within, after those around that.
    pub inside: Option<String>,
    /// The first process of that one.
    pub outer: Option<u32>,
    /// Its processes as we number them, rising; not those of containers within.
    pub processes: Vec<u32>,
    /// What is not known of it, and why: for people.
    pub problems: Vec<String>,
}

/// The first process of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// As our pid namespace numbers it.
    pub pid: u32,
    /// When it started, in clock ticks since boot: with the pid, it identifies the process.
    pub start_time: u64,
    /// Its pid namespace.
    pub pid_namespace: PidSpace,
    /// The inode number of its mount namespace.
    pub mount_namespace: u64,
    /// Whether the pid namespace began with it, and is not ours.
    pub is_first: bool,
    /// Whether it made the pid namespace, and no other container has its first process there.
    pub owns_namespace: bool,
}

/// A control group, of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its path from the root that we see on.
    pub path: String,
    /// The inode number of its directory, which is its id; `None` when we cannot see it.
    pub id: Option<u64>,
}

/// Whether a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It runs.
    Running,
    /// It is frozen.
    Paused,
    /// Its runtime knows it, and it has no process.
    Stopped,
    /// It ran when it was looked at earlier.
    Gone,
}

impl ContainerState {
    /// For people, and for `--json`.
    pub fn name(self) -> &'static str {
        match self {
            ContainerState::Running => "running",
            ContainerState::Paused => "paused",
            ContainerState::Stopped => "stopped",
            ContainerState::Gone => "gone",
        }
    }
}

impl Container {
    /// All containers of this machine that can be seen: those that run, those that their runtime
    /// knows, and unnamed pid namespaces.
    pub fn all() -> Result<Vec<Container>> {
        Ok(Containers::take()?.into_all())
    }

    /// Whether it has processes.
    pub fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running | ContainerState::Paused)
    }

    /// The id as people are shown it.
    pub fn short_id(&self) -> Option<&str> {
        self.id.as_deref().map(short)
    }

    /// Whether its name, another that it goes by, its id or the inode number of its pid
    /// namespace `fits`; names also as `RUNTIME:NAME`, and with the pod in front.
    pub fn is_called(&self, fits: impl Fn(&str) -> bool) -> bool {
        let inum = self.init.filter(|init| init.is_first);
        fits(&self.name)
            || self.aliases.iter().any(|alias| fits(alias))
            || self.id.as_deref().is_some_and(&fits)
            || inum.is_some_and(|init| fits(&init.pid_namespace.inum.to_string()))
            || fits(&format!("{}:{}", self.runtime, self.name))
            || self.pod_paths().iter().any(|path| fits(path))
    }

    /// Puts the container that it is within in front of its names, and of its id, which is none
    /// of this machine's.
    fn name_within(&mut self) {
        let Some(outer) = self
            .inside
            .as_ref()
            .filter(|_| self.runtime != Runtime::Bare)
        else {
            return;
        };
        let within = |name: &str| format!("{outer}/{name}");
        let mut aliases = self.pod_paths();
        aliases.append(&mut self.aliases);
        aliases.extend(self.id.take());
        self.aliases = aliases.iter().map(|name| within(name)).collect();
        self.name = within(&self.name);
        self.pod = None;
    }

    /// `POD/CONTAINER` and `NAMESPACE/POD/CONTAINER`.
    fn pod_paths(&self) -> Vec<String> {
        let Some(pod) = &self.pod else {
            return Vec::new();
        };
        let container = pod.container.as_ref().unwrap_or(&self.name);
        let path = format!("{}/{container}", pod.name);
        let within = pod.namespace.as_ref();
        let within = within.map(|namespace| format!("{namespace}/{path}"));
        // Where the id is all that is known of the pod.
        let by_short_id = Some(short(&pod.name)).filter(|id| *id != pod.name);
        let by_short_id = by_short_id.map(|id| format!("{id}/{container}"));
        [path]
            .into_iter()
            .chain(within)
            .chain(by_short_id)
            .collect()
    }

    /// Distinguishes it from others of its name.
    pub fn describe(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(
            self.short_id()
                .filter(|id| *id != self.name)
                .map(str::to_owned),
        );
        parts.extend(self.pod.as_ref().map(|pod| format!("pod {pod}")));
        parts.extend(self.user.map(|user| format!("user {user}")));
        parts.extend(self.inside.as_ref().map(|outer| format!("in {outer}")));
        if let Some(init) = self.init.filter(|_| self.is_running()) {
            parts.push(format!("pid {}", init.pid));
        }
        if parts.is_empty() {
            parts.push(self.state.name().to_owned());
        }
        format!("{}:{} ({})", self.runtime, self.name, parts.join(", "))
    }

    /// Of which nothing is known yet.
    fn nameless() -> Container {
        Container {
            name: String::new(),
            aliases: Vec::new(),
            id: None,
            runtime: Runtime::Bare,
            init: None,
            cgroup: None,
            image: None,
            pod: None,
            user: None,
            created: None,
            state: ContainerState::Stopped,
            inside: None,
            outer: None,
            processes: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// What a state file says.
    fn known(known: &KnownContainer) -> Container {
        let mut names = known.names.iter().cloned();
        let first = names.next();
        let of_pod = || known.pod.as_ref()?.container.clone();
        let name = first
            .or_else(of_pod)
            .unwrap_or_else(|| short(&known.id).to_owned());
        Container {
            aliases: names.filter(|other| *other != name).collect(),
            id: Some(known.id.clone()).filter(|id| *id != name),
            name,
            runtime: known.runtime,
            image: known.image.clone(),
            pod: known.pod.clone(),
            user: known.user,
            created: known.created,
            problems: known.claim.problem.iter().cloned().collect(),
            ..Container::nameless()
        }
    }

    /// A container that has no process, and why that is known.
    fn stopped(known: &KnownContainer, why: Option<String>) -> Container {
        let mut container = Container::known(known);
        let why = why.filter(|why| !container.problems.contains(why));
        container.problems.extend(why);
        container
    }

    /// Takes from the path of its control group what it does not know yet.
    fn called_by(&mut self, place: &PathContainer, is_unknown: bool) {
        let is_named = !self.name.is_empty();
        if is_unknown && place.runtime != Runtime::Engine || !is_named {
            self.runtime = place.runtime;
        }
        if !is_named {
            self.called(&place.name);
        }
        self.pod = self.pod.take().or_else(|| place.pod.clone());
        self.user = self.user.or(place.user);
    }

    /// Gives it a name, which may be an id.
    fn called(&mut self, name: &str) {
        if name.len() >= SHORT_ID && is_hex(name) {
            self.id = Some(name.to_owned());
            self.name = short(name).to_owned();
        } else {
            self.name = name.to_owned();
        }
    }
}

/// The beginning of an id; a name stays whole.
fn short(id: &str) -> &str {
    match is_hex(id) {
        true => id.get(..SHORT_ID).unwrap_or(id),
        false => id,
    }
}

/// What a container is called of which only the pid namespace is known.
fn bare_name(inum: u32) -> String {
    format!("pid:[{inum}]")
}
