// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The records of a ring: their layout, and the walk over a buffer of them.
//!
//! A record is a [`Header`] and a body, together a multiple of 8 bytes long, in
//! the CPU's byte order. The body begins with the record's time (u64,
//! CLOCK_MONOTONIC in nanoseconds), whatever the kind. A reader skips kinds that
//! it does not know.

pub mod header;

#[cfg(test)]
mod tests;

use super::abi::{ObjectIdentity, CODE_MAPPINGS_MAX, STACK_COPY_WORDS_MAX};
pub use super::frame::{Frame, Frames, Method, StackEnd, Unmapped, OFFSET_BITS};
use super::task::{self, MappingsRecord, SwitchRecord, TaskDetails, TaskRecord, WakeRecord};
pub use header::{CodeMapping, Header};
use zerocopy::{FromBytes, Immutable, KnownLayout};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bit of [`Header::word`]: the record is being written; the reader stops here.
pub const BUSY: u32 = 1 << 31;
/// Bit of [`Header::word`]: the writer gave up; the reader skips the record.
pub const DISCARD: u32 = 1 << 30;
/// Bits of [`Header::word`]: length of the record in bytes, header included.
pub const LENGTH: u32 = DISCARD - 1;

/// [`Header::kind`] of a [`Hit`].
pub const KIND_HIT: u16 = 1;
/// [`Header::kind`] of an [`ObjectRecord`].
pub const KIND_OBJECT: u16 = 2;
/// [`Header::kind`] of a [`Lost`].
pub const KIND_LOST: u16 = 3;

/// [`Header::kind`] of a [`WriteRecord`].
pub const KIND_WRITE: u16 = 4;

/// [`Header::kind`] of an [`OffRecord`].
pub const KIND_OFF: u16 = 5;

/// [`Header::kind`] of a [`StackCopy`].
pub const KIND_STACK_COPY: u16 = 6;

/// [`Header::kind`] of a [`LateStack`].
pub const KIND_LATE_STACK: u16 = 7;

/// [`Header::kind`] of a [`TaskRecord`].
pub const KIND_TASK: u16 = 8;

/// [`Header::kind`] of a [`SwitchRecord`].
pub const KIND_SWITCH: u16 = 9;

/// [`Header::kind`] of a [`WakeRecord`].
pub const KIND_WAKE: u16 = 10;

/// [`Header::kind`] of a [`MappingsRecord`].
pub const KIND_MAPPINGS: u16 = 11;

/// Most words of frames in one hit: a stack with many bare addresses, which
/// take two words each, ends before [`FRAMES_MAX`](super::abi::FRAMES_MAX).
pub const WORDS_MAX: usize = 128;

/// Longest record that the module writes, in bytes.
pub const RECORD_BYTES_MAX: usize = size_of::<StackCopy>()
    + CODE_MAPPINGS_MAX * size_of::<CodeMapping>()
    + 8 * STACK_COPY_WORDS_MAX;

/// Most addresses of a kernel stack.
pub const KERNEL_WORDS_MAX: usize = 64;

/// Longest record of a hit, in bytes: a ring is at least as large.
pub const HIT_BYTES_MAX: usize =
    size_of::<Hit>() + 8 * (1 + WORDS_MAX + KERNEL_WORDS_MAX + super::program::OUTPUT_WORDS_MAX);

