// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The requests of `/dev/nsprobe`: ioctl numbers, their structs and constants.
//!
//! Every request struct starts with `size` (bytes of the struct as the caller
//! knows it) and `flags` (zero unless a constant here says otherwise); fields
//! named `reserved` are zero. The kernel accepts any `size` from that of the
//! first version on: a smaller struct is filled with zeroes, a larger one is
//! accepted when the tail is zero (the rule of `copy_struct_from_user`, see
//! `Documentation/process/botching-up-ioctls.rst`). The kernel writes back at
//! most `size` bytes. The layout is the same for 32-bit callers. The size in an
//! ioctl number is that of the struct as the caller knows it and is not looked at:
//! [`TYPE`] and number distinguish requests.

mod kept;
mod probe;
mod tasks;

pub use kept::*;
pub use probe::*;
pub use tasks::*;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The versions of this ABI, each with what it added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Version {
    /// Sessions, entry probes, the pid and pid-namespace filter, hit, object and
    /// lost records, frame-pointer stacks.
    V1 = 1,
    /// Return probes, and programs that fetch and require.
    V2 = 2,
    /// Sinks other than the ring: counters, tables, spans.
    V3 = 3,
    /// USDT semaphores; filters by thread, user, name, control group and with children,
    /// which may be changed; programs that write.
    V4 = 4,
    /// Events of tasks, the tasks that live, and CPU times.
    V5 = 5,
    /// Ids of pid namespaces in hits, tasks, CPU times, filters and programs. The oldest that
    /// is served: records have another layout.
    V6 = 6,
}

impl Version {
    /// The version that this source implements.
    pub const CURRENT: Version = Version::V6;
}

/// The path of the device.
pub const DEVICE: &str = "/dev/nsprobe";

/// The type byte of every request (free in
/// `Documentation/userspace-api/ioctl/ioctl-number.rst`).
pub const TYPE: u32 = 0xe9;

/// Number of [`Info`].
pub const NR_INFO: u32 = 0;
/// Number of [`Setup`].
pub const NR_SETUP: u32 = 1;
/// Number of [`Filter`].
pub const NR_FILTER: u32 = 2;
/// Number of [`Attach`].
pub const NR_ATTACH: u32 = 3;
/// Number of [`Detach`].
pub const NR_DETACH: u32 = 4;
/// Number of [`Counters`].
pub const NR_COUNTERS: u32 = 5;
/// Number of [`Object`].
pub const NR_OBJECT: u32 = 6;
/// Number of [`Program`].
pub const NR_PROGRAM: u32 = 7;
/// Number of [`Table`].
pub const NR_TABLE: u32 = 8;
/// Number of [`Rows`].
pub const NR_ROWS: u32 = 9;
/// Number of [`Freeze`].
pub const NR_FREEZE: u32 = 10;

/// Number of [`File`].
pub const NR_FILE: u32 = 11;
/// Number of [`Unwind`].
pub const NR_UNWIND: u32 = 12;
/// Number of [`Stack`].
pub const NR_STACK: u32 = 13;
/// Number of [`Tasks`].
pub const NR_TASKS: u32 = 14;
/// Number of [`TaskDump`].
pub const NR_TASK_DUMP: u32 = 15;
/// Number of [`CpuTimes`].
pub const NR_CPU_TIMES: u32 = 16;
/// Number of [`TaskCounters`].
pub const NR_TASK_COUNTERS: u32 = 17;

/// Number of [`DropSpans`].
pub const NR_DROP_SPANS: u32 = 18;

/// Number of [`Hold`].
pub const NR_HOLD: u32 = 19;
/// Number of [`Held`].
pub const NR_HELD: u32 = 20;

/// `_IOWR(TYPE, nr, size)` of `include/uapi/asm-generic/ioctl.h`.
pub const fn iowr(nr: u32, size: usize) -> u32 {
    (3 << 30) | ((size as u32 & 0x3fff) << 16) | (TYPE << 8) | nr
}

