// SPDX-License-Identifier: MIT OR Apache-2.0
//! SBX-01: what a child cannot do, and what it is left with.

use crate::support::{options, CHILD};
use nsprobe_worker::{Sandbox, SandboxedBinary, Worker};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

fn attempt(what: &str) -> ExitStatus {
    let mut child = Command::new(CHILD);
    child.args(["attempt", what]).stdin(Stdio::null());
    child.status().unwrap()
}

#[test]
fn what_parsing_needs_is_possible() {
    for what in ["nothing", "memory"] {
        assert_eq!(attempt(what).code(), Some(0), "{what}");
    }
}

#[test]
fn all_else_ends_the_child_in_the_kernel() {
    for what in [
        "open",
        "openat",
        "openat2",
        "stat",
        "readlink",
        "socket",
        "connect",
        "ptrace",
        "process_vm_readv",
        "execve",
        "fork",
        "clone3",
        "mmap_exec",
        "mmap_file",
        "mprotect_exec",
        "kill",
        "abort_another",
        "prctl",
        "setuid",
        "unshare",
        "bpf",
        "perf_event_open",
        "io_uring",
        "memfd",
        "ioctl",
        "dup",
        "write_socket",
        "close_socket",
        "prlimit",
        "chroot",
        "mount",
        "pidfd_getfd",
    ] {
        let status = attempt(what);
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{what}: {status}");
    }
}

/// The lines `name: value` of a file in `/proc`.
fn status(path: PathBuf) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

#[test]
fn no_thread_of_a_child_has_any_privilege() {
    let worker = Worker::start(options()).unwrap();
    let own = PathBuf::from(format!("/proc/{}", worker.pid().unwrap()));
    let is_root = nsprobe_testing::root("a child with identities and namespaces of its own");
    let threads: Vec<_> = fs::read_dir(own.join("task")).unwrap().collect();
    assert_eq!(threads.len(), 2);
    for thread in threads {
        let status = status(thread.unwrap().path().join("status"));
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"] {
            if set != "CapBnd" || is_root {
                assert_eq!(status[set], "0000000000000000", "{set}");
            }
        }
        assert_eq!(status["NoNewPrivs"], "1");
        assert_eq!(status["Seccomp"], "2");
        if is_root {
            let nobody = "65534\t65534\t65534\t65534";
            assert_eq!((&*status["Uid"], &*status["Gid"]), (nobody, nobody));
            assert_eq!(status["Groups"], "");
        }
    }
    let limits = fs::read_to_string(own.join("limits")).unwrap();
    for (limit, value) in [
        ("Max core file size", "0"),
        ("Max file size", "0"),
        ("Max processes", "0"),
        ("Max open files", "2048"),
        ("Max address space", "4294967296"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        let mut values = line[limit.len()..].split_whitespace();
        assert_eq!(
            (values.next(), values.next()),
            (Some(value), Some(value)),
            "{limit}"
        );
    }
    if is_root {
        for name in ["net", "ipc", "uts"] {
            let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
            let pid = worker.pid().unwrap().to_string();
            assert_ne!(namespace(&pid), namespace("self"), "{name}");
        }
    }
}

/// What a child's descriptors are.
fn descriptors(worker: &Worker) -> Vec<String> {
    let folder = format!("/proc/{}/fd", worker.pid().unwrap());
    let links = fs::read_dir(folder).unwrap();
    let mut links: Vec<String> = links
        .map(|link| fs::read_link(link.unwrap().path()).unwrap())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    links.sort();
    links
}

#[test]
fn a_child_has_the_files_that_are_in_use_and_no_others() {
    // What our own starter may have left open.
    let left = File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).unwrap();
    let worker = Worker::start(options()).unwrap();
    let bare = descriptors(&worker);
    assert_eq!(bare[..2], ["/dev/null", "/dev/null"]);
    assert!(bare[2].starts_with("socket:"), "{bare:?}");
    assert_eq!(bare.len(), 3);

    let object =
        SandboxedBinary::open(&worker, File::open(CHILD).unwrap(), CHILD.as_ref()).unwrap();
    assert!(object.has_symbols());
    assert!(descriptors(&worker).contains(&CHILD.to_owned()));
    assert_eq!(descriptors(&worker).len(), 4);
    drop(object);
    assert_eq!(descriptors(&worker), bare);
    // A file that is refused is not kept either.
    SandboxedBinary::open(&worker, left, "passwd".as_ref()).unwrap_err();
    assert_eq!(descriptors(&worker), bare);
}

#[test]
fn a_child_ends_with_its_parent() {
    let worker = Worker::start(options()).unwrap();
    let own = format!("/proc/{}", worker.pid().unwrap());
    assert!(fs::exists(&own).unwrap());
    drop(worker);
    assert!(!fs::exists(&own).unwrap());
    // The thread that started it counts.
    let pid = std::thread::spawn(|| {
        let worker = Worker::start(options()).unwrap();
        let pid = worker.pid().unwrap();
        std::mem::forget(worker);
        pid
    });
    let pid = pid.join().unwrap();
    crate::support::soon(|| crate::support::is_dead(pid));
}

#[test]
fn without_a_sandbox_it_is_a_process_of_its_own_still() {
    let mut open = options();
    open.sandbox = Sandbox::None;
    let worker = Worker::start(open).unwrap();
    let status = status(format!("/proc/{}/status", worker.pid().unwrap()).into());
    assert_eq!(status["Seccomp"], "0");
    SandboxedBinary::open(&worker, File::open(CHILD).unwrap(), CHILD.as_ref()).unwrap();
}

#[test]
fn a_program_that_is_no_child_is_told() {
    let mut wrong = options();
    wrong.program = "/bin/true".into();
    let error = Worker::start(wrong).unwrap_err().to_string();
    assert!(error.contains("before it began"), "{error}");
}
