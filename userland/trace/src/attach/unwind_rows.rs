// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwind rows of the files that stacks go through: compiled beside the trace, each file
//! once, by a process without privileges; given to the module, and dropped there when no
//! stack needs them.

use crate::attach::mapped;
use crate::attach::probes::Planned;
use crate::attach::target::Target;
use crate::names::load_queue::{Left, LoadJob, LoadQueue};
use crate::names::search::DebugSearch;
use crate::options::TraceOptions;
use anyhow::Context;
use libnsprobe::{Error, Session, UnwindRows, Unwinder};
use nix::errno::Errno;
use nsprobe_containers::{all_processes, Process};
use nsprobe_symbolize::{own_vdso, Binary, VDSO};
use nsprobe_text::{counted, escaped};
use nsprobe_unwind::{Cache, UnwindTable};
use nsprobe_worker::SandboxedBinary;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a trace waits for the first rows before it begins without the rest, and for the last
/// ones when it ends.
const WAIT: Duration = Duration::from_secs(30);
/// The wait for a trace of the whole machine.
const WAIT_HOST: Duration = Duration::from_secs(1);
/// Interval between searches for unused rows: as often as they may be dropped, but within these
/// bounds.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Idle times after which rows are dropped to make room, tried in this order.
const MAKE_ROOM: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(5)];
/// Most files that are looked for in processes when a trace begins.
const FIRST_FILES_MAX: usize = 1024;

/// Results of the requests for rows.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct RowsReport {
    /// Files that the module has rows of.
    pub files: u64,
    /// Size of these in bytes.
    pub bytes: u64,
    /// Number of them that an earlier run compiled.
    pub(crate) cached: u64,
    /// Rows in them that have no rule.
    pub(crate) unsupported: u64,
    /// Bytes that were dropped, as they were of no use.
    pub dropped_bytes: u64,
    /// Files without rows, and why.
    pub(crate) without: Vec<String>,
}

/// The thread that compiles.
#[derive(Debug)]
pub(crate) struct UnwindLoader {
    queue: LoadQueue,
    /// What it has done, when it ends.
    report: Receiver<RowsReport>,
}

impl UnwindLoader {
    /// Starts it. Tables are read from the cache, and stored there; in the module, tables that
    /// stacks go through stay, the others for as long as the options say. An error gives the reason
    /// why rows cannot be compiled.
    pub(crate) fn start(
        session: &Session,
        options: &TraceOptions,
        search: Arc<DebugSearch>,
    ) -> anyhow::Result<UnwindLoader> {
        let unwinder = session.unwinder()?;
        // Stacks that go through it end there without them, and say so.
        let _ = give_vdso(&unwinder);
        let (jobs, receiver) = mpsc::channel();
        let left = Arc::new(Left::default());
        let queue = LoadQueue {
            jobs,
            left: Arc::clone(&left),
            cache: options.open_cache().map(Arc::new),
        };
        let thread = thread::Builder::new().name("nsprobe-rows".to_owned());
        let (cache, keep) = (queue.cache.clone(), options.rows.keep);
        let parsers = options.parsers();
        let (tell, started) = mpsc::channel();
        let (done, report) = mpsc::channel();
        thread.spawn(move || {
            // A parser ends with the thread that starts it.
            let (parser, failed) = match nsprobe_worker::Worker::start(parsers) {
                Ok(parser) => (Some(parser), None),
                Err(why) => (None, Some(why)),
            };
            // If the receiver is gone, it has given up.
            let _ = tell.send(failed);
            let Some(parser) = parser else { return };
            let worker = Worker {
                unwinder,
                parser,
                search,
                cache,
                keep,
                seen: HashSet::new(),
                report: RowsReport::default(),
            };
            // If the receiver is gone, it took too long.
            let _ = done.send(worker.work(&receiver, &left));
        })?;
        let failed = started.recv().context("the thread of unwind rows ended")?;
        failed.map_or(Ok(UnwindLoader { queue, report }), |why| Err(why.into()))
    }

    /// The queue, for code that finds files.
    pub(crate) fn load_queue(&self) -> LoadQueue {
        self.queue.clone()
    }

    /// Requests the rows that stacks need first: of the probed files, and of the files mapped by
    /// processes that run them. Returns when they are there, take too long, or `goes_on` returns
    /// false; it is called repeatedly with the number of files that are missing.
    pub(crate) fn first(
        &self,
        session: &Session,
        planned: &Planned,
        target: &Target,
        limit: Duration,
        goes_on: impl FnMut(usize) -> bool,
    ) {
        let queue = &self.queue;
        queue.give_all(planned);
        for path in target.will_map() {
            if let Ok(file) = File::open(&path) {
                queue.give(file, &path);
            }
        }
        for (file, path) in mapped(session, planned, target) {
            queue.give(file, &path);
        }
        queue.left.wait(limit, goes_on);
    }

    /// How long a trace of this target waits for its first rows. The rows of all programs of the
    /// machine take too long.
    pub(crate) fn patience(target: &Target, options: &TraceOptions) -> Duration {
        match target {
            _ if !options.rows.wait => Duration::ZERO,
            Target::Host => WAIT_HOST,
            _ => WAIT,
        }
    }

