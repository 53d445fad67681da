// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for frames, each looked up once, by threads beside the one that reads the rings.
//!
//! A file is pinned when an object is first announced, while its process most likely lives, and
//! passed to one of the threads (`threads.rs`), which has it and its debug files read by a process
//! without privileges (`files.rs`). This module keeps the results, as many as there is room for,
//! and the pending requests. Nothing here waits but [`FrameNames::wait`].
//!
//! Output waits for names, so that it stays in order, but not for ever: after waiting for a file
//! for [`PATIENCE`], it continues without the file's names, until they come.

use super::cache::Cache;
use super::file_state::{FileRows, FileState, Stage};
use super::jobs::{Answer, Busy, Job, NameContext};
use super::line::NamesNote;
use super::progress::{self, Progress};
use super::threads::Threads;
use crate::names::build_id::{build_id, hex};
use crate::names::jit::{Jit, Moment};
use crate::names::load_queue::LoadQueue;
use crate::names::named::{bare_address, without_object, NamedFrame, Placed};
use crate::names::origin::{self, Origin, PinnedObject};
use crate::names::probed_file::ProbedFile;
use crate::names::search::DebugSearch;
use crate::signals;
use libnsprobe::common::record::{Frame, ObjectRecord, Unmapped};
use libnsprobe::{Objects, Session};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long output waits for the names of a stack: half of it after each time-out, but at least
/// [`PATIENCE_LEAST`].
const PATIENCE: Duration = Duration::from_secs(15);
const PATIENCE_LEAST: Duration = Duration::from_millis(200);
/// The wait once nothing is traced any more.
const PATIENCE_AT_END: Duration = Duration::from_secs(30);
/// How long to wait for an answer before looking at the rings again.
const GLANCE: Duration = Duration::from_millis(10);
/// How long a file stays queued for a thread that is busy with another file.
const STUCK: Duration = Duration::from_secs(1);

/// The names of a session's frames.
#[derive(Debug)]
pub struct FrameNames {
    objects: Objects,
    probed: Vec<ProbedFile>,
    context: Arc<NameContext>,
    threads: Option<Threads>,
    files: BTreeMap<u32, FileState>,
    names: Cache,
    patience: Duration,
    /// Whether output waits for names.
    is_waiting: bool,
    progress: Progress,
    /// The names of generated code.
    pub(crate) jit: Jit,
}

impl FrameNames {
    /// Names for a session that probes these files; the files of stacks get unwind rows.
    pub(crate) fn new(
        probed: Vec<ProbedFile>,
        rows: Option<LoadQueue>,
        search: Arc<DebugSearch>,
        threads: Option<Threads>,
    ) -> FrameNames {
        let bytes = threads.as_ref().map_or(0, Threads::names_bytes);
        let options = threads.as_ref().map(Threads::options).unwrap_or_default();
        let quiet = threads.as_ref().is_none_or(Threads::is_quiet);
        FrameNames {
            objects: Objects::default(),
            probed,
            context: Arc::new(NameContext { search, rows }),
            threads,
            files: BTreeMap::new(),
            names: Cache::new(bytes),
            patience: PATIENCE,
            is_waiting: false,
            progress: Progress::new(quiet),
            jit: Jit::new(options),
        }
    }

    /// These files are probed, too.
    pub fn add(&mut self, probed: Vec<ProbedFile>) {
        self.probed.extend(probed);
    }

    /// Takes an announcement: the file is pinned at once. One that is announced again has lost its
    /// rows, or was known as a program only and is in a stack now: it gets rows, which is refused
    /// if it has some.
    pub fn announce(&mut self, session: &Session, record: &ObjectRecord) {
        self.objects.note(record);
        let was_known = self.files.contains_key(&record.id);
        self.open(session, record.id);
        if was_known {
            // Claimed in any case: the kernel shall not keep a container's files.
            let claimed = session.claim(record.id).ok().flatten();
            let _ = session.claim_root(record.id);
            let job = Job::GiveRows {
                id: record.id,
                claimed,
            };
            self.send(record.id, job);
        }
    }

    /// The name of `frame` in a process at a moment: generated code belongs to its process.
    pub(crate) fn name_at(
        &mut self,
        session: &Session,
        frame: Frame,
        moment: Moment,
    ) -> Rc<NamedFrame> {
        match bare_address(&frame, Unmapped::Anonymous) {
            Some((address, exact)) => self.jit.name(address, !exact, moment).named,
            None => self.name(session, frame),
        }
    }

