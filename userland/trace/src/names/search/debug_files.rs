// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for one program's debug files: the stripped debug file, then its dwz supplement, then
//! split DWARF.

use super::{place, DebugRoot, DebugSearch, FoundDebugFiles, Owners, Reach, Viewer};
use crate::names::debuginfod::Debuginfod;
use nsprobe_containers::{OpenedFile, Process, Stamp};
use nsprobe_symbolize::{FoundIn, OpenFile, SplitUnit, Supplementary};
use nsprobe_text::counted;
use nsprobe_worker::SandboxedBinary;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Most `.dwo` files of a program that are opened.
const SPLIT_FILES_MAX: usize = 512;
/// Suffix that the kernel adds to the path of a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// The search for the debug files of one program.
pub(super) struct DebugFileSearch<'a> {
    search: &'a DebugSearch,
    program: &'a SandboxedBinary,
    path: PathBuf,
    is_deleted: bool,
    views: Vec<DebugRoot<'a>>,
    reach: Reach,
    found: FoundDebugFiles,
}

impl<'a> DebugFileSearch<'a> {
    pub(super) fn new(
        search: &'a DebugSearch,
        program: &'a SandboxedBinary,
        path: &Path,
        owners: Owners<'a>,
        reach: Reach,
    ) -> DebugFileSearch<'a> {
        let bytes = path.as_os_str().as_bytes();
        let (bytes, is_deleted) = match bytes.strip_suffix(DELETED) {
            Some(before) => (before, true),
            None => (bytes, false),
        };
        DebugFileSearch {
            search,
            program,
            path: OsString::from_vec(bytes.to_owned()).into(),
            is_deleted,
            views: search.views(owners),
            reach,
            found: FoundDebugFiles::default(),
        }
    }

    /// Looks for all of it.
    pub(super) fn run(mut self) -> FoundDebugFiles {
        if self.program.has_debug_info() {
            self.shared_and_split(self.program, None);
            return self.found;
        }
        if let Some((at, separate)) = self.separate() {
            self.shared_and_split(&separate, Some(at));
        }
        self.found
    }

    /// Finds what `holder`, which was found in the view `at` or is the program, says is
    /// elsewhere.
    fn shared_and_split(&mut self, holder: &SandboxedBinary, at: Option<usize>) {
        if let Some(link) = holder.supplementary() {
            self.supplementary(&link, at);
        }
        match holder.split_units() {
            Ok(units) if units.is_empty() => {}
            Ok(units) => self.split(&units),
            Err(why) => self.found.notes.push(why),
        }
    }

    /// The files of the view that are there of `names`, when names may be looked up in it:
    /// on this machine, or where the program itself is. Another process with the number of the
    /// one that mapped the program has files of its own.
    fn open(&mut self, at: usize, names: Vec<PathBuf>) -> Vec<OpenedFile> {
        let is_ours = |view: &DebugRoot<'_>| view.found_in == FoundIn::Host;
        let Some(view) = self.views.get(at) else {
            return Vec::new();
        };
        if !is_ours(view) && !self.has_program(at) {
            return Vec::new();
        }
        let Some(view) = self.views.get(at) else {
            return Vec::new();
        };
        let opened = self.search.open(view, names, &mut self.found.notes);
        match (self.reach, opened.first()) {
            (Reach::Several, Some(first)) if !is_ours(view) => {
                self.found.unused.get_or_insert_with(|| unused(view, first));
                Vec::new()
            }
            _ => opened,
        }
    }

    /// Whether the view has the program itself at its path.
    fn has_program(&mut self, at: usize) -> bool {
        let Some(view) = self.views.get(at) else {
            return false;
        };
        if let Some(known) = view.has_program.get() {
            return *known;
        }
        let has = match (self.is_deleted, view.viewer) {
            // The kernel has seen it there.
            (_, Viewer::Owner(_)) => true,
            (true, Viewer::Process(process)) => has_mapped(process, &self.path),
            _ => {
                let own = self.program.try_clone_file();
                let own = own.ok().and_then(|file| Stamp::of(&file).ok());
                let notes = &mut self.found.notes;
                own.is_some() && self.search.stamp(view, &self.path, notes) == own
            }
        };
        *view.has_program.get_or_init(|| has)
    }

    /// Finds the file with what was stripped, and the index of the view that has it. One
    /// with symbols alone is taken where there is none with DWARF.
    fn separate(&mut self) -> Option<(usize, SandboxedBinary)> {
        let names = self.program.debug_file_names(&self.path);
        let mut symbols = None;
        for at in 0..self.views.len() {
            for opened in self.open(at, names.clone()) {
                let checked = checked(self.program, &opened);
                let place = self.views.get(at).map(|view| place(view.found_in));
                match checked {
                    Ok(binary) if binary.has_debug_info() => {
                        return self.take_separate(at, opened, binary);
                    }
                    Ok(binary) => symbols = symbols.or(Some((at, opened, binary))),
                    Err(why) => self.found.notes.push(format!(
                        "{} {} is refused: {why}",
                        opened.path.display(),
                        place.unwrap_or_default(),
                    )),
                }
            }
        }
        let why = match names.is_empty() {
            true => "no debug information: the file has neither a build-id nor a link",
            false => "no debug information",
        };
        self.found.notes.push(why.to_owned());
        self.found.looked_for = self.looked_for(&names);
        let (at, opened, binary) = symbols?;
        self.take_separate(at, opened, binary)
    }

    fn take_separate(
        &mut self,
        at: usize,
        opened: OpenedFile,
        binary: SandboxedBinary,
    ) -> Option<(usize, SandboxedBinary)> {
        self.found.files.separate = Some(self.views.get(at)?.found(opened));
        Some((at, binary))
    }

    fn looked_for(&self, names: &[PathBuf]) -> Option<String> {
        if names.is_empty() {
            return None;
        }
        let names: Vec<String> = names
            .iter()
            .map(|name| name.display().to_string())
            .collect();
        let searched = |view: &&DebugRoot<'_>| view.has_program.get() != Some(&false);
        let searched = self.views.iter().filter(searched);
        let mut places: Vec<&str> = searched.map(|view| place(view.found_in)).collect();
        places.dedup();
        Some(format!(
            "looked for {} {}",
            names.join(", "),
            places.join(" and ")
        ))
    }

    /// Finds what `link` names. What has the link lies in the view `at`, or is the program.
    fn supplementary(&mut self, link: &Supplementary, at: Option<usize>) {
        let holder = self.found.files.separate.as_ref().map(|file| &**file.path);
        let folder = holder.unwrap_or(&self.path).parent();
        let folder = folder.unwrap_or(Path::new("/")).to_owned();
        let first = at.unwrap_or(0);
        let others = (0..self.views.len()).filter(|other| *other != first);
        for index in std::iter::once(first).chain(others.collect::<Vec<_>>()) {
            // A path that a container's file names leads nowhere on this machine.
            let names = match index == first && (at.is_some() || self.has_program(first)) {
                true => link.names(&folder),
                false => link.usual_names(),
            };
            for opened in self.open(index, names) {
                match check_supplementary(self.program, &opened, link) {
                    Ok(()) => {
                        let view = self.views.get(index);
                        self.found.files.supplementary = view.map(|view| view.found(opened));
                        return;
                    }
                    Err(why) => {
                        let path = opened.path.display();
                        self.found.notes.push(format!("{path} is refused: {why}"));
                    }
                }
            }
        }
        self.found.notes.push(format!(
            "{}, which the debug information shares with others, was not found",
            link.path.display()
        ));
    }

    /// Finds packages of split DWARF, or else its files. The latter are named by paths in the
    /// program, so they are only looked for where the program is.
    fn split(&mut self, units: &[SplitUnit]) {
        self.packages();
        if !self.found.files.packages.is_empty() {
            return;
        }
        // A process has this number of files open at most.
        let wanted = units.get(..SPLIT_FILES_MAX).unwrap_or(units);
        let mut views = 0..self.views.len();
        if let Some(at) = views.find(|at| self.has_program(*at)) {
            self.split_files(at, wanted);
        }
        let split = &self.found.files.split;
        let found: HashSet<u64> = split.iter().map(|(id, _)| *id).collect();
        let missing = || units.iter().filter(|unit| !found.contains(&unit.id));
        if let Some(unit) = missing().next() {
            self.found.notes.push(format!(
                "{} of {} with split DWARF not found, such as {}",
                missing().count(),
                counted(units.len(), "file"),
                unit.folder.join(&unit.name).display()
            ));
        }
    }

    /// Finds the packages beside the program, and beside its debug file.
    fn packages(&mut self) {
        let separate = self.found.files.separate.as_ref();
        let separate = separate.map(|file| (*file.path).clone());
        let beside = [Some(self.path.clone()), separate].into_iter().flatten();
        let names: Vec<PathBuf> = beside.map(|path| with_suffix(path, ".dwp")).collect();
        for at in 0..self.views.len() {
            let opened = self.open(at, names.clone());
            if let Some(view) = self.views.get(at) {
                let opened = opened.into_iter().map(|file| view.found(file));
                self.found.files.packages.extend(opened);
            }
        }
    }

    fn split_files(&mut self, at: usize, units: &[SplitUnit]) {
        let names = split_names(units, self.path.parent().unwrap_or(Path::new("/")));
        let opened = self.open(at, names.keys().cloned().collect());
        let Some(view) = self.views.get(at) else {
            return;
        };
        for opened in opened.into_iter().take(SPLIT_FILES_MAX) {
            // As a rule one unit.
            for id in names.get(&opened.path).into_iter().flatten() {
                let path = opened.path.clone();
                if let Ok(file) = opened.file.try_clone() {
                    let file = OpenedFile {
                        file,
                        path,
                        ..opened
                    };
                    self.found.files.split.push((*id, view.found(file)));
                }
            }
        }
    }
}

