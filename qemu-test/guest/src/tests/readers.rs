// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whoever can open the device can read it: by mapping, by `read()`,
//! in C; and `status` lists the sessions.

use crate::command::{self, Running};
use crate::lab::Lab;
use crate::module::Module;
use crate::processes::is_asleep;
use crate::records::Records;
use crate::session::{errno, probe_at, Session, PAGE, RING_BYTES};
use crate::sys::{self, Forked};
use crate::threads::Stop;
use crate::victim::{self, Victim};
use nix::libc;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nsprobe_common::abi::{self, Probe};
use nsprobe_common::record::Hit;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

const WITH_CALLER: u32 = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;

fn example(arguments: &[&str]) -> Command {
    let mut command = Command::new(victim::path("reader"));
    command.args(arguments);
    command
}

test! { core, a_reader_in_c_prints_records, module }
fn a_reader_in_c_prints_records() {
    let _module = Module::load();
    // It reads ring by ring: of one, the order is that of the calls.
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_sub");
    let function = victim.function("begins_with_sub");
    let file = victim.file().to_str().expect("a plain name").to_string();
    let (offset, pid) = (function.offset.to_string(), victim.pid().to_string());
    let watcher = Session::open();
    let mut reader = Running::start_command(&mut example(&[&file, &offset, &pid]));
    let attached = crate::oracle::within(Duration::from_secs(10), || watcher.info().probes == 1);
    assert!(attached, "the reader attaches nothing");
    victim.call(3);
    reader.wait_for("object 1: inode ", Duration::from_secs(10));
    let wanted = format!(" cpu 0 call_in_loop pid {pid} tid {pid} ({pid} in its namespace): ");
    for _ in 0..3 {
        let line = reader.wait_for(&wanted, Duration::from_secs(10));
        let frames: Vec<&str> = line.rsplit(": ").next().expect("one").split(' ').collect();
        println!("{line}");
        assert!(frames.len() >= 4, "{line}");
        assert!(
            frames[0].ends_with(&format!("+{:#x}", function.offset)),
            "{line}"
        );
    }
    drop(reader);
    assert!(victim.text_is_restored(function.offset));
}

/// All that a session has, by `read()`.
fn read_all(session: &Session, buffer_bytes: usize) -> Vec<Vec<u8>> {
    set_nonblocking(session);
    let mut buffer = vec![0; buffer_bytes];
    let mut pieces = Vec::new();
    while let Ok(length) = (&session.file).read(&mut buffer) {
        assert!(length > 0, "a session has no end");
        pieces.push(buffer[..length].to_vec());
    }
    pieces
}

fn set_nonblocking(session: &Session) {
    use nix::fcntl::{fcntl, FcntlArg, OFlag};
    fcntl(session.file.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a flag");
}

/// Bytes of records as the words that they are.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    assert_eq!(bytes.len() % 8, 0);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    bytes.chunks(8).map(word).collect()
}

test! { full, read_gives_whole_records, module }
fn read_gives_whole_records() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    for buffer_bytes in [nsprobe_common::record::RECORD_BYTES_MAX, 4096, 1 << 20] {
        let session = Session::with_rings(RING_BYTES);
        let id = session.probe(victim.file(), &function, WITH_CALLER);
        victim.call(500);
        let mut records = Records::default();
        for piece in read_all(&session, buffer_bytes) {
            // Each piece alone parses: no record is cut.
            records.add(&words(&piece));
        }
        assert_eq!(records.hits.len(), 500, "{buffer_bytes}");
        assert_eq!(session.counters(id).recorded, 500);
    }
}

test! { full, read_gives_the_oldest_record_of_all_rings, module, cpus = 2 }
/// The CPUs take turns, so that no ring has two records in a row.
fn read_gives_the_oldest_record_of_all_rings() {
    const TURNS: usize = 10;
    let _module = Module::load();
    let file = victim::path("exit_soon");
    let function = crate::binary::function(&file, "short_work");
    let session = Session::with_rings(RING_BYTES);
    session.probe(&file, &function, 0);
    for _ in 0..TURNS {
        for cpu in 0..session.made.rings {
            sys::run_on(1 << cpu);
            let status = Command::new(&file).arg("1").status();
            assert!(status.expect("it starts").success());
        }
    }
    let mut records = Records::default();
    for piece in read_all(&session, 1 << 20) {
        records.add(&words(&piece));
    }
    assert_eq!(records.hits.len(), TURNS * session.made.rings as usize);
    let hits = records.hits.iter().zip((0..session.made.rings).cycle());
    for ((hit, _), cpu) in hits {
        assert_eq!(u32::from(hit.cpu), cpu, "{:?}", records.hits);
    }
}

