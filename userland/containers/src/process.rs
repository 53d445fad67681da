// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process, held in a way that a recycled pid cannot fake.

use crate::{mappings, Library, Mapping, PidSpace, Result, TargetError};
use nix::errno::Errno;
use nix::fcntl::{open, openat, AtFlags, OFlag};
use nix::sys::stat::{fstatat, FileStat, Mode};
use nix::unistd::{sysconf, SysconfVar};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Largest file below `/proc/PID` that is read, in bytes: the mappings of a
/// process at the default limit of 65,530, each with a path of 1 KiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A process: every read goes through a directory handle of `/proc/PID`, which
/// dies with the process even when its number is used again.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    pidfd: OwnedFd,
    directory: OwnedFd,
    start_time: u64,
}

impl Process {
    /// The living process of that number.
    pub fn open(pid: u32) -> Result<Process> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(format!("/proc/{pid}").as_str(), flags, Mode::empty())
            .map_err(|_| TargetError::NoSuchProcess { pid })?;
        let number = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let pidfd = number
            .and_then(|pid| {
                rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
            })
            .ok_or(TargetError::NoSuchProcess { pid })?;
        let mut process = Process {
            pid,
            pidfd,
            directory,
            start_time: 0,
        };
        // The directory came first: if it still lives, the number was not used
        // again before the pidfd was made, and both are the same process.
        let stat = process
            .stat()
            .map_err(|_| TargetError::NoSuchProcess { pid })?;
        if stat.is_dead() {
            return Err(TargetError::NoSuchProcess { pid });
        }
        process.start_time = stat.start_time;
        Ok(process)
    }

    /// Its number in our pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its pidfd: readable (poll) when the process has exited.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// When it started, in clock ticks since boot.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether it still lives. A zombie does not.
    pub fn still_same(&self) -> bool {
        self.stat()
            .is_ok_and(|stat| !stat.is_dead() && stat.start_time == self.start_time)
    }

    /// The name of its main thread, as the kernel keeps it (at most 15 bytes).
    pub fn comm(&self) -> Result<String> {
        let bytes = self.read("comm")?;
        Ok(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
    }

    /// Its pid namespace.
    pub fn pid_namespace(&self) -> Result<PidSpace> {
        let file = self.open_at("ns/pid", OFlag::O_RDONLY)?;
        PidSpace::of(&file).map_err(|errno| self.failed("ns/pid", errno.into()))
    }

    /// The inode number of its mount namespace.
    pub fn mount_namespace(&self) -> Result<u64> {
        self.stat_of("ns/mnt").map(|stat| stat.st_ino)
    }

    /// Identity of the file system it sees, distinct from all others, also from those that are
    /// gone.
    pub fn root(&self) -> Result<RootId> {
        let root = self.open_at("root", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        RootId::of(&root).map_err(|source| self.failed("root", source))
    }

    /// Its numbers in each pid namespace, ours first, its own last.
    pub fn namespace_pids(&self) -> Result<Vec<u32>> {
        self.numbers("NSpid:")
    }

    /// The user that it acts as, as our user namespace numbers it.
    pub fn effective_uid(&self) -> Result<u32> {
        let users = self.numbers("Uid:")?;
        let effective = users.get(1).copied();
        effective.ok_or(TargetError::ProcessGone { pid: self.pid })
    }

    /// The numbers in the line of its status that begins so.
    fn numbers(&self, start: &str) -> Result<Vec<u32>> {
        let status = self.read("status")?;
        let numbers = status
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(start.as_bytes()))
            .unwrap_or_default();
        Ok(String::from_utf8_lossy(numbers)
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect())
    }

    /// What it has mapped, by rising address.
    pub fn mappings(&self) -> Result<Vec<Mapping>> {
        Ok(mappings::parse(&self.read("maps")?))
    }

    /// The one library of that soname or file name that it has mapped
    /// (`libc.so.6`; `libssl.so` or `libssl` when only one begins so).
    pub fn find_library(&self, name: &str) -> Result<Library> {
        let files = mappings::files([(self.pid, self.mappings()?)]);
        let mut found = mappings::find_library(files, name)?;
        match (found.pop(), found.is_empty()) {
            (Some(library), true) => Ok(library),
            (last, _) => Err(TargetError::AmbiguousLibrary {
                name: name.to_owned(),
                matches: found
                    .into_iter()
                    .chain(last)
                    .map(|library| library.path.display().to_string())
                    .collect(),
            }),
        }
    }

    /// The parent's pid; 0 when it is outside our pid namespace.
    pub(crate) fn parent(&self) -> Result<u32> {
        self.stat().map(|stat| stat.parent)
    }

    /// The bytes of a file below `/proc/PID`.
    pub(crate) fn read(&self, name: &'static str) -> Result<Vec<u8>> {
        let fd = self.open_at(name, OFlag::O_RDONLY)?;
        // Without room `read_to_end` asks for 32 bytes first, and then for twice as many each time.
        let mut bytes = Vec::with_capacity(1024);
        File::from(fd)
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|source| self.failed(name, source))?;
        Ok(bytes)
    }

    /// Opens something below `/proc/PID`; magic links are followed.
    pub(crate) fn open_at(&self, name: &'static str, flags: OFlag) -> Result<OwnedFd> {
        openat(
            &self.directory,
            name,
            flags | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| self.failed(name, errno.into()))
    }

    fn stat_of(&self, name: &'static str) -> Result<FileStat> {
        fstatat(&self.directory, name, AtFlags::empty())
            .map_err(|errno| self.failed(name, errno.into()))
    }

    fn stat(&self) -> Result<Stat> {
        let bytes = self.read("stat")?;
        Stat::parse(&bytes).ok_or(TargetError::ProcessGone { pid: self.pid })
    }

    /// The error for `name`, or that the process is gone when that is why.
    fn failed(&self, what: &'static str, source: io::Error) -> TargetError {
        let pid = self.pid;
        let gone = [Errno::ESRCH, Errno::ENOENT].map(|errno| Some(errno as i32));
        if gone.contains(&source.raw_os_error()) {
            return TargetError::ProcessGone { pid };
        }
        TargetError::ProcessUnreadable { pid, what, source }
    }
}

