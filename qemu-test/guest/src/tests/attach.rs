// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what cannot be probed is refused with the reason, and leaves nothing; what was
//! attached is known by its id alone.

use super::abi::{prepared, refused, Prepared};
use super::capsule::Folder;
use crate::binary;
use crate::command;
use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session, PAGE, RING_BYTES};
use crate::sys::{self};
use crate::victim::{self, Victim};
use crate::witness::Witness;
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::libc::{self};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nsprobe_common::abi::{self, Attach, Probe, Refusal};
use nsprobe_common::record::Frame;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// A program that lies in no file system.
pub(super) fn in_memory(program: &Path, flags: MFdFlags) -> OwnedFd {
    let fd = memfd_create("program", flags).expect("the kernel has it");
    let mut file = File::from(fd);
    let bytes = fs::read(program).expect("it was built");
    file.write_all(&bytes).expect("there is memory");
    file.into()
}

test! { full, files_in_memory_are_probed, module }
/// Also one that is sealed: a breakpoint changes pages of the processes, not the file.
fn files_in_memory_are_probed() {
    let _module = Module::load();
    let Prepared { file, function, .. } = prepared();
    let program = in_memory(&file, MFdFlags::MFD_ALLOW_SEALING);
    let all = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK;
    for sealed in [SealFlag::empty(), all | SealFlag::F_SEAL_SEAL] {
        fcntl(&program, FcntlArg::F_ADD_SEALS(sealed)).expect("it is not sealed");
        let path = format!("/proc/{}/fd/{}", std::process::id(), program.as_raw_fd());
        let session = Session::with_rings(RING_BYTES);
        let id = session.probe(Path::new(&path), &function, abi::PROBE_STACK);
        let ended = Command::new(&path).arg("7").status();
        assert!(ended.expect("it starts").success(), "{sealed:?}");
        assert_eq!(session.counters(id).hits, 7, "{sealed:?}");
        let hits = Records::of(&session).hits;
        assert_eq!(hits.len(), 7, "{sealed:?}");
    }
    assert_eq!(fs::read(&file).expect("it is there"), {
        let path = format!("/proc/self/fd/{}", program.as_raw_fd());
        fs::read(path).expect("it is ours")
    });
}

/// Asserts that a file of this length is one that the kernel cannot put a breakpoint into.
fn carries_no_breakpoint(file: OwnedFd, bytes: u64) {
    let Prepared { session, .. } = prepared();
    let file = File::from(file);
    file.set_len(bytes).expect("none is taken yet");
    let mut probes = [Probe {
        fd: file.as_raw_fd(),
        ..probe_at(0, 0)
    }];
    let (error, reply) = session.attach_all(&mut probes).expect_err("refused");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    assert_eq!(Refusal::from_u32(reply.reason), Some(Refusal::Kernel));
    assert_eq!(session.info().probes, 1, "that which was prepared");
}

test! { full, huge_pages_are_refused, module }
fn huge_pages_are_refused() {
    let _module = Module::load();
    let huge = memfd_create("huge", MFdFlags::MFD_HUGETLB).expect("the kernel has it");
    carries_no_breakpoint(huge, 2 << 20);
}

test! { full, secret_memory_is_refused, module }
fn secret_memory_is_refused() {
    let _module = Module::load();
    let secret = sys::secret_memory().expect("the kernel has it");
    carries_no_breakpoint(secret, 4096);
}

