// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose files are meant, and who is traced.

use crate::args::Who;
use crate::command::{find_in_path, Program};
use crate::search::Reach;
use crate::spec::BinaryName;
use anyhow::{bail, Context};
use libnsprobe::common::abi::FILTER_PIDS_MAX;
use libnsprobe::Filter;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_symbolize::{counted, escaped, glob_fits, Binary};
use nsprobe_target::{
    open_here, open_in, Container, Containers, Execs, Library, Mapping, OpenedFile, Process,
    Running, Runtime, Scope,
};
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
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
const FILES_MAX: usize = 256;

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
    fn open(&self, binary: &BinaryName) -> anyhow::Result<Vec<OpenedFile>> {
        let mut files = Vec::new();
        let mut why = None;
        for container in &self.members {
            let opened = match binary {
                BinaryName::Path(path) => open_in(&container.init, path).map(|file| vec![file]),
                BinaryName::Bare(name) => match container.find_library(name) {
                    Ok(libraries) => {
                        let opened = libraries.iter().map(open_library);
                        files.extend(opened.collect::<anyhow::Result<Vec<_>>>()?);
                        continue;
                    }
                    Err(error) => open_somewhere(&container.init, name)
                        .map(|file| vec![file])
                        .ok_or(error),
                },
            };
            match opened {
                Ok(opened) => files.extend(opened),
                Err(error) => why = why.or(Some((container, error))),
            }
        }
        match (files.is_empty(), why) {
            (true, Some((container, error))) => {
                Err(error).with_context(|| format!("in container {}", container.name()))
            }
            _ => Ok(files),
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

    /// Opens `binary` as the target sees it: one file, or several when the
    /// processes of a container have several libraries of that name.
    pub(crate) fn open(&self, binary: &BinaryName) -> anyhow::Result<Vec<OpenedFile>> {
        let path = binary.as_path();
        match (self, binary) {
            (Target::Host | Target::Command(_), BinaryName::Path(_)) => Ok(vec![open_here(path)?]),
            (Target::Group(group), _) => group.open(binary),
            (Target::Process(process), BinaryName::Path(_)) => Ok(vec![open_in(process, path)?]),
            (Target::Container(container), BinaryName::Path(_)) => {
                Ok(vec![open_in(&container.init, path)?])
            }
            (Target::Host | Target::Command(_), BinaryName::Bare(name)) => {
                Ok(vec![open_here(&self.search(name)?)?])
            }
            (Target::Process(process), BinaryName::Bare(name)) => {
                match process.find_library(name) {
                    Ok(library) => Ok(vec![open_mapped(process, &library)?]),
                    Err(error) => open_program(process, name, error),
                }
            }
            (Target::Container(container), BinaryName::Bare(name)) => {
                match container.find_library(name) {
                    Ok(libraries) => libraries.iter().map(open_library).collect(),
                    Err(error) => open_program(&container.init, name, error),
                }
            }
        }
    }

    /// What is to be said when processes of the target run another file than the one that lies
    /// at the path of `opened` by now: none of their calls would be seen.
    pub(crate) fn replaced(&self, opened: &OpenedFile) -> Option<String> {
        let pids = match self {
            // Any process may run an old file, and who is meant is not known.
            Target::Host | Target::Command(_) => return None,
            Target::Process(process) => vec![process.pid()],
            Target::Container(container) => container.processes().ok()?,
            Target::Group(group) => {
                let members = group.members.iter();
                members
                    .filter_map(|one| one.processes().ok())
                    .flatten()
                    .collect()
            }
        };
        let runs = |pid: &u32| {
            let process = Process::open(*pid).ok()?;
            Some(runs_replaced(&process.mappings().ok()?, opened))
        };
        let pids: Vec<u32> = pids
            .into_iter()
            .filter(|pid| runs(pid).unwrap_or(false))
            .collect();
        let (path, name) = (opened.path.display(), opened.path.file_name()?);
        let who = match pids.as_slice() {
            [] => return None,
            [pid] => format!("process {pid} runs"),
            [pid, ..] => format!("{}, such as {pid}, run", counted(pids.len(), "process")),
        };
        Some(format!(
            "{who} another (deleted) file than {path} as it is now: to probe that, name it as it is \
             mapped, {}:FUNCTION",
            name.to_string_lossy()
        ))
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
        while let Some(path) = paths.get(next).filter(|_| next < FILES_MAX) {
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

/// Whether a process that has these mappings runs a file that was at the path of this one
/// before, and not this one.
fn runs_replaced(mappings: &[Mapping], opened: &OpenedFile) -> bool {
    let is_this = |mapping: &Mapping| mapping.ino == opened.ino;
    let mut all = mappings.iter();
    all.any(|mapping| was_at(mapping, &opened.path)) && !mappings.iter().any(is_this)
}

/// Whether a mapping is of code in a file that was at a path once. Folders may be links: the
/// name decides.
pub(crate) fn was_at(mapping: &Mapping, path: &Path) -> bool {
    mapping.deleted && mapping.executable && mapping.path.file_name() == path.file_name()
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

/// Opens a program by its bare name: mapped files have the names that links lead
/// to, as Debian's redis-server is called redis-check-rdb. `error` is the answer
/// when there is none.
fn open_program(
    process: &Process,
    name: &str,
    error: nsprobe_target::Error,
) -> anyhow::Result<Vec<OpenedFile>> {
    if !matches!(error, nsprobe_target::Error::NoSuchLibrary { .. }) {
        return Err(error.into());
    }
    let program = open_in_one_of(&PROGRAM_DIRECTORIES, process, name);
    Ok(vec![program.ok_or(error)?])
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

/// Opens a library that a process has mapped.
pub(crate) fn open_library_of(process: &Process, name: &str) -> anyhow::Result<OpenedFile> {
    open_mapped(process, &process.find_library(name)?)
}

/// Opens a library through the first process that has it mapped.
fn open_library(library: &Library) -> anyhow::Result<OpenedFile> {
    let &pid = library.pids.first().context("no process has it mapped")?;
    open_mapped(&Process::open(pid)?, library)
}

/// Opens a library of `process`: by its path, or, when another file lies there
/// by now, by the mapping itself.
fn open_mapped(process: &Process, library: &Library) -> anyhow::Result<OpenedFile> {
    if library.deleted {
        return open_deleted(process, library);
    }
    Ok(open_in(process, &library.path)?)
}

/// Opens a mapped file that has no path any more.
fn open_deleted(process: &Process, library: &Library) -> anyhow::Result<OpenedFile> {
    let path = library.path.display();
    let pid = process.pid();
    let mapping = process
        .mappings()?
        .into_iter()
        .find(|mapping| (mapping.dev, mapping.ino) == (library.dev, library.ino))
        .with_context(|| format!("process {pid} has {path} no longer mapped"))?;
    let link = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    let file = File::open(&link)
        .with_context(|| format!("cannot open {path}, which was deleted or replaced, by {link}"))?;
    let metadata = file.metadata()?;
    if !process.still_same() {
        bail!("process {pid} has exited");
    }
    Ok(OpenedFile {
        path: library.path.clone(),
        dev: metadata.dev(),
        ino: metadata.ino(),
        size: metadata.size(),
        file,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(path: &str, ino: u64, executable: bool, deleted: bool) -> Mapping {
        Mapping {
            start: 0x1000,
            end: 0x2000,
            file_offset: 0,
            dev: 1,
            ino,
            executable,
            writable: false,
            shared: false,
            path: path.into(),
            deleted,
        }
    }

    #[test]
    fn a_program_whose_file_was_replaced_runs_another_one() {
        let opened = OpenedFile {
            path: "/srv/app1".into(),
            dev: 1,
            ino: 7,
            size: 1,
            file: File::open("/dev/null").expect("it is there"),
        };
        let runs = |mappings: &[Mapping]| runs_replaced(mappings, &opened);
        let old = mapping("/srv/app1", 6, true, true);
        assert!(runs(std::slice::from_ref(&old)));
        // By another folder that leads there.
        assert!(runs(&[mapping("/real/srv/app1", 6, true, true)]));
        assert!(!runs(&[mapping("/srv/app1", 7, true, false)]));
        // It runs both, as who loads a library again.
        assert!(!runs(&[old, mapping("/srv/app1", 7, false, false)]));
        // Data, other files, nothing.
        assert!(!runs(&[mapping("/srv/app1", 6, false, true)]));
        assert!(!runs(&[mapping("/srv/app2", 6, true, true)]));
        assert!(!runs(&[]));
    }
}