/// A probe was hit. Words follow: with [`HIT_RETURN`] one with the nanoseconds
/// since the call's entry ([`ELAPSED_UNKNOWN`] when that was not seen); then
/// `words` words of frames (see [`Frame`]), innermost first; then the addresses of the
/// kernel's stack, innermost first, with [`PROBE_KERNEL_STACK`](super::abi::PROBE_KERNEL_STACK),
/// a word each; and at the end `field_words` words of the program's fields (see
/// [`Output`](super::program::Output)).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hit {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The probe's id.
    pub probe: u32,
    /// Low 32 bits of the probe's hit count on this CPU, this hit included: a gap means hits that
    /// were filtered or lost.
    pub sequence: u32,
    /// CPU that took the hit.
    pub cpu: u16,
    /// 8-byte words of frames after this struct.
    pub words: u16,
    /// A [`StackEnd`].
    pub stack_end: u8,
    /// `HIT_*` bits.
    pub flags: u8,
    /// 8-byte words of fields after the frames.
    pub field_words: u16,
    /// Process id in the session owner's pid namespace.
    pub pid: u32,
    /// Thread id in the session owner's pid namespace.
    pub tid: u32,
    /// Process id in the task's own pid namespace: what the container sees.
    pub ns_pid: u32,
    /// Thread id in the task's own pid namespace.
    pub ns_tid: u32,
    /// Id of the task's pid namespace, which is never reused.
    pub pidns_id: u64,
    /// Its inode number, which the kernel may reuse: for display, not for comparison.
    pub pidns_inum: u32,
    /// With [`PROBE_STACK_IDS`](super::abi::PROBE_STACK_IDS): the id of the stack, whose
    /// frames [`Stack`](super::abi::Stack) gives; `words` is then zero. Zero: the frames, if
    /// any, are here.
    pub stack: u32,
    /// Name of the thread, NUL-padded.
    pub comm: [u8; 16],
}
const _: () = assert!(size_of::<Hit>() == 80);

/// [`Hit::flags`]: the function returned; without it, it was entered.
pub const HIT_RETURN: u8 = 1 << 1;
/// [`Hit::flags`]: a sample that was taken in the kernel.
pub const HIT_KERNEL: u8 = 1 << 2;

/// The word after a return's [`Hit`] if its entry was not seen.
pub const ELAPSED_UNKNOWN: u64 = u64::MAX;

/// The stack of a hit from some frame on, with what user space needs to continue the walk. It
/// precedes the [`Hit`] of the same probe, thread and time. After it are `mappings`
/// [`CodeMapping`]s, and `words` words of memory from `rsp` on.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StackCopy {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC of the hit, in nanoseconds.
    pub time_ns: u64,
    /// The probe's id.
    pub probe: u32,
    /// Thread id in the session owner's pid namespace.
    pub tid: u32,
    /// The instruction, or the return address, of the last frame of the hit.
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// Its frame pointer.
    pub rbp: u64,
    /// `COPY_*` bits.
    pub flags: u32,
    /// How many mappings follow.
    pub mappings: u32,
    /// How many words of memory follow these.
    pub words: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<StackCopy>() == 64);

/// [`StackCopy::flags`]: `rip` is after a call.
pub const COPY_BEHIND_CALL: u32 = 1 << 0;
/// [`StackCopy::flags`]: `rbp` is not known.
pub const COPY_WITHOUT_RBP: u32 = 1 << 1;
/// [`StackCopy::flags`]: more code is mapped than the mappings cover.
pub const COPY_MAPPINGS_CUT: u32 = 1 << 2;

/// The stack of a hit that ended with [`StackEnd::Late`], captured once the missing pages were
/// present, before the task continued. `words` words of frames follow. After a [`StackCopy`] of the
/// same probe, thread and time it ends with [`StackEnd::Copied`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LateStack {
    /// Length and kind.
    pub header: Header,
    /// When it was taken, CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The time of the hit.
    pub hit_ns: u64,
    /// The hit's probe.
    pub probe: u32,
    /// The hit's thread, in the session owner's pid namespace.
    pub tid: u32,
    /// As [`Hit::stack`].
    pub stack: u32,
    /// 8-byte words of frames after this struct.
    pub words: u16,
    /// A [`StackEnd`].
    pub stack_end: u8,
    /// The number of page fetches.
    pub pages: u8,
}
const _: () = assert!(size_of::<LateStack>() == 40);

/// An object that frames of this session name from now on.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectRecord {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The id that frames use.
    pub id: u32,
    /// Zero.
    pub reserved: u32,
    /// The file.
    pub identity: ObjectIdentity,
}
const _: () = assert!(size_of::<ObjectRecord>() == 96);

