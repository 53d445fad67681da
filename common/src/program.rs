// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Probe programs: what is fetched at a hit, which hits count, what is written.
//!
//! A program is a list of [`Step`]s over [`SLOTS`] slots of 64 bits, and some
//! constant bytes. It is data: no jumps, so it ends after as many steps as it
//! has; [`check`] shows before it ever runs that each step is known, reads only
//! slots that an earlier step wrote, and that its output fits. What is left to
//! fail at a hit is memory that is not there and division by zero: then the value
//! is *absent*, what is computed from it is absent too, and a field says so.
//!
//! Registers, memory and what is known of the task come from a [`Machine`], so
//! that the same code runs in a handler and in a test.

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
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
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
    /// What it means stands at the operation.
    pub small: i32,
    /// What it means stands at the operation.
    pub large: u64,
}
const _: () = assert!(size_of::<Step>() == 16);

macro_rules! numbered {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$item_doc:meta])* $item:ident = $number:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$item_doc])* $item = $number,)*
        }

        impl $name {
            /// The one with this number.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$item),)*
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// What a step does. Numbers are never reused.
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
        /// The same, with the sign extended.
        LoadSigned = 7,
        /// The address in this process that lies `large` behind the probe's reported
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
        /// The hit counts only when `a` is present and not zero; else the program
        /// ends here.
        Require = 48,
        /// A field: `a`.
        Field = 64,
        /// A field: the string at address `a`, at most `small` bytes of it.
        FieldString = 65,
        /// A field: `small` bytes at address `a`.
        FieldBytes = 66,
        /// Sets register `small` to `a`.
        SetRegister = 96,
        /// Writes the low `large` bytes (1, 2, 4 or 8) of `b` to address `a + small`.
        Store = 97,
        /// Ends the function at once with return value `a`.
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
    /// What is known of the task and the moment.
    pub enum Context {
        /// Process id, as the opener numbers it.
        Pid = 0,
        /// Thread id, as the opener numbers it.
        Tid = 1,
        /// Process id in the task's own namespace.
        NsPid = 2,
        /// Thread id in the task's own namespace.
        NsTid = 3,
        /// Inode number of the task's pid namespace.
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
    }
}

/// Values that an entry can keep for its return.
pub const KEPT_MAX: usize = 4;

/// Why a program was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flaw {
    /// More steps than [`STEPS_MAX`], or more data than [`DATA_MAX`].
    TooLong = 1,
    /// The operation, register or context does not exist.
    Unknown = 2,
    /// There is no such slot.
    NoSlot = 3,
    /// A slot is read before any step wrote it.
    Unwritten = 4,
    /// A size, bound or range is out of its limits.
    BadSize = 5,
    /// More fields, or longer ones, than a record holds.
    TooMuchOutput = 6,
}

/// What a program does, as far as whoever runs it must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// It writes registers or memory.
    pub writes: bool,
    /// It reads the memory of the traced process.
    pub reads_memory: bool,
    /// How many fields it has.
    pub fields: u32,
    /// How many values it keeps at entry.
    pub keeps: u32,
}

/// A program that [`check`] accepted.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    steps: &'a [Step],
    data: &'a [u8],
    summary: Summary,
}

/// What a checked step reads and writes.
struct Shape {
    a: bool,
    b: bool,
    to: bool,
}

const fn shape(operation: Operation) -> Shape {
    use Operation::*;
    let (a, b, to) = match operation {
        Constant | Register | Context | Kept | FromProbe => (false, false, true),
        Load | LoadSigned | Not | ZeroExtend | SignExtend | IsZero | StringEqual | StringBegins => {
            (true, false, true)
        }
        Add | Subtract | Multiply | Divide | Modulo | And | Or | ExclusiveOr | ShiftLeft
        | ShiftRight | ShiftRightSigned | Equal | Below | BelowOrEqual | Less | LessOrEqual => {
            (true, true, true)
        }
        Keep | Require | Field | FieldString | FieldBytes | SetRegister | Return => {
            (true, false, false)
        }
        Store => (true, true, false),
    };
    Shape { a, b, to }
}

