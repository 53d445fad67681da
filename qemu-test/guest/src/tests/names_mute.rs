// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: whatever lies at the place of a debug file, the trace goes on; and it says
//! which program does not answer.

use crate::command;
use crate::container::{Container, Root};
use crate::debug_files::{build_id, by_build_id, debug_of, strip, text, tool, trace};
use crate::module::Module;
use crate::runtimes::Bundle;
use crate::victim;
use nix::mount::{mount, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/local/bin/named";
/// A trace of three calls takes some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A container with a stripped program, and the path of its debug file in there.
fn stripped() -> (PathBuf, Root, PathBuf) {
    let whole = victim::path("named");
    let root = Root::with("named", PROGRAM);
    let program = root.folder.join(&PROGRAM[1..]);
    fs::remove_file(&program).expect("it is there");
    strip(&whole, &program);
    let debug = by_build_id(Path::new("/"), &build_id(&whole));
    debug_of(
        &whole,
        &root.folder.join(debug.strip_prefix("/").expect("absolute")),
    );
    (whole, root, debug)
}

test! { full, a_fifo_in_place_of_a_debug_file_does_not_hang_the_trace, seconds = 120 }
fn a_fifo_in_place_of_a_debug_file_does_not_hang_the_trace() {
    let _module = Module::load();
    let (whole, root, debug) = stripped();
    let inside = root.folder.join(debug.strip_prefix("/").expect("absolute"));
    fs::remove_file(&inside).expect("it is there");
    tool("mkfifo", &[text(&inside)]);
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let begun = Instant::now();
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.is_nameless(&["is a named pipe, not a regular file"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

/// A file of FUSE in a container, whose server is this test; gone with the value.
struct Fuse {
    /// Closed, it ends all waiting.
    connection: File,
}

impl Fuse {
    /// Mounts a file over `path` in the mount namespace of `pid`.
    fn over(pid: u32, path: &Path) -> Fuse {
        let _ = Command::new("modprobe").arg("fuse").status();
        let connection = File::options().read(true).write(true).open("/dev/fuse");
        let connection = connection.expect("the guest has FUSE");
        let options = format!(
            "fd={},rootmode=100000,user_id=0,group_id=0,allow_other",
            connection.as_raw_fd()
        );
        let namespace = File::open(format!("/proc/{pid}/ns/mnt")).expect("it runs");
        let path = path.to_owned();
        let mounted = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_FS)?;
            setns(namespace, CloneFlags::CLONE_NEWNS)?;
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(
                Some("mute"),
                &path,
                Some("fuse"),
                flags,
                Some(options.as_str()),
            )
        });
        let mounted = mounted.join().expect("it does not panic");
        mounted.expect("FUSE is mounted");
        Fuse { connection }
    }

    /// Answers, in a thread, as a regular file does, until it is read.
    fn answer(&self) {
        let mut server = self.connection.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 17];
            while let Ok(length) = server.read(&mut request) {
                let Some(reply) = reply(&request[..length]) else {
                    continue;
                };
                let _ = server.write_all(&reply);
            }
        });
    }
}

/// What a server says of one file of a megabyte (`include/uapi/linux/fuse.h`); nothing to who
/// reads or closes it.
fn reply(request: &[u8]) -> Option<Vec<u8>> {
    const ENOSYS: i32 = -38;
    let number = |at: usize| {
        request
            .get(at..at + 4)
            .map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default()))
    };
    let unique = request.get(8..16)?;
    let (error, body) = match number(4)? {
        // FUSE_INIT: version 7.31, writes of a page, the rest as it comes.
        26 => {
            let mut body = vec![0; 64];
            body[..4].copy_from_slice(&7u32.to_le_bytes());
            body[4..8].copy_from_slice(&31u32.to_le_bytes());
            body[20..24].copy_from_slice(&4096u32.to_le_bytes());
            (0, body)
        }
        // FUSE_GETATTR: inode 1, a regular file.
        3 => {
            let mut body = vec![0; 104];
            body[16..24].copy_from_slice(&1u64.to_le_bytes());
            body[24..32].copy_from_slice(&(1u64 << 20).to_le_bytes());
            body[76..80].copy_from_slice(&0o100644u32.to_le_bytes());
            body[80..84].copy_from_slice(&1u32.to_le_bytes());
            (0, body)
        }
        // FUSE_STATFS.
        17 => (0, vec![0; 80]),
        // FUSE_READ, FUSE_FLUSH.
        15 | 25 => return None,
        _ => (ENOSYS, Vec::new()),
    };
    let length = 16 + body.len() as u32;
    let head = [&length.to_le_bytes()[..], &i32::to_le_bytes(error), unique].concat();
    Some([head, body].concat())
}

/// Traces with FUSE in place of the debug file. The server takes requests and does not answer
/// them: not even a signal ends who waits for that.
fn with_fuse(answers: bool) {
    let _module = Module::load();
    let (whole, root, debug) = stripped();
    let container = Container::over("named", &root.folder, &[PROGRAM]);
    let fuse = Fuse::over(container.pid(), &debug);
    if answers {
        fuse.answer();
    }
    let begun = Instant::now();
    let traced = trace("named", PROGRAM, &whole, &[]);
    let elapsed = begun.elapsed();
    println!("{elapsed:?} {:#?}", traced.sources);
    traced.is_nameless(&["that need not answer (fuse)", "on the host"]);
    assert!(elapsed < PATIENCE, "{elapsed:?}");
    drop(fuse);
}

test! { core, a_file_that_is_opened_and_never_read_does_not_hang_the_trace, seconds = 120 }
fn a_file_that_is_opened_and_never_read_does_not_hang_the_trace() {
    with_fuse(true);
}

test! { full, a_program_in_a_file_system_that_does_not_answer_is_refused, seconds = 120 }
/// The probed file itself: it cannot be done without, and has to be given up.
fn a_program_in_a_file_system_that_does_not_answer_is_refused() {
    let _module = Module::load();
    let root = Root::with("named", PROGRAM);
    fs::write(root.folder.join("mute"), "").expect("ours");
    let container = Bundle::run("crun", "named", &root.folder, PROGRAM);
    let _fuse = Fuse::over(container.pid(), Path::new("/mute"));
    for verb in ["trace", "verify"] {
        let begun = Instant::now();
        let got = command::run(&[verb, "-c", "named", "/mute:charge"]);
        got.refused(&["/mute", "did not open within 2s"]);
        assert!(begun.elapsed() < PATIENCE, "{verb}: {:?}", begun.elapsed());
    }
    // Others are traced meanwhile.
    let spec = format!("{PROGRAM}:charge");
    let words = ["trace", "-c", "named", "-n", "3", "-t", "30", &spec];
    let got = command::run(&words).succeeded();
    assert_eq!(got.lines().count(), 3, "{got:#?}");
}
