// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths as the runtimes make them; the head of the module says where they come from.

use super::*;
use proptest::prelude::*;

const ID: &str = "6f05bbd9b8b6ccbd5c5b1c1c47e6bb6c2d27e0b3d9f0b8a5a2e6f0d1c3b4a596";
const OTHER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "2c48913c-b29f-11e7-9350-020968147796";

/// Runtime, name, path of its group and pod of each place in a path, in which ID and UID
/// stand for the constants.
fn told(path: &str) -> Vec<(Runtime, String, String, Option<String>)> {
    let path = path.replace("OTHER", OTHER).replace("UID", UID);
    let path = path.replace("ID", ID);
    let tell = |place: PathContainer| {
        let group = path[..place.end].to_owned();
        (
            place.runtime,
            place.name,
            group,
            place.pod.map(|pod| pod.name),
        )
    };
    places(&path).into_iter().map(tell).collect()
}

/// The one place in a path, whose group is the whole path but for `below`.
fn one(path: &str, below: &str) -> (Runtime, String, Option<String>) {
    let mut all = told(&format!("{path}{below}"));
    let (runtime, name, group, pod) = all.pop().unwrap_or_else(|| panic!("nothing in {path}"));
    assert!(all.is_empty(), "{path}: {all:?}");
    let whole = path.replace("UID", UID).replace("ID", ID);
    assert_eq!(group, whole);
    (runtime, name, pod)
}

#[test]
fn engines_name_their_groups_by_ids() {
    for (path, runtime) in [
        // podman with systemd, with cgroupfs, with --cgroups=split in a unit.
        ("/machine.slice/libpod-ID.scope", Runtime::Podman),
        ("/libpod_parent/libpod-ID", Runtime::Podman),
        (
            "/system.slice/web.service/libpod-payload-ID",
            Runtime::Podman,
        ),
        ("/system.slice/docker-ID.scope", Runtime::Docker),
        ("/docker/ID", Runtime::Docker),
        ("/system.slice/nerdctl-ID.scope", Runtime::Containerd),
        // docker --cgroup-parent=/batch, ECS.
        ("/batch/ID", Runtime::Engine),
        ("/ecs/0d8e1a2b/ID", Runtime::Engine),
        // Of a podman that sees a part of the tree only.
        ("/../libpod-ID", Runtime::Podman),
    ] {
        let told = (runtime, ID.to_owned(), None);
        assert_eq!(one(path, ""), told, "{path}");
        // crun's own group for the processes; systemd in the container.
        assert_eq!(one(path, "/container"), told, "{path}");
        assert_eq!(one(path, "/system.slice/sshd.service"), told, "{path}");
    }
}

#[test]
fn ids_have_other_forms_too() {
    let task = "0123456789abcdef0123456789abcdef";
    for (path, name) in [
        (
            format!("/ecs/{task}/{task}-3822082590"),
            format!("{task}-3822082590"),
        ),
        (
            "/system.slice/docker.service/buildkit/n5x0sk2lyh6m3f4yzpjvxfq4t".to_owned(),
            "n5x0sk2lyh6m3f4yzpjvxfq4t".to_owned(),
        ),
        (
            "/system.slice/garden.service/garden/8b0ad8a9-54f7-4aa0-5b0c-9a2f".to_owned(),
            "8b0ad8a9-54f7-4aa0-5b0c-9a2f".to_owned(),
        ),
        (format!("/kubepods/podUID/kata_{ID}"), format!("kata_{ID}")),
    ] {
        let (runtime, found, _) = one(&path, "");
        assert_eq!((runtime, found), (Runtime::Engine, name), "{path}");
    }
    for path in [
        format!("/ecs/{task}"),
        format!("/other/{task}-7"),
        format!("/{task}/{task}-x"),
        "/buildkit/short".to_owned(),
        "/kata_overhead".to_owned(),
    ] {
        assert_eq!(told(&path), [], "{path}");
    }
}

#[test]
fn pods_are_told_by_their_groups() {
    let pod = Some(UID.to_owned());
    let slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod";
    let uid = "2c48913c_b29f_11e7_9350_020968147796";
    for (path, runtime) in [
        (format!("{slices}{uid}.slice/cri-containerd-ID.scope"), Runtime::Containerd),
        (format!("{slices}{uid}.slice/crio-ID.scope"), Runtime::Crio),
        (format!("{slices}{uid}.slice/docker-ID.scope"), Runtime::Docker),
        // Guaranteed pods have no class; kind and k0s put a prefix in front.
        (format!("/kubepods.slice/kubepods-pod{uid}.slice/crio-ID.scope"), Runtime::Crio),
        (
            format!("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{uid}.slice/cri-containerd-ID.scope"),
            Runtime::Containerd,
        ),
        ("/kubepods/burstable/podUID/ID".to_owned(), Runtime::Engine),
        ("/kubepods/podUID/ID".to_owned(), Runtime::Engine),
        (
            format!("/system.slice/containerd.service/kubepods-besteffort-pod{uid}.slice:cri-containerd:ID"),
            Runtime::Containerd,
        ),
    ] {
        assert_eq!(one(&path, ""), (runtime, ID.to_owned(), pod.clone()), "{path}");
    }
    // Static pods: the digest of their file.
    let path = "/kubepods/burstable/pod6cb9d2ad6f1b6f8f3d5a2e2a2b4a7c77/ID";
    let (.., pod) = one(path, "");
    assert_eq!(pod.as_deref(), Some("6cb9d2ad6f1b6f8f3d5a2e2a2b4a7c77"));
    // podman's.
    let path = "/machine.slice/machine-libpod_pod_ba3fe7a727ac.slice/libpod-ID.scope";
    assert_eq!(
        one(path, ""),
        (
            Runtime::Podman,
            ID.to_owned(),
            Some("ba3fe7a727ac".to_owned())
        )
    );
    let cgroupfs = told("/libpod_parent/OTHER/libpod-ID");
    assert_eq!(cgroupfs.len(), 1, "a pod is no container: {cgroupfs:?}");
    assert_eq!(cgroupfs[0].3.as_deref(), Some(OTHER));
}