    /// What is known of `frame`, of whatever process; waits for it unless
    /// [`prepare`](Self::prepare) said that it is there.
    pub(crate) fn name(&mut self, session: &Session, frame: Frame) -> Rc<NamedFrame> {
        let place = match frame {
            Frame::Object { id, offset, method } => (id, offset, method),
            Frame::Address { why, .. } => return Rc::new(without_object(why)),
        };
        loop {
            if let Some(named) = self.names.get(&place) {
                return named;
            }
            if self.prepare(session, &[frame]) {
                let named = self.names.get(&place);
                return named.unwrap_or_else(|| Rc::new(self.unnamed(place.0)));
            }
            self.wait();
        }
    }

    /// Asks for the names of frames; whether all are there, or will not be waited for.
    pub(crate) fn prepare(&mut self, session: &Session, frames: &[Frame]) -> bool {
        if !self.is_waiting {
            // Another stack comes: what was there of the one before may go.
            self.names.make_room();
        }
        let is_missing = |frame: &&Frame| match **frame {
            Frame::Object { id, offset, method } => !self.names.has(&(id, offset, method)),
            Frame::Address { .. } => false,
        };
        let missing: Vec<Frame> = frames.iter().filter(is_missing).copied().collect();
        if missing.is_empty() {
            self.go_on();
            return true;
        }
        self.take_answers();
        let waited_for = self.ask(session, &missing);
        let is_enough = self.is_enough(&waited_for);
        if is_enough {
            self.go_on();
        }
        self.is_waiting = !is_enough;
        is_enough
    }

    /// Asks for names that will be needed soon.
    pub fn ask_ahead(&mut self, session: &Session, frames: &[Frame]) {
        self.ask(session, frames);
    }

    /// Asks for places, those of a file at once; the files that do not have answered.
    fn ask(&mut self, session: &Session, frames: &[Frame]) -> BTreeSet<u32> {
        let mut wanted: BTreeMap<u32, BTreeSet<(u64, u8)>> = BTreeMap::new();
        for frame in frames {
            let Frame::Object { id, offset, method } = *frame else {
                continue;
            };
            if !self.names.has(&(id, offset, method)) {
                wanted.entry(id).or_default().insert((offset, method));
            }
        }
        let mut waited_for = BTreeSet::new();
        for (id, places) in wanted {
            self.open(session, id);
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            file.is_needed = true;
            if let Stage::Unusable(_) = file.state {
                continue;
            }
            waited_for.insert(id);
            let new = places.into_iter().filter(|place| file.asked.insert(*place));
            let places: Vec<(u64, u8)> = new.collect();
            if !places.is_empty() {
                self.send(id, Job::Name { id, places });
            }
        }
        waited_for
    }

    /// The unwind rows of an object; none while they are not there.
    pub(crate) fn table(&mut self, session: &Session, id: u32) -> Option<FileRows> {
        self.take_answers();
        self.open(session, id);
        let Some(file) = self.files.get_mut(&id) else {
            return Some(FileRows::Unavailable);
        };
        if let Some(table) = &file.table {
            return Some(table.clone());
        }
        if let Stage::Unusable(_) = file.state {
            return Some(FileRows::Unavailable);
        }
        if !std::mem::replace(&mut file.asked_table, true) {
            self.send(id, Job::Table { id });
        }
        let is_enough = self.is_enough(&BTreeSet::from([id]));
        is_enough.then_some(FileRows::Unavailable)
    }

    /// Waits a little for what was asked for.
    pub fn wait(&mut self) {
        if let Some(threads) = &mut self.threads {
            if let Some(answer) = threads.answer_within(GLANCE) {
                self.take(answer);
            }
        }
        self.take_answers();
    }

    /// Nothing is traced any more: longer waits are allowed.
    pub(crate) fn at_end(&mut self) {
        self.patience = PATIENCE_AT_END;
        self.progress.at_end();
    }

