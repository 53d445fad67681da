// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that ask us to end, and a watch that ends us when a file server, or the reader of our
//! output, keeps us from doing so.
//!
//! A thread takes the signals and hands them on. It ends us by the signal itself at the second one,
//! or when nothing has gone on for a while since the first: the main thread has not run, and
//! neither have the threads and parsers that it may wait for. One that comes while results are
//! printed ends the wait for names only.

use anyhow::Context;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{raise, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{getpid, gettid};
use nsprobe_containers::own_children;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, Builder};
use std::time::{Duration, Instant};

/// How long nothing may go on after the first signal.
const STILL: Duration = Duration::from_secs(3);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// CPU time, in nanoseconds, by which work differs from looking for some.
const WORK_NS: u64 = 100_000_000;
/// How long what has to be done before a forced end may take.
const LAST: Duration = Duration::from_millis(500);

/// What is done before a forced end.
static AT_FORCED_END: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());
/// Whether the main thread waits for the kernel, which takes its time.
static IS_PATIENT: AtomicBool = AtomicBool::new(false);

/// Whether nothing is traced any more, and results are printed.
static IS_PRINTING: AtomicBool = AtomicBool::new(false);
/// Whether a signal came since then.
static IS_HURRIED: AtomicBool = AtomicBool::new(false);

/// Ends a run from another thread, or has it look at what there is, in a program that runs several:
/// its signals are then its own.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopState>);

#[derive(Debug)]
struct StopState {
    is_set: AtomicBool,
    /// Readable when there is something to look at.
    changed: EventFd,
}

impl Stop {
    /// For a run that goes on.
    pub fn new() -> anyhow::Result<Stop> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let changed = EventFd::from_value_and_flags(0, flags).context("no eventfd")?;
        Ok(Stop(Arc::new(StopState {
            is_set: AtomicBool::new(false),
            changed,
        })))
    }

    /// Ends the run.
    pub fn stop(&self) {
        self.0.is_set.store(true, Relaxed);
        self.wake();
    }

    /// Whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Relaxed)
    }

    /// Has the run go on with its next step at once.
    pub fn wake(&self) {
        // It fails only where it was woken 2^64 times.
        let _ = self.0.changed.write(1);
    }

    /// Takes back what has woken it.
    pub(crate) fn take(&self) {
        let _ = self.0.changed.read();
    }

    /// Waits until it is to end, or was woken, at most so long; whether it is to end.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit + Duration::from_micros(999));
        if !self.is_set() {
            let _ = poll(&mut fds, limit.unwrap_or(PollTimeout::MAX));
        }
        self.take();
        self.is_set()
    }
}

impl AsFd for Stop {
    /// Readable when there is something to look at.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.changed.as_fd()
    }
}

/// Until when something is waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitLimit {
    pub(crate) deadline: Option<Instant>,
    pub(crate) stop: Option<Stop>,
}

impl WaitLimit {
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|limit| Instant::now() >= limit)
            || self.stop.as_ref().is_some_and(Stop::is_set)
    }
}

/// A signal that asked us to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) signal: Signal,
    /// Whether a process sent it, rather than the terminal.
    pub(crate) by_process: bool,
}

/// Signals that ask us to end: they come when we look for them.
pub struct Signals {
    handed_on: UnixDatagram,
}

impl Signals {
    /// From now on they, and these `others`, wait for us, also in threads that start later. The
    /// signal after the first `for_us` ends us at once.
    pub fn new(others: &[Signal], for_us: usize) -> anyhow::Result<Signals> {
        let mut set = SigSet::empty();
        let all = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        all.iter().chain(others).for_each(|signal| set.add(*signal));
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
        let (ours, handed_on) = UnixDatagram::pair()?;
        handed_on.set_nonblocking(true)?;
        let watch = move || watch(&signals, &ours, for_us);
        let thread = Builder::new().name("nsprobe-signals".to_owned());
        thread.spawn(watch).context("no thread for signals")?;
        Ok(Signals { handed_on })
    }

    /// The next one, if there is one.
    pub(crate) fn next(&self) -> Option<Asked> {
        let mut message = [0; 2];
        let length = self.handed_on.recv(&mut message).ok()?;
        let [number, by_process] = message;
        (length == 2).then_some(Asked {
            signal: Signal::try_from(i32::from(number)).ok()?,
            by_process: by_process != 0,
        })
    }

    /// Waits for one, at most so long; whether it came.
    pub fn wait(&self, limit: Duration) -> anyhow::Result<bool> {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        let limit = limit + Duration::from_micros(999);
        poll(&mut fds, PollTimeout::try_from(limit)?)?;
        Ok(self.next().is_some())
    }
}