/// The number part of an ioctl command.
pub const fn ioctl_nr(cmd: u32) -> u32 {
    cmd & 0xff
}

/// The type part of an ioctl command.
pub const fn ioctl_type(cmd: u32) -> u32 {
    (cmd >> 8) & 0xff
}

/// Command of [`Info`].
pub const INFO: u32 = iowr(NR_INFO, size_of::<Info>());
/// Command of [`Setup`].
pub const SETUP: u32 = iowr(NR_SETUP, size_of::<Setup>());
/// Command of [`Filter`].
pub const FILTER: u32 = iowr(NR_FILTER, size_of::<Filter>());
/// Command of [`Attach`].
pub const ATTACH: u32 = iowr(NR_ATTACH, size_of::<Attach>());
/// Command of [`Detach`].
pub const DETACH: u32 = iowr(NR_DETACH, size_of::<Detach>());
/// Command of [`Counters`].
pub const COUNTERS: u32 = iowr(NR_COUNTERS, size_of::<Counters>());
/// Command of [`Object`].
pub const OBJECT: u32 = iowr(NR_OBJECT, size_of::<Object>());
/// Command of [`Program`].
pub const PROGRAM: u32 = iowr(NR_PROGRAM, size_of::<Program>());
/// Command of [`Table`].
pub const TABLE: u32 = iowr(NR_TABLE, size_of::<Table>());
/// Command of [`Rows`].
pub const ROWS: u32 = iowr(NR_ROWS, size_of::<Rows>());
/// Command of [`Freeze`].
pub const FREEZE: u32 = iowr(NR_FREEZE, size_of::<Freeze>());

/// Command of [`File`].
pub const FILE: u32 = iowr(NR_FILE, size_of::<File>());
/// Command of [`Unwind`].
pub const UNWIND: u32 = iowr(NR_UNWIND, size_of::<Unwind>());
/// Command of [`Stack`].
pub const STACK: u32 = iowr(NR_STACK, size_of::<Stack>());
/// Command of [`Tasks`].
pub const TASKS: u32 = iowr(NR_TASKS, size_of::<Tasks>());
/// Command of [`TaskDump`].
pub const TASK_DUMP: u32 = iowr(NR_TASK_DUMP, size_of::<TaskDump>());
/// Command of [`CpuTimes`].
pub const CPU_TIMES: u32 = iowr(NR_CPU_TIMES, size_of::<CpuTimes>());
/// Command of [`TaskCounters`].
pub const TASK_COUNTERS: u32 = iowr(NR_TASK_COUNTERS, size_of::<TaskCounters>());
/// Command of [`DropSpans`].
pub const DROP_SPANS: u32 = iowr(NR_DROP_SPANS, size_of::<DropSpans>());
/// Command of [`Hold`].
pub const HOLD: u32 = iowr(NR_HOLD, size_of::<Hold>());
/// Command of [`Held`].
pub const HELD: u32 = iowr(NR_HELD, size_of::<Held>());