    /// Whether output continues, although these files have not answered.
    fn is_enough(&mut self, waited_for: &BTreeSet<u32>) -> bool {
        if signals::is_hurried() {
            return true;
        }
        let mut patience = self.patience;
        let mut awaited = Vec::new();
        for id in waited_for {
            let Some(file) = self.files.get_mut(id).filter(|file| !file.is_late) else {
                continue;
            };
            let since = *file.waits.get_or_insert_with(Instant::now);
            if since.elapsed() < self.patience {
                awaited.push((*id, since));
            } else {
                file.is_late = true;
                patience = (self.patience / 2).max(PATIENCE_LEAST);
            }
        }
        self.patience = patience;
        if let Some((id, since)) = awaited.first() {
            let busy = self.busy(*id);
            self.progress.show(*since, || progress::text(busy));
        }
        awaited.iter().for_each(|(id, _)| self.move_if_stuck(*id));
        awaited.is_empty()
    }

    fn go_on(&mut self) {
        self.is_waiting = false;
        self.progress.hide();
    }

    /// What the thread of a file is doing.
    fn busy(&self, id: u32) -> Option<Busy> {
        let file = self.files.get(&id)?;
        self.threads.as_ref()?.busy(file.thread)
    }

    /// Gives a file to another thread when its own does not get through another file.
    fn move_if_stuck(&mut self, id: u32) {
        let is_stuck = |busy: &Busy| busy.id != id && busy.since.elapsed() > STUCK;
        if self.busy(id).as_ref().is_some_and(is_stuck) {
            self.move_file(id);
        }
    }

    fn move_file(&mut self, id: u32) {
        let Some((file, threads)) = self.files.get_mut(&id).zip(self.threads.as_mut()) else {
            return;
        };
        let Some(thread) = threads.another(file.thread) else {
            return;
        };
        let Some(pinned) = file.pinned.clone() else {
            return;
        };
        threads.forget(file.thread, id);
        file.thread = thread;
        file.state = Stage::Opening;
        let places: Vec<(u64, u8)> = file.asked.iter().copied().collect();
        let table = file.asked_table && file.table.is_none();
        self.hand_over(id, pinned);
        if !places.is_empty() {
            self.send(id, Job::Name { id, places });
        }
        if table {
            self.send(id, Job::Table { id });
        }
    }

    /// Makes sure that a thread has the object's file, if it can be had.
    fn open(&mut self, session: &Session, id: u32) {
        let is_closed = |file: &FileState| matches!(file.state, Stage::Closed(_));
        if self.files.get(&id).is_some_and(|file| !is_closed(file)) {
            return;
        }
        let pinned = match self.objects.identity(session, id) {
            Ok(Some(identity)) => origin::secure(session, id, &identity, &self.probed)
                .map_err(|error| format!("{error:#}")),
            Ok(None) => Err(format!("the kernel knows no object {id}")),
            Err(error) => Err(error.to_string()),
        };
        let before = self.files.get_mut(&id);
        let is_needed = before.as_ref().is_some_and(|file| file.is_needed);
        let table = before.and_then(|file| file.table.take());
        let mut file = FileState {
            thread: 0,
            state: Stage::Opening,
            pinned: None,
            asked: HashSet::new(),
            is_needed,
            asked_table: false,
            table,
            waits: None,
            is_late: false,
        };
        let pinned = match (pinned, &mut self.threads) {
            (Ok(pinned), Some(threads)) => {
                file.thread = threads.least_busy();
                let pinned = Arc::new(pinned);
                file.pinned = Some(Arc::clone(&pinned));
                Some(pinned)
            }
            (Ok(pinned), None) => {
                let placed = |path| Placed {
                    path,
                    origin: Origin::Kernel,
                    build_id: Vec::new(),
                };
                file.state = match pinned.path() {
                    Some(path) => Stage::Closed(Some(Box::new(placed(path)))),
                    None => Stage::Unusable("no stacks are taken".to_owned()),
                };
                None
            }
            (Err(why), _) => {
                file.state = Stage::Unusable(why);
                None
            }
        };
        self.files.insert(id, file);
        if let Some(pinned) = pinned {
            self.hand_over(id, pinned);
        }
    }

    fn hand_over(&mut self, id: u32, pinned: Arc<PinnedObject>) {
        let Some(identity) = self.objects.known(id) else {
            return;
        };
        let job = Job::Open {
            id,
            identity: Box::new(identity),
            context: Arc::clone(&self.context),
            // It may have ended when a thread has time for it.
            owner: pinned.owner(identity.pid).map(Box::new),
            pinned,
        };
        self.send(id, job);
    }

