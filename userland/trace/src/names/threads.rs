// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that look names up, each with a process without privileges that reads files for
//! it. A file belongs to one of them; there are more when the others are busy.

use super::files::Files;
use super::jobs::{Answer, Busy, Job, SharedState};
use super::line::NamesNote;
use crate::signals;
use anyhow::Context;
use nsprobe_worker::{Options, Worker};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const THREADS_MAX: usize = 4;
/// The part of the memory for names that is for those that came back; the rest is for the
/// files in the hands of the processes.
const NAMES_PART: u64 = 4;
/// Interval at which a thread looks for unused files.
const PAUSE: Duration = Duration::from_secs(1);
/// How long threads may take to sum up, and how long after a second signal. Both are less than
/// `STILL` of `signals`, after which nsprobe is ended.
const SUM_UP: Duration = Duration::from_secs(2);
const SUM_UP_HURRIED: Duration = Duration::from_millis(100);

/// The threads, for their callers.
#[derive(Debug)]
pub(crate) struct Threads {
    threads: Vec<Thread>,
    most: usize,
    options: Options,
    memory_bytes: u64,
    is_quiet: bool,
    answers: Receiver<Answer>,
    answer: Sender<Answer>,
}

#[derive(Debug)]
struct Thread {
    jobs: Sender<Job>,
    shared: Arc<SharedState>,
}