/// [`Info::features`]: entry probes.
pub const FEATURE_ENTRY: u64 = 1 << 0;
/// [`Info::features`]: user stacks by frame pointers.
pub const FEATURE_STACK_FP: u64 = 1 << 1;
/// [`Info::features`]: filters by process and by pid namespace.
pub const FEATURE_FILTER_PID: u64 = 1 << 2;
/// [`Info::features`]: [`OBJECT_FD`] hands out the file of an object.
pub const FEATURE_OBJECT_FD: u64 = 1 << 3;
/// [`Info::features`]: return probes.
pub const FEATURE_RETURN: u64 = 1 << 5;
/// [`Info::features`]: programs that fetch and require.
pub const FEATURE_PROGRAM: u64 = 1 << 6;
/// [`Info::features`]: sinks other than the ring.
pub const FEATURE_SINKS: u64 = 1 << 7;
/// [`Info::features`]: USDT semaphores.
pub const FEATURE_SEMAPHORE: u64 = 1 << 8;
/// [`Info::features`]: filters by thread, user, name, control group, with children; a
/// filter may be changed at any time.
pub const FEATURE_FILTERS: u64 = 1 << 9;
/// [`Info::features`]: programs that write, where the module's parameter allows it.
pub const FEATURE_MODIFY: u64 = 1 << 10;
/// [`Info::features`]: [`Probe::every`], [`Probe::rate`] and [`Probe::runaway`].
pub const FEATURE_LIMITS: u64 = 1 << 11;
/// [`Info::features`]: [`SETUP_OVERWRITE`], [`Freeze`] and [`PROBE_FREEZES`].
pub const FEATURE_FLIGHT: u64 = 1 << 12;
/// [`Info::features`]: [`File`] and [`FILTER_PIDNS_LIST`].
pub const FEATURE_FOLLOW: u64 = 1 << 13;
/// [`Info::features`]: [`Unwind`].
pub const FEATURE_UNWIND: u64 = 1 << 14;
/// [`Info::features`]: [`PROBE_STACK_IDS`], [`PROBE_KERNEL_STACK`], [`PROBE_LATE`], [`Stack`]
/// and [`UNWIND_VDSO`].
pub const FEATURE_STACKS: u64 = 1 << 15;
/// [`Info::features`]: [`UNWIND_DROP`].
pub const FEATURE_DROP: u64 = 1 << 16;
/// [`Info::features`]: [`Tasks`], [`TaskDump`], [`CpuTimes`] and [`TaskCounters`].
pub const FEATURE_TASKS: u64 = 1 << 17;
/// [`Info::features`]: [`PROBE_BEGIN`], [`PROBE_END`] and [`PROBE_LEAVE`].
pub const FEATURE_EXITS: u64 = 1 << 18;
/// [`Info::features`]: [`PROBE_SAMPLE`].
pub const FEATURE_SAMPLES: u64 = 1 << 19;
/// [`Info::features`]: [`DropSpans`], [`PROBE_STACK_IDS`] with [`SINK_SPAN`], and
/// [`Context::Random`](super::program::Context::Random).
pub const FEATURE_SPANS: u64 = 1 << 20;
/// [`Info::features`]: [`ATTACH_PARTIAL`], and processes that cannot be probed cost themselves
/// alone ([`Counters::processes_failed`]).
pub const FEATURE_PARTIAL: u64 = 1 << 21;
/// [`Info::features`]: [`PROBE_MAY_HANG`], [`OBJECT_DROP`] and [`DETACH_ALL`].
pub const FEATURE_REMOTE: u64 = 1 << 22;
/// [`Info::features`]: [`PROBE_WAIT`] and [`PROBE_WAKE`].
pub const FEATURE_WAITS: u64 = 1 << 23;
/// [`Info::features`]: [`PROBE_GO`].
pub const FEATURE_GO: u64 = 1 << 24;
/// [`Info::features`]: [`Hold`] and [`Held`].
pub const FEATURE_HOLD: u64 = 1 << 25;
/// [`Info::features`]: [`ROWS_TAKE`].
pub const FEATURE_TAKE: u64 = 1 << 26;

/// Smallest ring of one CPU, in bytes.
pub const RING_BYTES_MIN: u64 = 4096;
/// Largest ring of one CPU, in bytes.
pub const RING_BYTES_MAX: u64 = 1 << 28;
/// Largest sum of the rings of one session, in bytes.
pub const RING_BYTES_TOTAL_MAX: u64 = 1 << 32;
/// Most probes in one session.
pub const PROBES_MAX: u32 = 1 << 20;
/// Most probes in one [`Attach`].
pub const ATTACH_MAX: u32 = 1 << 16;
/// Most frames in one stack.
pub const FRAMES_MAX: u32 = 127;
/// Most processes or threads in the list of a [`Filter`].
pub const FILTER_PIDS_MAX: u32 = 64;
/// Most objects in one session; frames in further ones are raw addresses.
pub const OBJECTS_MAX: u32 = 1 << 12;
/// Bytes reserved for a build-id (ELF notes of GNU ld, gold, lld and mold are 8,
/// 16 or 20 long; the kernel's own `BUILD_ID_SIZE_MAX` is 20).
pub const BUILD_ID_MAX: usize = 20;

