// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs containers, and what they are called by it.

use std::fmt;
use std::str::FromStr;

/// The software that runs a container. Each that keeps state has a file of its own here,
/// which reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Runtime {
    /// podman, of root or of another user.
    Podman,
    /// docker, of root or of another user.
    Docker,
    /// containerd: of `ctr`, nerdctl or Kubernetes.
    Containerd,
    /// CRI-O.
    Crio,
    /// systemd-nspawn.
    Nspawn,
    /// Another machine that systemd-machined knows.
    Machine,
    /// lxc, of root or of another user.
    Lxc,
    /// LXD.
    Lxd,
    /// Incus.
    Incus,
    /// crun alone.
    Crun,
    /// runc alone.
    Runc,
    /// Its control group is named by an id, as container engines do; which one is not known.
    Engine,
    /// A service of systemd's: its processes are known by their control group.
    Service,
    /// A control group, whatever is in it.
    Cgroup,
    /// Unknown: only the pid namespace is known.
    Bare,
}

/// All of them, and what users call them.
const NAMES: [(Runtime, &str); 15] = [
    (Runtime::Podman, "podman"),
    (Runtime::Docker, "docker"),
    (Runtime::Containerd, "containerd"),
    (Runtime::Crio, "cri-o"),
    (Runtime::Nspawn, "nspawn"),
    (Runtime::Machine, "machine"),
    (Runtime::Lxc, "lxc"),
    (Runtime::Lxd, "lxd"),
    (Runtime::Incus, "incus"),
    (Runtime::Crun, "crun"),
    (Runtime::Runc, "runc"),
    (Runtime::Engine, "engine"),
    (Runtime::Service, "service"),
    (Runtime::Cgroup, "cgroup"),
    (Runtime::Bare, "namespace"),
];

impl Runtime {
    /// What users call it, as in `podman:web`.
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(runtime, _)| *runtime == self);
        named.map_or("unknown", |(_, name)| name)
    }

    /// Parts of the paths of its state files; none when it is not known which it has, as of
    /// an id that crun or runc was given by an engine.
    pub(super) fn state_words(self) -> &'static [&'static str] {
        match self {
            Runtime::Podman | Runtime::Crio => &["containers/", "/containers"],
            Runtime::Docker => &["docker"],
            Runtime::Containerd => &["containerd", "nerdctl"],
            Runtime::Nspawn | Runtime::Machine => &["systemd/machines"],
            Runtime::Lxc | Runtime::Lxd | Runtime::Incus => &["lxc", "lxd", "incus"],
            _ => &[],
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no runtime's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRuntime;

impl FromStr for Runtime {
    type Err = UnknownRuntime;

    fn from_str(text: &str) -> Result<Runtime, UnknownRuntime> {
        let named = NAMES.iter().find(|(_, name)| *name == text);
        named.map(|(runtime, _)| *runtime).ok_or(UnknownRuntime)
    }
}

/// The pod that a container is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its name; its id where that is all that is known.
    pub name: String,
    /// Its namespace, in Kubernetes.
    pub namespace: Option<String>,
    /// What the pod calls the container.
    pub container: Option<String>,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runtime_has_one_name() {
        for (runtime, name) in NAMES {
            assert_eq!(runtime.name(), name);
            assert_eq!(name.parse(), Ok(runtime));
        }
        assert!("".parse::<Runtime>().is_err());
    }
}
