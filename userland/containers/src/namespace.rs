// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens files as a process sees them: by a thread that joins its mount
//! namespace, and fails closed.
//!
//! A fresh thread for each visit: it unshares its `fs_struct` (the kernel lets
//! nobody join a mount namespace who shares one), joins, proves that it arrived,
//! opens, hands what it opened back and ends. It is never used again, so that no later
//! work can run in the wrong namespace, and nothing of ours stays in a container.
//!
//! What the proof and the opening need (the host's procfs, the target's root) is
//! held by file descriptors from before the join: inside, `/proc` may be missing
//! or a trap, and no path but the one asked for is looked up.
//!
//! A file system of the container's (FUSE, a dead NFS server) may never answer, and not even a
//! signal may end the wait for it. So the thread has a process do the work that shares our memory
//! and descriptors: we can end without it. The caller gets [`TargetError::TimedOut`], and the thread
//! stays behind until the file system answers or our process ends. There are at most
//! [`BEHIND_MAX`] of them: a container takes no more of our memory.
//!
//! No panic of the thread opens files by path either (`panics.rs`). A caller that installs a
//! panic hook must call the one that was there before, and must not symbolize.

use crate::copy;
use crate::panics;
use crate::view::View;
use crate::{MountView, Process, Result, TargetError};
use nix::errno::Errno;
use nix::fcntl::{open, AtFlags, OFlag};
use nix::sched::{clone, setns, unshare, CloneFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{fstat, fstatat, FileStat, Mode};
use nix::sys::wait::{waitpid, WaitPidFlag};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What is waited for at a time: a pause of the machine counts as one of these.
const PIECE: Duration = Duration::from_millis(100);

/// What is waited for in a hurry.
const HURRIED: Duration = Duration::from_millis(200);
/// Stack of the process that opens files: what it is given is not touched until it is needed.
const STACK_BYTES: usize = 1 << 20;
/// Most threads that wait for file systems which do not answer.
pub const BEHIND_MAX: usize = 16;

/// Threads that have not ended.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// Whether nothing is waited for any more but shortly.
static IS_HURRIED: AtomicBool = AtomicBool::new(false);

/// From now on no file system is waited for but shortly: the process is to end.
pub fn hurry() {
    IS_HURRIED.store(true, Ordering::Relaxed);
}

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

/// Distinguishes a file from others, and from itself after a change: on overlayfs a file has
/// several devices and inode numbers, but one size and one change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its size in bytes.
    pub size: u64,
    /// When its inode was changed last: seconds since 1970, and nanoseconds.
    pub changed: (i64, i64),
}

impl Stamp {
    /// That of an open file.
    pub fn of(file: &File) -> io::Result<Stamp> {
        Ok(Stamp::from(&fstat(file)?))
    }
}

impl From<&FileStat> for Stamp {
    fn from(stat: &FileStat) -> Stamp {
        Stamp {
            size: stat.st_size as u64,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
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
            limit: Duration::from_secs(5),
        }
    }
}

impl Opener {
    /// Opens `path` as `process` sees it: from its root directory, which is also
    /// where a relative path starts. No link leads out of that root.
    pub fn open_in(&self, process: &Process, path: &Path) -> Result<OpenedFile> {
        let destination = Destination::of(&MountView::of(process)?)?;
        self.run(path, move |path| destination.enter()?.open(path))
    }

    /// Opens `path` as we see it, with the same checks of what it is. A relative
    /// path starts at our working directory; links of procfs are followed.
    pub fn open_here(&self, path: &Path) -> Result<OpenedFile> {
        self.run(path, |path| ours()?.open(path))
    }

    /// Opens those of `paths` that are there in this mount view, in one visit. What is no
    /// regular file, or may not be opened, is an error of its own.
    ///
    /// These are files to be read, and not the kernel's to probe: one in a file system that
    /// need not answer is copied into memory.
    pub fn open_all_in(
        &self,
        mount_view: &MountView,
        paths: Vec<PathBuf>,
    ) -> Result<Vec<Result<OpenedFile>>> {
        let destination = Destination::of(mount_view)?;
        self.open_all(paths, move || destination.enter())
    }

    /// Opens those of `paths` that are there as we see them, as [`Opener::open_all_in`] does.
    pub fn open_all_here(&self, paths: Vec<PathBuf>) -> Result<Vec<Result<OpenedFile>>> {
        self.open_all(paths, ours)
    }

    /// The stamp of the regular file at `path` in this mount view, or in ours.
    pub fn stamp(&self, mount_view: Option<&MountView>, path: &Path) -> Result<Option<Stamp>> {
        let destination = mount_view.map(Destination::of).transpose()?;
        self.run(path, move |path| {
            let view = match destination {
                Some(destination) => destination.enter()?,
                None => ours()?,
            };
            view.stamp_if_there(path)
        })
    }