test! { full, a_read_without_room_or_records_fails, module }
fn a_read_without_room_or_records_fails() {
    let _module = Module::load();
    let bare = Session::open();
    set_nonblocking(&bare);
    let mut buffer = [0; 4096];
    errno((&bare.file).read(&mut buffer), "read() before SETUP");
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    set_nonblocking(&session);
    session.probe(victim.file(), &function, WITH_CALLER);
    let got = errno((&session.file).read(&mut buffer), "read() of nothing");
    assert_eq!(got, libc::EAGAIN);
    victim.call(1);
    for bytes in [1, 8, 64] {
        let got = errno((&session.file).read(&mut buffer[..bytes]), "a small buffer");
        assert!(
            [libc::EINVAL, libc::EMSGSIZE, libc::ENOSPC].contains(&got),
            "{got}"
        );
    }
    // Nothing was taken away by the failures.
    let length = (&session.file).read(&mut buffer).expect("records");
    let mut records = Records::default();
    records.add(&words(&buffer[..length]));
    assert_eq!(records.hits.len(), 1);
    let wrote = std::io::Write::write(&mut &session.file, b"x");
    errno(wrote, "write()");
}

test! { full, a_read_that_faults_loses_no_record, module }
/// The next read, if it had less room, cut the record that could not be written.
fn a_read_that_faults_loses_no_record() {
    const CALLS: usize = 100;
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, WITH_CALLER);
    victim.call(CALLS as u64);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let memory = sys::Mapping::anonymous(2 * PAGE, libc::PROT_READ).expect("memory");
    let got = errno(memory.read_from(&session, PAGE), "it cannot be written");
    assert_eq!(got, libc::EFAULT);
    memory.protect(both).expect("it is ours");
    let got = errno(memory.read_from(&session, 8), "less than a record");
    assert_eq!(got, libc::EINVAL);
    memory.punch(PAGE, PAGE).expect("it is ours");
    let length = memory.read_from(&session, 2 * PAGE).expect("records") as usize;
    assert!(length <= PAGE, "{length}");
    let mut records = Records::default();
    let first: Vec<u64> = (0..length).step_by(8).map(|at| memory.word(at)).collect();
    records.add(&first);
    assert!((1..CALLS).contains(&records.hits.len()));
    for piece in read_all(&session, 1 << 16) {
        records.add(&words(&piece));
    }
    assert_eq!(records.hits.len(), CALLS);
}

test! { core, two_readers_share_the_records, module, cpus = 2 }
fn two_readers_share_the_records() {
    const CALLS: u64 = 5000;
    let lab = Lab::new();
    let mut victim = lab.caller("begins_with_push");
    let session = lab.session(1 << 22);
    let id = session.probe(&victim, 0);
    victim.begin(CALLS);
    let records = std::sync::Mutex::new(Records::default());
    let done = std::sync::atomic::AtomicBool::new(false);
    set_nonblocking(&session);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buffer = vec![0; 4096];
                loop {
                    let last = done.load(std::sync::atomic::Ordering::Acquire);
                    match (&session.file).read(&mut buffer) {
                        Ok(length) => records
                            .lock()
                            .expect("not poisoned")
                            .add(&words(&buffer[..length])),
                        Err(_) if last => return,
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
        }
        let _stop = Stop(&done);
        assert_eq!(victim.finish(), CALLS);
    });
    let records = records.into_inner().expect("not poisoned");
    assert_eq!(victim.kernel_hits(), CALLS);
    assert_eq!(records.hits.len() as u64, session.counters(id).recorded);
    let mut sequences: Vec<_> = records
        .hits
        .iter()
        .map(|(h, _)| (h.cpu, h.sequence))
        .collect();
    sequences.sort_unstable();
    sequences.dedup();
    assert_eq!(sequences.len() as u64, CALLS, "a record was read twice");
}

test! { full, a_session_is_read_or_mapped_but_not_both, module }
/// What `read()` walks must not be what a mapping lets the reader spoil.
fn a_session_is_read_or_mapped_but_not_both() {
    let _module = Module::load();
    let mut buffer = [0; 4096];
    let mapped = Session::with_rings(RING_BYTES);
    set_nonblocking(&mapped);
    let rings = mapped.rings();
    let got = errno((&mapped.file).read(&mut buffer), "read() of what is mapped");
    assert_eq!(got, libc::EBUSY);
    drop(rings);
    let got = errno(
        (&mapped.file).read(&mut buffer),
        "read() of what was mapped",
    );
    assert_eq!(got, libc::EBUSY);
    let read = Session::with_rings(RING_BYTES);
    set_nonblocking(&read);
    let got = errno((&read.file).read(&mut buffer), "read() of nothing");
    assert_eq!(got, libc::EAGAIN);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // A mapping that failed is none.
    let failed = Session::with_rings(RING_BYTES);
    set_nonblocking(&failed);
    let mapping = sys::Mapping::new(&failed, 0, 2 * PAGE, both, libc::MAP_SHARED);
    assert_eq!(errno(mapping, "mmap of too much"), libc::EINVAL);
    let got = errno((&failed.file).read(&mut buffer), "read() of nothing");
    assert_eq!(got, libc::EAGAIN);
    let mapping = sys::Mapping::new(&read, 0, PAGE, both, libc::MAP_SHARED);
    assert_eq!(errno(mapping, "mmap of what is read"), libc::EBUSY);
}

