// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong between this library and the module, each as a sentence
//! that says what to do about it.

use nix::errno::Errno;
use nsprobe_common::abi::{
    Refusal, Version, DEVICE, FILTER_PIDNS_MAX, FILTER_PIDS_MAX, RING_BYTES_MAX, RING_BYTES_MIN,
    RING_BYTES_TOTAL_MAX, TASKS_CPU, TASKS_LIFE, TASKS_MOVES, TASKS_NAMES, TASKS_SWITCHES,
    TASKS_WAKEUPS,
};
use nsprobe_common::program::Flaw;
use nsprobe_common::record::Corrupt;

/// The library's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no device and no module.
    #[error(
        "{DEVICE} does not exist: the kernel module is not loaded; load it as root with \
         `modprobe nsprobe` (installed) or `insmod nsprobe.ko` (just built)"
    )]
    NotLoaded,
    /// The module is there, the device node is not.
    #[error(
        "{DEVICE} does not exist although the module is loaded: run nsprobe on the host, or give \
         this container the device"
    )]
    NoNode,
    /// The opener may not trace.
    #[error(
        "{DEVICE} cannot be opened ({0}): tracing needs CAP_PERFMON and CAP_SYS_PTRACE (or \
         CAP_SYS_ADMIN) in the initial user namespace, and a kernel that is not locked down for \
         confidentiality; run nsprobe as root on the host"
    )]
    Denied(Errno),
    /// The path exists and is something else.
    #[error("{DEVICE} is not the device of the nsprobe module ({0})")]
    NotDevice(Errno),
    /// Any other failure to open.
    #[error("cannot open {DEVICE}: {0}")]
    Open(Errno),
    /// Library and module do not speak the same version.
    #[error(
        "the nsprobe module {release} serves versions {oldest} to {newest} of the interface, \
         this program needs version {}: install module and program of the same release",
        Version::CURRENT as u32
    )]
    Version {
        /// Oldest version that the module serves.
        oldest: u32,
        /// Newest version that the module serves.
        newest: u32,
        /// The module's release.
        release: String,
    },
    /// A ring size that no session can have.
    #[error(
        "a ring of {0} bytes is not possible: the size must be a power of two from \
         {RING_BYTES_MIN} to {RING_BYTES_MAX} bytes (and at most {RING_BYTES_TOTAL_MAX} bytes for \
         all CPUs together)"
    )]
    RingSize(u64),
    /// Too little memory for the rings.
    #[error(
        "the kernel has no memory for {rings} rings of {bytes} bytes: choose a smaller ring size"
    )]
    RingMemory {
        /// One for each possible CPU.
        rings: u32,
        /// Bytes of one.
        bytes: u64,
    },
    /// A filter that no session can have.
    #[error("a filter takes 1 to {FILTER_PIDS_MAX} processes, not {0}")]
    FilterSize(usize),
    /// Unwind rows that are none.
    #[error("the module refuses unwind rows: defect {0}")]
    UnwindRows(u32),
    /// More pid namespaces than a filter can have.
    #[error("a filter takes at most {FILTER_PIDNS_MAX} pid namespaces, not {0}")]
    FilterNamespaces(usize),
    /// The process to be traced does not exist.
    #[error("no such process: it has ended, or its number is not one of this pid namespace")]
    NoProcess,
    /// The process is no longer in the namespace that it was found in.
    #[error("process {0} is not in the pid namespace that was looked up: it ended meanwhile, start again")]
    StaleNamespace(u32),
    /// A probe could not be attached.
    #[error("{}", refusal(*.reason, *.errno))]
    Attach {
        /// Index of the probe in the request.
        index: usize,
        /// The module's reason.
        reason: Refusal,
        /// The error number.
        errno: Errno,
    },
    /// No probe with this id.
    #[error("no probe {0} in this session")]
    NoProbe(u32),
    /// The kernel would have to wait for a server to open a file.
    #[error("a server answers for the file system of the file, and may never do so")]
    NeedsAnswer,
    /// A request failed in another way.
    #[error("{request} failed: {errno}")]
    Request {
        /// The name of the request.
        request: &'static str,
        /// The error number.
        errno: Errno,
    },
    /// The module's answer makes no sense.
    #[error("the module's answer to {0} makes no sense: is it of another release?")]
    Answer(&'static str),
    /// A ring holds bytes that are no record.
    #[error("the ring of CPU {ring} is corrupt at position {position}: {}", corrupt(*.why))]
    Corrupt {
        /// Number of the ring.
        ring: usize,
        /// Bytes since the ring was made.
        position: u64,
        /// What is wrong.
        why: Corrupt,
    },
    /// The module does not let anybody change traced programs.
    #[error(
        "the module does not allow changes: load it with `modprobe nsprobe allow_modify=1`, on a \
         kernel that is not locked down"
    )]
    MayNotModify,
    /// Records of changes in rings that overwrite.
    #[error(
        "a session that changes programs keeps the record of each change: its rings cannot \
         overwrite the oldest"
    )]
    ChangesOverwritten,
    /// There is no such control group.
    #[error("there is no such control group any more")]
    NoCgroup,
    /// The module refused a program.
    #[error("step {step} of the program is refused: {}", flaw_text(*flaw))]
    Program {
        /// Index of the step.
        step: usize,
        /// What is wrong with it: a [`Flaw`]'s number.
        flaw: u32,
    },
    /// There cannot be such a table, or there is no room for it.
    #[error("the table cannot be made: {0}")]
    Table(String),
    /// The kernel does not report such events of tasks.
    #[error("this kernel does not tell of {}", task_events(*.0))]
    NoTaskEvents(u32),
    /// Too many sessions record tasks.
    #[error("too many sessions record events of tasks: end one of them")]
    TaskSessions,
    /// Reading /proc failed.
    #[error("cannot read {path}")]
    Proc {
        /// The path that could not be read.
        path: String,
        /// Why it could not.
        source: std::io::Error,
    },
}

