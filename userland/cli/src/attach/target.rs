// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose files are meant, and who is traced.

use crate::args::spec::BinaryName;
use crate::args::Who;
use crate::attach::command::{find_in_path, Program};
use crate::attach::mapped::{Mapped, MappedFile, FILES_MAX};
use crate::names::search::Reach;
use anyhow::{bail, Context};
use libnsprobe::common::abi::FILTER_PIDS_MAX;
use libnsprobe::Filter;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_containers::{
    open_here, open_in, Container, Containers, Error, Execs, Mapping, OpenedFile, Process, Running,
    Runtime, Scope,
};
use nsprobe_symbolize::{counted, escaped, glob_fits, Binary};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often we look at the clock while we wait for a container, in milliseconds.
const WAIT: u8 = 100;

/// Where libraries lie that a command has not mapped yet, behind
/// `$LD_LIBRARY_PATH`.
const LIBRARY_DIRECTORIES: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// What maps the libraries.
const DYNAMIC_LINKER: &str = "ld-linux-x86-64.so.2";
/// Most files of a command that are looked at before it begins.
const COMMAND_FILES_MAX: usize = 256;

/// Where programs lie in a container; its own `$PATH` is not ours to trust.
const PROGRAM_DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// A target that exists.
#[derive(Debug)]
pub(crate) enum Target {
    /// This machine.
    Host,
    /// A running container.
    Container(Box<Running>),
    /// Running containers, more of which may come.
    Group(Group),
    /// A living process.
    Process(Process),
    /// A command that is not yet started.
    Command(Program),
}

/// Containers whose names fit.
#[derive(Debug)]
pub(crate) struct Group {
    /// What they are called, with `*` and `?`.
    pub(crate) pattern: String,
    /// Those that run; never empty.
    pub(crate) members: Vec<Running>,
}

impl Group {
    /// The containers that run, or the first one that starts before the deadline.
    fn find(pattern: &str, limit: Option<Duration>) -> anyhow::Result<Group> {
        let fits = |name: &str| glob_fits(pattern, name);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let execs = Execs::new()?;
        let mut members = Running::all(fits)?;
        let mut containers = Containers::take()?;
        if members.is_empty() {
            let mut running = containers.iter().filter(|one| one.is_running());
            if let Some(one) = running.find(|one| one.is_called(fits) && !may_join(one, fits)) {
                bail!(
                    "container {} shares its pid namespace with others: with --follow it cannot \
                     be told from them",
                    one.name
                );
            }
            eprintln!(
                "nsprobe: no container {} runs: waiting for one",
                escaped(pattern)
            );
        }
        while members.is_empty() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                bail!("no container {pattern} has started");
            }
            let mut fds = [PollFd::new(execs.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(WAIT))?;
            let executed = execs.take();
            let started = executed.pids.into_iter();
            let started = started.filter_map(|pid| Process::open(pid).ok());
            for process in started {
                let container = containers.of_process(&process).cloned();
                if let Some(container) = container.filter(|one| may_join(one, fits)) {
                    // Its first process may have ended.
                    members.extend(Running::hold(container).ok());
                    break;
                }
            }
            if executed.missed && members.is_empty() {
                members = Running::all(fits)?;
            }
        }
        Ok(Group {
            pattern: pattern.to_owned(),
            members,
        })
    }

    /// Opens a binary in all of them that have it.
    fn open(&self, binary: &BinaryName, mapped: &Mapped) -> anyhow::Result<Opened> {
        let mut all = Opened::default();
        let mut why = None;
        for container in &self.members {
            match View::of_container(container).and_then(|view| view.open(binary, mapped)) {
                Ok(opened) => all.add(opened),
                Err(error) => why = why.or(Some((container, error))),
            }
        }
        match (all.files.is_empty(), why) {
            (true, Some((container, error))) => {
                Err(error).with_context(|| format!("in container {}", container.name()))
            }
            _ => Ok(all),
        }
    }

    /// Their pid namespaces, each with a process in it.
    fn filter(&self) -> anyhow::Result<Filter> {
        let mut all = Vec::new();
        for container in &self.members {
            all.push((container.init.pid(), container.pid_namespace()?.id));
        }
        Ok(Filter::any_pid_namespace(all))
    }
}

