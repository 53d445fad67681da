// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real containers, by podman.

use crate::oracle::within;
use crate::victim;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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
    /// Where its monitor has written the number of its first process.
    pid_file: PathBuf,
}

fn podman(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("podman")
        .args(arguments)
        .output()
        .expect("podman is in the guest");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

impl Container {
    /// Runs a command in a container of the test image.
    pub(crate) fn run(name: &str, command: &[&str]) -> Container {
        Container::start(name, &[IMAGE], command)
    }

    /// Runs a command in a container of another image.
    pub(crate) fn of_image(name: &str, image: &str, command: &[&str]) -> Container {
        Container::start(name, &[image], command)
    }

    /// Debian's redis-server, which answers.
    pub(crate) fn redis(name: &str) -> Container {
        let server = ["redis-server", "--save", "", "--port", "0"];
        let command = [&server[..], &["--unixsocket", SOCKET]].concat();
        let container = Container::run(name, &command);
        let ping = ["redis-cli", "-s", SOCKET, "ping"];
        let answers = || container.exec(&ping).is_ok();
        let limit = Duration::from_secs(20);
        assert!(
            crate::oracle::within(limit, answers),
            "redis does not answer"
        );
        container
    }

    /// Has redis-server take so many SETs.
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
        let lower = format!("{}:O", folder.display());
        Container::start(name, &["--rootfs", &lower], command)
    }

    /// The same, with options of podman's.
    pub(crate) fn with(name: &str, options: &[&str], folder: &Path, command: &[&str]) -> Container {
        let lower = format!("{}:O", folder.display());
        let what = [options, &["--rootfs", &lower]].concat();
        Container::start(name, &what, command)
    }

    fn start(name: &str, what: &[&str], command: &[&str]) -> Container {
        let _ = fs::write(USED, "");
        let pid_file = PathBuf::from(format!("/run/nsprobe-pid-of-{name}"));
        let _ = fs::remove_file(&pid_file);
        let pid_path = pid_file.to_str().expect("a plain name");
        let mut arguments = vec!["run", "-d", "--name", name, "--network", "none"];
        arguments.extend(["--log-driver", "none", "--pidfile", pid_path]);
        arguments.extend(what);
        arguments.extend(command);
        podman(&arguments).unwrap_or_else(|error| panic!("podman run {name}: {error}"));
        Container {
            name: name.to_string(),
            pid_file,
        }
    }

    /// Process id of its first process, as the guest numbers it.
    pub(crate) fn pid(&self) -> u32 {
        let pid = fs::read_to_string(&self.pid_file).expect("podman has written it");
        pid.trim().parse().expect("a number")
    }

    /// Copies a file of the guest's into it.
    pub(crate) fn copy(&self, from: &Path, to: &str) {
        let to = format!("{}:{to}", self.name);
        let from = from.to_str().expect("a plain name");
        podman(&["cp", from, &to]).unwrap_or_else(|error| panic!("podman cp {to}: {error}"));
    }

    /// Runs a command in it.
    pub(crate) fn exec(&self, command: &[&str]) -> Result<String, String> {
        let mut arguments = vec!["exec", &self.name];
        arguments.extend(command);
        podman(&arguments)
    }

    /// Ends what runs in it; the container is still there.
    pub(crate) fn stop(&self) {
        podman(&["stop", "-t", "0", &self.name]).expect("it runs");
    }

    /// The removal that a person would try.
    pub(crate) fn remove(self) -> Result<(), String> {
        let removed = podman(&["rm", "-f", "-t", "0", &self.name]);
        std::mem::forget(self);
        removed.map(drop)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Again when it fails: a file of it may be open for a moment still. What holds it for
        // good is seen by the oracle.
        let is_removed = || {
            let removed = podman(&["rm", "-f", "-t", "0", &self.name]);
            removed.map_err(|error| println!("{error}")).is_ok()
        };
        within(Duration::from_secs(10), is_removed);
    }
}

/// An image with what is in a folder; removed with the value.
pub(crate) struct Image {
    id: String,
}

impl Image {
    /// Makes it, and gives it the name, which an earlier one then has no longer.
    pub(crate) fn of(name: &str, folder: &Path) -> Image {
        let _ = fs::write(USED, "");
        let archive = folder.with_extension("tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(folder).arg("-cf").arg(&archive).arg(".");
        assert!(tar.status().expect("tar is in the guest").success());
        let path = archive.to_str().expect("a plain name");
        let id = podman(&["import", "-q", path, name]).expect("there is room");
        fs::remove_file(&archive).expect("it was written");
        Image { id }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = podman(&["rmi", "-f", &self.id]);
    }
}

/// Inode number of a process's pid namespace.
pub(crate) fn pid_namespace(pid: u32) -> u32 {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).expect("the process lives");
    let link = link.to_string_lossy();
    let number = link.trim_start_matches("pid:[").trim_end_matches(']');
    number.parse().expect("a number")
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
pub(crate) fn left() -> String {
    if !Path::new(USED).exists() {
        return String::new();
    }
    let listed = podman(&["ps", "-a", "--format", "{{.Names}}"]).unwrap_or_else(|error| error);
    if listed.is_empty() {
        let _ = fs::remove_file(USED);
    }
    listed
}

/// After a failed test.
pub(crate) fn remove_all() {
    if Path::new(USED).exists() {
        let _ = podman(&["rm", "-f", "-a", "-t", "0"]);
        std::thread::sleep(Duration::from_millis(200));
    }
}
