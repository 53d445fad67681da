// SPDX-License-Identifier: MIT OR Apache-2.0
//! podman's containers, read from its own state files; podman is not run.
//!
//! `GRAPHROOT/DRIVER-containers/containers.json` has the names and ids,
//! `RUNROOT/DRIVER-containers/ID/userdata/pidfile` the first process. Other users
//! write theirs themselves, so nothing in them is believed: they are read as
//! regular files of bounded size, and a pid counts only when its cgroup or its
//! parent says that it belongs to the container.

use crate::{Error, Process, Result};
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest state file that is read, in bytes: some 20,000 containers.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The files that list containers: lasting ones, and those run with `--rm`.
const LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Where one user's containers are.
pub(super) struct Store {
    graph_root: PathBuf,
    run_root: PathBuf,
    /// The user, unless root.
    user: Option<u32>,
}

/// A container that a store knows, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) id: String,
    pub(super) names: Vec<String>,
    /// The user, unless root.
    pub(super) user: Option<u32>,
    pid_files: Vec<PathBuf>,
}

#[derive(serde::Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
}

/// The stores of root and of all users; of ourselves only when we are not root.
pub(super) fn stores() -> Vec<Store> {
    let us = nix::unistd::geteuid().as_raw();
    let users = passwd_users(&fs::read_to_string("/etc/passwd").unwrap_or_default());
    if us != 0 {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.or_else(|| {
            users
                .into_iter()
                .find(|user| user.0 == us)
                .map(|user| user.1)
        });
        return home
            .and_then(|home| user_store(us, &home))
            .into_iter()
            .collect();
    }
    let others = users
        .iter()
        .filter(|(uid, _)| *uid != 0)
        .filter_map(|(uid, home)| user_store(*uid, home));
    std::iter::once(root_store()).chain(others).collect()
}

fn root_store() -> Store {
    let text = ["/etc", "/usr/share"]
        .iter()
        .find_map(|folder| fs::read_to_string(format!("{folder}/containers/storage.conf")).ok())
        .unwrap_or_default();
    Store {
        graph_root: setting(&text, "graphroot").unwrap_or("/var/lib/containers/storage".into()),
        run_root: setting(&text, "runroot").unwrap_or("/run/containers/storage".into()),
        user: None,
    }
}

/// The store of a user who has one in use.
fn user_store(uid: u32, home: &Path) -> Option<Store> {
    let text = read(&home.join(".config/containers/storage.conf")).unwrap_or_default();
    let run_root = setting(&text, "runroot").or_else(|| {
        [
            format!("/run/user/{uid}/containers"),
            format!("/tmp/storage-run-{uid}/containers"),
            format!("/tmp/containers-user-{uid}/containers"),
        ]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == uid))
    })?;
    Some(Store {
        graph_root: setting(&text, "graphroot")
            .unwrap_or_else(|| home.join(".local/share/containers/storage")),
        run_root,
        user: Some(uid),
    })
}

/// Uid and home of every user in the text of `/etc/passwd`. Users from elsewhere
/// (LDAP) are not found: a static program has no NSS.
fn passwd_users(text: &str) -> Vec<(u32, PathBuf)> {
    let user = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        Some((uid, fields.nth(2)?.into()))
    };
    text.lines().filter_map(user).collect()
}

/// The value of `key = "value"` in the `[storage]` table of a storage.conf.
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
    /// The containers of the store, and the first state file that told nothing.
    pub(super) fn containers(&self) -> (Vec<Known>, Option<Error>) {
        let mut known = Vec::new();
        let mut problem = None;
        for root in [&self.graph_root, &self.run_root] {
            match self.containers_below(root) {
                Ok(found) => known.extend(found),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        (known, problem)
    }

    fn containers_below(&self, root: &Path) -> Result<Vec<Known>> {
        let mut known = Vec::new();
        for folder in driver_folders(root)? {
            for list in LISTS {
                for entry in read_list(&folder.join(list))? {
                    known.push(self.known(entry)?);
                }
            }
        }
        Ok(known)
    }

    fn known(&self, entry: Entry) -> Result<Known> {
        // It becomes part of a path.
        let sound = (12..=64).contains(&entry.id.len()) && is_hex(&entry.id);
        if !sound {
            return Err(Error::StateMalformed {
                path: self.graph_root.clone(),
                why: format!("`{}` is no container id", entry.id),
            });
        }
        let pid_files = driver_folders(&self.run_root)
            .unwrap_or_default()
            .into_iter()
            .map(|folder| folder.join(&entry.id).join("userdata/pidfile"))
            .collect();
        Ok(Known {
            id: entry.id,
            names: entry.names.unwrap_or_default(),
            user: self.user,
            pid_files,
        })
    }
}

pub(super) fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// `overlay-containers`, `vfs-containers` and the like below a root.
fn driver_folders(root: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |source| Error::StateUnreadable {
        path: root.to_owned(),
        source,
    };
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(unreadable)?,
    };
    let mut folders: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("-containers"))
        .collect();
    folders.sort();
    Ok(folders)
}

