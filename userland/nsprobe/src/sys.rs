// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's only home of `unsafe`: the requests of the device, each as a
//! function that cannot be called wrongly, and the mapping of a ring.
#![allow(
    unsafe_code,
    reason = "ioctl and mmap are the two things that the library needs and that Rust cannot check"
)]

use crate::device::SetupOptions;
use nix::errno::Errno;
use nix::libc;
use nsprobe_common::abi::{self, ObjectIdentity, DETACH_ALL, OBJECT_DROP, SETUP_MODIFY};
use nsprobe_common::program::Step;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use zerocopy::{FromBytes, IntoBytes};

#[cfg(test)]
pub(crate) mod fake;
mod ring;

pub(crate) use ring::MappedRing;

/// Issues one request.
///
/// # Safety
///
/// `T` is the struct of `command`, and addresses in it are those of memory that
/// the kernel may read and write as the request's documentation says.
unsafe fn request<T: FromBytes + IntoBytes>(
    fd: BorrowedFd<'_>,
    command: u32,
    argument: &mut T,
) -> Result<(), Errno> {
    // SAFETY:
    // - `argument` is live and exclusively borrowed, and as long as the `size`
    //   that each caller below puts into it;
    // - any bytes that the kernel writes make a `T`, as `T: FromBytes`;
    // - addresses in it are the caller's promise.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(command), argument) };
    Errno::result(result).map(drop)
}

fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// What the module says of itself.
pub(crate) fn info(fd: BorrowedFd<'_>) -> Result<abi::Info, Errno> {
    let mut info = abi::Info {
        size: size::<abi::Info>(),
        ..Default::default()
    };
    // SAFETY: the struct is that of INFO and holds no address.
    unsafe { request(fd, abi::INFO, &mut info) }?;
    Ok(info)
}

pub(crate) fn setup(fd: BorrowedFd<'_>, options: &SetupOptions) -> Result<abi::Setup, Errno> {
    let mut setup = abi::Setup {
        size: size::<abi::Setup>(),
        flags: if options.modify { SETUP_MODIFY } else { 0 }
            | if options.overwrite {
                abi::SETUP_OVERWRITE
            } else {
                0
            },
        ring_bytes: options.ring_bytes,
        watermark_bytes: options.watermark_bytes.min(options.ring_bytes),
        ..Default::default()
    };
    // SAFETY: the struct is that of SETUP and holds no address.
    unsafe { request(fd, abi::SETUP, &mut setup) }?;
    Ok(setup)
}

/// Sets a filter, whose lists are those of `lists`.
pub(crate) fn filter(
    fd: BorrowedFd<'_>,
    mut filter: abi::Filter,
    lists: &crate::Filter,
) -> Result<(), Errno> {
    fn list<T>(all: &[T]) -> (u64, u32) {
        match all {
            [] => (0, 0),
            all => (all.as_ptr() as u64, all.len() as u32),
        }
    }
    filter.size = size::<abi::Filter>();
    (filter.pids, filter.pid_count) = list(&lists.pids);
    (filter.tids, filter.tid_count) = list(&lists.tids);
    if filter.flags & abi::FILTER_PIDNS_LIST != 0 {
        (filter.pidns_list, filter.pidns_count) = list(&lists.pid_namespaces);
    }
    // SAFETY: the struct is that of FILTER; its addresses are those of lists that the
    // kernel only reads, and its counts are theirs.
    unsafe { request(fd, abi::FILTER, &mut filter) }
}

/// Attaches `probes` and fills in their ids.
pub(crate) fn attach(
    fd: BorrowedFd<'_>,
    flags: u32,
    probes: &mut [abi::Probe],
) -> Result<(), (Errno, abi::Attach)> {
    let mut attach = abi::Attach {
        size: size::<abi::Attach>(),
        flags,
        probes: probes.as_mut_ptr() as u64,
        count: probes.len() as u32,
        probe_size: size::<abi::Probe>(),
        ..Default::default()
    };
    // SAFETY: the struct is that of ATTACH; its address is that of `probes`,
    // exclusively borrowed and of any bytes, with their count and size.
    unsafe { request(fd, abi::ATTACH, &mut attach) }.map_err(|errno| (errno, attach))
}

/// Detaches `ids`.
pub(crate) fn detach(fd: BorrowedFd<'_>, ids: &[u32]) -> Result<(), Errno> {
    let mut detach = abi::Detach {
        size: size::<abi::Detach>(),
        ids: ids.as_ptr() as u64,
        count: ids.len() as u32,
        ..Default::default()
    };
    // SAFETY: the struct is that of DETACH; its address is that of `ids`, which
    // the kernel only reads, and its count is theirs.
    unsafe { request(fd, abi::DETACH, &mut detach) }
}

