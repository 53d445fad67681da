// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines made by hand: processes, and state files that are correct or not.

use super::*;
use crate::container::known::{Claim, Findings};
use crate::container::made::{space, Machine, MINE, OURS};
use crate::container::{ContainerState, Containers};

const WEB: &str = "deadbeef00000000000000000000000000000000000000000000000000000001";
const DATABASE: &str = "deadbeef00000000000000000000000000000000000000000000000000000002";
fn join_of(machine: &Machine, known: &[KnownContainer]) -> Vec<Container> {
    join(machine, known, &[], space(OURS)).unwrap()
}

fn known(runtime: Runtime, id: &str, name: &str, claim: Claim) -> KnownContainer {
    let mut known = KnownContainer::new(runtime, id.to_owned(), None);
    known.names.push(name.to_owned());
    known.claim = claim;
    known
}

fn pid(pid: u32, start_time: Option<u64>) -> Claim {
    Claim {
        pid: Some(pid),
        start_time,
        ..Claim::default()
    }
}

fn podman(id: &str) -> String {
    format!("/machine.slice/libpod-{id}.scope")
}

/// What most tests look at: name, runtime, processes, and what it is inside of.
fn told(all: &[Container]) -> Vec<(&str, Runtime, &[u32], Option<&str>)> {
    let mut told = Vec::new();
    for one in all {
        let inside = one.inside.as_deref();
        told.push((
            one.name.as_str(),
            one.runtime,
            one.processes.as_slice(),
            inside,
        ));
    }
    told
}

#[test]
fn a_state_file_names_what_the_control_group_tells() {
    let mut machine = Machine::default();
    machine.add("/init.scope", OURS, &[1]);
    machine.add(
        &format!("/machine.slice/libpod-conmon-{WEB}.scope"),
        OURS,
        &[9],
    );
    machine.add(&podman(WEB), 10, &[10, 1]);
    machine.add(&format!("{}/container", podman(WEB)), 10, &[11, 7]);
    // Joined from outside, as `nsenter` does.
    machine.add("/user.slice", 10, &[12, 8]);
    let mut web = known(Runtime::Podman, WEB, "web", pid(10, None));
    web.image = Some("localhost/web".to_owned());
    let all = join_of(&machine, &[web]);
    assert_eq!(
        told(&all),
        [("web", Runtime::Podman, &[10, 11, 12][..], None)]
    );
    let web = &all[0];
    assert_eq!(
        (web.id.as_deref(), web.image.as_deref()),
        (Some(WEB), Some("localhost/web"))
    );
    assert_eq!(
        web.cgroup.as_ref().map(|cgroup| cgroup.path.clone()),
        Some(podman(WEB))
    );
    let init = web.init.unwrap();
    assert_eq!(
        (init.pid, init.start_time, init.pid_namespace),
        (10, 10, space(10))
    );
    assert!(init.is_first && web.problems.is_empty());
}

#[test]
fn without_a_state_file_the_id_is_the_name_and_the_reason_is_told() {
    let mut machine = Machine::default();
    machine.add(&format!("/system.slice/docker-{WEB}.scope"), 10, &[10, 1]);
    let unreadable = TargetError::StateUnreadable {
        path: "/var/lib/docker/containers".into(),
        source: std::io::Error::from_raw_os_error(13),
    };
    let all = join(&machine, &[], &[unreadable], space(OURS)).unwrap();
    assert_eq!(
        told(&all),
        [("deadbeef0000", Runtime::Docker, &[10][..], None)]
    );
    assert_eq!(all[0].id.as_deref(), Some(WEB));
    let why = &all[0].problems[0];
    assert!(
        why.contains("/var/lib/docker/containers") && why.contains("denied"),
        "{why}"
    );
    let all = join_of(&machine, &[]);
    assert!(
        all[0].problems[0].contains("no state file"),
        "{:?}",
        all[0].problems
    );
}

