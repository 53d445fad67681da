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
use libnsprobe::common::record::{Frame, Method, ObjectRecord, Unmapped};
use libnsprobe::{Objects, Session};
use nsprobe_symbolize::{
    Binary, DebugSet, FileOffset, Lookup, NamesFrom, Resolution, Source, SourceFrame,
};
use nsprobe_target::Process;
use nsprobe_unwind::UnwindTable;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
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
    debug: DebugSet,
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
    known: BTreeMap<u32, Known>,
    names: HashMap<(u32, u64, u8), Rc<Named>>,
    jit: Jit,
}

impl Names {
    /// Names for a session that probes these files; the files of stacks get unwind rows.
    pub(crate) fn new(probed: Vec<ProbedFile>, rows: Option<Wishes>, search: Rc<Search>) -> Names {
        Names {
            objects: Objects::default(),
            probed,
            rows,
            search,
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
                opened.found.binary.try_clone_file().ok()
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
        let (id, offset, method) = match frame {
            Frame::Object { id, offset, method } => (id, offset, method),
            Frame::Address { why, .. } => return Rc::new(without_object(why)),
        };
        if let Some(named) = self.names.get(&(id, offset, method)) {
            return Rc::clone(named);
        }
        self.open(session, id);
        let named = match self.known.get_mut(&id) {
            Some(known) => Rc::new(known.name(&self.search, FileOffset(offset), method)),
            None => Rc::default(),
        };
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert((id, offset, method), Rc::clone(&named));
        named
    }

    /// The file of an object, and its path.
    fn file(&mut self, session: &Session, id: u32) -> Option<(File, PathBuf)> {
        self.open(session, id);
        match &self.known.get(&id)?.file {
            State::Open(opened) => {
                let found = &opened.found;
                Some((found.binary.try_clone_file().ok()?, found.path.clone()))
            }
            State::Closed | State::Unusable(_) => None,
        }
    }

    /// The unwind rows of an object; an error when it has none, and none when its file
    /// cannot be had.
    pub(crate) fn table(
        &mut self,
        session: &Session,
        id: u32,
    ) -> Option<anyhow::Result<UnwindTable>> {
        let (file, path) = self.file(session, id)?;
        let binary = Binary::open_sections(file, &path).ok()?;
        Some(match &self.rows {
            Some(rows) => rows.table(&binary),
            None => UnwindTable::of(&binary).map_err(Into::into),
        })
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
                origin::find(session, id, &identity, &self.probed).map_err(|e| format!("{e:#}")),
            ),
            Ok(None) => {
                let why = format!("the kernel knows no object {id}");
                (String::new(), 0, Err(why))
            }
            Err(error) => (String::new(), 0, Err(error.to_string())),
        };
        if let (Some(rows), Ok(found)) = (&self.rows, &found) {
            let is_new = !self.known.contains_key(&id) && found.origin != Origin::Vdso;
            if let (true, Ok(file)) = (is_new, found.binary.try_clone_file()) {
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
                let build_id = found.binary.build_id().unwrap_or_default();
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
            search.find(&found.binary, &found.mapped_path, &owner)
        });
        Opened {
            found,
            pending,
            debug: DebugSet::default(),
            notes: Vec::new(),
        }
    }

    /// What is at the offset; an error says why it has no name.
    fn resolve(
        &mut self,
        search: &Search,
        offset: FileOffset,
        method: u8,
    ) -> Result<Resolution, String> {
        let binary = &self.found.binary;
        if let Some(mut pending) = self.pending.take() {
            search.fetch(binary, &mut pending);
            self.debug = DebugSet::new(pending.files);
            self.notes = pending.notes;
        }
        let lookup = match is_exact(method) {
            true => Lookup::Instruction,
            false => Lookup::ReturnAddress,
        };
        let resolved = binary.resolve_with(&self.debug, offset, lookup);
        resolved.map_err(|why| why.to_string())
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

    fn name(&mut self, search: &Search, offset: FileOffset, method: u8) -> Named {
        let mut named = Named {
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            ..Named::default()
        };
        let opened = match &mut self.file {
            State::Open(opened) => opened,
            State::Closed => return named,
            State::Unusable(why) => {
                named.unresolved = Some(why.clone());
                return named;
            }
        };
        let binary = &opened.found.binary;
        named.doubtful = !is_exact(method) && binary.is_after_call(offset) == Some(false);
        match opened.resolve(search, offset, method) {
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
            Err(why) => named.unresolved = Some(why),
        }
        named
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
