// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files by their build-ids, in directories that the user names.

use anyhow::{bail, Context};
use libnsprobe::common::elf_note;
use nsprobe_symbolize::{
    Binary, DebugSet, FileOffset, FoundIn, FrameSource, Lookup, NamesFrom, OpenFile, OpenFiles,
    SourceFrame,
};
use nsprobe_text::escaped;
use nsprobe_unwind::FunctionStarts;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories below one another that are searched.
const DEPTH_MAX: usize = 32;
/// Most files that are looked at.
const FILES_MAX: usize = 1 << 20;
/// Most files of one build-id that are looked at.
const SAME_MAX: usize = 16;
/// Files that stay open.
const OPEN_MAX: usize = 128;

/// The name of a place and its origin.
#[derive(Debug, Default)]
pub(super) struct NamedPlace {
    pub(super) functions: Vec<SourceFrame>,
    pub(super) source: Option<FrameSource>,
    pub(super) from: NamesFrom,
    /// Where the function begins that has no name.
    pub(super) function_start: Option<FileOffset>,
    pub(super) unresolved: Option<String>,
    /// The file; none when there is none of that build-id.
    pub(super) path: Option<PathBuf>,
    /// Whether a call instruction precedes it.
    pub(super) is_after_call: Option<bool>,
}

/// Files by their build-ids, in hexadecimal.
pub(super) struct Files {
    directories: Vec<PathBuf>,
    /// All files of the directories, once they had to be searched.
    index: Option<HashMap<String, Vec<PathBuf>>>,
    open: HashMap<String, Option<FileWithDebug>>,
}

/// A program's file, and what a file beside it has of its debug information.
struct FileWithDebug {
    path: PathBuf,
    binary: Binary,
    debug: DebugSet,
    starts: FunctionStarts,
    /// Whether the file has the program's code; a debug file does not.
    has_code: bool,
    /// Whether the reason why its debug information is unused was reported.
    is_told: bool,
}

impl FileWithDebug {
    /// Names without functions that were inlined and without lines need a reason: once.
    fn tell(&mut self, why: Option<&str>) {
        let Some(why) = why.filter(|_| !self.is_told) else {
            return;
        };
        self.is_told = true;
        let (path, why) = (self.path.display().to_string(), escaped(why));
        let path = escaped(&path);
        eprintln!("nsprobe: {path}: its debug information is not used: {why}");
    }
}

impl Files {
    /// Those of these directories.
    pub(super) fn new(directories: &[PathBuf]) -> anyhow::Result<Files> {
        for directory in directories {
            let metadata = fs::metadata(directory);
            let metadata =
                metadata.with_context(|| format!("cannot look into {}", directory.display()))?;
            if !metadata.is_dir() {
                bail!("{} is no directory", directory.display());
            }
        }
        Ok(Files {
            directories: directories.to_vec(),
            index: None,
            open: HashMap::new(),
        })
    }

    /// Names an offset of the file with this build-id.
    pub(super) fn name(
        &mut self,
        build_id: &str,
        offset: FileOffset,
        lookup: Lookup,
    ) -> NamedPlace {
        let Some(known) = self.file(build_id) else {
            return NamedPlace {
                unresolved: Some("no file with that build-id was found".to_owned()),
                ..NamedPlace::default()
            };
        };
        let is_after_call = known.binary.is_after_call(offset);
        let mut named = NamedPlace {
            path: Some(known.path.clone()),
            is_after_call: is_after_call.filter(|_| known.has_code),
            ..NamedPlace::default()
        };
        match known.binary.resolve_with(&known.debug, offset, lookup) {
            Ok(resolution) => {
                known.tell(resolution.note.as_deref());
                named.functions = resolution.frames;
                named.source = Some(resolution.source);
                named.from = resolution.from;
            }
            Err(why) => {
                named.function_start = known.starts.of(&known.binary, offset, lookup);
                named.unresolved = Some(why.to_string());
            }
        }
        named
    }

