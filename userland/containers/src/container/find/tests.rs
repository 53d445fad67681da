// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of several containers is meant, on machines made by hand; and the host that the
//! test runs on, where a process of its own has to live.

use super::*;
use crate::container::known::{Findings, KnownContainer};
use crate::container::made::{space, Machine, MINE, OURS};
use crate::container::scratch::Scratch;
use crate::container::{ContainerTasks, Pod};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

const WEB: &str = "deadbeef00000000000000000000000000000000000000000000000000000001";
const DATABASE: &str = "deadbeef00000000000000000000000000000000000000000000000000000002";
const OTHER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn known(runtime: Runtime, id: &str, name: &str) -> KnownContainer {
    let mut known = KnownContainer::new(runtime, id.to_owned(), None);
    known.names.push(name.to_owned());
    known
}

fn of(machine: &Machine, known: Vec<KnownContainer>) -> Containers {
    let findings = Findings {
        known,
        ..Findings::default()
    };
    let mut containers = Containers::default();
    containers.update(machine, findings, space(OURS)).unwrap();
    containers
}

/// Whom a text means: its id; why, when nobody.
fn told(containers: &Containers, text: &str) -> std::result::Result<String, TargetError> {
    let found = containers.known_as(&Spec::parse(text))?;
    let id = found.map(|one| one.id.clone().unwrap_or_else(|| one.name.clone()));
    Ok(id.unwrap_or_default())
}

fn ambiguous_of(containers: &Containers, text: &str) -> Vec<String> {
    match told(containers, text) {
        Err(TargetError::AmbiguousContainer { matches, .. }) => matches,
        other => panic!("{text}: {other:?}"),
    }
}

/// podman's web and db, docker's web, and one of a pod.
fn shop() -> Containers {
    let mut machine = Machine::default();
    machine.add(&format!("/machine.slice/libpod-{WEB}.scope"), 10, &[10, 1]);
    machine.add(
        &format!("/machine.slice/libpod-{DATABASE}.scope"),
        20,
        &[20, 1],
    );
    machine.add(&format!("/system.slice/docker-{OTHER}.scope"), 30, &[30, 1]);
    let mut docker = known(Runtime::Docker, OTHER, "web");
    docker.pod = Some(Pod {
        name: "shop-1".to_owned(),
        namespace: Some("prod".to_owned()),
        container: Some("front".to_owned()),
    });
    let podman = [
        known(Runtime::Podman, WEB, "web"),
        known(Runtime::Podman, DATABASE, "db"),
    ];
    of(&machine, podman.into_iter().chain([docker]).collect())
}

#[test]
fn a_name_an_id_a_runtime_or_a_pod_tells_one() {
    let shop = shop();
    for (text, id) in [
        ("db", DATABASE),
        (DATABASE, DATABASE),
        ("0123", OTHER),
        ("podman:web", WEB),
        ("docker:web", OTHER),
        ("docker:0123456789ab", OTHER),
        ("shop-1/front", OTHER),
        ("prod/shop-1/front", OTHER),
        ("docker:prod/shop-1/front", OTHER),
        (&format!("docker-{OTHER}.scope"), OTHER),
        ("lxc:web", ""),
        ("nobody", ""),
        ("dea", ""),
        ("", ""),
        ("shop-1/back", ""),
    ] {
        assert_eq!(told(&shop, text).unwrap(), id, "{text}");
    }
}

#[test]
fn several_of_a_name_are_listed_with_what_tells_them_apart() {
    let shop = shop();
    assert_eq!(
        ambiguous_of(&shop, "web"),
        [
            "podman:web (deadbeef0000, pid 10)",
            "docker:web (0123456789ab, pod prod/shop-1, pid 30)"
        ]
    );
    assert_eq!(ambiguous_of(&shop, "deadbeef").len(), 2);
}

#[test]
fn neither_what_has_stopped_nor_another_users_hides_what_runs() {
    let mut machine = Machine::default();
    machine.add(&format!("/system.slice/docker-{OTHER}.scope"), 30, &[30, 1]);
    let stopped = known(Runtime::Podman, WEB, "web");
    let running = known(Runtime::Docker, OTHER, "web");
    let containers = of(&machine, vec![stopped.clone(), running.clone()]);
    assert_eq!(told(&containers, "web").unwrap(), OTHER);
    let rootless = format!("/user.slice/user-1000.slice/user@1000.service/libpod-{WEB}.scope");
    machine.add(&rootless, 10, &[10, 1]).users = MINE.to_vec();
    let users = KnownContainer {
        user: Some(1000),
        ..stopped
    };
    let containers = of(&machine, vec![users, running]);
    assert_eq!(told(&containers, "web").unwrap(), OTHER);
    assert_eq!(told(&containers, "podman:web").unwrap(), WEB);
}

