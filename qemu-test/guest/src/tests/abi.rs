// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: no request, however wrong, does more than fail with the error that
//! the interface names.

mod sizes;

use crate::binary::{self, Function};
use crate::command;
use crate::module::Module;
use crate::session::{errno, open_device, probe_at, requests, size, Session, PAGE};
use crate::sys;
use crate::victim::{self};
use nix::libc;
use nsprobe_common::abi::{
    self, Attach, Counters, Detach, Filter, Info, Object, Probe, Refusal, Setup, Version,
};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use zerocopy::{Immutable, IntoBytes};

/// A session with one probe that nobody hits.
pub(super) struct Prepared {
    pub(super) session: Session,
    pub(super) file: PathBuf,
    pub(super) function: Function,
    pub(super) id: u32,
}

pub(super) fn prepared() -> Prepared {
    let file = victim::path("exit_soon");
    let function = binary::function(&file, "short_work");
    let session = Session::with_rings(abi::RING_BYTES_MIN);
    let id = session.probe(&file, &function, 0);
    Prepared {
        session,
        file,
        function,
        id,
    }
}

test! { full, info_tells_what_the_module_is, module }
fn info_tells_what_the_module_is() {
    let _module = Module::load();
    let session = Session::open();
    let info = session.info();
    assert_eq!(info.version, Version::CURRENT as u32);
    assert!(info.version_min >= 1 && info.version_min <= info.version);
    assert_eq!(info.page_size as usize, PAGE);
    assert_eq!((info.sessions, info.probes), (1, 0));
    let wanted = abi::FEATURE_ENTRY
        | abi::FEATURE_STACK_FP
        | abi::FEATURE_FILTER_PID
        | abi::FEATURE_OBJECT_FD;
    assert_eq!(info.features & wanted, wanted);
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").expect("sysfs");
    let last = possible.trim().rsplit(['-', ',']).next().unwrap_or("0");
    assert_eq!(info.rings, last.parse::<u32>().expect("a CPU") + 1);
    assert!(info.release[0] != 0 && info.release[31] == 0);
    assert_eq!(Session::open().info().sessions, 2);
    assert_eq!(session.info().sessions, 1);
}

/// A request's bytes with a new `size`, followed by zeroes.
fn resized<T: IntoBytes + Immutable>(request: &T, new_size: u32) -> Vec<u64> {
    let mut words = vec![0u64; 1024];
    words.as_mut_bytes()[..size_of::<T>()].copy_from_slice(request.as_bytes());
    words.as_mut_bytes()[..4].copy_from_slice(&new_size.to_ne_bytes());
    words
}

