// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions about files, and a child that answers them, whatever becomes of it.
//!
//! A file is asked about until a child comes to an end on it twice: the second child has
//! read nothing but this file, so that one which was spoilt by another file, or killed by
//! somebody, costs nobody's names. One that gives no answer in time is not asked again.

use crate::channel::FILES_MAX;
use crate::error::{Death, WorkerError};
use crate::process::{ChildLimits, Options, Process};
use crate::protocol::{Attached, DebugRole, Facts, Failure, Form, Reply, Request};
use crate::quarantine::{FileKey, Quarantine};
use nsprobe_symbolize::OpenFile;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most files that a child has open.
const OPEN_MAX: usize = 64;
/// Most descriptors of these and their debug files; one program may have as many.
pub(crate) const HELD_MAX: usize = 1536;

/// What takes longer may have taken memory, even if no file was opened.
const QUICK: Duration = Duration::from_millis(2);

/// A child and its successors.
#[derive(Clone, Debug)]
pub struct Worker {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    options: Options,
    process: Option<Process>,
    /// What the child has open, by number: when it was last asked about.
    open: BTreeMap<u32, Opened>,
    /// Shared with the workers that were made of this one.
    quarantine: Rc<RefCell<Quarantine>>,
    /// A child that has read nothing yet, for the next of these that needs one.
    spare: Rc<RefCell<Option<Process>>>,
    /// Numbers that were given.
    numbers: u32,
    /// Questions that were asked.
    asked: u64,
}

/// A file in the child's hands.
#[derive(Debug)]
struct Opened {
    asked: u64,
    /// Whether it was asked about since it was opened.
    is_loaded: bool,
    /// How many descriptors the child has of it.
    descriptors: usize,
    /// Memory that the child took when it had answered about it first, in bytes.
    first_bytes: Option<u64>,
}

/// A file to ask about, as the parent has it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) number: u32,
    pub(crate) file: File,
    pub(crate) key: FileKey,
    pub(crate) label: Vec<u8>,
    pub(crate) form: Form,
    /// Those with its debug information.
    pub(crate) debug: RefCell<Vec<DebugFile>>,
}

/// A debug file, as the parent has it.
#[derive(Debug)]
pub(crate) struct DebugFile {
    pub(crate) role: DebugRole,
    pub(crate) open: OpenFile,
    pub(crate) key: FileKey,
}

impl Subject {
    /// What it is quarantined by: with its debug files, any of which may be the culprit.
    fn keys(&self) -> Vec<FileKey> {
        let debug = self.debug.borrow();
        let debug = debug.iter().map(|file| file.key);
        std::iter::once(self.key).chain(debug).collect()
    }

    /// How many descriptors the child has of it at most: symbols and DWARF are read through
    /// copies.
    fn descriptors(&self) -> usize {
        match self.debug.borrow().len() {
            0 => 1,
            count => count + 3,
        }
    }
}

impl Worker {
    /// Starts a child, which ends with this thread. An error says why it cannot be, or
    /// cannot give up its privileges.
    pub fn start(options: Options) -> Result<Worker, WorkerError> {
        let worker = Worker::new(options);
        worker.inner().revive()?;
        Ok(worker)
    }

    /// One whose child is started when something is asked, by the thread that asks.
    pub fn new(options: Options) -> Worker {
        Worker::with(options, Rc::default(), Rc::default())
    }

    /// Another one, whose child is not this one's: what a file does to a parser shall not
    /// touch what is said of others. Files that a parser came to an end on are neither's.
    pub fn another(&self, limits: ChildLimits) -> Worker {
        let inner = self.inner();
        let options = Options {
            limits,
            ..inner.options.clone()
        };
        Worker::with(
            options,
            Rc::clone(&inner.quarantine),
            Rc::clone(&inner.spare),
        )
    }

    /// Starts a child ahead, unless there is one, for this one or the next that is made of it; does
    /// not wait.
    pub fn start_ahead(&self) {
        let inner = self.inner();
        let mut spare = inner.spare.borrow_mut();
        if spare.is_none() {
            // Without it, the one that needs it says why.
            *spare = Process::begin(&inner.options).ok();
        }
    }

    fn with(
        mut options: Options,
        quarantine: Rc<RefCell<Quarantine>>,
        spare: Rc<RefCell<Option<Process>>>,
    ) -> Worker {
        options.limits = options.limits.shortened();
        Worker {
            inner: Rc::new(RefCell::new(Inner {
                options,
                process: None,
                open: BTreeMap::new(),
                quarantine,
                spare,
                numbers: 0,
                asked: 0,
            })),
        }
    }

    /// The pid of the child, if there is one.
    pub fn pid(&self) -> Option<u32> {
        self.inner.borrow().process.as_ref().map(Process::pid)
    }

    pub(crate) fn inner(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }
}

