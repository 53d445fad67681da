// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real containers of other runtimes than podman; each ends with its value.

use crate::group::Group;
use crate::oracle::within;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::{json, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The user who runs containers without root.
pub(crate) const USER: u32 = 1000;
/// His home.
pub(crate) const HOME: &str = "/home/me";
/// What ends with his session.
pub(crate) const RUN: &str = "/run/user/1000";

/// Runs a tool to its end and gives what it printed; panics when it failed.
pub(crate) fn tool(words: &[&str]) -> String {
    let (name, rest) = words.split_first().expect("a name");
    succeeded(Command::new(name).args(rest))
}

fn succeeded(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert!(output.status.success(), "{shown}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What may fail as nothing is left to be ended.
fn attempt(words: &[&str]) {
    let (name, rest) = words.split_first().expect("a name");
    let mut command = Command::new(name);
    let _ = command.args(rest).stdin(Stdio::null()).output();
}

/// A container of crun or runc alone, from a bundle.
pub(crate) struct Bundle {
    tool: &'static str,
    id: String,
    folder: PathBuf,
}

impl Bundle {
    /// Runs a program in a root directory.
    pub(crate) fn run(tool_name: &'static str, id: &str, root: &Path, program: &str) -> Bundle {
        Bundle::with(tool_name, id, root, &[program])
    }

    /// Runs a command in a root directory, which it may write to.
    pub(crate) fn with(tool_name: &'static str, id: &str, root: &Path, command: &[&str]) -> Bundle {
        let folder = PathBuf::from(format!("/var/tmp/bundle-{tool_name}-{id}"));
        fs::create_dir_all(&folder).expect("/var/tmp is writable");
        let bundle = Bundle {
            tool: tool_name,
            id: id.to_owned(),
            folder,
        };
        let path = bundle.folder.join("config.json");
        let _ = fs::remove_file(&path);
        succeeded(
            Command::new(tool_name)
                .arg("spec")
                .current_dir(&bundle.folder),
        );
        let text = fs::read_to_string(&path).expect("it was just made");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(command);
        config["root"] = json!({ "path": root, "readonly": false });
        fs::write(&path, config.to_string()).expect("ours");
        let mut run = Command::new(tool_name);
        run.args(["run", "-d", id]).current_dir(&bundle.folder);
        // What runs keeps its standard output, so nobody may wait for the end of that.
        let run = run.stdin(Stdio::null()).stdout(Stdio::null());
        let status = run.stderr(Stdio::null()).status();
        assert!(
            status.expect("it is installed").success(),
            "{tool_name} run {id}"
        );
        bundle
    }

    /// The first process, as its own runtime lists it.
    pub(crate) fn pid(&self) -> u32 {
        let state: Value =
            serde_json::from_str(&tool(&[self.tool, "state", &self.id])).expect("JSON");
        state["pid"].as_u64().expect("it runs") as u32
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        attempt(&[self.tool, "delete", "-f", &self.id]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A machine of systemd-nspawn, in the control group that machined gives to one of its name.
pub(crate) struct Machine {
    nspawn: Child,
    group: Group,
}

impl Machine {
    /// Runs a program in a root directory.
    pub(crate) fn start(root: &Path, name: &str, program: &str) -> Machine {
        // What nspawn takes for an operating system, and asks for by name.
        let etc = root.join("etc");
        fs::create_dir_all(&etc).expect("ours");
        fs::write(etc.join("os-release"), "ID=test\n").expect("ours");
        fs::create_dir_all(root.join("usr")).expect("ours");
        let group = Group::new(&format!("machine.slice/machine-{name}.scope"));
        let mut nspawn = group.command(Path::new("systemd-nspawn"));
        nspawn.args([
            "--quiet",
            "--private-users=no",
            "--register=no",
            "--keep-unit",
        ]);
        nspawn.args(["--resolv-conf=off", "--timezone=off", "--link-journal=no"]);
        nspawn.args(["--console=pipe", "--as-pid2"]);
        nspawn.arg(format!("--machine={name}"));
        nspawn.arg("-D").arg(root).arg(program).stdin(Stdio::null());
        Machine {
            nspawn: nspawn.spawn().expect("systemd-nspawn is installed"),
            group,
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // nspawn ends its machine when it is asked to end.
        let _ = kill(Pid::from_raw(self.nspawn.id() as i32), Signal::SIGTERM);
        within(Duration::from_secs(5), || {
            matches!(self.nspawn.try_wait(), Ok(Some(_)))
        });
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
        // Those that it has made for itself and its machine.
        for part in ["supervisor", "payload"] {
            let _ = fs::remove_dir(self.group.folder.join(part));
        }
    }
}

/// A container of lxc.
pub(crate) struct Lxc {
    name: String,
}

impl Lxc {
    /// Runs a program in a root directory.
    pub(crate) fn start(name: &str, root: &Path, program: &str) -> Lxc {
        let file = format!("/tmp/{name}.conf");
        let config = format!(
            "lxc.net.0.type = empty\nlxc.rootfs.path = dir:{}\nlxc.apparmor.profile = unconfined\n",
            root.display()
        );
        fs::write(&file, config).expect("/tmp is writable");
        tool(&["lxc-create", "-n", name, "-t", "none", "-f", &file]);
        let lxc = Lxc {
            name: name.to_owned(),
        };
        tool(&["lxc-start", "-n", name, "--", program]);
        tool(&["lxc-wait", "-n", name, "-s", "RUNNING", "-t", "20"]);
        lxc
    }

    /// The first process, as lxc tells it.
    pub(crate) fn pid(&self) -> u32 {
        let told = tool(&["lxc-info", "-n", &self.name, "-p", "-H"]);
        told.parse().expect("it runs")
    }
}

impl Drop for Lxc {
    fn drop(&mut self) {
        attempt(&["lxc-stop", "-k", "-n", &self.name]);
        // lxc-destroy would remove the root, too, which is others'.
        let _ = fs::remove_dir_all(Path::new("/var/lib/lxc").join(&self.name));
    }
}

/// containerd, and one container that `ctr` has made.
pub(crate) struct Containerd {
    daemon: Child,
    namespace: &'static str,
    id: String,
}

impl Containerd {
    /// Runs a program in a root directory.
    pub(crate) fn run(namespace: &'static str, id: &str, root: &Path, program: &str) -> Containerd {
        let mut daemon = Command::new("containerd");
        daemon.args(["--log-level", "error"]).stdin(Stdio::null());
        let daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null());
        let containerd = Containerd {
            daemon: daemon.spawn().expect("containerd is installed"),
            namespace,
            id: id.to_owned(),
        };
        let answers = || {
            let mut version = Command::new("ctr");
            let version = version.arg("version").stdin(Stdio::null());
            version.output().is_ok_and(|output| output.status.success())
        };
        assert!(
            within(Duration::from_secs(60), answers),
            "containerd does not answer"
        );
        let root = root.to_str().expect("a plain name");
        let mut run = Command::new("ctr");
        run.args(["-n", namespace, "run", "-d", "--rootfs", root, id, program]);
        // What runs keeps the standard output.
        let run = run.stdin(Stdio::null()).stdout(Stdio::null());
        assert!(run.status().expect("ctr").success(), "ctr run {id}");
        containerd
    }

    /// The first process, as containerd lists it.
    pub(crate) fn pid(&self) -> u32 {
        let listed = tool(&["ctr", "-n", self.namespace, "task", "ls"]);
        let line = listed
            .lines()
            .find(|line| line.split_whitespace().next() == Some(&self.id));
        let pid = line.and_then(|line| line.split_whitespace().nth(1));
        pid.unwrap_or_else(|| panic!("{listed}"))
            .parse()
            .expect("a number")
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        attempt(&[
            "ctr",
            "-n",
            self.namespace,
            "task",
            "kill",
            "-s",
            "KILL",
            &self.id,
        ]);
        let gone = || {
            attempt(&["ctr", "-n", self.namespace, "task", "rm", &self.id]);
            attempt(&["ctr", "-n", self.namespace, "container", "rm", &self.id]);
            let mut list = Command::new("ctr");
            let list = list.args(["-n", self.namespace, "container", "ls", "-q"]);
            list.output().is_ok_and(|output| output.stdout.is_empty())
        };
        within(Duration::from_secs(20), gone);
        let _ = kill(Pid::from_raw(self.daemon.id() as i32), Signal::SIGTERM);
        if !within(Duration::from_secs(10), || {
            matches!(self.daemon.try_wait(), Ok(Some(_)))
        }) {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
    }
}

/// A container of podman's that a user runs.
pub(crate) struct Rootless {
    name: String,
    root: PathBuf,
}

impl Rootless {
    /// Runs a program in (a copy of) a root directory.
    pub(crate) fn run(name: &str, root: &Path, program: &str) -> Rootless {
        // Of an earlier test he is there already.
        attempt(&["useradd", "-m", "-d", HOME, "-u", &USER.to_string(), "me"]);
        fs::create_dir_all(RUN).expect("/run is writable");
        tool(&["chown", "me", RUN]);
        let own = PathBuf::from(format!("/var/tmp/rootless-{name}"));
        let _ = fs::remove_dir_all(&own);
        tool(&["cp", "-a", &root.to_string_lossy(), &own.to_string_lossy()]);
        tool(&["chown", "-R", "me", &own.to_string_lossy()]);
        let rootless = Rootless {
            name: name.to_owned(),
            root: own,
        };
        let own = rootless.root.to_string_lossy().into_owned();
        let run = [
            "run",
            "-d",
            "--name",
            name,
            "--network",
            "none",
            "--log-driver",
            "none",
        ];
        let mut podman = Rootless::podman(&run);
        podman.args(["--rootfs", &own, program]);
        succeeded(&mut podman);
        rootless
    }

    /// podman, as the user runs it.
    fn podman(words: &[&str]) -> Command {
        let user = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command
            .args(["podman", "--cgroup-manager", "cgroupfs"])
            .args(words);
        let own = [("HOME", HOME), ("XDG_RUNTIME_DIR", RUN), ("USER", "me")];
        command.envs(own).current_dir("/");
        command
    }

    /// The first process, as podman lists it.
    pub(crate) fn pid(&self) -> u32 {
        let words = ["inspect", "-f", "{{.State.Pid}}", &self.name];
        succeeded(&mut Rootless::podman(&words))
            .parse()
            .expect("a number")
    }
}

impl Drop for Rootless {
    fn drop(&mut self) {
        let _ = Rootless::podman(&["rm", "-f", "-t", "0", &self.name]).output();
        // It keeps the user's namespaces in a process, which it ends by this.
        let _ = Rootless::podman(&["system", "migrate"]).output();
        let _ = fs::remove_dir_all(&self.root);
    }
}
