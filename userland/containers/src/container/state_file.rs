// SPDX-License-Identifier: MIT OR Apache-2.0
//! State files of runtimes, read as what they are: files that others write.
//!
//! Regular files of bounded size only. Below a directory of a user's own no link leads out
//! of it, and no other mount is entered: a file server of that user's need never answer.

use crate::copy::need_not_answer;
use crate::{Result, TargetError};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{open, openat2, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::Mode;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Largest state file that is read, in bytes: podman's list of some 20,000 containers.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most entries of a directory that are looked at.
const ENTRIES_MAX: usize = 20_000;

/// A directory with state in it.
#[derive(Debug)]
pub(super) struct StateFolder {
    path: PathBuf,
    directory: OwnedFd,
    resolve: ResolveFlag,
}

impl StateFolder {
    /// That of root, or of this machine; `None` when there is none.
    pub(super) fn open(path: &Path) -> Result<Option<StateFolder>> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let found = found(path, open(path, flags, Mode::empty()))?;
        Ok(found.map(|directory| StateFolder {
            path: path.to_owned(),
            directory,
            resolve: ResolveFlag::empty(),
        }))
    }

    /// The directory of a user, who controls its contents; `None` if there is none.
    pub(super) fn of_user(path: &Path) -> Result<Option<StateFolder>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo");
        let mounts = mounts.map_err(|source| unreadable(path, source))?;
        let Some((mount, line)) = mount_of(&mounts, path) else {
            return Ok(None);
        };
        if let Some(kind) = need_not_answer(line) {
            let why = format!("it is on a file system that need not answer ({kind})");
            return Err(unreadable(path, io::Error::other(why)));
        }
        let Some(mount) = StateFolder::open(&mount)? else {
            return Ok(None);
        };
        let confined = StateFolder {
            resolve: ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
            ..mount
        };
        let below = path.strip_prefix(&confined.path).unwrap_or(path).to_owned();
        match below.as_os_str().is_empty() {
            true => Ok(Some(confined)),
            false => confined.folder(&below),
        }
    }

    /// A directory below; `None` when there is none.
    pub(super) fn folder(&self, name: impl AsRef<Path>) -> Result<Option<StateFolder>> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let directory = self.open_at(name.as_ref(), flags)?;
        Ok(directory.map(|directory| StateFolder {
            path: self.path.join(name),
            directory,
            resolve: self.resolve,
        }))
    }

    /// The names in it, sorted; without those that are not UTF-8.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let failed = |errno: Errno| unreadable(&self.path, errno.into());
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let opened = self.open_at(Path::new("."), flags)?;
        let Some(opened) = opened else {
            return Ok(Vec::new());
        };
        let mut directory = Dir::from_fd(opened).map_err(failed)?;
        let mut names: Vec<String> = directory
            .iter()
            .take(ENTRIES_MAX)
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        Ok(names)
    }

    /// The text of a file; `None` when there is none.
    pub(super) fn text(&self, name: impl AsRef<Path>) -> Result<Option<String>> {
        let path = self.path.join(name.as_ref());
        // A named pipe does not block the reader.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let Some(file) = self.open_at(name.as_ref(), flags)? else {
            return Ok(None);
        };
        let read = read(File::from(file));
        read.map(Some).map_err(|source| unreadable(&path, source))
    }

    /// What a file of JSON holds; `None` when there is none.
    pub(super) fn json<T: DeserializeOwned>(&self, name: impl AsRef<Path>) -> Result<Option<T>> {
        let Some(text) = self.text(name.as_ref())? else {
            return Ok(None);
        };
        let parsed = serde_json::from_str(&text);
        parsed
            .map(Some)
            .map_err(|error| self.malformed(name, &error.to_string()))
    }

    /// The number in a file; `None` when there is no file.
    pub(super) fn pid(&self, name: impl AsRef<Path>) -> Result<Option<u32>> {
        let Some(text) = self.text(name.as_ref())? else {
            return Ok(None);
        };
        let parsed = text.trim().parse();
        parsed
            .map(Some)
            .map_err(|_| self.malformed(name, "it holds no pid"))
    }

    /// That a file in it does not hold what it must.
    pub(super) fn malformed(&self, name: impl AsRef<Path>, why: &str) -> TargetError {
        TargetError::StateMalformed {
            path: self.path.join(name),
            why: why.to_owned(),
        }
    }

    fn open_at(&self, name: &Path, flags: OFlag) -> Result<Option<OwnedFd>> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(self.resolve);
        found(&self.path.join(name), openat2(&self.directory, name, how))
    }
}

