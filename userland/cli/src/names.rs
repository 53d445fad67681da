// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for frames, each looked up once.
//!
//! A file is found when an object is first announced, while its process most
//! likely lives; it stays open as long as it is in use (DWARF is read when it is
//! needed), and is closed after [`IDLE`] without a new name. So are its debug files, which are
//! found at the same time.

mod sources;

use crate::jit::{Jit, Moment};
use crate::origin::{self, Found, Origin};
use crate::probes::ProbedFile;
use crate::rows::Wishes;
use crate::search::{self, Search};
use anyhow::Context;
use libnsprobe::common::abi::ObjectIdentity;
use libnsprobe::common::record::{Frame, Method, ObjectRecord, Unmapped};
use libnsprobe::{Objects, Session};
use nsprobe_symbolize::{FileOffset, Lookup, NamesFrom, OpenFiles, Source, SourceFrame};
use nsprobe_target::Process;
use nsprobe_unwind::UnwindTable;
use nsprobe_worker::{Answer, Error, Query, Worker};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a file stays open without being needed.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// Names that are kept; then the memory begins anew.
const NAMES_MAX: usize = 1 << 16;
/// Sources of one file's names that are told apart: split DWARF has thousands.
const SOURCES_MAX: usize = 16;

/// What is known of a frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// The functions there, the innermost inlined one first; empty when there
    /// is no name.
    pub(crate) functions: Vec<SourceFrame>,
    /// Where the names come from.
    pub(crate) source: Option<Source>,
    /// Which file has them.
    pub(crate) from: NamesFrom,
    /// Why there is no name.
    pub(crate) unresolved: Option<String>,
    /// The file.
    pub(crate) path: Option<PathBuf>,
    /// Its build-id, in hexadecimal; empty when it has none.
    pub(crate) build_id: String,
    /// The address in front is no call: the frame may be wrong.
    pub(crate) doubtful: bool,
}

/// A file, as far as it was of use.
#[derive(Debug)]
struct Known {
    build_id: String,
    path: Option<PathBuf>,
    file: State,
    used: Instant,
    /// What names came from.
    sources: Vec<(Source, NamesFrom)>,
    note: Option<String>,
}

#[derive(Debug)]
enum State {
    Open(Box<Opened>),
    Closed,
    Unusable(String),
}

/// Where an object's file was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    /// Its path.
    pub(crate) path: &'a Path,
    /// How it was found.
    pub(crate) origin: Origin,
    /// The build-id that it has itself.
    pub(crate) build_id: &'a [u8],
}

/// A file, and those with its debug information.
#[derive(Debug)]
struct Opened {
    found: Found,
    /// What was found when the file was announced, until a name is needed.
    pending: Option<search::Found>,
    /// What there is to tell of debug files.
    notes: Vec<String>,
}

/// The names of a session's frames.
#[derive(Debug)]
pub(crate) struct Names {
    objects: Objects,
    probed: Vec<ProbedFile>,
    /// Where the unwind rows of files are asked for.
    rows: Option<Wishes>,
    search: Rc<Search>,
    /// Who parses the files.
    worker: Option<Worker>,
    known: BTreeMap<u32, Known>,
    names: HashMap<(u32, u64, u8), Rc<Named>>,
    jit: Jit,
}

impl Names {
    /// Names for a session that probes these files; the files of stacks get unwind rows.
    pub(crate) fn new(
        probed: Vec<ProbedFile>,
        rows: Option<Wishes>,
        search: Rc<Search>,
        worker: Option<Worker>,
    ) -> Names {
        Names {
            objects: Objects::default(),
            probed,
            rows,
            search,
            worker,
            known: BTreeMap::new(),
            names: HashMap::new(),
            jit: Jit::default(),
        }
    }

    /// These files are probed, too.
    pub(crate) fn add(&mut self, probed: Vec<ProbedFile>) {
        self.probed.extend(probed);
    }

    /// Takes an announcement: the file is secured at once. One that is announced again has
    /// lost its rows.
    pub(crate) fn announce(&mut self, session: &Session, record: &ObjectRecord) {
        self.objects.note(record);
        let was_known = self.known.contains_key(&record.id);
        self.open(session, record.id);
        if was_known {
            self.give_rows(session, record.id);
        }
    }

    /// Asks for the rows of a file once more.
    fn give_rows(&mut self, session: &Session, id: u32) {
        // Claimed in any case: the kernel shall not keep a container's file open.
        let claimed = session.claim(id);
        let (Some(rows), Some(known)) = (&self.rows, self.known.get(&id)) else {
            return;
        };
        let opened = match &known.file {
            State::Open(opened) if opened.found.origin != Origin::Vdso => {
                opened.found.object.try_clone_file().ok()
            }
            _ => None,
        };
        if let (Some(file), Some(path)) = (opened.or(claimed.ok().flatten()), &known.path) {
            rows.give(file, path);
        }
    }

