// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Probes: what they are, how they are attached and detached, and what they count.

use super::*;

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
/// [`Probe::kind`]: a function begins whose ends are seen at its exits, with its return
/// address left alone. The entry program runs (and keeps values). A hit that begins a call is
/// counted as `aggregated`. Of more than [`CALLS_MAX`] calls under way some are forgotten
/// ([`Counters::evicted`]): the oldest ones of the container that has most. A call is known by its
/// address space, by where its return address is, and by [`Probe::call`].
/// Not at an instruction with a [`PROBE_END`] or [`PROBE_LEAVE`] of the same call: which of them is
/// hit first is not known.
pub const PROBE_BEGIN: u32 = 4;
/// [`Probe::kind`]: on an instruction that returns (`ret`, with the return address on top of
/// the stack): a hit is the return of the call that a [`PROBE_BEGIN`] of the same
/// [`Probe::call`] saw begin, with its time and what its entry kept. What comes there and ends
/// no such call is not counted: others may pass the instruction as well.
pub const PROBE_END: u32 = 5;
/// [`Probe::kind`]: on a jump to where returns are not seen. A hit that the entry program
/// lets through ends its call without a return, and is counted as `aggregated`; one that
/// ends no call is not counted.
pub const PROBE_LEAVE: u32 = 6;
/// [`Probe::kind`]: no place in a file: each CPU that is online is sampled, [`Probe::offset`] times
/// a second, by its cycles where the machine counts them, else by the CPU clock. A hit is a sample
/// of a task, with its user stack and user registers; in the kernel they are those with which the
/// task entered it. Samples of idle CPUs and of kernel threads are counted apart. The one probe of
/// its [`Attach`] and the one sampler of its session, with `fd` -1, a program that does not write,
/// and without [`PROBE_AT_ENTRY`] and limits.
pub const PROBE_SAMPLE: u32 = 7;

/// [`Probe::kind`]: no place in a file: a hit is a wait of a task off the CPU that took at least
/// [`Probe::offset`] nanoseconds. It is taken when the task is on a CPU again, with its user stack
/// and the registers with which it entered the kernel; it begins when the task leaves its CPU, which
/// the filter judges. A program has the time of the wait as [`Context::Elapsed`], and what it was
/// for. Kernel threads are not seen, nor waits that had begun before. The one probe of its
/// [`Attach`] and the one of its kind in its session; otherwise as [`PROBE_SAMPLE`].
///
/// [`Context::Elapsed`]: super::super::program::Context::Elapsed
pub const PROBE_WAIT: u32 = 8;

/// [`Probe::kind`]: no place in a file: a hit is the moment when a thread wakes a task whose wait
/// has taken [`Probe::offset`] nanoseconds by then, or when the kernel's network code does while
/// the thread sends. It is taken of the thread that wakes, filtered or not, with its user stack and
/// the registers with which it entered the kernel. Of several tasks that it wakes with interrupts
/// off, one is a hit. [`Context::WokenAt`] of the waits has its time. Attached before the
/// [`PROBE_WAIT`] of its session; otherwise as that.
///
/// [`Context::WokenAt`]: super::super::program::Context::WokenAt
pub const PROBE_WAKE: u32 = 9;

/// Most waits, of all CPUs, that a session follows at a time.
pub const WAITS_MAX: usize = 1 << 16;
/// Most waits, and most wakes, a second of one CPU whose stacks are taken; further ones are counted
/// as limited.
pub const WAITS_A_SECOND: u32 = 2000;

/// Most samples a second of each CPU: beyond, taking them is most of what a CPU does.
pub const SAMPLE_HZ_MAX: u64 = 10000;

/// Calls between their [`PROBE_BEGIN`] and their end that a session follows at a time.
pub const CALLS_MAX: u32 = 1 << 14;

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
/// a span of the same key that had begun before is replaced. With [`PROBE_STACK_IDS`] the
/// session keeps its stack once, and the row has the stack's id ([`Row::least`](super::Row::least)).
pub const SINK_SPAN: u32 = 3;

/// [`Probe::flags`]: a hit that is delivered freezes the rings, with its own record in
/// them. Only in a session with [`SETUP_OVERWRITE`].
pub const PROBE_FREEZES: u32 = 1 << 3;
/// [`Probe::flags`]: with [`PROBE_STACK`] and [`SINK_RECORD`]: where a stack goes through a
/// file that has no unwind rows, a [`StackCopy`](super::super::record::StackCopy) record precedes
/// the hit's, which then ends with [`StackEnd::Copied`](super::super::record::StackEnd::Copied).
/// With [`SINK_TABLE`] such a hit is recorded, and in no row yet: the value and the key are
/// its fields.
pub const PROBE_COPIES: u32 = 1 << 4;

