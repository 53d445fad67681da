// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of generated code, from the files that its process writes for perf.
//!
//! `/tmp/perf-PID.map`, and `jit-PID.dump` where the process has it mapped or in `/tmp`;
//! PID as the process itself knows it, the folders its own. Each look opens them anew
//! through the thread that joins the container (nothing of ours stays in there), and hands
//! them to a child without privileges, which reads what has been appended, and lets go. Each
//! process has a child of its own, which is started when there is such a file.
//!
//! A file counts when it is regular, belongs to the user that the process runs as, and
//! was written after the process started: one that another process of the same number
//! left behind would give wrong names.

use crate::names::Named;
use libnsprobe::common::record::Hit;
use nix::time::{clock_gettime, ClockId};
use nsprobe_symbolize::{JitName, Source, SourceFrame};
use nsprobe_target::{open_in, Error, OpenedFile, Process};
use nsprobe_worker::{Generated, GeneratedFile, GeneratedName, Options, Worker};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Shortest time between two looks when no file could be used.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Most processes whose code is known, and most memory that is taken for all of it, in
/// bytes; then the memory begins anew.
const PROCESSES_MAX: usize = 64;
const BYTES_MAX: u64 = 256 << 20;
/// Most processes that are known to be gone; then that is found out anew.
const GONE_MAX: usize = 1 << 12;
/// Most names of a process that are kept until its files say more.
const NAMES_MAX: usize = 1 << 14;
/// How coarse the times of files and processes are.
const SLACK: Duration = Duration::from_millis(50);
/// `USER_HZ` of x86: what `/proc/PID/stat` counts times in.
const TICKS_A_SECOND: u64 = 100;

/// A process at a time (CLOCK_MONOTONIC, in nanoseconds).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) pid: u32,
    pub(crate) time_ns: u64,
}

impl Moment {
    /// That of a hit.
    pub(crate) fn of(hit: &Hit) -> Moment {
        Moment {
            pid: hit.pid,
            time_ns: hit.time_ns,
        }
    }
}

/// The generated code of all processes.
#[derive(Debug)]
pub(crate) struct Jit {
    /// What its children are like; their deaths count together.
    worker: Worker,
    processes: HashMap<u32, Known>,
    /// Until when no other process had a number than what is known of it, if anything, by
    /// CLOCK_MONOTONIC in nanoseconds.
    gone: HashMap<u32, u64>,
}

/// What is known of a process.
#[derive(Debug)]
struct Known {
    process: Process,
    /// It has ended.
    is_gone: bool,
    own_pid: u32,
    times: Times,
    map: Followed,
    dump: Followed,
    reader: Reader,
    /// By address, and how far behind it the place is; they hold until more is read.
    names: HashMap<(u64, u64), Kept>,
    /// When its files were last looked at, and up to which time all was read that it had
    /// written by then.
    looked: Option<(Instant, u64)>,
    dump_tried: Option<Instant>,
}

/// Who reads the files of a process.
#[derive(Debug)]
struct Reader {
    worker: Worker,
    child: Option<Generated>,
    /// Why there will be none any more.
    trouble: Option<String>,
    /// The memory that the child takes, as of the last look.
    bytes: u64,
}

/// A name, and when it holds.
#[derive(Debug)]
struct Kept {
    then: GeneratedName,
    found: CodeName,
}

/// What generated code is called.
#[derive(Clone, Debug)]
pub(crate) struct CodeName {
    pub(crate) named: Rc<Named>,
    /// From when on, CLOCK_MONOTONIC in nanoseconds, if that is known.
    pub(crate) since_ns: Option<u64>,
}

/// When a process started.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// By CLOCK_MONOTONIC, in nanoseconds.
    monotonic_ns: u64,
    /// By the clock that files have their times of, since its epoch.
    wall: Duration,
}

