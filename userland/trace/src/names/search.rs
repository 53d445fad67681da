// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the debug files of a program: in the mount namespace that it is in, else on this machine,
//! else on a debuginfod server.
//!
//! Nothing is parsed here. Whether a file is the requested one (by its build-id or checksum, and
//! where its code is) is checked by the process that has the program. Opened files are passed on as
//! [`OpenFiles`].

mod debug_files;

use crate::names::debuginfod::Debuginfod;
use crate::options::TraceOptions;
use debug_files::DebugFileSearch;
use nsprobe_containers::{MountView, OpenedFile, Opener, Process, RootId, Stamp, TargetError};
use nsprobe_symbolize::{FoundIn, OpenFile, OpenFiles};
use nsprobe_worker::SandboxedBinary;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Looks for debug files.
#[derive(Debug)]
pub struct DebugSearch {
    /// Processes that see the target's files.
    targets: Vec<Process>,
    debuginfod: Option<Debuginfod>,
    /// Roots in which a file system does not answer: they are not tried twice.
    mute: Mutex<HashSet<RootId>>,
}

/// The processes that get the probes that a debug file places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of one container, which may describe its own programs.
    One,
    /// Others as well: no container may decide where others get breakpoints.
    Several,
}

/// The debug files found for a program.
#[derive(Debug, Default)]
pub(crate) struct FoundDebugFiles {
    pub(crate) files: OpenFiles,
    /// Refused files with the reasons, and a note if there is no debug information.
    pub(crate) notes: Vec<String>,
    /// Where it was looked for, if there is none.
    pub(crate) looked_for: Option<String>,
    /// The container's file that was not used, and why.
    pub(crate) unused: Option<String>,
}

/// The processes that have a program, besides the target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owners<'a> {
    /// Processes that may have it.
    Processes(&'a [Process]),
    /// The process that the kernel has seen with it, in whose mount_view it is.
    Seen(&'a MountView),
}

/// The process that has an object.
#[derive(Debug)]
pub(crate) enum Owner {
    /// The process that the kernel has seen with it.
    Seen(MountView),
    /// One that may have it.
    Process(Process),
}

impl Owner {
    fn owners(&self) -> Owners<'_> {
        match self {
            Owner::Seen(mount_view) => Owners::Seen(mount_view),
            Owner::Process(process) => Owners::Processes(std::slice::from_ref(process)),
        }
    }
}

/// The viewer of a root directory.
#[derive(Clone, Copy, Debug)]
enum Viewer<'a> {
    We,
    Process(&'a Process),
    Owner(&'a MountView),
}

/// A root directory from which paths are looked up.
#[derive(Debug)]
struct DebugRoot<'a> {
    viewer: Viewer<'a>,
    root: RootId,
    found_in: FoundIn,
    /// Whether the requested program is there, once that is known.
    has_program: OnceCell<bool>,
}

impl DebugSearch {
    /// In the files that these processes, the target's, see, and in those of this machine; when
    /// the user wants it, also on servers.
    pub(crate) fn of(
        targets: Vec<Process>,
        options: &TraceOptions,
    ) -> anyhow::Result<Arc<DebugSearch>> {
        DebugSearch::new(targets, options.debuginfod, options.quiet)
    }

    /// For commands that plan no probes.
    pub fn new(
        targets: Vec<Process>,
        debuginfod: bool,
        quiet: bool,
    ) -> anyhow::Result<Arc<DebugSearch>> {
        let debuginfod = debuginfod.then(|| Debuginfod::from_environment(quiet));
        let debuginfod = debuginfod.transpose()?;
        Ok(Arc::new(DebugSearch {
            targets,
            debuginfod,
            mute: Mutex::default(),
        }))
    }

    /// The debug files of `program`, which lies at `path` as one of `owners`, or
    /// else of the target, sees it.
    pub(crate) fn find(
        &self,
        program: &SandboxedBinary,
        path: &Path,
        owners: Owners<'_>,
    ) -> FoundDebugFiles {
        DebugFileSearch::new(self, program, path, owners, Reach::One).run()
    }

    /// Looks as `viewers` see the files, for probes of this reach.
    pub(crate) fn find_for_probes(
        &self,
        program: &SandboxedBinary,
        path: &Path,
        viewers: &[Process],
        reach: Reach,
    ) -> FoundDebugFiles {
        DebugFileSearch::new(self, program, path, Owners::Processes(viewers), reach).run()
    }

    /// Those of an object of this owner, if there is one left.
    pub(crate) fn find_for(
        &self,
        program: &SandboxedBinary,
        path: &Path,
        owner: Option<&Owner>,
    ) -> FoundDebugFiles {
        let owners = owner.map_or(Owners::Processes(&[]), Owner::owners);
        self.find(program, path, owners)
    }