/// The text of a regular file of bounded size.
fn read(file: File) -> io::Result<String> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::other(why));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

fn found<T>(path: &Path, opened: nix::Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(Errno::EXDEV) => {
            let why = "a link leads out of its user's directory, or it is on another mount";
            Err(unreadable(path, io::Error::other(why)))
        }
        Err(errno) => Err(unreadable(path, errno.into())),
    }
}

fn unreadable(path: &Path, source: io::Error) -> TargetError {
    TargetError::StateUnreadable {
        path: path.to_owned(),
        source,
    }
}

/// The mount that a path is on, and its line of a mount table.
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<(PathBuf, &'a str)> {
    let on = mounts.lines().filter_map(|line| {
        let point = PathBuf::from(unescaped(line.split(' ').nth(4)?));
        path.starts_with(&point).then_some((point, line))
    });
    // Of two at one place the later hides the former.
    on.max_by_key(|(point, _)| point.components().count())
}

/// Undoes the escapes of a mount table (`\040`).
fn unescaped(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::scratch::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_no_bounded_regular_file_is_refused() {
        let scratch = Scratch::new("state-file");
        scratch.write("text", "a\n");
        scratch.write("number", " 17\n");
        let huge = File::create(scratch.path().join("huge")).unwrap();
        huge.set_len(FILE_BYTES_MAX + 1).unwrap();
        let pipe = scratch.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(pipe).status();
        assert!(made.unwrap().success());
        let folder = StateFolder::open(scratch.path()).unwrap().unwrap();
        assert_eq!(folder.text("text").unwrap().as_deref(), Some("a\n"));
        assert_eq!(folder.pid("number").unwrap(), Some(17));
        assert!(matches!(
            folder.pid("text"),
            Err(TargetError::StateMalformed { .. })
        ));
        assert!(folder.text("none").unwrap().is_none());
        for name in ["huge", "pipe", "."] {
            let error = folder.text(name).unwrap_err();
            assert!(
                matches!(error, TargetError::StateUnreadable { .. }),
                "{error}"
            );
        }
        assert_eq!(folder.names().unwrap(), ["huge", "number", "pipe", "text"]);
    }

    #[test]
    fn a_users_link_does_not_lead_out() {
        let scratch = Scratch::new("state-link");
        scratch.write("home/inner/text", "mine");
        scratch.write("outside", "not mine");
        let home = scratch.path().join("home");
        symlink("../outside", home.join("escape")).unwrap();
        symlink("/etc/passwd", home.join("absolute")).unwrap();
        symlink("inner", home.join("within")).unwrap();
        let Some(folder) = StateFolder::of_user(&home).unwrap() else {
            panic!("no folder");
        };
        assert_eq!(folder.text("within/text").unwrap().as_deref(), Some("mine"));
        // The folder is compared with what holds it: a link that leaves it is not followed.
        for name in ["escape", "absolute"] {
            let error = folder.text(name).unwrap_err();
            assert!(error.to_string().contains("leads out"), "{error}");
        }
    }

    #[test]
    fn a_path_is_on_its_innermost_mount() {
        let mounts = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /home rw - ext4 b rw\n\
                      3 2 0:3 / /home/me/a\\040b rw - fuse.x c rw\n";
        let mount = |path: &str| mount_of(mounts, Path::new(path)).unwrap();
        assert_eq!(mount("/etc").0, Path::new("/"));
        assert_eq!(mount("/home/me/x").0, Path::new("/home"));
        assert_eq!(mount("/homes").0, Path::new("/"));
        assert_eq!(
            need_not_answer(mount("/home/me/a b/c").1).unwrap(),
            "fuse.x"
        );
    }
}
