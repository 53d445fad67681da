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
//! requests are told apart by [`TYPE`] and number.

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
}

impl Version {
    /// The version that this source implements.
    pub const CURRENT: Version = Version::V4;
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

/// [`Info::features`]: entry probes.
pub const FEATURE_ENTRY: u64 = 1 << 0;
/// [`Info::features`]: user stacks by frame pointers.
pub const FEATURE_STACK_FP: u64 = 1 << 1;
/// [`Info::features`]: filters by process and by pid namespace.
pub const FEATURE_FILTER_PID: u64 = 1 << 2;
/// [`Info::features`]: [`OBJECT_FD`] hands out the file of an object.
pub const FEATURE_OBJECT_FD: u64 = 1 << 3;
/// [`Info::features`]: [`SETUP_TEXT`].
pub const FEATURE_TEXT: u64 = 1 << 4;
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

/// What the module is and can do. Works on any open file.
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
    /// Sessions open now, in the whole module.
    pub sessions: u32,
    /// Probes attached now, in the whole module.
    pub probes: u32,
    /// Rings that [`Setup`] makes: one for each possible CPU.
    pub rings: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// The module's release, NUL-padded.
    pub release: [u8; 32],
}
const _: () = assert!(size_of::<Info>() == 72);

/// [`Setup::flags`]: `read()` gives one line of text per record instead of the
/// records themselves.
pub const SETUP_TEXT: u32 = 1 << 0;

/// [`Setup::flags`]: probes of this session may have programs that write. Needs
/// CAP_SYS_ADMIN in the initial user namespace (`EPERM`), the module's parameter
/// `allow_modify`, and a kernel that is not locked down (`EACCES`).
pub const SETUP_MODIFY: u32 = 1 << 1;

/// [`Setup::flags`]: rings keep the newest records, and new ones take the place of the
/// oldest. They are read while they are frozen ([`Freeze`]), and only then.
pub const SETUP_OVERWRITE: u32 = 1 << 2;

/// Makes the session's rings. Once per session, before the first [`Attach`].
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
    /// Out: how many rings there are.
    pub rings: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: ring `i` is mapped at file offset `i * mmap_stride`: there the
    /// [consumer page](super::ring::ConsumerPage) (read and write, a mapping of
    /// its own), one page later the [producer page](super::ring::ProducerPage)
    /// and behind it the data (both read-only). The data may be mapped once more by
    /// itself, behind the first, so that a record around the end is in one piece.
    pub mmap_stride: u64,
}
const _: () = assert!(size_of::<Setup>() == 40);

/// [`Filter::flags`]: only these processes.
pub const FILTER_PIDS: u32 = 1 << 0;
/// [`Filter::flags`]: only tasks in this pid namespace or one below it.
pub const FILTER_PIDNS: u32 = 1 << 1;
/// [`Filter::flags`]: the opener's own process counts too.
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

/// Most pid namespaces in [`Filter::pidns_list`].
pub const FILTER_PIDNS_MAX: u32 = 256;

/// Most tasks that [`FILTER_CHILDREN`] adds at one time, of processes and of threads;
/// what is forked beyond that is counted (`filter-missed` in fdinfo) and not traced.
pub const FILTER_CHILDREN_MAX: u32 = 1 << 14;

/// Who is traced; without it everything that the opener's pid namespace can see, but
/// not the opener's own process. Conditions are joined by "and". It may be called at
/// any time and takes the place of the filter before: when it returns, no hit is
/// judged by that any more, and processes carry breakpoints as the new one wants it.
///
/// Errors: `ESRCH` no such process; `ESTALE` the process is not in the pid namespace
/// that `pidns_inum` names; `EBADF`, `ENOENT` no such control group; `ENOMEM`. The
/// filter is then the one before.
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
    /// With [`FILTER_PIDNS`]: a process in the wanted pid namespace.
    pub pidns_pid: u32,
    /// With [`FILTER_PIDNS`]: the inode number of that namespace, checked
    /// against the process's.
    pub pidns_inum: u32,
    /// Zero.
    pub reserved: u32,
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
    /// Zero.
    pub reserved3: u32,
}
const _: () = assert!(size_of::<Filter>() == 96);

/// A pid namespace, named by one of its processes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PidNamespace {
    /// A process in it, as the caller's pid namespace numbers it.
    pub pid: u32,
    /// Its inode number, checked against the process's.
    pub inum: u32,
}
const _: () = assert!(size_of::<PidNamespace>() == 8);