impl Target {
    /// Finds whom the user means; waits no longer than `limit` for who does not run yet.
    pub(crate) fn find(who: &Who, limit: Option<Duration>) -> anyhow::Result<Target> {
        Ok(match who {
            Who::Host => Target::Host,
            Who::Group(pattern) => Target::Group(Group::find(pattern, limit)?),
            Who::Container(spec) => Target::Container(Box::new(Running::find(spec)?)),
            Who::Process(pid) => Target::Process(Process::open(*pid)?),
            Who::Command(words) => Target::Command(Program::find(words)?),
        })
    }

    /// Opens `binary` as the target sees it: the file at its path, and those that were there
    /// before and that processes still have mapped; or the libraries of that name.
    pub(crate) fn open(&self, binary: &BinaryName, mapped: &Mapped) -> anyhow::Result<Opened> {
        match self {
            Target::Host | Target::Command(_) => Ok(Opened::from(open_here(&match binary {
                BinaryName::Path(path) => path.clone(),
                BinaryName::Bare(name) => self.search(name)?,
            })?)),
            Target::Group(group) => group.open(binary, mapped),
            Target::Process(process) => View::of_process(process).open(binary, mapped),
            Target::Container(container) => View::of_container(container)?.open(binary, mapped),
        }
    }

    /// The file at a path as processes see it that the target may start.
    pub(crate) fn at_path(&self, path: &Path) -> Option<OpenedFile> {
        match self {
            Target::Host | Target::Command(_) => open_here(path).ok(),
            Target::Container(container) => open_in(&container.init, path).ok(),
            Target::Group(_) | Target::Process(_) => None,
        }
    }

    /// The file that a bare name stands for where nothing is mapped yet: the
    /// command itself, a library, another program.
    fn search(&self, name: &str) -> anyhow::Result<PathBuf> {
        if let Target::Command(program) = self {
            if program.path.file_name() == Some(OsStr::new(name)) {
                return Ok(program.path.clone());
            }
        }
        let own = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let library = env::split_paths(&own)
            .filter(|directory| !directory.as_os_str().is_empty())
            .chain(LIBRARY_DIRECTORIES.map(PathBuf::from))
            .map(|directory| directory.join(name))
            .find(|file| file.is_file());
        library
            .or_else(|| find_in_path(Path::new(name)))
            .with_context(|| {
                format!(
                    "no library `{name}` in $LD_LIBRARY_PATH and the usual directories, and no \
                 program of that name in $PATH: give the whole path"
                )
            })
    }

