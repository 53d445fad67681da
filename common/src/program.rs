// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Probe programs: what to fetch at a hit, which hits count, and what to write.
//!
//! A program is a list of [`Step`]s over [`SLOTS`] slots of 64 bits, and some constant bytes. It is
//! data without jumps, so it takes no more steps than it has. [`check`] shows before it ever runs
//! that each step is known, that it reads only slots that an earlier step wrote, and that its
//! output fits. What can still fail at a hit is memory that is not present and division by zero:
//! then the value is *absent*, a value computed from it is absent too, and a field says so.
//!
//! Registers, memory and facts about the task come from a [`Machine`], so that the same code runs
//! in a handler and in a test.

mod check;
mod guard;
mod run;
mod shortcut;

pub use check::check;
pub use guard::Guards;
pub use run::{Machine, Outcome, Output};
pub use shortcut::Shortcut;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Slots of a program.
pub const SLOTS: usize = 16;
/// Most steps of a program.
pub const STEPS_MAX: usize = 256;
/// Most constant bytes of a program.
pub const DATA_MAX: usize = 4096;
/// Most fields of a program.
pub const FIELDS_MAX: usize = 32;
/// Longest string or byte array that is fetched, in bytes.
pub const BYTES_MAX: usize = 256;
/// Most words that the fields of one hit take.
pub const OUTPUT_WORDS_MAX: usize = 96;

/// One step: `slots[to] = operation(a, b, small, large)`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Step {
    /// An [`Operation`].
    pub operation: u8,
    /// The slot that is written.
    pub to: u8,
    /// The first slot that is read.
    pub a: u8,
    /// The second slot that is read.
    pub b: u8,
    /// Its meaning depends on the operation.
    pub small: i32,
    /// Its meaning depends on the operation.
    pub large: u64,
}
const _: () = assert!(size_of::<Step>() == 16);