#[test]
fn a_container_within_is_told_from_the_one_around() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    machine.add(
        &format!("{}/libpod_parent/libpod-{DATABASE}", podman(WEB)),
        20,
        &[20, 5, 1],
    );
    // A namespace that a program in the container has made.
    machine.add(&podman(WEB), 30, &[30, 6, 1]);
    machine.add(&podman(WEB), 30, &[31, 7, 2]);
    let inner = format!("{}/libpod_parent/libpod-{DATABASE}", podman(WEB));
    machine.add(&format!("{inner}/lxc.payload.deep"), 40, &[40, 8, 2, 1]);
    // The state of this machine knows the inner one's id as another's.
    let states = [
        known(Runtime::Podman, WEB, "web", pid(10, None)),
        known(Runtime::Podman, DATABASE, "db", Claim::default()),
    ];
    let mut all = join_of(&machine, &states);
    let deep = all.iter().position(|one| one.processes == [40]);
    let deep = all.remove(deep.expect("it is there"));
    assert_eq!(deep.name, "web/deadbeef0000/deep");
    assert_eq!(
        told(&all),
        [
            ("web", Runtime::Podman, &[10][..], None),
            ("web/deadbeef0000", Runtime::Podman, &[20], Some("web")),
            ("pid:[30]", Runtime::Bare, &[30, 31], Some("web")),
            ("db", Runtime::Podman, &[], None),
        ]
    );
    assert!(
        all[1].problems[0].contains("within container web"),
        "{:?}",
        all[1].problems
    );
    assert_eq!(all[3].state, ContainerState::Stopped);
    // It has made its control group itself, and would be found by any name otherwise.
    for name in ["deadbeef0000", DATABASE] {
        assert!(!all[1].is_called(|other| other == name), "{name}");
        let within = format!("web/{name}");
        assert!(all[1].is_called(|other| other == within), "{within}");
    }
}

#[test]
fn a_namespace_within_is_a_part_of_what_is_around() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    machine.add(&podman(WEB), 20, &[20, 5, 1]);
    machine.add(&podman(WEB), 30, &[30, 6, 2, 1]).parent = 20;
    // Beside it, one that is nobody's.
    machine.add("/user.slice", 40, &[40, 1]);
    let findings = Findings {
        known: vec![known(Runtime::Podman, WEB, "web", pid(10, None))],
        ..Findings::default()
    };
    let mut containers = Containers::default();
    containers.update(&machine, findings, space(OURS)).unwrap();
    for id in [20, 30] {
        let inner = containers.of(0, id).unwrap();
        assert_eq!(inner.runtime, Runtime::Bare);
        assert_eq!(containers.around(inner).unwrap().name, "web", "{id}");
    }
    let lone = containers.of(0, 40).unwrap();
    assert!(containers.around(lone).is_none());
}

/// A service that may make control groups calls them what it likes.
#[test]
fn a_group_in_what_a_user_owns_is_his() {
    let mut machine = Machine::default();
    let given = "/system.slice/bots.service";
    machine.owned.push((given.to_owned(), 1000));
    machine
        .add(&format!("{given}/{WEB}"), OURS, &[10])
        .effective_uid = 1000;
    machine
        .add(&format!("{given}/docker-{DATABASE}.scope"), OURS, &[11])
        .effective_uid = 1000;
    // Root's, of any parent.
    let other = WEB.replace("dead", "beef");
    machine.add(&format!("/batch/{other}"), 12, &[12, 1]);
    let states = [
        known(Runtime::Docker, DATABASE, "db", Claim::default()),
        known(Runtime::Docker, DATABASE, "old", pid(11, None)),
        known(Runtime::Docker, &other, "batch", pid(12, None)),
    ];
    let all = join_of(&machine, &states);
    let of = |pid: u32| all.iter().find(|one| one.processes == [pid]).unwrap();
    assert_eq!(
        (of(10).name.as_str(), of(10).user),
        ("deadbeef0000", Some(1000))
    );
    assert_eq!(
        (of(11).name.as_str(), of(11).user),
        ("deadbeef0000", Some(1000))
    );
    assert_eq!((of(12).name.as_str(), of(12).user), ("batch", None));
}

#[test]
fn one_that_was_made_within_is_told_by_its_parent_too() {
    // Its podman sees the whole tree of control groups, so its group is not below.
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    machine.add("/elsewhere", 10, &[15, 3]);
    machine.add(&podman(DATABASE), 20, &[20, 4, 1]).parent = 15;
    let all = join_of(
        &machine,
        &[known(Runtime::Podman, WEB, "web", pid(10, None))],
    );
    let inner = all.iter().find(|one| one.processes == [20]).unwrap();
    assert_eq!(
        (inner.name.as_str(), inner.inside.as_deref()),
        ("web/deadbeef0000", Some("web"))
    );
}

