// SPDX-License-Identifier: MIT OR Apache-2.0
//! A probed file, parsed by a process without privileges, and the meaning of a spec in it.
//!
//! Each file has a process of its own. The process that determines where a breakpoint goes into a
//! file has read only that file and its debug files.

use crate::attach::target::Target;
use crate::attach::tracer::ProbeInputs;
use crate::names::address_names::AddressNames;
use crate::names::search::{DebugSearch, Reach};
use nsprobe_containers::Opener;
use nsprobe_probes::{Listing, ProbeQuery, Probes, Refused};
use nsprobe_worker::{ChildLimits, SandboxedBinary, Worker, WorkerError};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Most names of functions that are kept.
const NAMES_MAX: usize = 1 << 16;

/// A file, and what a search for its debug files had to say.
#[derive(Debug)]
pub struct Parsed {
    object: SandboxedBinary,
    path: PathBuf,
    /// `None` until debug files were looked for.
    notes: Option<Vec<String>>,
    /// The container's debug file that was not used, and why.
    unused: Option<String>,
}

impl Parsed {
    /// Has a file read that errors call `path`.
    pub(super) fn open(
        inputs: &ProbeInputs<'_>,
        file: File,
        path: &Path,
    ) -> anyhow::Result<Parsed> {
        let object = open(inputs.parser, inputs.limits, file, path)?;
        Ok(Parsed::new(object, path))
    }

    /// For a file that is already open.
    pub fn new(object: SandboxedBinary, path: &Path) -> Parsed {
        Parsed {
            object,
            path: path.to_owned(),
            notes: None,
            unused: None,
        }
    }

    /// The build-id that the file claims.
    pub(crate) fn build_id(&self) -> Option<&[u8]> {
        self.object.build_id()
    }

    /// Resolves a query in the file; looks for debug files when they are needed.
    pub(crate) fn probes(
        &mut self,
        probe_query: &ProbeQuery,
        search: &DebugSearch,
        target: &Target,
        reach: Reach,
    ) -> anyhow::Result<Result<Probes, Refused>> {
        // Whether they were of use to another spec does not matter here.
        let found = self.ask(probe_query, None)?;
        if found != Err(Refused::NeedsDebugFiles) {
            return Ok(found);
        }
        self.search(search, target, reach)?;
        let mut found = self.ask(probe_query, self.notes.as_deref())?;
        if let Err(Refused::Because(causes)) = &mut found {
            causes.extend(self.unused.clone());
        }
        Ok(found)
    }

    /// The probes of a query for a function that the file itself names; `None` if it has no such
    /// name. Debug files are not looked for.
    pub(super) fn named(
        &self,
        probe_query: &ProbeQuery,
    ) -> anyhow::Result<Option<Result<Probes, Refused>>> {
        let found = self.ask(probe_query, None)?;
        Ok(Some(found).filter(|found| *found != Err(Refused::NeedsDebugFiles)))
    }

    /// The functions from the so-many-th on, and the static probes, that fit a pattern; debug
    /// files are looked for when they are needed.
    pub fn list(
        &mut self,
        pattern: Option<&str>,
        from: u64,
        search: &DebugSearch,
        target: &Target,
    ) -> anyhow::Result<Result<Listing, Refused>> {
        let shown = self.path.display().to_string();
        let ask = |parsed: &Parsed| {
            let is_searched = parsed.notes.is_some();
            let listing = parsed.object.list(is_searched, &shown, pattern, from);
            listing.map_err(|error| told(error, &parsed.path))
        };
        let listing = ask(self)?;
        if listing != Err(Refused::NeedsDebugFiles) {
            return Ok(listing);
        }
        self.search(search, target, Reach::One)?;
        ask(self)
    }

    /// Looks for debug files, once.
    fn search(
        &mut self,
        search: &DebugSearch,
        target: &Target,
        reach: Reach,
    ) -> anyhow::Result<()> {
        if self.notes.is_none() {
            self.notes = Some(self.find_debug_files(search, target, reach)?);
        }
        Ok(())
    }

    fn ask(
        &self,
        probe_query: &ProbeQuery,
        notes: Option<&[String]>,
    ) -> anyhow::Result<Result<Probes, Refused>> {
        let found = self.object.probes(probe_query, notes);
        found.map_err(|error| told(error, &self.path))
    }

    /// Hands debug files to the parser; what there is to say where they are missed.
    fn find_debug_files(
        &mut self,
        search: &DebugSearch,
        target: &Target,
        reach: Reach,
    ) -> anyhow::Result<Vec<String>> {
        let viewers = target.viewers();
        let mut found = search.find_for_probes(&self.object, &self.path, &viewers, reach);
        search.fetch(&self.object, &mut found);
        let is_missed = found.files.separate.is_none();
        self.unused = found.unused.filter(|_| is_missed);
        let attached = self.object.attach(found.files);
        attached.map_err(|error| told(error, &self.path))?;
        found.notes.extend(found.looked_for);
        Ok(found.notes)
    }

    /// The names of its functions.
    pub(super) fn into_functions(self) -> NamesByAddress {
        NamesByAddress {
            object: self.object,
            known: RefCell::default(),
        }
    }
}

/// Has a file read by a process of its own.
pub fn open(
    parser: &Worker,
    limits: ChildLimits,
    file: File,
    path: &Path,
) -> anyhow::Result<SandboxedBinary> {
    let opener = Opener { limit: limits.load };
    let file = opener.for_another_user(file, path)?;
    let object = SandboxedBinary::open(&parser.another(limits), file, path);
    object.map_err(|error| told(error, path))
}

/// Why a file was not read. A refusal names the file itself.
pub(crate) fn told(error: WorkerError, path: &Path) -> anyhow::Error {
    let refused = matches!(error, WorkerError::Refused(_));
    let unsafe_here = matches!(error, WorkerError::NoSandbox(_));
    let error = anyhow::Error::new(error);
    match (refused, unsafe_here) {
        (true, _) => error,
        (_, true) => error.context("files cannot be parsed safely; --no-sandbox does without"),
        _ => error.context(path.display().to_string()),
    }
}

/// What is at addresses of a file.
#[derive(Debug)]
pub(super) struct NamesByAddress {
    object: SandboxedBinary,
    known: RefCell<HashMap<u64, Option<String>>>,
}

impl AddressNames for NamesByAddress {
    fn name_at(&self, address: u64) -> Option<String> {
        let mut known = self.known.borrow_mut();
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        let name = known.entry(address);
        // A file whose parser has ended has no names.
        let name = name.or_insert_with(|| self.object.function_at(address).ok().flatten());
        name.clone()
    }
}
