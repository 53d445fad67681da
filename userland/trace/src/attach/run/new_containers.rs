// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that start while we trace (`--follow`): their copies of the probed files are probed,
//! too, and they are added to the filter.
//!
//! A container is noticed when one of its processes executes another program, which the kernel
//! reports. Its files are found by the paths of the specs, as it sees them, and by the build-ids of
//! the files that are probed already, wherever they are. Several containers may share a file of
//! their image: it is probed once.

use crate::attach::held_starts::HeldStarts;
use crate::attach::mapped::{self, Mapped};
use crate::attach::probes::Planned;
use crate::attach::target::group::{filter_of, may_join, sharing_note};
use crate::attach::target::view::{open_somewhere, FileView};
use crate::attach::target::Target;
use crate::attach::tracer::ProbeInputs;
use crate::names::build_id;
use crate::names::probed_file::FileId;
use crate::options::{ContainerGroup, TargetSpec, TraceOptions};
use crate::spec::BinaryName;
use crate::tasks::{name_of, FoundContainer};
use anyhow::Context;
use libnsprobe::common::abi::FILTER_PIDNS_MAX;
use libnsprobe::{Filter, HoldReport, Session};
use nsprobe_containers::{
    all_processes, open_in, Containers, Execs, OpenedFile, PidSpace, Process, RootId, TargetError,
};
use nsprobe_spec::decode::FieldFormat;
use nsprobe_worker::ChildLimits;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How far a process has come that is looked at.for what it has mapped: its libraries come after its
/// program has begun.
const LATER: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Processes that are looked at before the records are looked at again.
pub(super) const AT_ONCE: usize = 32;
/// Most processes that wait to be looked at; beyond, all are looked at again.
const WAITING_MAX: usize = 1 << 14;
/// Most files and file systems that are kept in mind as known.
const KNOWN_MAX: usize = 1 << 16;

/// Time limits of a file's parser: the rings are not drained meanwhile.
const PATIENCE: ChildLimits = ChildLimits {
    load: Duration::from_secs(10),
    query: Duration::from_secs(5),
    probes: Duration::from_secs(10),
};

/// The containers that come.
pub(super) struct ContainerWatcher<'a> {
    execs: Execs,
    /// Programs that wait, once the first containers are probed.
    held: Option<HeldStarts>,
    options: &'a TraceOptions,
    inputs: ProbeInputs<'a>,
    /// Their names.
    asked: Option<&'a ContainerGroup>,
    /// Those whose pid namespace a note said is shared.
    noted: HashSet<String>,
    /// The containers known so far.
    containers: Containers,
    /// Names that were found since the last look.
    named: Vec<FoundContainer>,
    /// The file system that we see.
    ours: RootId,
    /// Those that were looked at, and whether their processes are of interest.
    roots: HashMap<RootId, bool>,
    /// Pairs of a spec's number and a file that it is probed in.
    probed: HashSet<(usize, FileId)>,
    /// Build-ids of the files of a spec.
    build_ids: HashSet<(usize, Vec<u8>)>,
    /// Mapped files that were looked at, by device and inode.
    mapped: HashSet<(u64, u64)>,
    /// The pid namespaces that are let through, each with one of its processes.
    namespaces: Vec<(Process, PidSpace)>,
    waiting: VecDeque<u32>,
    later: VecDeque<(Instant, u32)>,
    /// An exec may have been missed.
    rescan: bool,
    /// The parts of the keys, which must be the same everywhere.
    keys: Vec<FieldFormat>,
}

/// How far a process has come that is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramPhase {
    /// Before its program begins.
    Held,
    /// Its program may have begun.
    Started,
    /// Its libraries should be mapped.
    Later,
}

/// Result of a look.
pub(super) struct LookResult {
    /// Whether the session's filter has to let more through.
    pub(super) has_joined: bool,
    /// Additional probes.
    pub(super) planned: Vec<Planned>,
    /// Names of containers.
    pub(super) named: Vec<FoundContainer>,
}