/// Accepts a program, or says which step is wrong and how.
pub fn check<'a>(steps: &'a [Step], data: &'a [u8]) -> Result<Program<'a>, (usize, Flaw)> {
    if steps.len() > STEPS_MAX || data.len() > DATA_MAX {
        return Err((0, Flaw::TooLong));
    }
    let mut checker = Checker {
        data,
        written: 0,
        words: 1,
        summary: Summary::default(),
    };
    for (index, step) in steps.iter().enumerate() {
        checker.step(step).map_err(|flaw| (index, flaw))?;
    }
    Ok(Program {
        steps,
        data,
        summary: checker.summary,
    })
}

struct Checker<'a> {
    data: &'a [u8],
    /// Slots that are written so far, one bit each.
    written: u32,
    /// Words of output so far: the mask of present fields, and the fields.
    words: usize,
    summary: Summary,
}

impl Checker<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Flaw> {
        let operation = Operation::from_u8(step.operation).ok_or(Flaw::Unknown)?;
        let shape = shape(operation);
        if shape.a {
            self.reads(step.a)?;
        }
        if shape.b {
            self.reads(step.b)?;
        }
        self.operands(operation, step)?;
        if shape.to {
            self.written |= bit(step.to)?;
        }
        Ok(())
    }

    fn reads(&self, slot: u8) -> Result<(), Flaw> {
        match self.written & bit(slot)? {
            0 => Err(Flaw::Unwritten),
            _ => Ok(()),
        }
    }

    fn operands(&mut self, operation: Operation, step: &Step) -> Result<(), Flaw> {
        match operation {
            Operation::Register | Operation::SetRegister => {
                let number = u8::try_from(step.small).map_err(|_| Flaw::Unknown)?;
                Register::from_u8(number).ok_or(Flaw::Unknown)?;
                self.summary.writes |= operation == Operation::SetRegister;
            }
            Operation::Context => {
                let number = u8::try_from(step.large).map_err(|_| Flaw::Unknown)?;
                Context::from_u8(number).ok_or(Flaw::Unknown)?;
            }
            Operation::Kept | Operation::Keep => {
                let index = within(step.small, 0, KEPT_MAX.saturating_sub(1))?;
                if operation == Operation::Keep {
                    let count = index.saturating_add(1) as u32;
                    self.summary.keeps = self.summary.keeps.max(count);
                }
            }
            Operation::Load | Operation::LoadSigned | Operation::Store => {
                if !matches!(step.large, 1 | 2 | 4 | 8) {
                    return Err(Flaw::BadSize);
                }
                self.summary.reads_memory |= operation != Operation::Store;
                self.summary.writes |= operation == Operation::Store;
            }
            Operation::ZeroExtend | Operation::SignExtend if !(1..=63).contains(&step.large) => {
                return Err(Flaw::BadSize);
            }
            Operation::StringEqual | Operation::StringBegins => {
                constant(self.data, step).ok_or(Flaw::BadSize)?;
                self.summary.reads_memory = true;
            }
            Operation::Field => self.field(0)?,
            Operation::FieldString | Operation::FieldBytes => {
                let bytes = within(step.small, 1, BYTES_MAX)?;
                self.field(bytes.div_ceil(8))?;
                self.summary.reads_memory = true;
            }
            Operation::Return => self.summary.writes = true,
            _ => {}
        }
        Ok(())
    }

    /// Room for a field of one word and `words` more.
    fn field(&mut self, words: usize) -> Result<(), Flaw> {
        self.words = self.words.saturating_add(words).saturating_add(1);
        self.summary.fields = self.summary.fields.saturating_add(1);
        if self.words > OUTPUT_WORDS_MAX || self.summary.fields as usize > FIELDS_MAX {
            return Err(Flaw::TooMuchOutput);
        }
        Ok(())
    }
}

fn bit(slot: u8) -> Result<u32, Flaw> {
    match usize::from(slot) < SLOTS {
        true => Ok(1 << slot),
        false => Err(Flaw::NoSlot),
    }
}

fn within(small: i32, least: usize, most: usize) -> Result<usize, Flaw> {
    usize::try_from(small)
        .ok()
        .filter(|value| (least..=most).contains(value))
        .ok_or(Flaw::BadSize)
}