numbered! {
    /// The operation of a step. Numbers are never reused.
    pub enum Operation {
        /// `large`.
        Constant = 1,
        /// Register `small` (a [`Register`]) of the task.
        Register = 2,
        /// `large` as a [`Context`].
        Context = 3,
        /// Value `small` that the entry of this call kept.
        Kept = 4,
        /// Keeps `a` as value `small` for the return of this call.
        Keep = 5,
        /// `large` bytes (1, 2, 4 or 8) at address `a + small`.
        Load = 6,
        /// As `Load`, with the sign extended.
        LoadSigned = 7,
        /// The address in this process that lies `large` after the probe's reported
        /// place: how a program names what is in the probed file.
        FromProbe = 8,
        /// `a + b`.
        Add = 16,
        /// `a - b`.
        Subtract = 17,
        /// `a * b`.
        Multiply = 18,
        /// `a / b`, unsigned; absent when `b` is zero.
        Divide = 19,
        /// `a % b`, unsigned; absent when `b` is zero.
        Modulo = 20,
        /// `a & b`.
        And = 21,
        /// `a | b`.
        Or = 22,
        /// `a ^ b`.
        ExclusiveOr = 23,
        /// `a << b`; zero when `b` is 64 or more.
        ShiftLeft = 24,
        /// `a >> b`, unsigned; zero when `b` is 64 or more.
        ShiftRight = 25,
        /// `a >> b` with the sign kept; `b` counts as at most 63.
        ShiftRightSigned = 26,
        /// `!a`, bit by bit.
        Not = 27,
        /// The low `large` bits (1 to 63) of `a`.
        ZeroExtend = 28,
        /// The low `large` bits (1 to 63) of `a`, with the sign extended.
        SignExtend = 29,
        /// `a / b`, signed; absent when `b` is zero or the result does not fit.
        DivideSigned = 30,
        /// `a % b`, signed; absent when `b` is zero or the division does not fit.
        ModuloSigned = 31,
        /// 1 when `a == b`, else 0.
        Equal = 32,
        /// 1 when `a < b`, unsigned, else 0.
        Below = 33,
        /// 1 when `a <= b`, unsigned, else 0.
        BelowOrEqual = 34,
        /// 1 when `a < b`, signed, else 0.
        Less = 35,
        /// 1 when `a <= b`, signed, else 0.
        LessOrEqual = 36,
        /// 1 when `a` is zero, else 0.
        IsZero = 37,
        /// 1 when the string at address `a` is the constant `small..small + large`,
        /// which is at most [`BYTES_MAX`] long, else 0.
        StringEqual = 38,
        /// Like `StringEqual`, when the string begins with the constant.
        StringBegins = 39,
        /// `a` when it is present and not zero, else `b`: an "or" that does not look at
        /// what would decide nothing.
        Either = 40,
        /// `b` when `a` is not zero, else zero: an "and" that does not look at what would
        /// decide nothing.
        Both = 41,
        /// 1 when the `b` bytes at address `a` are the constant `small..small + large`,
        /// which is at most [`BYTES_MAX`] long, else 0. Of another length, nothing is read.
        SliceEqual = 42,
        /// Like `SliceEqual`, when the bytes begin with the constant.
        SliceBegins = 43,
        /// The hit counts only when `a` is present and not zero; else the program
        /// ends here.
        Require = 48,
        /// A field: `a`.
        Field = 64,
        /// A field: the string at address `a`, at most `small` bytes of it.
        FieldString = 65,
        /// A field: `small` bytes at address `a`.
        FieldBytes = 66,
        /// A field: the `b` bytes at address `a`, at most `small` of them; absent when `b`
        /// is 2^63 or more.
        FieldSlice = 67,
        /// The next word of the key is `a`. A hit whose key is absent is rejected, as
        /// undecided.
        Key = 80,
        /// The next `small / 8` words of the key are the string at address `a`,
        /// zero-padded, at most `small` bytes of it; `small` is a multiple of 8.
        KeyString = 81,
        /// The value for the table is `a`. A hit whose value is absent is rejected, as
        /// undecided.
        Value = 82,
        /// Ends the span that began under the key so far, and empties the key for what
        /// follows. Nanoseconds since it began; absent when there is none. At most twice in a
        /// program, with keys of one length. With `small` 1 only a span that began before the
        /// call that returns here: one that began meanwhile, in another thread, stays. Absent
        /// where there is no return, or the call's entry was not seen.
        EndSpan = 83,
        /// The value that the ended span began with; absent when there was none.
        SpanValue = 84,
        /// Like `KeyString`, of the `b` bytes at address `a`.
        KeySlice = 85,
        /// Sets register `small` to `a`: a general one, or the arithmetic flags. Fails for
        /// one that a 32-bit program does not have.
        SetRegister = 96,
        /// Writes the low `large` bytes (1, 2, 4 or 8) of `b` to address `a + small`. Fails
        /// when they are in two pages, or their page could not be written without a page
        /// fault: it is absent, read-only, or not yet the process's own copy.
        Store = 97,
        /// Ends the function at once with return value `a`: continues at the `ret`
        /// instruction (0xc3) that lies `large` after the probe's reported place, instead
        /// of at the breakpoint. Fails when there is none. Only at a function's entry, where
        /// the return address is on top of the stack.
        Return = 98,
    }
}

numbered! {
    /// A register, by its DWARF number (System V psABI for x86-64, figure 3.36).
    pub enum Register {
        /// %rax.
        Rax = 0,
        /// %rdx.
        Rdx = 1,
        /// %rcx.
        Rcx = 2,
        /// %rbx.
        Rbx = 3,
        /// %rsi.
        Rsi = 4,
        /// %rdi.
        Rdi = 5,
        /// %rbp.
        Rbp = 6,
        /// %rsp.
        Rsp = 7,
        /// %r8.
        R8 = 8,
        /// %r9.
        R9 = 9,
        /// %r10.
        R10 = 10,
        /// %r11.
        R11 = 11,
        /// %r12.
        R12 = 12,
        /// %r13.
        R13 = 13,
        /// %r14.
        R14 = 14,
        /// %r15.
        R15 = 15,
        /// %rip.
        Rip = 16,
        /// %rflags.
        Flags = 49,
    }
}

