// SPDX-License-Identifier: MIT OR Apache-2.0
//! podman's containers, read from its own state files; podman is not run.
//!
//! `GRAPHROOT/DRIVER-containers/containers.json` has names, ids and images
//! (`go.podman.io/storage`, `containers.go`; its `metadata` is podman's own, `libpod`'s
//! `RuntimeContainerMetadata`), `RUNROOT/DRIVER-containers/ID/userdata/pidfile` the first
//! process. Other users write theirs themselves, so nothing in them is believed: a pid counts
//! only when something else says that it belongs to the container, see `join`.

use super::cgroup_path::is_hex;
use super::host::{Host, User};
use super::known::{seconds_of, Findings, KnownContainer};
use super::state_file::StateFolder;
use super::{Pod, Runtime};
use crate::Result;
use std::path::{Path, PathBuf};

/// The files that list containers: lasting ones, and those run with `--rm`.
const LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Where one user's containers are.
struct Store {
    graph_root: Option<StateFolder>,
    run_root: Option<StateFolder>,
    /// The user, unless root.
    user: Option<u32>,
}

/// An entry of a list.
#[derive(serde::Deserialize)]
struct PodmanContainer {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    /// JSON within a string.
    #[serde(default)]
    metadata: String,
    #[serde(default)]
    created: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "image-name")]
    image: String,
    /// Of CRI-O, which keeps its containers in the same place.
    #[serde(rename = "pod-id")]
    pod_id: String,
}

/// The OCI runtime specification of a container, with podman's annotations
/// (`libpod/container_internal_common.go`).
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct PodmanConfig {
    annotations: std::collections::HashMap<String, String>,
}

/// What podman says of all users.
pub(super) fn find(host: &Host, findings: &mut Findings) {
    let text = ["/etc/containers", "/usr/share/containers"]
        .into_iter()
        .find_map(|folder| {
            let folder = findings.note(host.folder(folder))?;
            findings.note(folder.text("storage.conf"))
        })
        .unwrap_or_default();
    let graph = setting(&text, "graphroot").unwrap_or("/var/lib/containers/storage".into());
    let run = setting(&text, "runroot").unwrap_or("/run/containers/storage".into());
    let root = Store {
        graph_root: findings.note(host.folder(graph)),
        run_root: findings.note(host.folder(run)),
        user: None,
    };
    root.find(findings);
    for user in &host.users {
        user_store(host, user, findings).find(findings);
    }
}

fn user_store(host: &Host, user: &User, findings: &mut Findings) -> Store {
    let uid = user.uid;
    let home = user.home.as_ref();
    let text = home.and_then(|home| findings.note(home.text(".config/containers/storage.conf")));
    let text = text.unwrap_or_default();
    let mut at = |path: &Path| findings.note(host.folder_of_user(path));
    let elsewhere = setting(&text, "graphroot").and_then(|path| at(&path));
    let run_elsewhere = setting(&text, "runroot").and_then(|path| at(&path));
    let temporary = |start: &str| PathBuf::from(format!("/tmp/{start}-{uid}/containers"));
    let run_root = run_elsewhere
        .or_else(|| user.run.as_ref()?.folder("containers").ok().flatten())
        .or_else(|| at(&temporary("storage-run")))
        .or_else(|| at(&temporary("containers-user")));
    let usual = || findings.note(home?.folder(".local/share/containers/storage"));
    Store {
        graph_root: elsewhere.or_else(usual),
        run_root,
        user: Some(uid),
    }
}

/// The value of `key = "value"` in the `[storage]` table of a storage.conf
/// (`containers-storage.conf(5)`).
fn setting(text: &str, key: &str) -> Option<PathBuf> {
    let mut table = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            table = line;
        } else if let Some((name, value)) = line.split_once('=') {
            let value = value
                .trim()
                .strip_prefix('"')
                .and_then(|v| v.split_once('"'));
            if table == "[storage]" && name.trim() == key {
                return value.map(|(value, _)| value.into());
            }
        }
    }
    None
}

impl Store {
    /// The containers of the store.
    fn find(&self, findings: &mut Findings) {
        // One list that cannot be read hides no other.
        for root in [&self.graph_root, &self.run_root].into_iter().flatten() {
            for folder in driver_folders(root, findings) {
                for list in LISTS {
                    let entries: Vec<PodmanContainer> =
                        findings.note(folder.json(list)).unwrap_or_default();
                    for entry in entries {
                        let known = self.known(&folder, list, entry);
                        let known = findings.note(known);
                        findings.known.extend(known);
                    }
                }
            }
        }
    }

    /// None when it is not podman's.
    fn known(
        &self,
        folder: &StateFolder,
        list: &str,
        entry: PodmanContainer,
    ) -> Result<Option<KnownContainer>> {
        // It becomes part of a path.
        let is_sound = (12..=64).contains(&entry.id.len()) && is_hex(&entry.id);
        if !is_sound {
            let why = format!("`{}` is no container id", entry.id);
            return Err(folder.malformed(list, &why));
        }
        let metadata: Metadata = serde_json::from_str(&entry.metadata).unwrap_or_default();
        if !metadata.pod_id.is_empty() {
            return Ok(None);
        }
        let mut known = KnownContainer::new(Runtime::Podman, entry.id, self.user);
        known.names = entry.names.unwrap_or_default();
        known.image = Some(metadata.image).filter(|image| !image.is_empty());
        known.created = seconds_of(&entry.created);
        known.pod = pod(folder, &known.id);
        match self.pid(&known.id) {
            Ok(pid) => known.claim.pid = pid,
            Err(error) => known.claim.problem = Some(error.to_string()),
        }
        Ok(Some(known))
    }