/// Bytes of [`Filter`] in [`Version::V1`].
pub const FILTER_BYTES_V1: usize = 32;

/// [`Probe::kind`]: before the instruction at `offset` runs.
pub const PROBE_ENTRY: u32 = 1;
/// [`Probe::kind`]: when the function that begins at `offset` returns. The kernel
/// replaces its return address: not for functions that unwind through their
/// callers (exceptions) or move their stack (Go). At most 64 calls of one thread
/// can be waiting; further ones return unseen.
pub const PROBE_RETURN: u32 = 2;
/// [`Probe::kind`]: both. The return knows when its call began and what the entry
/// program kept. A call whose entry the program rejects has no return.
pub const PROBE_CALL: u32 = 3;

/// [`Probe::flags`]: take the user stack.
pub const PROBE_STACK: u32 = 1 << 0;
/// [`Probe::flags`]: at the hit the return address is on top of the stack
/// (nothing of the function's prologue that moves the stack pointer has run).
/// User space knows it from the symbol table; without it the caller of the
/// probed function is missing from frame-pointer stacks.
pub const PROBE_AT_ENTRY: u32 = 1 << 1;
/// [`Probe::flags`]: of a [`PROBE_CALL`], only the returns count. Entries run
/// their program (which keeps values) and go nowhere; only one that the filter or
/// the program turns away is counted, as a hit that was `filtered` or `rejected`.
pub const PROBE_RETURN_ONLY: u32 = 1 << 2;

/// [`Probe::sink`]: a record in the ring.
pub const SINK_RECORD: u32 = 0;
/// [`Probe::sink`]: nothing but the probe's counters.
pub const SINK_COUNT: u32 = 1;
/// [`Probe::sink`]: the row of [`Probe::table`] that the program's key steps name.
/// What is added there is the program's value; without one, the nanoseconds since
/// the call's entry at a return, and 1 elsewhere.
pub const SINK_TABLE: u32 = 2;
/// [`Probe::sink`]: begins a span in [`Probe::table`], under the program's key;
/// a span of the same key that had begun before is replaced.
pub const SINK_SPAN: u32 = 3;

/// [`Probe::flags`]: a hit that is delivered freezes the rings, with its own record in
/// them. Only in a session with [`SETUP_OVERWRITE`].
pub const PROBE_FREEZES: u32 = 1 << 3;
/// [`Probe::flags`]: with [`PROBE_STACK`] and [`SINK_RECORD`]: where a stack goes through a
/// file that has no unwind rows, a [`StackCopy`](super::record::StackCopy) record precedes
/// the hit's, which then ends with [`StackEnd::Copied`](super::record::StackEnd::Copied).
/// With [`SINK_TABLE`] such a hit is recorded, and in no row yet: the value and the key are
/// its fields.
pub const PROBE_COPIES: u32 = 1 << 4;

/// [`Probe::flags`]: with [`PROBE_STACK`] and [`SINK_RECORD`]: equal stacks are kept once,
/// and records name them by an id ([`Hit::stack`](super::record::Hit::stack)). When there is
/// no room for more, the frames are in the record, as without this.
pub const PROBE_STACK_IDS: u32 = 1 << 5;
/// [`Probe::flags`]: with [`SINK_RECORD`]: take the kernel's stack, too. Needs CAP_SYSLOG in
/// the initial user namespace ([`Refusal::MayNotSeeKernel`]).
pub const PROBE_KERNEL_STACK: u32 = 1 << 6;
/// [`Probe::flags`]: with [`PROBE_STACK`] and [`SINK_RECORD`]: where a page of a stack in
/// private memory is not there (paged out), the hit's record ends with
/// [`StackEnd::Late`](super::frame::StackEnd::Late), and a
/// [`LateStack`](super::record::LateStack) follows. The page is fetched before the task goes
/// on, when the breakpoint's handlers are done. Not for memory of files, nor for what a
/// userfaultfd serves: there the stack ends with a fault. With [`SINK_TABLE`] as
/// [`PROBE_COPIES`].
pub const PROBE_LATE: u32 = 1 << 7;

/// Words of all stacks that a session keeps with [`PROBE_STACK_IDS`], each with one more.
pub const STACK_TABLE_WORDS: usize = 1 << 19;
/// Most stacks that wait for a page at one time; further ones end with a fault.
pub const LATE_MAX: usize = 64;

