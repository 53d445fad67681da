// SPDX-License-Identifier: MIT OR Apache-2.0
//! docker's containers: `DATAROOT/containers/ID/config.v2.json` (moby,
//! `daemon/container/container.go`, `Container`, and `state.go`), of root and, rootless, of
//! users. With `userns-remap` the data of each mapping is below `DATAROOT/UID.GID`.

use super::cgroup_path::is_hex;
use super::host::Host;
use super::known::{seconds_of, Findings, KnownContainer};
use super::kubernetes::Labels;
use super::state_file::StateFolder;
use super::Runtime;
use crate::Result;
use std::path::{Path, PathBuf};

#[derive(serde::Deserialize)]
struct File {
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Created", default)]
    created: String,
    #[serde(rename = "Config", default)]
    config: DockerConfig,
    #[serde(rename = "State", default)]
    state: DockerState,
}

#[derive(Default, serde::Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image", default)]
    image: String,
    #[serde(rename = "Labels", default)]
    labels: Option<Labels>,
}

#[derive(Default, serde::Deserialize)]
struct DockerState {
    #[serde(rename = "Running", default)]
    running: bool,
    #[serde(rename = "Pid", default)]
    pid: u32,
}

/// `daemon.json`, of which one key matters here.
#[derive(Default, serde::Deserialize)]
struct Daemon {
    #[serde(rename = "data-root", default)]
    data_root: Option<PathBuf>,
}

/// What docker says of all users.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    let etc = findings.note(host.folder("/etc/docker"));
    let daemon = etc.and_then(|etc| findings.note(etc.json::<Daemon>("daemon.json")));
    let root = daemon.unwrap_or_default().data_root;
    let root = root.unwrap_or("/var/lib/docker".into());
    if let Some(folder) = findings.note(host.folder(root)) {
        data_root(&folder, None, findings);
    }
    for user in &host.users {
        let Some(home) = &user.home else { continue };
        let daemon = home.json::<Daemon>(".config/docker/daemon.json");
        let root = findings.note(daemon).unwrap_or_default().data_root;
        let folder = match root {
            Some(path) => host.folder_of_user(&path),
            None => home.folder(".local/share/docker"),
        };
        if let Some(folder) = findings.note(folder) {
            data_root(&folder, Some(user.uid), findings);
        }
    }
}

fn data_root(root: &StateFolder, user: Option<u32>, findings: &mut Findings) {
    if let Some(folder) = findings.note(root.folder("containers")) {
        containers(&folder, user, findings);
    }
    let names = findings.note(root.names().map(Some)).unwrap_or_default();
    for name in names.iter().filter(|name| is_mapping(name)) {
        let inner = root.folder(Path::new(name).join("containers"));
        if let Some(folder) = findings.note(inner) {
            containers(&folder, user, findings);
        }
    }
}

/// `UID.GID`, the name of what a mapping's data are in.
fn is_mapping(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.')
        .is_some_and(|(uid, gid)| is_number(uid) && is_number(gid))
}

fn containers(folder: &StateFolder, user: Option<u32>, findings: &mut Findings) {
    let names = findings.note(folder.names().map(Some)).unwrap_or_default();
    for id in names.iter().filter(|id| id.len() == 64 && is_hex(id)) {
        let known = findings.note(container(folder, id, user));
        findings.known.extend(known);
    }
}

fn container(folder: &StateFolder, id: &str, user: Option<u32>) -> Result<Option<KnownContainer>> {
    let file: Option<File> = folder.json(Path::new(id).join("config.v2.json"))?;
    let Some(file) = file else {
        return Ok(None);
    };
    let mut known = KnownContainer::new(Runtime::Docker, id.to_owned(), user);
    let name = file.name.trim_start_matches('/');
    known.names = Some(name.to_owned())
        .filter(|name| !name.is_empty())
        .into_iter()
        .collect();
    known.image = Some(file.config.image).filter(|image| !image.is_empty());
    known.created = seconds_of(&file.created);
    known.pod = file.config.labels.as_ref().and_then(Labels::pod);
    known.claim.pid = Some(file.state.pid).filter(|pid| file.state.running && *pid != 0);
    Ok(Some(known))
}
