// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values into the steps of a program.
//!
//! Equal parts of values are computed once and stay in their slot as long as they
//! are needed: a hit costs what its steps cost. When slots run out, what is
//! computed again most easily makes room.

mod schedule;

use crate::syntax::{Span, SpecError};
use crate::value::BinaryOperator;
use crate::{StepProgram, Value};
use nsprobe_common::program::{check, Flaw, Operation, Register, DATA_MAX, KEPT_MAX};
use std::collections::HashMap;

/// Which program the steps are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// That of an entry, or of any instruction.
    Entry,
    /// That of a return.
    Return,
}

/// A computation. Its operands are other nodes, which come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    operation: u8,
    a: Option<usize>,
    b: Option<usize>,
    small: i32,
    large: u64,
}

/// Something that is done with a value.
#[derive(Clone, Debug)]
struct Effect {
    operation: Operation,
    node: usize,
    second: Option<usize>,
    small: i32,
    large: u64,
    /// The part of the spec that wants it.
    span: Span,
}

/// What a program does, as it is gathered.
#[derive(Debug)]
pub(crate) struct Steps {
    /// The address of the probe's reported place, by the file's own count.
    place: u64,
    end: End,
    nodes: Vec<Node>,
    known: HashMap<Node, usize>,
    effects: Vec<Effect>,
    data: Vec<u8>,
    /// Values that the entry keeps for the return, and what wants them.
    pub(crate) kept: Vec<(Value, Span)>,
}