/// The constant bytes that a string step names.
fn constant<'a>(data: &'a [u8], step: &Step) -> Option<&'a [u8]> {
    let start = usize::try_from(step.small).ok()?;
    let length = usize::try_from(step.large).ok()?;
    let bytes = data.get(start..start.checked_add(length)?)?;
    (length <= BYTES_MAX).then_some(bytes)
}

/// Where a program runs.
pub trait Machine {
    /// A register's value; absent when the task has none such.
    fn register(&self, register: Register) -> Option<u64>;
    /// What is known of the task and the moment.
    fn context(&self, context: Context) -> Option<u64>;
    /// A value that the entry of this call kept.
    fn kept(&self, index: usize) -> Option<u64>;
    /// Keeps a value for the return of this call.
    fn keep(&mut self, index: usize, value: u64);
    /// The address of the probe's reported place in this process.
    fn probe_address(&self) -> u64;
    /// Fills `out` from `address`; false when it is not all there.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
    /// Sets a register; false when it could not be.
    fn set_register(&mut self, register: Register, value: u64) -> bool;
    /// Writes `bytes` to `address`; false when they could not all be.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool;
    /// Ends the function with this return value; false when it could not be.
    fn return_now(&mut self, value: u64) -> bool;
}

/// Takes a program's fields: words in order. The first is the mask of the fields
/// that are present, lowest bit first; a value takes one word, a string or byte
/// array one word for its length in bytes and its bytes, zero-padded to words.
/// Absent fields take one word of zero.
pub trait Output {
    /// Appends words; room for as many as [`check`] counted is there.
    fn extend(&mut self, words: &[u64]);
    /// Replaces the first word.
    fn set_first(&mut self, word: u64);
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether every requirement held.
    pub matched: bool,
    /// Whether a requirement could not be decided, for want of a value.
    pub undecided: bool,
    /// Writes that could not be made.
    pub failed_writes: u32,
}

impl<'a> Program<'a> {
    /// What the program does.
    pub const fn summary(&self) -> Summary {
        self.summary
    }

    /// A program that was checked before and kept since.
    pub fn kept(steps: &'a [Step], data: &'a [u8], summary: Summary) -> Program<'a> {
        Program {
            steps,
            data,
            summary,
        }
    }

    /// Runs the program.
    pub fn run(&self, machine: &mut impl Machine, output: &mut impl Output) -> Outcome {
        let mut run = Run {
            slots: [0; SLOTS],
            present: 0,
            fields: 0,
            mask: 0,
            outcome: Outcome {
                matched: true,
                ..Outcome::default()
            },
        };
        if self.summary.fields != 0 {
            output.extend(&[0]);
        }
        for step in self.steps {
            if !run.step(step, self.data, machine, output) {
                break;
            }
        }
        if self.summary.fields != 0 {
            output.set_first(run.mask);
        }
        run.outcome
    }
}

/// The state of a run. A slot without its bit in `present` is absent.
struct Run {
    slots: [u64; SLOTS],
    present: u32,
    fields: u32,
    mask: u64,
    outcome: Outcome,
}

impl Run {
    fn value(&self, slot: u8) -> Option<u64> {
        let present = self.present & bit(slot).ok()? != 0;
        self.slots
            .get(usize::from(slot))
            .copied()
            .filter(|_| present)
    }

    fn set(&mut self, slot: u8, value: Option<u64>) {
        let (Ok(bit), Some(place)) = (bit(slot), self.slots.get_mut(usize::from(slot))) else {
            return;
        };
        *place = value.unwrap_or(0);
        self.present = match value {
            Some(_) => self.present | bit,
            None => self.present & !bit,
        };
    }