/// Most words of a stack's memory in a copy.
pub const STACK_COPY_WORDS_MAX: usize = 2048;
/// Most mappings in a copy.
pub const CODE_MAPPINGS_MAX: usize = 128;

/// One probe of an [`Attach`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Probe {
    /// A file descriptor open for reading: the file to probe. On overlayfs the
    /// probe goes to the real file beneath.
    pub fd: i32,
    /// `PROBE_ENTRY`, `PROBE_RETURN` or `PROBE_CALL`.
    pub kind: u32,
    /// `PROBE_*` bits.
    pub flags: u32,
    /// Most frames of a stack, up to [`FRAMES_MAX`]; 0 means the most.
    pub max_frames: u32,
    /// File offset of the instruction that gets the breakpoint.
    pub offset: u64,
    /// File offset that records give as frame 0: the function's entry when the
    /// breakpoint sits behind it. Zero: `offset`.
    pub report_offset: u64,
    /// File offset of the USDT semaphore: a `u16` in the program's data that the
    /// kernel counts up in each process that has the breakpoint, and down again. Zero:
    /// none. All probes of one instruction, those of other tracers too, must agree.
    pub semaphore: u64,
    /// Out: the probe's id in this session, from 1 on, never reused.
    pub id: u32,
    /// `SINK_*`: what becomes of a hit.
    pub sink: u32,
    /// Id of the [`Program`] that runs at the entry, or zero.
    pub entry_program: u32,
    /// Id of the [`Program`] that runs at the return, or zero.
    pub return_program: u32,
    /// Id of the [`Table`] of [`SINK_TABLE`] and [`SINK_SPAN`], or zero.
    pub table: u32,
    /// Id of the [`Table`] whose spans the program ends (`EndSpan`), or zero.
    pub span: u32,
    /// Most writes that the probe's programs may make, of all kinds and processes: from 1
    /// on when they have such, else zero. Further ones are withheld, and counted.
    pub max_writes: u32,
    /// Deliver one in so many of the hits that the filter and the program let through,
    /// counted on each CPU, beginning with the first. Zero and one: all.
    pub every: u32,
    /// Deliver at most so many hits a second, over all CPUs; further ones are counted as
    /// limited. Up to [`RATE_MAX`](super::limit::RATE_MAX); zero: all.
    pub rate: u32,
    /// With `rate`: how many hits may come at once. Zero: as many as in a second.
    pub burst: u32,
    /// Turn the probe off for good when it is hit more than so many times a second, over
    /// all CPUs and tasks, delivered or not; an [`OffRecord`](super::record::OffRecord)
    /// tells it. Up to [`RATE_MAX`](super::limit::RATE_MAX); zero: never.
    pub runaway: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Probe>() == 88);

/// Bytes of [`Probe`] in [`Version::V1`]: the least that [`Attach`] takes.
pub const PROBE_BYTES_V1: usize = 48;

/// Attaches `count` probes, all or none.
///
/// Errors: `EINVAL`, `EBADF`, `EIO` (the file system cannot carry probes),
/// `ENOEXEC` (the offset is not in the file or not at a decodable instruction),
/// `ENOSPC` (too many probes), `ENXIO` ([`Setup`] is missing); `failed` and
/// `reason` tell which probe and why. All are checked before the first breakpoint is
/// put in. A breakpoint may be hit before the call returns, and also when it fails in
/// the end: ids under which there may be records are not used again.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attach {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// Address of `count` structs [`Probe`]; their ids are written back.
    pub probes: u64,
    /// 1 to [`ATTACH_MAX`].
    pub count: u32,
    /// Bytes of one struct [`Probe`] as the caller knows it.
    pub probe_size: u32,
    /// Out, on error: index of the probe that could not be attached.
    pub failed: u32,
    /// Out, on error: a [`Refusal`].
    pub reason: u32,
}
const _: () = assert!(size_of::<Attach>() == 32);

/// Most programs in one session.
pub const PROGRAMS_MAX: u32 = 1 << 12;

