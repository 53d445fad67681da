// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Objects that a session keeps for its probes: programs, tables, mapped files with their unwind
//! rows, and stacks.

use super::*;

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
    /// Address of the steps (see [`Step`](super::super::program::Step)).
    pub steps: u64,
    /// Address of the constant bytes.
    pub data: u64,
    /// How many steps there are.
    pub step_count: u32,
    /// How many constant bytes there are.
    pub data_bytes: u32,
    /// Out: the program's id in this session, from 1 on.
    pub id: u32,
    /// Out, on error: a [`Flaw`](super::super::program::Flaw), or zero.
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
/// [`Table::kind`]: count, sum, least and greatest, and a histogram.
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
    /// [`KEY_WORDS_MAX`](super::super::program::KEY_WORDS_MAX).
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

/// [`Rows::flags`]: takes the rows out of the table, for a reader that adds them up itself: the
/// table has their room back. Each hit is in a row that is taken once, or in one that is still there.
/// Waits until no hit sees the rows, for some tens of milliseconds as a rule. Not for spans, and not
/// for tables without a key.
pub const ROWS_TAKE: u32 = 1 << 0;
/// Most rows that one call takes.
pub const ROWS_TAKE_MAX: u32 = 1 << 14;

/// Reads the rows of a table, from `first` on, as many as fit. Rows are in no order; the rows of
/// one key, if there are several, must be added up. Hits continue meanwhile: a row's numbers may
/// differ by the hits of that moment.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rows {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero, or [`ROWS_TAKE`].
    pub flags: u32,
    /// In: the table's id.
    pub table: u32,
    /// In: 0 at first, then the previous output. Out: where to continue; 0 at the end.
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
    /// Out: the id of the pid namespace, below the opener's, of the first hit for which there was
    /// no row; or zero. A container that fills the table leaves an eighth of it to others.
    pub turned_away_pidns: u64,
}
const _: () = assert!(size_of::<Rows>() == 56);

/// The head of each row of [`Rows`]. The key follows (`key_words` words), then `stack_capacity`
/// words of which the first `stack_words` are frames, then the buckets.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Row {
    /// Hits.
    pub count: u64,
    /// Sum of their values; of a span, its value.
    pub sum: i64,
    /// Least value; of a span, the id of its stack with
    /// [`PROBE_STACK_IDS`](super::PROBE_STACK_IDS), else zero.
    pub least: i64,
    /// Greatest value; of a span, its value.
    pub greatest: i64,
    /// When a span began, CLOCK_MONOTONIC in nanoseconds; else zero.
    pub time_ns: u64,
    /// Words of the key.
    pub key_words: u16,
    /// Words of the stack.
    pub stack_words: u16,
    /// Words that the stack has room for.
    pub stack_capacity: u16,
    /// Why the stack ends, a [`StackEnd`](super::super::record::StackEnd).
    pub stack_end: u16,
    /// Words of buckets.
    pub buckets: u32,
    /// The task that began a span, as the opener's pid namespace numbers it; else
    /// zero.
    pub tid: u32,
}
const _: () = assert!(size_of::<Row>() == 56);

/// Most [`SpanOwner`]s of one [`DropSpans`].
pub const SPAN_OWNERS_MAX: u32 = 1 << 12;

/// Drops spans that nothing will end, such as those of processes that have ended: all whose key
/// begins with the word of an owner, and that began at the owner's time at the latest.
///
/// Errors: `ENOENT` no such table; `EINVAL` a table of another kind, no owners or too many, or
/// owners whose words do not rise.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DropSpans {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the table's id.
    pub table: u32,
    /// In: how many [`SpanOwner`]s there are, from 1 on.
    pub count: u32,
    /// In: their address.
    pub owners: u64,
    /// Out: how many spans were dropped.
    pub dropped: u64,
}
const _: () = assert!(size_of::<DropSpans>() == 32);

/// Spans with a word in common, of [`DropSpans`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SpanOwner {
    /// The first word of their keys.
    pub word: u64,
    /// When the last of them began, CLOCK_MONOTONIC in nanoseconds.
    pub latest_ns: u64,
}
const _: () = assert!(size_of::<SpanOwner>() == 16);

