// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions that record tasks, as the library opens them, and what /proc says of the same
//! tasks.

use crate::group;
use libnsprobe::{Device, Reader, Session, SetupOptions, TaskOptions};
use nsprobe_common::abi::{TASKS_LIFE, TASKS_UNFILTERED};
use nsprobe_common::record::Record;
use nsprobe_common::task::{TaskLevel, TaskRecord};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A record of a task, and what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) task: TaskRecord,
    pub(crate) levels: Vec<TaskLevel>,
    pub(crate) maker: Vec<TaskLevel>,
    pub(crate) args: Vec<u8>,
}

impl Told {
    pub(crate) fn of(record: &Record<'_>) -> Option<Told> {
        let Record::Task(task, details) = record else {
            return None;
        };
        Some(Told {
            task: **task,
            levels: details.levels.to_vec(),
            maker: details.parent.to_vec(),
            args: details.args.to_vec(),
        })
    }

    pub(crate) fn tid(&self) -> u32 {
        self.levels[0].tid
    }

    pub(crate) fn pid(&self) -> u32 {
        self.levels[0].pid
    }

    pub(crate) fn comm(&self) -> String {
        let name = self.task.comm.iter().copied().take_while(|&byte| byte != 0);
        String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned()
    }

    /// What names a thread for good.
    pub(crate) fn key(&self) -> (u32, u64) {
        (self.tid(), self.task.start_ns)
    }
}

/// A session that records tasks.
pub(crate) struct TaskSession {
    pub(crate) session: Session,
    pub(crate) reader: Reader,
}

impl TaskSession {
    /// With rings of this size in bytes; nothing is recorded yet.
    pub(crate) fn with_rings(bytes: u64) -> TaskSession {
        let device = Device::open().expect("the device");
        let (session, reader) = device
            .setup(&SetupOptions::with_ring_bytes(bytes))
            .expect("rings");
        TaskSession { session, reader }
    }

    /// Records these `TASKS_*` of all tasks.
    pub(crate) fn recording(flags: u32) -> TaskSession {
        let mut session = TaskSession::with_rings(4 << 20);
        session.set(flags | TASKS_UNFILTERED, 0);
        session
    }

    /// Records forks, program starts with arguments, and ends, of all tasks.
    pub(crate) fn of_lives() -> TaskSession {
        let mut session = TaskSession::with_rings(4 << 20);
        session.set(TASKS_LIFE | TASKS_UNFILTERED, 4096);
        session
    }

    pub(crate) fn set(&mut self, flags: u32, args_bytes: u32) {
        let options = TaskOptions {
            flags,
            args_bytes,
            cpu_rows: 0,
        };
        self.session.set_tasks(&options).expect("TASKS");
    }

    /// All records of tasks so far, in the order of time.
    pub(crate) fn told(&mut self) -> Vec<Told> {
        let batch = self.reader.collect_rest().expect("records");
        let records = batch.records();
        records.filter_map(|record| Told::of(&record)).collect()
    }

    /// The counters balance, and nothing was lost.
    pub(crate) fn check_nothing_lost(&self) {
        let counters = self.session.task_counters().expect("counters");
        assert!(counters.balance(), "{counters:?}");
        let lost: u64 = counters.kinds.iter().map(|kind| kind.lost).sum();
        assert_eq!(lost, 0, "{counters:?}");
    }
}

/// What /proc says of a thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InProc {
    pub(crate) comm: String,
    /// Thread numbers from the outermost pid namespace to its own.
    pub(crate) tids: Vec<u32>,
    pub(crate) pids: Vec<u32>,
    pub(crate) ppid: u32,
    pub(crate) uid: u32,
    /// Start in hundredths of a second since boot.
    pub(crate) start_ticks: u64,
    /// By `NAMESPACE_*`.
    pub(crate) namespaces: [u32; 8],
    pub(crate) pidns: u32,
    pub(crate) cgroup: u64,
}

/// The order of `NAMESPACE_*`.
pub(crate) const NAMESPACE_FILES: [&str; 8] = [
    "mnt",
    "uts",
    "ipc",
    "net",
    "user",
    "cgroup",
    "time",
    "pid_for_children",
];

