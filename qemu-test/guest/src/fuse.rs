// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file system of FUSE whose server is the test (`include/uapi/linux/fuse.h`). It has one file.

use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The file's name in a directory.
pub(crate) const NAME: &str = "served";
const ENOSYS: i32 = -38;
const ENOENT: i32 = -2;
const EIO: i32 = -5;
/// Bytes of a file without content.
const EMPTY_BYTES: u64 = 1 << 20;

/// What is served.
#[derive(Default)]
pub(crate) struct Served {
    /// The file; without one, neither reading nor closing it is ever answered.
    pub(crate) content: Option<Vec<u8>>,
    /// Whether it is in a directory, and not the root itself.
    pub(crate) in_directory: bool,
    /// Whether each read goes to the server.
    pub(crate) direct: bool,
}

/// A mounted file system. Its server answers from [`answer`](Self::answer) on.
pub(crate) struct Fuse {
    /// Closed, it ends all waiting.
    connection: File,
    server: Arc<Server>,
    /// Where it is in our mount namespace.
    here: Option<PathBuf>,
}

struct Server {
    served: Served,
    is_mute: AtomicBool,
    reads: AtomicU64,
    /// Requests that were taken and not answered.
    withheld: Mutex<Vec<[u8; 8]>>,
}

impl Fuse {
    /// Mounts it at `path` in the mount namespace of `pid`.
    pub(crate) fn over(pid: u32, path: &Path, served: Served) -> Fuse {
        let connection = connection();
        let options = options(&connection, &served);
        let namespace = File::open(format!("/proc/{pid}/ns/mnt")).expect("it runs");
        let path = path.to_owned();
        let mounted = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_FS)?;
            setns(namespace, CloneFlags::CLONE_NEWNS)?;
            mounted(&path, &options)
        });
        let mounted = mounted.join().expect("it does not panic");
        mounted.expect("FUSE is mounted");
        Fuse::of(connection, served, None)
    }

    /// Mounts a directory here, and answers.
    pub(crate) fn here(path: &Path, served: Served) -> Fuse {
        let connection = connection();
        mounted(path, &options(&connection, &served)).expect("FUSE is mounted");
        let fuse = Fuse::of(connection, served, Some(path.to_owned()));
        fuse.answer();
        // From now on closing its file, as each start of a program does, does not ask the server.
        drop(File::open(path.join(NAME)).expect("it is served"));
        fuse
    }

    fn of(connection: File, served: Served, here: Option<PathBuf>) -> Fuse {
        Fuse {
            connection,
            here,
            server: Arc::new(Server {
                served,
                is_mute: AtomicBool::new(false),
                reads: AtomicU64::new(0),
                withheld: Mutex::default(),
            }),
        }
    }

    /// Answers from now on, in a thread.
    pub(crate) fn answer(&self) {
        let mut connection = self.connection.try_clone().expect("a descriptor");
        let server = Arc::clone(&self.server);
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 17];
            while let Ok(length) = connection.read(&mut request) {
                if let Some(reply) = server.reply(&request[..length]) {
                    let _ = connection.write_all(&reply);
                }
            }
        });
    }

    /// From now on requests are taken, and not answered: not even a signal ends a wait.
    pub(crate) fn be_mute(&self) {
        self.server.is_mute.store(true, SeqCst);
    }

    /// Reads that the server was asked for.
    pub(crate) fn reads(&self) -> u64 {
        self.server.reads.load(SeqCst)
    }
}

impl Drop for Fuse {
    /// Ends all waiting.
    fn drop(&mut self) {
        self.server.is_mute.store(false, SeqCst);
        for unique in self.server.withheld.lock().expect("no panic").drain(..) {
            let _ = self.connection.write_all(&message(EIO, &unique, &[]));
        }
        if let Some(path) = &self.here {
            let _ = umount2(path, MntFlags::MNT_DETACH);
        }
    }
}

fn connection() -> File {
    let _ = Command::new("modprobe").arg("fuse").status();
    let connection = File::options().read(true).write(true).open("/dev/fuse");
    connection.expect("the guest has FUSE")
}