#[test]
fn containers_that_share_a_namespace_are_told_by_their_groups() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    machine.add(&podman(DATABASE), 10, &[11, 7]);
    machine.add(&format!("/docker/{DATABASE}"), OURS, &[12]);
    let states = [
        known(Runtime::Podman, WEB, "cart", pid(10, None)),
        known(Runtime::Podman, DATABASE, "basket", pid(11, None)),
        known(Runtime::Docker, DATABASE, "host", pid(12, None)),
    ];
    let mut containers = Containers::default();
    let findings = Findings {
        known: states.to_vec(),
        ..Findings::default()
    };
    containers.update(&machine, findings, space(OURS)).unwrap();
    let of = |name: &str| containers.iter().find(|one| one.name == name).unwrap();
    assert_eq!(of("cart").processes, [10]);
    assert_eq!(of("basket").processes, [11]);
    assert_eq!(of("host").processes, [12]);
    for name in ["cart", "basket", "host"] {
        assert!(!of(name).init.unwrap().owns_namespace, "{name}");
    }
    // A task of that namespace in a group that nobody knows is of whose it is.
    assert_eq!(containers.of(7, 10).unwrap().name, "cart");
    // In one that is not known it may be of each.
    assert!(containers.of(0, 10).is_none());
    let sharers: Vec<&str> = containers.sharers(10).map(|one| &*one.name).collect();
    assert_eq!(sharers, ["cart", "basket"]);
    let group = podman(DATABASE).len() as u64;
    assert_eq!(containers.of(group, 10).unwrap().name, "basket");
    assert!(containers.of(7, OURS.into()).is_none());
}

#[test]
fn a_recycled_pid_is_not_believed() {
    let mut machine = Machine::default();
    machine.add("/system.slice/cron.service", OURS, &[10]);
    machine.add("/box", 20, &[20, 1]);
    let states = [
        // Lives, and nothing says that it is the container's.
        known(Runtime::Podman, WEB, "web", pid(10, None)),
        // Started at another time.
        known(Runtime::Crun, "box", "box", pid(20, Some(19))),
        known(Runtime::Docker, DATABASE, "db", pid(77, None)),
    ];
    let all = join_of(&machine, &states);
    assert_eq!(told(&all)[0], ("pid:[20]", Runtime::Bare, &[20][..], None));
    let why = |name: &str| {
        let one = all.iter().find(|one| one.name == name).unwrap();
        assert_eq!(one.state, ContainerState::Stopped);
        one.problems.join(" ")
    };
    assert_eq!(why("web"), "10 is another process by now");
    assert_eq!(why("box"), "20 is another process by now");
    assert_eq!(why("db"), "its process 77 has exited");
}

#[test]
fn what_runs_alone_is_told_by_start_time_and_declared_group() {
    let mut machine = Machine::default();
    machine.add("/box", 20, &[20, 1]);
    machine.add("/box/inner", OURS, &[21]);
    machine.add("/boxes", OURS, &[22]);
    let mut claim = pid(20, Some(20));
    claim.cgroup = Some("/box".to_owned());
    let all = join_of(&machine, &[known(Runtime::Crun, "box", "box", claim)]);
    assert_eq!(told(&all), [("box", Runtime::Crun, &[20, 21][..], None)]);
    // With the root's group, or that of all, it names no container.
    let mut claim = pid(20, Some(20));
    claim.cgroup = Some("/".to_owned());
    let all = join_of(&machine, &[known(Runtime::Crun, "box", "box", claim)]);
    assert_eq!(told(&all), [("box", Runtime::Crun, &[20][..], None)]);
    // In our namespace, with no group: only the first is known.
    let mut machine = Machine::default();
    machine.add("/user.slice", OURS, &[30]);
    let all = join_of(
        &machine,
        &[known(Runtime::Crun, "bare", "bare", pid(30, Some(30)))],
    );
    assert_eq!(told(&all), [("bare", Runtime::Crun, &[30][..], None)]);
}