#[test]
fn machines_and_lxc_have_names() {
    for (path, runtime, name) in [
        (
            "/machine.slice/machine-deb13.scope",
            Runtime::Nspawn,
            "deb13",
        ),
        (
            "/machine.slice/machine-my\\x2dbox.scope",
            Runtime::Nspawn,
            "my-box",
        ),
        (
            "/machine.slice/systemd-nspawn@deb13.service",
            Runtime::Nspawn,
            "deb13",
        ),
        ("/lxc.payload.nest", Runtime::Lxc, "nest"),
        (
            "/user.slice/user-1000.slice/user@1000.service/lxc.payload.nest",
            Runtime::Lxc,
            "nest",
        ),
        ("/lxc/nest", Runtime::Lxc, "nest"),
        ("/lxc.payload/nest", Runtime::Lxc, "nest"),
        ("/system.slice/crun-box.scope", Runtime::Crun, "box"),
        ("/system.slice/runc-box.scope", Runtime::Runc, "box"),
    ] {
        assert_eq!(
            one(path, "/init.scope"),
            (runtime, name.to_owned(), None),
            "{path}"
        );
    }
}

#[test]
fn what_watches_is_in_no_container() {
    for path in [
        "/",
        "",
        "/init.scope",
        "/user.slice/user-1000.slice/session-3.scope",
        "/system.slice/docker.service",
        "/system.slice/containerd.service",
        "/machine.slice/libpod-conmon-ID.scope",
        "/kubepods.slice/kubepods-podUID.slice/crio-conmon-ID.scope",
        "/lxc.monitor.nest",
        "/lxc.pivot",
        "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope",
        "/system.slice/docker-.scope",
        "/system.slice/docker-xyz.scope",
        "/libpod_parent/conmon",
    ] {
        assert_eq!(told(path), [], "{path}");
    }
    // nspawn itself, beside what it runs.
    let unit = "/machine.slice/systemd-nspawn@deb13.service";
    assert_eq!(one(unit, "/payload/init.scope").0, Runtime::Nspawn);
    let supervisor = told(&format!("{unit}/supervisor"));
    assert_eq!(supervisor.len(), 1);
}

#[test]
fn containers_in_containers_are_all_told() {
    let all = told("/system.slice/docker-ID.scope/docker/OTHER/init");
    let names: Vec<&str> = all.iter().map(|(_, name, ..)| name.as_str()).collect();
    assert_eq!(names, [ID, OTHER]);
    assert!(all[1].2.ends_with(OTHER));
    let kind = told("/docker/ID/kubelet/kubepods/burstable/podUID/OTHER");
    assert_eq!((kind[0].0, kind[1].0), (Runtime::Docker, Runtime::Engine));
    assert_eq!((&kind[0].3, kind[1].3.as_deref()), (&None, Some(UID)));
    let podman = told("/lxc.payload.nest/machine.slice/libpod-ID.scope/container");
    assert_eq!((podman[0].0, podman[1].0), (Runtime::Lxc, Runtime::Podman));
}

#[test]
fn the_user_is_whose_systemd_made_the_group() {
    let user = |path: &str| places(&path.replace("ID", ID)).pop().unwrap().user;
    let rootless = "/user.slice/user-1000.slice/user@1000.service/user.slice";
    assert_eq!(
        user(&format!("{rootless}/libpod-ID.scope/container")),
        Some(1000)
    );
    assert_eq!(user(&format!("{rootless}/docker-ID.scope")), Some(1000));
    assert_eq!(
        user("/user.slice/user-0.slice/session-1.scope/docker/ID"),
        None
    );
    assert_eq!(user("/machine.slice/libpod-ID.scope"), None);
}

#[test]
fn services_are_units_of_the_machine() {
    let ssh = "/system.slice/ssh.service";
    assert_eq!(service(ssh), Some(("ssh.service".to_owned(), ssh.len())));
    let below = format!("{ssh}/worker/a.service");
    assert_eq!(service(&below), Some(("ssh.service".to_owned(), ssh.len())));
    let of_user = "/user.slice/user-1000.slice/user@1000.service/app.slice/my\\x2dapp.service";
    assert_eq!(
        service(of_user),
        Some(("my-app.service".to_owned(), of_user.len()))
    );
    assert_eq!(service("/user.slice/user-1000.slice/session-3.scope"), None);
}

#[test]
fn escapes_are_undone_and_others_left() {
    for (text, plain) in [
        ("a\\x2db", "a-b"),
        ("\\x", "\\x"),
        ("\\xzz\\x20", "\\xzz "),
        ("\\xé", "\\xé"),
        ("\\xc3\\xa9", "é"),
    ] {
        assert_eq!(unescape(text), plain, "{text}");
    }
}

proptest! {
    /// Whatever a path holds, its places are within it, one after the other.
    #[test]
    fn any_path_is_walked(path in "(/(\\PC{0,8}|libpod-[0-9a-f]{12}|lxc|docker-[0-9a-f]{64}.scope|pod[0-9a-f]{32}|\\\\x[0-9a-z]{0,2}))*") {
        let mut before = 0;
        for place in places(&path) {
            prop_assert!(place.end > before && path.get(..place.end).is_some());
            before = place.end;
        }
        let _ = service(&path);
    }
}
