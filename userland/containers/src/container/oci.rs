// SPDX-License-Identifier: MIT OR Apache-2.0
//! What crun and runc know, who run containers alone or for engines:
//! `/run/crun/ID/status` (crun, `src/libcrun/status.c`) and `/run/runc/ID/state.json`
//! (runc, `libcontainer/container_linux.go`, `State`), of users below `/run/user/UID`.

use super::host::Host;
use super::known::{seconds_of, Findings, KnownContainer};
use super::state_file::StateFolder;
use super::Runtime;
use crate::Result;
use std::collections::HashMap;
use std::path::Path;

/// Where engines make runc keep its state: containerd's has a directory for each
/// namespace.
const RUNC_OF_ENGINES: [&str; 3] = [
    "/run/containerd/runc",
    "/run/docker/runtime-runc",
    "/run/k3s/containerd/runc",
];
/// The file system of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// crun's `status`.
#[derive(serde::Deserialize)]
struct Status {
    pid: u32,
    #[serde(rename = "process-start-time", default)]
    start_time: Option<u64>,
    #[serde(rename = "cgroup-path", default)]
    cgroup: String,
    #[serde(default)]
    created: String,
}

/// runc's `state.json`.
#[derive(serde::Deserialize)]
struct RuncState {
    init_process_pid: u32,
    #[serde(default)]
    init_process_start: Option<u64>,
    #[serde(default)]
    created: String,
    /// By controller; that of version 2 has none.
    #[serde(default)]
    cgroup_paths: HashMap<String, String>,
}

/// What both say of all users.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    each(host.folder("/run/crun"), None, crun, findings);
    each(host.folder("/run/runc"), None, runc, findings);
    for state in RUNC_OF_ENGINES {
        let Some(folder) = findings.note(host.folder(state)) else {
            continue;
        };
        for namespace in folder.names().unwrap_or_default() {
            each(folder.folder(namespace), None, runc, findings);
        }
    }
    for user in &host.users {
        if let Some(run) = &user.run {
            each(run.folder("crun"), Some(user.uid), crun, findings);
            each(run.folder("runc"), Some(user.uid), runc, findings);
        }
    }
}

/// One container of a directory.
type ReadContainer = fn(&StateFolder, &str, Option<u32>) -> Result<Option<KnownContainer>>;

fn each(
    folder: Result<Option<StateFolder>>,
    user: Option<u32>,
    read: ReadContainer,
    findings: &mut Findings,
) {
    let Some(folder) = findings.note(folder) else {
        return;
    };
    for id in findings.note(folder.names().map(Some)).unwrap_or_default() {
        let known = findings.note(read(&folder, &id, user));
        findings.known.extend(known);
    }
}

fn crun(folder: &StateFolder, id: &str, user: Option<u32>) -> Result<Option<KnownContainer>> {
    let status: Option<Status> = folder.json(Path::new(id).join("status"))?;
    Ok(status.map(|status| {
        let mut known = KnownContainer::new(Runtime::Crun, id.to_owned(), user);
        known.created = seconds_of(&status.created);
        known.claim.pid = Some(status.pid).filter(|pid| *pid != 0);
        known.claim.start_time = status.start_time;
        known.claim.cgroup = Some(status.cgroup).filter(|path| path.starts_with('/'));
        known
    }))
}

fn runc(folder: &StateFolder, id: &str, user: Option<u32>) -> Result<Option<KnownContainer>> {
    let state: Option<RuncState> = folder.json(Path::new(id).join("state.json"))?;
    Ok(state.map(|state| {
        let mut known = KnownContainer::new(Runtime::Runc, id.to_owned(), user);
        known.created = seconds_of(&state.created);
        known.claim.pid = Some(state.init_process_pid).filter(|pid| *pid != 0);
        known.claim.start_time = state.init_process_start;
        let path = state.cgroup_paths.get("");
        let path = path.and_then(|path| path.strip_prefix(CGROUPS));
        known.claim.cgroup = path.map(str::to_owned);
        known
    }))
}