/// Keeps a program in the session, for probes to name. It is checked first.
///
/// Errors: `EINVAL` with [`flaw`](Self::flaw), `ENOSPC` too many programs.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Program {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// Address of the steps (see [`Step`](super::program::Step)).
    pub steps: u64,
    /// Address of the constant bytes.
    pub data: u64,
    /// How many steps there are.
    pub step_count: u32,
    /// How many constant bytes there are.
    pub data_bytes: u32,
    /// Out: the program's id in this session, from 1 on.
    pub id: u32,
    /// Out, on error: a [`Flaw`](super::program::Flaw), or zero.
    pub flaw: u32,
    /// Out, on error: the index of the step that is wrong.
    pub flaw_step: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Program>() == 48);

/// Most tables in one session.
pub const TABLES_MAX: u32 = 1 << 10;
/// Most rows in one table.
pub const ROWS_MAX: u32 = 1 << 24;
/// Most bytes of all tables of one session.
pub const TABLE_BYTES_MAX: u64 = 1 << 30;

/// [`Table::kind`]: rows of count, sum, least and greatest.
pub const TABLE_SUMS: u32 = 1;
/// [`Table::kind`]: the same, and a histogram.
pub const TABLE_HISTOGRAM: u32 = 2;
/// [`Table::kind`]: spans that have begun and not ended. A row's sum is the value
/// that the span began with.
pub const TABLE_SPANS: u32 = 3;

/// Greatest `log_bits`: sixteen buckets for each power of two, a relative error of
/// at most 6 %.
pub const LOG_BITS_MAX: u32 = 4;
/// Most buckets of a linear scale, without the two at its ends.
pub const LINEAR_MAX: u32 = 1 << 12;

/// [`Table::scale`]: each power of two is `1 << log_bits` buckets (see
/// `common/src/histogram.rs`).
pub const SCALE_LOG: u32 = 1;
/// [`Table::scale`]: `buckets` buckets of `step` each from `low` on, one for what
/// is below and one for what is above.
pub const SCALE_LINEAR: u32 = 2;

/// Makes a table that probes of this session count into; it lives as long as the
/// session. Its memory is taken now.
///
/// Errors: `EINVAL` a kind, scale or size that cannot be, `ENOSPC` too many
/// tables or bytes, `ENOMEM`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Table {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// `TABLE_*`.
    pub kind: u32,
    /// Most rows, from 1 to [`ROWS_MAX`]; the table may have room for some more.
    /// Without key and stack there is one row for each CPU, and this is not looked
    /// at.
    pub rows: u32,
    /// Words of the key that programs give: 0 to
    /// [`KEY_WORDS_MAX`](super::program::KEY_WORDS_MAX).
    pub key_words: u32,
    /// Most frames of a row's stack, or zero. The stack is part of the key, but for
    /// spans.
    pub max_frames: u32,
    /// Of a histogram, `SCALE_*`; else zero.
    pub scale: u32,
    /// Of a logarithmic scale: 0 to
    /// [`LOG_BITS_MAX`].
    pub log_bits: u32,
    /// Of a linear scale: where the first bucket begins.
    pub low: i64,
    /// Of a linear scale: how wide a bucket is, from 1 on.
    pub step: u64,
    /// Of a linear scale: how many buckets, 1 to
    /// [`LINEAR_MAX`].
    pub buckets: u32,
    /// Out: the table's id in this session, from 1 on.
    pub id: u32,
    /// Out: bytes of one row as [`Rows`] gives it.
    pub row_bytes: u32,
    /// Out: how many rows there is room for.
    pub capacity: u32,
}
const _: () = assert!(size_of::<Table>() == 64);

/// Reads the rows of a table, from `first` on, as many as fit. Rows are in no
/// order; one key may have several rows, which are to be added up. Hits go on
/// meanwhile: a row's numbers may differ by the hits of that moment.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rows {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the table's id.
    pub table: u32,
    /// In: 0 at first, then what came out. Out: where to go on; 0 at the end.
    pub next: u32,
    /// In: address of the room for rows.
    pub buffer: u64,
    /// In: bytes of that room, at least one row.
    pub buffer_bytes: u32,
    /// Out: rows that were written.
    pub count: u32,
    /// Out: hits for which there was no row, since the table was made.
    pub turned_away: u64,
    /// Out: spans that were replaced by one of the same key, since then.
    pub replaced: u64,
}
const _: () = assert!(size_of::<Rows>() == 48);

