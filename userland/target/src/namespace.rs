// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens files as a process sees them: by a thread that joins its mount
//! namespace, and fails closed.
//!
//! A fresh thread for each file: it unshares its `fs_struct` (the kernel lets
//! nobody join a mount namespace who shares one), joins, proves that it arrived,
//! opens, hands the file back and ends. It is never used again, so that no later
//! work can run in the wrong namespace, and nothing of ours stays in a container.
//!
//! What the proof and the opening need (the host's procfs, the target's root) is
//! held by file descriptors from before the join: inside, `/proc` may be missing
//! or a trap, and no path but the one asked for is looked up.
//!
//! A file system of the container's (FUSE, a dead NFS server) may never answer.
//! Then the caller gets [`Error::TimedOut`], and the thread stays behind until the
//! file system answers or our process ends.
//!
//! A caller that installs a panic hook must not symbolize in it: that opens files
//! by path, and a panic of the thread would do so inside the container.

use crate::view::View;
use crate::{Error, Process, Result};
use nix::errno::Errno;
use nix::fcntl::{open, AtFlags, OFlag};
use nix::sched::{setns, unshare, CloneFlags};
use nix::sys::stat::{fstat, fstatat, Mode};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A regular file of a target, open for reading.
///
/// It keeps the container's file system busy: drop it as soon as the probe is
/// attached and the symbols are read.
#[derive(Debug)]
pub struct OpenedFile {
    /// The open file.
    pub file: File,
    /// The path asked for, as the target sees it.
    pub path: PathBuf,
    /// Its device, as `stat` says.
    pub dev: u64,
    /// Its inode number, as `stat` says.
    pub ino: u64,
    /// Its size in bytes when it was opened.
    pub size: u64,
}

/// How files are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    /// How long the target's file system may take to answer.
    pub limit: Duration,
}

impl Default for Opener {
    fn default() -> Self {
        Opener {
            limit: Duration::from_secs(2),
        }
    }
}

impl Opener {
    /// Opens `path` as `process` sees it: from its root directory, which is also
    /// where a relative path starts. No link leads out of that root.
    pub fn open_in(&self, process: &Process, path: &Path) -> Result<OpenedFile> {
        let destination = Destination::of(process)?;
        self.run(path, move |path| destination.enter()?.open(path))
    }

    /// Opens `path` as we see it, with the same checks of what it is. A relative
    /// path starts at our working directory; links of procfs are followed.
    pub fn open_here(&self, path: &Path) -> Result<OpenedFile> {
        self.run(path, |path| {
            View::ours()
                .map_err(|errno| Error::OpenFailed {
                    path: path.to_owned(),
                    source: errno.into(),
                })?
                .open(path)
        })
    }

    /// Runs `job` in a thread of its own, and waits for it at most the limit.
    fn run<J>(&self, path: &Path, job: J) -> Result<OpenedFile>
    where
        J: FnOnce(&Path) -> Result<OpenedFile> + Send + 'static,
    {
        let (sender, receiver) = sync_channel(1);
        let asked = path.to_owned();
        let thread = Builder::new()
            .name("nsprobe-open".to_owned())
            .spawn(move || {
                let answer = job(&asked);
                // Nobody waits any more after the limit; the file is closed then.
                let _ = sender.send(answer);
            })
            .map_err(|error| helper_failed(path, error.to_string()))?;
        match receiver.recv_timeout(self.limit) {
            Ok(answer) => {
                // It holds nothing any more and ends by itself; waiting for it
                // means that nothing of ours is in the container afterwards.
                let _ = thread.join();
                answer
            }
            Err(RecvTimeoutError::Timeout) => Err(Error::TimedOut {
                path: path.to_owned(),
                limit: self.limit,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(helper_failed(path, panic_message(thread))),
        }
    }
}

/// [`Opener::open_in`] with the default limit of two seconds.
pub fn open_in(process: &Process, path: &Path) -> Result<OpenedFile> {
    Opener::default().open_in(process, path)
}

/// [`Opener::open_here`] with the default limit of two seconds.
pub fn open_here(path: &Path) -> Result<OpenedFile> {
    Opener::default().open_here(path)
}

fn helper_failed(path: &Path, why: String) -> Error {
    Error::HelperFailed {
        path: path.to_owned(),
        why,
    }
}

/// What a thread that ended without an answer had to say.
fn panic_message(thread: JoinHandle<()>) -> String {
    match thread.join() {
        Ok(()) => "it ended without an answer".to_owned(),
        Err(panic) => match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(message), _) => (*message).to_owned(),
            (_, Some(message)) => message.clone(),
            _ => "it panicked".to_owned(),
        },
    }
}

/// Where the thread goes, held by file descriptors.
struct Destination {
    pid: u32,
    namespace: OwnedFd,
    root: OwnedFd,
    /// The host's `/proc`.
    proc: OwnedFd,
}

impl Destination {
    fn of(process: &Process) -> Result<Destination> {
        let pid = process.pid();
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open("/proc", directory, Mode::empty())
            .map_err(|errno| cannot_join(pid, "open /proc", errno))?;
        Ok(Destination {
            pid,
            namespace: process.open_at("ns/mnt", OFlag::O_RDONLY)?,
            root: process.open_at("root", directory)?,
            proc,
        })
    }

    /// Takes the calling thread there.
    fn enter(self) -> Result<View> {
        let pid = self.pid;
        let namespace =
            fstat(&self.namespace).map_err(|errno| cannot_join(pid, "find it", errno))?;
        let arrived = |proc: &OwnedFd| {
            fstatat(proc, "thread-self/ns/mnt", AtFlags::empty())
                .map(|here| (here.st_dev, here.st_ino) == (namespace.st_dev, namespace.st_ino))
                .map_err(|errno| cannot_join(pid, "find where we are", errno))
        };
        unshare(CloneFlags::CLONE_FS).map_err(|errno| cannot_join(pid, "unshare", errno))?;
        // Nobody needs a privilege to be where he is.
        if !arrived(&self.proc)? {
            setns(&self.namespace, CloneFlags::CLONE_NEWNS)
                .map_err(|errno| cannot_join(pid, "setns", errno))?;
        }
        if !arrived(&self.proc)? {
            return Err(Error::NotArrived { pid });
        }
        let view = View::rooted(self.root, self.proc);
        // The target may have gone elsewhere after its namespace was opened and
        // before its root was.
        match view.root_is_mounted_here() {
            Ok(true) => Ok(view),
            Ok(false) => Err(Error::NotArrived { pid }),
            Err(source) => Err(Error::CannotJoin {
                pid,
                step: "read its mount table",
                source,
            }),
        }
    }
}

fn cannot_join(pid: u32, step: &'static str, errno: Errno) -> Error {
    Error::CannotJoin {
        pid,
        step,
        source: errno.into(),
    }
}