    /// Takes one step; false when the program ends there.
    fn step<M: Machine>(
        &mut self,
        step: &Step,
        data: &[u8],
        machine: &mut M,
        output: &mut impl Output,
    ) -> bool {
        let Some(operation) = Operation::from_u8(step.operation) else {
            return false;
        };
        let a = self.value(step.a);
        match operation {
            Operation::Require => return self.require(a),
            Operation::Field => self.field(a, output),
            Operation::FieldString => self.field_string(a, step.small, machine, output),
            Operation::FieldBytes => self.field_bytes(a, step.small, machine, output),
            Operation::Keep => {
                if let (Some(value), Ok(index)) = (a, usize::try_from(step.small)) {
                    machine.keep(index, value);
                }
            }
            Operation::SetRegister | Operation::Store | Operation::Return => {
                let done = write(operation, step, a, self.value(step.b), machine);
                let failed = u32::from(done != Some(true));
                self.outcome.failed_writes = self.outcome.failed_writes.wrapping_add(failed);
            }
            _ => {
                let value = compute(operation, step, a, self.value(step.b), data, machine);
                self.set(step.to, value);
            }
        }
        true
    }

    fn require(&mut self, value: Option<u64>) -> bool {
        let holds = value.is_some_and(|value| value != 0);
        self.outcome.matched &= holds;
        self.outcome.undecided |= value.is_none();
        holds
    }

    /// Marks the next field as present or absent.
    fn next_field(&mut self, present: bool) {
        if present {
            self.mask |= 1u64.wrapping_shl(self.fields);
        }
        self.fields = self.fields.wrapping_add(1);
    }

    fn field(&mut self, value: Option<u64>, output: &mut impl Output) {
        self.next_field(value.is_some());
        output.extend(&[value.unwrap_or(0)]);
    }

    fn field_bytes(
        &mut self,
        address: Option<u64>,
        bytes: i32,
        machine: &impl Machine,
        output: &mut impl Output,
    ) {
        let mut words = [0u64; BYTES_MAX / 8];
        let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut words);
        let out = buffer.get_mut(..usize::try_from(bytes).unwrap_or(0));
        let read = match (address, out) {
            (Some(address), Some(out)) => machine.read(address, out).then_some(out.len()),
            _ => None,
        };
        self.variable(read, &words, output);
    }

    fn field_string(
        &mut self,
        address: Option<u64>,
        bytes: i32,
        machine: &impl Machine,
        output: &mut impl Output,
    ) {
        let mut words = [0u64; BYTES_MAX / 8];
        let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut words);
        let out = buffer.get_mut(..usize::try_from(bytes).unwrap_or(0));
        let read = match (address, out) {
            (Some(address), Some(out)) => read_string(machine, address, out),
            _ => None,
        };
        self.variable(read, &words, output);
    }

    /// A field of `length` bytes, or an absent one.
    fn variable(&mut self, length: Option<usize>, words: &[u64], output: &mut impl Output) {
        self.next_field(length.is_some());
        output.extend(&[length.unwrap_or(0) as u64]);
        let used = length.unwrap_or(0).div_ceil(8);
        output.extend(words.get(..used).unwrap_or(&[]));
    }
}

/// Reads in pieces that end where a page does, so that a string right in front of
/// memory that is not there is read whole.
const PIECE: u64 = 64;

/// Reads a string of at most `out.len()` bytes; gives its length. What lies behind
/// it in `out` is zero.
fn read_string(machine: &impl Machine, address: u64, out: &mut [u8]) -> Option<usize> {
    let mut done = 0usize;
    while done < out.len() {
        let at = address.checked_add(done as u64)?;
        let piece = PIECE.wrapping_sub(at % PIECE) as usize;
        let end = done.saturating_add(piece).min(out.len());
        let piece = out.get_mut(done..end)?;
        if !machine.read(at, piece) {
            return None;
        }
        if let Some(nul) = piece.iter().position(|&byte| byte == 0) {
            for byte in piece.iter_mut().skip(nul) {
                *byte = 0;
            }
            return done.checked_add(nul);
        }
        done = end;
    }
    Some(done)
}

fn write(
    operation: Operation,
    step: &Step,
    a: Option<u64>,
    b: Option<u64>,
    machine: &mut impl Machine,
) -> Option<bool> {
    let a = a?;
    match operation {
        Operation::SetRegister => {
            let register = Register::from_u8(u8::try_from(step.small).ok()?)?;
            Some(machine.set_register(register, a))
        }
        Operation::Store => {
            let bytes = b?.to_le_bytes();
            let address = a.wrapping_add(i64::from(step.small) as u64);
            Some(machine.write(address, bytes.get(..step.large as usize)?))
        }
        _ => Some(machine.return_now(a)),
    }
}