/// What each row of [`Rows`] begins with. The key follows (`key_words` words), then
/// `stack_capacity` words of which the first `stack_words` are frames, then the
/// buckets.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Row {
    /// Hits.
    pub count: u64,
    /// Sum of their values; of a span, its value.
    pub sum: i64,
    /// Least value.
    pub least: i64,
    /// Greatest value.
    pub greatest: i64,
    /// When a span began, CLOCK_MONOTONIC in nanoseconds; else zero.
    pub time_ns: u64,
    /// Words of the key.
    pub key_words: u16,
    /// Words of the stack.
    pub stack_words: u16,
    /// Words that the stack has room for.
    pub stack_capacity: u16,
    /// Why the stack ends, a [`StackEnd`](super::record::StackEnd).
    pub stack_end: u16,
    /// Words of buckets.
    pub buckets: u32,
    /// The task that began a span, as the opener's pid namespace numbers it; else
    /// zero.
    pub tid: u32,
}
const _: () = assert!(size_of::<Row>() == 56);

/// Why a request was refused ([`Attach::reason`]). Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// No reason beyond the error number.
    None = 0,
    /// The session has no rings yet.
    NoSetup = 1,
    /// A flag, kind or reserved field has a value that this version does not know.
    UnknownValue = 2,
    /// The file descriptor is not open, or not for reading.
    BadFd = 3,
    /// Not a regular file.
    NotRegular = 4,
    /// The offset lies behind the end of the file.
    OutsideFile = 5,
    /// The session has too many probes.
    TooMany = 6,
    /// The kernel's `uprobe_register` refused: the instruction cannot be probed,
    /// or the file system cannot carry probes; the error number tells which.
    Kernel = 7,
    /// Too little memory.
    NoMemory = 8,
    /// The session has no program or table of this id.
    NoSuchId = 9,
    /// A program of this probe writes, which this session, or who asks for it, may not
    /// ([`SETUP_MODIFY`]).
    MayNotWrite = 10,
    /// Sink, table, span and programs do not fit together: a table that the sink
    /// does not take, of another kind, or of another number of key words.
    Mismatch = 11,
    /// The semaphore is odd, lies outside the file, or overlaps the instruction.
    BadSemaphore = 12,
    /// The instruction is probed with another semaphore, or without one.
    SemaphoreConflict = 13,
    /// A program returns at once and the probe is not [`PROBE_AT_ENTRY`], or it is the
    /// program of the return.
    NotAtEntry = 14,
    /// A program writes and [`Probe::max_writes`] is zero.
    NoWriteLimit = 15,
    /// [`Probe::rate`], [`Probe::burst`] or [`Probe::runaway`] is too large, or there is a
    /// burst without a rate.
    BadLimit = 16,
    /// [`PROBE_KERNEL_STACK`] of somebody who may not see the kernel's addresses.
    MayNotSeeKernel = 17,
}

impl Refusal {
    /// The refusal with this number.
    pub const fn from_u32(reason: u32) -> Option<Refusal> {
        Some(match reason {
            0 => Refusal::None,
            1 => Refusal::NoSetup,
            2 => Refusal::UnknownValue,
            3 => Refusal::BadFd,
            4 => Refusal::NotRegular,
            5 => Refusal::OutsideFile,
            6 => Refusal::TooMany,
            7 => Refusal::Kernel,
            8 => Refusal::NoMemory,
            9 => Refusal::NoSuchId,
            10 => Refusal::MayNotWrite,
            11 => Refusal::Mismatch,
            12 => Refusal::BadSemaphore,
            13 => Refusal::SemaphoreConflict,
            14 => Refusal::NotAtEntry,
            15 => Refusal::NoWriteLimit,
            16 => Refusal::BadLimit,
            17 => Refusal::MayNotSeeKernel,
            _ => return None,
        })
    }
}

/// Detaches `count` probes and waits until no handler of theirs runs. `ENOENT`
/// when an id is not attached, `EINVAL` when one is there twice; then none is
/// detached.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Detach {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// Address of `count` ids (u32).
    pub ids: u64,
    /// 1 to [`ATTACH_MAX`].
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Detach>() == 24);

/// Bytes of [`Counters`] in [`Version::V1`].
pub const COUNTERS_BYTES_V1: usize = 64;

/// [`Counters::cpu`]: the sum over all CPUs.
pub const CPU_ALL: u32 = u32::MAX;

