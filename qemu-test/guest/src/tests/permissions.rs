// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: only who may trace the whole host can, whatever the mode of the
//! device node.

use crate::lockdown::Lockdown;
use crate::module::Module;
use crate::records::Records;
use crate::run::ROLE;
use crate::session::{errno, open_device, probe_at, size, Session};
use crate::steps::{constant, step};
use crate::sys::{self, Forked};
use crate::victim::{self, Victim};
use nix::libc;
use nsprobe_common::abi::{self, Probe, Refusal};
use nsprobe_common::program::{Operation, Register};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, ExitCode};

const NOBODY: u32 = 65534;

/// Exits with the error number of opening the device, 0 for none.
pub(super) fn open() -> ExitCode {
    let error = open_device().err().and_then(|error| error.raw_os_error());
    ExitCode::from(error.unwrap_or(0) as u8)
}

/// The same as root of a new user namespace.
pub(super) fn open_in_user_namespace() -> ExitCode {
    sys::become_root_of_user_namespace().expect("user namespaces are there");
    open()
}

/// Exits with the number of the refusal to take the kernel's stack, 0 for none.
pub(super) fn take_kernel_stack() -> ExitCode {
    let file = victim::path("exit_soon");
    let function = crate::binary::function(&file, "short_work");
    let session = Session::with_rings(abi::RING_BYTES_MIN);
    let probe = probe_at(function.offset, abi::PROBE_KERNEL_STACK);
    let refused = session.attach(&file, probe).err();
    ExitCode::from(refused.map_or(0, |(_, reply)| reply.reason as u8))
}

/// The error number that a helper process gets.
fn opened_by(role: &str, prepare: impl FnOnce(&mut Command)) -> i32 {
    // The payload is not for everyone to read; a copy is.
    let program = format!("/tmp/opener-{}", std::process::id());
    fs::copy(std::env::current_exe().expect("/proc is mounted"), &program).expect("/tmp");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = Command::new(&program);
    command.args([ROLE, role]);
    prepare(&mut command);
    let status = command.status().expect("the helper starts");
    let _ = fs::remove_file(&program);
    status.code().expect("the helper ends by itself")
}

fn for_everyone() {
    let everyone = fs::Permissions::from_mode(0o666);
    fs::set_permissions(abi::DEVICE, everyone).expect("tests run as root");
}

test! { full, the_device_belongs_to_root_alone, module }
fn the_device_belongs_to_root_alone() {
    let _module = Module::load();
    let node = fs::metadata(abi::DEVICE).expect("it is there");
    assert_eq!((node.mode() & 0o777, node.uid(), node.gid()), (0o600, 0, 0));
    assert_eq!(opened_by("open", |_| {}), 0);
    assert_eq!(opened_by("open", |c| sys::as_user(c, NOBODY)), libc::EACCES);
}

test! { full, a_user_cannot_open_even_a_writable_device, module }
fn a_user_cannot_open_even_a_writable_device() {
    let _module = Module::load();
    for_everyone();
    assert_eq!(opened_by("open", |c| sys::as_user(c, NOBODY)), libc::EPERM);
    assert_eq!(opened_by("open", |_| {}), 0);
}

test! { core, root_of_a_user_namespace_cannot_open, module }
fn root_of_a_user_namespace_cannot_open() {
    let _module = Module::load();
    assert_eq!(opened_by("open-in-user-namespace", |_| {}), libc::EPERM);
    for_everyone();
    assert_eq!(opened_by("open-in-user-namespace", |_| {}), libc::EPERM);
}

test! { core, root_without_capabilities_cannot_open, module }
/// CAP_SYS_PTRACE is 19, CAP_SYS_ADMIN 21, CAP_PERFMON 38.
fn root_without_capabilities_cannot_open() {
    let module = Module::load();
    let without = |capabilities: &'static [u32]| {
        opened_by("open", |c| sys::without_capabilities(c, capabilities))
    };
    assert_eq!(without(&[19, 21, 38]), libc::EPERM);
    assert_eq!(without(&[21, 38]), libc::EPERM, "CAP_SYS_PTRACE alone");
    assert_eq!(without(&[19, 21]), libc::EPERM, "CAP_PERFMON alone");
    assert_eq!(without(&[21]), 0, "CAP_PERFMON and CAP_SYS_PTRACE");
    assert_eq!(without(&[19, 38]), 0, "CAP_SYS_ADMIN");
    module.unload();
    let _module = Module::load_with("paranoid=1");
    assert_eq!(without(&[21]), libc::EPERM, "no CAP_SYS_ADMIN");
    assert_eq!(without(&[19, 38]), 0, "CAP_SYS_ADMIN");
}

