// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a file is opened in the mount namespace that was meant, however many threads go
//! to however many namespaces, and none of them stays there. It is the product's own code
//! that goes there (`nsprobe_target`).

use super::{figure, must_refuse, reached, Progress};
use crate::sys::{self, Forked};
use nix::mount::{mount, MsFlags};
use nix::sched::{unshare, CloneFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nsprobe_target::{open_in, Opener, Process};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PART: &str = "namespace_trips";
const TRIPS: u64 = 50_000;
const THREADS: u64 = 8;
const NAMESPACES: u64 = 200;

/// Processes, each in a mount namespace of its own, with a file of its own at one path.
struct Namespaces {
    folder: PathBuf,
    pids: Vec<i32>,
}

impl Namespaces {
    /// The process has one thread while they are made.
    fn new(count: u64) -> Namespaces {
        let folder = PathBuf::from("/var/tmp/soak-namespaces");
        // One that was killed leaves it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("seen")).expect("/var/tmp is writable");
        fs::write(folder.join("seen/canary"), "host").expect("/var/tmp is writable");
        let mut namespaces = Namespaces {
            folder,
            pids: Vec::new(),
        };
        for number in 0..count {
            let own = namespaces.folder.join(number.to_string());
            fs::create_dir(&own).expect("/var/tmp is writable");
            fs::write(own.join("canary"), text(number)).expect("there is room");
            let (mut ready, mut tell) = std::io::pipe().expect("a pipe");
            match sys::fork().expect("fork") {
                Forked::Child => {
                    drop(ready);
                    let there = stay_in(&own, &namespaces.seen());
                    let _ = tell.write_all(&[u8::from(there.is_ok())]);
                    loop {
                        std::thread::park();
                    }
                }
                Forked::Parent(pid) => namespaces.pids.push(pid),
            }
            drop(tell);
            let mut told = [0];
            ready.read_exact(&mut told).expect("the child tells");
            assert_eq!(told, [1], "namespace {number}");
        }
        namespaces
    }

    fn seen(&self) -> PathBuf {
        self.folder.join("seen")
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for &pid in &self.pids {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            sys::wait(pid);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Goes into a namespace of its own, where `own` lies over `seen`.
fn stay_in(own: &Path, seen: &Path) -> nix::Result<()> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some(own), seen, none, MsFlags::MS_BIND, none)
}

fn text(number: u64) -> String {
    format!("the canary of namespace {number}")
}

/// One trip: whether the file there is that of the namespace.
fn trip(process: &Process, canary: &Path, wanted: &str) -> Result<(), String> {
    // A machine that is busy with all of this may take more than the usual two seconds.
    let opener = Opener {
        limit: Duration::from_secs(60),
    };
    let opened = opener.open_in(process, canary);
    let mut opened = opened.map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = opened.file.read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    match text == wanted {
        true => Ok(()),
        false => Err(format!("{text:?} is not {wanted:?}")),
    }
}

/// What a thread that stayed would change: our namespace, descriptors, and threads.
fn here() -> (PathBuf, usize, usize) {
    let count = |folder: &str| fs::read_dir(folder).expect("/proc is mounted").count();
    (
        fs::read_link("/proc/thread-self/ns/mnt").expect("/proc is mounted"),
        count("/proc/self/fd"),
        count("/proc/self/task"),
    )
}

pub(super) fn every_trip_ends_where_it_should() {
    let asked = figure(TRIPS);
    let namespaces = Namespaces::new(figure(NAMESPACES).max(THREADS));
    let canary = namespaces.seen().join("canary");
    let processes: Vec<Process> = namespaces
        .pids
        .iter()
        .map(|&pid| Process::open(pid as u32).expect("it lives"))
        .collect();
    let before = here();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut progress = Progress::new(PART, asked);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= asked {
                        break;
                    }
                    // Neighbours go to different namespaces, and each comes to all of them.
                    let index = number % processes.len() as u64;
                    let process = &processes[index as usize];
                    trip(process, &canary, &text(index)).expect("the right namespace");
                    progress.at(done.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    assert_eq!(here(), before, "namespace, descriptors and threads");
    assert_eq!(fs::read_to_string(&canary).expect("ours"), "host");
    must_refuse(
        PART,
        "another namespace's file",
        trip(&processes[1], &canary, &text(0)),
    );
    let ours = Process::open(std::process::id()).expect("we live");
    must_refuse(PART, "the host's file", trip(&ours, &canary, &text(0)));
    let opened = open_in(&processes[0], &canary).expect("within the usual time");
    drop(opened);
    let done = done.into_inner();
    println!(
        "soak: {PART}: {done} trips to {} namespaces by {THREADS} threads, all of them right",
        processes.len()
    );
    reached(PART, asked, done, "trips");
}
