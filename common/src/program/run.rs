// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Runs a checked program on any [`Machine`].

use super::{
    constant, Context, Operation, Program, Register, Step, Summary, BYTES_MAX, KEY_WORDS_MAX, SLOTS,
};

/// The task that a program runs on.
pub trait Machine {
    /// A register's value; absent if the task has no such register.
    fn register(&self, register: Register) -> Option<u64>;
    /// A fact about the task or the moment of the hit.
    fn context(&self, context: Context) -> Option<u64>;
    /// A value that the entry of this call kept.
    fn kept(&self, index: usize) -> Option<u64>;
    /// Keeps a value for the return of this call.
    fn keep(&mut self, index: usize, value: u64);
    /// The address of the probe's reported place in this process.
    fn probe_address(&self) -> u64;
    /// Fills `out` from `address`; returns false if not all of it is present.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
    /// Sets a register; returns false if that failed.
    fn set_register(&mut self, register: Register, value: u64) -> bool;
    /// Writes `bytes` to `address`; returns false if they could not all be written.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool;
    /// Ends the function with this return value, by the `ret` instruction `distance` after the
    /// probe's reported place; returns false if that failed.
    fn return_now(&mut self, value: u64, distance: u64) -> bool;
    /// Appends words to the key; room for as many as [`check`](super::check)
    /// counted is there.
    fn key(&mut self, words: &[u64]);
    /// Takes the value for the table.
    fn value(&mut self, value: u64);
    /// Ends the span that began under the key, `before_call` only one that is older than the
    /// call of this return, and empties the key; nanoseconds since it began.
    fn end_span(&mut self, before_call: bool) -> Option<u64>;
    /// The value that the ended span began with.
    fn span_value(&self) -> Option<u64>;
}

/// Takes a program's fields: words in order. The first is the mask of the fields
/// that are present, lowest bit first; a value takes one word, a string or byte
/// array one word for its length in bytes and its bytes, zero-padded to words.
/// Absent fields take one word of zero.
pub trait Output {
    /// Appends words; room for as many as [`check`](super::check) counted is there.
    fn extend(&mut self, words: &[u64]);
    /// Replaces the first word.
    fn set_first(&mut self, word: u64);
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether every requirement held.
    pub matched: bool,
    /// Whether a requirement could not be decided, as a value was missing.
    pub undecided: bool,
    /// Writes that could not be made.
    pub failed_writes: u32,
}

impl<'a> Program<'a> {
    /// The summary that [`check`](super::check) made.
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
    #[inline(always)]
    pub fn run(&self, machine: &mut impl Machine, output: &mut impl Output) -> Outcome {
        // Most programs are small, and a hit should not pay for slots that its program does not
        // use.
        match self.summary.slots as usize <= FEW_SLOTS {
            true => self.run_with::<FEW_SLOTS>(machine, output),
            false => self.run_with::<SLOTS>(machine, output),
        }
    }