impl Threads {
    /// Starts the first one, and a second one, without waiting for it. An error gives the reason
    /// why files cannot be parsed safely.
    pub(crate) fn start(
        options: Options,
        memory_bytes: u64,
        is_quiet: bool,
    ) -> anyhow::Result<Threads> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let (answer, answers) = mpsc::channel();
        let mut threads = Threads {
            threads: Vec::new(),
            most: processors.min(THREADS_MAX),
            options,
            memory_bytes,
            is_quiet,
            answers,
            answer,
        };
        threads
            .add()?
            .recv()
            .context("the thread of names ended")??;
        // The first files that are announced come together, the probed one in front: a file of
        // a container that is gone soon shall not have to wait until a process is started.
        threads.one_more();
        Ok(threads)
    }

    /// Starts one more; what comes says whether it has a process.
    fn add(&mut self) -> anyhow::Result<Receiver<Result<(), nsprobe_worker::WorkerError>>> {
        let (jobs, receiver) = mpsc::channel();
        let shared = Arc::new(SharedState::default());
        let (tell, started) = mpsc::channel();
        let files_bytes = (self.memory_bytes - self.names_bytes()) / self.most as u64;
        let options = Options {
            memory_bytes: files_bytes,
            ..self.options.clone()
        };
        let (answers, own) = (self.answer.clone(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("nsprobe-names".to_owned());
        thread.spawn(move || {
            // A process ends with the thread that starts it.
            let worker = match Worker::start(options) {
                Ok(worker) => worker,
                Err(why) => {
                    let text = why.to_string();
                    // Only the result of the first one is received.
                    let _ = tell.send(Err(why));
                    // It is never done: files go to others, if there are any.
                    own.left.store(usize::MAX / 2, Ordering::Relaxed);
                    return refuse(&receiver, &answers, &text);
                }
            };
            let _ = tell.send(Ok(()));
            work(
                &receiver,
                &answers,
                &own,
                Files::new(worker, Arc::clone(&own)),
            );
        })?;
        self.threads.push(Thread { jobs, shared });
        Ok(started)
    }

    /// Bytes for names that came back.
    pub(crate) fn names_bytes(&self) -> u64 {
        self.memory_bytes / NAMES_PART
    }

    /// Options of its processes.
    pub(super) fn options(&self) -> Options {
        self.options.clone()
    }

    /// Whether long waits are not reported.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// The one with least to do, which may be a new one.
    pub(super) fn least_busy(&mut self) -> usize {
        match self.least(None) {
            Some((at, 0)) => at,
            least => self.one_more().or(least.map(|(at, _)| at)).unwrap_or(0),
        }
    }

    /// Another one than this; none when there is none that has nothing to do.
    pub(super) fn another(&mut self, than: usize) -> Option<usize> {
        match self.least(Some(than)) {
            Some((at, 0)) => Some(at),
            _ => self.one_more(),
        }
    }

    fn least(&self, but: Option<usize>) -> Option<(usize, usize)> {
        let left =
            |(at, thread): (usize, &Thread)| (at, thread.shared.left.load(Ordering::Relaxed));
        let threads = self.threads.iter().enumerate().map(left);
        threads
            .filter(|(at, _)| Some(*at) != but)
            .min_by_key(|(_, left)| *left)
    }

    fn one_more(&mut self) -> Option<usize> {
        if self.threads.len() >= self.most {
            return None;
        }
        // Nothing waits until it has a process.
        self.add().ok()?;
        Some(self.threads.len() - 1)
    }

    /// What a thread is doing.
    pub(super) fn busy(&self, thread: usize) -> Option<Busy> {
        self.threads.get(thread)?.shared.busy().clone()
    }

    /// An object is no longer a thread's.
    pub(super) fn forget(&mut self, thread: usize, id: u32) {
        if let Some(thread) = self.threads.get(thread) {
            thread.shared.forgotten().insert(id);
        }
    }

    /// Asks a thread for something.
    pub(super) fn send(&mut self, thread: usize, job: Job) {
        let Some(thread) = self.threads.get(thread) else {
            return;
        };
        if let Job::Open { id, .. } = &job {
            thread.shared.forgotten().remove(id);
        }
        thread.shared.left.fetch_add(1, Ordering::Relaxed);
        // One that has panicked does not answer.
        let _ = thread.jobs.send(job);
    }

    /// An answer that is there.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    /// The next answer, if one comes in time.
    pub(super) fn answer_within(&mut self, limit: Duration) -> Option<Answer> {
        self.answers.recv_timeout(limit).ok()
    }

    /// Sources of names, by object, as far as the threads report them in time.
    pub(super) fn sources(&mut self) -> BTreeMap<u32, NamesNote> {
        let until = match signals::is_hurried() {
            false => Instant::now() + SUM_UP,
            true => Instant::now() + SUM_UP_HURRIED,
        };
        let mut all = BTreeMap::new();
        let (tell, told) = mpsc::channel();
        for at in 0..self.threads.len() {
            self.send(at, Job::SumUp(tell.clone()));
        }
        drop(tell);
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(lines) = told.recv_timeout(left()) {
            all.extend(lines);
        }
        all
    }
}

/// Files that come to a thread without a process have no names.
fn refuse(jobs: &Receiver<Job>, answers: &Sender<Answer>, why: &str) {
    for job in jobs {
        if let Job::Open { id, .. } = job {
            let opened = Err(why.to_owned());
            // If the receiver is gone, the caller has ended.
            let _ = answers.send(Answer::Opened { id, opened });
        }
    }
}

/// Handles requests until no sender is left.
fn work(jobs: &Receiver<Job>, answers: &Sender<Answer>, shared: &SharedState, mut files: Files) {
    let tell = |answer| answers.send(answer).is_ok();
    loop {
        let goes_on = match jobs.recv_timeout(PAUSE) {
            Ok(job) => {
                let goes_on = one(&mut files, shared, job).is_none_or(tell);
                *shared.busy() = None;
                shared.left.fetch_sub(1, Ordering::Relaxed);
                goes_on
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        };
        // They stay so: jobs for them may still be in the queue.
        shared.forgotten().iter().for_each(|id| files.forget(*id));
        let closed = files.close_idle();
        if !goes_on || !closed.into_iter().all(|id| tell(Answer::Closed { id })) {
            return;
        }
    }
}

fn one(files: &mut Files, shared: &SharedState, job: Job) -> Option<Answer> {
    let id = match job.id() {
        Some(id) if shared.forgotten().contains(&id) => return None,
        // It was another thread's meanwhile.
        Some(id) if !job.is_open() && !files.has(id) => return None,
        Some(id) => id,
        None => 0,
    };
    *shared.busy() = Some(Busy {
        id,
        since: Instant::now(),
        path: files.path_of(id),
        bytes: 0,
    });
    Some(match job {
        Job::Open {
            id,
            identity,
            pinned,
            context,
            owner,
        } => Answer::Opened {
            id,
            opened: files.open(id, &identity, &pinned.source, &context, owner),
        },
        Job::Name { id, places } => match files.names(id, &places) {
            Some(named) => Answer::Named {
                id,
                named: places.into_iter().zip(named).collect(),
            },
            None => Answer::Closed { id },
        },
        Job::Table { id } => match files.table(id) {
            Some(rows) => Answer::Table { id, rows },
            None => Answer::Closed { id },
        },
        Job::GiveRows { id, claimed } => {
            files.give_rows(id, claimed);
            return None;
        }
        Job::SumUp(tell) => {
            // A caller that stopped waiting needs no answer.
            let _ = tell.send(files.sources());
            return None;
        }
    })
}