/// A file that grows, as far as it was read.
#[derive(Debug)]
struct Followed {
    kind: GeneratedFile,
    path: PathBuf,
    inode: (u64, u64),
    bytes: u64,
    /// Pieces of code that there was no room for.
    left_out: u64,
    /// Why it is of no use.
    trouble: Option<String>,
    /// Its file system does not answer: it is not asked again.
    hangs: bool,
}

impl Jit {
    /// Files are read by children like these.
    pub(crate) fn new(options: Options) -> Jit {
        Jit {
            worker: Worker::new(options),
            processes: HashMap::new(),
            gone: HashMap::new(),
        }
    }

    /// What is at the address in the process at that moment. A return address is looked
    /// up inside of the call.
    pub(crate) fn name(&mut self, address: u64, is_return: bool, moment: Moment) -> CodeName {
        let inside = address - u64::from(is_return && address > 0);
        let Some(known) = self.process(moment) else {
            return unnamed("its process is gone");
        };
        known.look(moment.time_ns);
        if !known.has_read_up_to(moment.time_ns) {
            return unnamed(match known.is_gone {
                true => "its process is gone",
                false => "what its process says of it is not all read yet",
            });
        }
        known.name(inside, address - inside, moment.time_ns)
    }

    /// The process of the moment, which may be gone by now. Frames come by the million, so
    /// nobody looks at it for each of them.
    fn process(&mut self, moment: Moment) -> Option<&mut Known> {
        let known = self.processes.get(&moment.pid);
        let is_known = known.is_some_and(|known| known.has_looked(moment.time_ns));
        let gone = self.gone.get(&moment.pid);
        if !is_known && gone.is_none_or(|until| *until < moment.time_ns) {
            self.find(moment);
        }
        let known = self.processes.get_mut(&moment.pid)?;
        (known.times.monotonic_ns <= moment.time_ns).then_some(known)
    }

    /// Looks who has the number of the moment's process now.
    fn find(&mut self, moment: Moment) {
        let bytes = self.processes.values().map(|known| known.reader.bytes);
        if bytes.sum::<u64>() > BYTES_MAX {
            self.processes.retain(|pid, _| *pid == moment.pid);
        }
        if let Some(known) = self.processes.get_mut(&moment.pid) {
            if known.process.still_same() {
                return;
            }
            known.is_gone = true;
        }
        // Whoever has the number later has begun after this.
        let now = monotonic_ns();
        let until = match Known::open(moment.pid, &self.worker) {
            Some(new) if new.times.monotonic_ns <= moment.time_ns => {
                if self.processes.len() >= PROCESSES_MAX {
                    self.processes.clear();
                }
                self.processes.insert(moment.pid, new);
                self.gone.remove(&moment.pid);
                return;
            }
            // One that started later is not the one that was hit.
            Some(later) => later.times.monotonic_ns.saturating_sub(1),
            None => now,
        };
        if self.gone.len() >= GONE_MAX {
            self.gone.clear();
        }
        self.gone.insert(moment.pid, until);
    }
}

impl Known {
    fn open(pid: u32, worker: &Worker) -> Option<Known> {
        let process = Process::open(pid).ok()?;
        Some(Known {
            own_pid: *process.namespace_pids().ok()?.last()?,
            times: Times::of(&process)?,
            process,
            is_gone: false,
            map: Followed::new(GeneratedFile::Map),
            dump: Followed::new(GeneratedFile::Dump),
            reader: Reader::new(worker),
            names: HashMap::new(),
            looked: None,
            dump_tried: None,
        })
    }

