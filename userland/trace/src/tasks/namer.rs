// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the names of containers in a thread of its own: that takes a look at all processes
//! and at files, and the rings must not wait for it.

use super::{LivePlaces, NamedContainer, Places};
use anyhow::Context;
use libnsprobe::Reader;
use nix::sys::signal::{SigSet, SigmaskHow};
use nsprobe_containers::PidSpace;
use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After which times it is looked for a container: its runtime may write its files after
/// its first process has started.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(4),
];
/// Most containers that are looked for; a program that makes namespaces in a loop must not
/// fill the memory.
const KEYS_MAX: usize = 1 << 16;

/// Identifies a container by the data of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContainerKey {
    /// The control group; zero for one that is not known.
    pub(crate) cgroup: u64,
    /// The pid namespace; none for our own.
    pub(crate) pid_namespace: PidSpace,
}

/// A container that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundContainer {
    pub(crate) key: ContainerKey,
    pub(crate) known: NamedContainer,
    /// When, in the clock of the records.
    pub(crate) time_ns: u64,
}

pub(crate) struct Namer {
    wanted: Option<Sender<ContainerKey>>,
    found: Receiver<FoundContainer>,
    asked: HashSet<ContainerKey>,
    thread: Option<JoinHandle<()>>,
}

impl Namer {
    pub(crate) fn start() -> anyhow::Result<Namer> {
        let (wanted, asked) = mpsc::channel();
        let (answers, found) = mpsc::channel();
        let thread = thread::Builder::new().name("names".to_owned());
        // It has our signals blocked from its first instruction on: they are for the thread that
        // waits for them, and here would end the program.
        let ours = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let thread = thread.spawn(move || ContainerSearch::default().run(&asked, &answers));
        ours.thread_set_mask()?;
        Ok(Namer {
            wanted: Some(wanted),
            found,
            asked: HashSet::new(),
            thread: Some(thread.context("cannot start a thread")?),
        })
    }

    /// A task was seen there.
    pub(crate) fn want(&mut self, key: ContainerKey) {
        let is_nowhere = key.cgroup == 0 && key.pid_namespace.id == 0;
        if is_nowhere || self.asked.len() >= KEYS_MAX || !self.asked.insert(key) {
            return;
        }
        if let Some(wanted) = &self.wanted {
            // When the thread is gone, there are no names.
            let _ = wanted.send(key);
        }
    }

    /// Names found meanwhile.
    pub(crate) fn found(&mut self) -> Vec<FoundContainer> {
        self.found.try_iter().collect()
    }

    /// Has what is missing looked for once more; the rest of what is found.
    pub(crate) fn finish(&mut self) -> Vec<FoundContainer> {
        drop(self.wanted.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported; what it found before is valid.
            let _ = thread.join();
        }
        self.found()
    }
}

/// State of the thread.
#[derive(Default)]
struct ContainerSearch {
    places: LivePlaces,
    /// Pending look-ups: key, number of attempts, and time of the next one.
    waiting: Vec<(ContainerKey, usize, Instant)>,
}

impl ContainerSearch {
    fn run(&mut self, asked: &Receiver<ContainerKey>, answers: &Sender<FoundContainer>) {
        let mut is_over = false;
        while !is_over {
            let due = self.waiting.iter().map(|(.., due)| *due).min();
            let key = match due {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => asked.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            is_over = key == Err(RecvTimeoutError::Disconnected);
            let first = |key| (key, 0, Instant::now() + LOOKS[0]);
            self.waiting.extend(key.ok().into_iter().map(first));
            self.waiting.extend(asked.try_iter().map(first));
            if is_over || due.is_some_and(|due| due <= Instant::now()) {
                self.look(answers, is_over);
            }
        }
    }

    /// Looks for what is due.
    fn look(&mut self, answers: &Sender<FoundContainer>, all: bool) {
        let now = Instant::now();
        if self.waiting.is_empty() {
            return;
        }
        // Files that cannot be read name nothing.
        let _ = self.places.refresh();
        let places = &self.places;
        self.waiting.retain_mut(|(key, looks, due)| {
            if !all && *due > now {
                return true;
            }
            if let Some(known) = places.container(key.cgroup, key.pid_namespace.id) {
                let found = FoundContainer {
                    key: *key,
                    known: (*known).clone(),
                    time_ns: Reader::now(),
                };
                return answers.send(found).is_err();
            }
            *looks += 1;
            match LOOKS.get(*looks) {
                Some(pause) => *due = now + *pause,
                None => return false,
            }
            true
        });
    }
}