impl Steps {
    pub(crate) fn new(end: End, place: u64) -> Steps {
        Steps {
            place,
            end,
            nodes: Vec::new(),
            known: HashMap::new(),
            effects: Vec::new(),
            data: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Does something with a value, after all that was asked for before.
    pub(crate) fn effect(
        &mut self,
        operation: Operation,
        value: &Value,
        small: i32,
        span: &Span,
    ) -> Result<(), SpecError> {
        self.effect_of_two(operation, value, None, small, span)
    }

    /// Does something with a value and, when there is one, a second.
    pub(crate) fn effect_of_two(
        &mut self,
        operation: Operation,
        value: &Value,
        second: Option<&Value>,
        small: i32,
        span: &Span,
    ) -> Result<(), SpecError> {
        let node = self.node(value, span)?;
        let second = second.map(|second| self.node(second, span)).transpose()?;
        self.effects.push(Effect {
            operation,
            node,
            second,
            small,
            large: 0,
            span: span.clone(),
        });
        Ok(())
    }

    pub(crate) fn set(
        &mut self,
        register: Register,
        value: &Value,
        span: &Span,
    ) -> Result<(), SpecError> {
        self.effect(Operation::SetRegister, value, register as i32, span)
    }

    /// Writes the low bytes of a value to an address.
    pub(crate) fn store(
        &mut self,
        address: &Value,
        value: &Value,
        bytes: u8,
        span: &Span,
    ) -> Result<(), SpecError> {
        let (base, distance) = split(address);
        let effect = Effect {
            operation: Operation::Store,
            node: self.node(base, span)?,
            second: Some(self.node(value, span)?),
            small: distance,
            large: bytes.into(),
            span: span.clone(),
        };
        self.effects.push(effect);
        Ok(())
    }

    /// Ends the function by the `ret` this number of bytes after its beginning.
    pub(crate) fn leave(&mut self, value: &Value, ret: u64, span: &Span) -> Result<(), SpecError> {
        let effect = Effect {
            operation: Operation::Return,
            node: self.node(value, span)?,
            second: None,
            small: 0,
            large: ret,
            span: span.clone(),
        };
        self.effects.push(effect);
        Ok(())
    }

    /// Ends the span under the key so far, `before_call` only one that is older than the call.
    /// With `required` the hit counts only if there was one.
    pub(crate) fn end_span(&mut self, before_call: bool, required: bool, span: &Span) {
        let node = self.add(Operation::EndSpan, [None, None], (before_call.into(), 0));
        self.effects.push(Effect {
            operation: match required {
                true => Operation::Require,
                false => Operation::EndSpan,
            },
            node,
            second: None,
            small: 0,
            large: 0,
            span: span.clone(),
        });
    }

    /// The number of a node, the same for equal ones.
    fn add(
        &mut self,
        operation: Operation,
        operands: [Option<usize>; 2],
        rest: (i32, u64),
    ) -> usize {
        let node = Node {
            operation: operation as u8,
            a: operands[0],
            b: operands[1],
            small: rest.0,
            large: rest.1,
        };
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// The node that computes a value.
    fn node(&mut self, value: &Value, span: &Span) -> Result<usize, SpecError> {
        const LEAF: [Option<usize>; 2] = [None, None];
        Ok(match value {
            Value::Constant(number) => self.add(Operation::Constant, LEAF, (0, *number)),
            Value::Register(register) => self.add(Operation::Register, LEAF, (*register as i32, 0)),
            Value::Context(context) => self.add(Operation::Context, LEAF, (0, *context as u64)),
            Value::Image(address) => {
                let distance = address.wrapping_sub(self.place);
                self.add(Operation::FromProbe, LEAF, (0, distance))
            }
            Value::AtEntry(inner) if self.end == End::Entry => self.node(inner, span)?,
            Value::AtEntry(inner) => {
                let index = self.keep(inner, span)?;
                self.add(Operation::Kept, LEAF, (index as i32, 0))
            }
            Value::Load { address, width } => {
                let (base, distance) = split(address);
                let base = self.node(base, span)?;
                let operation = match width.signed {
                    true => Operation::LoadSigned,
                    false => Operation::Load,
                };
                self.add(
                    operation,
                    [Some(base), None],
                    (distance, width.bytes.into()),
                )
            }
            Value::Truncate {
                value,
                bits,
                signed,
            } => {
                let value = self.node(value, span)?;
                let operation = match signed {
                    true => Operation::SignExtend,
                    false => Operation::ZeroExtend,
                };
                self.add(operation, [Some(value), None], (0, (*bits).into()))
            }
            Value::Binary(operator, a, b) => {
                let (a, b) = (self.node(a, span)?, self.node(b, span)?);
                self.add(operation(*operator), [Some(a), Some(b)], (0, 0))
            }
            Value::Not(inner) => {
                let inner = self.node(inner, span)?;
                self.add(Operation::Not, [Some(inner), None], (0, 0))
            }
            Value::IsZero(inner) => {
                let inner = self.node(inner, span)?;
                self.add(Operation::IsZero, [Some(inner), None], (0, 0))
            }
            Value::Compare {
                address,
                length,
                text,
                whole,
            } => {
                let address = self.node(address, span)?;
                let length = length.as_ref().map(|length| self.node(length, span));
                let length = length.transpose()?;
                let at = self.constant(text, span)?;
                let operation = match (whole, length) {
                    (true, None) => Operation::StringEqual,
                    (false, None) => Operation::StringBegins,
                    (true, Some(_)) => Operation::SliceEqual,
                    (false, Some(_)) => Operation::SliceBegins,
                };
                self.add(operation, [Some(address), length], (at, text.len() as u64))
            }
        })
    }

    /// The number under which the entry keeps a value.
    fn keep(&mut self, value: &Value, span: &Span) -> Result<usize, SpecError> {
        if let Some(index) = self.kept.iter().position(|(kept, _)| kept == value) {
            return Ok(index);
        }
        if self.kept.len() >= KEPT_MAX {
            let message =
                format!("an entry keeps {KEPT_MAX} values for its return, and this is one more");
            return Err(SpecError::new(span.clone(), message));
        }
        self.kept.push((value.clone(), span.clone()));
        Ok(self.kept.len() - 1)
    }

    /// Where constant bytes are.
    fn constant(&mut self, text: &[u8], span: &Span) -> Result<i32, SpecError> {
        let known = match text.is_empty() {
            true => Some(0),
            false => self
                .data
                .windows(text.len())
                .position(|window| window == text),
        };
        if known.is_none() && self.data.len() + text.len() > DATA_MAX {
            let message =
                format!("with this the strings of the spec are longer than {DATA_MAX} bytes");
            return Err(SpecError::new(span.clone(), message));
        }
        let at = known.unwrap_or_else(|| {
            self.data.extend_from_slice(text);
            self.data.len() - text.len()
        });
        // At most DATA_MAX.
        Ok(at as i32)
    }

    /// The program, as the kernel accepts it; none when there is nothing to do.
    pub(crate) fn finish(self) -> Result<Option<StepProgram>, SpecError> {
        if self.effects.is_empty() {
            return Ok(None);
        }
        let (steps, wanted_by) = schedule::steps(&self.nodes, &self.effects)?;
        let Err((index, flaw)) = check(&steps, &self.data) else {
            let data = self.data;
            return Ok(Some(StepProgram { steps, data }));
        };
        let message = match flaw {
            Flaw::TooLong => "this needs a longer program than there may be",
            Flaw::TooMuchOutput => "with this the fields are more, or longer, than a record holds",
            _ => "this makes no sound program",
        };
        let effect = wanted_by.get(index).and_then(|at| self.effects.get(*at));
        let span = effect.map_or(0..0, |effect| effect.span.clone());
        Err(SpecError::new(span, message))
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