impl AsFd for Signals {
    /// Readable when there is one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handed_on.as_fd()
    }
}

/// Has this done before a forced end, by another thread, and if it does not take long.
pub fn at_forced_end(what: impl FnOnce() + Send + 'static) {
    let mut all = AT_FORCED_END.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(Box::new(what));
}

/// Waits for what takes its time, and ends: for the kernel, which removes breakpoints one by one.
pub(crate) fn patiently<T>(wait: impl FnOnce() -> T) -> T {
    IS_PATIENT.store(true, Relaxed);
    let done = wait();
    IS_PATIENT.store(false, Relaxed);
    done
}

/// Nothing is traced any more: the next signal asks for what there is.
pub(crate) fn printing() {
    IS_PRINTING.store(true, Relaxed);
}

/// Whether results are to be printed without waiting for more.
pub(crate) fn is_hurried() -> bool {
    IS_HURRIED.load(Relaxed)
}

/// Hands signals on until one more than `for_us` has come, or nothing goes on.
fn watch(signals: &SignalFd, ours: &UnixDatagram, for_us: usize) {
    let mut seen = Vec::new();
    let mut last = (Work::now(), Instant::now());
    loop {
        let limit = match seen.is_empty() {
            true => PollTimeout::NONE,
            false => PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::MAX),
        };
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, limit).is_ok_and(|ready| ready > 0) {
            let info = signals.read_signal().ok().flatten();
            let signal = info.and_then(|info| {
                let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
                // SI_KERNEL (the terminal) is positive, SI_USER and SI_QUEUE are not.
                Some((signal, info.ssi_code <= 0))
            });
            let Some((signal, by_process)) = signal else {
                // Not to be busy for ever.
                sleep(LOOK);
                continue;
            };
            seen.push(signal);
            if IS_PRINTING.load(Relaxed) && !IS_HURRIED.swap(true, Relaxed) {
                last = (Work::now(), Instant::now());
                continue;
            }
            if seen.len() > for_us {
                return end(signal);
            }
            if seen.len() == for_us {
                nsprobe_containers::hurry();
            }
            // It is full only when the main thread stands still.
            let _ = ours.send(&[signal as u8, u8::from(by_process)]);
            last = (Work::now(), Instant::now());
        }
        let now = Work::now();
        if now.goes_on_since(&last.0) || IS_PATIENT.load(Relaxed) {
            last = (now, Instant::now());
        }
        match seen.last() {
            Some(signal) if last.1.elapsed() >= STILL => return end(*signal),
            _ => {}
        }
    }
}

/// What was done so far.
struct Work {
    /// What changes whenever the main thread runs.
    main: Option<String>,
    /// CPU time of the others and of our parsers, in nanoseconds.
    others_ns: u64,
}

impl Work {
    fn now() -> Work {
        let (main, watch) = (getpid(), gettid());
        let schedule = |of: &str| fs::read_to_string(format!("/proc/{of}/schedstat")).ok();
        let used = |of: &str| schedule(of)?.split(' ').next()?.parse::<u64>().ok();
        let program = fs::read_link("/proc/self/exe").ok();
        let mut others_ns = 0;
        for task in fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .flatten()
        {
            let task = task.file_name().to_string_lossy().into_owned();
            if task != watch.to_string() && task != main.to_string() {
                others_ns += used(&format!("self/task/{task}")).unwrap_or(0);
            }
        }
        for child in own_children() {
            // A traced command is another program.
            if fs::read_link(format!("/proc/{child}/exe")).ok() == program {
                others_ns += used(&child.to_string()).unwrap_or(0);
            }
        }
        Work {
            main: schedule(&format!("self/task/{main}")),
            others_ns,
        }
    }

    fn goes_on_since(&self, before: &Work) -> bool {
        self.main != before.main || self.others_ns.abs_diff(before.others_ns) >= WORK_NS
    }
}

/// Ends us, and all threads, by the signal.
fn end(signal: Signal) {
    let (done, is_done) = channel();
    let last = move || {
        let mut all = AT_FORCED_END.lock().unwrap_or_else(PoisonError::into_inner);
        all.drain(..).for_each(|what| what());
        let _ = done.send(());
    };
    // Without a thread the kernel does what it can when we have ended.
    if Builder::new().spawn(last).is_ok() {
        let _ = is_done.recv_timeout(LAST);
    }
    let mut set = SigSet::empty();
    set.add(signal);
    let _ = set.thread_unblock();
    let _ = raise(signal);
}