    /// Ends the thread once its queue is empty; returns its report. `None` when that takes too long
    /// or `goes_on`, called as by [`first`](Self::first), returns false.
    pub(crate) fn end(self, goes_on: impl FnMut(usize) -> bool) -> Option<RowsReport> {
        self.queue.left.wait(WAIT, goes_on);
        // A thread that has ended has nothing to report.
        let _ = self.queue.jobs.send(None);
        self.report.recv_timeout(PAUSE_MIN).ok()
    }
}

impl LoadQueue {
    /// Asks for the rows of all probed files.
    pub(crate) fn give_all(&self, planned: &Planned) {
        for file in &planned.files {
            if let Ok(copy) = file.file.try_clone() {
                self.give(copy, &file.path);
            }
        }
    }
}

/// The thread that compiles rows.
struct Worker {
    unwinder: Unwinder,
    /// Reads the files.
    parser: nsprobe_worker::Worker,
    /// Looks for debug files.
    search: Arc<DebugSearch>,
    cache: Option<Arc<Cache>>,
    /// How long rows are kept that no stack goes through.
    keep: Duration,
    /// The files that rows were given for since the last ones were dropped.
    seen: HashSet<(u64, u64, i64, i64)>,
    report: RowsReport,
}

impl Worker {
    /// Compiles until it is asked to end.
    fn work(mut self, jobs: &Receiver<LoadJob>, left: &Left) -> RowsReport {
        let pause = self.keep.clamp(PAUSE_MIN, PAUSE_MAX);
        let mut looked = Instant::now();
        loop {
            match jobs.recv_timeout(pause) {
                Ok(Some((file, path))) => {
                    self.give_or_none(&file, &path);
                    left.done();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return self.report,
            }
            if looked.elapsed() >= pause {
                self.drop_unused(self.keep);
                looked = Instant::now();
            }
        }
    }

    fn give_or_none(&mut self, file: &File, path: &Path) {
        let is_new = key(file).is_none_or(|key| self.seen.insert(key));
        if !is_new {
            return;
        }
        if let Err(why) = self.give(file, path) {
            // So that its stacks are not copied again and again. If this cannot be reported, the
            // module stops copying them after a while.
            let _ = self.unwinder.give_none(file);
            let shown = escaped(&path.display().to_string()).to_string();
            self.report.without.push(format!("{shown}: {why:#}"));
        }
    }

    fn give(&mut self, file: &File, path: &Path) -> anyhow::Result<()> {
        let object = SandboxedBinary::open_sections(&self.parser, file.try_clone()?, path)?;
        let cache = self.cache.as_deref();
        let rows = match object.rows(cache, false)? {
            Some(rows) => Some(rows),
            None => {
                // Waiting for servers would delay the other files.
                let found = self.search.find_for(&object, path, None);
                object.attach(found.files)?;
                object.rows(cache, true)?
            }
        };
        let (table, is_cached) = rows.context("its rows are missing")?;
        if self.give_table(file, &table)? {
            self.report.files += 1;
            self.report.cached += u64::from(is_cached);
            self.report.bytes += table.bytes() as u64;
            self.report.unsupported += table.left_out.unsupported;
        }
        Ok(())
    }

    /// Gives rows; what is used least makes room for them when there is none.
    fn give_table(&mut self, file: &File, table: &UnwindTable) -> libnsprobe::Result<bool> {
        for unused in MAKE_ROOM {
            match self.unwinder.give(file, &rows_of(table)) {
                Err(Error::Request {
                    errno: Errno::ENOSPC,
                    ..
                }) => self.drop_unused(unused),
                given => return given,
            }
        }
        self.unwinder.give(file, &rows_of(table))
    }

    /// Drops the rows that were of no use for so long. A module that cannot keeps them.
    fn drop_unused(&mut self, unused: Duration) {
        let dropped = self.unwinder.drop_unused(unused).unwrap_or_default();
        if dropped > 0 {
            self.report.dropped_bytes += dropped;
            // Their files come again when they are of use.
            self.seen.clear();
        }
    }
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

/// Gives the rows of the code that the kernel maps into each program, which it wrote itself.
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

/// The code mapped by processes that may be hit first, each file once.
fn mapped(session: &Session, planned: &Planned, target: &Target) -> Vec<(File, PathBuf)> {
    let pids = match target {
        Target::Command(_) => Ok(Vec::new()),
        Target::Processes(all) => Ok(all.iter().map(Process::pid).collect()),
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
        // A process that ends meanwhile needs no rows.
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
            let file = mapped::open(session, pid, &mapping);
            files.extend(file.map(|file| (file, mapping.path)));
        }
    }
    files
}

impl RowsReport {
    /// A line for the user, if there is something to report.
    pub fn describe(&self) -> Option<String> {
        if self.files == 0 && self.without.is_empty() {
            return None;
        }
        let files = counted(self.files, "file");
        let kilobytes = self.bytes.div_ceil(1024);
        let cached = match self.cached {
            0 => String::new(),
            cached => format!(" ({cached} from the cache)"),
        };
        let mut text = format!("unwind rows of {files}{cached}: {kilobytes} KB in the kernel");
        if self.dropped_bytes > 0 {
            let dropped = self.dropped_bytes.div_ceil(1024);
            text += &format!(", of which {dropped} KB dropped as no stack needed them");
        }
        if let Some(first) = self.without.first() {
            text += &format!("; {} without, such as {first}", self.without.len());
        }
        Some(text)
    }
}
