// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Checks a program before it ever runs.

use super::{
    bit, constant, Context, Flaw, Operation, Program, Register, Step, Summary, BYTES_MAX, DATA_MAX,
    FIELDS_MAX, KEPT_MAX, KEY_WORDS_MAX, OUTPUT_WORDS_MAX, STEPS_MAX,
};

/// Which of its slots a step reads and writes.
struct Shape {
    a: bool,
    b: bool,
    to: bool,
}

const fn shape(operation: Operation) -> Shape {
    use Operation::*;
    let (a, b, to) = match operation {
        Constant | Register | Context | Kept | FromProbe | EndSpan | SpanValue => {
            (false, false, true)
        }
        Load | LoadSigned | Not | ZeroExtend | SignExtend | IsZero | StringEqual | StringBegins => {
            (true, false, true)
        }
        Add | Subtract | Multiply | Divide | Modulo | DivideSigned | ModuloSigned | And | Or
        | ExclusiveOr | ShiftLeft | ShiftRight | ShiftRightSigned | Equal | Below
        | BelowOrEqual | Less | LessOrEqual | Either | Both | SliceEqual | SliceBegins => {
            (true, true, true)
        }
        Keep | Require | Field | FieldString | FieldBytes | Key | KeyString | Value
        | SetRegister | Return => (true, false, false),
        Store | FieldSlice | KeySlice => (true, true, false),
    };
    Shape { a, b, to }
}

/// Most spans that a program ends.
const ENDS_MAX: usize = 2;

/// Accepts a program, or returns the index of the wrong step and its flaw.
pub fn check<'a>(steps: &'a [Step], data: &'a [u8]) -> Result<Program<'a>, (usize, Flaw)> {
    if steps.len() > STEPS_MAX || data.len() > DATA_MAX {
        return Err((0, Flaw::TooLong));
    }
    let mut checker = Checker {
        data,
        written: 0,
        words: 1,
        ends: 0,
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
    /// Slots written so far, one bit each.
    written: u32,
    /// Words of output so far: the mask of present fields, and the fields.
    words: usize,
    /// Steps so far that end a span.
    ends: usize,
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
            let used = u32::from(step.to).saturating_add(1);
            self.summary.slots = self.summary.slots.max(used);
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
                let register = Register::from_u8(number).ok_or(Flaw::Unknown)?;
                if operation == Operation::SetRegister {
                    if matches!(register, Register::Rsp | Register::Rip) {
                        return Err(Flaw::NotWritable);
                    }
                    self.summary.writes = true;
                }
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
            Operation::StringEqual
            | Operation::StringBegins
            | Operation::SliceEqual
            | Operation::SliceBegins => {
                constant(self.data, step).ok_or(Flaw::BadSize)?;
                self.summary.reads_memory = true;
            }
            Operation::Field => self.field(0)?,
            Operation::FieldString | Operation::FieldBytes | Operation::FieldSlice => {
                let bytes = within(step.small, 1, BYTES_MAX)?;
                self.field(bytes.div_ceil(8))?;
                self.summary.reads_memory = true;
            }
            Operation::Key => self.key(1)?,
            Operation::KeyString | Operation::KeySlice => {
                let bytes = within(step.small, 8, KEY_WORDS_MAX.saturating_mul(8))?;
                if bytes % 8 != 0 {
                    return Err(Flaw::BadSize);
                }
                self.key(bytes / 8)?;
                self.summary.reads_memory = true;
            }
            Operation::Value => {
                once(&mut self.summary.gives_value)?;
            }
            Operation::EndSpan => {
                within(step.small, 0, 1)?;
                let words = core::mem::take(&mut self.summary.key_words);
                if self.summary.ends_span.is_some_and(|first| first != words) {
                    return Err(Flaw::BadSize);
                }
                self.ends = self.ends.saturating_add(1);
                if self.ends > ENDS_MAX {
                    return Err(Flaw::Repeated);
                }
                self.summary.ends_span = Some(words);
            }
            Operation::Return => {
                self.summary.writes = true;
                self.summary.returns = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Room for some more words of the key.
    fn key(&mut self, words: usize) -> Result<(), Flaw> {
        self.summary.key_words = self.summary.key_words.saturating_add(words as u32);
        match self.summary.key_words as usize <= KEY_WORDS_MAX {
            true => Ok(()),
            false => Err(Flaw::TooMuchOutput),
        }
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

/// Sets a flag that may be set only once.
fn once(done: &mut bool) -> Result<(), Flaw> {
    match core::mem::replace(done, true) {
        false => Ok(()),
        true => Err(Flaw::Repeated),
    }
}

fn within(small: i32, least: usize, most: usize) -> Result<usize, Flaw> {
    usize::try_from(small)
        .ok()
        .filter(|value| (least..=most).contains(value))
        .ok_or(Flaw::BadSize)
}