/// Version, features and state of the module. Works on any open file.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// [`Version`] that the module implements.
    pub version: u32,
    /// Oldest version that the module still serves.
    pub version_min: u32,
    /// `FEATURE_*` bits.
    pub features: u64,
    /// Sessions currently open in the whole module.
    pub sessions: u32,
    /// Probes currently attached in the whole module.
    pub probes: u32,
    /// Rings that [`Setup`] makes: one for each possible CPU.
    pub rings: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// The module's release, NUL-padded.
    pub release: [u8; 32],
}
const _: () = assert!(size_of::<Info>() == 72);

/// [`Setup::flags`]: probes of this session may have programs that write. Needs
/// CAP_SYS_ADMIN in the initial user namespace (`EPERM`), the module's parameter
/// `allow_modify`, and a kernel that is not locked down (`EACCES`). Not with [`SETUP_OVERWRITE`]
/// (`EINVAL`): the record of each change is kept.
pub const SETUP_MODIFY: u32 = 1 << 1;

/// [`Setup::flags`]: rings keep the newest records, and new ones replace the oldest. They can be
/// read only while they are frozen ([`Freeze`]).
pub const SETUP_OVERWRITE: u32 = 1 << 2;

/// Makes the session's rings. Once per session, before the first [`Attach`]. `EPERM` unless the
/// caller may open the device.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Setup {
    /// Bytes of this struct.
    pub size: u32,
    /// `SETUP_*` bits.
    pub flags: u32,
    /// Bytes of data in each ring: a power of two, [`RING_BYTES_MIN`] to
    /// [`RING_BYTES_MAX`], and at most [`RING_BYTES_TOTAL_MAX`] for all rings.
    pub ring_bytes: u64,
    /// `poll()` and a blocking `read()` wake when a ring holds this many bytes;
    /// 0 means at the first record; at most `ring_bytes`.
    pub watermark_bytes: u64,
    /// Out: the number of rings.
    pub rings: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: ring `i` is mapped at file offset `i * mmap_stride`: there the
    /// [consumer page](super::ring::ConsumerPage) (read and write, a mapping of
    /// its own), one page later the [producer page](super::ring::ProducerPage)
    /// and after it the data (both read-only). The data may be mapped once more by
    /// itself, after the first, so that a record around the end is in one piece.
    pub mmap_stride: u64,
}
const _: () = assert!(size_of::<Setup>() == 40);

/// [`Filter::flags`]: only these processes.
pub const FILTER_PIDS: u32 = 1 << 0;
/// [`Filter::flags`]: only tasks in this pid namespace or one below it.
pub const FILTER_PIDNS: u32 = 1 << 1;
/// [`Filter::flags`]: also trace the session owner's own process.
pub const FILTER_SELF: u32 = 1 << 2;

/// [`Filter::flags`]: only these threads; not with [`FILTER_PIDS`].
pub const FILTER_TIDS: u32 = 1 << 3;
/// [`Filter::flags`]: only tasks whose effective user id, as the initial user
/// namespace numbers it, is [`Filter::uid`] at the hit.
pub const FILTER_UID: u32 = 1 << 4;
/// [`Filter::flags`]: only threads whose name is [`Filter::comm`] at the hit.
pub const FILTER_COMM: u32 = 1 << 5;
/// [`Filter::flags`]: only tasks in this control group (cgroup v2) or one below it, at
/// the hit. A process gets its breakpoints when it maps the file (so with each
/// `execve`), and when a probe is attached or the filter set, if its leader is in the
/// group at that moment: one that is moved in while it runs is traced from its next
/// `execve` or the next [`Filter`] on; one that is moved out is not traced any more.
pub const FILTER_CGROUP: u32 = 1 << 6;
/// [`Filter::flags`]: with [`FILTER_PIDS`] or [`FILTER_TIDS`]: processes (and threads
/// of listed threads) that tasks in the list fork from now on are in the list too.
/// Those of a filter before are not.
pub const FILTER_CHILDREN: u32 = 1 << 7;
/// [`Filter::flags`]: instead of [`FILTER_PIDNS`]: only tasks in one of several pid
/// namespaces or below.
pub const FILTER_PIDNS_LIST: u32 = 1 << 8;
/// [`Filter::flags`]: no samples of tasks that run the program of [`Filter::program_fd`], such as
/// the owner's helpers.
pub const FILTER_NOT_PROGRAM: u32 = 1 << 9;