/// Says that a container's file is not used for probes that reach others, and what to do.
fn unused(view: &DebugRoot<'_>, opened: &OpenedFile) -> String {
    let of = match view.viewer {
        Viewer::Process(process) => format!(" of process {}", process.pid()),
        _ => String::new(),
    };
    format!(
        "{} in the container{of} is not used, since it would decide where processes of other \
         containers get breakpoints: trace that container alone (-c CONTAINER, without --follow), \
         install the debug symbols on this machine, or use --debuginfod",
        opened.path.display()
    )
}

/// Candidate paths of the `.dwo` files of units: where the compiler wrote them, and beside the
/// program; each with the ids of its units.
fn split_names(units: &[SplitUnit], beside: &Path) -> BTreeMap<PathBuf, Vec<u64>> {
    let mut names: BTreeMap<PathBuf, Vec<u64>> = BTreeMap::new();
    for unit in units {
        let told = Some(unit.folder.join(&unit.name)).filter(|told| told.is_absolute());
        let here = unit.name.file_name().map(|name| beside.join(name));
        for name in told.into_iter().chain(here) {
            names.entry(name).or_default().push(unit.id);
        }
    }
    names
}

fn with_suffix(path: PathBuf, suffix: &str) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}

/// The file, if it holds debug information of the program.
fn checked(program: &SandboxedBinary, opened: &OpenedFile) -> Result<SandboxedBinary, String> {
    let binary = headers(program, &opened.file, &opened.path)?;
    program.check_debug_file(&binary)?;
    match binary.has_debug_names() {
        true => Ok(binary),
        false => Err("it has neither DWARF nor symbols".to_owned()),
    }
}

