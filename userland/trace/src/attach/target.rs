// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target: which tasks are traced, and which files are probed.

pub(crate) mod group;
mod machine;
pub mod view;

use crate::attach::command::{find_in_path, Program};
use crate::attach::held_starts::HeldStarts;
use crate::attach::mapped::Mapped;
use crate::attach::probes::allocators::may_allocate;
use crate::names::search::Reach;
use crate::options::TargetSpec;
use crate::rights;
use crate::signals::WaitLimit;
use crate::spec::BinaryName;
use anyhow::{bail, Context};
use group::Group;
use libnsprobe::common::abi::{FILTER_PIDS_MAX, RING_BYTES_MIN};
use libnsprobe::{Device, Filter, SetupOptions};
use nsprobe_containers::{
    open_here, open_in, processes_in_pid_namespace, thread_time, ContainerTasks, OpenedFile,
    Process, Running, Runtime,
};
use nsprobe_symbolize::Binary;
use nsprobe_text::counted;
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use view::{FileView, Opened, LIBRARY_DIRECTORIES};

/// Name of the C library.
const LIBC: &str = "libc.so.6";
/// Bytes that the kernel reads of a file to execute it (`BINPRM_BUF_SIZE`).
const START_BYTES: u64 = 256;
/// Most files of a command that are looked at before it begins.
const COMMAND_FILES_MAX: usize = 256;

/// A target that exists.
#[derive(Debug)]
pub enum Target {
    /// This machine.
    Host,
    /// One container.
    Container(Box<Running>),
    /// Several containers, more of which may come.
    Group(Group),
    /// At least one.
    Processes(Vec<Process>),
    /// A command that is not yet started.
    Command(Program),
}

impl Target {
    /// Finds the target of which files are listed.
    pub fn find(who: &TargetSpec) -> anyhow::Result<Target> {
        Target::wait_for(who, &WaitLimit::default(), &mut None)
    }

    /// Finds the target; waits until the `limit` for one that does not run yet, whose program may be
    /// among the `held`.
    pub(crate) fn wait_for(
        who: &TargetSpec,
        limit: &WaitLimit,
        held: &mut Option<HeldStarts>,
    ) -> anyhow::Result<Target> {
        if !matches!(who, TargetSpec::Host) {
            rights::check()?;
        }
        Ok(match who {
            TargetSpec::Host => Target::Host,
            TargetSpec::Group(asked) => Target::group(Group::find(asked, limit, held)?),
            TargetSpec::Container(spec) => Target::Container(Box::new(Running::find(spec)?)),
            TargetSpec::Processes(pids) => {
                let opened = pids.iter().map(|pid| Process::open(*pid));
                Target::Processes(opened.collect::<Result<_, _>>()?)
            }
            TargetSpec::Command(words) => Target::Command(Program::find(words)?),
        })
    }

    /// One container that nothing is to join is a container like any other.
    fn group(mut group: Group) -> Target {
        match group.members.len() {
            1 if !group.asked.follow => match group.members.pop() {
                Some(one) => Target::Container(Box::new(one)),
                None => Target::Group(group),
            },
            _ => Target::Group(group),
        }
    }

    /// Opens `binary` as the target sees it: the file at its path, and those that were there
    /// before and that processes still have mapped; or the files of that name that it has mapped.
    pub fn open(&self, binary: &BinaryName, mapped: &Mapped) -> anyhow::Result<Opened> {
        match self {
            Target::Host => match binary {
                BinaryName::Path(path) => machine::by_path(path, mapped),
                BinaryName::Bare(name) => machine::by_name(name, self.search(name), mapped),
            },
            Target::Command(program) => match binary {
                BinaryName::Path(path) => Ok(Opened::from(open_here(path)?)),
                BinaryName::Bare(name) => {
                    let path = self.search(name)?;
                    let mut opened = Opened::from(open_here(&path)?);
                    if is_elf(&program.path) && !self.will_map().contains(&path) {
                        opened.notes.push(format!(
                            "{} does not ask for {}: calls are seen once it maps it",
                            program.path.display(),
                            path.display()
                        ));
                    }
                    Ok(opened)
                }
            },
            Target::Group(group) => group.open(binary, mapped),
            Target::Processes(all) => {
                let mut opened = Opened::default();
                for process in all {
                    opened.add(FileView::of_process(process).open(binary, mapped)?);
                }
                Ok(opened)
            }
            Target::Container(container) => FileView::of_container(container)?.open(binary, mapped),
        }
    }