/// [`Probe::flags`]: with [`PROBE_STACK`] and [`SINK_RECORD`]: equal stacks are kept once,
/// and records name them by an id ([`Hit::stack`](super::super::record::Hit::stack)). When there is
/// no room for more, the frames are in the record, as without this. With [`SINK_SPAN`] rows name
/// them, in a table without room for stacks; a span for whose stack there is no room has none, and
/// its hit counts as one with a truncated stack.
pub const PROBE_STACK_IDS: u32 = 1 << 5;
/// [`Probe::flags`]: with [`SINK_RECORD`], or for [`PROBE_SAMPLE`] and [`SINK_TABLE`]: take the
/// kernel's stack, too, in a table up to [`KERNEL_FRAMES_MAX`] frames of it. Needs CAP_SYSLOG in
/// the initial user namespace ([`Refusal::MayNotSeeKernel`]).
pub const PROBE_KERNEL_STACK: u32 = 1 << 6;
/// [`Probe::flags`]: with [`PROBE_STACK`] and [`SINK_RECORD`]: where a page of a stack in
/// private memory is not there (paged out), the hit's record ends with
/// [`StackEnd::Late`](super::super::record::StackEnd::Late), and a
/// [`LateStack`](super::super::record::LateStack) follows. The page is fetched before the task goes
/// on, when the breakpoint's handlers are done. Not for memory of files, nor for what a
/// userfaultfd serves: there the stack ends with a fault. With [`SINK_TABLE`] as
/// [`PROBE_COPIES`].
pub const PROBE_LATE: u32 = 1 << 7;

/// [`Probe::flags`]: probe a file also when a server answers for its file system
/// ([`Refusal::NeedsAnswer`]). While that does not answer, no process of the machine can fork, no
/// other breakpoint goes in or out, and the caller cannot be killed.
pub const PROBE_MAY_HANG: u32 = 1 << 8;

/// [`Probe::flags`]: of a [`PROBE_WAIT`]: only waits in `futex(2)`; others are rejected as they
/// begin. Who holds the lock is looked for
/// ([`Context::LockHolder`](super::super::program::Context::LockHolder)).
pub const PROBE_LOCKS: u32 = 1 << 9;

/// [`Probe::flags`]: of a [`PROBE_BEGIN`], [`PROBE_END`] or [`PROBE_LEAVE`]: the function is one of
/// Go's compiler, which has the goroutine's `g` in %r14. Its stack may move during the call,
/// which is known by the address space, the goroutine, how far its return address is below the top
/// of the goroutine's stack, and [`Probe::call`]. A call that begins where %r14 is no goroutine
/// whose stack it is on counts as `missed`.
pub const PROBE_GO: u32 = 1 << 10;

/// Most frames of the kernel in the stack of a table's row: each takes two words of it.
pub const KERNEL_FRAMES_MAX: usize = 32;

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
    /// probe goes to the real file beneath. -1 for [`PROBE_SAMPLE`].
    pub fd: i32,
    /// `PROBE_ENTRY`, `PROBE_RETURN`, `PROBE_CALL`, `PROBE_BEGIN`, `PROBE_END`,
    /// `PROBE_LEAVE`, `PROBE_SAMPLE`, `PROBE_WAIT` or `PROBE_WAKE`.
    pub kind: u32,
    /// `PROBE_*` bits.
    pub flags: u32,
    /// Most frames of a stack, up to [`FRAMES_MAX`]; 0 means the most.
    pub max_frames: u32,
    /// File offset of the instruction that gets the breakpoint. Of [`PROBE_SAMPLE`]: how many
    /// times a second; of [`PROBE_WAIT`] and [`PROBE_WAKE`]: nanoseconds.
    pub offset: u64,
    /// File offset that records give as frame 0: the function's entry when the
    /// breakpoint sits after it. Zero: `offset`. In front of `offset`, but for
    /// [`PROBE_END`] and [`PROBE_LEAVE`].
    pub report_offset: u64,
    /// File offset of the USDT semaphore: a `u16` in the program's data that the
    /// kernel counts up in each process that has the breakpoint, and down again. Zero:
    /// none. All probes of one instruction, those of other tracers too, must agree.
    pub semaphore: u64,
    /// Out: the probe's id in this session, from 1 on, never reused.
    pub id: u32,
    /// `SINK_*`: where a hit goes.
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
    /// on when they have such, else zero. Further ones are withheld, and counted. Probes of
    /// one [`Probe::call`] that follow each other in a request share what is allowed.
    pub max_writes: u32,
    /// Deliver one in this number of the hits that the filter and the program let through,
    /// counted on each CPU, beginning with the first. Zero and one: all.
    pub every: u32,
    /// Deliver at most this number of hits a second, over all CPUs; further ones are counted as
    /// limited. Up to [`RATE_MAX`](super::super::limit::RATE_MAX); zero: all.
    pub rate: u32,
    /// With `rate`: how many hits may come at once. Zero: as many as in a second.
    pub burst: u32,
    /// Turn the probe off for good when it is hit more often than this a second, over
    /// all CPUs and tasks, delivered or not; an [`OffRecord`](super::super::record::OffRecord)
    /// reports it. Up to [`RATE_MAX`](super::super::limit::RATE_MAX); zero: never.
    pub runaway: u32,
    /// Which function's calls begin or end here, of [`PROBE_BEGIN`], [`PROBE_END`] and
    /// [`PROBE_LEAVE`]: a number from 1 on that user space gives it. Else zero.
    pub call: u32,
    /// Out, with [`ATTACH_PARTIAL`]: a [`Refusal`] if the probe is not attached; its id is zero
    /// then.
    pub refused: u32,
    /// Out, with `refused`: the error number.
    pub error: u32,
}
const _: () = assert!(size_of::<Probe>() == 96);

