// SPDX-License-Identifier: MIT OR Apache-2.0
//! lxc's containers: a directory with a `config` each, below `/var/lib/lxc` or what
//! `lxc.conf(5)` says (`lxc.system.conf(5)`), of users below `~/.local/share/lxc`. LXD and
//! Incus run lxc and keep their state in a database, but have an entry for each container
//! below `containers` (`InstancePath`). The control group alone tells the processes.

use super::host::Host;
use super::known::{Findings, KnownContainer};
use super::state_file::StateFolder;
use super::Runtime;
use crate::Result;
use std::path::{Path, PathBuf};

/// Where LXD and Incus have an entry for each container; root alone writes there.
const MANAGED: [(Runtime, &str); 3] = [
    (Runtime::Incus, "/var/lib/incus/containers"),
    (Runtime::Lxd, "/var/lib/lxd/containers"),
    (Runtime::Lxd, "/var/snap/lxd/common/lxd/containers"),
];

/// What lxc says of all users.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    let etc = findings.note(host.folder("/etc/lxc"));
    let text = etc.and_then(|etc| findings.note(etc.text("lxc.conf")));
    let path = setting(&text.unwrap_or_default()).unwrap_or("/var/lib/lxc".into());
    if let Some(folder) = findings.note(host.folder(path)) {
        containers(&folder, None, findings);
    }
    for (runtime, path) in MANAGED {
        if let Some(folder) = findings.note(host.folder(path)) {
            let names = findings.note(folder.names().map(Some)).unwrap_or_default();
            let known = names.into_iter().map(|name| managed(runtime, name));
            findings.known.extend(known);
        }
    }
    for user in &host.users {
        let Some(home) = &user.home else { continue };
        let text = findings.note(home.text(".config/lxc/lxc.conf"));
        let folder = match setting(&text.unwrap_or_default()) {
            Some(path) => host.folder_of_user(&path),
            None => home.folder(".local/share/lxc"),
        };
        if let Some(folder) = findings.note(folder) {
            containers(&folder, Some(user.uid), findings);
        }
    }
}

fn containers(folder: &StateFolder, user: Option<u32>, findings: &mut Findings) {
    let names = findings.note(folder.names().map(Some)).unwrap_or_default();
    for name in names {
        let known = findings.note(container(folder, name, user));
        findings.known.extend(known);
    }
}

/// None when the directory is no container's.
fn container(
    folder: &StateFolder,
    name: String,
    user: Option<u32>,
) -> Result<Option<KnownContainer>> {
    let config = folder.text(Path::new(&name).join("config"))?;
    Ok(config.map(|config| {
        let mut known = KnownContainer::new(Runtime::Lxc, name, user);
        known.image = value(&config, "lxc.rootfs.path").map(str::to_owned);
        known
    }))
}

/// Its name is PROJECT_NAME, unless the project is the default one; no name has a `_`.
fn managed(runtime: Runtime, name: String) -> KnownContainer {
    let short = name.rsplit_once('_').map(|(_, short)| short.to_owned());
    let mut known = KnownContainer::new(runtime, name.clone(), None);
    known.names.extend(short.into_iter().chain([name]));
    known
}

/// Where an lxc.conf has containers.
fn setting(text: &str) -> Option<PathBuf> {
    value(text, "lxc.lxcpath").map(PathBuf::from)
}

/// The last value of a key.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut values = lines.filter(|(name, _)| name.trim() == key);
    values.next_back().map(|(_, value)| value.trim())
}