    /// What is known of `frame` of a process at a moment: generated code is its own.
    pub(crate) fn name_at(&mut self, session: &Session, frame: Frame, moment: Moment) -> Rc<Named> {
        match frame {
            Frame::Address {
                address,
                why,
                method,
            } if why == Unmapped::Anonymous as u8 => {
                Rc::new(self.jit.name(address, !is_exact(method), moment))
            }
            frame => self.name(session, frame),
        }
    }

    /// What is known of `frame`, of whatever process.
    pub(crate) fn name(&mut self, session: &Session, frame: Frame) -> Rc<Named> {
        let place = match frame {
            Frame::Object { id, offset, method } => (id, offset, method),
            Frame::Address { why, .. } => return Rc::new(without_object(why)),
        };
        if !self.names.contains_key(&place) {
            self.look_up(session, &[frame]);
        }
        self.names.get(&place).cloned().unwrap_or_default()
    }

    /// Looks up the names of a stack, those of a file at once.
    pub(crate) fn look_up(&mut self, session: &Session, frames: &[Frame]) {
        if self.names.len() + frames.len() > NAMES_MAX {
            self.names.clear();
        }
        let mut wanted: BTreeMap<u32, BTreeSet<(u64, u8)>> = BTreeMap::new();
        for frame in frames {
            let Frame::Object { id, offset, method } = *frame else {
                continue;
            };
            if !self.names.contains_key(&(id, offset, method)) {
                wanted.entry(id).or_default().insert((offset, method));
            }
        }
        for (id, places) in wanted {
            self.open(session, id);
            let Some(known) = self.known.get_mut(&id) else {
                continue;
            };
            let places: Vec<(u64, u8)> = places.into_iter().collect();
            let named = known.names(&self.search, &places);
            for ((offset, method), named) in places.into_iter().zip(named) {
                self.names.insert((id, offset, method), Rc::new(named));
            }
        }
    }

    /// The unwind rows of an object; an error when it has none, and none when its file
    /// cannot be had.
    pub(crate) fn table(
        &mut self,
        session: &Session,
        id: u32,
    ) -> Option<anyhow::Result<UnwindTable>> {
        self.open(session, id);
        let State::Open(opened) = &self.known.get(&id)?.file else {
            return None;
        };
        let cache = self.rows.as_ref().and_then(Wishes::cache);
        match opened.found.object.rows(cache) {
            Ok((table, _)) => Some(Ok(table)),
            Err(why @ Error::Refused(_)) => Some(Err(why.into())),
            Err(_) => None,
        }
    }

    /// Makes sure that the object's file is open, if it can be.
    fn open(&mut self, session: &Session, id: u32) {
        if let Some(known) = self.known.get_mut(&id) {
            known.used = Instant::now();
            if !matches!(known.file, State::Closed) {
                return;
            }
        }
        let (build_id, pid, found) = match self.objects.identity(session, id) {
            Ok(Some(identity)) => (
                origin::hex(origin::build_id(&identity)),
                identity.pid,
                self.find(session, id, &identity)
                    .map_err(|e| format!("{e:#}")),
            ),
            Ok(None) => {
                let why = format!("the kernel knows no object {id}");
                (String::new(), 0, Err(why))
            }
            Err(error) => (String::new(), 0, Err(error.to_string())),
        };
        if let (Some(rows), Ok(found)) = (&self.rows, &found) {
            let is_new = !self.known.contains_key(&id) && found.origin != Origin::Vdso;
            if let (true, Ok(file)) = (is_new, found.object.try_clone_file()) {
                rows.give(file, &found.path);
            }
        }
        let opened = found.map(|found| Opened::new(&self.search, found, pid));
        self.known.insert(id, Known::new(build_id, opened));
    }

    /// Where an object's file was found; or why it cannot be read.
    pub(crate) fn place(&self, id: u32) -> Option<Result<Placed<'_>, &str>> {
        Some(match &self.known.get(&id)?.file {
            State::Open(opened) => {
                let found = &opened.found;
                let build_id = found.object.build_id().unwrap_or_default();
                Ok(Placed {
                    path: &found.path,
                    origin: found.origin,
                    build_id,
                })
            }
            State::Unusable(why) => Err(why),
            State::Closed => return None,
        })
    }

    fn find(&self, session: &Session, id: u32, identity: &ObjectIdentity) -> anyhow::Result<Found> {
        let worker = self.worker.as_ref().context("no stacks are taken")?;
        origin::find(session, id, identity, &self.probed, worker)
    }

    /// Closes files that were of no use lately.
    pub(crate) fn close_idle(&mut self) {
        for known in self.known.values_mut() {
            if known.used.elapsed() > IDLE && matches!(known.file, State::Open(_)) {
                known.file = State::Closed;
            }
        }
    }

    /// A line for each file: where it came from, what names it gave, or why
    /// none.
    pub(crate) fn sources(&self) -> Vec<String> {
        self.known.values().map(Known::describe).collect()
    }
}

