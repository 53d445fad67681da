// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files as processes see them, and those that they still have mapped.

use crate::attach::mapped::{Mapped, MappedFile, FILES_MAX};
use crate::attach::probes::allocators::may_allocate;
use crate::spec::BinaryName;
use anyhow::{bail, Context};
use nsprobe_containers::{open_in, Mapping, OpenedFile, Process, Running, TargetError};
use nsprobe_text::counted;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Directories of libraries that a command has not mapped yet, searched after `$LD_LIBRARY_PATH`.
pub(super) const LIBRARY_DIRECTORIES: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Directories of programs in a container; its own `$PATH` is not trusted.
const PROGRAM_DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Whether a mapping is of code in a file that is, or was, at the path of this one. Directories may
/// be links: for a deleted file the name decides.
pub fn was_at(mapping: &Mapping, file: &File, path: &Path) -> bool {
    let is_there = || path_of(file).is_some_and(|real| real == mapping.path);
    mapping.executable
        && mapping.path.file_name() == path.file_name()
        && (mapping.deleted || mapping.path == path || is_there())
}

/// Path of an open file.
pub(super) fn path_of(file: &File) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Opens a library, or else a program, by its bare name where a process may have nothing
/// mapped yet.
pub(crate) fn open_somewhere(process: &Process, name: &str) -> Option<OpenedFile> {
    open_in_one_of(&LIBRARY_DIRECTORIES, process, name)
        .or_else(|| open_in_one_of(&PROGRAM_DIRECTORIES, process, name))
}

fn open_in_one_of(directories: &[&str], process: &Process, name: &str) -> Option<OpenedFile> {
    let path = |directory: &&str| Path::new(*directory).join(name);
    directories
        .iter()
        .find_map(|directory| open_in(process, &path(directory)).ok())
}

/// The files that a binary stands for, and what the user should know of them.
#[derive(Debug, Default)]
pub struct Opened {
    /// At least one, unless there are notes.
    pub files: Vec<OpenedFile>,
    /// Sentences for the user.
    pub notes: Vec<String>,
}

impl From<OpenedFile> for Opened {
    fn from(file: OpenedFile) -> Opened {
        Opened {
            files: vec![file],
            notes: Vec::new(),
        }
    }
}

impl Opened {
    pub(super) fn add(&mut self, other: Opened) {
        self.files.extend(other.files);
        self.notes.extend(other.notes);
    }
}

/// Processes that see the same files.
pub(crate) struct FileView<'a> {
    /// Whose eyes they are seen with.
    process: &'a Process,
    container: Option<&'a Running>,
    pids: Vec<u32>,
}