    /// Reads what was written up to the time, if it may not have been read. Hits are named
    /// many at a time, so that one look is for all of them.
    fn look(&mut self, time_ns: u64) {
        if self.is_gone || self.has_looked(time_ns) {
            return;
        }
        // What was written before this will be seen.
        let until = monotonic_ns();
        if !self.process.still_same() {
            self.is_gone = true;
            return;
        }
        if self.is_over() {
            let before = self.looked.map_or(0, |(_, until)| until);
            self.looked = Some((Instant::now(), before));
            return;
        }
        let before = (self.map.state(), self.dump.state());
        let path = tmp(format!("perf-{}.map", self.own_pid));
        let is_all = self.follow_map(path);
        let is_all = self.look_at_dump() && is_all;
        if before != (self.map.state(), self.dump.state()) {
            self.names.clear();
        }
        self.reader.weigh();
        self.looked = Some((Instant::now(), if is_all { until } else { 0 }));
    }

    /// Whether it was looked at after that time, and lived then; or, as there is nothing to be
    /// read, lately.
    fn has_looked(&self, time_ns: u64) -> bool {
        let is_read = (self.map.is_usable() || self.dump.is_usable()) && !self.is_over();
        let is_enough = |(at, until): (Instant, u64)| {
            until >= time_ns || (!is_read && at.elapsed() < TRY_EVERY)
        };
        self.looked.is_some_and(is_enough)
    }

    /// Whether nothing of it is read any more.
    fn is_over(&self) -> bool {
        self.map.hangs || self.dump.hangs || self.reader.trouble.is_some()
    }

    fn follow_map(&mut self, path: PathBuf) -> bool {
        let (process, reader) = (&self.process, &mut self.reader);
        self.map.follow(process, self.times, path, reader)
    }

    /// The dump may be at any path: one that is not there is seldom looked for.
    fn look_at_dump(&mut self) -> bool {
        let is_usable = self.dump.is_usable();
        let is_recent = |tried: Instant| !is_usable && tried.elapsed() < TRY_EVERY;
        if self.dump_tried.is_some_and(is_recent) {
            return true;
        }
        self.dump_tried = Some(Instant::now());
        let name = format!("jit-{}.dump", self.own_pid);
        let path = match is_usable {
            true => self.dump.path.clone(),
            false => mapped(&self.process, &name).unwrap_or_else(|| tmp(name)),
        };
        let (process, reader) = (&self.process, &mut self.reader);
        self.dump.follow(process, self.times, path, reader)
    }

    /// Whether what was written up to the time was read: without the rest, an older name
    /// of the same addresses would be given.
    fn has_read_up_to(&self, time_ns: u64) -> bool {
        let is_usable = self.map.is_usable() || self.dump.is_usable();
        !is_usable
            || self.reader.trouble.is_some()
            || self.looked.is_some_and(|(_, until)| until >= time_ns)
    }

    /// What is at the address, of a place so many bytes behind it.
    fn name(&mut self, address: u64, behind: u64, time_ns: u64) -> CodeName {
        let known = self.names.get(&(address, behind));
        if let Some(kept) = known.filter(|kept| kept.then.holds_at(time_ns)) {
            return kept.found.clone();
        }
        let then = match self.reader.at(address, time_ns) {
            Ok(Some(then)) => then,
            Ok(None) => return unnamed(&self.why_not()),
            Err(why) => return unnamed(&why),
        };
        let found = match &then.found {
            Some((kind, name)) => {
                let (source, path) = match kind {
                    GeneratedFile::Dump => (Source::JitDump, &self.dump.path),
                    GeneratedFile::Map => (Source::PerfMap, &self.map.path),
                };
                let named = Rc::new(named(name.clone(), source, path, behind));
                // Another process may have had the number before.
                let since_ns = Some(then.since_ns.max(self.times.monotonic_ns));
                CodeName { named, since_ns }
            }
            None => unnamed(&self.why_not()),
        };
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let kept = found.clone();
        self.names
            .insert((address, behind), Kept { then, found: kept });
        found
    }