    fn pid(&self, id: &str) -> Result<Option<u32>> {
        let Some(run_root) = &self.run_root else {
            return Ok(None);
        };
        for name in run_root.names()? {
            if name.ends_with("-containers") {
                let file = Path::new(&name).join(id).join("userdata/pidfile");
                if let Some(pid) = run_root.pid(file)? {
                    return Ok(Some(pid));
                }
            }
        }
        Ok(None)
    }
}

/// The pod that its own configuration names; `None` if it cannot be read.
fn pod(folder: &StateFolder, id: &str) -> Option<Pod> {
    let file = Path::new(id).join("userdata/config.json");
    let config: PodmanConfig = folder.json(file).ok()??;
    // Its id: the name is in podman's database alone.
    let id = config.annotations.get("io.kubernetes.cri-o.SandboxID")?;
    Some(Pod {
        name: id.clone(),
        ..Pod::default()
    })
}

/// `overlay-containers`, `vfs-containers` and the like below a root.
fn driver_folders(root: &StateFolder, findings: &mut Findings) -> Vec<StateFolder> {
    let names = root.names().map(Some);
    let names = findings.note::<Vec<String>>(names).unwrap_or_default();
    let names = names.iter().filter(|name| name.ends_with("-containers"));
    let folders = names.map(|name| root.folder(name));
    folders.filter_map(|folder| findings.note(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::scratch::Scratch;
    use crate::TargetError;

    const WEB: &str = "deadbeef00000000000000000000000000000000000000000000000000000001";

    /// What podman says on a machine below that directory.
    fn found(scratch: &Scratch) -> Findings {
        let mut findings = Findings::default();
        let host = Host::below(scratch.path(), 0, &mut findings);
        find(&host, &mut findings);
        findings
    }

    #[test]
    fn stores_are_where_the_configuration_says() {
        let scratch = Scratch::new("podman-stores");
        let list = format!("[{{\"id\":\"{WEB}\",\"names\":[\"web\"],\"layer\":\"x\"}}]");
        let config = "[storage]\ngraphroot = \"/srv/graph\"\nrunroot = \"/srv/run\"\n";
        scratch.write("etc/containers/storage.conf", config);
        scratch.write("srv/graph/vfs-containers/containers.json", &list);
        let pid_file = format!("srv/run/vfs-containers/{WEB}/userdata/pidfile");
        scratch.write(&pid_file, "17\n");
        let findings = found(&scratch);
        assert!(findings.problems.is_empty(), "{:?}", findings.problems);
        let [web] = findings.known.as_slice() else {
            panic!("{:?}", findings.known);
        };
        assert_eq!(
            (web.names.as_slice(), web.claim.pid),
            (&["web".to_owned()][..], Some(17))
        );
        scratch.write(&pid_file, "many");
        let why = found(&scratch).known[0].claim.problem.clone().unwrap();
        assert!(why.contains(&pid_file) && why.contains("no pid"), "{why}");
    }

    #[test]
    fn hostile_lists_are_problems_and_hide_no_others() {
        let scratch = Scratch::new("podman-hostile");
        let folder = "var/lib/containers/storage/overlay-containers";
        let honest = format!("[{{\"id\":\"{WEB}\",\"names\":null}}]");
        scratch.write(&format!("{folder}/volatile-containers.json"), &honest);
        for text in [
            "",
            "null",
            "{}",
            r#"[{"id":"../../../etc","names":["web"]}]"#,
            r#"[{"id":"deadbeef/../../x","names":["web"]}]"#,
            r#"[{"names":["web"]}]"#,
        ] {
            scratch.write(&format!("{folder}/containers.json"), text);
            let findings = found(&scratch);
            assert_eq!(findings.known.len(), 1, "{text}");
            let [problem] = findings.problems.as_slice() else {
                panic!("{text}: {:?}", findings.problems);
            };
            assert!(
                matches!(problem, TargetError::StateMalformed { .. }),
                "{text}: {problem}"
            );
        }
    }

    #[test]
    fn settings_are_those_of_the_storage_table() {
        let text = "# graphroot = \"/no\"\n[storage]\ndriver = \"overlay\"\n graphroot = \"/srv/c\" # here\n\
                    runroot=\"/run/c\"\n[storage.options]\nsize = \"\"\nmountopt = nodev\n";
        assert_eq!(setting(text, "graphroot"), Some("/srv/c".into()));
        assert_eq!(setting(text, "runroot"), Some("/run/c".into()));
        assert_eq!(setting(text, "size"), None);
        assert_eq!(setting("[storage]\ngraphroot = 7", "graphroot"), None);
    }
}
