// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file system as one process sees it, and how a regular file in it is opened
//! without touching anything else.
//!
//! Runs in the thread of `namespace`, possibly inside a container: it looks
//! up the path asked for (and, when that is missing, the directories on the way
//! to it), and nothing else.

use crate::copy::{self, answering};
use crate::{FileKind, OpenedFile, Result, Stamp, TargetError};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{open, openat, openat2, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{fstat, FileStat, Mode, SFlag};
use nix::sys::statfs;
use nsprobe_text::nearest;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// How often a lookup is repeated when directories are renamed under it.
const LOOKUPS_MAX: u32 = 16;
/// Most directory entries that are compared with a missing name.
const ENTRIES_MAX: usize = 10_000;
/// Most similar names that an error lists.
const NEAREST_MAX: usize = 5;
/// Longest mount table that is read, in bytes: 100,000 mounts (the kernel's
/// default limit) of 640.
const MOUNT_TABLE_BYTES_MAX: u64 = 64 << 20;

/// File systems whose files run code of the kernel's when they are read.
const VIRTUAL: [statfs::FsType; 6] = [
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::DEBUGFS_MAGIC,
    statfs::TRACEFS_MAGIC,
    statfs::SECURITYFS_MAGIC,
    statfs::CGROUP2_SUPER_MAGIC,
];

/// A file system as one process sees it.
pub(crate) struct View {
    /// Where paths start.
    root: OwnedFd,
    /// The host's `/proc`, by which a file that was looked at is opened.
    proc: OwnedFd,
    resolve: ResolveFlag,
}

impl View {
    /// What is below `root`; no link leads out of it.
    pub(crate) fn rooted(root: OwnedFd, proc: OwnedFd) -> View {
        View {
            root,
            proc,
            resolve: ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        }
    }

    /// A view in the mount of `root` alone: its namespace has ended.
    pub(crate) fn alone(root: OwnedFd, proc: OwnedFd) -> View {
        let mut view = View::rooted(root, proc);
        view.resolve |= ResolveFlag::RESOLVE_NO_XDEV;
        view
    }

    /// What we see from our working directory.
    pub(crate) fn ours() -> nix::Result<View> {
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(View {
            root: open(".", directory, Mode::empty())?,
            proc: open("/proc", directory, Mode::empty())?,
            resolve: ResolveFlag::empty(),
        })
    }

    /// Whether the root is in a mount of the calling thread's namespace.
    pub(crate) fn root_is_mounted_here(&self) -> io::Result<bool> {
        let info = self.read_proc(&format!("thread-self/fdinfo/{}", self.root.as_raw_fd()))?;
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:"))
            .ok_or(io::ErrorKind::InvalidData)?
            .trim();
        let mounts = self.read_proc("thread-self/mountinfo")?;
        let is_root = |line: &str| line.split(' ').next() == Some(id);
        Ok(mounts.lines().any(is_root))
    }

    /// Opens the regular file at `path`.
    pub(crate) fn open(&self, path: &Path) -> Result<OpenedFile> {
        let place = self
            .look_up(path, OFlag::O_PATH)
            .map_err(|errno| self.explain(path, errno))?;
        self.open_place(&place, path)
    }

    /// Opens the regular file at `path`, if there is anything; or a copy of it, see
    /// [`crate::copy`].
    pub(crate) fn open_if_there(&self, path: &Path) -> Result<Option<OpenedFile>> {
        let Some(place) = self.place_of(path)? else {
            return Ok(None);
        };
        let opened = self.open_place(&place, path)?;
        let file = answering(opened.file, opened.size);
        Ok(Some(OpenedFile {
            file: file.map_err(|error| failed(path, error))?,
            ..opened
        }))
    }

    /// The stamp of the file at `path`, if there is one.
    pub(crate) fn stamp_if_there(&self, path: &Path) -> Result<Option<Stamp>> {
        let Some(place) = self.place_of(path)? else {
            return Ok(None);
        };
        let stat = fstat(&place).map_err(|errno| failed(path, errno.into()))?;
        Ok(other_kind(&stat).is_none().then(|| Stamp::from(&stat)))
    }

    /// An `O_PATH` descriptor of what is at `path`, if there is anything.
    ///
    /// A request that a server of FUSE has taken and does not answer cannot even be killed:
    /// our process could not end. So no mount is entered where there may be such a server.
    fn place_of(&self, path: &Path) -> Result<Option<OwnedFd>> {
        let mut found = match self.is_ours() {
            true => Err(Errno::EXDEV),
            false => self.look_up_by(path, self.resolve | ResolveFlag::RESOLVE_NO_XDEV),
        };
        if let Err(Errno::EXDEV) = found {
            if self.resolve.contains(ResolveFlag::RESOLVE_NO_XDEV) {
                return Err(TargetError::NamespaceEnded { path: path.into() });
            }
            if let Some(file_system) = self.need_not_answer(path)? {
                let path = path.to_owned();
                return Err(TargetError::NeedNotAnswer { path, file_system });
            }
            found = self.look_up_by(path, self.resolve);
        }
        match found {
            Ok(place) => Ok(Some(place)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(Errno::ELOOP) => Err(TargetError::BadLink { path: path.into() }),
            Err(errno) => Err(failed(path, errno.into())),
        }
    }

    /// Opens the regular file that an `O_PATH` descriptor stands for.
    fn open_place(&self, place: &OwnedFd, path: &Path) -> Result<OpenedFile> {
        let failed = |errno: Errno| failed(path, errno.into());
        let stat = fstat(place).map_err(failed)?;
        let refused = |kind| TargetError::NotRegular {
            path: path.to_owned(),
            kind,
        };
        if let Some(kind) = other_kind(&stat) {
            return Err(refused(kind));
        }
        let file_system = statfs::fstatfs(place).map_err(failed)?;
        if VIRTUAL.contains(&file_system.filesystem_type()) {
            return Err(refused(FileKind::Virtual));
        }
        let file = self.reopen(place).map_err(failed)?;
        Ok(OpenedFile {
            file: File::from(file),
            path: path.to_owned(),
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
        })
    }

    /// Whether it is what we see ourselves.
    fn is_ours(&self) -> bool {
        self.resolve.is_empty()
    }

    /// A kind of file system in the container whose server may never answer; none is looked
    /// for on this machine, whose mounts are its owner's.
    fn need_not_answer(&self, path: &Path) -> Result<Option<String>> {
        if self.is_ours() {
            return Ok(None);
        }
        let mounts = self.read_proc("thread-self/mountinfo");
        let mounts = mounts.map_err(|error| failed(path, error))?;
        Ok(copy::need_not_answer(&mounts))
    }

    fn look_up_by(&self, path: &Path, resolve: ResolveFlag) -> nix::Result<OwnedFd> {
        self.look_up_as(path, OFlag::O_PATH, resolve)
    }

    fn look_up(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        self.look_up_as(path, flags, self.resolve)
    }

    fn look_up_as(&self, path: &Path, flags: OFlag, resolve: ResolveFlag) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(resolve);
        let mut tries = 1;
        loop {
            match openat2(&self.root, path, how) {
                // A rename or a mount happened while `..` was looked up.
                Err(Errno::EAGAIN) if tries < LOOKUPS_MAX => tries += 1,
                other => return other,
            }
        }
    }

    /// Opens for reading the file that `place` (an `O_PATH` descriptor) refers to: the very file
    /// that was looked at, whatever is at its path now.
    fn reopen(&self, place: &OwnedFd) -> nix::Result<OwnedFd> {
        let link = format!("thread-self/fd/{}", place.as_raw_fd());
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let reopen = |flags| openat(&self.proc, link.as_str(), flags, Mode::empty());
        match reopen(flags | OFlag::O_NOATIME) {
            // Only the owner may leave the access time alone.
            Err(Errno::EPERM) => reopen(flags),
            other => other,
        }
    }

    fn explain(&self, path: &Path, errno: Errno) -> TargetError {
        let path = path.to_owned();
        match errno {
            Errno::ENOENT => TargetError::NotFound {
                nearest: self.similar(&path),
                path,
            },
            Errno::ELOOP => TargetError::BadLink { path },
            _ => TargetError::OpenFailed {
                path,
                source: errno.into(),
            },
        }
    }

    /// What the deepest directory on the way to `path` holds that is named
    /// almost like what was looked for in it.
    fn similar(&self, path: &Path) -> Vec<String> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        for (inner, directory) in path.ancestors().zip(path.ancestors().skip(1)) {
            let here = if directory.as_os_str().is_empty() {
                Path::new(".")
            } else {
                directory
            };
            let Ok(opened) = self.look_up(here, flags) else {
                continue;
            };
            let wanted = inner.file_name().unwrap_or_default().to_string_lossy();
            let similar = nearest(&wanted, entries(opened), NEAREST_MAX).into_iter();
            return similar
                .map(|name| directory.join(name).to_string_lossy().into_owned())
                .collect();
        }
        Vec::new()
    }

    fn read_proc(&self, name: &str) -> io::Result<String> {
        let fd = openat(
            &self.proc,
            name,
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let mut bytes = Vec::new();
        File::from(fd)
            .take(MOUNT_TABLE_BYTES_MAX)
            .read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn failed(path: &Path, source: io::Error) -> TargetError {
    TargetError::OpenFailed {
        path: path.to_owned(),
        source,
    }
}

/// The names in a directory.
fn entries(directory: OwnedFd) -> Vec<String> {
    let Ok(mut directory) = Dir::from_fd(directory) else {
        return Vec::new();
    };
    directory
        .iter()
        .take(ENTRIES_MAX)
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "." && name != "..")
        .collect()
}

/// What it is, if not a regular file.
fn other_kind(stat: &FileStat) -> Option<FileKind> {
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFREG {
        return None;
    }
    Some(match kind {
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFIFO => FileKind::Fifo,
        SFlag::S_IFSOCK => FileKind::Socket,
        SFlag::S_IFCHR => FileKind::CharacterDevice,
        SFlag::S_IFBLK => FileKind::BlockDevice,
        _ => FileKind::Other,
    })
}