impl Opened {
    /// Secures the debug files of a file that the process `pid` has mapped, if it still lives.
    fn new(search: &Search, found: Found, pid: u32) -> Opened {
        let pending = (found.origin != Origin::Vdso).then(|| {
            let owner: Vec<Process> = Process::open(pid).into_iter().collect();
            search.find(&*found.object, &found.mapped_path, &owner)
        });
        Opened {
            found,
            pending,
            notes: Vec::new(),
        }
    }

    /// What is at some places, by the file and its debug files.
    fn resolve(&mut self, search: &Search, queries: &[Query]) -> Result<Vec<Answer>, Error> {
        let object = &self.found.object;
        if let Some(mut pending) = self.pending.take() {
            search.fetch(&**object, &mut pending);
            self.notes = pending.notes;
            if let Err(why) = object.attach(pending.files) {
                self.notes.push(why.to_string());
            }
        }
        match object.resolve_all(queries) {
            // Whichever of the files it was: the program has names of its own.
            Err(why @ Error::Fatal(_)) if object.has_attached() => {
                self.notes
                    .push(format!("its debug files are not used: {why}"));
                object.attach(OpenFiles::default())?;
                object.resolve_all(queries)
            }
            answered => answered,
        }
    }
}

impl Known {
    fn new(build_id: String, opened: Result<Opened, String>) -> Known {
        Known {
            build_id,
            path: opened.as_ref().ok().map(|opened| opened.found.path.clone()),
            file: match opened {
                Ok(opened) => State::Open(Box::new(opened)),
                Err(why) => State::Unusable(why),
            },
            used: Instant::now(),
            sources: Vec::new(),
            note: None,
        }
    }

    /// What is known of places in the file: offsets, and how they were come by.
    fn names(&mut self, search: &Search, places: &[(u64, u8)]) -> Vec<Named> {
        let why = match &mut self.file {
            State::Open(opened) => {
                let queries: Vec<Query> = places.iter().map(query).collect();
                match opened.resolve(search, &queries) {
                    Ok(answers) => {
                        let answers = places.iter().zip(answers);
                        return answers
                            .map(|((_, method), answer)| self.named(*method, answer))
                            .collect();
                    }
                    Err(why) => {
                        let text = why.to_string();
                        if let Error::Fatal(_) = why {
                            self.file = State::Unusable(text.clone());
                        }
                        Some(text)
                    }
                }
            }
            State::Closed => None,
            State::Unusable(why) => Some(why.clone()),
        };
        let unnamed = Named {
            unresolved: why,
            ..self.unnamed()
        };
        vec![unnamed; places.len()]
    }

    /// A place without a name.
    fn unnamed(&self) -> Named {
        Named {
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            ..Named::default()
        }
    }

    /// A place with this answer.
    fn named(&mut self, method: u8, answer: Answer) -> Named {
        let mut named = Named {
            doubtful: !is_exact(method) && answer.is_after_call == Some(false),
            ..self.unnamed()
        };
        match answer.found {
            Ok(resolution) => {
                let source = (resolution.source, resolution.from.clone());
                if !self.sources.contains(&source) && self.sources.len() < SOURCES_MAX {
                    self.sources.push(source);
                }
                self.note = self.note.take().or(resolution.note);
                named.source = Some(resolution.source);
                named.from = resolution.from;
                named.functions = resolution.frames;
            }
            Err(why) => named.unresolved = Some(why.to_string()),
        }
        named
    }
}

fn query((offset, method): &(u64, u8)) -> Query {
    Query {
        offset: FileOffset(*offset),
        lookup: match is_exact(*method) {
            true => Lookup::Instruction,
            false => Lookup::ReturnAddress,
        },
    }
}

/// Whether a frame's offset is that of the instruction itself, not of what follows a call.
fn is_exact(method: u8) -> bool {
    [Method::Registers, Method::Signal]
        .iter()
        .any(|exact| *exact as u8 == method)
}

/// What is known of a frame that is in no file.
pub(crate) fn without_object(why: u8) -> Named {
    let reasons = [
        (Unmapped::Anonymous, "not in a file: generated code"),
        (Unmapped::TableFull, "the session has too many files"),
        (Unmapped::NoMapping, "the mapping could not be looked up"),
        (Unmapped::HugeOffset, "too far into its file"),
    ];
    let reason = reasons.iter().find(|(known, _)| *known as u8 == why);
    Named {
        unresolved: Some(match reason {
            Some((_, text)) => (*text).to_owned(),
            None => format!("unknown reason {why}"),
        }),
        ..Named::default()
    }
}

/// The last part of a path that a compiler was given.
pub(crate) fn file_name(path: &str) -> &str {
    Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(path)
}