/// Identifies the file that a probe attached by this descriptor would go into: on overlayfs the
/// real file beneath, which several containers may share. The identity's `pid` and build-id are
/// zero.
///
/// The descriptor may be an `O_PATH` one of a file that is mapped or open elsewhere: this asks no
/// server, as opening the file would.
///
/// Errors: `EBADF` no descriptor, or open for writing alone; `EINVAL` no regular file.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct File {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// The descriptor.
    pub fd: i32,
    /// In: zero. Out: 1 if a server answers for its file system ([`Refusal::NeedsAnswer`]).
    pub remote: u32,
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
/// [`Unwind::flags`]: gives no rows, but drops the rows of files that no stack has gone through for
/// `first` nanoseconds (nor were they given later). The next stack through such a file announces it
/// anew. All else is zero.
pub const UNWIND_DROP: u32 = 1 << 2;
/// Bytes of stacks that a session copies per second, and in one burst.
pub const COPY_BYTES_PER_SECOND: u32 = 32 << 20;
/// Most bytes of all rows of a session.
pub const UNWIND_BYTES_MAX: u64 = 512 << 20;

/// Gives the session the unwind rows of a file: how its functions' callers are found
/// without frame pointers (`common/src/unwind.rs` has the format). Stacks use them from
/// then on, for this very file as it is now; when it is written to, it is another one.
/// The session keeps them until it ends or drops them ([`UNWIND_DROP`]), and no other one
/// uses them.
///
/// Errors: `EBADF` no descriptor, or not open for reading; `EINVAL` no regular file, or
/// `defect` says what is wrong with the rows; `EEXIST` the file has rows already;
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
    /// Answer: what is wrong with the rows ([`Defect`](super::super::unwind::Defect)), or zero.
    pub defect: u32,
    /// Answer: bytes of all rows of the session; with [`UNWIND_DROP`], of those dropped.
    pub bytes: u64,
}
const _: () = assert!(size_of::<Unwind>() == 72);

/// The frames of a stack that records name by its id. Ids hold as long as the session.
///
/// Errors: `ENOENT` no such stack; `EINVAL` too little room: `words` then says how much is
/// needed.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stack {
    /// Bytes of this struct.
    pub size: u32,
    /// Zero.
    pub flags: u32,
    /// In: the stack's id, or zero for the answers about all stacks alone.
    pub id: u32,
    /// In: words that there is room for. Out: words of frames.
    pub words: u32,
    /// In: address of the room.
    pub frames: u64,
    /// Out: words that all stacks of the session take, of [`STACK_TABLE_WORDS`].
    pub used: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: the id of the pid namespace, below the opener's, of the first stack for which there was
    /// no room; or zero. A container may take three quarters of the room that others have left.
    pub full_pidns: u64,
}
const _: () = assert!(size_of::<Stack>() == 40);

/// [`Freeze::flags`]: nothing is recorded any more; hits count as frozen.
pub const FREEZE_NOW: u32 = 1 << 0;
/// [`Freeze::flags`]: records are taken again; what is in the rings is gone.
pub const FREEZE_END: u32 = 1 << 1;

/// Freezes rings that overwrite, thaws them, or only queries their state. While they are frozen the
/// consumer pages give the positions of the oldest records, and everything from there on is read as
/// from other rings; records that are being written at the moment follow when they are complete.
/// `EINVAL` for other rings, `ENXIO` before [`Setup`].
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
/// [`Object::flags`], instead: also open the root directory of the process that was first
/// seen with the file, `O_PATH` and close-on-exec, and drop the kernel's own reference to it:
/// what lies beside the file there can be opened also when the process has ended.
pub const OBJECT_ROOT: u32 = 1 << 1;

/// [`Object::flags`], instead: drop the kernel's own references to both. Waits for no server.
pub const OBJECT_DROP: u32 = 1 << 2;

/// What a mapped file is that frames name by id. `ENOENT`: no such object;
/// `ESTALE` with [`OBJECT_FD`] or [`OBJECT_ROOT`]: the kernel holds no reference (any more);
/// `EREMOTE` with [`OBJECT_FD`]: a server answers for the file's file system, as for
/// [`Refusal::NeedsAnswer`]. Then the reference stays.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Object {
    /// Bytes of this struct.
    pub size: u32,
    /// `OBJECT_*` bits.
    pub flags: u32,
    /// In: the object's id, from 1 on.
    pub id: u32,
    /// Out: the file descriptor, with [`OBJECT_FD`] or [`OBJECT_ROOT`]; else -1.
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