test! { full, the_last_byte_of_a_page_is_probed, module }
/// Also where the instruction goes on in the next page.
fn the_last_byte_of_a_page_is_probed() {
    const CALLS: u64 = 200;
    let _module = Module::load();
    let mut victim = Victim::start("page_edges", &[]);
    let session = Session::with_rings(RING_BYTES);
    let probes = ["one_byte", "goes_on"].map(|name| {
        let function = victim.function(name);
        assert_eq!(function.offset % PAGE as u64, PAGE as u64 - 1);
        let witness = Witness::new(victim.file(), function.offset);
        let id = session.probe(victim.file(), &function, abi::PROBE_STACK);
        (id, function.offset, witness)
    });
    assert_eq!(victim.call(CALLS), CALLS);
    let records = Records::of(&session);
    for (id, offset, witness) in &probes {
        assert_eq!((session.counters(*id).hits, witness.hits()), (CALLS, CALLS));
        let mut hits = records.hits_of(*id);
        let is_there = hits.all(
            |(_, frames)| matches!(frames[0], Frame::Object { offset: at, .. } if at == *offset),
        );
        assert!(is_there, "{:?}", records.hits);
    }
    assert_eq!(records.hits.len() as u64, 2 * CALLS);
    let offsets = probes.map(|(_, offset, _)| offset);
    drop(session);
    assert!(offsets
        .iter()
        .all(|offset| victim.text_is_restored(*offset)));
}

test! { core, only_regular_files_can_be_probed, module }
fn only_regular_files_can_be_probed() {
    let _module = Module::load();
    let prepared = prepared();
    let session = &prepared.session;
    let folder = Folder::new("kinds");
    let fifo = folder.path("fifo");
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("it is new");
    let open = |path: &str, flags: i32| -> OwnedFd {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        options
            .open(path)
            .unwrap_or_else(|e| panic!("{path}: {e}"))
            .into()
    };
    let program = prepared.file.to_str().expect("a plain name");
    let write_only = folder.path("write-only");
    let cases: [(&str, OwnedFd, i32, Refusal); 7] = [
        (
            "folder",
            open("/usr/bin", 0),
            libc::EINVAL,
            Refusal::NotRegular,
        ),
        (
            "device",
            open("/dev/zero", 0),
            libc::EINVAL,
            Refusal::NotRegular,
        ),
        (
            "FIFO",
            open(&fifo, libc::O_NONBLOCK),
            libc::EINVAL,
            Refusal::NotRegular,
        ),
        (
            "itself",
            open(abi::DEVICE, 0),
            libc::EINVAL,
            Refusal::NotRegular,
        ),
        (
            "path only",
            open(program, libc::O_PATH),
            libc::EBADF,
            Refusal::BadFd,
        ),
        (
            "write only",
            File::create(&write_only).expect("it is new").into(),
            libc::EBADF,
            Refusal::BadFd,
        ),
        (
            "socket",
            sys::duplicate(&socket()),
            libc::EINVAL,
            Refusal::NotRegular,
        ),
    ];
    let attach = |fd: i32, offset: u64| {
        let mut probes = [Probe {
            fd,
            ..probe_at(offset, 0)
        }];
        let (error, reply) = session.attach_all(&mut probes).expect_err("refused");
        (
            error.raw_os_error().unwrap_or(0),
            Refusal::from_u32(reply.reason),
        )
    };
    let identify = |fd: i32| {
        let mut request = abi::File {
            size: size::<abi::File>(),
            fd,
            ..abi::File::default()
        };
        let done = sys::ioctl(session, abi::FILE, &mut request);
        done.map(|_| request.identity)
    };
    for (name, fd, wanted, reason) in &cases {
        let got = attach(fd.as_raw_fd(), 0);
        assert_eq!(got, (*wanted, Some(*reason)), "{name}");
        match *name {
            "path only" => drop(identify(fd.as_raw_fd()).expect("it is a regular file")),
            _ => assert_eq!(errno(identify(fd.as_raw_fd()), name), *wanted),
        }
    }
    assert_eq!(errno(identify(-1), "no descriptor"), libc::EBADF);
    let file = File::open(&prepared.file).expect("the victim is there");
    let told = identify(file.as_raw_fd()).expect("a regular file");
    let metadata = file.metadata().expect("it is open");
    assert_eq!((told.dev, told.ino), (metadata.dev(), metadata.ino()));
    assert_eq!((told.pid, told.build_id_len), (0, 0));
    for fd in [-1, 1000, i32::MAX, i32::MIN, -100] {
        assert_eq!(
            attach(fd, 0),
            (libc::EBADF, Some(Refusal::BadFd)),
            "fd {fd}"
        );
    }
    let length = fs::metadata(&prepared.file)
        .expect("the victim is there")
        .len();
    for offset in [
        length,
        length + 1,
        length + 4096,
        1 << 40,
        1 << 63,
        u64::MAX,
    ] {
        let probe = probe_at(offset, 0);
        refused(&prepared, probe, libc::ENOEXEC, Refusal::OutsideFile);
    }
    // It has no bytes before it is read.
    let none = attach(open("/proc/version", 0).as_raw_fd(), 0);
    assert_eq!(none, (libc::ENOEXEC, Some(Refusal::OutsideFile)), "procfs");
    // No page cache that could carry a breakpoint.
    let no_pages = attach(open("/proc/kcore", 0).as_raw_fd(), 0x1000);
    assert_eq!(no_pages, (libc::EIO, Some(Refusal::Kernel)), "procfs");
    assert_eq!(session.info().probes, 1);
}