fn headers(program: &SandboxedBinary, file: &File, path: &Path) -> Result<SandboxedBinary, String> {
    let file = file.try_clone().map_err(|error| error.to_string())?;
    SandboxedBinary::open_sections(program.worker(), file, path).map_err(|error| error.to_string())
}

fn check_supplementary(
    program: &SandboxedBinary,
    opened: &OpenedFile,
    link: &Supplementary,
) -> Result<(), String> {
    let file = opened.file.try_clone().map_err(|error| error.to_string())?;
    let binary = SandboxedBinary::open_supplementary(program.worker(), file, &opened.path);
    let binary = binary.map_err(|error| error.to_string())?;
    match binary.build_id() == Some(&link.build_id) {
        true => Ok(()),
        false => Err("it has another build-id".to_owned()),
    }
}

/// Whether a process has a file mapped that is no longer at its path.
fn has_mapped(process: &Process, path: &Path) -> bool {
    let mappings = process.mappings().unwrap_or_default();
    let mut mappings = mappings.iter();
    mappings.any(|mapping| mapping.deleted && mapping.path == path)
}

/// Asks servers for what `found` lacks; whether they had any of it.
pub(super) fn fetch(
    servers: &Debuginfod,
    program: &SandboxedBinary,
    found: &mut FoundDebugFiles,
) -> bool {
    let mut fetched = false;
    let mut holder = None;
    if !program.has_debug_info() && found.files.separate.is_none() {
        if let Some(file) = wanted(servers, program.build_id(), &mut found.notes) {
            match fetched_headers(program, &file) {
                Ok(binary) => {
                    holder = Some(binary);
                    found.files.separate = Some(file);
                    fetched = true;
                }
                Err(why) => {
                    let path = file.path.display();
                    found
                        .notes
                        .push(format!("{path} from debuginfod is refused: {why}"));
                }
            }
        }
    }
    let separate = found.files.separate.as_ref();
    let separate = separate.and_then(|file| headers(program, &file.file, &file.path).ok());
    let holder = holder.or(separate);
    let link = holder.as_ref().unwrap_or(program).supplementary();
    if let Some(link) = link.filter(|_| found.files.supplementary.is_none()) {
        if let Some(file) = wanted(servers, Some(&link.build_id), &mut found.notes) {
            found.files.supplementary = Some(file);
            fetched = true;
        }
    }
    fetched
}

fn fetched_headers(program: &SandboxedBinary, file: &OpenFile) -> Result<SandboxedBinary, String> {
    let binary = headers(program, &file.file, &file.path)?;
    program.check_debug_file(&binary)?;
    Ok(binary)
}

fn wanted(
    servers: &Debuginfod,
    build_id: Option<&[u8]>,
    notes: &mut Vec<String>,
) -> Option<OpenFile> {
    match servers.find(build_id?) {
        Ok(file) => file,
        Err(why) => {
            notes.push(why);
            None
        }
    }
}
