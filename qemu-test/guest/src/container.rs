// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real containers, by podman.

use crate::oracle::{within, SOON};
use crate::podman::{self, ask};
use crate::victim;
use nsprobe_common::abi::PidNamespace;
use nsprobe_containers::{PidSpace, Process};
use serde_json::{json, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The image with Debian programs that the host made.
pub(crate) const IMAGE: &str = "localhost/nsprobe-test";

/// Where [`Container::redis`] listens.
const SOCKET: &str = "/tmp/r.sock";

/// Exists from the moment a container is made until all are seen to be gone.
const USED: &str = "/run/nsprobe-containers-used";

/// A running container; removed with the value.
pub(crate) struct Container {
    /// Its name.
    pub(crate) name: String,
    /// Process id of its first process, as the guest numbers it.
    pid: u32,
}

impl Container {
    /// Runs a command in a container of the test image.
    pub(crate) fn run(name: &str, command: &[&str]) -> Container {
        Container::of_image(name, IMAGE, command)
    }

    /// Runs a command in a container of another image.
    pub(crate) fn of_image(name: &str, image: &str, command: &[&str]) -> Container {
        Container::start(name, json!({ "image": image }), command)
    }

    /// Debian's redis-server, which answers.
    pub(crate) fn redis(name: &str) -> Container {
        let server = ["redis-server", "--save", "", "--port", "0"];
        let command = [&server[..], &["--unixsocket", SOCKET]].concat();
        let container = Container::run(name, &command);
        let ping = ["redis-cli", "-s", SOCKET, "ping"];
        let answers = || container.exec(&ping).is_ok();
        assert!(within(SOON, answers), "redis does not answer");
        container
    }

    /// Has redis-server take this number of SETs.
    pub(crate) fn set(&self, count: u32) {
        let count = count.to_string();
        let load = [
            "redis-benchmark",
            "-s",
            SOCKET,
            "-q",
            "-t",
            "set",
            "-n",
            &count,
        ];
        self.exec(&load).expect("redis takes it");
    }

    /// Runs a command on an overlay over a folder of the guest's.
    pub(crate) fn over(name: &str, folder: &Path, command: &[&str]) -> Container {
        let what = json!({ "rootfs": folder, "rootfs_overlay": true });
        Container::start(name, what, command)
    }

    /// The same as a person would type it, with options of podman's.
    pub(crate) fn with(name: &str, options: &[&str], folder: &Path, command: &[&str]) -> Container {
        let _ = fs::write(USED, "");
        let lower = format!("{}:O", folder.display());
        let mut arguments = vec!["run", "-d", "--name", name, "--network", "none"];
        arguments.extend(["--log-driver", "none"]);
        arguments.extend(options);
        arguments.extend(["--rootfs", &lower]);
        arguments.extend(command);
        let id = podman::run(&arguments);
        let id = id.unwrap_or_else(|error| panic!("podman run {name}: {error}"));
        Container::called(name, &id)
    }

    /// Makes and starts one of what podman's interface calls a specification.
    fn start(name: &str, mut what: Value, command: &[&str]) -> Container {
        let _ = fs::write(USED, "");
        what["name"] = name.into();
        what["command"] = command.into();
        what["netns"] = json!({ "nsmode": "none" });
        what["log_configuration"] = json!({ "driver": "none" });
        let made = ask("POST", "/containers/create", Some(&what));
        let made = made.unwrap_or_else(|error| panic!("{name} is not made: {error}"));
        let started = ask("POST", &format!("/containers/{name}/start"), None);
        if let Err(error) = started {
            let _ = remove(name);
            panic!("{name} does not start: {error}");
        }
        Container::called(name, made["Id"].as_str().expect("an id"))
    }

    fn called(name: &str, id: &str) -> Container {
        let file = format!("/run/containers/storage/overlay-containers/{id}/userdata/pidfile");
        let pid = fs::read_to_string(file).expect("its monitor has written it");
        Container {
            name: name.to_string(),
            pid: pid.trim().parse().expect("a number"),
        }
    }

    /// Process id of its first process, as the guest numbers it.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Copies a file of the guest into it. It is there whole or not at all, for what looks
    /// at it meanwhile.
    pub(crate) fn copy(&self, from: &Path, to: &str) {
        let to = format!("/proc/{}/root{to}", self.pid);
        let part = format!("{to}.part");
        let copied = fs::copy(from, &part).and_then(|_| fs::rename(&part, &to));
        copied.unwrap_or_else(|error| panic!("{to}: {error}"));
    }

    /// Runs a command in its namespaces and its control group: what it prints, or what it
    /// complains of.
    pub(crate) fn exec(&self, command: &[&str]) -> Result<String, String> {
        let group = fs::read_to_string(format!("/proc/{}/cgroup", self.pid));
        let group = group.expect("it runs").trim().replacen("0::", "", 1);
        let group = format!("/sys/fs/cgroup{group}/cgroup.procs");
        let pid = self.pid.to_string();
        let script = "echo $$ >\"$1\" && shift && exec nsenter --all --target \"$@\"";
        let mut entered = Command::new("sh");
        entered
            .args(["-c", script, "sh", &group, &pid, "--"])
            .args(command);
        let output = entered.output().expect("nsenter is in the guest");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Waits until what runs in it has ended.
    pub(crate) fn wait(&self) {
        let path = format!("/containers/{}/wait?condition=stopped", self.name);
        ask("POST", &path, None).expect("it is there");
    }

    /// Ends what runs in it; the container is still there.
    pub(crate) fn stop(&self) {
        let path = format!("/containers/{}/stop?timeout=0", self.name);
        ask("POST", &path, None).expect("it runs");
    }

    /// The removal that a person would try.
    pub(crate) fn remove(self) -> Result<(), String> {
        let removed = remove(&self.name);
        std::mem::forget(self);
        removed
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Again when it fails: a file of it may be open for a moment still. What holds it for
        // good is seen by the oracle.
        let is_removed = || {
            let removed = remove(&self.name);
            removed.map_err(|error| println!("{error}")).is_ok()
        };
        within(SOON, is_removed);
    }
}

fn remove(name: &str) -> Result<(), String> {
    let path = format!("/containers/{name}?force=true&timeout=0&ignore=true");
    ask("DELETE", &path, None).map(drop)
}

/// Inode number of a process's pid namespace.
pub(crate) fn pid_namespace(pid: u32) -> u32 {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).expect("the process lives");
    let link = link.to_string_lossy();
    let number = link.trim_start_matches("pid:[").trim_end_matches(']');
    number.parse().expect("a number")
}

/// The pid namespace of a process as a filter names it.
pub(crate) fn in_filter(pid: u32) -> PidNamespace {
    PidNamespace {
        pid,
        id: pid_space(pid).id,
        ..PidNamespace::default()
    }
}

/// The pid namespace of a process.
pub(crate) fn pid_space(pid: u32) -> PidSpace {
    let process = Process::open(pid).expect("the process lives");
    process.pid_namespace().expect("the process lives")
}

/// A folder with one program in it, for [`Container::over`].
pub(crate) struct Root {
    /// The folder.
    pub(crate) folder: PathBuf,
}

impl Root {
    /// A root in which a (static) victim lies at a path.
    pub(crate) fn with(victim: &str, at: &str) -> Root {
        Root::called("root", victim, at)
    }

    /// The same for tests that need several, which are told apart by a name.
    pub(crate) fn called(name: &str, victim: &str, at: &str) -> Root {
        let folder = PathBuf::from(format!("/var/tmp/{name}-{}", std::process::id()));
        let program = folder.join(at.trim_start_matches('/'));
        for part in ["proc", "sys", "dev", "etc", "run", "tmp"] {
            fs::create_dir_all(folder.join(part)).expect("/var/tmp is writable");
        }
        fs::create_dir_all(program.parent().expect("below the root")).expect("writable");
        fs::copy(victim::path(victim), &program).expect("the victim is there");
        Root { folder }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Names of the containers that are left, when some test has used any since there were none.
pub(crate) fn left() -> Vec<String> {
    if !Path::new(USED).exists() {
        return Vec::new();
    }
    let names = match ask("GET", "/containers/json?all=true", None) {
        Ok(Value::Array(all)) => all.iter().map(|one| one["Names"].to_string()).collect(),
        Ok(_) => Vec::new(),
        Err(error) => vec![error],
    };
    if names.is_empty() {
        let _ = fs::remove_file(USED);
    }
    names
}

/// After a failed test.
pub(crate) fn remove_all() {
    let _ = podman::run(&["rm", "-f", "-a", "-t", "0"]);
}