    /// Asks debuginfod servers for what `found` lacks; whether they had any of it.
    pub(crate) fn fetch(&self, program: &SandboxedBinary, found: &mut FoundDebugFiles) -> bool {
        let Some(servers) = &self.debuginfod else {
            return false;
        };
        debug_files::fetch(servers, program, found)
    }

    /// The views of a program: those of its owners and of the target, and ours.
    fn views<'a>(&'a self, owners: Owners<'a>) -> Vec<DebugRoot<'a>> {
        let ours = RootId::ours().ok();
        let (mount_view, processes) = match owners {
            Owners::Processes(processes) => (None, processes),
            Owners::Seen(mount_view) => (Some(mount_view), &[][..]),
        };
        let seen = mount_view.map(|mount_view| (mount_view.root().ok(), Viewer::Owner(mount_view)));
        let processes = processes.iter().chain(&self.targets);
        let processes = processes.map(|one| (one.root().ok(), Viewer::Process(one)));
        let mut views: Vec<DebugRoot<'a>> = Vec::new();
        for (root, viewer) in seen.into_iter().chain(processes) {
            let Some(root) = root else { continue };
            if Some(root) != ours && views.iter().all(|view| view.root != root) {
                views.push(DebugRoot {
                    viewer,
                    root,
                    found_in: FoundIn::Container,
                    has_program: OnceCell::new(),
                });
            }
        }
        views.extend(ours.map(|root| DebugRoot {
            viewer: Viewer::We,
            root,
            found_in: FoundIn::Host,
            has_program: OnceCell::new(),
        }));
        views
    }

    /// Opens those of `names` that are there; what is there and cannot be used is noted.
    fn open(
        &self,
        view: &DebugRoot<'_>,
        names: Vec<PathBuf>,
        notes: &mut Vec<String>,
    ) -> Vec<OpenedFile> {
        if self.is_mute(view, notes) {
            return Vec::new();
        }
        let opener = Opener::default();
        let opened = match view.viewer {
            Viewer::We => opener.open_all_here(names),
            Viewer::Owner(mount_view) => opener.open_all_in(mount_view, names),
            Viewer::Process(process) => {
                MountView::of(process).and_then(|mount_view| opener.open_all_in(&mount_view, names))
            }
        };
        let opened = opened.unwrap_or_else(|error| vec![Err(error)]);
        let noted = |file| self.noted(view, file, notes);
        opened.into_iter().filter_map(noted).collect()
    }

    /// The stamp of the file at `path`; none when there is none, or it cannot be had.
    fn stamp(&self, view: &DebugRoot<'_>, path: &Path, notes: &mut Vec<String>) -> Option<Stamp> {
        if self.is_mute(view, notes) {
            return None;
        }
        let opener = Opener::default();
        let stamp = match view.viewer {
            Viewer::We => opener.stamp(None, path),
            Viewer::Owner(mount_view) => opener.stamp(Some(mount_view), path),
            Viewer::Process(process) => {
                MountView::of(process).and_then(|mount_view| opener.stamp(Some(&mount_view), path))
            }
        };
        self.noted(view, stamp, notes)?
    }

    fn mute(&self) -> MutexGuard<'_, HashSet<RootId>> {
        self.mute.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_mute(&self, view: &DebugRoot<'_>, notes: &mut Vec<String>) -> bool {
        let is_mute = self.mute().contains(&view.root);
        if is_mute {
            let place = place(view.found_in);
            notes.push(format!("a file system {place} did not answer before"));
        }
        is_mute
    }

    /// The value, or else a note of the reason why there is none.
    fn noted<T>(
        &self,
        view: &DebugRoot<'_>,
        result: nsprobe_containers::Result<T>,
        notes: &mut Vec<String>,
    ) -> Option<T> {
        let noted = result.map_err(|error| {
            if matches!(error, TargetError::TimedOut { .. }) {
                self.mute().insert(view.root);
            }
            notes.push(error.to_string());
        });
        noted.ok()
    }
}

impl DebugRoot<'_> {
    fn found(&self, opened: OpenedFile) -> OpenFile {
        OpenFile {
            file: opened.file,
            path: Arc::new(opened.path),
            found_in: self.found_in,
        }
    }
}

/// Description of a place in messages.
pub(crate) fn place(found_in: FoundIn) -> &'static str {
    match found_in {
        FoundIn::Container => "in the container",
        FoundIn::Host => "on the host",
        FoundIn::Debuginfod => "from debuginfod",
    }
}
