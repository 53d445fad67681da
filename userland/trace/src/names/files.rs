// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of one thread, read for it by a process without privileges.
//!
//! A file stays open as long as it is in use (DWARF is read when it is needed), and is closed
//! after [`IDLE`] without a new name. So are its debug files, which are found at the same
//! time.

use super::jobs::{NameContext, SharedState};
use super::line::NamesNote;
use crate::names::build_id::{build_id, hex};
use crate::names::file_state::FileRows;
use crate::names::load_queue::LoadQueue;
use crate::names::named::{NamedFrame, Placed};
use crate::names::origin::{self, FileSource, FoundFile, Origin};
use crate::names::search::{self, DebugSearch, Owner};
use libnsprobe::common::abi::ObjectIdentity;
use libnsprobe::common::record::Method;
use nsprobe_symbolize::{FileOffset, FrameSource, Lookup, NamesFrom, OpenFiles};
use nsprobe_worker::{Answer, Query, SandboxedBinary, Worker, WorkerError};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a file stays open without being needed.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// Sources of one file's names that are kept apart: split DWARF has thousands.
const SOURCES_MAX: usize = 16;

/// A file, as far as it was of use.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub(super) build_id: String,
    pub(super) path: Option<PathBuf>,
    pub(super) file: ObjectState,
    pub(super) used: Instant,
    /// Sources of its names.
    pub(super) sources: Vec<(FrameSource, NamesFrom)>,
    pub(super) note: Option<String>,
}

#[derive(Debug)]
pub(super) enum ObjectState {
    Open(Box<OpenedObject>),
    /// Closed; its line for the summary is kept.
    Closed(NamesNote),
    Unusable(String),
}

/// A file, and those with its debug information.
#[derive(Debug)]
pub(super) struct OpenedObject {
    pub(super) found: FoundFile,
    /// The debug files found when the file was announced, until a name is needed.
    pub(super) pending: Option<search::FoundDebugFiles>,
    /// Notes about debug files.
    pub(super) notes: Vec<String>,
    /// Where debug information was looked for, if there is none.
    pub(super) looked_for: Option<String>,
}

/// The files of a thread.
pub(super) struct Files {
    /// Parses the files.
    worker: Worker,
    shared: Arc<SharedState>,
    context: Option<Arc<NameContext>>,
    known: BTreeMap<u32, KnownFile>,
}

impl Files {
    /// Creates an empty set.
    pub(super) fn new(worker: Worker, shared: Arc<SharedState>) -> Files {
        Files {
            worker,
            shared,
            context: None,
            known: BTreeMap::new(),
        }
    }

    /// Finds the file of an object, and the debug files of that, and has it read. One that was
    /// not here before gets unwind rows.
    pub(super) fn open(
        &mut self,
        id: u32,
        identity: &ObjectIdentity,
        source: &FileSource,
        context: &Arc<NameContext>,
        owner: Option<Box<Owner>>,
    ) -> Result<Placed, String> {
        let found = origin::find(source, identity, &self.worker).map_err(|e| format!("{e:#}"));
        if let (Some(rows), Ok(found)) = (&context.rows, &found) {
            let is_new = !self.known.contains_key(&id) && found.origin != Origin::Vdso;
            if let (true, Ok(file)) = (is_new, found.object.try_clone_file()) {
                rows.give(file, &found.path);
            }
        }
        let placed = found.as_ref().map(|found| Placed {
            path: found.path.clone(),
            origin: found.origin,
            build_id: found.object.build_id().unwrap_or_default().to_vec(),
        });
        let placed = placed.map_err(Clone::clone);
        self.context = Some(Arc::clone(context));
        if let Ok(placed) = &placed {
            self.shared.reads(placed.path.clone(), 0);
        }
        let opened = found.map(|found| OpenedObject::new(&context.search, found, owner));
        let build_id = hex(build_id(identity));
        let sources = self.known.remove(&id).map(|known| known.sources);
        let mut known = KnownFile::new(build_id, opened);
        known.sources = sources.unwrap_or_default();
        self.known.insert(id, known);
        placed
    }

    /// Names places: offsets, and how each was found; `None` if the file is not open.
    pub(super) fn names(&mut self, id: u32, places: &[(u64, u8)]) -> Option<Vec<NamedFrame>> {
        let known = self.known.get_mut(&id)?;
        known.used = Instant::now();
        if matches!(known.file, ObjectState::Closed(_)) {
            return None;
        }
        let context = self.context.as_ref()?;
        Some(known.names(&context.search, &self.shared, places))
    }

    /// The unwind rows of an object; none when its file is not open.
    pub(super) fn table(&mut self, id: u32) -> Option<FileRows> {
        let known = self.known.get_mut(&id)?;
        known.used = Instant::now();
        let opened = match &mut known.file {
            ObjectState::Open(opened) => opened,
            ObjectState::Closed(_) => return None,
            ObjectState::Unusable(_) => return Some(FileRows::Unavailable),
        };
        let context = self.context.as_ref()?;
        let cache = context.rows.as_ref().and_then(LoadQueue::cache);
        let mut rows = opened.found.object.rows(cache, false);
        if let Ok(None) = rows {
            opened.attach(&context.search, &self.shared);
            rows = opened.found.object.rows(cache, true);
        }
        Some(match rows {
            Ok(Some((table, _))) => FileRows::Table(Arc::new(table)),
            Err(WorkerError::Refused(_)) => FileRows::None,
            Ok(None) | Err(_) => FileRows::Unavailable,
        })
    }