/// Records lost because this ring was full, reported before the next record that fits.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Lost {
    /// Length and kind.
    pub header: Header,
    /// CLOCK_MONOTONIC of the last of them, in nanoseconds.
    pub time_ns: u64,
    /// The number of lost records.
    pub count: u64,
    /// CLOCK_MONOTONIC of the first of them, in nanoseconds.
    pub first_ns: u64,
}
const _: () = assert!(size_of::<Lost>() == 32);

/// The data after a [`Hit`].
#[derive(Clone, Copy, Debug)]
pub struct Details<'a> {
    /// Nanoseconds since the call's entry, for a return whose entry was seen.
    pub elapsed_ns: Option<u64>,
    /// The frames.
    pub frames: Frames<'a>,
    /// The addresses of the kernel's stack.
    pub kernel: &'a [u64],
    /// The program's fields.
    pub fields: &'a [u64],
}

impl<'a> Details<'a> {
    fn parse(hit: &Hit, words: &'a [u64]) -> Option<Details<'a>> {
        let (elapsed_ns, words) = match hit.flags & HIT_RETURN {
            0 => (None, words),
            _ => {
                let (&elapsed, words) = words.split_first()?;
                (Some(elapsed).filter(|&ns| ns != ELAPSED_UNKNOWN), words)
            }
        };
        let (frames, words) = words.split_at_checked(hit.words.into())?;
        let kernel_words = words.len().checked_sub(hit.field_words.into())?;
        let (kernel, fields) = words.split_at_checked(kernel_words)?;
        Some(Details {
            elapsed_ns,
            frames: Frames(frames),
            kernel,
            fields,
        })
    }
}

/// [`WriteRecord::what`]: a register; its place is its DWARF number.
pub const WRITE_REGISTER: u8 = 1;
/// [`WriteRecord::what`]: memory; its place is its address.
pub const WRITE_MEMORY: u8 = 2;
/// [`WriteRecord::what`]: an immediate return; before and after are the register with the return
/// value, the place is where the task continued.
pub const WRITE_RETURN: u8 = 3;

/// A program of a probe wrote, or tried to. It comes before the record of its hit, which
/// has the same `sequence`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteRecord {
    /// Length and kind.
    pub header: Header,
    /// When, CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The probe.
    pub probe: u32,
    /// The hit's number among those of its probe and CPU, as in [`Hit::sequence`].
    pub sequence: u32,
    /// Process id in the session owner's pid namespace.
    pub pid: u32,
    /// Thread id in the session owner's pid namespace.
    pub tid: u32,
    /// `WRITE_*`.
    pub what: u8,
    /// 1 if the write was done, 0 if it failed and changed nothing.
    pub done: u8,
    /// Bytes of the write.
    pub bytes: u8,
    /// Zero.
    pub reserved: u8,
    /// The CPU whose ring this is.
    pub cpu: u32,
    /// The address, register or instruction that was written.
    pub place: u64,
    /// The value before; zero if it could not be read.
    pub before: u64,
    /// The value to write.
    pub after: u64,
}
const _: () = assert!(size_of::<WriteRecord>() == 64);

/// A probe was turned off, as it was hit more often than
/// [`Probe::runaway`](super::abi::Probe::runaway) allows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OffRecord {
    /// Length and kind.
    pub header: Header,
    /// When, CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The probe.
    pub probe: u32,
    /// The limit, in hits per second.
    pub limit: u32,
}
const _: () = assert!(size_of::<OffRecord>() == 24);

