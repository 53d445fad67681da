// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers the questions, in the child.

mod generated;
mod probes;

use crate::protocol::{
    reason, Attached, DebugRole, Facts, Failure, Form, Holder, Query, Reply, Reported, Request,
    SharedDebugFile, SourceFrames, SplitUnitMessage, FAILURES_MAX, UNITS_BYTES_MAX, UNITS_MAX,
};
use nsprobe_symbolize::{
    Binary, DebugSet, FoundIn, NamesFrom, OpenFile, OpenFiles, Resolution, SplitUnit, Supplementary,
};
use nsprobe_unwind::{Digest, FunctionStarts, Input, UnwindTable};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long places are looked up for an answer: then the parent hears of those that are done.
const RESOLVE: Duration = Duration::from_secs(1);

/// The files that were opened.
#[derive(Debug, Default)]
pub struct Parser {
    open: HashMap<u32, Held>,
    generated: generated::ProcessCode,
}

/// A file, and those with its debug information.
#[derive(Debug)]
struct Held {
    binary: Binary,
    debug: DebugSet,
    starts: FunctionStarts,
    /// The paths of its debug files, in the order in which they came.
    attached: Vec<Arc<PathBuf>>,
    /// Number of failures of debug files that were reported.
    told: usize,
}

impl Parser {
    /// The answer to a request that came with these files.
    pub fn answer(&mut self, request: Request, files: Vec<OwnedFd>) -> Reply {
        let answered = match request {
            Request::Open {
                object,
                label,
                form,
            } => self.open(object, label, form, files),
            Request::Attach {
                object,
                files: told,
            } => self.attach(object, told, files),
            Request::Check { program, object } => self.check(program, object),
            Request::SplitUnits { object } => self.split_units(object),
            Request::Resolve { object, queries } => self.resolve(object, &queries),
            Request::Probes {
                object,
                probe_query,
                notes,
            } => self.probes(object, &probe_query, notes.as_deref()),
            Request::List {
                object,
                searched,
                shown,
                pattern,
                from,
            } => self.list(object, searched, &shown, pattern.as_deref(), from),
            Request::FunctionAt { object, address } => self.function_at(object, address),
            Request::VariableAt { object, address } => self.variable_at(object, address),
            Request::Rows {
                object,
                to_keep,
                searched,
            } => self.rows(object, to_keep, searched),
            Request::Input { object } => self.input(object).map(Reply::Input),
            Request::Compile { input } => table(input.compile()),
            Request::ReadGenerated { kind, from, to } => self.generated.read(kind, from, to, files),
            Request::Generated { address, time_ns } => Ok(self.generated.at(address, time_ns)),
            Request::Close { object } => {
                self.open.remove(&object);
                Ok(Reply::Closed)
            }
        };
        answered.unwrap_or_else(Reply::Failed)
    }

    fn open(
        &mut self,
        object: u32,
        label: Vec<u8>,
        form: Form,
        files: Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        let label = path(label);
        let file = files.into_iter().next().ok_or(Failure::UnknownObject)?;
        let file = File::from(file);
        let opened = match form {
            Form::Program => Binary::open(file, &label),
            Form::Sections => Binary::open_sections(file, &label),
            Form::Supplementary => Binary::open_supplementary(file, &label),
        };
        let held = Held {
            binary: opened.map_err(refused)?,
            debug: DebugSet::default(),
            starts: FunctionStarts::default(),
            attached: Vec::new(),
            told: 0,
        };
        let facts = facts(&held.binary);
        self.open.insert(object, held);
        Ok(Reply::Opened(facts))
    }

    fn held(&self, object: u32) -> Result<&Held, Failure> {
        self.open.get(&object).ok_or(Failure::UnknownObject)
    }

    fn held_mut(&mut self, object: u32) -> Result<&mut Held, Failure> {
        self.open.get_mut(&object).ok_or(Failure::UnknownObject)
    }

    fn attach(
        &mut self,
        object: u32,
        told: Vec<Attached>,
        files: Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        if told.len() != files.len() {
            return Err(refused("its debug files are too many to be open at once"));
        }
        let held = self.held_mut(object)?;
        let mut open = std::mem::take(&mut held.debug).into_files();
        for (attached, file) in told.into_iter().zip(files) {
            let path = Arc::new(path(attached.label));
            held.attached.push(Arc::clone(&path));
            let file = OpenFile {
                file: file.into(),
                path,
                // Where it was found is the parent's business.
                found_in: FoundIn::Container,
            };
            put(&mut open, attached.role, file);
        }
        held.debug = DebugSet::new(open);
        Ok(Reply::Attached)
    }

    fn check(&self, program: u32, object: u32) -> Result<Reply, Failure> {
        let (program, file) = (self.held(program)?, self.held(object)?);
        let checked = program.binary.check_debug_file(&file.binary);
        Ok(Reply::Checked(checked.map_err(|why| reason(&why))))
    }