/// A root directory: the number of its mount, which is never used again
/// (`STATX_MNT_ID_UNIQUE`), and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RootId {
    mount: u64,
    ino: u64,
}

impl RootId {
    /// That of the calling process.
    pub fn ours() -> io::Result<RootId> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        RootId::of(&open("/", flags, Mode::empty())?)
    }

    pub(crate) fn of(directory: &OwnedFd) -> io::Result<RootId> {
        use rustix::fs::{statx, AtFlags, StatxFlags};
        let unique = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
        let told = statx(
            directory,
            c"",
            AtFlags::EMPTY_PATH,
            unique | StatxFlags::INO,
        )?;
        Ok(RootId {
            mount: told.stx_mnt_id,
            ino: told.stx_ino,
        })
    }
}

/// `include/uapi/linux/stat.h`, since Linux 6.8.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Contents of `/proc/PID/stat`.
struct Stat {
    state: u8,
    parent: u32,
    start_time: u64,
}

impl Stat {
    /// The name of the process may hold blanks and parentheses; what follows
    /// its last closing one is ours.
    fn parse(bytes: &[u8]) -> Option<Stat> {
        let name_end = bytes.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(bytes.get(name_end + 1..)?).ok()?;
        let mut fields = rest.split_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 22; the parent is field 4.
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Stat {
            state,
            parent,
            start_time,
        })
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The state of a thread, and when it was started, in clock ticks since the machine was; `None` if it
/// has ended.
pub fn thread_state(pid: u32, tid: u32) -> Option<(char, u64)> {
    let stat = std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let stat = Stat::parse(&stat)?;
    Some((stat.state.into(), stat.start_time))
}

/// How long the threads of a process have lived within the last `span`, all together.
pub fn thread_time(pid: u32, span: Duration) -> io::Result<Duration> {
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let uptime = uptime.split(' ').next().and_then(|word| word.parse().ok());
    let uptime: f64 = uptime.ok_or(io::ErrorKind::InvalidData)?;
    let ticks = sysconf(SysconfVar::CLK_TCK)?.ok_or(io::ErrorKind::InvalidData)?;
    let lived = |thread: io::Result<std::fs::DirEntry>| {
        let stat = Stat::parse(&std::fs::read(thread.ok()?.path().join("stat")).ok()?)?;
        let age = uptime - stat.start_time as f64 / ticks as f64;
        Some(age.clamp(0.0, span.as_secs_f64()))
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(Duration::from_secs_f64(threads.filter_map(lived).sum()))
}

/// The children of all threads of this process.
pub fn own_children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids = |list: String| -> Vec<u32> {
        let pids = list.split_whitespace();
        pids.filter_map(|pid| pid.parse().ok()).collect()
    };
    lists.flat_map(pids).collect()
}

/// The pids of all processes, rising.
pub fn all_processes() -> Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc").map_err(|source| TargetError::StateUnreadable {
        path: "/proc".into(),
        source,
    })?;
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The pids of all processes that are in this very pid namespace (not in one
/// below it), rising. Empty when there is none.
pub fn processes_in_pid_namespace(space: PidSpace) -> Result<Vec<u32>> {
    let inside = |pid: &u32| {
        let file = File::open(format!("/proc/{pid}/ns/pid"));
        file.is_ok_and(|file| PidSpace::of(&file) == Ok(space))
    };
    Ok(all_processes()?.into_iter().filter(inside).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn stat_survives_hostile_names() {
        let line = b"7 (a) R 1 (\n) S 42 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            (stat.state, stat.parent, stat.start_time),
            (b'S', 42, 12345)
        );
        for end in 0..line.len() {
            let _ = Stat::parse(&line[..end]);
        }
    }

    #[test]
    fn threads_live_for_as_long_as_they_are_there() {
        let mut child = sleeper();
        let span = Duration::from_secs(3600);
        let lived = thread_time(child.id(), span);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(lived.unwrap() < Duration::from_secs(60));
        assert!(thread_time(child.id(), span).is_err());
        // The first process is as old as the machine.
        let short = Duration::from_millis(1);
        assert!(thread_time(1, short).unwrap() >= short);
    }

    #[test]
    fn we_are_who_we_are() {
        let me = Process::open(std::process::id()).unwrap();
        assert!(me.still_same());
        assert_eq!(me.namespace_pids().unwrap().first(), Some(&me.pid()));
        let mine = processes_in_pid_namespace(me.pid_namespace().unwrap()).unwrap();
        assert!(mine.contains(&me.pid()));
        assert!(processes_in_pid_namespace(PidSpace::default())
            .unwrap()
            .is_empty());
    }

    #[test]
    fn a_dead_process_is_gone_and_not_somebody_else() {
        let mut child = sleeper();
        let process = Process::open(child.id()).unwrap();
        assert!(process.still_same());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.still_same());
        assert!(matches!(
            process.mappings(),
            Err(TargetError::ProcessGone { .. })
        ));
        assert!(matches!(
            Process::open(process.pid()),
            Err(TargetError::NoSuchProcess { .. })
        ));
    }

    #[test]
    fn a_zombie_does_not_count_as_living() {
        let mut child = sleeper();
        let process = Process::open(child.id()).unwrap();
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while process.still_same() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!process.still_same());
        assert!(Process::open(child.id()).is_err());
        child.wait().unwrap();
    }

    #[test]
    fn absurd_pids_are_no_processes() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(matches!(
                Process::open(pid),
                Err(TargetError::NoSuchProcess { .. })
            ));
        }
    }
}
