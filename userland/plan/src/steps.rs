// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values into the steps of a program.

use crate::value::BinaryOperator;
use crate::Value;
use nsprobe_common::program::{Operation, Step, KEPT_MAX, SLOTS};

/// Which program the steps are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// That of an entry, or of any instruction.
    Entry,
    /// That of a return.
    Return,
}

/// Why there are no steps for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMuch {
    /// It needs more slots than there are.
    Slots,
    /// More values of the entry are wanted than can be kept.
    Kept,
}

/// Steps, as they are made.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    pub(crate) data: Vec<u8>,
    /// The address of the probe's reported place, by the file's own count.
    place: u64,
    end: End,
    /// Values that the entry keeps for the return.
    pub(crate) kept: Vec<Value>,
}

impl Steps {
    pub(crate) fn new(end: End, place: u64) -> Steps {
        Steps {
            steps: Vec::new(),
            data: Vec::new(),
            place,
            end,
            kept: Vec::new(),
        }
    }

    /// Appends a step.
    pub(crate) fn push(
        &mut self,
        operation: Operation,
        [to, a, b]: [u8; 3],
        small: i32,
        large: u64,
    ) {
        self.steps.push(Step {
            operation: operation as u8,
            to,
            a,
            b,
            small,
            large,
        });
    }

    /// Steps that leave a value in slot `to`; those above are used, too.
    pub(crate) fn value(&mut self, value: &Value, to: u8) -> Result<(), TooMuch> {
        if usize::from(to) >= SLOTS {
            return Err(TooMuch::Slots);
        }
        match value {
            Value::Constant(number) => self.push(Operation::Constant, [to, 0, 0], 0, *number),
            Value::Register(register) => {
                self.push(Operation::Register, [to, 0, 0], *register as i32, 0);
            }
            Value::Context(context) => {
                self.push(Operation::Context, [to, 0, 0], 0, *context as u64);
            }
            Value::Image(address) => {
                let distance = address.wrapping_sub(self.place);
                self.push(Operation::FromProbe, [to, 0, 0], 0, distance);
            }
            Value::AtEntry(inner) if self.end == End::Entry => self.value(inner, to)?,
            Value::AtEntry(inner) => {
                let index = self.keep(inner)?;
                self.push(Operation::Kept, [to, 0, 0], index as i32, 0);
            }
            Value::Load { address, width } => {
                let (base, distance) = split(address);
                self.value(base, to)?;
                let operation = match width.signed {
                    true => Operation::LoadSigned,
                    false => Operation::Load,
                };
                self.push(operation, [to, to, 0], distance, width.bytes.into());
            }
            Value::Truncate {
                value,
                bits,
                signed,
            } => {
                self.value(value, to)?;
                let operation = match signed {
                    true => Operation::SignExtend,
                    false => Operation::ZeroExtend,
                };
                self.push(operation, [to, to, 0], 0, (*bits).into());
            }
            Value::Binary(operator, a, b) => {
                self.value(a, to)?;
                self.value(b, to + 1)?;
                self.push(operation(*operator), [to, to, to + 1], 0, 0);
            }
            Value::Not(inner) => {
                self.value(inner, to)?;
                self.push(Operation::Not, [to, to, 0], 0, 0);
            }
            Value::IsZero(inner) => {
                self.value(inner, to)?;
                self.push(Operation::IsZero, [to, to, 0], 0, 0);
            }
            Value::Compare {
                address,
                text,
                whole,
            } => {
                self.value(address, to)?;
                let at = self.constant(text);
                let operation = match whole {
                    true => Operation::StringEqual,
                    false => Operation::StringBegins,
                };
                self.push(operation, [to, to, 0], at, text.len() as u64);
            }
        }
        Ok(())
    }

    /// The number under which the entry keeps a value.
    fn keep(&mut self, value: &Value) -> Result<usize, TooMuch> {
        if let Some(index) = self.kept.iter().position(|kept| kept == value) {
            return Ok(index);
        }
        if self.kept.len() >= KEPT_MAX {
            return Err(TooMuch::Kept);
        }
        self.kept.push(value.clone());
        Ok(self.kept.len() - 1)
    }

    /// Where constant bytes are.
    fn constant(&mut self, text: &[u8]) -> i32 {
        let known = match text.is_empty() {
            true => Some(0),
            false => self
                .data
                .windows(text.len())
                .position(|window| window == text),
        };
        let at = known.unwrap_or_else(|| {
            self.data.extend_from_slice(text);
            self.data.len() - text.len()
        });
        // The check of the whole program refuses more data than an i32 counts.
        i32::try_from(at).unwrap_or(i32::MAX)
    }
}

/// An address as a base and a distance that fits into a load.
fn split(address: &Value) -> (&Value, i32) {
    if let Value::Binary(BinaryOperator::Add, base, distance) = address {
        if let Value::Constant(distance) = distance.as_ref() {
            if let Ok(distance) = i32::try_from(*distance as i64) {
                return (base, distance);
            }
        }
    }
    (address, 0)
}

fn operation(operator: BinaryOperator) -> Operation {
    match operator {
        BinaryOperator::Add => Operation::Add,
        BinaryOperator::Subtract => Operation::Subtract,
        BinaryOperator::Multiply => Operation::Multiply,
        BinaryOperator::Divide => Operation::Divide,
        BinaryOperator::Modulo => Operation::Modulo,
        BinaryOperator::DivideSigned => Operation::DivideSigned,
        BinaryOperator::ModuloSigned => Operation::ModuloSigned,
        BinaryOperator::And => Operation::And,
        BinaryOperator::Or => Operation::Or,
        BinaryOperator::ExclusiveOr => Operation::ExclusiveOr,
        BinaryOperator::ShiftLeft => Operation::ShiftLeft,
        BinaryOperator::ShiftRight => Operation::ShiftRight,
        BinaryOperator::ShiftRightSigned => Operation::ShiftRightSigned,
        BinaryOperator::Equal => Operation::Equal,
        BinaryOperator::Below => Operation::Below,
        BinaryOperator::BelowOrEqual => Operation::BelowOrEqual,
        BinaryOperator::Less => Operation::Less,
        BinaryOperator::LessOrEqual => Operation::LessOrEqual,
        BinaryOperator::Either => Operation::Either,
        BinaryOperator::Both => Operation::Both,
    }
}