impl<'a> ContainerWatcher<'a> {
    /// Looks out from now on, when the user wants that.
    pub(super) fn new(
        inputs: &ProbeInputs<'a>,
        target: &Target,
        planned: &Planned,
        session: &Session,
    ) -> anyhow::Result<Option<ContainerWatcher<'a>>> {
        let options = inputs.options;
        if !options.follow {
            return Ok(None);
        }
        let mut all = ContainerWatcher {
            execs: Execs::new()?,
            held: None,
            options,
            inputs: ProbeInputs {
                limits: PATIENCE,
                ..*inputs
            },
            asked: match &options.who {
                TargetSpec::Group(asked) => Some(asked),
                _ => None,
            },
            noted: HashSet::new(),
            containers: Containers::new()?,
            named: Vec::new(),
            ours: RootId::ours().context("cannot look at the root directory")?,
            roots: HashMap::new(),
            probed: HashSet::new(),
            build_ids: HashSet::new(),
            mapped: HashSet::new(),
            namespaces: Vec::new(),
            waiting: VecDeque::new(),
            later: VecDeque::new(),
            // Some may have started after the target was looked for, and before we began to watch.
            rescan: true,
            keys: planned.keys.clone(),
        };
        if let Target::Group(group) = target {
            for container in &group.members {
                // One that has ended has nothing left to trace.
                let process = Process::open(container.init.pid());
                if let (Ok(process), Ok(space)) = (process, container.pid_namespace()) {
                    all.namespaces.push((process, space));
                }
            }
        }
        for (binary, index) in &planned.opened {
            let Some(file) = planned.files.get(*index) else {
                continue;
            };
            let id = session.identify(&file.file)?.into();
            for spec in all.specs_of(binary) {
                all.probed.insert((spec, id));
                all.known_build_id(spec, file.build_id.as_deref());
            }
        }
        Ok(Some(all))
    }

    /// Each readable when there may be new processes.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let held = self.held.as_ref().map(AsFd::as_fd);
        iter::once(self.execs.as_fd()).chain(held)
    }

    /// From now on programs of new containers wait until they were looked at; the first one, which
    /// was `held` while it was probed, does not any more.
    pub(super) fn hold(&mut self, held: Option<HeldStarts>) -> anyhow::Result<()> {
        self.held = match held {
            Some(mut held) => {
                held.begin()?;
                Some(held)
            }
            None => HeldStarts::new(self.options)?,
        };
        Ok(())
    }

    /// Lets all go on, and says what was held.
    pub(super) fn end_hold(&mut self) -> anyhow::Result<Option<HoldReport>> {
        Ok(self.held.take().map(HeldStarts::end).transpose()?)
    }

    /// Examines the next program that waits, after which the one before goes on.
    pub(super) fn look_at_held(&mut self, session: &Session) -> anyhow::Result<Option<LookResult>> {
        let pid = self.held.as_mut().map(HeldStarts::next).transpose()?;
        let Some(pid) = pid.flatten() else {
            return Ok(None);
        };
        let before = self.namespaces.len();
        let planned = self.process(session, pid, ProgramPhase::Held);
        Ok(Some(self.found(before, planned.into_iter().collect())))
    }

    /// Lets the program go on that was examined last.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        Ok(self.held.as_mut().map_or(Ok(()), HeldStarts::release)?)
    }

    /// When there is something to do at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.waiting.is_empty() && !self.rescan {
            true => self.later.front().map(|(at, _)| *at),
            false => Some(Instant::now()),
        }
    }

    /// Examines some of the new processes.
    pub(super) fn look(&mut self, session: &Session) -> anyhow::Result<LookResult> {
        self.inputs.parser.start_ahead();
        let executed = self.execs.take();
        self.rescan |= executed.missed || self.waiting.len() > WAITING_MAX;
        self.waiting.extend(executed.pids);
        if std::mem::take(&mut self.rescan) {
            // At once, and not for each of them.
            self.containers.refresh()?;
            self.waiting = all_processes()?.into();
        }
        let before = self.namespaces.len();
        let mut planned = Vec::new();
        for _ in 0..AT_ONCE {
            let Some(pid) = self.waiting.pop_front() else {
                break;
            };
            planned.extend(self.process(session, pid, ProgramPhase::Started));
        }
        let now = Instant::now();
        for _ in 0..AT_ONCE {
            match self.later.front() {
                Some((at, pid)) if *at <= now => {
                    let pid = *pid;
                    self.later.pop_front();
                    planned.extend(self.process(session, pid, ProgramPhase::Later));
                }
                _ => break,
            }
        }
        Ok(self.found(before, planned))
    }

    /// What a look has found, before which there were `before` namespaces.
    fn found(&mut self, before: usize, planned: Vec<Planned>) -> LookResult {
        LookResult {
            has_joined: self.namespaces.len() > before,
            planned,
            named: std::mem::take(&mut self.named),
        }
    }

    /// The filter for everything that is traced now.
    pub(super) fn filter(&mut self) -> anyhow::Result<Filter> {
        // A container that ended has no process left to trace.
        self.namespaces.retain(|(process, _)| process.still_same());
        if self.namespaces.len() > FILTER_PIDNS_MAX as usize {
            self.options.note(&format!(
                "more than {FILTER_PIDNS_MAX} containers run at once: the newest are not traced"
            ));
            self.namespaces.truncate(FILTER_PIDNS_MAX as usize);
        }
        let all = self.namespaces.iter();
        let filter = filter_of(
            all.map(|(process, space)| (process.pid(), space.id))
                .collect(),
        );
        let narrowed = self.options.narrow(Some(filter))?;
        narrowed.context("a filter of containers is one")
    }

    /// Additional probes for a process.
    fn process(&mut self, session: &Session, pid: u32, at: ProgramPhase) -> Option<Planned> {
        // A process that has ended has nothing to probe.
        let process = Process::open(pid).ok()?;
        let root = process.root().ok()?;
        if root == self.ours {
            return None;
        }
        if self.roots.len() > KNOWN_MAX {
            self.roots.clear();
        }
        let is_new = !self.roots.contains_key(&root);
        if is_new {
            let is_wanted = self.is_wanted(&process);
            if is_wanted {
                self.note_name(&process);
            }
            self.roots.insert(root, is_wanted);
        }
        if self.roots.get(&root) != Some(&true) || self.options.probes.is_empty() {
            return None;
        }
        if at != ProgramPhase::Later && self.later.len() < WAITING_MAX {
            let now = Instant::now();
            self.later.extend(LATER.map(|after| (now + after, pid)));
            self.later.make_contiguous().sort_unstable();
        }
        let mut files = Vec::new();
        // Files may have come since other programs were started there.
        if is_new || at == ProgramPhase::Held {
            self.by_path(&process, &mut files);
        }
        if at == ProgramPhase::Later {
            self.by_library(&process, &mut files);
        }
        self.by_build_id(session, &process, &mut files);
        self.plan(session, process, files)
    }

    /// Whether to trace a container that was not seen before; if so, adds it to the filter.
    fn is_wanted(&mut self, process: &Process) -> bool {
        let Some(asked) = self.asked else {
            return true;
        };
        let fits = |name: &str| asked.fits(name);
        let container = self.containers.of_process(process);
        if !container.is_some_and(|container| may_join(container, fits)) {
            let shared = container.filter(|container| container.is_called(fits));
            if let Some(name) = shared.map(|one| one.name.clone()) {
                if self.noted.len() < KNOWN_MAX && self.noted.insert(name.clone()) {
                    self.options.note(&sharing_note(&[&name]));
                }
            }
            return false;
        }
        let (Ok(space), Ok(process)) = (process.pid_namespace(), Process::open(process.pid()))
        else {
            return false;
        };
        if self.namespaces.iter().all(|(_, known)| *known != space) {
            if self.options.probes.is_empty() {
                let name = container.map_or("?", |container| &container.name);
                let text = format!("container {name}: its tasks are recorded, too");
                self.options.note(&text);
            }
            self.namespaces.push((process, space));
        }
        true
    }

    /// Notes the name of a process's container, which may end before its hits are printed.
    fn note_name(&mut self, process: &Process) {
        // Looks again if it is not known.
        let container = self.containers.of_process(process).cloned();
        let name = container.and_then(|one| name_of(&self.containers, &one));
        self.named.extend(name);
    }

    /// The files at the paths of the specs.
    fn by_path(&self, process: &Process, files: &mut Vec<(usize, OpenedFile)>) {
        for (spec, binary) in self.specs() {
            let opened = match binary {
                BinaryName::Path(path) => open_in(process, path),
                BinaryName::Bare(name) => match open_somewhere(process, name) {
                    Some(opened) => Ok(opened),
                    None => continue,
                },
            };
            match opened {
                Ok(opened) => files.push((spec, opened)),
                Err(error @ (TargetError::TimedOut { .. } | TargetError::TooManyWait { .. })) => {
                    let pid = process.pid();
                    self.options.note(&format!("process {pid}: {error}"));
                }
                // Not every container has it.
                Err(_) => {}
            }
        }
    }

    /// The libraries that a process has mapped, for specs with bare names.
    fn by_library(&self, process: &Process, files: &mut Vec<(usize, OpenedFile)>) {
        for (spec, binary) in self.specs() {
            if let BinaryName::Bare(name) = binary {
                let links = Mapped::by_links();
                let opened = FileView::of_process(process).open_library(name, &links);
                let opened = opened.map_or(Vec::new(), |opened| opened.files);
                files.extend(opened.into_iter().map(|opened| (spec, opened)));
            }
        }
    }

    /// Files that a process has mapped with the build-id of a probed file.
    fn by_build_id(
        &mut self,
        session: &Session,
        process: &Process,
        files: &mut Vec<(usize, OpenedFile)>,
    ) {
        let Ok(mappings) = process.mappings() else {
            return;
        };
        if self.mapped.len() > KNOWN_MAX {
            self.mapped.clear();
        }
        for mapping in mappings {
            if !mapping.executable
                || mapping.ino == 0
                || !self.mapped.insert((mapping.dev, mapping.ino))
            {
                continue;
            }
            let Some(file) = mapped::open(session, process.pid(), &mapping) else {
                continue;
            };
            let Some(id) = build_id::of(&file) else {
                continue;
            };
            for (spec, _) in self.specs() {
                let is_known = self.build_ids.contains(&(spec, id.clone()));
                if let (true, Ok(file)) = (is_known, file.try_clone()) {
                    files.extend(opened(file, &mapping.path).map(|opened| (spec, opened)));
                }
            }
        }
    }

    /// The probes of files that are not probed yet.
    fn plan(
        &mut self,
        session: &Session,
        process: Process,
        files: Vec<(usize, OpenedFile)>,
    ) -> Option<Planned> {
        let mut new = Vec::new();
        for (spec, opened) in files {
            // It was opened by us, and is a regular file.
            let id = session.identify(&opened.file).ok()?.into();
            if self.probed.insert((spec, id)) {
                new.push((self.options.probes.get(spec)?, opened, id));
            }
        }
        if new.is_empty() {
            return None;
        }
        let pid = process.pid();
        let name = match self.containers.of_process(&process) {
            Some(container) => format!("container {}", container.name),
            None => format!("process {pid}, with a file system of its own"),
        };
        let planned = Planned::in_files(&Target::Processes(vec![process]), new, &self.inputs);
        match planned {
            Ok(planned) if planned.keys != self.keys => {
                self.options.note(&format!(
                    "{name} is not probed: its keys have other types than those that are counted by"
                ));
                None
            }
            Ok(planned) => {
                for (binary, index) in &planned.opened {
                    let id = planned.files.get(*index)?.build_id.as_deref();
                    for spec in self.specs_of(binary) {
                        self.known_build_id(spec, id);
                    }
                }
                let count = match planned.probes.len() {
                    1 => "1 function is".to_owned(),
                    count => format!("{count} functions are"),
                };
                self.options
                    .note(&format!("{name}: {count} traced there, too"));
                Some(planned)
            }
            Err(error) => {
                self.options
                    .note(&format!("{name} is not probed: {error:#}"));
                None
            }
        }
    }

    /// The numbers and binaries of all specs.
    fn specs(&self) -> impl Iterator<Item = (usize, &'a BinaryName)> + use<'a> {
        let specs: &'a [crate::spec::ProbeSpec] = &self.options.probes;
        specs.iter().map(|spec| &spec.binary).enumerate()
    }

    fn specs_of(&self, binary: &BinaryName) -> Vec<usize> {
        let same = self.specs().filter(|(_, other)| *other == binary);
        same.map(|(spec, _)| spec).collect()
    }

    fn known_build_id(&mut self, spec: usize, id: Option<&[u8]>) {
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            self.build_ids.insert((spec, id.to_vec()));
        }
    }
}

fn opened(file: File, path: &std::path::Path) -> Option<OpenedFile> {
    let metadata = file.metadata().ok()?;
    Some(OpenedFile {
        path: PathBuf::from(path),
        dev: metadata.dev(),
        ino: metadata.ino(),
        size: metadata.size(),
        file,
    })
}
