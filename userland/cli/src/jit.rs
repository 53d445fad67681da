// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of generated code, from the files that its process writes for perf.
//!
//! `/tmp/perf-PID.map`, and `jit-PID.dump` where the process has it mapped or in `/tmp`;
//! PID as the process itself knows it, the folders its own. Each look opens them anew
//! through the thread that joins the container (nothing of ours stays in there), reads
//! what has been appended, and lets go.
//!
//! A file counts when it is regular, belongs to the user that the process runs as, and
//! was written after the process started: one that another process of the same number
//! left behind would give wrong names.

use crate::names::Named;
use nix::time::{clock_gettime, ClockId};
use nsprobe_symbolize::{JitDump, JitName, PerfMap, Source, SourceFrame};
use nsprobe_target::{open_in, Error, OpenedFile, Process};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shortest time between two looks when no file could be used.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Most processes whose code is known, and most memory that is taken for all of it, in
/// bytes; then the memory begins anew.
const PROCESSES_MAX: usize = 64;
const BYTES_MAX: usize = 256 << 20;
/// Most bytes of a map that are read at a look, so that no hit waits for long.
const LOOK_BYTES_MAX: u64 = 32 << 20;
/// Bytes that are read at a time.
const PART_BYTES: u64 = 1 << 20;
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

/// The generated code of all processes.
#[derive(Debug, Default)]
pub(crate) struct Jit {
    processes: HashMap<u32, Known>,
}

/// What is known of a process.
#[derive(Debug)]
struct Known {
    process: Process,
    own_pid: u32,
    times: Times,
    map: Followed<PerfMap>,
    dump: Followed<JitDump>,
    /// When its files were last looked at, and up to which time all was read that it had
    /// written by then.
    looked: Option<(Instant, u64)>,
    dump_tried: Option<Instant>,
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
#[derive(Debug, Default)]
struct Followed<T> {
    told: T,
    path: PathBuf,
    inode: (u64, u64),
    bytes: u64,
    /// Why it is of no use.
    trouble: Option<String>,
    /// Its file system does not answer: it is not asked again.
    hangs: bool,
}

impl Jit {
    /// What is at the address in the process at that moment. A return address is looked
    /// up inside of the call.
    pub(crate) fn name(&mut self, address: u64, is_return: bool, moment: Moment) -> Named {
        let inside = address - u64::from(is_return && address > 0);
        let Some(known) = self.process(moment) else {
            return unnamed("its process is gone");
        };
        known.look(moment.time_ns);
        if !known.has_read_up_to(moment.time_ns) {
            return unnamed(match known.process.still_same() {
                true => "what its process says of it is not all read yet",
                false => "its process is gone",
            });
        }
        match known.find(inside, moment.time_ns) {
            Some((found, source, path)) => named(found, source, path, address - inside),
            None => unnamed(&known.why_not()),
        }
    }

    /// The process of the moment, which may be gone by now.
    fn process(&mut self, moment: Moment) -> Option<&mut Known> {
        let bytes = self.processes.values().map(Known::bytes);
        if bytes.sum::<usize>() > BYTES_MAX {
            self.processes.retain(|pid, _| *pid == moment.pid);
        }
        let known = self.processes.get(&moment.pid);
        if !known.is_some_and(|known| known.process.still_same()) {
            let opened = Known::open(moment.pid);
            // One that started later is not the one that was hit.
            let opened = opened.filter(|new| new.times.monotonic_ns <= moment.time_ns);
            if let Some(new) = opened {
                if self.processes.len() >= PROCESSES_MAX {
                    self.processes.clear();
                }
                self.processes.insert(moment.pid, new);
            }
        }
        let known = self.processes.get_mut(&moment.pid)?;
        (known.times.monotonic_ns <= moment.time_ns).then_some(known)
    }
}

impl Known {
    fn open(pid: u32) -> Option<Known> {
        let process = Process::open(pid).ok()?;
        Some(Known {
            own_pid: *process.namespace_pids().ok()?.last()?,
            times: Times::of(&process)?,
            process,
            map: Followed::default(),
            dump: Followed::default(),
            looked: None,
            dump_tried: None,
        })
    }

    /// Reads what was written up to the time, if it may not have been read. Hits are named
    /// many at a time, so that one look is for all of them.
    fn look(&mut self, time_ns: u64) {
        let is_usable = self.map.is_usable() || self.dump.is_usable();
        let is_enough = |(at, until): (Instant, u64)| {
            until >= time_ns || (!is_usable && at.elapsed() < TRY_EVERY)
        };
        let hangs = self.map.hangs || self.dump.hangs;
        if hangs || self.looked.is_some_and(is_enough) || !self.process.still_same() {
            return;
        }
        // What was written before this will be seen.
        let until = monotonic_ns();
        let path = tmp(format!("perf-{}.map", self.own_pid));
        let is_all = self.map.follow(&self.process, self.times, path, append);
        let is_all = self.look_at_dump() && is_all;
        self.looked = Some((Instant::now(), if is_all { until } else { 0 }));
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
        let read = |dump: &mut JitDump, file: &File, _, to| {
            let is_all = dump.append(|at, bytes| part(file, at, bytes, to));
            (is_all, to)
        };
        self.dump.follow(&self.process, self.times, path, read)
    }