    /// Fails for a process that runs no code of a program.
    pub(crate) fn check_code(&self) -> anyhow::Result<()> {
        match self {
            Target::Processes(all) => {
                let mut views = all.iter().map(FileView::of_process);
                views.try_for_each(|view| view.check_code())
            }
            Target::Host | Target::Command(_) | Target::Group(_) | Target::Container(_) => Ok(()),
        }
    }

    /// The file at a path as processes see it that the target may start.
    pub(crate) fn at_path(&self, path: &Path) -> Option<OpenedFile> {
        match self {
            Target::Host | Target::Command(_) => open_here(path).ok(),
            Target::Container(container) => open_in(&container.init, path).ok(),
            Target::Group(_) | Target::Processes(_) => None,
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

    /// The filter for the target; for a command, its process is `started`. Notes for the user go to
    /// `notes`.
    pub(crate) fn filter(
        &self,
        started: Option<u32>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Option<Filter>> {
        Ok(match self {
            Target::Host => None,
            Target::Group(group) => Some(group.filter()?),
            Target::Processes(all) => Some(Filter::pids(all.iter().map(Process::pid))),
            Target::Command(_) => started.map(|pid| Filter::pids([pid])),
            Target::Container(container) => Some(match container.scope()? {
                ContainerTasks::PidNamespace(space) => {
                    Filter::pid_namespace(container.init.pid(), space.id)
                }
                ContainerTasks::Cgroup(id) => Filter::default().with_cgroup(id),
                ContainerTasks::Processes => filter_by_processes(container, notes)?,
            }),
        })
    }

    /// The mappings of its processes.
    pub fn mapped(&self) -> anyhow::Result<Mapped> {
        let setup = SetupOptions::with_ring_bytes(RING_BYTES_MIN);
        let (mut session, _) = Device::open()?.setup(&setup)?;
        if let Some(filter) = self.filter(None, &mut Vec::new())? {
            let set = session.filter(&filter);
            set.with_context(|| format!("cannot look at {}", self.describe()))?;
        }
        Mapped::of(session)
    }

    /// Fails if a process that was found has ended, as the filter may then match another one with
    /// the same number.
    pub(crate) fn check_alive(&self) -> anyhow::Result<()> {
        let processes = match self {
            Target::Host | Target::Command(_) | Target::Group(_) => &[],
            Target::Processes(all) => all.as_slice(),
            Target::Container(container) => std::slice::from_ref(&container.init),
        };
        if !processes.iter().all(Process::still_same) {
            bail!("{} has ended before it could be traced", self.describe());
        }
        Ok(())
    }

    /// The files of this machine that a command will map, as far as they say so: the program, its
    /// dynamic linker and libraries, and theirs.
    pub(crate) fn will_map(&self) -> Vec<PathBuf> {
        let Target::Command(program) = self else {
            return Vec::new();
        };
        let mut paths = vec![program.path.clone()];
        paths.extend(script_interpreter(&program.path));
        let programs = paths.len();
        paths.extend(self.preloaded(program));
        let mut next = 0;
        while let Some(path) = paths.get(next).filter(|_| next < COMMAND_FILES_MAX) {
            next += 1;
            let file = File::open(path).ok();
            let Some(binary) = file.and_then(|file| Binary::open_sections(file, path).ok()) else {
                continue;
            };
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let own = binary.library_directories(real.parent().unwrap_or(Path::new("/")));
            let in_own = |name: &String| {
                let files = own.iter().map(|directory| directory.join(name));
                files.into_iter().find(|file| file.is_file())
            };
            let needed = binary.needed();
            let libraries = needed
                .iter()
                .filter_map(|name| in_own(name).or_else(|| self.search(name).ok()));
            let linker = binary.interpreter().filter(|_| next <= programs);
            for found in linker.into_iter().chain(libraries) {
                if is_elf(&found) && !paths.contains(&found) {
                    paths.push(found);
                }
            }
        }
        paths
    }

    /// The libraries that a command maps before all others.
    fn preloaded(&self, program: &Program) -> Vec<PathBuf> {
        let names = program.preloaded().into_iter();
        let path = |name: String| match name.contains('/') {
            true => Some(PathBuf::from(name)),
            false => self.search(&name).ok(),
        };
        names.filter_map(path).collect()
    }

    /// The files that may be allocators: programs, and libraries by their names.
    pub(crate) fn allocator_files(&self, mapped: &Mapped) -> anyhow::Result<Opened> {
        match self {
            Target::Processes(all) => {
                let mut opened = Opened::default();
                for process in all {
                    opened.add(FileView::of_process(process).allocator_files(mapped)?);
                }
                Ok(opened)
            }
            Target::Container(container) => {
                FileView::of_container(container)?.allocator_files(mapped)
            }
            Target::Group(group) => group.allocator_files(mapped),
            Target::Host => Ok(Opened::default()),
            Target::Command(program) => {
                let preloaded = self.preloaded(program);
                let mut paths = self.will_map();
                // What a script starts maps libc.
                if !is_elf(&program.path) {
                    let libc = self.search(LIBC).ok();
                    paths.extend(libc.filter(|libc| !paths.contains(libc)));
                    paths.retain(|path| *path != program.path);
                }
                let is_meant = |path: &PathBuf| {
                    *path == program.path || may_allocate(path) || preloaded.contains(path)
                };
                let mut opened = Opened::default();
                for path in paths.into_iter().filter(is_meant) {
                    match open_here(&path) {
                        Ok(file) => opened.files.push(file),
                        Err(error) => opened.notes.push(error.to_string()),
                    }
                }
                Ok(opened)
            }
        }
    }

    /// Processes that see the target's files; none when we do ourselves.
    pub fn viewers(&self) -> Vec<Process> {
        let seen_by: Vec<&Process> = match self {
            Target::Host | Target::Command(_) => Vec::new(),
            Target::Processes(all) => all.iter().collect(),
            Target::Container(container) => vec![&container.init],
            Target::Group(group) => group.members.iter().map(|one| &one.init).collect(),
        };
        let again = |process: &Process| {
            let opened = Process::open(process.pid()).ok()?;
            (opened.start_time() == process.start_time()).then_some(opened)
        };
        seen_by.into_iter().filter_map(again).collect()
    }

    /// The processes that get the probes. A control group, a pid namespace that no container owns,
    /// and a group, which other containers may join, may have several containers.
    pub(crate) fn reach(&self) -> Reach {
        let is_one = match self {
            Target::Host | Target::Command(_) | Target::Group(_) => false,
            Target::Processes(all) => all.len() == 1,
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

    /// Its processes, as far as they are known: not those of the whole machine, of a command, or of a
    /// container that shares its pid namespace.
    pub(crate) fn pids(&self) -> Option<Vec<u32>> {
        match self {
            Target::Host | Target::Command(_) | Target::Group(_) => None,
            Target::Processes(all) => Some(all.iter().map(Process::pid).collect()),
            Target::Container(container) => match container.scope().ok()? {
                ContainerTasks::PidNamespace(space) => processes_in_pid_namespace(space).ok(),
                ContainerTasks::Cgroup(_) | ContainerTasks::Processes => None,
            },
        }
    }

    /// How long its threads have lived within the last `span`, all together; `None` if that is not
    /// known.
    pub(crate) fn thread_time(&self, span: Duration) -> Option<Duration> {
        let pids = self.pids()?;
        let times = pids.into_iter().map(|pid| thread_time(pid, span));
        // One may have ended meanwhile.
        Some(times.filter_map(Result::ok).sum()).filter(|time| *time > Duration::ZERO)
    }

    /// The process, if it is one; for a command it is `started`.
    pub(crate) fn only_process(&self, started: Option<u32>) -> Option<u32> {
        match self {
            Target::Command(_) => started,
            Target::Processes(all) => match all.as_slice() {
                [one] => Some(one.pid()),
                _ => None,
            },
            Target::Host | Target::Container(_) | Target::Group(_) => None,
        }
    }

    /// The processes with whose end the trace ends; none if it does not.
    fn lives_for(&self) -> Vec<&Process> {
        match self {
            Target::Host | Target::Command(_) => Vec::new(),
            Target::Group(group) if group.asked.follow => Vec::new(),
            Target::Group(group) => group.members.iter().map(|one| &one.init).collect(),
            Target::Processes(all) => all.iter().collect(),
            // The processes of a control group may end in any order.
            Target::Container(container) if container.container.runtime == Runtime::Cgroup => {
                Vec::new()
            }
            Target::Container(container) => vec![&container.init],
        }
    }

    /// Whether all containers of a group that others may join have ended.
    pub(crate) fn awaits_others(&self) -> bool {
        match self {
            Target::Group(group) => {
                let mut members = group.members.iter();
                group.asked.follow && !members.any(|one| one.init.still_same())
            }
            _ => false,
        }
    }

    /// One of the processes that have to end before the trace does.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        let all = self.lives_for();
        let lives = all.iter().find(|process| process.still_same());
        lives.or(all.last()).map(|process| process.pidfd())
    }

    /// Whether all of them have ended.
    pub(crate) fn has_ended(&self) -> bool {
        !self.lives_for().into_iter().any(Process::still_same)
    }

    /// Says in an error where it happened.
    pub fn within<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        match self {
            Target::Host | Target::Command(_) | Target::Group(_) => result,
            target => result.with_context(|| format!("in {}", target.describe())),
        }
    }

    /// The options that mean it, with a blank after them; none where none are needed.
    pub(crate) fn words(&self) -> String {
        match self {
            Target::Host | Target::Command(_) => String::new(),
            Target::Processes(all) => format!("-p {} ", pids(all)),
            Target::Container(container) => format!("-c {} ", container.name()),
            Target::Group(group) => match group.members.first() {
                Some(one) => format!("-c {} ", one.name()),
                None => String::new(),
            },
        }
    }

    /// Its name in messages.
    pub fn describe(&self) -> String {
        match self {
            Target::Host => "all processes".to_owned(),
            Target::Group(group) => match group.members.as_slice() {
                [one] => format!("container {}", one.name()),
                all => format!("{} containers {}", all.len(), group.asked.text()),
            },
            Target::Processes(all) => match all.as_slice() {
                [one] => format!("process {}", one.pid()),
                all => format!("processes {}", pids(all)),
            },
            Target::Container(container) => match container.container.runtime {
                Runtime::Service => container.name().to_owned(),
                Runtime::Cgroup => format!("control group {}", container.name()),
                _ => format!("container {}", container.name()),
            },
            Target::Command(program) => format!("command {}", program.path.display()),
        }
    }
}

/// Their numbers, with commas.
fn pids(processes: &[Process]) -> String {
    let pids: Vec<String> = processes.iter().map(|one| one.pid().to_string()).collect();
    pids.join(",")
}

/// The program that a script names in its first line.
fn script_interpreter(path: &Path) -> Option<PathBuf> {
    let start = start_of(path).ok()?;
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace);
    let program = words.find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(program)))
}