/// Detaches all probes.
pub(crate) fn detach_all(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut detach = abi::Detach {
        size: size::<abi::Detach>(),
        flags: DETACH_ALL,
        ..Default::default()
    };
    // SAFETY: the struct is that of DETACH and holds no address.
    unsafe { request(fd, abi::DETACH, &mut detach) }
}

/// The counters of `probe` on `cpu`.
pub(crate) fn counters(fd: BorrowedFd<'_>, probe: u32, cpu: u32) -> Result<abi::Counters, Errno> {
    let mut counters = abi::Counters {
        size: size::<abi::Counters>(),
        probe,
        cpu,
        ..Default::default()
    };
    // SAFETY: the struct is that of COUNTERS and holds no address.
    unsafe { request(fd, abi::COUNTERS, &mut counters) }?;
    Ok(counters)
}

/// Keeps a program; its id, or the error and the answer.
pub(crate) fn program(
    fd: BorrowedFd<'_>,
    steps: &[Step],
    data: &[u8],
) -> Result<u32, (Errno, abi::Program)> {
    let mut program = abi::Program {
        size: size::<abi::Program>(),
        steps: steps.as_ptr() as u64,
        step_count: steps.len() as u32,
        data: data.as_ptr() as u64,
        data_bytes: data.len() as u32,
        ..Default::default()
    };
    // SAFETY: the struct is that of PROGRAM; its addresses are those of `steps` and
    // `data`, which the kernel only reads, and its counts are theirs.
    match unsafe { request(fd, abi::PROGRAM, &mut program) } {
        Ok(()) => Ok(program.id),
        Err(errno) => Err((errno, program)),
    }
}

/// Makes a table; gives the request as answered.
pub(crate) fn table(fd: BorrowedFd<'_>, mut table: abi::Table) -> Result<abi::Table, Errno> {
    table.size = size::<abi::Table>();
    // SAFETY: the struct is that of TABLE and holds no address.
    unsafe { request(fd, abi::TABLE, &mut table) }?;
    Ok(table)
}