    /// The memory that it takes, roughly.
    fn bytes(&self) -> usize {
        self.map.told.bytes() + self.dump.told.bytes()
    }

    /// Whether what was written up to the time was read: without the rest, an older name
    /// of the same addresses would be given.
    fn has_read_up_to(&self, time_ns: u64) -> bool {
        let is_usable = self.map.is_usable() || self.dump.is_usable();
        !is_usable || self.looked.is_some_and(|(_, until)| until >= time_ns)
    }

    /// The dump has times, so it is asked first.
    fn find(&self, address: u64, time_ns: u64) -> Option<(JitName, Source, &Path)> {
        let (dump, map) = (&self.dump, &self.map);
        let by_dump = dump.told.at(address, time_ns);
        let by_dump = by_dump.map(|found| (found, Source::JitDump, dump.path.as_path()));
        let by_map = || Some((map.told.at(address)?, Source::PerfMap, map.path.as_path()));
        by_dump.or_else(by_map)
    }

    fn why_not(&self) -> String {
        let left_out = self.map.told.left_out() + self.dump.told.left_out();
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

impl<T: Default> Followed<T> {
    fn is_usable(&self) -> bool {
        self.trouble.is_none() && self.bytes > 0
    }

    /// Opens the file and lets `read` take what is new in it, from an offset on to
    /// another; it tells whether it has taken all, and up to where. Returns whether all that
    /// there is was taken.
    fn follow(
        &mut self,
        process: &Process,
        started: Times,
        path: PathBuf,
        read: impl FnOnce(&mut T, &File, u64, u64) -> (bool, u64),
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
                    (self.told, self.bytes) = (T::default(), 0);
                    self.inode = (opened.dev, opened.ino);
                }
                let (is_all, to) = read(&mut self.told, &opened.file, self.bytes, opened.size);
                self.bytes = to;
                is_all
            }
            // What was read of a file that is gone still holds.
            Err(trouble) if self.bytes == 0 => {
                self.trouble = Some(trouble);
                true
            }
            Err(_) => true,
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

/// Takes the lines of a map, up to as many as a look may.
fn append(map: &mut PerfMap, file: &File, mut from: u64, to: u64) -> (bool, u64) {
    let end = to.min(from.saturating_add(LOOK_BYTES_MAX));
    while from < end {
        let length = PART_BYTES.min(end - from);
        match part(file, from, length as usize, to) {
            Some(bytes) => map.append(&bytes),
            None => break,
        }
        from += length;
    }
    (from >= to, from)
}

/// Bytes of a file that count up to `to`.
fn part(file: &File, at: u64, length: usize, to: u64) -> Option<Vec<u8>> {
    if at.checked_add(length as u64)? > to {
        return None;
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
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

fn unnamed(why: &str) -> Named {
    Named {
        unresolved: Some(format!("not in a file: generated code; {why}")),
        ..Named::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Our own map; gone with the value.
    struct Map(PathBuf);

    impl Map {
        fn new(text: &str) -> Map {
            let path = tmp(format!("perf-{}.map", std::process::id()));
            fs::write(&path, text).expect("/tmp is writable");
            Map(path)
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn now() -> Moment {
        Moment {
            pid: std::process::id(),
            time_ns: monotonic_ns(),
        }
    }

    fn name(jit: &mut Jit, address: u64, moment: Moment) -> Result<String, String> {
        let named = jit.name(address, false, moment);
        match named.functions.into_iter().next() {
            Some(function) => Ok(function.function),
            None => Err(named.unresolved.expect("a reason")),
        }
    }

    #[test]
    fn a_map_is_read_as_it_grows_and_anew_when_it_is_another() {
        let mut jit = Jit::default();
        let before = now();
        let map = Map::new("1000 10 first\n");
        let after = now();
        assert_eq!(name(&mut jit, 0x1008, after).as_deref(), Ok("first"));
        assert_eq!(
            jit.name(0x1010, true, after).functions[0].function_offset,
            Some(0x10)
        );
        // The file of a process is read once for all hits up to then.
        fs::write(&map.0, "1000 10 first\n1000 10 second\n").expect("/tmp is writable");
        assert_eq!(name(&mut jit, 0x1008, before).as_deref(), Ok("first"));
        assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("second"));
        fs::write(&map.0, "1000 10 third\n").expect("/tmp is writable");
        assert_eq!(name(&mut jit, 0x1008, now()).as_deref(), Ok("third"));
        let why = name(&mut jit, 0x2000, now()).expect_err("it has no such code");
        assert!(why.contains("does not name it"), "{why}");
    }

    #[test]
    fn hits_of_a_process_that_had_the_number_are_not_named() {
        let mut jit = Jit::default();
        let long_ago = Moment {
            time_ns: 1,
            ..now()
        };
        let why = name(&mut jit, 0x1008, long_ago).expect_err("we were not there");
        assert!(why.contains("its process is gone"), "{why}");
    }
}
