// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a probe is in the file that was opened, whatever lies above it, and whatever becomes
//! of its mount and its device.

use super::capsule::Folder;
use crate::command;
use crate::module::Module;
use crate::oracle::{within, SOON};
use crate::records::Records;
use crate::session::{Session, RING_BYTES};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nsprobe_common::abi;
use nsprobe_common::record::Frame;
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FUNCTION: &str = "begins_with_push";
const PROGRAM: &str = "call_in_loop";

/// The victim at a path that another one's copy lies at.
fn started(file: &Path) -> Victim {
    Victim::start_command(Command::new(file).arg(FUNCTION), file)
}

fn inode(file: &Path) -> u64 {
    fs::metadata(file).expect("it is there").ino()
}

/// The inodes of the files that the hits of a probe since the last look were in.
fn hit_inodes(session: &Session, probe: u32) -> BTreeSet<u64> {
    let records = Records::of(session);
    let objects = records.hits_of(probe).map(|(_, frames)| {
        let Frame::Object { id, .. } = frames[0] else {
            panic!("{frames:?}")
        };
        session.object(id, 0).expect("known").identity.ino
    });
    objects.collect()
}

/// What a command prints; panics when it fails.
fn done(program: &str, words: &[&str]) -> String {
    let got = Command::new(program).args(words).output();
    let got = got.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(got.status.success(), "{program} {words:?}: {got:?}");
    String::from_utf8(got.stdout).expect("a text")
}

/// What is mounted there, until this is dropped.
pub(super) struct Mounted(pub(super) PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// An overlay whose lower layer has the program.
struct Overlay {
    merged: Mounted,
    folder: Folder,
}

impl Overlay {
    fn new() -> Overlay {
        let folder = Folder::with_tmpfs("overlay", 16 << 20);
        let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
            let path = folder.path(name);
            fs::create_dir(&path).expect("there is room");
            path
        });
        fs::copy(victim::path(PROGRAM), Path::new(&lower).join(PROGRAM)).expect("there is room");
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let (kind, flags) = (Some("overlay"), MsFlags::empty());
        let mounted = mount(kind, merged.as_str(), kind, flags, Some(options.as_str()));
        mounted.expect("root mounts");
        Overlay {
            merged: Mounted(merged.into()),
            folder,
        }
    }

    fn program(&self) -> PathBuf {
        self.merged.0.join(PROGRAM)
    }

    fn in_layer(&self, layer: &str) -> PathBuf {
        Path::new(&self.folder.path(layer)).join(PROGRAM)
    }
}

test! { full, a_file_that_is_copied_up_keeps_its_probes_and_the_copy_has_none, module }
/// As a change of its mode does: who runs already has the file below, who starts then the copy.
fn a_file_that_is_copied_up_keeps_its_probes_and_the_copy_has_none() {
    let _module = Module::load();
    let overlay = Overlay::new();
    let program = overlay.program();
    let mut before = started(&program);
    let function = before.function(FUNCTION);
    let session = Session::with_rings(RING_BYTES);
    let below = session.probe(&program, &function, abi::PROBE_STACK);
    let witness = Witness::new(&program, function.offset);
    assert_eq!(before.call(10), 10);
    fs::set_permissions(&program, Permissions::from_mode(0o700)).expect("it is ours");
    let copy = overlay.in_layer("upper");
    assert!(copy.exists(), "it is not copied up");
    before.call(10);
    let mut after = started(&program);
    after.call(7);
    assert!(
        after.text_is_restored(function.offset),
        "the copy has a breakpoint"
    );
    assert_eq!((session.counters(below).hits, witness.hits()), (20, 20));
    let original = inode(&overlay.in_layer("lower"));
    assert_eq!(hit_inodes(&session, below), BTreeSet::from([original]));
    // The same path is the copy now.
    let above = session.probe(&program, &function, abi::PROBE_STACK);
    after.call(7);
    before.call(1);
    let hits = [below, above].map(|id| session.counters(id).hits);
    assert_eq!(hits, [21, 7]);
    assert_eq!(hit_inodes(&session, above), BTreeSet::from([inode(&copy)]));
    drop((session, witness));
    for victim in [&before, &after] {
        assert!(victim.text_is_restored(function.offset));
    }
}

test! { core, what_a_process_has_mapped_is_probed_whatever_lies_at_its_path }
/// As after an upgrade, and below a mount. Once that was "0 hits", or "no file".
fn what_a_process_has_mapped_is_probed_whatever_lies_at_its_path() {
    let _module = Module::load();
    let folder = Folder::new("replaced");
    let [own, next] = [PROGRAM, "next"].map(|name| folder.path(name));
    fs::copy(victim::path(PROGRAM), &own).expect("there is room");
    // It need not be the same program.
    fs::copy(victim::path("leaves"), &next).expect("there is room");
    let mut running = started(own.as_ref());
    let pid = running.pid().to_string();
    let spec = format!("{own}:{FUNCTION}");
    let got = command::run(&["count", &spec, "--", "/bin/mv", &next, &own]).succeeded();
    assert!(got.stderr.contains("another file came to"), "{got:#?}");
    let is_armed = |told: &str| {
        let got = command::run(&["verify", "-p", &pid, &spec]);
        println!("{got:#?}");
        assert!(got.stdout.contains("armed in 1 of 1 mapping"), "{got:#?}");
        assert!(got.code == 0 && got.stderr.contains(told), "{got:#?}");
    };
    is_armed("means both");
    // All processes are many: there it is only told.
    let got = command::run(&["verify", &format!("{own}:via_deep")]);
    assert!(
        got.stdout.contains("another file than is at the path"),
        "{got:#?}"
    );
    assert_eq!(got.code, 1, "{got:#?}");
    let above = Mounted(folder.path("").into());
    let (kind, flags) = (Some("tmpfs"), MsFlags::empty());
    mount(kind, &above.0, kind, flags, None::<&str>).expect("root mounts");
    is_armed("but process");
    assert_eq!(running.call(10), 10);
}