/// The counters of one probe. A hit is counted in `hits` when its handler begins,
/// and in one of `recorded`, `aggregated`, `filtered`, `rejected`, `skipped`, `limited`,
/// `off`, `frozen`, `turned_away` and `lost_full` when it is done: the difference is the number of hits being
/// handled at the moment, zero when no traced task is in a handler, and for good
/// after [`Detach`], which waits for them.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Counters {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the probe's id. A detached probe's counters are kept until the
    /// session ends.
    pub probe: u32,
    /// In: a CPU, or [`CPU_ALL`].
    pub cpu: u32,
    /// Out: times the breakpoint was hit.
    pub hits: u64,
    /// Out: hits with a record in a ring.
    pub recorded: u64,
    /// Out: hits of tasks that the filter leaves out.
    pub filtered: u64,
    /// Out: hits lost because the ring was full.
    pub lost_full: u64,
    /// Out: hits that the program did not require.
    pub rejected: u64,
    /// Out: recorded hits whose stack ended early for another reason than its
    /// natural end or the frame limit.
    pub stacks_cut: u64,
    /// Out: of the rejected hits, those where a required value could not be read.
    pub undecided: u64,
    /// Out: hits that were counted or went into a table.
    pub aggregated: u64,
    /// Out: hits for which the table had no row left.
    pub turned_away: u64,
    /// Out: writes that its programs made.
    pub written: u64,
    /// Out: writes that failed: a value was missing, or the place cannot be written.
    pub write_failed: u64,
    /// Out: writes that were withheld, as there were [`Probe::max_writes`] before.
    pub write_withheld: u64,
    /// Out: hits that were not the one in [`Probe::every`].
    pub skipped: u64,
    /// Out: hits beyond [`Probe::rate`].
    pub limited: u64,
    /// Out: hits after the probe was turned off, for [`Probe::runaway`]: each process
    /// takes some until it has lost the breakpoint.
    pub off: u64,
    /// Out: calls of a [`PROBE_CALL`] whose returns the kernel does not follow, as 64 of
    /// the thread's are pending already. They are no hits of their own.
    pub too_deep: u64,
    /// Out: hits while the rings were frozen.
    pub frozen: u64,
}
const _: () = assert!(size_of::<Counters>() == 152);

/// Which file a probe would be put into that is attached by this descriptor: on
/// overlayfs the real file beneath, which several containers may share. The identity's
/// `pid` and build-id are zero.
///
/// Errors: `EBADF` no descriptor, or not open for reading; `EINVAL` no regular file.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct File {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// The descriptor.
    pub fd: i32,
    /// Zero.
    pub reserved: u32,
    /// Answer: which file it is.
    pub identity: ObjectIdentity,
}
const _: () = assert!(size_of::<File>() == 88);

/// Most blocks of [`Unwind`], and one.
pub const UNWIND_BLOCKS_MAX: u32 = (1 << 18) + 1;
/// Most rows of [`Unwind`].
pub const UNWIND_ROWS_MAX: u32 = 1 << 25;
/// Most rules of [`Unwind`].
pub const UNWIND_RULES_MAX: u32 = 1 << 16;
/// [`Unwind::flags`]: the file has no rows, and never will: its frames are left by the
/// frame pointer, and nothing is copied for them. The arrays are empty.
pub const UNWIND_NONE: u32 = 1 << 0;
/// [`Unwind::flags`]: the rows are those of the vDSO, the code that the kernel maps into
/// each program: of the kind that the caller has. `fd` is zero.
pub const UNWIND_VDSO: u32 = 1 << 1;
/// [`Unwind::flags`]: no rows are given, but those are dropped whose files no stack has gone
/// through for `first` nanoseconds (nor were they given later). When a stack goes through
/// such a file again, that is announced anew. All else is zero.
pub const UNWIND_DROP: u32 = 1 << 2;
/// Copies of stacks that are made for one object; then it counts as one without rows.
pub const OBJECT_COPIES_MAX: u32 = 256;
/// Most bytes of all rows of a session.
pub const UNWIND_BYTES_MAX: u64 = 512 << 20;