/// The containers in a list; none when there is no such file.
fn read_list(path: &Path) -> Result<Vec<Entry>> {
    let text = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(Error::StateUnreadable {
                path: path.to_owned(),
                source,
            })
        }
        Ok(text) => text,
    };
    serde_json::from_str(&text).map_err(|error| Error::StateMalformed {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

/// The text of a regular file of bounded size; a named pipe blocks nobody.
fn read(path: &Path) -> io::Result<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl Known {
    /// Its first name, or its id.
    pub(super) fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }

    /// Its first process, if it runs.
    pub(super) fn init(&self) -> Result<Process> {
        let not_running = |why: String| Error::NotRunning {
            name: self.name().to_owned(),
            why,
        };
        let pid = self
            .pid()?
            .ok_or_else(|| not_running("it has no process".to_owned()))?;
        let process = match Process::open(pid) {
            Err(Error::NoSuchProcess { pid }) => {
                return Err(not_running(format!("its process {pid} has exited")))
            }
            other => other?,
        };
        if !belongs(&process, &self.id)? {
            return Err(not_running(format!("{pid} is another process by now")));
        }
        Ok(process)
    }

    fn pid(&self) -> Result<Option<u32>> {
        for path in &self.pid_files {
            match read(path) {
                Ok(text) => {
                    let malformed = |_| Error::StateMalformed {
                        path: path.clone(),
                        why: "it holds no pid".to_owned(),
                    };
                    return text.trim().parse().map(Some).map_err(malformed);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(Error::StateUnreadable {
                        path: path.clone(),
                        source,
                    })
                }
            }
        }
        Ok(None)
    }
}

/// Whether the process is one of the container's: its cgroup is named by the id,
/// or (a container without a cgroup of its own) its parent is the container's
/// monitor.
pub(super) fn belongs(process: &Process, id: &str) -> Result<bool> {
    if String::from_utf8_lossy(&process.read("cgroup")?).contains(id) {
        return Ok(true);
    }
    let parent = match Process::open(process.parent()?) {
        Ok(parent) => parent,
        Err(_) => return Ok(false),
    };
    let arguments = parent.read("cmdline")?;
    let for_id = arguments
        .split(|&byte| byte == 0)
        .any(|argument| argument == id.as_bytes());
    Ok(for_id && parent.comm()? == "conmon")
}

#[cfg(test)]
impl Store {
    /// A store below `root`, as another user's.
    pub(super) fn below(root: &Path, user: Option<u32>) -> Store {
        Store {
            graph_root: root.join("graph"),
            run_root: root.join("run"),
            user,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_storage_table() {
        let text = "# graphroot = \"/no\"\n[storage]\ndriver = \"overlay\"\n graphroot = \"/srv/c\" # here\n\
                    runroot=\"/run/c\"\n[storage.options]\nsize = \"\"\nmountopt = nodev\n";
        assert_eq!(setting(text, "graphroot"), Some("/srv/c".into()));
        assert_eq!(setting(text, "runroot"), Some("/run/c".into()));
        assert_eq!(setting(text, "size"), None);
        assert_eq!(setting("[storage]\ngraphroot = 7", "graphroot"), None);
    }

    #[test]
    fn users_come_from_the_text_of_passwd() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nme:x:1000:1000:Me,,,:/home/me:/bin/sh\n+\n";
        let users = passwd_users(text);
        assert_eq!(users, [(0, "/root".into()), (1000, "/home/me".into())]);
    }
}
