// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine with the state of every runtime, as their documentation and sources lay it out
//! (each module names them): `tests/testdata/machine`. Its pids follow from that of the first
//! process alone; who else is there is made up here.

use super::*;
use crate::container::made::{space, Machine, MINE, OURS};
use crate::container::{Container, ContainerState, Containers};
use std::path::Path;

const WEB: &str = "9f4d1c0b6e5a3f2d7c8b9a0e1f2d3c4b5a6978877665544332211009f8e7d6c5";
const DNS: &str = "77e1aa00ffbb4455cc66dd77ee8899aa00bb11cc22dd33ee44ff5566778899aa";
const MINE_OF_DOCKER: &str = "c2a41d5b7e6f90817263545362718a9b0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f";
const CACHE: &str = "d00d1e5c0ffee000111122223333444455556666777788889999aaaabbbbcccc";
const SHOP: &str = "5a5b5c5d5e5f60616263646566676869707172737475767778798081828384ff";
const SANDBOX: &str = "5a5b5c5d5e5f606162636465666768697071727374757677787980818283aaaa";
const API: &str = "ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12";
const BOX: &str = "01f331f47ec27d4a33f8878c65e71d8e64f569c4201114a2e9105dec1c5354e9";
const UID: &str = "7d3b5b36_6f1d_4f6c_8f0e_0e7f2f9c1a11";

fn findings() -> Findings {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/machine");
    let mut findings = Findings::default();
    let host = Host::below(&root, 0, &mut findings);
    findings.and_all_of(&host)
}

/// The processes that the state files name, where their runtimes put them.
fn machine() -> Machine {
    let mut machine = Machine::default();
    let mut next = 100;
    let mut add = |pid: u32, start: u64, cgroup: &str, users: &[(u32, u32)]| {
        next += 1;
        let details = machine.add(cgroup, next, &[pid, 1]);
        details.start_time = start;
        if !users.is_empty() {
            details.users = users.to_vec();
        }
    };
    let user = "/user.slice/user-1000.slice/user@1000.service/user.slice";
    let pods = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable";
    // Of a pod that only the logs name.
    let worker = "kubepods/pod11111111-2222-4333-8444-555555555555".to_owned();
    add(1801, 1, &format!("/{worker}/{}", "ab".repeat(32)), &[]);
    add(1201, 1, &format!("/system.slice/docker-{WEB}.scope"), &[]);
    add(
        1202,
        1,
        &format!("/kubepods/besteffort/pod2c48913c-b29f-11e7-9350-020968147796/{DNS}"),
        &[],
    );
    add(
        1203,
        1,
        &format!("{user}/docker-{MINE_OF_DOCKER}.scope"),
        &MINE,
    );
    add(1301, 77, "/test/cbox", &[]);
    add(1302, 1, &format!("/default/{CACHE}"), &[]);
    add(
        1303,
        1,
        &format!("{pods}-pod{UID}.slice/cri-containerd-{SHOP}.scope"),
        &[],
    );
    add(
        1304,
        1,
        &format!("{pods}-pod{UID}.slice/cri-containerd-{SANDBOX}.scope"),
        &[],
    );
    add(
        1401,
        4711,
        &format!("/kubepods.slice/kubepods-pod{UID}.slice/crio-{API}.scope/container"),
        &[],
    );
    add(1501, 1814, &format!("/libpod_parent/libpod-{BOX}"), &[]);
    add(1502, 5101, "/box1", &[]);
    add(1503, 5551, "/box2", &[]);
    add(1504, 9, &format!("{user}/crun-box3.scope"), &MINE);
    add(1601, 1, "/machine.slice/machine-deb13.scope/payload", &[]);
    add(1701, 1, "/lxc.payload.nest/init.scope", &[]);
    add(1702, 1, "/lxc.payload.app_front", &[]);
    add(1703, 1, "/lxc.payload.store/init.scope", &[]);
    add(1704, 1, "/lxc.payload.front", &[]);
    machine
}

fn containers() -> Containers {
    let mut containers = Containers::default();
    let findings = findings();
    let problems: Vec<String> = findings.problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{problems:?}");
    containers
        .update(&machine(), findings, space(OURS))
        .unwrap();
    containers
}

fn with_pid(containers: &Containers, pid: u32) -> Container {
    let mut all = containers.iter();
    let found = all.find(|one| one.init.is_some_and(|init| init.pid == pid));
    found.unwrap_or_else(|| panic!("nobody has {pid}")).clone()
}