/// Most pid namespaces in [`Filter::pidns_list`].
pub const FILTER_PIDNS_MAX: u32 = 256;

/// Most tasks that [`FILTER_CHILDREN`] adds at one time, of processes and of threads;
/// what is forked beyond that is counted (`filter-missed` in fdinfo) and not traced.
pub const FILTER_CHILDREN_MAX: u32 = 1 << 14;

/// Sets which tasks are traced. Without a filter, all tasks that the session owner's pid namespace
/// sees, but not the owner's own process. All conditions must hold. It may be called at any time
/// and replaces the previous filter: when it returns, no hit is judged by the old one any more, and
/// processes carry breakpoints as the new one requires.
///
/// Errors: `ESRCH` no such process; `ESTALE` the process is not in the pid namespace that
/// `pidns_id` names; `EBADF`, `ENOENT` no such control group; `ENOMEM`. On failure the previous
/// filter stays.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Filter {
    /// Bytes of this struct.
    pub size: u32,
    /// `FILTER_*` bits.
    pub flags: u32,
    /// With [`FILTER_PIDS`]: address of `pid_count` process ids (u32), as the
    /// caller's pid namespace numbers them. The kernel holds the identity of
    /// each process, so that a recycled number never counts.
    pub pids: u64,
    /// 1 to [`FILTER_PIDS_MAX`].
    pub pid_count: u32,
    /// With [`FILTER_PIDNS`]: a process in the requested pid namespace.
    pub pidns_pid: u32,
    /// With [`FILTER_PIDNS`]: the id of that namespace, checked against the
    /// process's.
    pub pidns_id: u64,
    /// With [`FILTER_TIDS`]: address of `tid_count` thread ids (u32), otherwise as
    /// `pids`.
    pub tids: u64,
    /// 1 to [`FILTER_PIDS_MAX`].
    pub tid_count: u32,
    /// With [`FILTER_UID`]: the user id.
    pub uid: u32,
    /// With [`FILTER_COMM`]: the name, at most 15 bytes, NUL-padded.
    pub comm: [u8; 16],
    /// With [`FILTER_CGROUP`]: the inode number of the group's directory, or zero for
    /// `cgroup_fd`.
    pub cgroup_id: u64,
    /// With [`FILTER_CGROUP`] and without `cgroup_id`: a file descriptor of the group's
    /// directory.
    pub cgroup_fd: i32,
    /// Zero.
    pub reserved2: u32,
    /// With [`FILTER_PIDNS_LIST`]: address of `pidns_count` [`PidNamespace`]s.
    pub pidns_list: u64,
    /// 1 to [`FILTER_PIDNS_MAX`].
    pub pidns_count: u32,
    /// With [`FILTER_NOT_PROGRAM`]: a file descriptor of the program; zero otherwise.
    pub program_fd: i32,
}
const _: () = assert!(size_of::<Filter>() == 96);

/// A pid namespace, named by one of its processes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PidNamespace {
    /// A process in it, as the caller's pid namespace numbers it.
    pub pid: u32,
    /// Zero.
    pub reserved: u32,
    /// Its id (`NS_GET_ID`), checked against the process's.
    pub id: u64,
}
const _: () = assert!(size_of::<PidNamespace>() == 16);

/// Bytes of [`Filter`] in [`Version::V1`].
pub const FILTER_BYTES_V1: usize = 32;
