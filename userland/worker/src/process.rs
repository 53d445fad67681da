// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parent's side of one child: it is started, asked, and buried.

use crate::channel::{Channel, NoMessage};
use crate::child::{ARGUMENT, UNCONFINED};
use crate::error::Death;
use crate::protocol::{
    decode, encode, Failure, Reply, Request, ANSWER_BYTES_MAX, INPUT_BYTES_MAX, PROBES_BYTES_MAX,
    TABLE_BYTES_MAX,
};
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take to give up its privileges.
const START: Duration = Duration::from_secs(10);
/// How long a child that was killed may take to end.
const END: Duration = Duration::from_secs(1);
/// How long one that has closed its socket may take: why it ended is worth some waiting.
const LAST: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const GLANCE: Duration = Duration::from_millis(1);

/// A thread's own heap, when it shrinks, has glibc ask `/proc` how memory is accounted: the
/// filter ends who opens a file, so all threads share the heap that does not.
/// And what is large goes back to the kernel when a file is closed.
const MALLOC: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=131072",
);

/// Memory for files unless it is said how much, in bytes.
const MEMORY_BYTES: u64 = 256 << 20;

/// How a child is kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// By everything, or there is none.
    #[default]
    Whole,
    /// By nothing: it is a process of its own, no more.
    None,
}

/// How long a child may take for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// To read a file for the first time, or all of its frames' descriptions.
    pub load: Duration,
    /// For a query about a file that was read; a batch may take as long as `load`.
    pub query: Duration,
    /// To find and compile the probes of a spec, or to list functions.
    pub probes: Duration,
}

/// For tests: no limit is longer than this number of seconds. It can only make nsprobe give up
/// earlier.
const SECONDS_AT_MOST: &str = "NSPROBE_PARSER_SECONDS";

impl ChildLimits {
    /// These, as far as the environment does not shorten them for a test.
    pub(crate) fn shortened(self) -> ChildLimits {
        let seconds = std::env::var(SECONDS_AT_MOST).ok();
        let Some(seconds) = seconds.and_then(|text| text.parse().ok()) else {
            return self;
        };
        let most = Duration::from_secs(seconds);
        ChildLimits {
            load: self.load.min(most),
            query: self.query.min(most),
            probes: self.probes.min(most),
        }
    }
}

impl Default for ChildLimits {
    /// A program with 1 GB of debug information is read in some seconds.
    fn default() -> ChildLimits {
        ChildLimits {
            load: Duration::from_secs(30),
            query: Duration::from_secs(5),
            // A spec may stand for 65,536 functions, each with variables.
            probes: Duration::from_secs(60),
        }
    }
}

/// What children are like.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that is started: it must call [`serve`](crate::serve).
    pub program: PathBuf,
    /// How it is kept in.
    pub sandbox: Sandbox,
    /// How long it may take.
    pub limits: ChildLimits,
    /// Memory for the files that it has open, in bytes: beyond, those that were of no use for
    /// longest are closed, and read again when they are asked about. One file may take more.
    pub memory_bytes: u64,
}

impl Default for Options {
    /// This very program, kept in.
    fn default() -> Options {
        Options {
            program: PathBuf::from("/proc/self/exe"),
            sandbox: Sandbox::Whole,
            limits: ChildLimits::default(),
            memory_bytes: MEMORY_BYTES,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    channel: Channel<OwnedFd>,
}

impl Process {
    /// Starts one, and waits until it has given up its privileges. The error is for people.
    ///
    /// It ends with the thread that started it.
    pub(crate) fn start(options: &Options) -> Result<Process, String> {
        Process::begin(options)?.when_ready()
    }

    /// As `start`, but does not wait; [`when_ready`](Self::when_ready) comes before any question.
    pub(crate) fn begin(options: &Options) -> Result<Process, String> {
        let cannot = |error: io::Error| format!("the parser process cannot be started: {error}");
        let flags = SocketFlags::CLOEXEC;
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| cannot(errno.into()))?;
        let mut command = Command::new(&options.program);
        command
            .arg0("nsprobe")
            // What ends us from the keyboard is not meant for it.
            .process_group(0)
            .args([ARGUMENT, &std::process::id().to_string()])
            .args((options.sandbox == Sandbox::None).then_some(OsStr::new(UNCONFINED)))
            .env_clear()
            .env(MALLOC.0, MALLOC.1)
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(cannot)?;
        // With it goes our copy of the child's end: else its death would not be seen.
        drop(command);
        Ok(Process {
            child,
            channel: Channel::new(ours),
        })
    }

    /// Waits until it has given up its privileges.
    pub(crate) fn when_ready(mut self) -> Result<Process, String> {
        match self.receive(ANSWER_BYTES_MAX, START) {
            Ok(Reply::Ready) => Ok(self),
            Ok(Reply::Failed(Failure::NoSandbox(why))) => Err(format!(
                "the parser process cannot give up its privileges ({why})"
            )),
            Ok(_) => Err("the parser process speaks another language".to_owned()),
            Err(death) => Err(format!("the parser process {death} before it began")),
        }
    }

    /// Asks; how it died, if it did. After that it is of no use.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        files: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Result<Reply, Death> {
        let most = match request {
            Request::Input { .. } => INPUT_BYTES_MAX,
            Request::Probes { .. } | Request::List { .. } => PROBES_BYTES_MAX,
            Request::Rows { .. } | Request::Compile { .. } => TABLE_BYTES_MAX,
            _ => ANSWER_BYTES_MAX,
        };
        let message = encode(request).ok_or(Death::Nonsense)?;
        let sent = self
            .channel
            .send(&message, files, Some(Instant::now() + limit));
        // One that dies while it is sent something may have answered before.
        if let Err(failed @ (NoMessage::Late | NoMessage::TooLong)) = sent {
            return Err(self.bury(failed, limit));
        }
        self.receive(most, limit)
    }

    fn receive(&mut self, most: usize, limit: Duration) -> Result<Reply, Death> {
        let until = Instant::now() + limit;
        let message = match self.channel.receive(most, Some(until)) {
            // Files that come with an answer are closed: none was asked for.
            Ok((message, _)) => message,
            Err(failed) => return Err(self.bury(failed, limit)),
        };
        match decode::<Reply>(&message).filter(Reply::is_sound) {
            Some(reply) => Ok(reply),
            None => Err(self.bury(NoMessage::TooLong, limit)),
        }
    }

    /// Ends the child; why it is of no use any more.
    fn bury(&mut self, failed: NoMessage, limit: Duration) -> Death {
        let death = match failed {
            NoMessage::Late => Death::Hung(limit),
            NoMessage::TooLong => Death::Nonsense,
            NoMessage::Closed => self.wait(LAST).map_or(Death::Nonsense, Death::of),
        };
        self.kill();
        death
    }

    /// Waits for one that was killed, or has closed its socket, which is the last that it
    /// does.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(GLANCE),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    fn kill(&mut self) {
        // One that has ended is only reaped. One that reads a file of FUSE dies when its server
        // answers: we do not wait for that, and our own end leaves it to others.
        let _ = self.child.kill();
        let _ = self.wait(END);
    }

    /// Memory that it takes, in bytes; `None` if unknown.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        let pages = fs::read_to_string(format!("/proc/{}/statm", self.pid())).ok()?;
        let resident: u64 = pages.split(' ').nth(1)?.parse().ok()?;
        Some(resident * rustix::param::page_size() as u64)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
