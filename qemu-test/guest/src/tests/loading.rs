// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: the module says what it is, and goes only when no task is in it any more.

use crate::module::{self, Module};
use crate::oracle::{within, SOON};
use crate::session::{errno, Session, RING_BYTES};
use crate::sys::{self, Forked, NeverThere};
use nix::libc;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nsprobe_common::abi;
use std::fs;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What `modinfo` finds in the module's file.
fn told(field: &str) -> Vec<String> {
    let got = Command::new("modinfo")
        .args(["-F", field, module::FILE])
        .output();
    let got = got.expect("kmod is in the guest");
    assert!(got.status.success(), "{got:?}");
    let text = String::from_utf8(got.stdout).expect("a text");
    text.lines().map(str::to_owned).collect()
}

/// The entries of a folder, by name.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("ASCII"))
        .collect();
    names.sort_unstable();
    names
}

test! { full, the_module_says_what_it_is_and_what_it_takes, module }
fn the_module_says_what_it_is_and_what_it_takes() {
    assert_eq!(told("license"), ["GPL v2"]);
    assert_eq!(told("intree"), [""; 0]);
    for field in ["author", "description"] {
        let told = told(field);
        assert!(told.len() == 1 && told[0].len() > 10, "{field}: {told:?}");
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let vermagic = format!("{} SMP", release.trim());
    assert!(told("vermagic")[0].starts_with(&vermagic), "{vermagic}");
    let _module = Module::load();
    let mut described = Vec::new();
    for line in told("parm") {
        let (name, text) = line.split_once(':').expect("a name and a text");
        assert!(text.split(' ').count() > 3, "{line}");
        described.push(name.to_owned());
    }
    described.sort_unstable();
    assert_eq!(described, names("/sys/module/nsprobe/parameters"));
    // Out of tree and not signed, nothing else.
    let taint = fs::read_to_string("/sys/module/nsprobe/taint").expect("it is loaded");
    assert_eq!(taint.trim().trim_matches(['O', 'E']), "", "{taint}");
}

/// A process whose one thread sleeps in a system call with the device, while another one has
/// closed its only descriptor: the call alone holds the file. Killed with the value.
struct Sleeper(i32);

impl Sleeper {
    /// `call` is the system call with this number.
    fn new(number: i64, call: fn(RawFd)) -> Sleeper {
        let Forked::Parent(pid) = sys::fork().expect("fork") else {
            let session = Session::with_rings(RING_BYTES);
            let fd = session.as_raw_fd();
            let thread = std::thread::spawn(move || call(fd));
            let this = std::process::id() as i32;
            // What is not so is seen by the parent.
            within(SOON, || is_in_call(this, number));
            drop(session);
            let _ = thread.join();
            sys::exit_now(0)
        };
        let sleeper = Sleeper(pid);
        let is_alone = || is_in_call(pid, number) && !has_the_device(pid);
        let is_alone = within(SOON, is_alone);
        assert!(is_alone, "it does not sleep");
        sleeper
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGKILL);
        sys::wait(self.0);
    }
}

/// Whether a thread of a process sleeps in this system call.
fn is_in_call(pid: i32, number: i64) -> bool {
    let tasks = format!("/proc/{pid}/task");
    names(&tasks).iter().any(|task| {
        let call = fs::read_to_string(format!("{tasks}/{task}/syscall"));
        call.is_ok_and(|call| call.starts_with(&format!("{number} ")))
    })
}

fn has_the_device(pid: i32) -> bool {
    let folder = format!("/proc/{pid}/fd");
    names(&folder).iter().any(|fd| {
        let file = fs::read_link(format!("{folder}/{fd}"));
        file.is_ok_and(|file| file == Path::new(abi::DEVICE))
    })
}

fn stays_while_asleep(number: i64, call: fn(RawFd)) {
    let module = Module::load();
    let sleeper = Sleeper::new(number, call);
    assert_eq!(module.references(), 1);
    for _ in 0..20 {
        assert_eq!(errno(module.try_unload(), "rmmod"), libc::EAGAIN);
    }
    drop(sleeper);
    let is_free = || module.references() == 0;
    assert!(within(Duration::from_secs(60), is_free), "it is held");
}

test! { full, unload_is_refused_while_a_poll_sleeps, module }
fn unload_is_refused_while_a_poll_sleeps() {
    stays_while_asleep(libc::SYS_poll, sys::poll_for_ever);
}

test! { full, unload_is_refused_while_a_request_sleeps, module }
/// In the midst of a request, as its argument does not come.
fn unload_is_refused_while_a_request_sleeps() {
    stays_while_asleep(libc::SYS_ioctl, |fd| {
        let argument = NeverThere::new();
        let _ = sys::ioctl_wild(&fd, abi::INFO.into(), argument.address());
    });
}