/// Bytes of [`Probe`] in [`Version::V1`]: the least that [`Attach`] takes.
pub const PROBE_BYTES_V1: usize = 48;

/// [`Attach::flags`]: attach the probes whose place the kernel takes, and say of each other one why
/// not ([`Probe::refused`]). Probes of one [`Probe::call`] that follow each other are attached all
/// or none. What is wrong with a request for another reason than its place is an error all the
/// same.
pub const ATTACH_PARTIAL: u32 = 1 << 0;

/// Attaches `count` probes, all or none ([`ATTACH_PARTIAL`]: or some). A process in which the
/// kernel cannot set a breakpoint does without ([`Counters::processes_failed`]).
///
/// Errors: `EINVAL`, `EBADF`, `EIO` (the file system cannot carry probes), `EREMOTE` (it may not
/// answer),
/// `ENOEXEC` (the offset is not in the file or not at a decodable instruction),
/// `ENOSPC` (too many probes), `EEXIST` (the session has the same one), `ENXIO` ([`Setup`]
/// is missing); `failed` and
/// `reason` say which probe and why. All are checked before the first breakpoint is
/// put in. A breakpoint may be hit before the call returns, and also when it fails in
/// the end: ids under which there may be records are not used again.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attach {
    /// Bytes of this struct.
    pub size: u32,
    /// `ATTACH_*` bits.
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
    /// The offset lies past the end of the file.
    OutsideFile = 5,
    /// The session has too many probes.
    TooMany = 6,
    /// The kernel's `uprobe_register` refused: the instruction cannot be probed,
    /// or the file system cannot carry probes; the error number says which.
    Kernel = 7,
    /// Too little memory.
    NoMemory = 8,
    /// The session has no program or table of this id.
    NoSuchId = 9,
    /// A program of this probe writes, which this session, or its caller, may not
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
    /// [`PROBE_KERNEL_STACK`] without the right to see the kernel's addresses.
    MayNotSeeKernel = 17,
    /// The instruction is a system call, after which the kernel continues at a wrong address.
    SystemCall = 18,
    /// The session has a probe that does the same there: of the same file, offset, kind, flags,
    /// programs and tables. Each hit would count twice. Or it has one of this kind already
    /// ([`PROBE_SAMPLE`], [`PROBE_WAIT`]).
    Twice = 19,
    /// [`PROBE_SAMPLE`]: fewer than 1 or more than [`SAMPLE_HZ_MAX`] times a second.
    BadFrequency = 20,
    /// Not the kernel itself answers when the file is read, but a server that may never do so
    /// (FUSE, NFS, SMB, 9p and their like, also beneath an overlay), or its kind of file system is
    /// not known. [`PROBE_MAY_HANG`] probes it nevertheless.
    NeedsAnswer = 21,
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
            18 => Refusal::SystemCall,
            19 => Refusal::Twice,
            20 => Refusal::BadFrequency,
            21 => Refusal::NeedsAnswer,
            _ => return None,
        })
    }
}

/// [`Detach::flags`]: all probes of the session, with `count` and `ids` zero.
pub const DETACH_ALL: u32 = 1 << 0;