    fn why_not(&self) -> String {
        let left_out = self.map.left_out.saturating_add(self.dump.left_out);
        let files = [
            (&self.map.path, &self.map.trouble),
            (&self.dump.path, &self.dump.trouble),
        ];
        let usable: Vec<String> = files
            .iter()
            .filter(|(_, trouble)| trouble.is_none())
            .map(|(path, _)| path.display().to_string())
            .collect();
        match (usable.as_slice(), left_out) {
            ([], _) => files
                .map(|(_, trouble)| trouble.clone().unwrap_or_default())
                .join(", "),
            (usable, 0) => format!("{} does not name it", usable.join(" or ")),
            (usable, left_out) => format!(
                "{} does not name it, or among {left_out} pieces without room",
                usable.join(" or ")
            ),
        }
    }
}

impl Reader {
    fn new(worker: &Worker) -> Reader {
        Reader {
            worker: worker.clone(),
            child: None,
            trouble: None,
            bytes: 0,
        }
    }

    /// The child, which is started for the first file. The error is for good.
    fn child(&mut self) -> Result<&mut Generated, String> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        match &mut self.child {
            Some(child) => Ok(child),
            none => {
                let child = Generated::start(&self.worker).map_err(|why| why.to_string());
                Ok(none.insert(child.inspect_err(|why| self.trouble = Some(why.clone()))?))
            }
        }
    }

    /// Asks the child, which is no more when it fails.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Generated) -> nsprobe_worker::Result<T>,
    ) -> Result<T, String> {
        let answer = ask(self.child()?);
        answer.map_err(|why| {
            let why = match why {
                nsprobe_worker::Error::Fatal(death) => {
                    format!("the parser {death} on what its process says of it")
                }
                why => why.to_string(),
            };
            (self.child, self.trouble) = (None, Some(why.clone()));
            why
        })
    }

    /// What is at the address; none when nothing was read.
    fn at(&mut self, address: u64, time_ns: u64) -> Result<Option<GeneratedName>, String> {
        if self.child.is_none() && self.trouble.is_none() {
            return Ok(None);
        }
        self.ask(|child| child.at(address, time_ns)).map(Some)
    }

    /// Looks how much memory the child takes.
    fn weigh(&mut self) {
        self.bytes = self.child.as_ref().map_or(0, Generated::memory_bytes);
    }
}

impl Followed {
    fn new(kind: GeneratedFile) -> Followed {
        Followed {
            kind,
            path: PathBuf::new(),
            inode: (0, 0),
            bytes: 0,
            left_out: 0,
            trouble: None,
            hangs: false,
        }
    }

    /// What changes when more was read of it, or another one.
    fn state(&self) -> ((u64, u64), u64, bool) {
        (self.inode, self.bytes, self.is_usable())
    }

    fn is_usable(&self) -> bool {
        self.trouble.is_none() && self.bytes > 0
    }

    /// Opens the file and has what is new in it read. Returns whether that was all.
    fn follow(
        &mut self,
        process: &Process,
        started: Times,
        path: PathBuf,
        reader: &mut Reader,
    ) -> bool {
        let opened = open_in(process, &path);
        self.path = path;
        self.hangs = matches!(opened, Err(Error::TimedOut { .. }));
        let opened = opened.map_err(|error| match error {
            Error::NotFound { .. } => format!("no {}", self.path.display()),
            error => error.to_string(),
        });
        let checked = opened.and_then(|opened| check(opened, process, started));
        match checked {
            Ok(opened) => {
                self.trouble = None;
                // Another file, or begun anew.
                if (opened.dev, opened.ino) != self.inode || opened.size < self.bytes {
                    (self.left_out, self.bytes) = (0, 0);
                    self.inode = (opened.dev, opened.ino);
                }
                self.read(&opened, reader)
            }
            // What was read of a file that is gone still holds.
            Err(trouble) if self.bytes == 0 => {
                self.trouble = Some(trouble);
                true
            }
            Err(_) => true,
        }
    }

