// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a child gives up whatever it could do, before it sees a byte of a container's file.
//!
//! Two steps, as a filter of system calls must be the last: [`prepare`] while there is one
//! thread, [`close_door`] in the thread that parses. What fails ends the child, but for
//! what only an unprivileged parent's child cannot do, and does not need to: give up a
//! user, namespaces and a bounding set that without capabilities are worth nothing.

use crate::filter;
use crate::process::Sandbox;
use nix::errno::Errno;
use nix::sched::{unshare, CloneFlags};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::unistd::{close, getppid, setgroups, setresgid, setresuid, Gid, Uid};
use rustix::process::{
    set_dumpable_behavior, set_parent_process_death_signal, DumpableBehavior, Signal,
};
use rustix::thread::{
    capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_name, set_no_new_privs, CapabilitySet, CapabilitySets,
};
use std::fmt::Display;
use std::fs;
use std::io::Stdin;
use std::os::fd::{AsFd, RawFd};

/// Memory that a child may map, in bytes.
const MEMORY_BYTES: u64 = 4 << 30;
/// Most descriptors that it has open: what the parent keeps open in it
/// ([`crate::worker::HELD_MAX`]), and what is open while a file is read.
const DESCRIPTORS_MAX: u64 = 2048;
/// The user and group that own nothing.
const NOBODY: u32 = 65534;
/// Capabilities that a kernel may know.
const CAPABILITIES_MAX: u32 = 64;

type Step = Result<(), String>;

/// Names the step that failed.
fn failed<E: Display>(step: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{step}: {error}")
}

/// The socket to the parent, which is our standard input.
pub(crate) fn take_socket() -> std::io::Result<Stdin> {
    let stdin = std::io::stdin();
    rustix::net::sockopt::socket_type(stdin.as_fd())?;
    Ok(stdin)
}

/// Gives up all privileges and enters the filter, in the thread that calls: for tests.
pub fn enter(parent: Option<i32>) -> Step {
    prepare(parent, Sandbox::Whole)?;
    close_door(Sandbox::Whole)
}

/// All but what the thread that parses must do itself.
pub(crate) fn prepare(parent: Option<i32>, sandbox: Sandbox) -> Step {
    // It would be called after the link that it was started by.
    set_name(c"nsprobe-parser").map_err(failed("name"))?;
    if sandbox == Sandbox::None {
        return die_with(parent);
    }
    // A child that runs out of memory because of a file shall be the first to go. Another user
    // could not write this any more. It is of no use where there is no such file.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    close_inherited()?;
    leave_namespaces()?;
    drop_bounding_set()?;
    become_nobody()?;
    drop_capabilities()?;
    set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    let closed = DumpableBehavior::NotDumpable;
    set_dumpable_behavior(closed).map_err(failed("dumpable"))?;
    // Becoming another user would clear it.
    die_with(parent)?;
    for (resource, limit) in [
        (Resource::RLIMIT_AS, MEMORY_BYTES),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX),
        (Resource::RLIMIT_MEMLOCK, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ] {
        lower(resource, limit)?;
    }
    Ok(())
}

/// Lowers a limit, unless it is lower.
fn lower(resource: Resource, limit: u64) -> Step {
    let (_, most) = getrlimit(resource).map_err(failed("resource limits"))?;
    let limit = limit.min(most);
    setrlimit(resource, limit, limit).map_err(failed("resource limits"))
}

/// The rest: no more threads and processes, no more system calls than the few.
pub(crate) fn close_door(sandbox: Sandbox) -> Step {
    if sandbox == Sandbox::None {
        return Ok(());
    }
    lower(Resource::RLIMIT_NPROC, 0)?;
    let sets = capabilities(None).map_err(failed("capabilities"))?;
    let all = sets.effective | sets.permitted | sets.inheritable;
    if !all.is_empty() {
        return Err(format!("capabilities are left: {all:?}"));
    }
    let program = filter::program(std::process::id()).map_err(failed("seccomp"))?;
    seccompiler::apply_filter_all_threads(&program).map_err(failed("seccomp"))
}

/// The end of the parent shall be ours, too.
fn die_with(parent: Option<i32>) -> Step {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("parent's death"))?;
    match parent {
        Some(parent) if getppid().as_raw() != parent => Err("the parent is gone".to_owned()),
        _ => Ok(()),
    }
}

/// Closes whatever the parent's starter left open: descriptors without FD_CLOEXEC.
fn close_inherited() -> Step {
    let names = fs::read_dir("/proc/self/fd").map_err(failed("descriptors"))?;
    let mut open: Vec<RawFd> = Vec::new();
    for name in names {
        let name = name.map_err(failed("descriptors"))?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // That of the folder is closed already.
        let _ = close(descriptor);
    }
    Ok(())
}

/// Own, empty namespaces of what is not filtered by descriptor.
fn leave_namespaces() -> Step {
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unless_forbidden(unshare(flags)).map_err(failed("namespaces"))
}

fn drop_bounding_set() -> Step {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // There are no more, or we may not.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => break,
            Err(errno) => return Err(failed("bounding set")(errno)),
        }
    }
    Ok(())
}

fn become_nobody() -> Step {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let changed = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user));
    unless_forbidden(changed).map_err(failed("another user"))
}

fn drop_capabilities() -> Step {
    clear_ambient_capability_set().map_err(failed("ambient capabilities"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(failed("capabilities"))
}

/// What needs privileges that we do not have is not needed.
fn unless_forbidden(done: nix::Result<()>) -> nix::Result<()> {
    match done {
        Err(Errno::EPERM | Errno::EINVAL | Errno::ENOSYS | Errno::ENOSPC) => Ok(()),
        done => done,
    }
}