/// One record, parsed.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A hit and what follows it.
    Hit(&'a Hit, Details<'a>),
    /// An object's announcement.
    Object(&'a ObjectRecord),
    /// A gap.
    Lost(&'a Lost),
    /// A change to the traced program.
    Write(&'a WriteRecord),
    /// A probe was turned off.
    Off(&'a OffRecord),
    /// What user space needs to continue a walk: the mapped code, and memory.
    StackCopy(&'a StackCopy, &'a [CodeMapping], &'a [u64]),
    /// A deferred stack and its frames.
    LateStack(&'a LateStack, Frames<'a>),
    /// A task and the data after it.
    Task(&'a TaskRecord, TaskDetails<'a>),
    /// A context switch.
    Switch(&'a SwitchRecord),
    /// A wake-up.
    Wake(&'a WakeRecord),
    /// The code that a process has mapped.
    Mappings(&'a MappingsRecord, &'a [CodeMapping]),
    /// A kind that this version does not know: kind and body.
    Unknown(u16, &'a [u8]),
}

/// Why a buffer of records could not be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// The record's length is no multiple of 8, or too small for its kind.
    Length(u32),
    /// The record reaches past the end of the buffer.
    Overrun(u32),
}

fn fixed<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<(&T, &[u8]), Corrupt> {
    T::ref_from_prefix(bytes).map_err(|_| Corrupt::Length(bytes.len() as u32))
}

fn stack_copy<'a>(copy: &StackCopy, rest: &'a [u8]) -> Option<(&'a [CodeMapping], &'a [u64])> {
    let (mappings, rest) =
        <[CodeMapping]>::ref_from_prefix_with_elems(rest, copy.mappings as usize).ok()?;
    let words = <[u64]>::ref_from_bytes(rest).ok()?;
    (words.len() == copy.words as usize).then_some((mappings, words))
}

impl<'a> Record<'a> {
    /// Parses the record that `bytes` (8-byte aligned) begin with. Gives the
    /// record, or `None` for a discarded one, and its length; `Ok(None)` when
    /// there is none yet (a busy one, or no bytes).
    #[allow(
        clippy::type_complexity,
        reason = "a record that may be absent, twice, is what there is to say"
    )]
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Option<Record<'a>>, usize)>, Corrupt> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (header, _) = fixed::<Header>(bytes)?;
        if header.word & BUSY != 0 {
            return Ok(None);
        }
        let length = (header.word & LENGTH) as usize;
        if length < size_of::<Header>() || length % 8 != 0 {
            return Err(Corrupt::Length(header.word));
        }
        let body = bytes.get(..length).ok_or(Corrupt::Overrun(header.word))?;
        if header.word & DISCARD != 0 {
            return Ok(Some((None, length)));
        }
        let record = match header.kind {
            KIND_HIT => {
                let (hit, rest) = fixed::<Hit>(body)?;
                let details = <[u64]>::ref_from_bytes(rest)
                    .ok()
                    .and_then(|words| Details::parse(hit, words))
                    .ok_or(Corrupt::Length(header.word))?;
                Record::Hit(hit, details)
            }
            KIND_OBJECT => Record::Object(fixed(body)?.0),
            KIND_LOST => Record::Lost(fixed(body)?.0),
            KIND_WRITE => Record::Write(fixed(body)?.0),
            KIND_OFF => Record::Off(fixed(body)?.0),
            KIND_STACK_COPY => {
                let (copy, rest) = fixed::<StackCopy>(body)?;
                let (mappings, words) =
                    stack_copy(copy, rest).ok_or(Corrupt::Length(header.word))?;
                Record::StackCopy(copy, mappings, words)
            }
            KIND_LATE_STACK => {
                let (late, rest) = fixed::<LateStack>(body)?;
                let frames = <[u64]>::ref_from_bytes(rest)
                    .ok()
                    .and_then(|words| words.get(..late.words.into()))
                    .ok_or(Corrupt::Length(header.word))?;
                Record::LateStack(late, Frames(frames))
            }
            KIND_TASK => {
                let (task, rest) = fixed::<TaskRecord>(body)?;
                let details = TaskDetails::parse(task, rest).ok_or(Corrupt::Length(header.word))?;
                Record::Task(task, details)
            }
            KIND_SWITCH => Record::Switch(fixed(body)?.0),
            KIND_WAKE => Record::Wake(fixed(body)?.0),
            KIND_MAPPINGS => {
                let (record, rest) = fixed::<MappingsRecord>(body)?;
                let all = task::mappings(record, rest).ok_or(Corrupt::Length(header.word))?;
                Record::Mappings(record, all)
            }
            kind => Record::Unknown(kind, body.get(size_of::<Header>()..).unwrap_or(&[])),
        };
        Ok(Some((Some(record), length)))
    }
}

/// A record without its header, which the ring writes.
pub fn body_of(record: &[u64]) -> &[u64] {
    record.get(1..).unwrap_or(&[])
}