    /// A handle by which a process of another user reads an open file, which errors call
    /// `path`: the file itself, or a copy of it where it is in FUSE.
    pub fn for_another_user(&self, file: File, path: &Path) -> Result<File> {
        self.run(path, move |path| {
            copy::for_another_user(file).map_err(|source| TargetError::OpenFailed {
                path: path.to_owned(),
                source,
            })
        })
    }

    fn open_all(
        &self,
        paths: Vec<PathBuf>,
        view: impl FnOnce() -> Result<View> + Send + 'static,
    ) -> Result<Vec<Result<OpenedFile>>> {
        let at = Arc::new(AtomicUsize::new(0));
        let label = paths.first().cloned().unwrap_or_default();
        let (names, reached) = (paths.clone(), Arc::clone(&at));
        let opened = self.run(&label, move |_| {
            let view = view()?;
            let mut opened = Vec::new();
            for (index, name) in names.iter().enumerate() {
                reached.store(index, Ordering::Relaxed);
                opened.extend(view.open_if_there(name).transpose());
            }
            Ok(opened)
        });
        opened.map_err(
            |error| match (error, paths.get(at.load(Ordering::Relaxed))) {
                (TargetError::TimedOut { limit, .. }, Some(path)) => TargetError::TimedOut {
                    path: path.clone(),
                    limit,
                },
                (error, _) => error,
            },
        )
    }

