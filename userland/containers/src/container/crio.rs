// SPDX-License-Identifier: MIT OR Apache-2.0
//! CRI-O's containers: `STORAGE/DRIVER-containers/ID/userdata` with `config.json` (the OCI
//! runtime specification, with CRI-O's annotations), `state.json` and `pidfile`
//! (`internal/oci/container.go`, `internal/oci/runtime_oci.go`; annotations: `annotations.go`
//! of podman's libpod, `pkg/annotations`). It shares the storage with podman, whose
//! containers have no such annotations.

use super::cgroup_path::is_hex;
use super::host::Host;
use super::known::{seconds_of, Findings, KnownContainer};
use super::kubernetes::Labels;
use super::state_file::StateFolder;
use super::{Pod, Runtime};
use crate::Result;
use std::path::Path;

/// Where the directories of running containers are: `runroot` and `root` of `crio.conf(5)`.
const ROOTS: [&str; 2] = ["/run/containers/storage", "/var/lib/containers/storage"];

#[derive(Default, serde::Deserialize)]
struct CrioConfig {
    #[serde(default)]
    annotations: Labels,
}

/// `state.json`: that of the OCI runtime, and more.
#[derive(Default, serde::Deserialize)]
struct CrioState {
    #[serde(default)]
    status: String,
    #[serde(default)]
    pid: u32,
    /// `initPid`, `initStartTime`: of versions since 1.20.
    #[serde(rename = "initPid", default)]
    init_pid: u32,
    #[serde(rename = "initStartTime", default)]
    init_start_time: String,
}

/// What CRI-O says.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    for root in ROOTS {
        let Some(root) = findings.note(host.folder(root)) else {
            continue;
        };
        let names = findings.note(root.names().map(Some)).unwrap_or_default();
        for driver in names.iter().filter(|name| name.ends_with("-containers")) {
            let Some(folder) = findings.note(root.folder(driver)) else {
                continue;
            };
            let ids = findings.note(folder.names().map(Some)).unwrap_or_default();
            for id in ids.into_iter().filter(|id| id.len() == 64 && is_hex(id)) {
                let known = findings.note(container(&folder, id));
                findings.known.extend(known);
            }
        }
    }
}

/// None when it is podman's.
fn container(folder: &StateFolder, id: String) -> Result<Option<KnownContainer>> {
    let Some(data) = folder.folder(Path::new(&id).join("userdata"))? else {
        return Ok(None);
    };
    let Some(config) = data.json::<CrioConfig>("config.json")? else {
        return Ok(None);
    };
    let labels = &config.annotations;
    let Some(name) = labels.get("io.kubernetes.cri-o.Name") else {
        return Ok(None);
    };
    let mut known = KnownContainer::new(Runtime::Crio, id, None);
    known.pod = labels.pod().or_else(|| of_name(name));
    let container = known.pod.as_ref().and_then(|pod| pod.container.clone());
    known.names.extend(container);
    known.names.push(name.to_owned());
    let image = ["io.kubernetes.cri-o.ImageName", "io.kubernetes.cri-o.Image"];
    known.image = labels.one_of(&image).map(str::to_owned);
    known.created = labels
        .get("io.kubernetes.cri-o.Created")
        .and_then(seconds_of);
    let state = data.json::<CrioState>("state.json")?.unwrap_or_default();
    if state.status != "stopped" {
        let pid = [state.init_pid, state.pid]
            .into_iter()
            .find(|pid| *pid != 0);
        known.claim.pid = pid.or(data.pid("pidfile")?);
        known.claim.start_time = state.init_start_time.parse().ok();
    }
    Ok(Some(known))
}

/// The pod of `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
fn of_name(name: &str) -> Option<Pod> {
    let mut parts = name.strip_prefix("k8s_")?.split('_').map(str::to_owned);
    let container = parts.next()?;
    Some(Pod {
        name: parts.next()?,
        namespace: Some(parts.next()?),
        container: Some(container),
    })
}