    /// Asks for the rows of a file once more.
    pub(super) fn give_rows(&mut self, id: u32, claimed: Option<File>) {
        let rows = self
            .context
            .as_ref()
            .and_then(|context| context.rows.as_ref());
        let (Some(rows), Some(known)) = (rows, self.known.get(&id)) else {
            return;
        };
        let opened = match &known.file {
            ObjectState::Open(opened) if opened.found.origin != Origin::Vdso => {
                opened.found.object.try_clone_file().ok()
            }
            _ => None,
        };
        if let (Some(file), Some(path)) = (opened.or(claimed), &known.path) {
            rows.give(file, path);
        }
    }

    /// Closes files that were of no use lately; which.
    pub(super) fn close_idle(&mut self) -> Vec<u32> {
        let mut closed = Vec::new();
        for (id, known) in &mut self.known {
            if known.used.elapsed() > IDLE && matches!(known.file, ObjectState::Open(_)) {
                known.file = ObjectState::Closed(known.describe());
                closed.push(*id);
            }
        }
        closed
    }

    /// Whether a file was opened here.
    pub(super) fn has(&self, id: u32) -> bool {
        self.known.contains_key(&id)
    }

    /// Closes a file whose object id was reused.
    pub(super) fn forget(&mut self, id: u32) {
        self.known.remove(&id);
    }

    /// The path of an object's file, as far as it is known.
    pub(super) fn path_of(&self, id: u32) -> PathBuf {
        let known = self.known.get(&id).and_then(|known| known.path.clone());
        known.unwrap_or_else(|| "a file".into())
    }

    /// Sources of names, by object.
    pub(super) fn sources(&self) -> Vec<(u32, NamesNote)> {
        let known = self.known.iter();
        known.map(|(id, known)| (*id, known.describe())).collect()
    }
}

impl OpenedObject {
    /// Pins the debug files of a file that had this owner.
    fn new(search: &DebugSearch, found: FoundFile, owner: Option<Box<Owner>>) -> OpenedObject {
        let pending = (found.origin != Origin::Vdso)
            .then(|| search.find_for(&found.object, &found.mapped_path, owner.as_deref()));
        OpenedObject {
            found,
            pending,
            notes: Vec::new(),
            looked_for: None,
        }
    }

    /// Hands the debug files to the file's parser, once.
    fn attach(&mut self, search: &DebugSearch, shared: &SharedState) {
        let object = &self.found.object;
        if let Some(mut pending) = self.pending.take() {
            search.fetch(object, &mut pending);
            self.notes = pending.notes;
            self.looked_for = pending.looked_for;
            shared.reads(self.found.path.clone(), bytes_of(object, &pending.files));
            if let Err(why) = object.attach(pending.files) {
                self.notes.push(why.to_string());
            }
        }
    }

    /// Names places with the file and its debug files.
    fn resolve(
        &mut self,
        search: &DebugSearch,
        shared: &SharedState,
        queries: &[Query],
    ) -> Result<Vec<Answer>, WorkerError> {
        self.attach(search, shared);
        let object = &self.found.object;
        match object.resolve_all(queries) {
            // Whichever of the files it was: the program has names of its own.
            Err(why @ WorkerError::Fatal(_)) if object.has_attached() => {
                self.notes
                    .push(format!("its debug files are not used: {why}"));
                object.attach(OpenFiles::default())?;
                object.resolve_all(queries)
            }
            answered => answered,
        }
    }
}

impl KnownFile {
    fn new(build_id: String, opened: Result<OpenedObject, String>) -> KnownFile {
        KnownFile {
            build_id,
            path: opened.as_ref().ok().map(|opened| opened.found.path.clone()),
            file: match opened {
                Ok(opened) => ObjectState::Open(Box::new(opened)),
                Err(why) => ObjectState::Unusable(why),
            },
            used: Instant::now(),
            sources: Vec::new(),
            note: None,
        }
    }

    /// Names places in the file: offsets, and how each was found.
    fn names(
        &mut self,
        search: &DebugSearch,
        shared: &SharedState,
        places: &[(u64, u8)],
    ) -> Vec<NamedFrame> {
        let why = match &mut self.file {
            ObjectState::Open(opened) => {
                let queries: Vec<Query> = places.iter().map(query).collect();
                match opened.resolve(search, shared, &queries) {
                    Ok(answers) => {
                        let answers = places.iter().zip(answers);
                        return answers
                            .map(|((_, method), answer)| self.named(*method, answer))
                            .collect();
                    }
                    Err(why) => {
                        let text = why.to_string();
                        if let WorkerError::Fatal(_) = why {
                            self.file = ObjectState::Unusable(text.clone());
                        }
                        Some(text)
                    }
                }
            }
            ObjectState::Closed(_) => None,
            ObjectState::Unusable(why) => Some(why.clone()),
        };
        let unnamed = NamedFrame {
            unresolved: why,
            ..self.unnamed()
        };
        vec![unnamed; places.len()]
    }

    /// A place without a name.
    fn unnamed(&self) -> NamedFrame {
        NamedFrame {
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            ..NamedFrame::default()
        }
    }

    /// A place with this answer.
    fn named(&mut self, method: u8, answer: Answer) -> NamedFrame {
        let mut named = NamedFrame {
            doubtful: !Method::is_exact(method) && answer.is_after_call == Some(false),
            function_start: answer.function_start.map(|start| start.0),
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

/// Bytes of a program and its debug files.
fn bytes_of(object: &SandboxedBinary, files: &OpenFiles) -> u64 {
    let bytes = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
    let own = object.try_clone_file().map_or(0, |file| bytes(&file));
    let separate = files.separate.iter().map(|open| bytes(&open.file));
    separate.fold(own, u64::saturating_add)
}

fn query((offset, method): &(u64, u8)) -> Query {
    Query {
        offset: FileOffset(*offset),
        lookup: match Method::is_exact(*method) {
            true => Lookup::Instruction,
            false => Lookup::ReturnAddress,
        },
    }
}