    /// Who is to be traced; for a command, its process is `started`. Notes for
    /// the user go to `notes`.
    pub(crate) fn filter(
        &self,
        started: Option<u32>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Option<Filter>> {
        Ok(match self {
            Target::Host => None,
            Target::Group(group) => Some(group.filter()?),
            Target::Process(process) => Some(Filter::pids([process.pid()])),
            Target::Command(_) => started.map(|pid| Filter::pids([pid])),
            Target::Container(container) => Some(match container.scope()? {
                Scope::PidNamespace(space) => Filter::pid_namespace(container.init.pid(), space.id),
                Scope::Cgroup(id) => Filter::default().with_cgroup(id),
                Scope::Processes => filter_by_processes(container, notes)?,
            }),
        })
    }

    /// Fails when the process that was found is gone by now, so that the filter
    /// may be for another one of the same number.
    pub(crate) fn check_alive(&self) -> anyhow::Result<()> {
        let process = match self {
            Target::Host | Target::Command(_) | Target::Group(_) => return Ok(()),
            Target::Process(process) => process,
            Target::Container(container) => &container.init,
        };
        if !process.still_same() {
            bail!("{} has ended before it could be traced", self.describe());
        }
        Ok(())
    }

    /// The files of this machine that a command will map, as far as they say so: the
    /// program, its libraries, and theirs.
    pub(crate) fn will_map(&self) -> Vec<PathBuf> {
        let Target::Command(program) = self else {
            return Vec::new();
        };
        let mut paths = vec![program.path.clone()];
        paths.extend(self.search(DYNAMIC_LINKER).ok());
        let mut next = 0;
        while let Some(path) = paths.get(next).filter(|_| next < COMMAND_FILES_MAX) {
            next += 1;
            let file = File::open(path).ok();
            let binary = file.and_then(|file| Binary::open_sections(file, path).ok());
            for name in binary.map_or(Vec::new(), |binary| binary.needed()) {
                // What is found in other ways (DT_RUNPATH) is met when it is mapped.
                let found = self.search(&name).ok();
                paths.extend(found.filter(|found| !paths.contains(found)));
            }
        }
        paths
    }

    /// Processes that see the target's files; none when we do ourselves.
    pub(crate) fn viewers(&self) -> Vec<Process> {
        let seen_by: Vec<&Process> = match self {
            Target::Host | Target::Command(_) => Vec::new(),
            Target::Process(process) => vec![process],
            Target::Container(container) => vec![&container.init],
            Target::Group(group) => group.members.iter().map(|one| &one.init).collect(),
        };
        let again = |process: &Process| {
            let opened = Process::open(process.pid()).ok()?;
            (opened.start_time() == process.start_time()).then_some(opened)
        };
        seen_by.into_iter().filter_map(again).collect()
    }

    /// Which processes get the probes. Several containers may be in a control group, in a pid namespace that
    /// no container owns, and in a group, which others may join.
    pub(crate) fn reach(&self) -> Reach {
        let is_one = match self {
            Target::Host | Target::Command(_) | Target::Group(_) => false,
            Target::Process(_) => true,
            Target::Container(one) => {
                let owns = || one.container.init.is_some_and(|init| init.owns_namespace);
                match one.container.runtime {
                    Runtime::Service | Runtime::Cgroup => false,
                    Runtime::Bare => owns(),
                    _ => true,
                }
            }
        };
        match is_one {
            true => Reach::One,
            false => Reach::Several,
        }
    }

    /// The process whose end is the end of the trace.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Target::Host | Target::Command(_) | Target::Group(_) => None,
            Target::Process(process) => Some(process.pidfd()),
            // What is in a control group may end in any order.
            Target::Container(container) if container.container.runtime == Runtime::Cgroup => None,
            Target::Container(container) => Some(container.init.pidfd()),
        }
    }

    /// Says in an error where it happened.
    pub(crate) fn within<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        match self {
            Target::Host | Target::Command(_) | Target::Group(_) => result,
            target => result.with_context(|| format!("in {}", target.describe())),
        }
    }

    /// The options that mean it, with a blank behind them; none where none are needed.
    pub(crate) fn words(&self) -> String {
        match self {
            Target::Host | Target::Command(_) => String::new(),
            Target::Process(process) => format!("-p {} ", process.pid()),
            Target::Container(container) => format!("-c {} ", container.name()),
            Target::Group(group) => match group.members.first() {
                Some(one) => format!("-c {} ", one.name()),
                None => String::new(),
            },
        }
    }

    /// How messages call it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Target::Host => "all processes".to_owned(),
            Target::Group(group) => match group.members.as_slice() {
                [one] => format!("container {}", one.name()),
                all => format!("{} containers {}", all.len(), group.pattern),
            },
            Target::Process(process) => format!("process {}", process.pid()),
            Target::Container(container) => match container.container.runtime {
                Runtime::Service => container.name().to_owned(),
                Runtime::Cgroup => format!("control group {}", container.name()),
                _ => format!("container {}", container.name()),
            },
            Target::Command(program) => format!("command {}", program.path.display()),
        }
    }
}