    fn read(&mut self, opened: &OpenedFile, reader: &mut Reader) -> bool {
        // An empty one is no reason for a child; one that was read before is to be forgotten.
        if opened.size == self.bytes && reader.child.is_none() {
            return true;
        }
        let (kind, from) = (self.kind, self.bytes);
        let read = reader.ask(|child| child.read(kind, &opened.file, from, opened.size));
        match read {
            Ok(read) => {
                (self.bytes, self.left_out) = (read.to, read.left_out);
                read.is_all
            }
            Err(trouble) => {
                (self.bytes, self.trouble) = (0, Some(trouble));
                true
            }
        }
    }
}

/// Fails with a reason for a file that is not the process's own.
fn check(opened: OpenedFile, process: &Process, started: Times) -> Result<OpenedFile, String> {
    let path = opened.path.display();
    let metadata = opened.file.metadata();
    let metadata = metadata.map_err(|error| format!("cannot look at {path}: {error}"))?;
    let user = process.effective_uid().map_err(|error| error.to_string())?;
    if metadata.uid() != user {
        return Err(format!(
            "{path} belongs to user {}, but the process to {user}",
            metadata.uid()
        ));
    }
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    let written = Duration::new(seconds, metadata.mtime_nsec() as u32);
    if written + SLACK < started.wall {
        return Err(format!("{path} is older than the process"));
    }
    Ok(opened)
}

fn tmp(name: String) -> PathBuf {
    Path::new("/tmp").join(name)
}

/// The path of the file of that name that the process has mapped.
fn mapped(process: &Process, name: &str) -> Option<PathBuf> {
    let mappings = process.mappings().ok()?.into_iter();
    let mut paths = mappings.filter(|mapping| mapping.ino != 0 && !mapping.deleted);
    paths
        .find(|mapping| mapping.path.file_name().is_some_and(|last| last == name))
        .map(|mapping| mapping.path)
}

impl Times {
    fn of(process: &Process) -> Option<Times> {
        let nanoseconds = process.start_time() * (1_000_000_000 / TICKS_A_SECOND);
        let since_boot = Duration::from_nanos(nanoseconds);
        let (boot, wall) = (
            clock(ClockId::CLOCK_BOOTTIME),
            clock(ClockId::CLOCK_REALTIME),
        );
        let age = boot.saturating_sub(since_boot);
        let monotonic = clock(ClockId::CLOCK_MONOTONIC).saturating_sub(age);
        Some(Times {
            monotonic_ns: u64::try_from(monotonic.as_nanos()).ok()?,
            wall: wall.saturating_sub(age),
        })
    }
}

fn clock(id: ClockId) -> Duration {
    clock_gettime(id).map_or(Duration::ZERO, Duration::from)
}

fn monotonic_ns() -> u64 {
    u64::try_from(clock(ClockId::CLOCK_MONOTONIC).as_nanos()).unwrap_or(u64::MAX)
}

fn named(found: JitName, source: Source, path: &Path, behind: u64) -> Named {
    Named {
        functions: vec![SourceFrame {
            function: found.name,
            function_offset: Some(found.offset.saturating_add(behind)),
            file: found.file,
            line: found.line,
            inlined: false,
        }],
        source: Some(source),
        path: Some(path.to_owned()),
        ..Named::default()
    }
}