/// Each user writes their own state, which names only containers of that user.
#[test]
fn a_users_state_names_only_what_can_be_his() {
    let mut machine = Machine::default();
    let rootless =
        format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{WEB}.scope");
    machine.add(&rootless, 10, &[10, 1]).users = MINE.to_vec();
    machine.add(&podman(DATABASE), 20, &[20, 1]);
    let of_user = |id: &str, name: &str, claim: Claim| KnownContainer {
        user: Some(1000),
        ..known(Runtime::Podman, id, name, claim)
    };
    let states = [
        of_user(WEB, "mine", pid(10, None)),
        // Root's, by its id and by its process.
        of_user(DATABASE, "stolen", pid(20, Some(20))),
    ];
    let all = join_of(&machine, &states);
    let find = |pid: u32| all.iter().find(|one| one.processes == [pid]).unwrap();
    assert_eq!(
        (find(10).name.as_str(), find(10).user),
        ("mine", Some(1000))
    );
    assert_eq!(
        (find(20).name.as_str(), find(20).user),
        ("deadbeef0000", None)
    );
    // He cannot take root's name for his own either, by a group of his that is called so.
    let forged = rootless.replace(WEB, DATABASE);
    machine.add(&forged, 30, &[30, 1]).users = MINE.to_vec();
    // Nor when it has the pid that root's had.
    for claim in [Claim::default(), pid(30, None)] {
        let all = join_of(
            &machine,
            &[known(Runtime::Podman, DATABASE, "root's", claim)],
        );
        let find = |pid: u32| all.iter().find(|one| one.processes == [pid]).unwrap();
        assert_eq!(find(20).name, "root's");
        assert_eq!(
            (find(30).name.as_str(), find(30).user),
            ("deadbeef0000", Some(1000))
        );
    }
}

/// Root runs a container as that user, who says that it is his.
#[test]
fn each_process_is_in_one_container() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]).effective_uid = 1000;
    machine.add("/", 20, &[20, 1]).effective_uid = 1000;
    let of_user = |name: &str, number: u32| KnownContainer {
        user: Some(1000),
        ..known(Runtime::Crun, name, name, pid(number, Some(number.into())))
    };
    let states = [
        of_user("stolen", 10),
        of_user("taken", 20),
        known(Runtime::Podman, WEB, "web", pid(10, None)),
        known(Runtime::Podman, DATABASE, "db", pid(20, Some(20))),
    ];
    let all = join_of(&machine, &states);
    assert_eq!(
        told(&all),
        [
            ("web", Runtime::Podman, &[10][..], None),
            ("db", Runtime::Podman, &[20], None),
            ("stolen", Runtime::Crun, &[], None),
            ("taken", Runtime::Crun, &[], None),
        ]
    );
    assert_eq!(all[2].problems, ["10 is another container's process"]);
}

/// A user may say that his container's group is one that holds other people's processes.
#[test]
fn a_user_declares_only_groups_that_were_given_to_him() {
    let mut machine = Machine::default();
    machine
        .add("/user.slice/user-1000.slice/session-3.scope", 10, &[10, 1])
        .users = MINE.to_vec();
    machine.add("/user.slice/user-1001.slice/session-4.scope", OURS, &[11]);
    let mut claim = pid(10, Some(10));
    claim.cgroup = Some("/user.slice".to_owned());
    let greedy = KnownContainer {
        user: Some(1000),
        ..known(Runtime::Crun, "box", "box", claim)
    };
    let all = join_of(&machine, &[greedy]);
    assert_eq!(told(&all), [("box", Runtime::Crun, &[10][..], None)]);
}

#[test]
fn frozen_ones_are_paused() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    machine.frozen.push(podman(WEB));
    assert_eq!(join_of(&machine, &[])[0].state, ContainerState::Paused);
}

#[test]
fn what_has_ended_is_kept_and_what_comes_is_found() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    let findings = || Findings {
        known: vec![
            known(Runtime::Podman, WEB, "web", pid(10, None)),
            known(Runtime::Podman, DATABASE, "db", pid(20, Some(20))),
        ],
        ..Findings::default()
    };
    let mut containers = Containers::default();
    containers
        .update(&machine, findings(), space(OURS))
        .unwrap();
    let group = podman(WEB).len() as u64;
    assert_eq!(containers.of(group, 10).unwrap().name, "web");
    assert!(containers.of(1, 20).is_none());
    // The one ends, the other starts; its pid namespace has the number of the first.
    machine.tasks.clear();
    machine.add("/docker", 10, &[20, 1]).parent = 1;
    machine.tasks[0].0.pid_namespace.id = 11;
    containers
        .update(&machine, findings(), space(OURS))
        .unwrap();
    assert_eq!(containers.of(1, 11).unwrap().name, "db");
    assert_eq!(containers.of(1, 10).unwrap().name, "web");
    let web = containers.of(group, 99).unwrap();
    assert_eq!(
        (web.name.as_str(), web.state),
        ("web", ContainerState::Gone)
    );
    // It is known as stopped, too, but not twice.
    containers
        .update(&machine, findings(), space(OURS))
        .unwrap();
    let webs: Vec<ContainerState> = containers
        .iter()
        .filter(|one| one.name == "web")
        .map(|one| one.state)
        .collect();
    assert_eq!(webs, [ContainerState::Gone, ContainerState::Stopped]);
}