/// Detaches `count` probes and waits until no handler of theirs runs. `ENOENT`
/// when an id is not attached, `EINVAL` when one is there twice; then none is
/// detached.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Detach {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero, or [`DETACH_ALL`].
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
/// `off`, `frozen`, `lost_full`, `turned_away`, `missed`, `below`, `no_row` and `unfinished` when it
/// is done: the difference is the number of hits being handled, and of waits that go on, at the
/// moment, zero when no traced task is in a handler, and for good after [`Detach`], which waits for
/// them.
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
    /// Out: hits of tasks that the filter excludes.
    pub filtered: u64,
    /// Out: hits lost because the ring was full.
    pub lost_full: u64,
    /// Out: hits whose condition did not hold.
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
    /// Out: writes that were withheld, as there were [`Probe::max_writes`] before, or the ring had
    /// no room for their record.
    pub write_withheld: u64,
    /// Out: hits that [`Probe::every`] skipped.
    pub skipped: u64,
    /// Out: hits over the limit of [`Probe::rate`].
    pub limited: u64,
    /// Out: hits after the probe was turned off, for [`Probe::runaway`]: each process
    /// takes some until it has lost the breakpoint.
    pub off: u64,
    /// Out: calls of a [`PROBE_CALL`] whose returns the kernel does not follow, as 64 of
    /// the thread's are pending already. They are no hits of their own.
    pub too_deep: u64,
    /// Out: hits while the rings were frozen.
    pub frozen: u64,
    /// Out: samples of tasks of which nothing can be read: they end, start another program, or
    /// have left the CPU. Calls of a [`PROBE_GO`] whose goroutine is not known.
    pub missed: u64,
    /// Out: samples that were taken in the kernel. They are among the hits.
    pub in_kernel: u64,
    /// Out: samples of CPUs that were idle. They are no hits.
    pub idle: u64,
    /// Out: samples of kernel threads. They are no hits.
    pub kernel_threads: u64,
    /// Out: of all samples those by the CPU clock, as the machine counts no cycles.
    pub by_clock: u64,
    /// Out: processes without the breakpoint, as the kernel could not set it there when the probe
    /// was attached or the filter set last: their semaphore is spoiled, say, or their control group
    /// has no memory. At most 257: if so, there may be more. Zero for one CPU.
    pub processes_failed: u64,
    /// Out: calls, of this probe or others, that were forgotten for those that begin at this one,
    /// as there were more than [`CALLS_MAX`]. Zero for one CPU.
    pub evicted: u64,
    /// Out: waits that were shorter than their probe asks for.
    pub below: u64,
    /// Out: nanoseconds that these took together.
    pub below_ns: u64,
    /// Out: waits that could not be followed, as there were too many ([`WAITS_MAX`]).
    pub no_row: u64,
    /// Out: waits that had not ended when the probe was detached.
    pub unfinished: u64,
}
const _: () = assert!(size_of::<Counters>() == 240);

/// Gives a macro the fields of [`Counters`] that each CPU counts besides `hits`: outcomes of hits,
/// each with its name as an item of an enumeration, and the others.
#[macro_export]
macro_rules! probe_counters {
    ($then:ident) => {
        $then! {
            outcomes {
                recorded: Recorded,
                aggregated: Aggregated,
                filtered: Filtered,
                rejected: Rejected,
                skipped: Skipped,
                limited: Limited,
                off: Off,
                frozen: Frozen,
                lost_full: LostFull,
                turned_away: TurnedAway,
                missed: Missed,
                below: Below,
                no_row: NoRow,
                unfinished: Unfinished,
            }
            others {
                undecided,
                stacks_cut,
                written,
                write_failed,
                write_withheld,
                too_deep,
                in_kernel,
                idle,
                kernel_threads,
                by_clock,
                below_ns,
            }
        }
    };
}

macro_rules! of_interface {
    (
        outcomes { $($outcome:ident: $item:ident,)* }
        others { $($other:ident,)* }
    ) => {
        const OUTCOMES: usize = [$(stringify!($outcome)),*].len();
        // With `hits`, and what no CPU counts: `processes_failed` and `evicted`.
        const _: () = {
            let others = [$(stringify!($other)),*].len();
            assert!(size_of::<Counters>() == 16 + 8 * (1 + OUTCOMES + others + 2));
        };

        impl Counters {
            /// The outcomes of hits, by the fields' names; each hit has exactly one. The
            /// conservation law is that they add up to `hits`, but for those that are being handled
            /// at the moment.
            pub fn outcomes(&self) -> [(&'static str, u64); OUTCOMES] {
                [$((stringify!($outcome), self.$outcome),)*]
            }
        }
    };
}
probe_counters!(of_interface);