/// Whether a mapping is of code in a file that is, or was, at the path of this one. Folders may
/// be links: of what was deleted the name decides.
pub(crate) fn was_at(mapping: &Mapping, file: &File, path: &Path) -> bool {
    let is_there = || path_of(file).is_some_and(|real| real == mapping.path);
    mapping.executable
        && mapping.path.file_name() == path.file_name()
        && (mapping.deleted || mapping.path == path || is_there())
}

/// Where an open file lies.
fn path_of(file: &File) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Whether a container is one of a group's: those that share a pid namespace are not told
/// from others by it.
pub(crate) fn may_join(container: &Container, fits: impl Fn(&str) -> bool) -> bool {
    container.init.is_some_and(|init| init.owns_namespace) && container.is_called(fits)
}

/// For a container that shares the pid namespace of others, and has no control group.
fn filter_by_processes(container: &Running, notes: &mut Vec<String>) -> anyhow::Result<Filter> {
    let pids = container.processes()?;
    if pids.len() > FILTER_PIDS_MAX as usize {
        bail!(
            "container {} has no pid namespace and no control group of its own and {}, of \
             which at most {FILTER_PIDS_MAX} can be traced: choose one with -p",
            container.name(),
            counted(pids.len(), "process")
        );
    }
    notes.push(format!(
        "container {} has no pid namespace and no control group of its own: its present {} \
         can be traced, and none that it starts from now on",
        container.name(),
        counted(pids.len(), "process")
    ));
    Ok(Filter::pids(pids))
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
pub(crate) struct Opened {
    pub(crate) files: Vec<OpenedFile>,
    pub(crate) notes: Vec<String>,
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
    fn add(&mut self, other: Opened) {
        self.files.extend(other.files);
        self.notes.extend(other.notes);
    }
}

/// Processes that see the same files.
pub(crate) struct View<'a> {
    /// Whose eyes they are seen with.
    process: &'a Process,
    container: Option<&'a Running>,
    pids: Vec<u32>,
}

impl<'a> View<'a> {
    /// That of one process alone.
    pub(crate) fn of_process(process: &'a Process) -> View<'a> {
        View {
            process,
            container: None,
            pids: vec![process.pid()],
        }
    }

    fn of_container(container: &'a Running) -> anyhow::Result<View<'a>> {
        Ok(View {
            process: &container.init,
            container: Some(container),
            pids: container.processes()?,
        })
    }

    fn open(&self, binary: &BinaryName, mapped: &Mapped) -> anyhow::Result<Opened> {
        let name = match binary {
            BinaryName::Path(path) => return self.open_path(path, mapped),
            BinaryName::Bare(name) => name,
        };
        match self.open_library(name, mapped) {
            Err(error) => match error.downcast_ref::<Error>() {
                // Mapped files have the names that links lead to, as Debian's redis-server is
                // called redis-check-rdb; and what is to be started is not mapped yet.
                Some(Error::NoSuchLibrary { .. }) => match open_somewhere(self.process, name) {
                    Some(file) => self.open_with_mapped(Ok(file), Path::new(name), mapped),
                    None => Err(error),
                },
                _ => Err(error),
            },
            opened => opened,
        }
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
            let view = View {
                process: &Process::open(pid)?,
                container: None,
                pids: library.pids.clone(),
            };
            all.add(view.open_path(&library.path, mapped)?);
        }
        Ok(all)
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
                why @ (Error::NotFound { .. }
                | Error::NotRegular { .. }
                | Error::BadLink { .. }
                | Error::OpenFailed { .. }),
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
                (None, hint) => {
                    all.notes.extend(hint.map(|hint| {
                        format!("no process has {} mapped, but {hint}", path.display())
                    }))
                }
            }
        }
        all.files.extend(found);
        for other in &others {
            all.files.push(mapped.open(other, &path)?);
        }
        Ok(all)
    }

    /// A path as the kernel shows it to us.
    fn below_root(&self, path: &Path) -> Option<PathBuf> {
        let root = fs::read_link(format!("/proc/{}/root", self.process.pid())).ok()?;
        Some(root.join(path.strip_prefix("/").unwrap_or(path)))
    }
}

/// Who has these files mapped; `None` when there are none.
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