impl InProc {
    /// The thread with these numbers; `None` when it is gone.
    pub(crate) fn of(pid: u32, tid: u32) -> Option<InProc> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let status = fs::read_to_string(format!("{folder}/status")).ok()?;
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_default().trim().to_owned()
        };
        let numbers = |name: &str| {
            let words = line(name);
            let parsed = words
                .split_whitespace()
                .filter_map(|word| word.parse().ok());
            parsed.collect::<Vec<u32>>()
        };
        let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
        let behind = &stat[stat.rfind(')')? + 2..];
        let start_ticks = behind.split(' ').nth(19)?.parse().ok()?;
        let namespace = |file: &str| {
            let path = format!("{folder}/ns/{file}");
            fs::metadata(path).map_or(0, |found| found.ino() as u32)
        };
        let group = fs::read_to_string(format!("{folder}/cgroup")).ok()?;
        let group = group.lines().find_map(|line| line.strip_prefix("0::"))?;
        let group = format!("/sys/fs/cgroup{group}");
        Some(InProc {
            comm: fs::read_to_string(format!("{folder}/comm"))
                .ok()?
                .trim_end_matches('\n')
                .to_owned(),
            tids: numbers("NSpid:"),
            pids: numbers("NStgid:"),
            ppid: *numbers("PPid:").first()?,
            uid: *numbers("Uid:").first()?,
            start_ticks,
            namespaces: NAMESPACE_FILES.map(namespace),
            pidns: namespace("pid"),
            cgroup: fs::metadata(group).map_or(0, |found| found.ino()),
        })
    }

    /// All threads, as (process, thread).
    pub(crate) fn all() -> Vec<(u32, u32)> {
        let numbers = |path: &str| -> Vec<u32> {
            let Ok(folder) = fs::read_dir(path) else {
                return Vec::new();
            };
            let names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            names.filter_map(|name| name.parse().ok()).collect()
        };
        let mut all = Vec::new();
        for pid in numbers("/proc") {
            let threads = numbers(&format!("/proc/{pid}/task"));
            all.extend(threads.into_iter().map(|tid| (pid, tid)));
        }
        all
    }

    /// Compares a record with this.
    pub(crate) fn check(&self, told: &Told) {
        let Told { task, levels, .. } = told;
        let tids: Vec<u32> = levels.iter().map(|level| level.tid).collect();
        let pids: Vec<u32> = levels.iter().map(|level| level.pid).collect();
        assert_eq!(tids, self.tids, "{told:?}");
        assert_eq!(pids, self.pids, "{told:?}");
        assert_eq!(told.comm(), self.comm, "{told:?}");
        assert_eq!(levels[0].ppid, self.ppid, "{told:?}");
        assert_eq!(task.uid, self.uid, "{told:?}");
        assert_eq!(task.start_ns / 10_000_000, self.start_ticks, "{told:?}");
        assert_eq!(task.namespaces, self.namespaces, "{told:?}");
        assert_eq!(levels.last().map(|own| own.inum), Some(self.pidns));
        assert_eq!(task.cgroup, self.cgroup, "{told:?}");
    }
}

/// A child that is killed with the value.
pub(crate) struct Kept(pub(crate) Child);

impl Kept {
    /// Starts it.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Kept {
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Kept(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{program}: {error}")),
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a thread ran, in nanoseconds, as the scheduler has it.
pub(crate) fn ran_ns(pid: u64, tid: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// For how long a process's control group ran, and its first thread, in nanoseconds, as the
/// kernel has it.
pub(crate) fn ran_by_kernel(pid: u64) -> (u64, u64) {
    let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
    let group = group.trim().trim_start_matches("0::/");
    let usage = group::usage_ns(&Path::new("/sys/fs/cgroup").join(group));
    (usage, ran_ns(pid, pid).expect("it lives"))
}

/// The processes with this name.
pub(crate) fn processes_called(comm: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == comm
    };
    pids.filter(is_it).collect()
}