/// The error number of a request with one of its words changed.
fn changed<T: IntoBytes + Immutable>(
    session: &Session,
    command: u32,
    request: &T,
    at: usize,
    value: u32,
) -> i32 {
    let mut words = resized(request, size::<T>());
    words.as_mut_bytes()[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    errno(
        sys::ioctl_bytes(session, command, &mut words),
        &format!("command {command:#x} with {value:#x} at {at}"),
    )
}

test! { core, unknown_flags_and_reserved_fields_are_refused, module }
fn unknown_flags_and_reserved_fields_are_refused() {
    use std::mem::offset_of;
    let _module = Module::load();
    let prepared = prepared();
    let ring_bytes = abi::RING_BYTES_MIN;
    let setup = Setup {
        ring_bytes,
        ..Setup::default()
    };
    let (flags, ids) = (abi::FILTER_SELF, [prepared.id]);
    let filter = Filter {
        flags,
        ..Filter::default()
    };
    let detach = Detach {
        ids: ids.as_ptr() as u64,
        count: 1,
        ..Detach::default()
    };
    let counters = Counters {
        probe: prepared.id,
        ..Counters::default()
    };
    let right = probe_at(prepared.function.offset, 0);
    let file = File::open(&prepared.file).expect("it is there");
    let fd = file.as_raw_fd();
    let attach = Attach {
        probes: &Probe { fd, ..right } as *const Probe as u64,
        count: 1,
        probe_size: size::<Probe>(),
        ..Attach::default()
    };
    for bit in 0..32 {
        let flag = 1u32 << bit;
        let none = Session::open();
        assert_eq!(
            changed(&none, abi::INFO, &Info::default(), 4, flag),
            libc::EINVAL
        );
        if flag & (abi::SETUP_MODIFY | abi::SETUP_OVERWRITE) == 0 {
            assert_eq!(changed(&none, abi::SETUP, &setup, 4, flag), libc::EINVAL);
        }
        if flag > abi::FILTER_NOT_PROGRAM {
            assert_eq!(changed(&none, abi::FILTER, &filter, 4, flag), libc::EINVAL);
        }
        let some = &prepared.session;
        if flag > abi::ATTACH_PARTIAL {
            assert_eq!(changed(some, abi::ATTACH, &attach, 4, flag), libc::EINVAL);
        }
        // All probes, and one of them, are two requests.
        assert_eq!(changed(some, abi::DETACH, &detach, 4, flag), libc::EINVAL);
        assert_eq!(
            changed(some, abi::COUNTERS, &counters, 4, flag),
            libc::EINVAL
        );
        // The file, the root directory and the end of both are three requests.
        let known = [abi::OBJECT_FD, abi::OBJECT_ROOT, abi::OBJECT_DROP];
        let both = abi::OBJECT_FD | abi::OBJECT_ROOT;
        for flag in [flag, both, both | abi::OBJECT_DROP] {
            if known.contains(&flag) {
                continue;
            }
            let object = Object {
                id: 1,
                ..Object::default()
            };
            assert_eq!(changed(some, abi::OBJECT, &object, 4, flag), libc::EINVAL);
        }
        let mut probe = probe_at(prepared.function.offset, 0);
        probe.flags = flag;
        // Of the others, some are for other kinds of probes, and what is left is unknown.
        let known = [abi::PROBE_KERNEL_STACK, abi::PROBE_MAY_HANG];
        if flag > abi::PROBE_AT_ENTRY && !known.contains(&flag) {
            refused(&prepared, probe, libc::EINVAL, Refusal::UnknownValue);
        }
    }
    let none = Session::open();
    let at = offset_of!(Setup, reserved);
    assert_eq!(changed(&none, abi::SETUP, &setup, at, 1), libc::EINVAL);
    let at = offset_of!(Filter, reserved2);
    assert_eq!(changed(&none, abi::FILTER, &filter, at, 1), libc::EINVAL);
    let at = offset_of!(Detach, reserved);
    assert_eq!(
        changed(&prepared.session, abi::DETACH, &detach, at, 1),
        libc::EINVAL
    );
    let probe = probe_at(prepared.function.offset, 0);
    for wrong in [
        Probe { call: 1, ..probe },
        Probe { kind: 0, ..probe },
        Probe { kind: 7, ..probe },
        Probe {
            kind: u32::MAX,
            ..probe
        },
        Probe { sink: 9, ..probe },
        Probe {
            max_frames: abi::FRAMES_MAX + 1,
            ..probe
        },
    ] {
        refused(&prepared, wrong, libc::EINVAL, Refusal::UnknownValue);
    }
    let semaphore = probe.offset | 1;
    let odd = Probe { semaphore, ..probe };
    refused(&prepared, odd, libc::EINVAL, Refusal::BadSemaphore);
    assert_eq!(prepared.session.info().probes, 1);
}

/// Asserts that a probe of the prepared file is refused.
pub(super) fn refused(prepared: &Prepared, probe: Probe, wanted: i32, reason: Refusal) {
    let (error, reply) = prepared
        .session
        .attach(&prepared.file, probe)
        .expect_err(&format!("{probe:?}"));
    let got = (error.raw_os_error(), Refusal::from_u32(reply.reason));
    assert_eq!(got, (Some(wanted), Some(reason)), "{probe:?}");
}

test! { full, unknown_commands_are_refused, module }
fn unknown_commands_are_refused() {
    let _module = Module::load();
    let session = Session::open();
    let mut info = Info {
        size: size::<Info>(),
        ..Info::default()
    };
    // Of the numbers that the interface has not, the module knows none.
    let known = requests().len() as u32;
    let unknown = (known..=0xff).map(|nr| abi::iowr(nr, 72));
    for command in unknown.chain([
        abi::INFO ^ 0x100,
        abi::INFO ^ 0xff00,
        0,
        u32::MAX,
        libc::TCGETS as u32,
    ]) {
        let got = errno(
            sys::ioctl(&session, command, &mut info),
            &format!("{command:#x}"),
        );
        assert_eq!(got, libc::ENOTTY, "{command:#x}");
    }
    // The size within the number is that of version 1 and is not looked at.
    sys::ioctl(&session, abi::iowr(abi::NR_INFO, 8), &mut info).expect("INFO by its number");
}

test! { full, impossible_rings_are_refused, module }
fn impossible_rings_are_refused() {
    let _module = Module::load();
    let mut session = Session::open();
    let odd = [
        0,
        1,
        8,
        2048,
        4095,
        4097,
        5000,
        12288,
        1 << 29,
        1 << 40,
        1 << 63,
        u64::MAX,
    ];
    for bytes in odd {
        let got = errno(session.setup(bytes, 0), &format!("rings of {bytes} bytes"));
        assert_eq!(got, libc::EINVAL, "rings of {bytes} bytes");
    }
    let mut setup = Setup {
        size: size::<Setup>(),
        ring_bytes: 4096,
        watermark_bytes: 4097,
        ..Setup::default()
    };
    let got = errno(sys::ioctl(&session, abi::SETUP, &mut setup), "watermark");
    assert_eq!(got, libc::EINVAL);
    session
        .setup(abi::RING_BYTES_MIN, 0)
        .expect("the smallest rings");
    assert_eq!(session.made.rings, session.info().rings);
    for ring in session.rings() {
        assert_eq!(ring.data_bytes(), abi::RING_BYTES_MIN);
    }
    let got = errno(session.setup(abi::RING_BYTES_MIN, 0), "a second SETUP");
    assert_eq!(got, libc::EBUSY);
}

test! { core, requests_out_of_order_are_refused, module }
fn requests_out_of_order_are_refused() {
    let _module = Module::load();
    let prepared = prepared();
    let bare = Session::open();
    let probe = probe_at(prepared.function.offset, 0);
    let (error, reply) = bare.attach(&prepared.file, probe).expect_err("no rings");
    assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
    assert_eq!(Refusal::from_u32(reply.reason), Some(Refusal::NoSetup));
    let too_many = vec![std::process::id(); abi::FILTER_PIDS_MAX as usize + 1];
    let fresh = Session::open();
    assert_eq!(errno(fresh.only(&too_many), "65 processes"), libc::EINVAL);
    assert_eq!(errno(fresh.only(&[]), "0 processes"), libc::EINVAL);
    assert_eq!(errno(fresh.only(&[4_000_000]), "nobody"), libc::ESRCH);
    assert_eq!(errno(fresh.only(&[0]), "process 0"), libc::ESRCH);
    let mut filter = Filter {
        size: size::<Filter>(),
        flags: abi::FILTER_PIDNS,
        pidns_pid: std::process::id(),
        pidns_id: 1,
        ..Filter::default()
    };
    let got = errno(fresh.filter(&mut filter), "another namespace");
    assert_eq!(got, libc::ESTALE);
    fresh
        .only(&[std::process::id()])
        .expect("a failed filter is none");
}

test! { full, a_32_bit_caller_sees_the_same, module }
fn a_32_bit_caller_sees_the_same() {
    let _module = Module::load();
    let file = victim::path("caller_32");
    let offset = binary::function(&file, "in_32_bits").offset;
    let status = Command::new(&file)
        .arg(offset.to_string())
        .status()
        .unwrap_or_else(|error| panic!("no 32-bit programs here: {error}"));
    assert_eq!(status.code(), Some(0), "the step that went wrong: {status}");
    drop(open_device());
    // The program finds no functions in such files, and says so.
    let spec = format!("{}:in_32_bits", file.display());
    command::run(&["trace", &spec]).refused(&["is an ELF file for 32-bit x86"]);
}