    fn split_units(&self, object: u32) -> Result<Reply, Failure> {
        let units = self.held(object)?.binary.split_units();
        Ok(Reply::SplitUnits(match units {
            Ok(units) => Ok(told_units(units)),
            Err(why) => Err(reason(&why)),
        }))
    }

    fn resolve(&mut self, object: u32, queries: &[Query]) -> Result<Reply, Failure> {
        let held = self.held_mut(object)?;
        let mut answers = Vec::with_capacity(queries.len());
        let begun = Instant::now();
        for query in queries {
            answers.push(held.report(query));
            // Each may be in a unit of its own, which takes milliseconds to read.
            if begun.elapsed() > RESOLVE {
                break;
            }
        }
        Ok(Reply::Answers {
            answers,
            failures: held.more_failures(),
        })
    }

    fn rows(&self, object: u32, to_keep: bool, searched: bool) -> Result<Reply, Failure> {
        let input = self.input(object)?;
        if !searched && input.is_sparse() {
            return Ok(Reply::RowsNeedDebugFiles);
        }
        match to_keep && input.is_worth_keeping() {
            true => Ok(Reply::Kept(input.digest())),
            false => table(input.compile()),
        }
    }

    fn input(&self, object: u32) -> Result<Input, Failure> {
        let held = self.held(object)?;
        let separate = held.debug.separate(&held.binary);
        Input::of(&held.binary, separate).map_err(refused)
    }
}

impl Held {
    fn report(&self, query: &Query) -> Reported {
        let Query { offset, lookup } = *query;
        let found = self.binary.resolve_with(&self.debug, offset, lookup);
        Reported {
            function_start: match found {
                Ok(_) => None,
                Err(_) => self.starts.of(&self.binary, offset, lookup),
            },
            found: found.map(|resolution| self.told(resolution)),
            is_after_call: self.binary.is_after_call(offset),
        }
    }

    fn told(&self, resolution: Resolution) -> SourceFrames {
        SourceFrames {
            frames: resolution.frames,
            source: resolution.source,
            holder: self.holder(&resolution.from),
            note: resolution.note.map(|note| reason(&note)),
        }
    }

    fn holder(&self, from: &NamesFrom) -> Holder {
        match from {
            NamesFrom::Program => Holder::Program,
            NamesFrom::DebugData => Holder::DebugData,
            NamesFrom::File(path, _) => {
                let at = self.attached.iter().position(|own| Arc::ptr_eq(own, path));
                // One that was not attached would be refused by the parent.
                let at = at.and_then(|at| u32::try_from(at).ok());
                Holder::Attached(at.unwrap_or(u32::MAX))
            }
        }
    }

    /// Why debug files could not be used, unless that was reported.
    fn more_failures(&mut self) -> Option<Vec<String>> {
        let failures = self.debug.failures(&self.binary);
        if failures.len() <= self.told {
            return None;
        }
        self.told = failures.len();
        let failures = failures.iter().take(FAILURES_MAX);
        Some(failures.map(reason).collect())
    }
}

fn put(open: &mut OpenFiles, role: DebugRole, file: OpenFile) {
    match role {
        DebugRole::Separate => open.separate = Some(file),
        DebugRole::Supplementary => open.supplementary = Some(file),
        DebugRole::Package => open.packages.push(file),
        DebugRole::Split(id) => open.split.push((id, file)),
    }
}

fn facts(binary: &Binary) -> Facts {
    let link = binary.debug_link();
    Facts {
        build_id: binary.build_id().map(<[u8]>::to_vec),
        has_symbols: binary.has_symbols(),
        has_debug_info: binary.has_debug_info(),
        has_debug_names: binary.has_debug_names(),
        debug_link: link.map(|link| link.name.into_vec()),
        supplementary: binary.supplementary().map(shared),
        segments: binary.segments().to_vec(),
    }
}

fn shared(link: Supplementary) -> SharedDebugFile {
    SharedDebugFile {
        path: link.path.into_os_string().into_vec(),
        build_id: link.build_id,
    }
}

/// Units as they come, as many as there is room for.
fn told_units(units: Vec<SplitUnit>) -> Vec<SplitUnitMessage> {
    let told = units.into_iter().map(|unit| SplitUnitMessage {
        id: unit.id,
        name: unit.name.into_os_string().into_vec(),
        folder: unit.folder.into_os_string().into_vec(),
    });
    let mut bytes = 0;
    let fits = |unit: &SplitUnitMessage| {
        bytes += unit.bytes();
        bytes <= UNITS_BYTES_MAX
    };
    told.take(UNITS_MAX).take_while(fits).collect()
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

fn refused(why: impl ToString) -> Failure {
    Failure::Refused(reason(&why))
}

fn table(compiled: Result<UnwindTable, nsprobe_unwind::UnwindError>) -> Result<Reply, Failure> {
    let table = compiled.map_err(refused)?;
    Ok(Reply::Table(table.to_bytes(Digest::default())))
}
