// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that stop in the midst of what the kernel does for them, so that what is a race on a
//! busy machine has one outcome.
//!
//! An event of perf's in the task wakes a thread, which takes the task's CPU before all others
//! and keeps it. So the task is preempted right after the event: perf's part of a tracepoint
//! runs with preemption off, and wakes in an interrupt of the same CPU.

use crate::cpu::RealTimeAlone;
use crate::oracle::within;
use crate::session::PAGE;
use crate::sys::{self, Mapping};
use crate::victim::Victim;
use nix::libc::{MAP_SHARED, PROT_READ, PROT_WRITE};
use nix::poll::{poll, PollFd, PollFlags};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The CPU of the tasks that are held; the test has the others.
const CPU: usize = 1;

/// A higher priority than that of the thread which holds a task.
const BEFORE_THE_HOLDER: i32 = 2;

/// Longer than any test holds one, and shorter than the kernel lets a CPU be kept.
const LONGEST: Duration = Duration::from_secs(15);

/// Where a task is held.
pub(crate) enum Place {
    /// A page fault of the kernel's own that may wait for the page.
    Fault,
    /// A tracepoint, GROUP/NAME: after perf's part, in front of what was registered there
    /// later.
    Tracepoint(&'static str),
}

impl Place {
    /// The attributes of perf's event: each time, only in the kernel, with a wake-up each.
    fn attributes(&self) -> [u64; 9] {
        // Numbers of include/uapi/linux/perf_event.h.
        const SOFTWARE: u64 = 1;
        const TRACEPOINT: u64 = 2;
        const PAGE_FAULTS: u64 = 2;
        const SAMPLE_IP: u64 = 1;
        const EXCLUDE_USER: u64 = 1 << 4;
        let (kind, config) = match self {
            Place::Fault => (SOFTWARE, PAGE_FAULTS),
            Place::Tracepoint(name) => (TRACEPOINT, number_of(name)),
        };
        let mut attributes = [0; 9];
        attributes[0] = kind | (size_of_val(&attributes) as u64) << 32;
        attributes[1] = config;
        attributes[2] = 1;
        attributes[3] = SAMPLE_IP;
        attributes[5] = EXCLUDE_USER;
        attributes[6] = 1;
        attributes
    }
}

/// The number of a tracepoint.
fn number_of(tracepoint: &str) -> u64 {
    let file = format!("/sys/kernel/tracing/events/{tracepoint}/id");
    let number = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    number.trim().parse().expect("a number")
}

/// CPUs where tasks can be held; as they were with the end of the value.
pub(crate) struct Stage {
    _alone: RealTimeAlone,
    is_over: Arc<AtomicBool>,
    /// Puts the kernel's own threads before a holder as they come, and returns which.
    helper: Option<JoinHandle<Vec<u32>>>,
}

impl Stage {
    /// The calling thread leaves the CPU of the tasks that are held.
    pub(crate) fn new() -> Stage {
        sys::run_on(u64::MAX >> 1 & !(1 << CPU));
        let alone = RealTimeAlone::new();
        let mut preferred = Vec::new();
        prefer_workers(&mut preferred);
        let is_over = Arc::new(AtomicBool::new(false));
        let helper = std::thread::spawn({
            let is_over = is_over.clone();
            move || {
                // The kernel makes workers as it needs them.
                while !is_over.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(50));
                    prefer_workers(&mut preferred);
                }
                preferred
            }
        });
        Stage {
            _alone: alone,
            is_over,
            helper: Some(helper),
        }
    }

    /// Holds a victim the next time that it passes the place. Of several the one that was
    /// asked for last has to come first.
    pub(crate) fn hold(&self, victim: &Victim, place: &Place) -> Held {
        victim.stay_on(CPU);
        let event = sys::perf_event(&place.attributes(), victim.pid()).expect("root may");
        let signals = Arc::new(Signals::default());
        let thread = std::thread::spawn({
            let signals = signals.clone();
            move || signals.take_the_cpu(&event)
        });
        let held = Held {
            signals,
            thread: Some(thread),
        };
        let is_ready = || held.signals.ready.load(SeqCst);
        assert!(within(Duration::from_secs(60), is_ready), "no event");
        held
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let preferred = self.helper.take().map(JoinHandle::join);
        for worker in preferred.and_then(Result::ok).unwrap_or_default() {
            // It may have ended.
            let _ = sys::set_real_time(worker, 0);
        }
        sys::run_on(u64::MAX >> 1);
    }
}

/// Puts the kernel's workers of the CPU, and its threads that end grace periods, before a
/// holder. `preferred` are those for which that is done already.
fn prefer_workers(preferred: &mut Vec<u32>) {
    let mut others = workers();
    others.retain(|worker| !preferred.contains(worker));
    // One of them may have ended meanwhile.
    others.retain(|worker| sys::set_real_time(*worker, BEFORE_THE_HOLDER).is_ok());
    preferred.extend(others);
}

fn workers() -> Vec<u32> {
    let (worker, softirqs) = (format!("kworker/{CPU}:"), format!("ksoftirqd/{CPU}"));
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| {
            name.starts_with(&worker) || name.trim() == softirqs || name.starts_with("rcu_")
        })
    };
    pids.filter(is_one).collect()
}

#[derive(Default)]
struct Signals {
    ready: AtomicBool,
    holds: AtomicBool,
    is_over: AtomicBool,
}

impl Signals {
    /// Waits for the event, and then keeps the CPU.
    fn take_the_cpu(&self, event: &OwnedFd) {
        // perf wakes no thread for an event without a buffer.
        let _buffer = Mapping::new(event, 0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED)
            .expect("perf has memory");
        sys::run_on(1 << CPU);
        sys::run_before_others();
        // Nothing runs on this CPU before this thread sleeps.
        self.ready.store(true, SeqCst);
        let mut wanted = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
        while poll(&mut wanted, 100u8).is_ok_and(|woken| woken == 0) {
            if self.is_over.load(SeqCst) {
                return;
            }
        }
        self.holds.store(true, SeqCst);
        let until = Instant::now() + LONGEST;
        while !self.is_over.load(SeqCst) && Instant::now() < until {
            std::hint::spin_loop();
        }
        self.holds.store(false, SeqCst);
    }
}

/// A task that is held, or will be; it goes on with the end of the value.
pub(crate) struct Held {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

impl Held {
    /// Waits until it is held.
    pub(crate) fn wait(&self) {
        let holds = within(Duration::from_secs(20), || self.is_there());
        assert!(holds, "it does not come to the place");
    }

    /// Whether it is held now.
    pub(crate) fn is_there(&self) -> bool {
        self.signals.holds.load(SeqCst)
    }

    /// Does `what`, and panics when that is over before the task goes on.
    pub(crate) fn keeps_waiting(self, what: impl FnOnce() + Send) {
        /// Much longer than it takes when it does not wait.
        const ENOUGH: Duration = Duration::from_millis(400);
        std::thread::scope(|scope| {
            let done = scope.spawn(what);
            std::thread::sleep(ENOUGH);
            let is_early = done.is_finished();
            assert!(self.is_there(), "the task went on by itself");
            drop(self);
            done.join().expect("it is done");
            assert!(!is_early, "it did not wait for the task");
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.signals.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            // Its own panic says what went wrong.
            let _ = thread.join();
        }
    }
}