impl<'a> FileView<'a> {
    /// The view of one process alone.
    pub(crate) fn of_process(process: &'a Process) -> FileView<'a> {
        FileView {
            process,
            container: None,
            pids: vec![process.pid()],
        }
    }

    pub(super) fn of_container(container: &'a Running) -> anyhow::Result<FileView<'a>> {
        Ok(FileView {
            process: &container.init,
            container: Some(container),
            pids: container.processes()?,
        })
    }

    pub(super) fn open(&self, binary: &BinaryName, mapped: &Mapped) -> anyhow::Result<Opened> {
        self.check_code()?;
        let name = match binary {
            BinaryName::Path(path) => return self.open_path(path, mapped),
            BinaryName::Bare(name) => name,
        };
        match self.open_library(name, mapped) {
            Err(error) => match error.downcast_ref::<TargetError>() {
                // Mapped files have the names that links lead to, as Debian's redis-server is
                // called redis-check-rdb; and a program that has not started is not mapped yet.
                Some(TargetError::NoSuchLibrary { .. }) => match open_somewhere(self.process, name)
                {
                    Some(file) => self.open_with_mapped(Ok(file), Path::new(name), mapped),
                    None => Err(error),
                },
                _ => Err(error),
            },
            opened => opened,
        }
    }

    /// Fails for a process that runs no code of a program.
    pub(super) fn check_code(&self) -> anyhow::Result<()> {
        if self.container.is_none() && self.process.mappings()?.is_empty() {
            bail!(
                "process {} runs no code of a program: it is a thread of the kernel, or has ended",
                self.process.pid()
            );
        }
        Ok(())
    }

    /// Opens the libraries of that name that are mapped.
    pub(crate) fn open_library(&self, name: &str, mapped: &Mapped) -> anyhow::Result<Opened> {
        let libraries = match self.container {
            Some(container) => container.find_library(name)?,
            None => vec![self.process.find_library(name)?],
        };
        let mut all = Opened::default();
        for library in &libraries {
            let &pid = library.pids.first().context("no process has it mapped")?;
            let view = FileView {
                process: &Process::open(pid)?,
                container: None,
                pids: library.pids.clone(),
            };
            all.add(view.open_path(&library.path, mapped)?);
        }
        Ok(all)
    }

    /// Opens the mapped files that may be allocators: programs, and libraries by their names.
    pub(super) fn allocator_files(&self, mapped: &Mapped) -> anyhow::Result<Opened> {
        self.check_code()?;
        let programs = self.pids.iter().map(|pid| format!("/proc/{pid}/exe"));
        let programs: HashSet<PathBuf> = programs.filter_map(|l| fs::read_link(l).ok()).collect();
        let is_program = |mapping: &Mapping| {
            let mut path = mapping.path.clone().into_os_string();
            path.push(if mapping.deleted { " (deleted)" } else { "" });
            programs.contains(Path::new(&path))
        };
        let is_meant = |mapping: &Mapping| may_allocate(&mapping.path) || is_program(mapping);
        let mut opened = Opened::default();
        for file in mapped.files(&self.pids, is_meant) {
            opened.files.push(mapped.open(&file, &file.mapping.path)?);
        }
        if opened.files.len() == FILES_MAX {
            let note = format!("allocators are looked for in {FILES_MAX} files, and in no others");
            opened.notes.push(note);
        }
        Ok(opened)
    }

    fn open_path(&self, path: &Path, mapped: &Mapped) -> anyhow::Result<Opened> {
        self.open_with_mapped(open_in(self.process, path), path, mapped)
    }

    /// The file that was found at a path, and those that processes have mapped from there: it
    /// was replaced since, copied up in an overlay, or something is mounted over it.
    fn open_with_mapped(
        &self,
        found: nsprobe_containers::Result<OpenedFile>,
        path: &Path,
        mapped: &Mapped,
    ) -> anyhow::Result<Opened> {
        let (found, why) = match found {
            Ok(opened) => (Some(opened), None),
            Err(
                why @ (TargetError::NotFound { .. }
                | TargetError::NotRegular { .. }
                | TargetError::BadLink { .. }
                | TargetError::OpenFailed { .. }),
            ) => (None, Some(why)),
            Err(error) => return Err(error.into()),
        };
        let path = found
            .as_ref()
            .map_or(path, |opened| &opened.path)
            .to_owned();
        let real = match &found {
            Some(opened) => path_of(&opened.file),
            None => self.below_root(&path),
        };
        let id = found
            .as_ref()
            .map(|opened| mapped.id_of(opened))
            .transpose()?;
        let is_there = |mapping: &Mapping| {
            mapping.path == path || real.as_ref().is_some_and(|real| *real == mapping.path)
        };
        let mut others = mapped.files(&self.pids, is_there);
        let is_mapped = others.iter().any(|other| Some(other.id) == id);
        others.retain(|other| Some(other.id) != id);
        let mut all = Opened::default();
        if let Some(who) = who(&others) {
            let path = path.display();
            let all_of_them = match others.len() {
                1 if why.is_none() => "both".to_owned(),
                1 => "it".to_owned(),
                count => counted(count + usize::from(why.is_none()), "file"),
            };
            all.notes.push(match &why {
                None => format!(
                    "{who} a file mapped that is no longer at {path} (replaced, copied up in an \
                     overlay, or below a mount): {path} means {all_of_them}"
                ),
                Some(why) => format!(
                    "{why}, but {who} the file mapped that was there: {path} means {all_of_them}"
                ),
            });
            if others.len() == FILES_MAX {
                all.notes.push(format!(
                    "{path} means at most {FILES_MAX} files: any other is not looked at"
                ));
            }
        } else if !is_mapped {
            let has_name = |mapping: &Mapping| mapping.path.file_name() == path.file_name();
            let namesakes = mapped.files(&self.pids, has_name);
            let hint = namesakes.first().zip(who(&namesakes)).map(|(first, who)| {
                let (name, path) = (path.file_name(), first.mapping.path.display());
                let name = name.unwrap_or_default().display();
                format!("{who} {path} mapped: to probe that, name it {name}:FUNCTION")
            });
            match (why, hint) {
                (Some(why), Some(hint)) => bail!("{why}; {hint}"),
                (Some(why), None) => return Err(why.into()),
                (None, Some(hint)) => {
                    let note = format!("no process has {} mapped, but {hint}", path.display());
                    all.notes.push(note);
                }
                (None, None) if mapped.is_by_module() => {
                    all.notes.push(self.not_mapped(&path));
                }
                (None, None) => {}
            }
        }
        all.files.extend(found);
        for other in &others {
            all.files.push(mapped.open(other, &path)?);
        }
        Ok(all)
    }

    /// What is said of a file that nobody has mapped yet.
    fn not_mapped(&self, path: &Path) -> String {
        let path = path.display();
        match self.container {
            Some(container) => format!(
                "no process of {} has {path} mapped now: calls are seen once one maps it",
                container.name()
            ),
            None => format!(
                "process {} does not have {path} mapped now: calls are seen once it maps it",
                self.process.pid()
            ),
        }
    }

    /// A path as the kernel shows it to us.
    fn below_root(&self, path: &Path) -> Option<PathBuf> {
        let root = fs::read_link(format!("/proc/{}/root", self.process.pid())).ok()?;
        Some(root.join(path.strip_prefix("/").unwrap_or(path)))
    }
}

/// The processes that have these files mapped; `None` if there are none.
fn who(files: &[MappedFile]) -> Option<String> {
    let pid = files.first()?.pid;
    let processes: usize = files.iter().map(|file| file.processes).sum();
    Some(match processes {
        1 => format!("process {pid} has"),
        _ => format!("{}, such as {pid}, have", counted(processes, "process")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_was_at_a_path_is_told_from_other_code() {
        let file = File::open("/proc/self/exe").expect("it is there");
        let own = path_of(&file).expect("it has a path");
        let mapping = |path: &Path, executable: bool, deleted: bool| Mapping {
            start: 0x1000,
            end: 0x2000,
            file_offset: 0,
            dev: 1,
            ino: 6,
            executable,
            writable: false,
            shared: false,
            path: path.to_owned(),
            deleted,
        };
        let name = own.file_name().expect("it is a file");
        let by_link = Path::new("/srv/link").join(name);
        let was_there = |mapping: &Mapping| was_at(mapping, &file, &by_link);
        // By another folder that leads there, or once did.
        assert!(was_there(&mapping(&own, true, false)));
        assert!(was_there(&mapping(
            &Path::new("/real").join(name),
            true,
            true
        )));
        assert!(was_there(&mapping(&by_link, true, false)));
        // A namesake, data, another name.
        assert!(!was_there(&mapping(
            &Path::new("/other").join(name),
            true,
            false
        )));
        assert!(!was_there(&mapping(&own, false, true)));
        assert!(!was_there(&mapping(
            Path::new("/srv/link/other"),
            true,
            true
        )));
    }
}