#[test]
fn what_has_just_started_is_known_without_a_look_at_all_others() {
    let within = format!("{}/libpod-{DATABASE}.scope", podman(WEB));
    let starts: [(&str, &str, u32, &[u32]); 6] = [
        ("podman", &podman(WEB), 10, &[30, 1]),
        ("a namespace", "/user.slice", 10, &[30, 1]),
        ("by a state file", "/docker", 10, &[30, 1]),
        ("not its first", &podman(WEB), 10, &[30, 2]),
        ("within another", &within, 10, &[30, 1]),
        ("a namespace within", &podman(WEB), 10, &[30, 7, 1]),
    ];
    for (what, cgroup, space_of, numbers) in starts {
        let findings = Findings {
            known: vec![
                known(Runtime::Podman, WEB, "web", Claim::default()),
                known(Runtime::Podman, DATABASE, "db", Claim::default()),
                known(Runtime::Crun, "box", "box", pid(30, Some(30))),
            ],
            ..Findings::default()
        };
        let mut machine = Machine::default();
        machine.add("/docker", 5, &[5, 1]);
        let mut containers = Containers::default();
        let before = Findings {
            known: findings.known.clone(),
            ..Findings::default()
        };
        containers.update(&machine, before, space(OURS)).unwrap();
        machine.add(cgroup, space_of, numbers);
        let task = machine.tasks[1].0.clone();
        let is_added = containers.add_alone(&machine, &task, &findings).unwrap();
        assert_eq!(
            is_added,
            numbers.ends_with(&[1]) && numbers.len() == 2 && cgroup != within
        );
        if is_added {
            let group = cgroup.len() as u64;
            let alone = containers.of(group, 10).cloned();
            let count = containers.iter().count();
            containers.update(&machine, findings, space(OURS)).unwrap();
            assert_eq!(containers.of(group, 10), alone.as_ref(), "{what}");
            assert_eq!(containers.iter().count(), count, "{what}");
        }
    }
}

#[test]
fn a_container_that_shares_its_namespace_is_not_looked_at_alone() {
    let mut machine = Machine::default();
    machine.add(&podman(WEB), 10, &[10, 1]);
    let task = machine.tasks[0].0.clone();
    let findings = |pid_of_other| Findings {
        known: vec![
            known(Runtime::Podman, WEB, "web", Claim::default()),
            known(Runtime::Podman, DATABASE, "db", pid(pid_of_other, None)),
        ],
        ..Findings::default()
    };
    machine.add(&podman(DATABASE), 10, &[20, 2]);
    machine.add(&podman(DATABASE), 30, &[30, 1]);
    let mut containers = Containers::default();
    let mut add = |findings| containers.add_alone(&machine, &task, &findings).unwrap();
    assert!(!add(findings(20)));
    assert!(add(findings(30)));
    // Another one, which has come since.
    assert!(!add(findings(20)));
}

#[test]
fn kubernetes_names_come_from_its_labels_or_its_logs() {
    let pod = |container: &str| super::super::Pod {
        name: "shop-1".to_owned(),
        namespace: Some("prod".to_owned()),
        container: Some(container.to_owned()),
    };
    let uid = "2c48913c_b29f_11e7_9350_020968147796";
    let path = format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{WEB}.scope");
    let mut machine = Machine::default();
    machine.add(&path, 10, &[10, 1]);
    // From a log alone, as when containerd's state cannot be read.
    let mut log = KnownContainer::new(Runtime::Engine, WEB.to_owned(), None);
    log.pod = Some(pod("web"));
    let stale = KnownContainer {
        id: DATABASE.to_owned(),
        ..log.clone()
    };
    let all = join_of(&machine, &[log, stale]);
    assert_eq!(told(&all), [("web", Runtime::Containerd, &[10][..], None)]);
    assert_eq!(all[0].pod, Some(pod("web")));
    for name in [
        "web",
        "shop-1/web",
        "prod/shop-1/web",
        "containerd:web",
        WEB,
        "10",
    ] {
        assert!(all[0].is_called(|other| other == name), "{name}");
    }
    // Without it the group still shows which pod that is.
    let all = join_of(&machine, &[]);
    let pod = all[0].pod.as_ref().unwrap();
    assert_eq!(pod.name, "2c48913c-b29f-11e7-9350-020968147796");
}
