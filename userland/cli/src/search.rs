// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the debug files of a program: in the mount namespace that it lies in, else on this
//! machine, else on a debuginfod server.
//!
//! Nothing is parsed here but what tells whether a file is the one that is wanted: its
//! build-id or checksum, and where its code is. What is opened is handed on as
//! [`OpenFiles`].

mod elf_file;
mod hunt;

use crate::args::ProbeOptions;
use crate::debuginfod::Debuginfod;
use crate::target::Target;
use elf_file::ElfFile;
use hunt::Hunt;
use nsprobe_symbolize::{FoundIn, OpenFile, OpenFiles};
use nsprobe_target::{Error, OpenedFile, Opener, Process, RootId, Stamp};
use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where debug files are looked for.
#[derive(Debug)]
pub(crate) struct Search {
    /// Processes that see the target's files.
    targets: Vec<Process>,
    debuginfod: Option<RefCell<Debuginfod>>,
    /// Roots in which a file system does not answer: nobody waits for it twice.
    mute: RefCell<HashSet<RootId>>,
}

/// What was found for a program.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) files: OpenFiles,
    /// What was refused and why, and, when there is no debug information, where it was
    /// looked for.
    pub(crate) notes: Vec<String>,
}

/// A root directory from which paths are looked up.
#[derive(Debug)]
struct View<'a> {
    /// Who sees it; nobody: we.
    process: Option<&'a Process>,
    root: RootId,
    found_in: FoundIn,
    /// Whether the program that is asked for lies there, once that is known.
    has_program: OnceCell<bool>,
}

impl Search {
    /// In the files that the target sees, and those of this machine; when the user wants it,
    /// also on servers.
    pub(crate) fn of(target: &Target, options: &ProbeOptions) -> anyhow::Result<Rc<Search>> {
        let servers = options.debuginfod;
        let debuginfod = servers.then(|| Debuginfod::from_environment(options.quiet));
        let debuginfod = debuginfod.transpose()?;
        Ok(Rc::new(Search {
            targets: target.viewers(),
            debuginfod: debuginfod.map(RefCell::new),
            mute: RefCell::default(),
        }))
    }

    /// The debug files of `program`, which lies at `path` as one of `owners`, or
    /// else of the target, sees it.
    pub(crate) fn find(&self, program: &impl ElfFile, path: &Path, owners: &[Process]) -> Found {
        Hunt::new(self, program, path, owners).run()
    }

    /// Asks debuginfod servers for what `found` lacks; whether they had any of it.
    pub(crate) fn fetch(&self, program: &impl ElfFile, found: &mut Found) -> bool {
        let Some(servers) = &self.debuginfod else {
            return false;
        };
        hunt::fetch(&mut servers.borrow_mut(), program, found)
    }

    /// The views of a program: those of its owners and of the target, and ours.
    fn views<'a>(&'a self, owners: &'a [Process]) -> Vec<View<'a>> {
        let ours = RootId::ours().ok();
        let mut views: Vec<View<'a>> = Vec::new();
        for process in owners.iter().chain(&self.targets) {
            let Ok(root) = process.root() else { continue };
            if Some(root) != ours && views.iter().all(|view| view.root != root) {
                views.push(View {
                    process: Some(process),
                    root,
                    found_in: FoundIn::Container,
                    has_program: OnceCell::new(),
                });
            }
        }
        views.extend(ours.map(|root| View {
            process: None,
            root,
            found_in: FoundIn::Host,
            has_program: OnceCell::new(),
        }));
        views
    }

    /// Opens those of `names` that are there; what is there and cannot be used is noted.
    fn open(
        &self,
        view: &View<'_>,
        names: Vec<PathBuf>,
        notes: &mut Vec<String>,
    ) -> Vec<OpenedFile> {
        if self.is_mute(view, notes) {
            return Vec::new();
        }
        let opener = Opener::default();
        let opened = match view.process {
            Some(process) => opener.open_all_in(process, names),
            None => opener.open_all_here(names),
        };
        let opened = opened.unwrap_or_else(|error| vec![Err(error)]);
        let noted = |file| self.noted(view, file, notes);
        opened.into_iter().filter_map(noted).collect()
    }

    /// The stamp of the file at `path`; none when there is none, or it cannot be had.
    fn stamp(&self, view: &View<'_>, path: &Path, notes: &mut Vec<String>) -> Option<Stamp> {
        if self.is_mute(view, notes) {
            return None;
        }
        let stamp = Opener::default().stamp(view.process, path);
        self.noted(view, stamp, notes)?
    }

    fn is_mute(&self, view: &View<'_>, notes: &mut Vec<String>) -> bool {
        let is_mute = self.mute.borrow().contains(&view.root);
        if is_mute {
            let place = place(view.found_in);
            notes.push(format!("a file system {place} did not answer before"));
        }
        is_mute
    }

    /// What there is, or else a note of why not.
    fn noted<T>(
        &self,
        view: &View<'_>,
        result: nsprobe_target::Result<T>,
        notes: &mut Vec<String>,
    ) -> Option<T> {
        let noted = result.map_err(|error| {
            if matches!(error, Error::TimedOut { .. }) {
                self.mute.borrow_mut().insert(view.root);
            }
            notes.push(error.to_string());
        });
        noted.ok()
    }
}

impl View<'_> {
    fn found(&self, opened: OpenedFile) -> OpenFile {
        OpenFile {
            file: opened.file,
            path: Rc::new(opened.path),
            found_in: self.found_in,
        }
    }
}

/// How messages call a place.
pub(crate) fn place(found_in: FoundIn) -> &'static str {
    match found_in {
        FoundIn::Container => "in the container",
        FoundIn::Host => "on the host",
        FoundIn::Debuginfod => "from debuginfod",
    }
}
