// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which container a control group belongs to, as its path tells. Nothing is read here.
//!
//! Where the names come from:
//! - podman: `libpod/container.go` (`CgroupPath`), `libpod/container_internal_linux.go`
//!   (`libpod-payload-ID` with `--cgroups=split`), `libpod/runtime_pod_linux.go` (pods)
//! - docker: `daemon/oci_linux.go` (`docker-ID.scope`, `/docker/ID`)
//! - containerd's CRI: `internal/cri/server/helpers_linux.go` (`getCgroupsPath`); nerdctl:
//!   `pkg/cmd/container/create.go` (`nerdctl-ID.scope`)
//! - CRI-O: `internal/config/cgmgr` (`crio-ID.scope`, `crio-conmon-ID.scope`)
//! - Kubernetes: `pkg/kubelet/cm/cgroup_manager_linux.go`, `pod_container_manager_linux.go`
//! - those of other forms: `TASK/TASK-NUMBER` (ECS), `buildkit/ID`, `garden/HANDLE`, `kata_ID`
//! - lxc: `src/lxc/cgroups/cgfsng.c` (`lxc.payload.NAME`, `lxc.monitor.NAME`); before 4.0
//!   `lxc/NAME`
//! - systemd: `src/machine/machine-dbus.c` (`machine-NAME.scope`), `units/systemd-nspawn@.service`
//! - crun, runc: the `name_prefix` of their systemd cgroup drivers

use super::{Pod, Runtime};

/// Digits of an id of a container engine.
const ID_LENGTH: usize = 64;
/// Digits of a task's id in ECS.
const TASK_LENGTH: usize = 32;
/// Fewest digits of an id where another word says whose it is.
pub(super) const ID_LENGTH_MIN: usize = 12;

/// A container in the path of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathContainer {
    /// The runtime that named it so.
    pub(super) runtime: Runtime,
    /// The id or name in it.
    pub(super) name: String,
    /// Bytes of the path up to its own group's end.
    pub(super) end: usize,
    /// The pod that it is in: only an id of it.
    pub(super) pod: Option<Pod>,
    /// The user whose systemd made it, unless root.
    pub(super) user: Option<u32>,
}

impl PathContainer {
    /// The group that it was made in.
    pub(super) fn parent<'a>(&self, path: &'a str) -> &'a str {
        let own = path.get(..self.end).unwrap_or(path);
        match own.rsplit_once('/') {
            Some((parent, _)) if !parent.is_empty() => parent,
            _ => "/",
        }
    }
}

/// The containers in a path, the outermost first. What only watches over a container
/// (conmon, the monitor of lxc, nspawn itself) is in none.
pub(super) fn places(path: &str) -> Vec<PathContainer> {
    let mut walk = PathWalk::default();
    let mut at = 0;
    for part in path.split('/') {
        let end = at + part.len();
        if !walk.step(part, end) {
            break;
        }
        at = end + 1;
    }
    walk.found
}

/// What the parts so far have shown.
#[derive(Default)]
struct PathWalk<'a> {
    before: &'a str,
    pod: Option<Pod>,
    user: Option<u32>,
    found: Vec<PathContainer>,
}

impl<'a> PathWalk<'a> {
    /// Whether what is below can be of a container.
    fn step(&mut self, part: &'a str, end: usize) -> bool {
        let before = std::mem::replace(&mut self.before, part);
        if is_watcher(part) || (part == "supervisor" && self.just_found(end, part)) {
            return false;
        }
        if let Some(user) = user_of(part) {
            self.user = Some(user);
        }
        // For podman without systemd, only the place shows that it is a pod.
        let is_pods_id = before == "libpod_parent" && part.len() == ID_LENGTH && is_hex(part);
        let by_place = is_pods_id.then(|| pod(part.to_owned()));
        if let Some(pod) = pod_of(part).or(by_place) {
            self.pod = Some(pod);
        }
        if let Some((runtime, name)) = container_of(part, before) {
            self.found.push(PathContainer {
                runtime,
                name,
                end,
                pod: self.pod.take(),
                user: self.user.filter(|user| *user != 0),
            });
        }
        true
    }

    /// Whether the part in front was a container's.
    fn just_found(&self, end: usize, part: &str) -> bool {
        let last = self.found.last();
        last.is_some_and(|place| place.end + 1 + part.len() == end)
    }
}

fn is_watcher(part: &str) -> bool {
    let starts = ["libpod-conmon-", "crio-conmon-", "lxc.monitor", "lxc.pivot"];
    starts.iter().any(|start| part.starts_with(start))
}

/// The runtime and the id or name, when the part is a container's group.
fn container_of(part: &str, before: &str) -> Option<(Runtime, String)> {
    let scope = part.strip_suffix(".scope");
    let unit = scope.unwrap_or(part);
    let with_id = |start: &str, runtime| {
        let id = unit.strip_prefix(start)?;
        is_id(id).then(|| (runtime, id.to_owned()))
    };
    let by_engine = with_id("libpod-payload-", Runtime::Podman)
        .or_else(|| with_id("libpod-", Runtime::Podman))
        .or_else(|| with_id("docker-", Runtime::Docker))
        .or_else(|| with_id("cri-containerd-", Runtime::Containerd))
        .or_else(|| with_id("nerdctl-", Runtime::Containerd))
        .or_else(|| with_id("crio-", Runtime::Crio));
    by_engine
        .or_else(|| alone(scope))
        .or_else(|| machine(part, scope))
        .or_else(|| lxc(part, before))
        .or_else(|| nameless(part, before))
}