impl Inner {
    /// A number for a file.
    pub(crate) fn number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    /// What children are like.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Reads a file; what is known of it.
    pub(crate) fn open(&mut self, subject: &Subject) -> Result<Facts, WorkerError> {
        self.survive(subject, Inner::open_once)
    }

    /// The answer to a question about a file, which is opened if need be.
    pub(crate) fn ask(
        &mut self,
        subject: &Subject,
        request: &Request,
    ) -> Result<Reply, WorkerError> {
        self.survive(subject, |inner, subject| {
            if let Err(why) = inner.reopen(subject)? {
                return Ok(Err(why));
            }
            inner.ask_once(subject, request)
        })
    }

    /// The answer to a question about a file and another one, by which it is judged: who
    /// does not survive the question is the former.
    pub(crate) fn ask_with(
        &mut self,
        other: &Subject,
        subject: &Subject,
        request: &Request,
    ) -> Result<Reply, WorkerError> {
        self.quarantine.borrow().check(&other.keys())?;
        self.survive(subject, |inner, subject| {
            for needed in [other, subject] {
                if let Err(why) = inner.reopen(needed)? {
                    return Ok(Err(why));
                }
            }
            inner.ask_once(subject, request)
        })
    }

    /// Makes sure that the child has the file open.
    fn reopen(&mut self, subject: &Subject) -> Result<Result<(), WorkerError>, Death> {
        match self.open.get_mut(&subject.number) {
            Some(opened) => {
                opened.asked = self.asked;
                Ok(Ok(()))
            }
            None => Ok(self.open_once(subject)?.map(drop)),
        }
    }

    /// Asks about a file no more: what a child answered about it cannot be.
    pub(crate) fn distrust(&mut self, subject: &Subject) -> WorkerError {
        self.bury(Death::Nonsense);
        self.quarantine(subject, Death::Nonsense)
    }

    /// Asks about a file no more.
    pub(crate) fn quarantine(&mut self, subject: &Subject, death: Death) -> WorkerError {
        self.quarantine.borrow_mut().add(subject.keys(), death);
        WorkerError::Fatal(death)
    }

    /// Fails when too many children died lately.
    pub(crate) fn check_deaths(&mut self) -> Result<(), WorkerError> {
        self.quarantine.borrow_mut().check_deaths()
    }

    /// Notes that a child has come to an end before its time.
    pub(crate) fn note_death(&mut self, death: Death) {
        self.quarantine.borrow_mut().note_death(death);
    }

    /// What is left of a time to wait.
    pub(crate) fn patience(&self, limit: Duration) -> Duration {
        self.quarantine.borrow().patience(limit)
    }

    /// Lets a file go.
    pub(crate) fn close(&mut self, number: u32) {
        if self.open.remove(&number).is_none() {
            return;
        }
        let limit = self.options.limits.query;
        let request = Request::Close { object: number };
        if let Err(death) = self.exchange(&request, &[], limit) {
            self.bury(death);
        }
    }

    /// Tries, and tries once more with a new child when the first one died. The inner
    /// error is the file's; the outer one is a death.
    fn survive<T>(
        &mut self,
        subject: &Subject,
        mut attempt: impl FnMut(&mut Inner, &Subject) -> Result<Result<T, WorkerError>, Death>,
    ) -> Result<T, WorkerError> {
        self.quarantine.borrow().check(&subject.keys())?;
        let mut is_second = false;
        loop {
            self.revive()?;
            let begun = Instant::now();
            let was_open = self.open.contains_key(&subject.number);
            let death = match attempt(self, subject) {
                Ok(answered) => {
                    if !was_open || begun.elapsed() > QUICK {
                        self.bound_memory(subject.number);
                    }
                    return answered;
                }
                Err(death) => death,
            };
            self.bury(death);
            if is_second || matches!(death, Death::Hung(_)) {
                return Err(self.quarantine(subject, death));
            }
            is_second = true;
        }
    }

    /// Has files closed until the child takes no more memory than it may: those that were of
    /// no use for longest first. One that is asked about takes what it needs to be read, but
    /// not twice as much.
    fn bound_memory(&mut self, number: u32) {
        loop {
            let memory = self.process.as_ref().and_then(Process::memory_bytes);
            let Some(bytes) = memory.filter(|bytes| *bytes > self.options.memory_bytes) else {
                return;
            };
            let others = self.open.iter().filter(|(other, _)| **other != number);
            let oldest = others.min_by_key(|(_, opened)| opened.asked);
            if let Some(oldest) = oldest.map(|(other, _)| *other) {
                self.close(oldest);
                continue;
            }
            if let Some(opened) = self.open.get_mut(&number) {
                let first = *opened.first_bytes.get_or_insert(bytes);
                if bytes / 2 > first {
                    self.close(number);
                }
            }
            return;
        }
    }