fn socket() -> std::os::unix::net::UnixStream {
    std::os::unix::net::UnixStream::pair().expect("a pair").0
}

test! { core, a_32bit_program_that_maps_a_file_harms_nobody, module }
/// The kernel judged the instruction by such a process, and stepped it at a wrong address in all
/// others.
fn a_32bit_program_that_maps_a_file_harms_nobody() {
    let _module = Module::load();
    let file = victim::path("reads_beside");
    let mapper = || Victim::start("maps_in_32", &[&file.display().to_string()]);
    let before = mapper();
    let mut victim = Victim::start("reads_beside", &[]);
    let after = mapper();
    assert_eq!(victim.call(1), 42);
    let session = Session::with_rings(RING_BYTES);
    let id = session.probe(&file, &victim.function("reads_beside"), 0);
    assert_eq!(victim.call(3), 42);
    assert_eq!(session.counters(id).recorded, 3);
    drop((before, after));
}

test! { core, a_system_call_cannot_be_probed, module }
/// The kernel would take it, and the first process that comes there would crash.
fn a_system_call_cannot_be_probed() {
    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let _module = Module::load();
    let prepared = Prepared {
        file: LIBC.into(),
        ..prepared()
    };
    let library = fs::read(LIBC).expect("the guest has a C library");
    let function = binary::exported(Path::new(LIBC), "getuid");
    let code = &library[function.offset as usize..][..function.bytes as usize];
    let inside = code.windows(2).position(|pair| pair == [0x0f, 0x05]);
    let offset = function.offset + inside.expect("it is a system call") as u64;
    let probe = probe_at(offset, 0);
    refused(&prepared, probe, libc::ENOEXEC, Refusal::SystemCall);
    let at = format!("{LIBC}:{offset:#x}");
    let got = command::run(&["trace", &at, "--", "/usr/bin/perl", "-e", "print $<"]);
    println!("{}", got.stderr);
    let got = got.refused(&["getuid", "system call"]);
    assert_eq!(got.stdout, "");
}