    fn send(&mut self, id: u32, job: Job) {
        if let (Some(file), Some(threads)) = (self.files.get(&id), &mut self.threads) {
            threads.send(file.thread, job);
        }
    }

    fn take_answers(&mut self) {
        while let Some(answer) = self.threads.as_mut().and_then(Threads::answer) {
            self.take(answer);
        }
    }

    fn take(&mut self, answer: Answer) {
        let Some(file) = self.files.get_mut(&answer.id()) else {
            return;
        };
        match answer {
            Answer::Opened { id: _, opened } => {
                file.state = match opened {
                    Ok(placed) => Stage::Open(Box::new(placed)),
                    Err(why) => Stage::Unusable(why),
                };
            }
            Answer::Named { id, named } => {
                file.is_late = false;
                file.waits = None;
                for ((offset, method), named) in named {
                    file.asked.remove(&(offset, method));
                    self.names.insert((id, offset, method), Rc::new(named));
                }
            }
            Answer::Table { id: _, rows } => {
                file.is_late = false;
                file.waits = None;
                file.table = Some(rows);
            }
            Answer::Closed { id: _ } => {
                let state = std::mem::replace(&mut file.state, Stage::Opening);
                file.state = match state {
                    Stage::Open(placed) => Stage::Closed(Some(placed)),
                    Stage::Closed(placed) => Stage::Closed(placed),
                    Stage::Opening | Stage::Unusable(_) => Stage::Closed(None),
                };
                file.pinned = None;
                file.asked.clear();
                file.asked_table = false;
                file.waits = None;
            }
        }
    }

    /// A frame without a name.
    fn unnamed(&self, id: u32) -> NamedFrame {
        let why = match self.files.get(&id).map(|file| &file.state) {
            Some(Stage::Unusable(why)) => why.clone(),
            _ => "its file is not read yet".to_owned(),
        };
        let mut unnamed = NamedFrame {
            unresolved: Some(why),
            path: self.path(id),
            ..NamedFrame::default()
        };
        if let Some(identity) = self.objects.known(id) {
            unnamed.build_id = hex(build_id(&identity));
        }
        unnamed
    }

    /// Where an object's file was found, or why it cannot be read; `None` while that is unknown.
    pub(crate) fn place(&self, id: u32) -> Option<Result<&Placed, &str>> {
        match &self.files.get(&id)?.state {
            Stage::Open(placed) | Stage::Closed(Some(placed)) => Some(Ok(placed)),
            Stage::Unusable(why) => Some(Err(why)),
            Stage::Opening | Stage::Closed(None) => None,
        }
    }

    /// The path of an object's file, also of one that is no use for names.
    pub(crate) fn path(&self, id: u32) -> Option<PathBuf> {
        match self.place(id) {
            Some(Ok(placed)) => Some(placed.path.clone()),
            _ => self.files.get(&id)?.pinned.as_ref()?.path(),
        }
    }

    /// Whether the place of an object's file will become known.
    pub(crate) fn is_opening(&self, id: u32) -> bool {
        let file = self.files.get(&id);
        file.is_some_and(|file| matches!(file.state, Stage::Opening))
    }

    /// Takes the threads' reports of files that they have closed.
    pub fn close_idle(&mut self) {
        self.take_answers();
    }

    /// Each file whose names were needed: where it came from, what names it
    /// gave, or why none.
    pub(crate) fn sources(&mut self) -> Vec<NamesNote> {
        let told = self.threads.as_mut().map(Threads::sources);
        let mut told = told.unwrap_or_default();
        let needed = self.files.iter().filter(|(_, file)| file.is_needed);
        let lines = needed.map(|(id, file)| match told.remove(id) {
            // Of a trace that ends in order every answer came, or was given up.
            Some(line) if file.asked.is_empty() || !signals::is_hurried() => line,
            told => {
                let why = match &file.state {
                    Stage::Unusable(why) => why,
                    _ if told.is_some() => "the rest was not read in time",
                    _ => "it was not read in time",
                };
                let path = self.path(*id);
                let known = self.objects.known(*id);
                let build_id = known.map(|known| hex(build_id(&known)));
                NamesNote::without(path.as_deref(), &build_id.unwrap_or_default(), why)
            }
        });
        lines.collect()
    }
}
