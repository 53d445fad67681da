// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that joins: it sees the target's file and not the decoy at the
//! same path, it stays below the target's root, and it leaves nothing after.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use nsprobe_containers::{
    open_here, open_in, FileKind, MountView, OpenedFile, Opener, Process, TargetError,
};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{symlink, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The tests count the opener's threads: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nsprobe-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path.canonicalize().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ran `script` and waits; killed when dropped.
struct Target(Child);

impl Target {
    fn start(program: &str, arguments: &[&str], script: &str) -> Target {
        let script = format!("{script}\necho ready\nexec sleep 60");
        let mut child = Command::new(program)
            .args(arguments)
            .args(["sh", "-ec", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Target(child)
    }

    /// In a mount namespace of its own.
    fn elsewhere(script: &str) -> Target {
        Target::start("unshare", &["--mount"], script)
    }

    /// In our mount namespace.
    fn here() -> Target {
        Target::start("env", &[], "")
    }

    fn process(&self) -> Process {
        Process::open(self.0.id()).unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(mut opened: OpenedFile) -> String {
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    text
}

/// How many threads of the opener's are left in this process.
fn openers() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "nsprobe-open")
        .count()
}

fn our_namespace() -> PathBuf {
    fs::read_link("/proc/thread-self/ns/mnt").unwrap()
}

#[test]
fn the_targets_file_is_opened_and_not_the_decoy() {
    let _alone = alone();
    if !nsprobe_testing::root("joining mount namespaces") {
        return;
    }
    let folder = Folder::new("decoy");
    let decoy = folder.file("app/binary", "decoy");
    folder.file("real/binary", "real");
    let root = folder.0.display();
    let target = Target::elsewhere(&format!("mount --bind {root}/real {root}/app"));
    let before = our_namespace();

    let process = target.process();
    let opened = open_in(&process, &decoy).unwrap();
    assert_eq!(opened.size, 4);
    assert_eq!(opened.ino, opened.file.metadata().unwrap().ino());
    assert_eq!(text(opened), "real");
    assert_eq!(text(open_here(&decoy).unwrap()), "decoy");
    assert_ne!(
        process.mount_namespace().unwrap(),
        Process::open(std::process::id())
            .unwrap()
            .mount_namespace()
            .unwrap()
    );
    assert_eq!((openers(), our_namespace()), (0, before));

    // A path that only the host has is none of the target's.
    let hidden = folder.file("app/host-only", "host");
    let error = open_in(&process, &hidden).unwrap_err();
    assert!(matches!(error, TargetError::NotFound { .. }), "{error}");
}

#[test]
fn a_hundred_round_trips_always_give_the_right_file() {
    let _alone = alone();
    if !nsprobe_testing::root("joining mount namespaces") {
        return;
    }
    let folder = Folder::new("trips");
    let binary = folder.file("app/binary", "host");
    let root = folder.0.display();
    let targets: Vec<Target> = (0..4)
        .map(|i| {
            folder.file(&format!("real{i}/binary"), &i.to_string());
            Target::elsewhere(&format!("mount --bind {root}/real{i} {root}/app"))
        })
        .collect();
    let before = our_namespace();
    std::thread::scope(|scope| {
        for (i, target) in targets.iter().enumerate() {
            let (process, binary) = (target.process(), &binary);
            scope.spawn(move || {
                for _ in 0..25 {
                    assert_eq!(text(open_in(&process, binary).unwrap()), i.to_string());
                }
            });
        }
    });
    assert_eq!((openers(), our_namespace()), (0, before));
}

#[test]
fn a_target_in_our_own_namespace_works_the_same_way() {
    let _alone = alone();
    let folder = Folder::new("own");
    let binary = folder.file("binary", "mine");
    let target = Target::here();
    assert_eq!(text(open_in(&target.process(), &binary).unwrap()), "mine");
}

#[test]
fn a_chrooted_target_is_asked_below_its_root() {
    let _alone = alone();
    if !nsprobe_testing::root("joining mount namespaces") {
        return;
    }
    let folder = Folder::new("chroot");
    folder.file("etc/secret", "inside");
    symlink("/etc/secret", folder.0.join("absolute")).unwrap();
    symlink("../../../../../etc/secret", folder.0.join("upwards")).unwrap();
    symlink("/etc/passwd", folder.0.join("escape")).unwrap();
    let root = folder.0.display();
    // The shell of the target comes with it.
    let target = Target::elsewhere(&format!(
        "cd {root}
        for d in bin lib lib64 usr; do mkdir -p $d; mount --bind /$d $d; done
        exec chroot {root} sh -c 'echo ready; exec sleep 60'"
    ));
    let process = target.process();
    for name in [
        "/etc/secret",
        "/absolute",
        "/upwards",
        "absolute",
        "/../../etc/secret",
    ] {
        let opened = open_in(&process, Path::new(name)).unwrap();
        assert_eq!(text(opened), "inside", "{name}");
    }
    let error = open_in(&process, Path::new("/escape")).unwrap_err();
    assert!(matches!(error, TargetError::NotFound { .. }), "{error}");
}

#[test]
fn whatever_is_no_regular_file_is_refused_by_name() {
    let _alone = alone();
    let folder = Folder::new("kinds");
    folder.file("binary", "text");
    let made = Command::new("mkfifo").arg(folder.0.join("fifo")).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(folder.0.join("socket")).unwrap();
    let target = Target::here();
    let process = target.process();
    let inside = |name: &str| folder.0.join(name);
    for (path, kind) in [
        (folder.0.clone(), FileKind::Directory),
        (inside("fifo"), FileKind::Fifo),
        (inside("socket"), FileKind::Socket),
        ("/dev/null".into(), FileKind::CharacterDevice),
        ("/proc/version".into(), FileKind::Virtual),
        ("/sys/kernel/notes".into(), FileKind::Virtual),
    ] {
        for error in [open_in(&process, &path), open_here(&path)].map(Result::unwrap_err) {
            assert!(
                matches!(error, TargetError::NotRegular { kind: found, .. } if found == kind),
                "{error}"
            );
        }
    }
    let error = open_in(&process, &inside("binary/below")).unwrap_err();
    assert!(matches!(error, TargetError::OpenFailed { .. }), "{error}");
}

/// Debug files are looked for in many places, and most of these do not exist.
#[test]
fn of_many_paths_those_that_are_there_are_opened() {
    let _alone = alone();
    let folder = Folder::new("many");
    let one = folder.file("one", "first");
    let two = folder.file("two", "second");
    let fifo = folder.0.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    symlink("/proc/self/exe", folder.0.join("magic")).unwrap();
    let paths = vec![
        folder.0.join("missing"),
        one.clone(),
        one.join("below"),
        fifo,
        folder.0.join("magic"),
        two,
    ];
    let target = Target::here();
    let opener = Opener::default();
    let inside = opener.open_all_in(&MountView::of(&target.process()).unwrap(), paths.clone());
    let mut opened = inside.unwrap().into_iter();
    let mut next = || opened.next().unwrap();
    assert_eq!(text(next().unwrap()), "first");
    let kind = FileKind::Fifo;
    assert!(matches!(next(), Err(TargetError::NotRegular { kind: found, .. }) if found == kind));
    assert!(matches!(next(), Err(TargetError::BadLink { .. })));
    assert_eq!(text(next().unwrap()), "second");
    assert_eq!(opened.count(), 0);
    assert_eq!(opener.open_all_here(paths).unwrap().len(), 4);
    assert_eq!(openers(), 0);
}

#[test]
fn links_that_loop_or_are_magic_are_refused() {
    let _alone = alone();
    let folder = Folder::new("links");
    symlink("loop", folder.0.join("loop")).unwrap();
    symlink("/proc/self/exe", folder.0.join("magic")).unwrap();
    let target = Target::here();
    let process = target.process();
    let magic = PathBuf::from(format!("/proc/{}/root/etc/passwd", process.pid()));
    for path in [folder.0.join("loop"), folder.0.join("magic"), magic] {
        let error = open_in(&process, &path).unwrap_err();
        assert!(matches!(error, TargetError::BadLink { .. }), "{error}");
    }
    // On our own behalf the link of procfs is what the user wrote.
    assert!(open_here(Path::new("/proc/self/exe")).is_ok());
}

#[test]
fn a_missing_file_tells_what_is_similar() {
    let _alone = alone();
    let folder = Folder::new("similar");
    let real = folder.file("sbin/redis-server", "x").display().to_string();
    let target = Target::here();
    for missing in ["sbin/redis-sever", "sbim/redis-server", "sbin/redis"] {
        let error = open_in(&target.process(), &folder.0.join(missing)).unwrap_err();
        let TargetError::NotFound { nearest, .. } = &error else {
            panic!("{error}");
        };
        assert!(real.starts_with(&nearest[0]), "{error}");
    }
}

#[test]
fn a_dead_target_is_an_error_and_not_the_hosts_file() {
    let _alone = alone();
    let folder = Folder::new("dead");
    let binary = folder.file("binary", "host");
    let target = Target::here();
    let process = target.process();
    drop(target);
    let error = open_in(&process, &binary).unwrap_err();
    assert!(matches!(error, TargetError::ProcessGone { .. }), "{error}");
}

#[test]
fn a_held_root_shows_its_mount_also_when_the_namespace_has_ended() {
    const O_PATH: i32 = 0o10000000;
    let _alone = alone();
    if !nsprobe_testing::root("joining mount namespaces") {
        return;
    }
    let folder = Folder::new("held");
    let here = folder.0.display();
    let target = Target::elsewhere(&format!(
        "mount -t tmpfs none {here}\necho kept > {here}/file\nmkdir {here}/sub\n\
         mount -t tmpfs none {here}/sub\necho other > {here}/sub/file"
    ));
    let pid = target.process().pid();
    let path = format!("/proc/{pid}/root{here}");
    let root = fs::File::options()
        .read(true)
        .custom_flags(O_PATH)
        .open(path);
    // Its process has another one by now, so nothing is known of a namespace.
    let mount_view = MountView::of_root(pid, OwnedFd::from(root.unwrap())).unwrap();
    let paths = ["/file", "/sub/file", "/missing"].map(PathBuf::from);
    let look = || {
        let opened = Opener::default().open_all_in(&mount_view, paths.to_vec());
        let mut opened = opened.unwrap().into_iter();
        assert_eq!(text(opened.next().unwrap().unwrap()).trim(), "kept");
        opened.next()
    };
    assert!(matches!(
        look(),
        Some(Err(TargetError::NamespaceEnded { .. }))
    ));
    drop(target);
    assert!(look().is_none(), "what was mounted there is gone");
    assert_eq!(openers(), 0);
}

#[test]
fn absurd_paths_are_errors() {
    let _alone = alone();
    let target = Target::here();
    let process = target.process();
    let long = "a/".repeat(4096);
    for path in ["", "/", ".", "..", "a\0b", "\n", long.as_str()] {
        open_in(&process, Path::new(path)).unwrap_err();
        open_here(Path::new(path)).unwrap_err();
    }
}

#[test]
fn the_limit_is_kept() {
    let _alone = alone();
    let target = Target::here();
    let opener = Opener {
        limit: Duration::ZERO,
    };
    // Either it was faster than we could ask, or it says that it was too slow.
    if let Err(error) = opener.open_in(&target.process(), Path::new("/bin/sh")) {
        assert!(matches!(error, TargetError::TimedOut { .. }), "{error}");
    }
    // The thread that nobody waited for ends all the same.
    while openers() > 0 {
        std::thread::yield_now();
    }
}