test! { core, a_failed_attach_leaves_nothing, module }
fn a_failed_attach_leaves_nothing() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let file = File::open(victim.file()).expect("the victim is there");
    let good = Probe {
        fd: file.as_raw_fd(),
        ..probe_at(function.offset, 0)
    };
    let of_kind = |kind| Probe { kind, ..good };
    for (bad, reason) in [
        (Probe { fd: -1, ..good }, Refusal::BadFd),
        (
            Probe {
                offset: 1 << 40,
                ..good
            },
            Refusal::OutsideFile,
        ),
        (of_kind(u32::MAX), Refusal::UnknownValue),
        // Of calls that are followed to exits.
        (
            Probe {
                flags: abi::PROBE_GO,
                ..good
            },
            Refusal::UnknownValue,
        ),
        // They are attached alone.
        (of_kind(abi::PROBE_SAMPLE), Refusal::UnknownValue),
        (of_kind(abi::PROBE_WAIT), Refusal::UnknownValue),
        (of_kind(abi::PROBE_WAKE), Refusal::UnknownValue),
    ] {
        let mut probes = [good, good, bad, good];
        let (_, reply) = session
            .attach_all(&mut probes)
            .expect_err("the third is wrong");
        assert_eq!(
            (reply.failed, Refusal::from_u32(reply.reason)),
            (2, Some(reason))
        );
        assert_eq!(session.info().probes, 0);
        assert!(victim.text_is_restored(function.offset));
    }
    for (count, probe_size) in [
        (0, size::<Probe>()),
        (abi::ATTACH_MAX + 1, size::<Probe>()),
        (u32::MAX, size::<Probe>()),
        (1, 0),
        (1, abi::PROBE_BYTES_V1 as u32 - 8),
        (1, u32::MAX),
    ] {
        let mut attach = Attach {
            size: size::<Attach>(),
            probes: &good as *const Probe as u64,
            count,
            probe_size,
            ..Attach::default()
        };
        errno(
            sys::ioctl(&session, abi::ATTACH, &mut attach),
            &format!("{count} probes of {probe_size} bytes"),
        );
        assert_eq!(session.info().probes, 0);
    }
    victim.call(10);
    let id = session.probe(victim.file(), &function, 0);
    // The same again would count each hit twice.
    let other = Probe {
        flags: abi::PROBE_STACK,
        ..good
    };
    for (mut probes, failed) in [(vec![good], 0), (vec![other, good], 1), (vec![other; 2], 1)] {
        let (error, reply) = session
            .attach_all(&mut probes)
            .expect_err("one is twice there");
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
        let reason = Refusal::from_u32(reply.reason);
        assert_eq!((reply.failed, reason), (failed, Some(Refusal::Twice)));
        assert_eq!(session.info().probes, 1);
    }
    victim.call(10);
    assert_eq!(session.counters(id).hits, 10);
}

test! { full, detach_knows_its_probes, module }
fn detach_knows_its_probes() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let first = session.probe(victim.file(), &function, 0);
    let second = session.probe(victim.file(), &function, abi::PROBE_STACK);
    assert_ne!(first, second);
    assert_eq!(
        errno(session.detach(&[first, 99]), "an unknown id"),
        libc::ENOENT
    );
    assert_eq!(errno(session.detach(&[0]), "id 0"), libc::ENOENT);
    assert_eq!(errno(session.detach(&[]), "no id"), libc::EINVAL);
    assert_eq!(
        errno(session.detach(&[first, first]), "an id twice"),
        libc::EINVAL
    );
    assert_eq!(session.info().probes, 2, "some of them were detached");
    victim.call(5);
    session.detach(&[first]).expect("it is attached");
    assert_eq!(errno(session.detach(&[first]), "again"), libc::ENOENT);
    victim.call(5);
    assert_eq!(session.counters(first).hits, 5, "kept behind DETACH");
    assert_eq!(session.counters(second).hits, 10);
    session.detach(&[second]).expect("it is attached");
    assert!(victim.text_is_restored(function.offset));
    let third = session.probe(victim.file(), &function, 0);
    assert!(third > second, "an id was used again");
}

test! { full, counters_and_objects_know_their_ids, module }
fn counters_and_objects_know_their_ids() {
    let _module = Module::load();
    let prepared = prepared();
    let session = &prepared.session;
    let rings = session.info().rings;
    for cpu in 0..rings {
        session.counters_on(prepared.id, cpu).expect("a CPU");
    }
    for probe in [0, prepared.id + 1, u32::MAX] {
        let got = errno(session.counters_on(probe, abi::CPU_ALL), "another probe");
        assert_eq!(got, libc::ENOENT, "probe {probe}");
    }
    for cpu in [rings, 4096, u32::MAX - 1] {
        errno(session.counters_on(prepared.id, cpu), "another CPU");
    }
    for id in [0, 1, abi::OBJECTS_MAX, u32::MAX] {
        assert_eq!(errno(session.object(id, 0), "an object"), libc::ENOENT);
        assert_eq!(
            errno(session.object(id, abi::OBJECT_FD), "an object"),
            libc::ENOENT
        );
    }
}