    #[inline(never)]
    fn run_with<const COUNT: usize>(
        &self,
        machine: &mut impl Machine,
        output: &mut impl Output,
    ) -> Outcome {
        let mut run = Run {
            slots: [0; COUNT],
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

/// Slots of a program that is small.
const FEW_SLOTS: usize = 6;

/// The state of a run. A slot whose bit in `present` is clear is absent.
struct Run<const COUNT: usize> {
    slots: [u64; COUNT],
    present: u32,
    fields: u32,
    mask: u64,
    outcome: Outcome,
}

impl<const COUNT: usize> Run<COUNT> {
    #[inline(always)]
    fn value(&self, slot: u8) -> Option<u64> {
        let value = self.slots.get(usize::from(slot)).copied();
        let present = self.present.wrapping_shr(slot.into()) & 1 != 0;
        value.filter(|_| present)
    }

    #[inline(always)]
    fn set(&mut self, slot: u8, value: Option<u64>) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else {
            return;
        };
        let bit = 1u32.wrapping_shl(slot.into());
        *place = value.unwrap_or(0);
        self.present = match value {
            Some(_) => self.present | bit,
            None => self.present & !bit,
        };
    }

    /// Takes one step; returns false if the program ends there. The most frequent operations come
    /// first, as the kernel compiles a `match` into comparisons.
    #[inline(always)]
    fn step<M: Machine>(
        &mut self,
        step: &Step,
        data: &[u8],
        machine: &mut M,
        output: &mut impl Output,
    ) -> bool {
        let is = |operation: Operation| step.operation == operation as u8;
        if is(Operation::Key) {
            return self.give(self.value(step.a), |word| machine.key(&[word]));
        }
        if is(Operation::Require) {
            return self.require(self.value(step.a));
        }
        let value = if is(Operation::Register) {
            let register = u8::try_from(step.small).ok().and_then(Register::from_u8);
            register.and_then(|register| machine.register(register))
        } else if is(Operation::Context) {
            let context = u8::try_from(step.large).ok().and_then(Context::from_u8);
            context.and_then(|context| machine.context(context))
        } else if is(Operation::Kept) {
            let index = usize::try_from(step.small).ok();
            index.and_then(|index| machine.kept(index))
        } else if is(Operation::Constant) {
            Some(step.large)
        } else {
            return self.other_step(step, data, machine, output);
        };
        self.set(step.to, value);
        true
    }

    /// Takes one step of another operation.
    #[inline(never)]
    fn other_step<M: Machine>(
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
            Operation::Field => self.field(a, output),
            Operation::FieldString => self.field_of(a, step.small, machine, output, read_string),
            Operation::FieldBytes => self.field_of(a, step.small, machine, output, read_bytes),
            Operation::FieldSlice => {
                let length = self.value(step.b);
                self.field_of(a, step.small, machine, output, read_slice(length));
            }
            Operation::Keep => {
                if let (Some(value), Ok(index)) = (a, usize::try_from(step.small)) {
                    machine.keep(index, value);
                }
            }
            Operation::KeyString => return self.key_of(a, step.small, machine, read_string),
            Operation::KeySlice => {
                let length = self.value(step.b);
                return self.key_of(a, step.small, machine, read_slice(length));
            }
            Operation::Value => return self.give(a, |value| machine.value(value)),
            Operation::EndSpan => {
                let elapsed = machine.end_span(step.small != 0);
                self.set(step.to, elapsed);
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

    /// Passes on a value that must be present for the hit to count.
    fn give(&mut self, value: Option<u64>, take: impl FnOnce(u64)) -> bool {
        match value {
            Some(value) => take(value),
            None => return self.require(None),
        }
        true
    }

    /// A part of the key that is a string of at most `bytes` bytes, as `fetch` reads it.
    fn key_of<M: Machine>(
        &mut self,
        a: Option<u64>,
        bytes: i32,
        machine: &mut M,
        fetch: impl FnOnce(&M, u64, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let mut words = [0u64; KEY_WORDS_MAX];
        let length = usize::try_from(bytes).unwrap_or(0);
        let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut words);
        let read = match (a, buffer.get_mut(..length)) {
            (Some(address), Some(out)) => fetch(machine, address, out),
            _ => None,
        };
        if read.is_none() {
            return self.require(None);
        }
        machine.key(words.get(..length / 8).unwrap_or(&[]));
        true
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

    /// A field of at most `bytes` bytes at an address, as `fetch` reads them and returns their
    /// number.
    fn field_of<M: Machine>(
        &mut self,
        address: Option<u64>,
        bytes: i32,
        machine: &M,
        output: &mut impl Output,
        fetch: impl FnOnce(&M, u64, &mut [u8]) -> Option<usize>,
    ) {
        let mut words = [0u64; BYTES_MAX / 8];
        let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut words);
        let out = buffer.get_mut(..usize::try_from(bytes).unwrap_or(0));
        let read = match (address, out) {
            (Some(address), Some(out)) => fetch(machine, address, out),
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

/// Reads all of `out`.
fn read_bytes(machine: &impl Machine, address: u64, out: &mut [u8]) -> Option<usize> {
    machine.read(address, out).then_some(out.len())
}

/// Reads `length` bytes, or as many of them as `out` holds; returns their number. For a length of
/// zero nothing is read, whatever the address.
fn read_slice<M: Machine>(length: Option<u64>) -> impl FnOnce(&M, u64, &mut [u8]) -> Option<usize> {
    move |machine, address, out| {
        let length = i64::try_from(length?).ok()?;
        let length = usize::try_from(length).ok()?.min(out.len());
        let out = out.get_mut(..length)?;
        (length == 0 || machine.read(address, out)).then_some(length)
    }
}

/// Reads in pieces that end at a page boundary, so that a string right in front of memory that is
/// not present is read whole.
const PIECE: u64 = 64;

/// Reads a string of at most `out.len()` bytes; returns its length. The rest of `out` is zero.
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
        _ => Some(machine.return_now(a, step.large)),
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
        Operation::SpanValue => machine.span_value(),
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
        Operation::SliceEqual | Operation::SliceBegins => {
            let (wanted, length) = (constant(data, step)?, b?);
            let fits = match operation {
                Operation::SliceEqual => length == wanted.len() as u64,
                _ => i64::try_from(length).ok()? as u64 >= wanted.len() as u64,
            };
            match fits {
                true if wanted.is_empty() => Some(1),
                true => begins_with(machine, a?, wanted).map(u64::from),
                false => Some(0),
            }
        }
        Operation::Either => a.filter(|a| *a != 0).or(b),
        Operation::Both => match a? {
            0 => Some(0),
            _ => b,
        },
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
        Operation::DivideSigned => (a as i64).checked_div(b as i64)? as u64,
        Operation::ModuloSigned => (a as i64).checked_rem(b as i64)? as u64,
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
    if !begins_with(machine, address, wanted)? {
        return Some(false);
    }
    if !whole {
        return Some(true);
    }
    let end = address.checked_add(wanted.len() as u64)?;
    load(machine, end, 1).map(|byte| byte == 0)
}

/// Whether the bytes at `address` are `wanted`; reads no more of them than it needs to decide.
fn begins_with(machine: &impl Machine, address: u64, wanted: &[u8]) -> Option<bool> {
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
    Some(true)
}
