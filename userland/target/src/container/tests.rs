// SPDX-License-Identifier: MIT OR Apache-2.0
//! podman's state files made by hand, and a monitor of our own.

use super::*;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const WEB: &str = "deadbeef00000000000000000000000000000000000000000000000000000001";
const DATABASE: &str = "deadbeef00000000000000000000000000000000000000000000000000000002";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nsprobe-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn list(&self, entries: &[(&str, &str)]) {
        let entries: Vec<String> = entries
            .iter()
            .map(|(id, name)| format!(r#"{{"id":"{id}","names":["{name}"],"layer":"x"}}"#))
            .collect();
        let text = format!("[{}]", entries.join(","));
        self.write("graph/overlay-containers/containers.json", &text);
        fs::create_dir_all(self.0.join("run/overlay-containers")).unwrap();
    }

    fn pid(&self, id: &str, pid: u32) {
        let name = format!("run/overlay-containers/{id}/userdata/pidfile");
        self.write(&name, &pid.to_string());
    }

    fn store(&self) -> [Store; 1] {
        [Store::below(&self.0, None)]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process called conmon, with a child.
struct Monitor {
    process: Child,
    child: u32,
}

impl Monitor {
    fn start(folder: &Path, id: &str) -> Monitor {
        let program = folder.join("conmon");
        fs::copy("/bin/sh", &program).unwrap();
        let mut process = Command::new(program)
            .args(["-c", "sleep 60 & echo $!; wait", id])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let child = line.trim().parse().unwrap();
        Monitor { process, child }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.to_string()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_container_is_found_by_name_id_and_prefix() {
    let folder = Folder::new("found");
    folder.list(&[(WEB, "web")]);
    let monitor = Monitor::start(&folder.0, WEB);
    folder.pid(WEB, monitor.child);
    for spec in ["web", WEB, "deadbeef", "dead"] {
        let found = Container::find_among(&folder.store(), spec).unwrap();
        assert_eq!(found.init.pid(), monitor.child, "{spec}");
        assert_eq!(
            (found.name.as_str(), found.id.as_deref()),
            ("web", Some(WEB))
        );
        // It shares our namespace, so its processes are told by their owner.
        assert!(!found.has_own_pid_namespace().unwrap());
        assert!(found.processes().unwrap().contains(&monitor.child));
        assert!(!found.processes().unwrap().contains(&std::process::id()));
    }
    let found = Container::find_among(&folder.store(), "web").unwrap();
    assert!(matches!(
        found.find_library("libnone.so"),
        Err(Error::NoSuchLibrary { .. })
    ));
}

#[test]
fn a_recycled_pid_is_not_believed() {
    let folder = Folder::new("recycled");
    folder.list(&[(WEB, "web"), (DATABASE, "db")]);
    let monitor = Monitor::start(&folder.0, WEB);
    // The process lives, and its parent is a monitor, but not this container's.
    folder.pid(DATABASE, monitor.child);
    let error = Container::find_among(&folder.store(), "db").unwrap_err();
    assert!(matches!(error, Error::NotRunning { .. }), "{error}");
    folder.pid(WEB, i32::MAX as u32);
    let error = Container::find_among(&folder.store(), "web").unwrap_err();
    assert!(matches!(error, Error::NotRunning { .. }), "{error}");
}

#[test]
fn what_is_not_there_or_not_clear_is_told_with_names() {
    let folder = Folder::new("names");
    folder.list(&[(WEB, "web"), (DATABASE, "database")]);
    let fails = |spec| Container::find_among(&folder.store(), spec).unwrap_err();
    let error = fails("wob");
    assert!(
        matches!(&error, Error::NoSuchContainer { nearest, .. } if nearest == &["web"]),
        "{error}"
    );
    let error = fails("zzzzzz");
    assert!(
        matches!(&error, Error::NoSuchContainer { nearest, .. } if nearest.len() == 2),
        "{error}"
    );
    let error = fails("deadbeef");
    assert!(
        matches!(&error, Error::AmbiguousContainer { matches, .. } if matches.len() == 2),
        "{error}"
    );
    assert!(matches!(fails("dea"), Error::NoSuchContainer { .. }));
    assert!(matches!(fails("web"), Error::NotRunning { .. }));
    assert!(matches!(
        fails("4294967295"),
        Error::EmptyNamespace { inum: u32::MAX }
    ));
    assert!(matches!(fails(""), Error::NoSuchContainer { .. }));
}

#[test]
fn another_users_container_does_not_hide_roots() {
    let (root, other) = (Folder::new("store-root"), Folder::new("store-other"));
    root.list(&[(WEB, "web")]);
    other.list(&[(DATABASE, "web")]);
    let monitor = Monitor::start(&root.0, WEB);
    root.pid(WEB, monitor.child);
    let stores = [
        Store::below(&other.0, Some(1000)),
        Store::below(&root.0, None),
    ];
    let found = Container::find_among(&stores, "web").unwrap();
    assert_eq!(found.id.as_deref(), Some(WEB));
    // Nor does what that user wrote into his state.
    other.write("graph/overlay-containers/containers.json", "[{]");
    assert!(Container::find_among(&stores, "web").is_ok());
    let error = Container::find_among(&stores, "gone").unwrap_err();
    assert!(matches!(error, Error::StateMalformed { .. }), "{error}");
}

#[test]
fn hostile_state_is_an_error() {
    let folder = Folder::new("hostile");
    let list = "graph/overlay-containers/containers.json";
    let fails = || Container::find_among(&folder.store(), "web").unwrap_err();
    for text in [
        "",
        "null",
        "{}",
        r#"[{"id":"../../../etc","names":["web"]}]"#,
        r#"[{"names":["web"]}]"#,
    ] {
        folder.write(list, text);
        assert!(
            matches!(fails(), Error::StateMalformed { .. }),
            "{text}: {}",
            fails()
        );
    }
    fs::remove_file(folder.0.join(list)).unwrap();
    let made = Command::new("mkfifo").arg(folder.0.join(list)).status();
    assert!(made.unwrap().success());
    assert!(
        matches!(fails(), Error::StateUnreadable { .. }),
        "{}",
        fails()
    );
}

#[test]
fn a_bare_namespace_is_found_by_its_inode() {
    let ours = Process::open(std::process::id())
        .unwrap()
        .pid_namespace()
        .unwrap();
    let found = Container::find_among(&[], &ours.to_string()).unwrap();
    assert_eq!(found.pid_namespace().unwrap(), ours);
    assert_eq!(found.runtime, Runtime::Bare);
    assert!(found.processes().unwrap().contains(&std::process::id()));
}