test! { full, a_file_in_an_idmapped_mount_is_the_file, module }
/// Its owner is another one there; a probe that was put into it there, or where the mount was
/// made from, is in both.
fn a_file_in_an_idmapped_mount_is_the_file() {
    const OWNER: u32 = 100_000;
    let _module = Module::load();
    let folder = Folder::with_tmpfs("idmapped", 8 << 20);
    let [real, shown] = ["real", "shown"].map(|name| {
        let path = folder.path(name);
        fs::create_dir(&path).expect("there is room");
        path
    });
    let map = format!("X-mount.idmap=b:0:{OWNER}:65536");
    done("mount", &["--bind", "-o", &map, &real, &shown]);
    let mounted = Mounted(shown.into());
    let (real, shown) = (Path::new(&real).join(PROGRAM), mounted.0.join(PROGRAM));
    fs::copy(victim::path(PROGRAM), &real).expect("there is room");
    assert_eq!(fs::metadata(&shown).expect("it is there").uid(), OWNER);
    let mut victims = [started(&real), started(&shown)];
    let function = victims[0].function(FUNCTION);
    let witness = Witness::new(&real, function.offset);
    let session = Session::with_rings(RING_BYTES);
    let probes = [&real, &shown].map(|file| session.probe(file, &function, abi::PROBE_STACK));
    for (victim, calls) in victims.iter_mut().zip([10, 5]) {
        victim.call(calls);
    }
    let hits = probes.map(|id| session.counters(id).hits);
    assert_eq!((hits, witness.hits()), ([15, 15], 15));
    assert_eq!(
        hit_inodes(&session, probes[1]),
        BTreeSet::from([inode(&real)])
    );
}

/// A device over a file; given up with the value.
struct LoopDevice {
    image: String,
    device: String,
}

impl LoopDevice {
    /// With a file system in it.
    fn new(image: String) -> LoopDevice {
        let file = File::create(&image).expect("there is room");
        file.set_len(8 << 20).expect("there is room");
        done("busybox", &["mke2fs", "-F", &image]);
        done("modprobe", &["loop"]);
        let device = done("losetup", &["--find", "--show", &image]);
        LoopDevice {
            image,
            device: device.trim().to_owned(),
        }
    }

    /// As soon as it has no user.
    fn give_up(&self) {
        done("losetup", &["--detach", &self.device]);
    }

    fn is_there(&self) -> bool {
        !done("losetup", &["--associated", &self.image]).is_empty()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.is_there() {
            self.give_up();
        }
    }
}

test! { full, a_file_whose_device_is_detached_is_let_go, module }
fn a_file_whose_device_is_detached_is_let_go() {
    a_device_is_let_go(started);
}

test! { full, the_root_of_a_process_is_let_go, module }
/// What a stack went through is opened in the root of its process, which the session holds.
fn the_root_of_a_process_is_let_go() {
    a_device_is_let_go(|program| {
        let root = program.parent().expect("it is in a folder");
        for library in [
            "lib64/ld-linux-x86-64.so.2",
            "lib/x86_64-linux-gnu/libc.so.6",
        ] {
            let copy = root.join(library);
            fs::create_dir_all(copy.parent().expect("a folder")).expect("there is room");
            fs::copy(Path::new("/").join(library), copy).expect("there is room");
        }
        let own = Path::new("/").join(PROGRAM);
        let mut command = Command::new("chroot");
        Victim::start_command(command.arg(root).arg(own).arg(FUNCTION), program)
    });
}

/// The probe of a program holds the device that it is on, and nothing does when the probe is
/// gone.
fn a_device_is_let_go(start: impl FnOnce(&Path) -> Victim) {
    let _module = Module::load();
    let folder = Folder::new("loop");
    let device = LoopDevice::new(folder.path("image"));
    let place = folder.path("mounted");
    fs::create_dir(&place).expect("there is room");
    done("mount", &["-t", "ext4", &device.device, &place]);
    let mounted = Mounted(place.into());
    let program = mounted.0.join(PROGRAM);
    fs::copy(victim::path(PROGRAM), &program).expect("there is room");
    let mut victim = start(&program);
    let function = victim.function(FUNCTION);
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(&program, &function, abi::PROBE_STACK);
    let witness = Witness::new(&program, function.offset);
    victim.call(10);
    drop(mounted);
    device.give_up();
    assert!(!program.exists(), "it is mounted");
    victim.call(10);
    assert_eq!((session.counters(id).hits, witness.hits()), (20, 20));
    drop((victim, witness));
    std::thread::sleep(Duration::from_millis(100));
    assert!(device.is_there(), "the probe does not hold it");
    session.detach(&[id]).expect("it is attached");
    // The session has the file itself as well, until its reader asks for it.
    drop(session);
    let is_gone = within(SOON, || !device.is_there());
    assert!(is_gone, "it is held");
}