/// Reads, or takes, rows of table `id` into `buffer`, from row `next` on.
pub(crate) fn rows(
    fd: BorrowedFd<'_>,
    id: u32,
    next: u32,
    flags: u32,
    buffer: &mut [u64],
) -> Result<abi::Rows, Errno> {
    let mut rows = abi::Rows {
        size: size::<abi::Rows>(),
        flags,
        table: id,
        next,
        buffer: buffer.as_mut_ptr() as u64,
        buffer_bytes: u32::try_from(size_of_val(buffer)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: the struct is that of ROWS; its address is that of `buffer`, which is
    // exclusively borrowed and may hold any words, and at least as long as it says.
    unsafe { request(fd, abi::ROWS, &mut rows) }?;
    Ok(rows)
}

/// Drops spans of a table; returns how many.
pub(crate) fn drop_spans(
    fd: BorrowedFd<'_>,
    table: u32,
    owners: &[abi::SpanOwner],
) -> Result<u64, Errno> {
    let mut drop = abi::DropSpans {
        size: size::<abi::DropSpans>(),
        table,
        count: u32::try_from(owners.len()).unwrap_or(u32::MAX),
        owners: owners.as_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: the struct is that of DROP_SPANS; its address is that of a slice that the kernel
    // reads, and its count is that slice's.
    unsafe { request(fd, abi::DROP_SPANS, &mut drop) }?;
    Ok(drop.dropped)
}

/// Which file a descriptor stands for, and whether a server answers for it.
pub(crate) fn file(fd: BorrowedFd<'_>, of: BorrowedFd<'_>) -> Result<abi::File, Errno> {
    let mut file = abi::File {
        size: size::<abi::File>(),
        fd: of.as_raw_fd(),
        ..Default::default()
    };
    // SAFETY: the struct is that of FILE and holds no address.
    unsafe { request(fd, abi::FILE, &mut file) }?;
    Ok(file)
}

/// Passes rows for the file `of`; an error returns what is wrong with them, or zero. Rows of a
/// file, or of the vDSO.
pub(crate) fn unwind(
    fd: BorrowedFd<'_>,
    of: Option<BorrowedFd<'_>>,
    rows: &crate::UnwindRows<'_>,
) -> Result<(), (Errno, u32)> {
    let mut unwind = abi::Unwind {
        size: size::<abi::Unwind>(),
        flags: match (of, rows.blocks) {
            (None, _) => abi::UNWIND_VDSO,
            (Some(_), []) => abi::UNWIND_NONE,
            (Some(_), _) => 0,
        },
        fd: of.map_or(0, |of| of.as_raw_fd()),
        first: rows.first,
        blocks: rows.blocks.as_ptr() as u64,
        block_count: rows.blocks.len() as u32,
        rows: rows.rows.as_ptr() as u64,
        row_count: rows.rows.len() as u32,
        rules: rows.rules.as_ptr() as u64,
        rule_count: rows.rules.len() as u32,
        ..Default::default()
    };
    // SAFETY: the struct is that of UNWIND; its addresses are those of slices that the
    // kernel only reads, and its counts are theirs (or less, when they are longer than
    // any request may be).
    unsafe { request(fd, abi::UNWIND, &mut unwind) }.map_err(|errno| (errno, unwind.defect))
}

/// Drops the rows that were of no use for so long; how many bytes.
pub(crate) fn drop_rows(fd: BorrowedFd<'_>, unused_ns: u64) -> Result<u64, Errno> {
    let mut unwind = abi::Unwind {
        size: size::<abi::Unwind>(),
        flags: abi::UNWIND_DROP,
        first: unused_ns,
        ..Default::default()
    };
    // SAFETY: the struct is that of UNWIND and holds no address.
    unsafe { request(fd, abi::UNWIND, &mut unwind) }?;
    Ok(unwind.bytes)
}

/// Freezes the rings, or asks (`flags` is zero): whether they are frozen.
pub(crate) fn freeze(fd: BorrowedFd<'_>, flags: u32) -> Result<bool, Errno> {
    let mut freeze = abi::Freeze {
        size: size::<abi::Freeze>(),
        flags,
        ..Default::default()
    };
    // SAFETY: the struct is that of FREEZE and holds no address.
    unsafe { request(fd, abi::FREEZE, &mut freeze) }?;
    Ok(freeze.frozen != 0)
}

fn object_request(fd: BorrowedFd<'_>, id: u32, flags: u32) -> Result<abi::Object, Errno> {
    let mut object = abi::Object {
        size: size::<abi::Object>(),
        flags,
        id,
        fd: -1,
        ..Default::default()
    };
    // SAFETY: the struct is that of OBJECT and holds no address.
    unsafe { request(fd, abi::OBJECT, &mut object) }?;
    Ok(object)
}

/// Which file the object is.
pub(crate) fn object(fd: BorrowedFd<'_>, id: u32) -> Result<ObjectIdentity, Errno> {
    object_request(fd, id, 0).map(|object| object.identity)
}

/// What the kernel holds of an object by `OBJECT_FD`, its file, or by `OBJECT_ROOT`.
pub(crate) fn claim(fd: BorrowedFd<'_>, id: u32, flag: u32) -> Result<OwnedFd, Errno> {
    let object = object_request(fd, id, flag)?;
    if object.fd < 0 {
        return Err(Errno::ESTALE);
    }
    // SAFETY: the kernel has just opened this descriptor for this call, and
    // nothing else in the process knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(object.fd) })
}

/// Drops what the kernel holds of an object.
pub(crate) fn drop_object(fd: BorrowedFd<'_>, id: u32) -> Result<(), Errno> {
    object_request(fd, id, OBJECT_DROP).map(drop)
}

/// CLOCK_MONOTONIC, the clock of the records, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is live and exclusively borrowed; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A range of mapped memory that is unmapped when dropped.
#[derive(Debug)]
struct MappedMemory {
    base: std::ptr::NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for MappedMemory {}
// SAFETY: shared references give out the address only; what may be read through
// it is `MappedRing`'s to decide.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Reserves `bytes` of address space without any memory.
    fn reserve(bytes: usize) -> Result<MappedMemory, Errno> {
        // SAFETY: the kernel chooses an unused range, so no other memory of the
        // process changes.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = std::ptr::NonNull::new(base.cast()).ok_or(Errno::ENOMEM)?;
        Ok(MappedMemory { base, bytes })
    }

    /// Puts `bytes` of `file` from `offset` on at `at` bytes into the range.
    fn place(
        &mut self,
        at: usize,
        bytes: usize,
        (file, offset): (&impl AsFd, u64),
        writable: bool,
    ) -> Result<(), Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Errno::EINVAL);
        }
        let write = if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: the range lies within this mapping (checked above), which is exclusively
        // borrowed: no other reference into it exists.
        let placed = unsafe {
            libc::mmap(
                self.base.as_ptr().add(at).cast(),
                bytes,
                libc::PROT_READ | write,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_fd().as_raw_fd(),
                offset,
            )
        };
        if placed == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(())
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and references into it
        // borrow the owner that is being dropped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The frames' words of a stack that records name by its id, or none for zero; and the pid
/// namespace of the first stack for which there was no room, or zero.
pub(crate) fn stack(fd: BorrowedFd<'_>, id: u32) -> Result<(Vec<u64>, u64), Errno> {
    let mut words = vec![0u64; nsprobe_common::record::WORDS_MAX];
    let mut stack = abi::Stack {
        size: size::<abi::Stack>(),
        id,
        words: words.len() as u32,
        frames: words.as_mut_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: the struct is that of STACK; its address is that of a vector that the kernel
    // may write to, and its count is that vector's.
    unsafe { request(fd, abi::STACK, &mut stack) }?;
    words.truncate(stack.words as usize);
    Ok((words, stack.full_pidns))
}

/// Says what is recorded of tasks; with the error, what cannot be.
pub(crate) fn tasks(fd: BorrowedFd<'_>, mut tasks: abi::Tasks) -> Result<(), (Errno, u32)> {
    tasks.size = size::<abi::Tasks>();
    // SAFETY: the struct is that of TASKS and holds no address.
    unsafe { request(fd, abi::TASKS, &mut tasks) }.map_err(|errno| (errno, tasks.missing))
}

/// Sets how long programs that start wait at most, if `limit_ms` is there; what was done so far.
pub(crate) fn hold(fd: BorrowedFd<'_>, limit_ms: Option<u32>) -> Result<abi::Hold, Errno> {
    let mut hold = abi::Hold {
        size: size::<abi::Hold>(),
        flags: if limit_ms.is_some() { abi::HOLD_SET } else { 0 },
        limit_ms: limit_ms.unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: the struct is that of HOLD and holds no address.
    unsafe { request(fd, abi::HOLD, &mut hold) }?;
    Ok(hold)
}

/// Releases a program that waits, or returns one if `release` is zero.
pub(crate) fn held(fd: BorrowedFd<'_>, release: u64) -> Result<abi::Held, Errno> {
    let mut held = abi::Held {
        size: size::<abi::Held>(),
        release,
        ..Default::default()
    };
    // SAFETY: the struct is that of HELD and holds no address.
    unsafe { request(fd, abi::HELD, &mut held) }?;
    Ok(held)
}

/// Reads records of tasks into `buffer`, from number `next` on.
pub(crate) fn task_dump(
    fd: BorrowedFd<'_>,
    flags: u32,
    next: u32,
    buffer: &mut [u64],
) -> Result<abi::TaskDump, Errno> {
    let mut dump = abi::TaskDump {
        size: size::<abi::TaskDump>(),
        flags,
        next,
        buffer: buffer.as_mut_ptr() as u64,
        buffer_bytes: u32::try_from(size_of_val(buffer)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: the struct is that of TASK_DUMP; its address is that of `buffer`, which is
    // exclusively borrowed and may hold any words, and at least as long as it says.
    unsafe { request(fd, abi::TASK_DUMP, &mut dump) }?;
    Ok(dump)
}

/// Reads rows of CPU times into `buffer`, from row `next` on.
pub(crate) fn cpu_times(
    fd: BorrowedFd<'_>,
    next: u32,
    buffer: &mut [abi::CpuTime],
) -> Result<abi::CpuTimes, Errno> {
    let mut times = abi::CpuTimes {
        size: size::<abi::CpuTimes>(),
        next,
        buffer: buffer.as_mut_ptr() as u64,
        buffer_bytes: u32::try_from(size_of_val(buffer)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: the struct is that of CPU_TIMES; its address is that of `buffer`, which is
    // exclusively borrowed, may hold any rows, and is at least as long as it says.
    unsafe { request(fd, abi::CPU_TIMES, &mut times) }?;
    Ok(times)
}

/// Events of tasks by outcome, on one CPU or on all.
pub(crate) fn task_counters(fd: BorrowedFd<'_>, cpu: u32) -> Result<abi::TaskCounters, Errno> {
    let mut counters = abi::TaskCounters {
        size: size::<abi::TaskCounters>(),
        cpu,
        ..Default::default()
    };
    // SAFETY: the struct is that of TASK_COUNTERS and holds no address.
    unsafe { request(fd, abi::TASK_COUNTERS, &mut counters) }?;
    Ok(counters)
}
