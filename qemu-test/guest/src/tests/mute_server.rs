// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a file whose file system a server answers for is not probed unless the probe insists,
//! and a server that does not answer stops nobody but those who use its files. Signals end a
//! tracer, whatever it waits for.

use super::capsule::Folder;
use super::mounted_files::Mounted;
use crate::binary;
use crate::command::{self, Running};
use crate::fuse::{self, Fuse, Served};
use crate::module::Module;
use crate::oracle::within;
use crate::session::{probe_at, Session, RING_BYTES};
use crate::victim::{self, Victim};
use nix::libc;
use nix::mount::{mount, MsFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nsprobe_common::abi::{self, Probe, Refusal};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "call_in_loop";
const FUNCTION: &str = "begins_with_push";

/// How long what begins may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a tracer may take to end; less than it waits at its end for a file that is read.
const SOON: Duration = Duration::from_secs(20);

/// An overlay above the files of a server, which is asked for each read where they are `direct`.
struct Stacked {
    /// Ends all waiting, so it goes first.
    fuse: Fuse,
    merged: Mounted,
    folder: Folder,
}

impl Stacked {
    fn new(direct: bool) -> Stacked {
        let folder = Folder::with_tmpfs("mute", 16 << 20);
        let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
            let path = folder.path(name);
            fs::create_dir(&path).expect("there is room");
            path
        });
        let served = Served {
            content: Some(fs::read(victim::path(PROGRAM)).expect("a victim")),
            in_directory: true,
            direct,
        };
        let fuse = Fuse::here(Path::new(&lower), served);
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let (kind, flags) = (Some("overlay"), MsFlags::empty());
        let mounted = mount(kind, merged.as_str(), kind, flags, Some(options.as_str()));
        mounted.expect("root mounts");
        Stacked {
            fuse,
            merged: Mounted(merged.into()),
            folder,
        }
    }

    /// The file below.
    fn served(&self) -> PathBuf {
        Path::new(&self.folder.path("lower")).join(fuse::NAME)
    }
}

test! { core, a_file_that_a_server_answers_for_is_refused_before_it_is_read, module }
/// Once its page was read while no process of the machine could fork.
fn a_file_that_a_server_answers_for_is_refused_before_it_is_read() {
    let _module = Module::load();
    let stacked = Stacked::new(true);
    let served = stacked.served();
    let above = stacked.merged.0.join(fuse::NAME);
    let offset = binary::function(&victim::path(PROGRAM), FUNCTION).offset;
    let files = [&served, &above].map(|file| File::open(file).expect("it is served"));
    let session = Session::with_rings(RING_BYTES);
    let attach = |file: &File, flags| {
        let mut probes = [Probe {
            fd: file.as_raw_fd(),
            ..probe_at(offset, flags)
        }];
        session.attach_all(&mut probes).map(|()| probes[0].id)
    };
    let mut victim = Victim::start_command(Command::new(&served).arg(FUNCTION), &served);
    let insisting = attach(&files[0], abi::PROBE_MAY_HANG).expect("its server answers");
    victim.call(3);
    assert_eq!(session.counters(insisting).hits, 3);
    session.detach(&[insisting]).expect("it is attached");
    // Dropped before the files, which are closed by the server.
    let stacked = stacked;
    stacked.fuse.be_mute();
    let before = stacked.fuse.reads();
    for file in &files {
        let (error, reply) = attach(file, 0).expect_err("a server answers for it");
        assert_eq!(error.raw_os_error(), Some(libc::EREMOTE), "{error}");
        let reason = Refusal::from_u32(reply.reason);
        assert_eq!(reason, Some(Refusal::NeedsAnswer));
    }
    assert_eq!(stacked.fuse.reads(), before);
    // Others are started and traced.
    let mut other = Victim::caller(FUNCTION);
    let function = other.function(FUNCTION);
    let id = session.probe(other.file(), &function, 0);
    other.call(10);
    assert_eq!(session.counters(id).hits, 10);
}

test! { core, a_tracer_ends_beside_a_server_that_does_not_answer, seconds = 120 }
/// Once it claimed each file that stacks went through, or that was started: that waited for the
/// server, and not even a signal ended it.
fn a_tracer_ends_beside_a_server_that_does_not_answer() {
    let _module = Module::load();
    let stacked = Stacked::new(false);
    let served = stacked.served();
    let spec = format!("{}:{FUNCTION}", served.display());
    command::run(&["trace", &spec]).refused(&["a server answers", "--force"]);
    let mut victim = Victim::start_command(Command::new(&served).arg(FUNCTION), &served);
    // What it needs of its file is in memory from here on.
    victim.call(1);
    let pid = victim.pid().to_string();
    let recording = stacked.folder.path("recording");
    let top = Running::start(&["top", "--batch", "-d", "0.2"]);
    let top = going(top);
    kill(Pid::from_raw(top.pid() as i32), Signal::SIGSTOP).expect("it runs");
    let started = Victim::start_command(Command::new(&served).arg(FUNCTION), &served);
    stacked.fuse.be_mute();
    kill(Pid::from_raw(top.pid() as i32), Signal::SIGCONT).expect("it is stopped");
    ends(going(top), "top");
    drop(started);
    let write = "libc.so.6:write";
    for words in [
        &["trace", "--stack", "-p", &pid, write][..],
        &["record", "-o", &recording, "--stack", "-p", &pid, write],
        &["profile", "-p", &pid, "-F", "999"],
    ] {
        let mut running = Running::start(words);
        running.attached(1);
        victim.call(1_000_000);
        if words[0] == "trace" {
            running.wait_for("write", PATIENCE);
        }
        ends(running, words[0]);
    }
}