/// crun and runc, which are given any name.
fn alone(scope: Option<&str>) -> Option<(Runtime, String)> {
    let name = scope?;
    let named = |start: &str| name.strip_prefix(start).filter(|rest| !rest.is_empty());
    let crun = named("crun-").map(|name| (Runtime::Crun, name.to_owned()));
    crun.or_else(|| named("runc-").map(|name| (Runtime::Runc, name.to_owned())))
}

fn machine(part: &str, scope: Option<&str>) -> Option<(Runtime, String)> {
    if let Some(escaped) = scope.and_then(|scope| scope.strip_prefix("machine-")) {
        let name = unescape(escaped);
        // libvirt's virtual machines are no containers of this kernel's.
        let is_virtual = name.starts_with("qemu-") || name.starts_with("xen-");
        return (!is_virtual).then_some((Runtime::Nspawn, name));
    }
    let instance = part.strip_prefix("systemd-nspawn@")?;
    let name = instance.strip_suffix(".service")?;
    Some((Runtime::Nspawn, unescape(name)))
}

fn lxc(part: &str, before: &str) -> Option<(Runtime, String)> {
    let name = part.strip_prefix("lxc.payload.").or_else(|| {
        let is_below = matches!(before, "lxc" | "lxc.payload");
        Some(part).filter(|name| is_below && !name.starts_with("lxc.") && *name != "init.scope")
    });
    let name = name.filter(|name| !name.is_empty())?;
    Some((Runtime::Lxc, name.to_owned()))
}

/// An id alone, in a group whose name shows which runtime it may belong to.
fn nameless(part: &str, before: &str) -> Option<(Runtime, String)> {
    // What containerd passes to a runtime that was not configured for systemd:
    // SLICE:cri-containerd:ID, as one part.
    let mut fields = part.rsplitn(3, ':');
    if let (Some(id), Some("cri-containerd"), Some(_)) =
        (fields.next(), fields.next(), fields.next())
    {
        return is_id(id).then(|| (Runtime::Containerd, id.to_owned()));
    }
    if is_of_other_engine(part, before) {
        return Some((Runtime::Engine, part.to_owned()));
    }
    let is_whole = part.len() == ID_LENGTH && is_hex(part);
    match (is_whole, before) {
        // A pod of podman's: its containers are below.
        (false, _) | (true, "libpod_parent") => None,
        (true, "docker") => Some((Runtime::Docker, part.to_owned())),
        (true, _) => Some((Runtime::Engine, part.to_owned())),
    }
}

/// Whether engines whose ids have other forms call a group so: ECS, BuildKit, Garden, Kata.
fn is_of_other_engine(part: &str, before: &str) -> bool {
    let is_word = |text: &str| {
        let mut bytes = text.bytes();
        text.len() >= ID_LENGTH_MIN
            && bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-'))
    };
    let task = |text: &str| text.len() == TASK_LENGTH && is_hex(text);
    // TASK/TASK-NUMBER
    let is_ecs = part.split_once('-').is_some_and(|(of, number)| {
        task(of) && of == before && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    });
    let is_kata = || part.strip_prefix("kata_").is_some_and(is_id);
    is_ecs || is_kata() || matches!(before, "buildkit" | "garden") && is_word(part)
}

fn is_id(text: &str) -> bool {
    (ID_LENGTH_MIN..=ID_LENGTH).contains(&text.len()) && is_hex(text)
}

/// Whether all of it are hexadecimal digits, small ones.
pub(super) fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A pod's id in the name of its group.
fn pod_of(part: &str) -> Option<Pod> {
    let unit = part.strip_suffix(".slice").unwrap_or(part);
    // As one part with what is below, see `nameless`.
    let unit = unit.split_once(".slice:").map_or(unit, |(unit, _)| unit);
    let podman = unit
        .strip_prefix("machine-")
        .unwrap_or(unit)
        .strip_prefix("libpod_pod_");
    let kubernetes = || match unit.rsplit_once("-pod") {
        // systemd's names have no dashes but those between slices.
        Some((slice, uid)) => slice.contains("kubepods").then(|| uid.replace('_', "-")),
        None => unit.strip_prefix("pod").map(str::to_owned),
    };
    let name = podman
        .filter(|id| is_id(id))
        .map(str::to_owned)
        .or_else(|| kubernetes().filter(|uid| is_pod_uid(uid)))?;
    Some(pod(name))
}

/// A pod of which only the id is known.
fn pod(name: String) -> Pod {
    Pod {
        name,
        ..Pod::default()
    }
}

/// Those of static pods are digests, all others UUIDs.
fn is_pod_uid(text: &str) -> bool {
    (32..=36).contains(&text.len()) && text.split('-').all(is_hex)
}

/// The user of `user-1000.slice` and `user@1000.service`.
fn user_of(part: &str) -> Option<u32> {
    let slice = part
        .strip_prefix("user-")
        .and_then(|rest| rest.strip_suffix(".slice"));
    let service = || part.strip_prefix("user@")?.strip_suffix(".service");
    slice.or_else(service)?.parse().ok()
}

/// The service of systemd's that a group is in, and the bytes of the path up to its end:
/// the outermost, as what is below is its own.
pub(super) fn service(path: &str) -> Option<(String, usize)> {
    let mut at = 0;
    for part in path.split('/') {
        let end = at + part.len();
        let is_manager = part.starts_with("user@");
        if part.ends_with(".service") && !is_manager {
            return Some((unescape(part), end));
        }
        at = end + 1;
    }
    None
}

/// Undoes systemd's `\xHH` (`systemd-escape(1)`); other bytes stay as they are.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("\\x") {
        bytes.extend(before.bytes());
        let digits = behind.get(..2);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend(b"\\x");
                rest = behind;
            }
        }
    }
    bytes.extend(rest.bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