/// Requests that add to what a session sees, or hand out what it has seen: of a file, of which
/// `object` is known. How each ends.
fn requests_with_rights(session: &Session, path: &Path, object: u32) -> [(&'static str, i32); 7] {
    let file = File::open(path).expect("it is there");
    let place = crate::binary::function(path, "begins_with_push").offset;
    let mut unwind = abi::Unwind {
        size: size::<abi::Unwind>(),
        flags: abi::UNWIND_NONE,
        fd: file.as_raw_fd(),
        ..abi::Unwind::default()
    };
    let probe = session.attach(path, probe_at(place, 0));
    let program = session.upload(&[constant(0, 1)], b"");
    let table = session.table(abi::Table {
        kind: abi::TABLE_SUMS,
        rows: 1,
        ..abi::Table::default()
    });
    let outcomes = [
        ("ATTACH", probe.map(drop).map_err(|(error, _)| error)),
        ("FILTER", session.only(&[std::process::id()])),
        ("PROGRAM", program.map(drop).map_err(|(error, _)| error)),
        ("TABLE", table.map(drop)),
        (
            "UNWIND",
            sys::ioctl(session, abi::UNWIND, &mut unwind).map(drop),
        ),
        (
            "OBJECT for a file",
            session.object(object, abi::OBJECT_FD).map(drop),
        ),
        (
            "OBJECT for a root",
            session.object(object, abi::OBJECT_ROOT).map(drop),
        ),
    ];
    outcomes.map(|(name, outcome)| {
        let error = outcome.err().and_then(|error| error.raw_os_error());
        (name, error.unwrap_or(0))
    })
}

test! { core, a_descriptor_does_not_carry_rights_to_a_user, module }
/// Root has opened it: a user who got it may do none of what root may.
fn a_descriptor_does_not_carry_rights_to_a_user() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(abi::RING_BYTES_MIN);
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;
    let id = session.probe(victim.file(), &function, flags);
    victim.call(1);
    let objects = Records::of(&session).objects;
    let inode = fs::metadata(victim.file()).expect("it is there").ino();
    let object = objects.values().find(|of| of.identity.ino == inode);
    let object = object.expect("the victim's file").id;
    match sys::fork().expect("fork") {
        Forked::Child => {
            let is_user = sys::become_user(NOBODY).is_ok();
            let outcomes = requests_with_rights(&session, victim.file(), object);
            println!("as a user: {outcomes:?}");
            let refused = outcomes.iter().all(|(_, error)| *error == libc::EPERM);
            sys::exit_now(i32::from(!(is_user && refused)))
        }
        Forked::Parent(child) => assert_eq!(libc::WEXITSTATUS(sys::wait(child)), 0),
    }
    assert_eq!(session.info().probes, 1);
    victim.call(3);
    assert_eq!(session.counters(id).recorded, 4);
    let outcomes = requests_with_rights(&session, victim.file(), object);
    println!("as root: {outcomes:?}");
    assert!(outcomes.iter().all(|(_, error)| *error == 0));
}

test! { full, the_kernels_stack_is_for_those_who_may_see_it, module }
/// CAP_SYSLOG is 34.
fn the_kernels_stack_is_for_those_who_may_see_it() {
    let _module = Module::load();
    let by = |capabilities: &'static [u32]| {
        opened_by("take-kernel-stack", |c| {
            sys::without_capabilities(c, capabilities)
        })
    };
    assert_eq!(by(&[]), 0);
    assert_eq!(by(&[34]), Refusal::MayNotSeeKernel as i32);
}

test! { core, a_kernel_that_is_locked_down_lets_nothing_be_traced, module, needs = StockKernel }
/// Not even by root; what is attached already stays.
fn a_kernel_that_is_locked_down_lets_nothing_be_traced() {
    let _module = Module::load_with("allow_modify=1");
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(abi::RING_BYTES_MIN);
    let id = session.probe(victim.file(), &function, 0);
    let another = probe_at(function.offset, abi::PROBE_STACK);
    let attach = || session.attach(victim.file(), another);
    let mut bare = Session::open();
    let mut writer = Session::open();
    let setup = writer.setup(abi::RING_BYTES_MIN, abi::SETUP_MODIFY);
    setup.expect("the module allows it");
    let change = [
        constant(0, 1),
        step(Operation::SetRegister, 0, 0, 0, Register::Rdi as i32, 0),
    ];
    let change = Probe {
        entry_program: writer.upload(&change, b"").expect("a sound program"),
        max_writes: 1,
        ..probe_at(function.offset, 0)
    };
    let lockdown = Lockdown::begin();
    assert_eq!(errno(open_device(), "to open the device"), libc::EPERM);
    let refused = attach().map_err(|(error, _)| error);
    assert_eq!(errno(refused, "ATTACH"), libc::EPERM);
    let refused = bare.setup(abi::RING_BYTES_MIN, abi::SETUP_MODIFY);
    // Not before the rings are there, nor for who has the session already.
    assert_eq!(errno(refused, "SETUP to modify"), libc::EPERM);
    let refused = bare.setup(abi::RING_BYTES_MIN, 0);
    assert_eq!(errno(refused, "SETUP"), libc::EPERM);
    let refused = writer
        .attach(victim.file(), change)
        .map_err(|(error, _)| error);
    assert_eq!(errno(refused, "ATTACH of a writer"), libc::EPERM);
    drop(lockdown);
    attach().expect("a probe");
    open_device().expect("as before");
    let setup = bare.setup(abi::RING_BYTES_MIN, abi::SETUP_MODIFY);
    setup.expect("the module allows it");
    victim.call(3);
    assert_eq!(session.counters(id).recorded, 3);
}