/// Gives the session the unwind rows of a file: how its functions' callers are found
/// without frame pointers (`common/src/unwind.rs` has the format). Stacks use them from
/// then on, for this very file as it is now; when it is written to, it is another one.
/// The session keeps them until it ends or drops them ([`UNWIND_DROP`]), and no other one
/// uses them.
///
/// Errors: `EBADF` no descriptor, or not open for reading; `EINVAL` no regular file, or
/// `defect` tells what is wrong with the rows; `EEXIST` the file has rows already;
/// `ENOSPC` more than [`UNWIND_BYTES_MAX`], or too many objects; `ENOMEM`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Unwind {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero, or [`UNWIND_NONE`], [`UNWIND_VDSO`] or [`UNWIND_DROP`].
    pub flags: u32,
    /// A descriptor of the file.
    pub fd: i32,
    /// How many u32 are at `blocks`: one more than there are blocks of 64 KiB.
    pub block_count: u32,
    /// The number of the first block; with [`UNWIND_DROP`] nanoseconds.
    pub first: u64,
    /// Address of the places where each block's rows begin, and the last ones end.
    pub blocks: u64,
    /// Address of the rows, u32 each.
    pub rows: u64,
    /// Address of the rules, 16 bytes each.
    pub rules: u64,
    /// How many rows.
    pub row_count: u32,
    /// How many rules.
    pub rule_count: u32,
    /// Answer: the object's id.
    pub object: u32,
    /// Answer: what is wrong with the rows ([`Defect`](super::unwind::Defect)), or zero.
    pub defect: u32,
    /// Answer: bytes of all rows of the session; with [`UNWIND_DROP`], of those dropped.
    pub bytes: u64,
}
const _: () = assert!(size_of::<Unwind>() == 72);

/// The frames of a stack that records name by its id. Ids hold as long as the session.
///
/// Errors: `ENOENT` no such stack; `EINVAL` too little room: `words` then tells how much is
/// needed.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stack {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the stack's id.
    pub id: u32,
    /// In: words that there is room for. Out: words of frames.
    pub words: u32,
    /// In: address of the room.
    pub frames: u64,
    /// Out: words that all stacks of the session take, of [`STACK_TABLE_WORDS`].
    pub used: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Stack>() == 32);

/// [`Freeze::flags`]: nothing is recorded any more; hits count as frozen.
pub const FREEZE_NOW: u32 = 1 << 0;
/// [`Freeze::flags`]: records are taken again; what is in the rings is gone.
pub const FREEZE_END: u32 = 1 << 1;

/// Freezes rings that overwrite, or ends that, or only asks. While they are frozen the
/// consumer pages say where the oldest records are, and everything from there on is read
/// as from other rings; records that are being written at the moment follow when they are
/// complete. `EINVAL` for other rings, `ENXIO` before [`Setup`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Freeze {
    /// Bytes of this struct.
    pub size: u32,
    /// One of `FREEZE_*`, or zero.
    pub flags: u32,
    /// Out: 1 when the rings are frozen now.
    pub frozen: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Freeze>() == 16);

/// [`Object::flags`]: also open the object's file, read-only, close-on-exec,
/// with the caller's rights, and drop the kernel's own reference to it.
pub const OBJECT_FD: u32 = 1 << 0;

/// What a mapped file is that frames name by id. `ENOENT`: no such object;
/// `ESTALE` with [`OBJECT_FD`]: the kernel holds no reference (any more).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Object {
    /// Bytes of this struct.
    pub size: u32,
    /// `OBJECT_*` bits.
    pub flags: u32,
    /// In: the object's id, from 1 on.
    pub id: u32,
    /// Out: the file descriptor, with [`OBJECT_FD`]; else -1.
    pub fd: i32,
    /// Out: the object.
    pub identity: ObjectIdentity,
}
const _: () = assert!(size_of::<Object>() == 88);

/// The identity of a mapped file. Of the vDSO, `dev` and `ino` are zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ObjectIdentity {
    /// Device of the file's file system, as `new_encode_dev` and `stat(2)`
    /// give it; of the real file beneath an overlay.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Inode generation.
    pub generation: u32,
    /// Length of the build-id in bytes; 0 when it could not be read without a
    /// page fault, or there is none.
    pub build_id_len: u32,
    /// Size of the file in bytes when it was first seen.
    pub file_bytes: u64,
    /// Change time of the inode when it was first seen, in nanoseconds since 1970.
    pub ctime_ns: u64,
    /// The build-id as the process maps it: a claim, to be verified against the
    /// file. Zero-padded.
    pub build_id: [u8; BUILD_ID_MAX],
    /// Process that mapped the file when it was first seen, as the opener's pid
    /// namespace numbers it; 0 when that namespace does not see it.
    pub pid: u32,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<ObjectIdentity>() == 72);
