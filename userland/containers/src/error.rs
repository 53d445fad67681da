// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why something about a target could not be had: each names the thing and
//! carries what the user can act on.

use crate::namespace::BEHIND_MAX;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What a name leads to instead of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A file that the kernel makes up: of procfs, sysfs and their like.
    Virtual,
    /// Anything else.
    Other,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Directory => "a directory",
            FileKind::Fifo => "a named pipe",
            FileKind::Socket => "a socket",
            FileKind::CharacterDevice => "a character device",
            FileKind::BlockDevice => "a block device",
            FileKind::Virtual => "a file that the kernel makes up",
            FileKind::Other => "something else",
        })
    }
}

/// Why something about a target could not be had.
///
/// The messages hold names that containers chose: escape them before printing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The kernel does not report which programs start.
    #[error(
        "cannot learn which programs start ({source}): that needs root in the host's own user and \
         pid namespaces"
    )]
    NoExecs {
        /// Why.
        source: io::Error,
    },
    /// No container has this name or id.
    #[error(
        "no container `{spec}`{}{}",
        list(" (did you mean ", nearest, "?)", " (no container is known here)"),
        list("; not all state could be read: ", unread, "", "")
    )]
    NoSuchContainer {
        /// What was asked for.
        spec: String,
        /// The most similar names; empty when there is no container at all.
        nearest: Vec<String>,
        /// Files that could not be read, which may have named it.
        unread: Vec<String>,
    },
    /// Several containers fit.
    #[error("container `{spec}` is ambiguous{}", list(": ", matches, "", ""))]
    AmbiguousContainer {
        /// What was asked for.
        spec: String,
        /// Those that fit.
        matches: Vec<String>,
    },
    /// The container exists, but has no living first process.
    #[error("container `{name}` is not running ({why})")]
    NotRunning {
        /// Its name.
        name: String,
        /// How we know.
        why: String,
    },
    /// A runtime's state file cannot be read.
    #[error("cannot read the container state {}: {source}", path.display())]
    StateUnreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A runtime's state file does not hold what it must.
    #[error("the container state {} is malformed: {why}", path.display())]
    StateMalformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No process is in the pid namespace.
    #[error("no process is in the pid namespace {inum}")]
    EmptyNamespace {
        /// The namespace's inode number.
        inum: u32,
    },
    /// There is no such process.
    #[error("no process {pid}")]
    NoSuchProcess {
        /// The pid asked for.
        pid: u32,
    },
    /// The process ended.
    #[error("process {pid} has exited")]
    ProcessGone {
        /// Its pid.
        pid: u32,
    },
    /// Something of the process cannot be read.
    #[error("cannot read {what} of process {pid}: {source}")]
    ProcessUnreadable {
        /// The process.
        pid: u32,
        /// What was read: a name below `/proc/PID`.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The helper thread could not join the mount namespace.
    #[error("cannot join the mount namespace of process {pid} ({step}): {source}")]
    CannotJoin {
        /// The process whose namespace it is.
        pid: u32,
        /// The step that failed.
        step: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The helper thread is not where it must be.
    #[error("the mount namespace of process {pid} changed while it was joined")]
    NotArrived {
        /// The process whose namespace it is.
        pid: u32,
    },
    /// The path leads to nothing.
    #[error("no file {}{}", path.display(), list(" (similar: ", nearest, ")", ""))]
    NotFound {
        /// The path asked for.
        path: PathBuf,
        /// Similar names in the deepest directory of the path that exists.
        nearest: Vec<String>,
    },
    /// The path leads to something that is not a regular file.
    #[error("{} is {kind}, not a regular file", path.display())]
    NotRegular {
        /// The path asked for.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// Too many symbolic links, or one of procfs's magic links.
    #[error("{} is a loop of symbolic links or a magic link of procfs", path.display())]
    BadLink {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path leads to another mount, and a file system that need not answer is mounted
    /// somewhere in the container.
    #[error(
        "{} is left alone: it is on another mount than the container's root, and the container \
         has a file system that need not answer ({file_system})",
        path.display()
    )]
    NeedNotAnswer {
        /// The path asked for.
        path: PathBuf,
        /// The kind of that file system.
        file_system: String,
    },
    /// The path leads to another mount of a mount namespace that has ended.
    #[error(
        "{} cannot be looked at: it is on another mount than the container's root, and the \
         container has ended",
        path.display()
    )]
    NamespaceEnded {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path leads to nothing that may be opened.
    #[error("cannot open {}: {source}", path.display())]
    OpenFailed {
        /// The path asked for.
        path: PathBuf,
        /// The system's reason; among others, that permission is denied.
        source: io::Error,
    },
    /// The container's file system did not answer in time.
    #[error("{} did not open within {limit:?}", path.display())]
    TimedOut {
        /// The path asked for.
        path: PathBuf,
        /// The limit that was set.
        limit: Duration,
    },
    /// As many threads as may be wait for file systems that have not answered.
    #[error(
        "{} is not looked for: {BEHIND_MAX} threads already wait for file systems that do not \
         answer",
        path.display()
    )]
    TooManyWait {
        /// The path asked for.
        path: PathBuf,
    },
    /// The helper thread ended without an answer: a bug of nsprobe's.
    #[error("the thread that opens {} failed: {why}", path.display())]
    HelperFailed {
        /// The path asked for.
        path: PathBuf,
        /// What the thread said.
        why: String,
    },
    /// No such library is mapped.
    #[error("no library `{name}` is mapped{}", list(" (mapped: ", mapped, ")", ""))]
    NoSuchLibrary {
        /// The library asked for.
        name: String,
        /// The file names that are mapped, the most similar ones first.
        mapped: Vec<String>,
    },
    /// Several mapped libraries fit.
    #[error("library `{name}` is ambiguous{}", list(": ", matches, "", ""))]
    AmbiguousLibrary {
        /// The library asked for.
        name: String,
        /// Those that fit.
        matches: Vec<String>,
    },
}

/// `items` between `before` and `after`, or `none` when there are none.
fn list(before: &str, items: &[String], after: &str, none: &str) -> String {
    if items.is_empty() {
        none.to_owned()
    } else {
        format!("{before}{}{after}", items.join(", "))
    }
}