test! { full, a_storm_of_signals_loses_nothing, module, cpus = 2 }
fn a_storm_of_signals_loses_nothing() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    set_nonblocking(&session);
    sys::interrupt_every(1000);
    let (mut records, mut interrupted) = (Records::default(), 0);
    let mut buffer = vec![0; 1 << 16];
    let mut again = |result: std::io::Result<()>| {
        let error = result.err().and_then(|error| error.raw_os_error());
        interrupted += u32::from(error == Some(libc::EINTR));
        assert!([None, Some(libc::EINTR)].contains(&error), "{error:?}");
        error.is_none()
    };
    for _ in 0..100 {
        let probe = crate::session::probe_at(function.offset, abi::PROBE_STACK);
        let mut id = 0;
        while !again(
            session
                .attach(victim.file(), probe)
                .map(|new| id = new)
                .map_err(|e| e.0),
        ) {
            assert_eq!(
                session.info().probes,
                0,
                "an interrupted ATTACH left a probe"
            );
        }
        victim.call(20);
        let hits = session.counters(id).hits;
        assert_eq!(hits, 20);
        while !again(session.detach(&[id])) {}
        while let Ok(length) = (&session.file).read(&mut buffer) {
            records.add(&words(&buffer[..length]));
        }
    }
    let came = sys::interrupt_every(0);
    println!("{came} signals, {interrupted} calls were interrupted");
    assert!(came > 100, "{came} signals");
    assert_eq!(records.hits.len(), 2000);
}

fn ready(session: &Session, timeout_ms: u16) -> bool {
    let mut fds = [PollFd::new(session.file.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(timeout_ms)).expect("poll") > 0
}

test! { core, poll_wakes_at_the_watermark, module }
fn poll_wakes_at_the_watermark() {
    let _module = Module::load();
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::open();
    let mut setup = abi::Setup {
        size: crate::session::size::<abi::Setup>(),
        ring_bytes: 1 << 16,
        watermark_bytes: size_of::<Hit>() as u64 * 100,
        ..abi::Setup::default()
    };
    sys::ioctl(&session, abi::SETUP, &mut setup).expect("rings");
    let session = Session {
        made: setup,
        ..session
    };
    session.probe(victim.file(), &function, 0);
    assert!(!ready(&session, 0), "there is nothing yet");
    victim.call(99);
    assert!(!ready(&session, 100), "99 of 100 records");
    victim.call(1);
    assert!(ready(&session, 0), "100 of 100 records");
    let mut records = Records::default();
    records.drain(&session.rings());
    assert_eq!(records.hits.len(), 100);
    assert!(!ready(&session, 100), "all is read");
    // A sleeper is woken by the hit that reaches the mark; it would look once more when its
    // time is over.
    const PATIENCE_MS: u16 = 60_000;
    let thread = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            thread.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
            let started = Instant::now();
            (ready(&session, PATIENCE_MS), started.elapsed())
        });
        let asleep = || match thread.load(Ordering::Relaxed) {
            0 => false,
            tid => is_asleep(format!("self/task/{tid}")),
        };
        assert!(crate::oracle::within(Duration::from_secs(20), asleep));
        victim.call(100);
        let (is_ready, waited) = poller.join().expect("poll comes back");
        println!("woken after {waited:?}");
        assert!(is_ready && waited < Duration::from_millis(PATIENCE_MS.into()) / 2);
    });
}

test! { full, epoll_tells_of_records_once_or_until_they_are_read, module }
/// By its edge, it reports new records once; by its level, until all are read.
fn epoll_tells_of_records_once_or_until_they_are_read() {
    let _module = Module::load();
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, 0);
    let new = || Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
    let (level, edge) = (new(), new());
    let wanted = EpollFlags::EPOLLIN;
    let kinds = [(&level, wanted), (&edge, wanted | EpollFlags::EPOLLET)];
    for (epoll, wanted) in kinds {
        let event = EpollEvent::new(wanted, 7);
        epoll.add(session.file.as_fd(), event).expect("it can be");
    }
    let tells = |epoll: &Epoll| {
        let mut events = [EpollEvent::empty()];
        let count = epoll.wait(&mut events, EpollTimeout::ZERO).expect("epoll");
        assert!(count == 0 || events[0].data() == 7, "{events:?}");
        count == 1
    };
    let rings = session.rings();
    let mut records = Records::default();
    for round in 1..=20 {
        assert!(
            !tells(&level) && !tells(&edge),
            "round {round}: nothing is new"
        );
        victim.call(1);
        assert!(tells(&edge), "round {round}: a record is new");
        assert!(!tells(&edge), "round {round}: it is new once");
        assert!(
            tells(&level) && tells(&level),
            "round {round}: it is unread"
        );
        records.drain(&rings);
        assert_eq!(records.hits.len(), round);
    }
}