fn unnamed(why: &str) -> CodeName {
    let named = Named {
        unresolved: Some(format!("not in a file: generated code; {why}")),
        ..Named::default()
    };
    CodeName {
        named: Rc::new(named),
        since_ns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The program itself serves as a child, not this test of its parts: `cargo test` builds
    /// both.
    fn children() -> Options {
        let test = std::env::current_exe().expect("/proc is mounted");
        let folder = test.ancestors().nth(2).expect("a folder of tests");
        Options {
            program: folder.join("nsprobe"),
            ..Options::default()
        }
    }

    /// Our own map, of which there is one at a time; gone with the value.
    struct Map {
        path: PathBuf,
        _alone: MutexGuard<'static, ()>,
    }

    static ONE: Mutex<()> = Mutex::new(());

    impl Map {
        fn new(text: &str) -> Map {
            let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
            let path = tmp(format!("perf-{}.map", std::process::id()));
            fs::write(&path, text).expect("/tmp is writable");
            Map { path, _alone }
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn now() -> Moment {
        Moment {
            pid: std::process::id(),
            time_ns: monotonic_ns(),
        }
    }

    fn name(jit: &mut Jit, address: u64, moment: Moment) -> Result<String, String> {
        let named = jit.name(address, false, moment).named;
        match named.functions.first() {
            Some(function) => Ok(function.function.clone()),
            None => Err(named.unresolved.clone().expect("a reason")),
        }
    }

    #[test]
    fn a_map_is_read_as_it_grows_and_anew_when_it_is_another() {
        let mut jit = Jit::new(children());
        let before = now();
        let map = Map::new("1000 10 first\n");
        let after = now();
        assert_eq!(name(&mut jit, 0x1008, after).as_deref(), Ok("first"));
        assert_eq!(
            jit.name(0x1010, true, after).named.functions[0].function_offset,
            Some(0x10)
        );
        // The file of a process is read once for all hits up to then.
        fs::write(&map.path, "1000 10 first\n1000 10 second\n").expect("/tmp is writable");
        assert_eq!(name(&mut jit, 0x1008, before).as_deref(), Ok("first"));
        assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("second"));
        fs::write(&map.path, "1000 10 third\n").expect("/tmp is writable");
        assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("third"));
        let why = name(&mut jit, 0x2000, now()).expect_err("it has no such code");
        assert!(why.contains("does not name it"), "{why}");
    }

    #[test]
    fn a_child_that_dies_costs_the_names_of_its_process() {
        let mut jit = Jit::new(children());
        let map = Map::new("1000 10 first\n");
        assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("first"));
        let known = jit.processes.values().next().expect("it is known");
        let child = known.reader.child.as_ref().expect("it reads").pid();
        let child = nix::unistd::Pid::from_raw(child as i32);
        nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).expect("it is ours");
        fs::write(&map.path, "1000 10 first\n2000 10 second\n").expect("/tmp is writable");
        for _ in 0..2 {
            let why = name(&mut jit, 0x2008, now()).expect_err("nobody has read it");
            assert!(why.contains("died of SIGKILL"), "{why}");
        }
    }

    /// The code of a process that has ended keeps its names, and nobody looks for it again.
    #[test]
    fn what_was_read_of_a_process_outlives_it() {
        let mut sleeps = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("there is sleep");
        let pid = sleeps.id();
        let path = tmp(format!("perf-{pid}.map"));
        fs::write(&path, "1000 10 first\n").expect("/tmp is writable");
        let moment = |time_ns| Moment { pid, time_ns };
        let mut jit = Jit::new(children());
        let lived = moment(monotonic_ns());
        let early = name(&mut jit, 0x1008, lived);
        let unread = name(&mut jit, 0x1008, moment(lived.time_ns - 1));
        sleeps.kill().expect("it is our child");
        sleeps.wait().expect("it is our child");
        let late = moment(monotonic_ns());
        for _ in 0..2 {
            let why = name(&mut jit, 0x1008, late).expect_err("it cannot have been hit");
            assert!(why.contains("its process is gone"), "{why}");
        }
        assert!(jit.gone[&late.pid] >= late.time_ns);
        for then in [early, unread, name(&mut jit, 0x1008, lived)] {
            assert_eq!(then.as_deref(), Ok("first"));
        }
        fs::remove_file(path).expect("it is ours");
    }

    #[test]
    fn hits_of_a_process_that_had_the_number_are_not_named() {
        let mut jit = Jit::new(children());
        let long_ago = Moment {
            time_ns: 1,
            ..now()
        };
        let why = name(&mut jit, 0x1008, long_ago).expect_err("we were not there");
        assert!(why.contains("its process is gone"), "{why}");
    }
}