fn options(connection: &File, served: &Served) -> String {
    format!(
        "fd={},rootmode={},user_id=0,group_id=0,allow_other",
        connection.as_raw_fd(),
        if served.in_directory {
            "40000"
        } else {
            "100000"
        }
    )
}

fn mounted(path: &Path, options: &str) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("mute"), path, Some("fuse"), flags, Some(options))
}

impl Server {
    /// The reply to a request; none to one that is not answered.
    fn reply(&self, request: &[u8]) -> Option<Vec<u8>> {
        let u64_at = |at: usize| {
            let bytes = request.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let opcode = u64_at(0)? >> 32;
        let unique: [u8; 8] = request.get(8..16)?.try_into().ok()?;
        if opcode == 15 {
            self.reads.fetch_add(1, SeqCst);
        }
        // FUSE_FORGET and FUSE_BATCH_FORGET want no answer.
        if matches!(opcode, 2 | 42) {
            return None;
        }
        let answer = match self.is_mute.load(SeqCst) {
            true => None,
            false => self.answer(opcode, u64_at(16)?, request.get(40..)?),
        };
        let Some((error, body)) = answer else {
            self.withheld.lock().expect("no panic").push(unique);
            return None;
        };
        Some(message(error, &unique, &body))
    }

    fn answer(&self, opcode: u64, node: u64, body: &[u8]) -> Option<(i32, Vec<u8>)> {
        Some(match opcode {
            // FUSE_LOOKUP.
            1 if body.strip_suffix(b"\0") == Some(NAME.as_bytes()) => {
                let mut entry = vec![0; 40];
                entry[0] = 2;
                entry[8] = 1;
                (0, [entry, self.attributes(2)].concat())
            }
            1 => (ENOENT, Vec::new()),
            // FUSE_GETATTR.
            3 => (0, [vec![0; 16], self.attributes(node)].concat()),
            // FUSE_OPEN: to read past the page cache, or to keep what is there.
            14 => {
                let mut opened = vec![0; 16];
                opened[8] = if self.served.direct { 1 } else { 2 };
                (0, opened)
            }
            // FUSE_READ.
            15 => {
                let content = self.served.content.as_ref()?;
                let number = |at: usize, bytes: usize| {
                    let mut number = [0; 8];
                    number[..bytes].copy_from_slice(&body[at..at + bytes]);
                    u64::from_le_bytes(number) as usize
                };
                let begin = number(8, 8).min(content.len());
                let end = begin.saturating_add(number(16, 4)).min(content.len());
                (0, content[begin..end].to_vec())
            }
            // FUSE_STATFS.
            17 => (0, vec![0; 80]),
            // FUSE_FLUSH: none is sent after this answer.
            25 => {
                self.served.content.as_ref()?;
                (ENOSYS, Vec::new())
            }
            // FUSE_INIT: version 7.31, writes of a page, the rest as it comes.
            26 => {
                let mut body = vec![0; 64];
                body[..4].copy_from_slice(&7u32.to_le_bytes());
                body[4..8].copy_from_slice(&31u32.to_le_bytes());
                body[20..24].copy_from_slice(&4096u32.to_le_bytes());
                (0, body)
            }
            // FUSE_RELEASE, FUSE_OPENDIR, FUSE_RELEASEDIR.
            18 | 29 => (0, Vec::new()),
            27 => (0, vec![0; 16]),
            _ => (ENOSYS, Vec::new()),
        })
    }

    /// `struct fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let is_directory = self.served.in_directory && node == 1;
        let bytes = self.served.content.as_ref().map(|content| content.len());
        let bytes = bytes.map_or(EMPTY_BYTES, |bytes| bytes as u64);
        let mode: u32 = if is_directory { 0o40755 } else { 0o100755 };
        let mut attributes = vec![0; 88];
        attributes[..8].copy_from_slice(&node.to_le_bytes());
        attributes[8..16].copy_from_slice(&bytes.to_le_bytes());
        attributes[60..64].copy_from_slice(&mode.to_le_bytes());
        attributes[64..68].copy_from_slice(&1u32.to_le_bytes());
        attributes
    }
}

/// `struct fuse_out_header`, and what follows it.
fn message(error: i32, unique: &[u8; 8], body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as u32;
    let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), unique];
    [&head.concat()[..], body].concat()
}
