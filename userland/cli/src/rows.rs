// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwind rows of the files that stacks go through: compiled beside the trace, each file
//! once, and given to the module.

use crate::probes::Planned;
use crate::target::Target;
use libnsprobe::{Session, UnwindRows, Unwinder};
use nsprobe_symbolize::{escaped, own_vdso, Binary, VDSO};
use nsprobe_target::{all_processes, Process};
use nsprobe_unwind::{Cache, Input, UnwindTable};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a trace waits for the first rows before it begins without the rest.
const WAIT: Duration = Duration::from_secs(1);
/// The same when nothing happens before it begins.
const WAIT_STOPPED: Duration = Duration::from_secs(30);
/// Most files that are looked for in processes when a trace begins.
const FIRST_FILES_MAX: usize = 1024;

/// Asks for the rows of files.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// None asks the thread to end.
    jobs: Sender<Option<(File, PathBuf)>>,
    left: Arc<Left>,
    cache: Option<Arc<Cache>>,
}

/// What is still to be done.
#[derive(Debug, Default)]
struct Left {
    count: Mutex<usize>,
    is_done: Condvar,
}

/// What has become of the wishes.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Files that the module has rows of.
    pub(crate) files: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// How many of them were compiled by an earlier run.
    pub(crate) cached: u64,
    /// Rows in them that have no rule.
    pub(crate) unsupported: u64,
    /// Files without rows, and why.
    pub(crate) without: Vec<String>,
}

/// The thread that compiles.
#[derive(Debug)]
pub(crate) struct Loader {
    wishes: Wishes,
    thread: JoinHandle<Report>,
}

impl Loader {
    /// Starts it. Tables are taken from the cache, and kept there.
    pub(crate) fn start(session: &Session, cache: Option<Cache>) -> anyhow::Result<Loader> {
        let unwinder = session.unwinder()?;
        // Stacks that go through it end there without them, and say so.
        let _ = give_vdso(&unwinder);
        let (jobs, receiver) = mpsc::channel();
        let left = Arc::new(Left::default());
        let wishes = Wishes {
            jobs,
            left: Arc::clone(&left),
            cache: cache.map(Arc::new),
        };
        let thread = thread::Builder::new().name("nsprobe-rows".to_owned());
        let cache = wishes.cache.clone();
        let thread = thread.spawn(move || work(&unwinder, cache.as_deref(), &receiver, &left))?;
        Ok(Loader { wishes, thread })
    }

    /// For those who come upon files.
    pub(crate) fn wishes(&self) -> Wishes {
        self.wishes.clone()
    }

    /// Asks for what stacks will go through first: the probed files, and what those who
    /// run them have mapped. Returns when that is there, or takes too long.
    pub(crate) fn first(&self, planned: &Planned, target: &Target) {
        let wishes = &self.wishes;
        wishes.give_all(planned);
        for path in target.will_map() {
            if let Ok(file) = File::open(&path) {
                wishes.give(file, &path);
            }
        }
        for (file, path) in mapped(planned, target) {
            wishes.give(file, &path);
        }
        wishes.left.wait(match target {
            Target::Command(_) => WAIT_STOPPED,
            _ => WAIT,
        });
    }

    /// Ends the thread once it has done what was asked for so far; what it has done.
    pub(crate) fn end(self) -> Report {
        // A thread that is gone has nothing to tell.
        let _ = self.wishes.jobs.send(None);
        self.thread.join().unwrap_or_default()
    }
}

impl Wishes {
    /// Wishes for the rows of all probed files.
    pub(crate) fn give_all(&self, planned: &Planned) {
        for file in &planned.files {
            if let Ok(copy) = file.file.try_clone() {
                self.give(copy, &file.path);
            }
        }
    }

    /// The rows of a file, for who needs them here.
    pub(crate) fn table(&self, binary: &Binary) -> anyhow::Result<UnwindTable> {
        Ok(table_of(binary, self.cache.as_deref())?.0)
    }

    /// Wishes for the rows of a file.
    pub(crate) fn give(&self, file: File, path: &Path) {
        self.left.add(1);
        if self.jobs.send(Some((file, path.to_owned()))).is_err() {
            self.left.done();
        }
    }
}