    /// Runs `job` in a thread of its own, and waits for it at most the limit.
    fn run<T, J>(&self, path: &Path, job: J) -> Result<T>
    where
        T: Send + 'static,
        J: FnOnce(&Path) -> Result<T> + Send + 'static,
    {
        let place = ThreadSlot::take(path)?;
        let (sender, receiver) = sync_channel(1);
        let asked = path.to_owned();
        let thread = Builder::new()
            .name("nsprobe-open".to_owned())
            .spawn(move || {
                let answer = apart(|| job(&asked));
                let answer = answer.unwrap_or_else(|error| {
                    let why = format!("its process failed: {error}");
                    Err(helper_failed(&asked, why))
                });
                drop(place);
                // No caller waits after the limit; the file is closed then.
                let _ = sender.send(answer);
            })
            .map_err(|error| helper_failed(path, error.to_string()))?;
        match wait(&receiver, self.limit) {
            Ok(answer) => {
                // It holds nothing any more and ends by itself; waiting for it
                // means that nothing of ours is in the container afterwards.
                let _ = thread.join();
                answer
            }
            Err(RecvTimeoutError::Timeout) => Err(TargetError::TimedOut {
                path: path.to_owned(),
                limit: self.limit,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(helper_failed(path, panic_message(thread))),
        }
    }
}

/// One of the threads that there may be at a time; given back with the value.
struct ThreadSlot;

impl ThreadSlot {
    fn take(path: &Path) -> Result<ThreadSlot> {
        let place = ThreadSlot;
        match UNDER_WAY.fetch_add(1, Ordering::Relaxed) {
            0..BEHIND_MAX => Ok(place),
            _ => Err(TargetError::TooManyWait {
                path: path.to_owned(),
            }),
        }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// [`Opener::open_in`] with the default limit of five seconds.
pub fn open_in(process: &Process, path: &Path) -> Result<OpenedFile> {
    Opener::default().open_in(process, path)
}

/// [`Opener::open_here`] with the default limit of five seconds.
pub fn open_here(path: &Path) -> Result<OpenedFile> {
    Opener::default().open_here(path)
}

/// Waits for an answer at most so long, as far as this machine runs: one that is paused (a
/// virtual machine that moves) is not the fault of the file system.
fn wait<T>(receiver: &Receiver<T>, limit: Duration) -> std::result::Result<T, RecvTimeoutError> {
    let mut left = limit;
    loop {
        let piece = left.min(PIECE);
        left -= piece;
        match receiver.recv_timeout(piece) {
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                if IS_HURRIED.load(Ordering::Relaxed) {
                    left = left.min(HURRIED);
                }
            }
            answer => return answer,
        }
    }
}

/// Runs `job` in a process that has this thread's memory and descriptors while the thread waits.
#[expect(unsafe_code, reason = "std makes no process that can be left behind")]
fn apart<T>(job: impl FnOnce() -> T) -> io::Result<T> {
    // It must not be ended by what ends us, but with us.
    SigSet::all().thread_block()?;
    let mut stack = vec![0; STACK_BYTES];
    let (mut job, mut answer) = (Some(job), None);
    let run = Box::new(|| {
        let _ = set_pdeathsig(Signal::SIGKILL);
        let job = job.take();
        answer = job.map(|job| catch_unwind(AssertUnwindSafe(job)));
        0
    });
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK | CloneFlags::CLONE_FILES;
    // SAFETY: By CLONE_VFORK this thread does not run until the process has ended, or we have: what
    // is the thread's alone, as thread-local memory, is the process's meanwhile. The stack is
    // another one, and as all memory it stays as long as the process.
    let process = unsafe { clone(run, &mut stack, flags, None) }?;
    let _ = waitpid(process, Some(WaitPidFlag::__WALL));
    match answer {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(panic)) => resume_unwind(panic),
        None => Err(io::Error::other("it was killed")),
    }
}

fn ours() -> Result<View> {
    View::ours().map_err(|errno| TargetError::OpenFailed {
        path: ".".into(),
        source: errno.into(),
    })
}

fn helper_failed(path: &Path, why: String) -> TargetError {
    TargetError::HelperFailed {
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
    /// None when it has ended.
    namespace: Option<OwnedFd>,
    root: OwnedFd,
    /// The host's `/proc`.
    proc: OwnedFd,
}

impl Destination {
    fn of(mount_view: &MountView) -> Result<Destination> {
        let pid = mount_view.pid;
        let failed = |source| TargetError::CannotJoin {
            pid,
            step: "keep its root directory",
            source,
        };
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open("/proc", directory, Mode::empty())
            .map_err(|errno| cannot_join(pid, "open /proc", errno))?;
        Ok(Destination {
            pid,
            namespace: match &mount_view.namespace {
                Some(namespace) => Some(namespace.try_clone().map_err(failed)?),
                None => None,
            },
            root: mount_view.root.try_clone().map_err(failed)?,
            proc,
        })
    }

    /// Takes the calling thread there.
    fn enter(self) -> Result<View> {
        let pid = self.pid;
        let Some(namespace) = self.namespace else {
            return Ok(View::alone(self.root, self.proc));
        };
        let joined = &namespace;
        let namespace = fstat(joined).map_err(|errno| cannot_join(pid, "find it", errno))?;
        let arrived = |proc: &OwnedFd| {
            fstatat(proc, "thread-self/ns/mnt", AtFlags::empty())
                .map(|here| (here.st_dev, here.st_ino) == (namespace.st_dev, namespace.st_ino))
                .map_err(|errno| cannot_join(pid, "find where we are", errno))
        };
        panics::look_at_no_file();
        unshare(CloneFlags::CLONE_FS).map_err(|errno| cannot_join(pid, "unshare", errno))?;
        // Nobody needs a privilege to be where he is.
        if !arrived(&self.proc)? {
            setns(joined, CloneFlags::CLONE_NEWNS)
                .map_err(|errno| cannot_join(pid, "setns", errno))?;
        }
        if !arrived(&self.proc)? {
            return Err(TargetError::NotArrived { pid });
        }
        let view = View::rooted(self.root, self.proc);
        // The target may have gone elsewhere after its namespace was opened and
        // before its root was.
        match view.root_is_mounted_here() {
            Ok(true) => Ok(view),
            Ok(false) => Err(TargetError::NotArrived { pid }),
            Err(source) => Err(TargetError::CannotJoin {
                pid,
                step: "read its mount table",
                source,
            }),
        }
    }
}

fn cannot_join(pid: u32, step: &'static str, errno: Errno) -> TargetError {
    TargetError::CannotJoin {
        pid,
        step,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;
    use std::backtrace::Backtrace;
    use std::io::{BufRead, BufReader};
    use std::mem::MaybeUninit;
    use std::process::{Command, Stdio};
    use std::time::Instant;
    use std::{env, fs, thread};

    #[test]
    #[ignore = "full run: stops all tests of this process for a second"]
    fn a_pause_of_the_machine_is_not_waiting() {
        let (sender, receiver) = sync_channel(1);
        let begun = Instant::now();
        // Stands for the user who runs the tests.
        let pause = "kill -STOP $1; sleep 1; kill -CONT $1; sleep 0.1";
        let ours = std::process::id().to_string();
        let mut pausing = Command::new("sh")
            .args(["-c", pause, "sh", &ours])
            .spawn()
            .expect("a shell");
        let answering = thread::spawn(move || {
            pausing.wait().expect("our child");
            sender.send(()).expect("it is waited for");
        });
        assert_eq!(wait(&receiver, Duration::from_millis(900)), Ok(()));
        assert!(begun.elapsed() > Duration::from_secs(1));
        answering.join().expect("it has answered");
        let late = wait(&receiver, Duration::from_millis(150));
        assert_eq!(late, Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_thread_that_panics_is_an_error_and_the_next_one_is_another() {
        let opener = Opener::default();
        let path = Path::new("/proc/self/exe");
        let visit = opener.run(path, |_| -> Result<()> { panic!("on purpose") });
        let why = match visit {
            Err(TargetError::HelperFailed { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why, "on purpose");
        assert!(opener.open_here(path).is_ok());
    }

    #[test]
    fn threads_that_wait_for_ever_are_few() {
        const ALONE: &str = "NSPROBE_WAITS_ALONE";
        const NAME: &str = "namespace::tests::threads_that_wait_for_ever_are_few";
        if env::var_os(ALONE).is_none() {
            // In a process of its own: other tests open files meanwhile.
            let mut alone = Command::new(env::current_exe().expect("/proc"));
            let ended = alone.args(["--exact", NAME]).env(ALONE, "1").status();
            assert!(ended.expect("it runs here, too").success());
            return;
        }
        let path = Path::new("/proc/self/exe");
        let limit = Duration::from_millis(1);
        let (answers, waits) = (0..BEHIND_MAX)
            .map(|_| sync_channel::<()>(1))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        for wait in waits {
            let behind = Opener { limit }.run(path, move |_| {
                let _ = wait.recv();
                Ok(())
            });
            assert!(
                matches!(behind, Err(TargetError::TimedOut { .. })),
                "{behind:?}"
            );
        }
        let refused = open_here(path);
        assert!(
            matches!(refused, Err(TargetError::TooManyWait { .. })),
            "{refused:?}"
        );
        drop(answers);
        while UNDER_WAY.load(Ordering::Relaxed) > 0 {
            thread::sleep(limit);
        }
        assert!(open_here(path).is_ok());
    }

    /// A thread in a mount namespace that has another file where our program is here.
    #[test]
    fn a_panic_in_a_container_opens_none_of_its_files() {
        const ALONE: &str = "NSPROBE_PANICS_ALONE";
        const NAME: &str = "namespace::tests::a_panic_in_a_container_opens_none_of_its_files";
        let own = env::current_exe().expect("/proc");
        if !nsprobe_testing::root("joining mount namespaces") {
            return;
        }
        if env::var_os(ALONE).is_none() {
            // In a process that has named no stack yet: the library opens each file once.
            let mut alone = Command::new(own);
            alone.args(["--exact", NAME, "--nocapture"]);
            let ended = alone.env(ALONE, "1").env("RUST_BACKTRACE", "1").output();
            let ended = ended.expect("it runs here, too");
            let text = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{text}");
            assert!(text.contains("on purpose"), "{text}");
            assert!(!text.contains("stack backtrace"), "{text}");
            return;
        }
        let decoy = env::temp_dir().join(format!("nsprobe-decoy-{}", std::process::id()));
        fs::copy("/bin/true", &decoy).expect("there is room");
        let script = "mount --bind \"$0\" \"$1\"; echo ready; exec sleep 60";
        let mut there = Command::new("unshare")
            .args(["--mount", "sh", "-ec", script])
            .args([&decoy, &own])
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux");
        let mut line = String::new();
        BufReader::new(there.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "ready\n");
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&watch, &decoy, inotify::WatchFlags::OPEN).expect("it is there");
        let was_opened = || {
            let mut room = [MaybeUninit::uninit(); 4096];
            inotify::Reader::new(&watch, &mut room).next().is_ok()
        };
        let process = Process::open(there.id()).expect("it lives");
        let visit = |job: fn()| {
            let mount_view = MountView::of(&process).expect("it lives");
            let destination = Destination::of(&mount_view).expect("it lives");
            Opener::default().run(Path::new("a job"), move |_| {
                destination.enter()?;
                job();
                Ok(())
            })
        };
        let ended = visit(|| panic!("on purpose"));
        assert!(
            matches!(ended, Err(TargetError::HelperFailed { .. })),
            "{ended:?}"
        );
        assert!(!was_opened(), "it was opened for a panic");
        // It is what would have been opened.
        let named = visit(|| drop(Backtrace::force_capture().to_string()));
        assert!(named.is_ok(), "{named:?}");
        assert!(was_opened(), "a stack that was named has not opened it");
        there
            .kill()
            .and_then(|()| there.wait())
            .expect("it is ours");
        fs::remove_file(&decoy).expect("it is ours");
    }

    #[test]
    fn the_whole_limit_is_waited_for() {
        let (_sender, receiver) = sync_channel::<()>(1);
        let begun = Instant::now();
        let late = wait(&receiver, Duration::from_millis(250));
        assert_eq!(late, Err(RecvTimeoutError::Timeout));
        assert!(begun.elapsed() >= Duration::from_millis(250));
    }
}