test! { full, a_sleeping_reader_wakes_at_the_first_record, module }
fn a_sleeping_reader_wakes_at_the_first_record() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    session.probe(victim.file(), &function, 0);
    for _ in 0..50 {
        let waker = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = vec![0; 4096];
                (&session.file).read(&mut buffer).expect("records")
            });
            std::thread::sleep(Duration::from_millis(3));
            victim.call(1);
            reader.join().expect("the reader ends")
        });
        assert!(waker >= 72, "{waker} bytes");
    }
}

/// How long a process that sleeps in a read of this file takes to end by a signal.
fn end_of_a_read(file: &mut impl Read) -> Duration {
    let Forked::Parent(child) = sys::fork().expect("fork") else {
        let _ = file.read(&mut [0; 4096]);
        sys::exit_now(1)
    };
    assert!(crate::oracle::within(Duration::from_secs(60), || {
        is_asleep(child)
    }));
    let started = Instant::now();
    let pid = nix::unistd::Pid::from_raw(child);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it lives");
    let status = sys::wait(child);
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    started.elapsed()
}

test! { full, a_signal_ends_a_sleeping_read, module }
/// Within two seconds, unless even a read of a pipe takes that long to end here.
fn a_signal_ends_a_sleeping_read() {
    const PROMISED: Duration = Duration::from_secs(2);
    let _module = Module::load();
    let session = Session::with_rings(RING_BYTES);
    let (mut pipe, _writer) = std::io::pipe().expect("a pipe");
    let (mut ours, mut others): (Vec<Duration>, Vec<Duration>) = (0..9)
        .map(|_| (end_of_a_read(&mut &session.file), end_of_a_read(&mut pipe)))
        .unzip();
    ours.sort_unstable();
    others.sort_unstable();
    println!("ours {ours:?}, of a pipe {others:?}");
    assert!(
        ours[4] < PROMISED.max(10 * others[4]),
        "{ours:?}, {others:?}"
    );
}

test! { full, status_shows_the_module_sessions_and_probes, module }
fn status_shows_the_module_sessions_and_probes() {
    let _module = Module::load();
    // Each CPU skips hits of its own.
    sys::run_on(1);
    let mut victim = Victim::caller("begins_with_push");
    sys::run_on(u64::MAX >> 1);
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(RING_BYTES);
    let every_second = Probe {
        every: 2,
        ..probe_at(function.offset, 0)
    };
    let attached = session.attach(victim.file(), every_second);
    assert!(attached.is_ok(), "{attached:?}");
    victim.call(42);
    let output = command::run(&["status"]).succeeded();
    println!("{}", output.stdout);
    let pid = std::process::id().to_string();
    let (oldest, newest) = (abi::Version::V6 as u32, abi::Version::CURRENT as u32);
    let versions = format!("interface {oldest} to {newest}");
    for part in [
        versions.as_str(),
        pid.as_str(),
        "42 hits = 21 recorded + 0 filtered + 21 skipped (--every)",
        "semaphore",
    ] {
        assert!(
            output.stdout.contains(part),
            "no {part:?}: {}",
            output.stdout
        );
    }
    let output = command::run(&["status", "--json"]).succeeded();
    let status: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    println!("{status:#}");
    assert!(output.stdout.contains("\"hits\":42"), "{}", output.stdout);
    drop(session);
    let output = command::run(&["status"]).succeeded();
    assert!(!output.stdout.contains(&pid), "{}", output.stdout);
}

test! { full, descriptors_tell_their_session, module }
fn descriptors_tell_their_session() {
    let _module = Module::load();
    let mut victim = Victim::caller("begins_with_push");
    let function = victim.function("begins_with_push");
    let session = Session::with_rings(4 * PAGE as u64);
    session.only(&[victim.pid()]).expect("it lives");
    session.probe(victim.file(), &function, 0);
    victim.call(7);
    let path = format!("/proc/self/fdinfo/{}", session.as_raw_fd());
    let text = fs::read_to_string(path).expect("our own");
    println!("{text}");
    for part in [
        "session:",
        "rings:",
        "ring-bytes:",
        "filter-processes:",
        "probe:",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(part)),
            "no {part}: {text}"
        );
    }
    let probe = text
        .lines()
        .find(|line| line.starts_with("probe:"))
        .expect("one");
    assert!(probe.contains("hits 7"), "{probe}");
}