/// Whether a file begins as those of programs do.
fn is_elf(path: &Path) -> bool {
    start_of(path).is_ok_and(|start| start.starts_with(b"\x7fELF"))
}

/// What the kernel reads of a file to execute it; nothing of one that is no regular file, as to
/// open a pipe waits for a writer.
fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    if path.is_file() {
        File::open(path)?
            .take(START_BYTES)
            .read_to_end(&mut start)?;
    }
    Ok(start)
}

/// The filter for a container that shares the pid namespace of others, and has no control group.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_the_program_that_runs_them() {
        let path = env::temp_dir().join(format!("nsprobe-script-{}", std::process::id()));
        for (text, program) in [
            ("#! /bin/sh -e\necho\n", Some("/bin/sh")),
            ("#!/usr/bin/env python3", Some("/usr/bin/env")),
            ("#!\n/bin/sh\n", None),
            ("\x7fELF", None),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = script_interpreter(&path);
            assert_eq!(found.as_deref(), program.map(Path::new), "{text}");
            assert_eq!(is_elf(&path), text.starts_with('\x7f'));
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn one_process_alone_is_the_only_one() {
        let own = || Process::open(std::process::id()).expect("it runs");
        let only = |target: &Target| target.only_process(Some(7));
        assert_eq!(
            only(&Target::Processes(vec![own()])),
            Some(std::process::id())
        );
        assert_eq!(only(&Target::Processes(vec![own(), own()])), None);
        assert_eq!(only(&Target::Host), None);
    }
}