/// What has printed something.
fn going(mut running: Running) -> Running {
    running.wait_for("", PATIENCE);
    running
}

/// Asserts that it ends when it is asked to, with all that it has to do.
fn ends(running: Running, what: &str) {
    let begun = Instant::now();
    let (code, errors) = running.interrupt();
    assert_eq!(code, Some(0), "{what}: {errors}");
    assert!(
        begun.elapsed() < SOON,
        "{what}: {:?} {errors}",
        begun.elapsed()
    );
    assert_eq!(Session::open().info().probes, 0, "{what}");
}

test! { core, signals_end_a_tracer_whose_output_nobody_reads }
fn signals_end_a_tracer_whose_output_nobody_reads() {
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let spec = format!("{}:{FUNCTION}", victim.file().display());
    for signals in [1, 2] {
        let mut command = command::nsprobe(&["trace", &spec]);
        let mut blocked = command.stdout(Stdio::piped()).spawn().expect("it is there");
        let pid = Pid::from_raw(blocked.id() as i32);
        let session = Session::open();
        assert!(within(PATIENCE, || session.info().probes == 1));
        victim.call(10_000);
        // write(1, ...).
        let call = format!("/proc/{pid}/syscall");
        let writes = || fs::read_to_string(&call).is_ok_and(|call| call.starts_with("1 0x1 "));
        assert!(within(PATIENCE, writes), "it is not blocked");
        let begun = Instant::now();
        let mut ended = None;
        for _ in 0..signals {
            kill(pid, Signal::SIGINT).expect("it runs");
            let is_taken = || !status_of(pid, "ShdPnd").contains(|bit| bit != '0');
            assert!(within(PATIENCE, is_taken), "nobody takes it");
        }
        let limit = if signals == 1 { SOON } else { SOON / 2 };
        within(limit, || {
            ended = blocked.try_wait().expect("our child");
            ended.is_some()
        });
        let _ = blocked.kill();
        let ended = ended.unwrap_or_else(|| panic!("{signals}: it runs for ever"));
        println!("{signals}: {:?}", begun.elapsed());
        assert_eq!(ended.signal(), Some(Signal::SIGINT as i32));
        assert_eq!(session.info().probes, 0);
    }
}

test! { core, a_second_signal_prints_the_table_without_slow_names }
/// Once the second signal ended nsprobe, and its table was lost.
fn a_second_signal_prints_the_table_without_slow_names() {
    let _module = Module::load();
    // Names are waited for, and unwind rows as well.
    for rows in [&["--frame-pointers"][..], &["--no-wait", "--no-cache"]] {
        ends_without_names(rows);
    }
}

/// A tracer whose parsers do not answer ends in order at the second signal.
fn ends_without_names(rows: &[&str]) {
    let mut victim = Victim::caller(FUNCTION);
    let spec = format!("{}:{FUNCTION}", victim.file().display());
    let pid = victim.pid().to_string();
    let words = ["stacks", "-p", &pid, &spec];
    let mut running = Running::start(&[&words[..], rows].concat());
    running.attached(1);
    let tracer = running.pid();
    let parsers = parsers_of(tracer);
    for parser in &parsers {
        kill(*parser, Signal::SIGSTOP).expect("it runs");
    }
    assert!(!parsers.is_empty());
    victim.call(100);
    let interrupt = || kill(Pid::from_raw(tracer as i32), Signal::SIGINT).expect("it runs");
    interrupt();
    let session = Session::open();
    assert!(within(PATIENCE, || session.info().probes == 0));
    interrupt();
    let begun = Instant::now();
    let output = running.ended().succeeded();
    println!("{:?} {output:?}", begun.elapsed());
    assert!(begun.elapsed() < SOON);
    assert!(output.stdout.contains(" calls"), "{output:?}");
    assert!(!output.stdout.contains("nothing in its file"), "{output:?}");
    assert!(output.stderr.contains("100 hits"), "{output:?}");
    let note = format!("{}: no names: ", victim.file().display());
    assert!(output.stderr.contains(&note), "{output:?}");
}

/// The processes in which a tracer has files parsed.
fn parsers_of(tracer: u32) -> Vec<Pid> {
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(&tracer.to_string());
    let threads = fs::read_dir(format!("/proc/{tracer}/task")).expect("it runs");
    let threads = threads.map(|thread| thread.expect("it can be listed").path());
    let children = threads.flat_map(|thread| fs::read_to_string(thread.join("children")));
    let children: Vec<String> = children.collect();
    let children = children.iter().flat_map(|pids| pids.split_whitespace());
    let parsers = children.filter(|pid| program(pid) == own);
    parsers
        .map(|pid| Pid::from_raw(pid.parse().expect("a number")))
        .collect()
}

/// A line of a process' status.
fn status_of(pid: Pid, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("", |line| line.trim_start_matches(':').trim())
        .to_owned()
}