/// What `TASKS_*` bits stand for.
fn task_events(flags: u32) -> String {
    let known = [
        (TASKS_LIFE, "forks and program starts"),
        (TASKS_NAMES, "names of tasks"),
        (TASKS_MOVES, "moves between namespaces and control groups"),
        (TASKS_SWITCHES, "context switches"),
        (TASKS_WAKEUPS, "wake-ups"),
        (TASKS_CPU, "the CPU time of tasks"),
    ];
    let named = known.iter().filter(|(bit, _)| flags & bit != 0);
    let named: Vec<&str> = named.map(|&(_, name)| name).collect();
    named.join(", ")
}

/// A program's flaw, as a sentence.
fn flaw_text(flaw: u32) -> &'static str {
    const KNOWN: [(Flaw, &str); 8] = [
        (Flaw::TooLong, "the program is too long"),
        (Flaw::Unknown, "the module does not know it: is it older?"),
        (Flaw::NoSlot, "there is no such slot"),
        (Flaw::Unwritten, "it reads a slot that no step wrote"),
        (Flaw::BadSize, "a size is out of its limits"),
        (Flaw::TooMuchOutput, "more fields than a record holds"),
        (Flaw::Repeated, "it is there too often"),
        (
            Flaw::NotWritable,
            "the stack and instruction pointers cannot be set",
        ),
    ];
    let known = KNOWN.iter().find(|(known, _)| *known as u32 == flaw);
    known.map_or(
        "for a reason that this version does not know",
        |(_, text)| text,
    )
}

/// A refusal to attach, as a sentence.
fn refusal(reason: Refusal, errno: Errno) -> String {
    let sentence = match reason {
        Refusal::NoSetup => "the session has no rings yet",
        Refusal::UnknownValue => "the module does not know this kind of probe: is it older?",
        Refusal::BadFd => "the file is not open for reading",
        Refusal::NotRegular => {
            "it is not a regular file: only programs and libraries can be probed"
        }
        Refusal::OutsideFile => "the offset lies behind the end of the file",
        Refusal::TooMany => "the session has too many probes: probe fewer functions",
        Refusal::NoMemory => "the kernel has no memory for the probe",
        Refusal::NoSuchId => "the session has no program or table of this id",
        Refusal::MayNotWrite => "its program writes, which the session may not (SETUP_MODIFY)",
        Refusal::Mismatch => "its sink, table and programs do not fit together",
        Refusal::BadSemaphore => "the file has no USDT semaphore at this offset",
        Refusal::SemaphoreConflict => {
            "the instruction is probed with another USDT semaphore, perhaps by another tracer"
        }
        Refusal::NotAtEntry => {
            "its program returns at once, which is possible at a function's entry only"
        }
        Refusal::NoWriteLimit => "its program writes, and it is not said how often it may",
        Refusal::BadLimit => "its limit of hits is too high",
        Refusal::MayNotSeeKernel => "the kernel's stack is for those only who have CAP_SYSLOG",
        Refusal::SystemCall => {
            "it is a system call, which the kernel cannot probe: the program would crash"
        }
        Refusal::Twice => "the session has the same probe there already",
        Refusal::NeedsAnswer => {
            "a server answers for its file system (FUSE, NFS, SMB, 9p or the like), and while that \
             does not, no process of this machine could fork"
        }
        Refusal::BadFrequency => "CPUs are sampled from 1 to 10000 times a second",
        Refusal::Kernel => return kernel(errno),
        Refusal::None => return format!("the kernel refused the probe: {errno}"),
    };
    sentence.to_owned()
}

/// What `uprobe_register` means by its error.
fn kernel(errno: Errno) -> String {
    match errno {
        Errno::EIO => "its file system cannot carry probes".to_owned(),
        Errno::ENOEXEC | Errno::EINVAL | Errno::EOPNOTSUPP => {
            format!("the kernel cannot probe the instruction at this offset ({errno})")
        }
        other => format!("the kernel refused the probe: {other}"),
    }
}

fn corrupt(why: Corrupt) -> String {
    match why {
        Corrupt::Length(word) => format!("a record of impossible length (word {word:#x})"),
        Corrupt::Overrun(word) => format!("a record reaches behind the end (word {word:#x})"),
    }
}