#[test]
fn what_is_not_there_is_told_with_names_and_with_what_could_not_be_read() {
    let mut machine = Machine::default();
    machine.add(&format!("/machine.slice/libpod-{WEB}.scope"), 10, &[10, 1]);
    let problem = || TargetError::StateMalformed {
        path: "/home/me/containers.json".into(),
        why: "it is empty".to_owned(),
    };
    let findings = Findings {
        known: vec![
            known(Runtime::Podman, WEB, "web"),
            known(Runtime::Docker, OTHER, "old"),
        ],
        problems: vec![problem()],
        ..Findings::default()
    };
    let mut containers = Containers::default();
    containers.update(&machine, findings, space(OURS)).unwrap();
    let error = containers.find("wob").unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("no container `wob` (did you mean web?); not all state"),
        "{text}"
    );
    assert!(text.contains("/home/me/containers.json"), "{text}");
    let error = containers.find("old").unwrap_err();
    assert!(matches!(error, TargetError::NotRunning { .. }), "{error}");
    // It ended while it was looked up: there is no such process here.
    machine.tasks[0].0.pid = u32::MAX;
    machine.tasks[0].1.numbers = vec![u32::MAX, 1];
    let containers = of(&machine, vec![known(Runtime::Podman, WEB, "web")]);
    let error = containers.find("web").unwrap_err();
    assert!(error.to_string().contains("has exited"), "{error}");
    let error = containers.find("4294967295").unwrap_err();
    assert!(
        matches!(error, TargetError::EmptyNamespace { inum: u32::MAX }),
        "{error}"
    );
}

#[test]
fn another_process_of_the_number_is_not_taken() {
    // Ours lives, and did not start at boot.
    let me = std::process::id();
    let mut machine = Machine::default();
    let details = machine.add(&format!("/machine.slice/libpod-{WEB}.scope"), 10, &[me, 1]);
    details.start_time = 1;
    let containers = of(&machine, vec![known(Runtime::Podman, WEB, "web")]);
    let error = containers.find("web").unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn a_bare_namespace_is_found_by_its_inode() {
    let ours = Process::open(std::process::id())
        .unwrap()
        .pid_namespace()
        .unwrap();
    for text in [
        ours.inum.to_string(),
        format!("pid:[{}]", ours.inum),
        format!("namespace:{}", ours.inum),
    ] {
        let found = Containers::default().find(&text).unwrap();
        assert_eq!(found.pid_namespace().unwrap(), ours);
        assert_eq!(found.container.runtime, Runtime::Bare);
        assert_eq!(found.scope().unwrap(), ContainerTasks::PidNamespace(ours));
        assert!(found.processes().unwrap().contains(&std::process::id()));
        let error = found.find_library("libnone.so").unwrap_err();
        assert!(
            matches!(error, TargetError::NoSuchLibrary { .. }),
            "{error}"
        );
    }
    assert!(Containers::default().find("docker:4294967295").is_err());
}

/// A program of other arguments and, by a link, of another name; it ends with the value.
struct RenamedShell(Child);

impl RenamedShell {
    /// It starts a shell as the first of a pid namespace, with one argument more.
    fn start(program: &Path, arguments: &str, last: &str) -> RenamedShell {
        let mut unshare = Command::new(program);
        unshare.arg0(arguments).args(["-pf", "--kill-child"]);
        unshare.args(["sh", "-ec", "sleep 60; :", last]);
        RenamedShell(unshare.spawn().unwrap())
    }

    fn child(&self) -> u32 {
        let file = format!("/proc/{0}/task/{0}/children", self.0.id());
        for _ in 0..10_000 {
            let children = std::fs::read_to_string(&file).unwrap();
            if let Some(pid) = children.split_whitespace().next() {
                return pid.parse().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it has started nothing");
    }
}

impl Drop for RenamedShell {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Any user may start a program by a link and with arguments of his choice, `su` among them.
#[test]
fn what_a_parent_is_called_and_its_arguments_name_no_container() {
    if !nsprobe_testing::root("making pid namespaces") {
        return;
    }
    let scratch = Scratch::new("named");
    for (name, arguments, last) in [
        ("su", "[lxc monitor] /var/lib/lxc", " victim"),
        ("conmon", "conmon", "--cid=victim"),
        ("systemd-nspawn", "nspawn", "--machine=victim"),
        ("containerd-shim", "shim", "--id=victim"),
    ] {
        let program = scratch.path().join(name);
        std::os::unix::fs::symlink("/usr/bin/unshare", &program).unwrap();
        let named = RenamedShell::start(&program, arguments, last);
        let first = named.child();
        let all = Container::all().unwrap();
        let found = all.iter().find(|one| one.processes.contains(&first));
        let found = found.unwrap_or_else(|| panic!("{name}: {all:?}"));
        let bare = bare_name(found.init.unwrap().pid_namespace.inum);
        assert_eq!((&found.name, found.runtime), (&bare, Runtime::Bare));
        assert_eq!(found.aliases, [""; 0]);
    }
}

/// A user calls his own as root's is called, or as its id begins.
#[test]
fn what_a_user_calls_his_own_is_never_meant_for_root_s() {
    let mut machine = Machine::default();
    let given = "/user.slice/user-1000.slice/user@1000.service";
    let podman = format!("/machine.slice/libpod-{WEB}.scope");
    machine.add(&podman, 10, &[10, 1]);
    for (pid, name) in [(30, "crun-deadbeef0000"), (31, "crun-web"), (32, "crun-db")] {
        let task = machine.add(&format!("{given}/{name}.scope"), pid, &[pid, 1]);
        task.users = MINE.to_vec();
    }
    let all = [
        known(Runtime::Podman, WEB, "web"),
        known(Runtime::Podman, OTHER, "db"),
    ];
    let containers = of(&machine, all.to_vec());
    // The last does not run.
    for (text, id) in [("web", WEB), ("deadbeef0000", WEB), ("db", OTHER)] {
        assert_eq!(told(&containers, text).unwrap(), id, "{text}");
    }
}