fn compute(
    operation: Operation,
    step: &Step,
    a: Option<u64>,
    b: Option<u64>,
    data: &[u8],
    machine: &impl Machine,
) -> Option<u64> {
    match operation {
        Operation::Constant => Some(step.large),
        Operation::Register => {
            let register = Register::from_u8(u8::try_from(step.small).ok()?)?;
            machine.register(register)
        }
        Operation::Context => machine.context(Context::from_u8(u8::try_from(step.large).ok()?)?),
        Operation::Kept => machine.kept(usize::try_from(step.small).ok()?),
        Operation::FromProbe => Some(machine.probe_address().wrapping_add(step.large)),
        Operation::Load | Operation::LoadSigned => {
            let address = a?.wrapping_add(i64::from(step.small) as u64);
            let value = load(machine, address, step.large)?;
            Some(match operation {
                Operation::LoadSigned => sign_extend(value, step.large.wrapping_mul(8)),
                _ => value,
            })
        }
        Operation::StringEqual | Operation::StringBegins => {
            let whole = operation == Operation::StringEqual;
            compare_string(machine, a?, constant(data, step)?, whole).map(u64::from)
        }
        Operation::Not => Some(!a?),
        Operation::IsZero => Some(u64::from(a? == 0)),
        Operation::ZeroExtend => {
            Some(a? & u64::MAX.checked_shr(64u32.wrapping_sub(step.large as u32))?)
        }
        Operation::SignExtend => Some(sign_extend(a?, step.large)),
        _ => binary(operation, a?, b?),
    }
}

fn load(machine: &impl Machine, address: u64, bytes: u64) -> Option<u64> {
    let mut value = [0u8; 8];
    let out = value.get_mut(..bytes as usize)?;
    machine
        .read(address, out)
        .then(|| u64::from_le_bytes(value))
}

fn sign_extend(value: u64, bits: u64) -> u64 {
    let unused = 64u32.wrapping_sub(bits as u32);
    if unused >= 64 {
        return value;
    }
    (value.wrapping_shl(unused) as i64).wrapping_shr(unused) as u64
}

fn binary(operation: Operation, a: u64, b: u64) -> Option<u64> {
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    Some(match operation {
        Operation::Add => a.wrapping_add(b),
        Operation::Subtract => a.wrapping_sub(b),
        Operation::Multiply => a.wrapping_mul(b),
        Operation::Divide => a.checked_div(b)?,
        Operation::Modulo => a.checked_rem(b)?,
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::ExclusiveOr => a ^ b,
        Operation::ShiftLeft => a.checked_shl(shift).unwrap_or(0),
        Operation::ShiftRight => a.checked_shr(shift).unwrap_or(0),
        Operation::ShiftRightSigned => (a as i64).wrapping_shr(shift.min(63)) as u64,
        Operation::Equal => u64::from(a == b),
        Operation::Below => u64::from(a < b),
        Operation::BelowOrEqual => u64::from(a <= b),
        Operation::Less => u64::from((a as i64) < b as i64),
        Operation::LessOrEqual => u64::from(a as i64 <= b as i64),
        _ => return None,
    })
}

/// Whether the string at `address` is `wanted`, or begins with it.
fn compare_string(
    machine: &impl Machine,
    address: u64,
    wanted: &[u8],
    whole: bool,
) -> Option<bool> {
    let mut done = 0usize;
    let mut buffer = [0u8; PIECE as usize];
    while let Some(left) = wanted.get(done..).filter(|left| !left.is_empty()) {
        let at = address.checked_add(done as u64)?;
        let piece = (PIECE.wrapping_sub(at % PIECE) as usize).min(left.len());
        let (got, expected) = (buffer.get_mut(..piece)?, left.get(..piece)?);
        if !machine.read(at, got) {
            return None;
        }
        if got != expected {
            return Some(false);
        }
        done = done.checked_add(piece)?;
    }
    if !whole {
        return Some(true);
    }
    let end = address.checked_add(done as u64)?;
    load(machine, end, 1).map(|byte| byte == 0)
}

#[cfg(test)]
mod tests;
