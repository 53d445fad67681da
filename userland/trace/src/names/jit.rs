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

mod files;

use crate::names::named::NamedFrame;
use files::{mapped, tmp, Followed, JitReader};
use libnsprobe::common::record::Hit;
use nix::time::{clock_gettime, ClockId};
use nsprobe_containers::Process;
use nsprobe_symbolize::{FrameSource, JitName, SourceFrame};
use nsprobe_worker::{GeneratedFile, GeneratedName, Options, Worker};
use std::collections::HashMap;
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
/// `USER_HZ` of x86: what `/proc/PID/stat` counts times in.
const TICKS_A_SECOND: u64 = 100;

/// A process at a time (CLOCK_MONOTONIC, in nanoseconds).
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub(crate) pid: u32,
    pub(crate) time_ns: u64,
}

impl Moment {
    /// The moment of a hit.
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
    /// Options of its children; their deaths count together.
    worker: Worker,
    processes: HashMap<u32, JitProcess>,
    /// Until when no other process had a number than what is known of it, if anything, by
    /// CLOCK_MONOTONIC in nanoseconds.
    gone: HashMap<u32, u64>,
}

/// State of a process.
#[derive(Debug)]
struct JitProcess {
    process: Process,
    own_pid: u32,
    times: Times,
    map: Followed,
    dump: Followed,
    reader: JitReader,
    /// By address, and how far past it the place is; they hold until more is read.
    names: HashMap<(u64, u64), KeptName>,
    /// When its files were last looked at, and up to which time all was read that it had
    /// written by then.
    looked: Option<(Instant, u64)>,
    dump_tried: Option<Instant>,
}

/// A name, and when it holds.
#[derive(Debug)]
struct KeptName {
    then: GeneratedName,
    found: CodeName,
}

/// The name of generated code.
#[derive(Clone, Debug)]
pub(crate) struct CodeName {
    pub(crate) named: Rc<NamedFrame>,
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

impl Jit {
    /// Files are read by children like these.
    pub(crate) fn new(options: Options) -> Jit {
        Jit {
            worker: Worker::new(options),
            processes: HashMap::new(),
            gone: HashMap::new(),
        }
    }

    /// Names the address in the process at that moment. A return address is looked up inside of the
    /// call.
    pub(crate) fn name(&mut self, address: u64, is_return: bool, moment: Moment) -> CodeName {
        let inside = address - u64::from(is_return && address > 0);
        self.look(moment);
        let is_gone = self.is_gone(moment);
        let known = self.processes.get_mut(&moment.pid);
        match known.filter(|known| known.times.monotonic_ns <= moment.time_ns) {
            Some(known) if known.has_read_up_to(moment.time_ns) => {
                known.name(inside, address - inside, moment.time_ns)
            }
            Some(_) if !is_gone => unnamed("what its process says of it is not all read yet"),
            _ => unnamed("its process is gone"),
        }
    }

    /// Looks at what the process says of its code, for [`name_last`](Self::name_last).
    pub(crate) fn look_at(&mut self, pid: u32) {
        let time_ns = monotonic_ns();
        self.look(Moment { pid, time_ns });
    }

    /// Names the address in the process as of the last look at it: rows of a table have no time.
    pub(crate) fn name_last(&mut self, address: u64, is_return: bool, pid: u32) -> CodeName {
        let known = self.processes.get(&pid);
        let time_ns = known.map_or(0, |known| {
            let looked = known.looked.map_or(0, |(_, until)| until);
            looked.max(known.times.monotonic_ns)
        });
        self.name(address, is_return, Moment { pid, time_ns })
    }

    /// Whether the process of the moment is known to have ended.
    fn is_gone(&self, moment: Moment) -> bool {
        let until = self.gone.get(&moment.pid);
        until.is_some_and(|until| *until >= moment.time_ns)
    }