    /// Makes sure that there is a child.
    fn revive(&mut self) -> Result<(), WorkerError> {
        if self.process.is_none() {
            self.quarantine.borrow_mut().check_deaths()?;
            let spare = self.spare.take();
            let ready = spare.and_then(|process| process.when_ready().ok());
            self.process = Some(match ready {
                Some(process) => process,
                None => Process::start(&self.options).map_err(WorkerError::NoSandbox)?,
            });
        }
        Ok(())
    }

    /// Forgets a child that is of no use any more.
    fn bury(&mut self, death: Death) {
        self.process = None;
        self.open.clear();
        self.quarantine.borrow_mut().note_death(death);
    }

    fn open_once(&mut self, subject: &Subject) -> Result<Result<Facts, WorkerError>, Death> {
        let descriptors = subject.descriptors();
        self.make_room(descriptors)?;
        let request = Request::Open {
            object: subject.number,
            label: subject.label.clone(),
            form: subject.form,
        };
        let limit = self.options.limits.load;
        let facts = match self.exchange(&request, &[subject.file.as_fd()], limit)? {
            Reply::Opened(facts) => facts,
            reply => {
                return match answer_of(reply)? {
                    Err(why) => Ok(Err(why)),
                    Ok(_) => Err(Death::Nonsense),
                }
            }
        };
        let opened = Opened {
            asked: self.asked,
            is_loaded: false,
            descriptors,
            first_bytes: None,
        };
        self.open.insert(subject.number, opened);
        let attached = self.attach_once(subject)?;
        Ok(attached.map(|()| facts))
    }

    /// Has files closed that were of no use for longest, until `descriptors` more fit.
    fn make_room(&mut self, descriptors: usize) -> Result<(), Death> {
        let held = |inner: &Inner| -> usize {
            let open = inner.open.values();
            open.map(|opened| opened.descriptors).sum()
        };
        while self.open.len() >= OPEN_MAX || held(self) + descriptors > HELD_MAX {
            let oldest = self.open.iter().min_by_key(|(_, opened)| opened.asked);
            let Some(oldest) = oldest.map(|(number, _)| *number) else {
                break;
            };
            self.open.remove(&oldest);
            let limit = self.options.limits.query;
            self.exchange(&Request::Close { object: oldest }, &[], limit)?;
        }
        Ok(())
    }

    /// Sends the debug files of a program that was just opened, some at a time.
    fn attach_once(&mut self, subject: &Subject) -> Result<Result<(), WorkerError>, Death> {
        let debug = subject.debug.borrow();
        for files in debug.chunks(FILES_MAX) {
            let told = files.iter().map(|file| Attached {
                role: file.role,
                label: file.open.path.as_os_str().as_bytes().to_vec(),
            });
            let request = Request::Attach {
                object: subject.number,
                files: told.collect(),
            };
            let open: Vec<_> = files.iter().map(|file| file.open.file.as_fd()).collect();
            let limit = self.options.limits.query;
            match answer_of(self.exchange(&request, &open, limit)?)? {
                Ok(Reply::Attached) => {}
                Ok(_) => return Err(Death::Nonsense),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(()))
    }

    fn ask_once(
        &mut self,
        subject: &Subject,
        request: &Request,
    ) -> Result<Result<Reply, WorkerError>, Death> {
        let limits = self.options.limits;
        let limit = match self.open.get(&subject.number) {
            _ if is_about_probes(request) => limits.probes,
            Some(opened) if opened.is_loaded && is_query(request) => limits.query,
            _ => limits.load,
        };
        let reply = self.exchange(request, &[], limit)?;
        if let Some(opened) = self.open.get_mut(&subject.number) {
            opened.is_loaded = true;
            opened.asked = self.asked;
        }
        answer_of(reply)
    }

    fn exchange(
        &mut self,
        request: &Request,
        files: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Result<Reply, Death> {
        self.asked += 1;
        // The caller has checked that there is one, or has nothing to send it.
        let Some(process) = &mut self.process else {
            return Ok(Reply::Closed);
        };
        process.ask(request, files, self.quarantine.borrow().patience(limit))
    }
}

fn is_query(request: &Request) -> bool {
    matches!(
        request,
        Request::Resolve { .. } | Request::FunctionAt { .. } | Request::VariableAt { .. }
    )
}

fn is_about_probes(request: &Request) -> bool {
    matches!(request, Request::Probes { .. } | Request::List { .. })
}

/// Separates failures of the file from those of the child.
fn answer_of(reply: Reply) -> Result<Result<Reply, WorkerError>, Death> {
    match reply {
        Reply::Failed(Failure::Refused(why)) => Ok(Err(WorkerError::Refused(why))),
        // After a panic the parser must not be used.
        Reply::Failed(Failure::Panicked) => Err(Death::Panicked),
        Reply::Failed(Failure::UnknownObject | Failure::NoSandbox(_)) | Reply::Ready => {
            Err(Death::Nonsense)
        }
        reply => Ok(Ok(reply)),
    }
}