impl Left {
    fn add(&self, count: usize) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += count;
    }

    fn done(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.is_done.notify_all();
        }
    }

    fn wait(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.is_done.wait_timeout(count, left);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Compiles until it is asked to end.
fn work(
    unwinder: &Unwinder,
    cache: Option<&Cache>,
    jobs: &Receiver<Option<(File, PathBuf)>>,
    left: &Left,
) -> Report {
    let mut report = Report::default();
    let mut seen = HashSet::new();
    for (file, path) in jobs.iter().map_while(|job| job) {
        let is_new = key(&file).is_none_or(|key| seen.insert(key));
        if is_new {
            if let Err(why) = give(unwinder, cache, &file, &path, &mut report) {
                // So that its stacks are not copied again and again. Who cannot be told
                // so is copied no more after a while.
                let _ = unwinder.give_none(&file);
                let shown = escaped(&path.display().to_string()).to_string();
                report.without.push(format!("{shown}: {why:#}"));
            }
        }
        left.done();
    }
    report
}

fn key(file: &File) -> Option<(u64, u64, i64, i64)> {
    let metadata = file.metadata().ok()?;
    Some((
        metadata.dev(),
        metadata.ino(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ))
}

/// Gives the rows of the code that the kernel maps into each program.
fn give_vdso(unwinder: &Unwinder) -> anyhow::Result<()> {
    let binary = Binary::open_sections(own_vdso()?, Path::new(VDSO))?;
    unwinder.give_vdso(&rows_of(&UnwindTable::of(&binary)?))?;
    Ok(())
}

fn rows_of(table: &UnwindTable) -> UnwindRows<'_> {
    UnwindRows {
        first: table.first,
        blocks: &table.blocks,
        rows: &table.rows,
        rules: &table.rules,
    }
}

/// The rows of a file, and whether an earlier run has compiled them.
fn table_of(
    binary: &Binary,
    cache: Option<&Cache>,
) -> Result<(UnwindTable, bool), nsprobe_unwind::Error> {
    match cache {
        Some(cache) => cache.table(&Input::of(binary)?),
        None => Ok((UnwindTable::of(binary)?, false)),
    }
}

fn give(
    unwinder: &Unwinder,
    cache: Option<&Cache>,
    file: &File,
    path: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let binary = Binary::open_sections(file.try_clone()?, path)?;
    let (table, is_cached) = table_of(&binary, cache)?;
    if unwinder.give(file, &rows_of(&table))? {
        report.files += 1;
        report.cached += u64::from(is_cached);
        report.bytes += table.bytes() as u64;
        report.unsupported += table.left_out.unsupported;
    }
    Ok(())
}

/// The code that processes have mapped who may be hit first, each file once.
fn mapped(planned: &Planned, target: &Target) -> Vec<(File, PathBuf)> {
    let pids = match target {
        Target::Command(_) => Ok(Vec::new()),
        Target::Process(process) => Ok(vec![process.pid()]),
        Target::Container(container) => container.processes(),
        Target::Group(group) => Ok(group
            .members
            .iter()
            .filter_map(|container| container.processes().ok())
            .flatten()
            .collect()),
        Target::Host => all_processes(),
    };
    let is_host = matches!(target, Target::Host);
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for pid in pids.unwrap_or_default() {
        // Who ends meanwhile needs no rows.
        let Ok(mappings) = Process::open(pid).and_then(|process| process.mappings()) else {
            continue;
        };
        let has = |ino| planned.files.iter().any(|file| file.has_inode(ino));
        if is_host && !mappings.iter().any(|mapping| has(mapping.ino)) {
            continue;
        }
        for mapping in mappings {
            let is_code = mapping.executable && mapping.ino != 0;
            if !is_code || !seen.insert((mapping.dev, mapping.ino)) {
                continue;
            }
            if files.len() == FIRST_FILES_MAX {
                return files;
            }
            let range = format!("{:x}-{:x}", mapping.start, mapping.end);
            let file = File::open(format!("/proc/{pid}/map_files/{range}"));
            files.extend(file.ok().map(|file| (file, mapping.path)));
        }
    }
    files
}

impl Report {
    /// A line for people, when there is something to tell.
    pub(crate) fn describe(&self) -> Option<String> {
        if self.files == 0 && self.without.is_empty() {
            return None;
        }
        let files = match self.files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        let kilobytes = self.bytes.div_ceil(1024);
        let cached = match self.cached {
            0 => String::new(),
            cached => format!(" ({cached} from the cache)"),
        };
        let mut text = format!("unwind rows of {files}{cached}: {kilobytes} KB in the kernel");
        if let Some(first) = self.without.first() {
            text += &format!("; {} without, such as {first}", self.without.len());
        }
        Some(text)
    }
}