    /// Looks at the process of the moment. Frames come by the million, so that is not done for
    /// each of them: one look is for all hits until then.
    fn look(&mut self, moment: Moment) {
        let known = self.processes.get(&moment.pid);
        let is_known = known.is_some_and(|known| known.has_looked(moment.time_ns));
        if is_known || self.is_gone(moment) {
            return;
        }
        let bytes = self.processes.values().map(|known| known.reader.bytes);
        if bytes.sum::<u64>() > BYTES_MAX {
            self.processes.retain(|pid, _| *pid == moment.pid);
        }
        // Everything written before this will be seen, and a later process with the same pid began
        // after it.
        let now = monotonic_ns();
        if let Some(known) = self.processes.get_mut(&moment.pid) {
            if known.process.still_same() {
                return known.read(now);
            }
        }
        let until = match JitProcess::open(moment.pid, &self.worker) {
            Some(mut new) if new.times.monotonic_ns <= moment.time_ns => {
                new.read(now);
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

impl JitProcess {
    fn open(pid: u32, worker: &Worker) -> Option<JitProcess> {
        let process = Process::open(pid).ok()?;
        Some(JitProcess {
            own_pid: *process.namespace_pids().ok()?.last()?,
            times: Times::of(&process)?,
            process,
            map: Followed::new(GeneratedFile::Map),
            dump: Followed::new(GeneratedFile::Dump),
            reader: JitReader::new(worker),
            names: HashMap::new(),
            looked: None,
            dump_tried: None,
        })
    }

    /// Reads what it had written by the time `until`; it lives.
    fn read(&mut self, until: u64) {
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

    /// Whether the process was examined after that time, and lived then; or, if there is nothing to
    /// read, recently.
    fn has_looked(&self, time_ns: u64) -> bool {
        let is_read = (self.map.is_usable() || self.dump.is_usable()) && !self.is_over();
        let is_enough = |(at, until): (Instant, u64)| {
            until >= time_ns || (!is_read && at.elapsed() < TRY_EVERY)
        };
        self.looked.is_some_and(is_enough)
    }

    /// Whether none of its files is read any more.
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

    /// Whether everything written up to the time was read: without the rest, an older name of the
    /// same addresses would be returned.
    fn has_read_up_to(&self, time_ns: u64) -> bool {
        let is_usable = self.map.is_usable() || self.dump.is_usable();
        !is_usable
            || self.reader.trouble.is_some()
            || self.looked.is_some_and(|(_, until)| until >= time_ns)
    }

    /// Names the address of a place that is a number of bytes after it.
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
                    GeneratedFile::Dump => (FrameSource::JitDump, &self.dump.path),
                    GeneratedFile::Map => (FrameSource::PerfMap, &self.map.path),
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
            .insert((address, behind), KeptName { then, found: kept });
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

impl Times {
    fn of(process: &Process) -> Option<Times> {
        let nanoseconds = process.start_time() * (1_000_000_000 / TICKS_A_SECOND);
        let since_boot = Duration::from_nanos(nanoseconds);
        let [boot, monotonic, wall] = clocks();
        let age = boot.saturating_sub(since_boot);
        let monotonic = monotonic.saturating_sub(age);
        Some(Times {
            monotonic_ns: u64::try_from(monotonic.as_nanos()).ok()?,
            wall: wall.saturating_sub(age),
        })
    }
}

/// BOOTTIME, MONOTONIC and REALTIME at one moment: where the machine pauses between them, a
/// process would seem to have started later than it did.
fn clocks() -> [Duration; 3] {
    const TRIES: usize = 3;
    let read = |_| {
        let boot = clock(ClockId::CLOCK_BOOTTIME);
        let monotonic = clock(ClockId::CLOCK_MONOTONIC);
        let wall = clock(ClockId::CLOCK_REALTIME);
        let took = clock(ClockId::CLOCK_BOOTTIME).saturating_sub(boot);
        (took, [boot, monotonic, wall])
    };
    let quickest = (0..TRIES).map(read).min_by_key(|(took, _)| *took);
    quickest.map_or([Duration::ZERO; 3], |(_, times)| times)
}

fn clock(id: ClockId) -> Duration {
    clock_gettime(id).map_or(Duration::ZERO, Duration::from)
}

fn monotonic_ns() -> u64 {
    u64::try_from(clock(ClockId::CLOCK_MONOTONIC).as_nanos()).unwrap_or(u64::MAX)
}

fn named(found: JitName, source: FrameSource, path: &Path, behind: u64) -> NamedFrame {
    NamedFrame {
        functions: vec![SourceFrame {
            function: found.name,
            function_offset: Some(found.offset.saturating_add(behind)),
            file: found.file,
            line: found.line,
            inlined: false,
        }],
        source: Some(source),
        path: Some(path.to_owned()),
        ..NamedFrame::default()
    }
}

fn unnamed(why: &str) -> CodeName {
    let named = NamedFrame {
        unresolved: Some(format!("not in a file: generated code; {why}")),
        ..NamedFrame::default()
    };
    CodeName {
        named: Rc::new(named),
        since_ns: None,
    }
}

#[cfg(test)]
mod tests;
