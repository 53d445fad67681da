// SPDX-License-Identifier: MIT OR Apache-2.0
//! containerd's containers: the bundles of its running tasks,
//! `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID` with `config.json` (the OCI runtime
//! specification, whose annotations the clients set) and `init.pid`
//! (`core/runtime/v2/bundle.go`; `cmd/containerd-shim-runc-v2/process/init.go`), and
//! nerdctl's names (`docs/dir.md` of nerdctl). Its own database is not read.

use super::cgroup_path::is_hex;
use super::host::Host;
use super::known::{Findings, KnownContainer};
use super::kubernetes::Labels;
use super::state_file::StateFolder;
use super::Runtime;
use crate::Result;
use std::collections::HashMap;
use std::path::Path;

/// Where containerd keeps what runs: its own, that of docker's, of k3s and of microk8s.
const STATES: [&str; 4] = [
    "/run/containerd",
    "/run/docker/containerd/daemon",
    "/run/k3s/containerd",
    "/var/snap/microk8s/common/run/containerd",
];
/// The running tasks below it.
const TASKS: &str = "io.containerd.runtime.v2.task";
/// The namespace that docker uses.
const DOCKERS: &str = "moby";
/// The namespace that Kubernetes uses.
const KUBERNETES: &str = "k8s.io";

#[derive(Default, serde::Deserialize)]
struct ContainerdConfig {
    #[serde(default)]
    annotations: Labels,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    linux: Linux,
}

#[derive(Default, serde::Deserialize)]
struct Linux {
    #[serde(rename = "cgroupsPath", default)]
    cgroup: String,
}

/// The names that nerdctl has given, by namespace and id.
type NerdctlNames = HashMap<(String, String), String>;

/// What containerd says of all users.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    let nerdctl = findings.note(host.folder("/var/lib/nerdctl"));
    let given = nerdctl.map_or_else(NerdctlNames::new, |folder| names(&folder, findings));
    for state in STATES {
        if let Some(folder) = findings.note(host.folder(state)) {
            tasks(&folder, None, &given, findings);
        }
    }
    for user in &host.users {
        let home = user.home.as_ref();
        let nerdctl = home.and_then(|home| findings.note(home.folder(".local/share/nerdctl")));
        let given = nerdctl.map_or_else(NerdctlNames::new, |folder| names(&folder, findings));
        for state in ["containerd", "docker/containerd/daemon"] {
            let folder = user.run.as_ref().map(|run| run.folder(state));
            if let Some(folder) = findings.note(folder.unwrap_or(Ok(None))) {
                tasks(&folder, Some(user.uid), &given, findings);
            }
        }
    }
}

/// `ADDRESS/names/NAMESPACE/NAME` holds the id.
fn names(folder: &StateFolder, findings: &mut Findings) -> NerdctlNames {
    let mut all = NerdctlNames::new();
    for address in folder.names().unwrap_or_default() {
        let names = findings.note(folder.folder(Path::new(&address).join("names")));
        for (namespace, folder) in folders(names, findings) {
            for name in folder.names().unwrap_or_default() {
                if let Some(id) = findings.note(folder.text(&name)) {
                    all.insert((namespace.clone(), id.trim().to_owned()), name);
                }
            }
        }
    }
    all
}

fn tasks(state: &StateFolder, user: Option<u32>, names: &NerdctlNames, findings: &mut Findings) {
    let tasks = findings.note(state.folder(TASKS));
    for (namespace, folder) in folders(tasks, findings) {
        for (id, bundle) in folders(Some(folder), findings) {
            let mut known = match task(&bundle, &namespace, id, user) {
                Ok(known) => known,
                Err(error) => {
                    findings.problems.push(error);
                    continue;
                }
            };
            let name = names.get(&(namespace.clone(), known.id.clone()));
            known.names.splice(..0, name.cloned());
            known.names.dedup();
            findings.known.push(known);
        }
    }
}

/// The directories in one, with their names.
fn folders(folder: Option<StateFolder>, findings: &mut Findings) -> Vec<(String, StateFolder)> {
    let Some(folder) = folder else {
        return Vec::new();
    };
    let names = findings.note(folder.names().map(Some)).unwrap_or_default();
    let open = |name: String| {
        let inner = findings.note(folder.folder(&name))?;
        Some((name, inner))
    };
    names.into_iter().filter_map(open).collect()
}

fn task(
    bundle: &StateFolder,
    namespace: &str,
    id: String,
    user: Option<u32>,
) -> Result<KnownContainer> {
    let runtime = match namespace {
        DOCKERS => Runtime::Docker,
        _ => Runtime::Containerd,
    };
    let mut known = KnownContainer::new(runtime, id, user);
    // Without it the pid still counts.
    let config = bundle.json::<ContainerdConfig>("config.json");
    match config.map(Option::unwrap_or_default) {
        Ok(config) => describe(&mut known, namespace, &config),
        Err(error) => known.claim.problem = Some(error.to_string()),
    }
    known.claim.pid = bundle.pid("init.pid")?;
    Ok(known)
}

fn describe(known: &mut KnownContainer, namespace: &str, config: &ContainerdConfig) {
    let labels = &config.annotations;
    // Any client may set the labels of Kubernetes; they name pods only where Kubernetes has made
    // them.
    if namespace == KUBERNETES {
        known.pod = labels.pod();
        let container = known.pod.as_ref().and_then(|pod| pod.container.clone());
        known.names.extend(container);
    }
    known
        .names
        .extend(labels.get("nerdctl/name").map(str::to_owned));
    let image = ["io.kubernetes.cri.image-name", "nerdctl/image"];
    known.image = labels.one_of(&image).map(str::to_owned);
    if !is_hex(&known.id) {
        // Names of `ctr` are chosen by its user, in each namespace.
        known.names.push(known.id.clone());
    } else if known.names.is_empty() && !config.hostname.is_empty() {
        // docker's, when its own state cannot be read, has its short id here.
        known
            .names
            .extend(Some(config.hostname.clone()).filter(|name| !is_hex(name)));
    }
    // SLICE:PREFIX:NAME is what systemd is asked for.
    let path = Some(config.linux.cgroup.clone());
    known.claim.cgroup = path.filter(|path| path.starts_with('/') && !path.contains(':'));
}