#[test]
fn every_runtime_names_its_containers() {
    let containers = containers();
    for (pid, called) in [
        (1201, "docker:web"),
        (
            1202,
            "docker:k8s_dns_coredns-7c65_kube-system_2c48913c-b29f-11e7-9350-020968147796_0",
        ),
        (1203, "docker:mine"),
        (1301, "containerd:cbox"),
        (1302, "containerd:cache"),
        (1303, "containerd:web"),
        (1304, "containerd:POD"),
        (1401, "cri-o:api"),
        (1501, "podman:box"),
        (1502, "crun:box1"),
        (1503, "runc:box2"),
        (1504, "crun:box3"),
        (1601, "nspawn:deb13"),
        (1701, "lxc:nest"),
        (1702, "incus:front"),
        (1703, "lxd:store"),
        (1704, "incus:front"),
    ] {
        let one = with_pid(&containers, pid);
        assert_eq!(format!("{}:{}", one.runtime, one.name), called);
        assert_eq!(one.processes, [pid]);
        assert!(one.problems.is_empty(), "{called}: {:?}", one.problems);
    }
    let running = containers.iter().filter(|one| one.is_running()).count();
    assert_eq!(running, 18, "nobody is there twice");
}

#[test]
fn images_owners_and_times_are_those_of_the_files() {
    let containers = containers();
    let one = |pid| with_pid(&containers, pid);
    let images = [1201, 1203, 1303, 1401, 1501, 1601].map(|pid| one(pid).image);
    let images = images.map(|image| image.unwrap());
    assert_eq!(
        images,
        [
            "nginx:1.27",
            "alpine",
            "docker.io/library/nginx:1.27",
            "quay.io/shop/api:3",
            "localhost/nsprobe-test:latest",
            "/var/lib/machines/deb13",
        ]
    );
    assert_eq!(
        [1201, 1203, 1504].map(|pid| one(pid).user),
        [None, Some(1000), Some(1000)]
    );
    assert_eq!(
        [1501, 1601].map(|pid| one(pid).created),
        [Some(1_795_280_890); 2]
    );
    let ids = [1201, 1702, 1704].map(|pid| one(pid).id);
    let ids = ids.each_ref().map(Option::as_deref);
    assert_eq!(ids, [Some(WEB), Some("app_front"), None]);
}

#[test]
fn pods_are_those_of_kubernetes_and_of_nobody_else() {
    let containers = containers();
    let paths = |pid| with_pid(&containers, pid).pod_paths();
    assert_eq!(paths(1202)[1], "kube-system/coredns-7c65/dns");
    assert_eq!(paths(1303), ["shop-1/web", "prod/shop-1/web"]);
    assert_eq!(paths(1304)[1], "prod/shop-1/POD");
    assert_eq!(paths(1401)[1], "prod/shop-2/api");
    // podman's files have its pod's id alone.
    assert_eq!(paths(1501)[1], "ba3fe7a727ac/box");
    let worker = with_pid(&containers, 1801);
    assert_eq!(
        (worker.name.as_str(), worker.runtime),
        ("abababababab", Runtime::Engine)
    );
    assert_eq!(paths(1801)[1], "prod/shop-4/abababababab");
    // Somebody gave a container of `ctr` a label of Kubernetes'.
    assert_eq!(paths(1301), [""; 0]);
}

#[test]
fn what_does_not_run_is_known_by_name() {
    let containers = containers();
    let stopped: Vec<&str> = containers
        .iter()
        .filter(|one| one.state == ContainerState::Stopped)
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(stopped, ["old", "unpriv"]);
}

#[test]
fn each_container_is_known_once() {
    let findings = findings();
    let mut ids: Vec<(String, Option<u32>)> = findings
        .known
        .iter()
        .map(|known| (known.id.clone(), known.user))
        .filter(|(id, _)| id.len() == 64)
        .collect();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    let web = findings.known.iter().find(|known| known.id == WEB).unwrap();
    assert_eq!((web.runtime, web.claim.pid), (Runtime::Docker, Some(1201)));
    let first = findings.known.iter().find(|known| known.id == BOX).unwrap();
    assert_eq!(
        first.claim.start_time,
        Some(1814),
        "crun's state completes podman's"
    );
}