    fn file(&mut self, build_id: &str) -> Option<&mut FileWithDebug> {
        if !self.open.contains_key(build_id) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            let found = self.find(build_id);
            self.open.insert(build_id.to_owned(), found);
        }
        self.open.get_mut(build_id)?.as_mut()
    }

    /// The best of the files with this build-id: one with debug information, or with symbols;
    /// and the first one that has more of that program.
    fn find(&mut self, build_id: &str) -> Option<FileWithDebug> {
        let paths = self.paths(build_id);
        let opened = paths.into_iter().filter_map(|path| {
            let binary = open(&path, build_id)?;
            Some((path, binary))
        });
        let mut opened: Vec<(PathBuf, Binary)> = opened.take(SAME_MAX).collect();
        opened.sort_by_key(|(_, binary)| std::cmp::Reverse(quality(binary)));
        let mut opened = opened.into_iter();
        let (path, binary) = opened.next()?;
        if !has_code(&binary) {
            return Some(alone(path, binary));
        }
        let separate = opened.find(|(_, other)| {
            !binary.has_debug_info() && other.has_debug_info() && other.is_debug_file_of(&binary)
        });
        Some(FileWithDebug {
            path,
            binary,
            debug: debug_set(separate.as_ref().map(|(path, other)| (&**path, other))),
            starts: FunctionStarts::default(),
            has_code: true,
            is_told: false,
        })
    }

    /// Paths where a file with this build-id may be.
    fn paths(&mut self, build_id: &str) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        if let Some((first, rest)) = build_id.split_at_checked(2) {
            for directory in &self.directories {
                let folder = directory.join(".build-id").join(first);
                paths.extend([folder.join(rest), folder.join(format!("{rest}.debug"))]);
            }
            paths.retain(|path| path.exists());
        }
        let index = self.index.get_or_insert_with(|| search(&self.directories));
        paths.extend(index.get(build_id).into_iter().flatten().cloned());
        paths
    }
}

/// Ranks a file by the information it has.
fn quality(binary: &Binary) -> (bool, bool, bool) {
    let names = (binary.has_debug_info(), binary.has_debug_names());
    (has_code(binary), names.0, names.1)
}

/// Whether the file has the code itself, which a debug file does not.
fn has_code(binary: &Binary) -> bool {
    let mut segments = binary.segments().iter();
    segments.any(|segment| segment.executable && segment.file_bytes > 0)
}

/// A debug file whose program was not found: where that has its code follows from the file.
fn alone(path: PathBuf, debug: Binary) -> FileWithDebug {
    let program = debug.elf_from_debug_file();
    let shown = path.display().to_string();
    eprintln!(
        "nsprobe: {}, a debug file, was found without its program: {}",
        escaped(&shown),
        match &program {
            Ok(_) => "offsets are taken for those of a program as a linker has laid it out",
            Err(why) => why.as_str(),
        }
    );
    let set = debug_set(program.is_ok().then_some((&*path, &debug)));
    FileWithDebug {
        path,
        // Without a place for its code it names nothing.
        binary: program.unwrap_or(debug),
        debug: set,
        starts: FunctionStarts::default(),
        has_code: false,
        is_told: false,
    }
}

/// The debug files that name a program by this file.
fn debug_set(separate: Option<(&Path, &Binary)>) -> DebugSet {
    let separate = separate.and_then(|(path, binary)| {
        Some(OpenFile {
            file: binary.try_clone_file().ok()?,
            path: Arc::new(path.to_owned()),
            found_in: FoundIn::Host,
        })
    });
    DebugSet::new(OpenFiles {
        separate,
        ..OpenFiles::default()
    })
}

fn open(path: &Path, build_id: &str) -> Option<Binary> {
    let file = open_file(path)?;
    let binary = Binary::open(file, path).ok()?;
    (nsprobe_trace::names::build_id::hex(binary.build_id()?) == build_id).then_some(binary)
}

/// Opens a regular file, without waiting for anything.
fn open_file(path: &Path) -> Option<File> {
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path);
    file.ok()
        .filter(|file| file.metadata().is_ok_and(|found| found.is_file()))
}

/// All files with a build-id in directories and those below them. Links are not followed
/// there: they could lead in circles.
fn search(directories: &[PathBuf]) -> HashMap<String, Vec<PathBuf>> {
    let mut index: HashMap<String, Vec<PathBuf>> = HashMap::new();
    let mut waiting: Vec<(PathBuf, usize)> = directories.iter().map(|d| (d.clone(), 0)).collect();
    let mut count = 0;
    while let Some((directory, depth)) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = entry.path();
            if kind.is_dir() && depth < DEPTH_MAX {
                waiting.push((path, depth + 1));
            } else if kind.is_file() && count < FILES_MAX {
                count += 1;
                if let Some(build_id) = build_id(&path) {
                    index.entry(build_id).or_default().push(path);
                }
            }
        }
    }
    index
}

fn build_id(path: &Path) -> Option<String> {
    let file = open_file(path)?;
    let found = elf_note::find(|offset, out| file.read_exact_at(out, offset).is_ok());
    Some(nsprobe_trace::names::build_id::hex(found.ok()?.as_bytes()))
}