numbered! {
    /// A fact about the task or the moment of the hit.
    pub enum Context {
        /// Process id in the session owner's pid namespace.
        Pid = 0,
        /// Thread id in the session owner's pid namespace.
        Tid = 1,
        /// Process id in the task's own namespace.
        NsPid = 2,
        /// Thread id in the task's own namespace.
        NsTid = 3,
        /// Inode number of the task's pid namespace, which the kernel may reuse.
        PidNamespace = 4,
        /// CPU.
        Cpu = 5,
        /// CLOCK_MONOTONIC in nanoseconds.
        Time = 6,
        /// Nanoseconds since the entry of this call; absent outside of returns.
        Elapsed = 7,
        /// Effective user id, in the initial user namespace.
        Uid = 8,
        /// First eight bytes of the thread's name.
        CommLow = 9,
        /// Last eight bytes of the thread's name.
        CommHigh = 10,
        /// The probe's id.
        Probe = 11,
        /// Id of the task's pid namespace, which is never reused.
        PidNamespaceId = 12,
        /// A random number, another one at each hit. What it is made of is not fit for secrets.
        Random = 13,
        /// Effective group id, in the initial user namespace.
        Gid = 14,
        /// Of a wait: what it was for, a [`WaitKind`](crate::wait::WaitKind). Absent elsewhere, as
        /// the following ones.
        WaitKind = 15,
        /// Of a wait: the number of the x86-64 system call that the task is in; all bits set in none.
        WaitCall = 16,
        /// Of a wait: the file descriptor that this call has as its first argument; all bits set if
        /// it has none.
        WaitFile = 17,
        /// Of a wait: nanoseconds that the task could run, and waited for a CPU.
        WaitedForCpu = 18,
        /// Of a wait: when the task was woken, CLOCK_MONOTONIC in nanoseconds; zero if that is
        /// unknown, as without a [`PROBE_WAKE`](crate::abi::PROBE_WAKE), whose hit has the same time.
        WokenAt = 19,
        /// Of a wait: what woke the task: a [`Waker`](crate::wait::Waker) in the upper half, the
        /// thread's number in the session owner's pid namespace in the lower one.
        WokenBy = 20,
        /// Of a wait in `futex(2)`: the address that it waits at; zero in other calls.
        Lock = 21,
        /// Of such a wait, with [`PROBE_LOCKS`](crate::abi::PROBE_LOCKS): which other thread of the
        /// process held the lock when the wait began: the [`Proof`](crate::wait::Proof) in the upper
        /// half, the thread's number in the session owner's pid namespace in the lower one.
        LockHolder = 22,
    }
}

/// Values that an entry can keep for its return.
pub const KEPT_MAX: usize = 4;

/// Most words of a key.
pub const KEY_WORDS_MAX: usize = 16;

/// Why a program was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flaw {
    /// More steps than [`STEPS_MAX`], or more data than [`DATA_MAX`].
    TooLong = 1,
    /// The operation, register or context does not exist.
    Unknown = 2,
    /// The slot does not exist.
    NoSlot = 3,
    /// A slot is read before any step wrote it.
    Unwritten = 4,
    /// A size, bound or range is out of its limits.
    BadSize = 5,
    /// More fields, or longer ones, than a record holds, or more words than a key.
    TooMuchOutput = 6,
    /// An operation is there more often than a program may have it.
    Repeated = 7,
    /// The stack or instruction pointer is set.
    NotWritable = 8,
}

/// What a program does, as far as its caller must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// It writes registers or memory.
    pub writes: bool,
    /// It returns at once.
    pub returns: bool,
    /// It reads the memory of the traced process.
    pub reads_memory: bool,
    /// How many fields it has.
    pub fields: u32,
    /// How many values it keeps at entry.
    pub keeps: u32,
    /// How many words its key has.
    pub key_words: u32,
    /// How many slots it uses, counted up to the last.
    pub slots: u32,
    /// It gives a value.
    pub gives_value: bool,
    /// It ends a span; the words of its key.
    pub ends_span: Option<u32>,
}

/// A program that [`check`] accepted.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    steps: &'a [Step],
    data: &'a [u8],
    summary: Summary,
}

fn bit(slot: u8) -> Result<u32, Flaw> {
    match usize::from(slot) < SLOTS {
        true => Ok(1 << slot),
        false => Err(Flaw::NoSlot),
    }
}

/// The constant bytes that a string step names.
fn constant<'a>(data: &'a [u8], step: &Step) -> Option<&'a [u8]> {
    let start = usize::try_from(step.small).ok()?;
    let length = usize::try_from(step.large).ok()?;
    let bytes = data.get(start..start.checked_add(length)?)?;
    (length <= BYTES_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests;
