// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators: numbers, addresses, truth, strings.

use super::{error, Of, Resolver, Scalar};
use crate::syntax::{Binary, Expression, ExpressionKind, Span, Unary};
use crate::types::{GoKind, Shape};
use crate::value::BinaryOperator as Operator;
use crate::SpecError;
use crate::Value;
use nsprobe_common::program::{Context, BYTES_MAX};

impl Resolver<'_> {
    pub(super) fn computed(&self, expression: &Expression) -> Result<Scalar, SpecError> {
        let span = &expression.span;
        match &expression.kind {
            ExpressionKind::Unary(Unary::Not, of) => {
                Ok(boolean(Value::IsZero(Box::new(self.condition(of)?))))
            }
            ExpressionKind::Unary(operator, of) => {
                let scalar = self.scalar(of)?;
                let signed = scalar.of.counts_as_signed();
                let value = match operator {
                    Unary::Minus => {
                        Value::binary(Operator::Subtract, Value::Constant(0), scalar.value)
                    }
                    _ => Value::Not(Box::new(scalar.value)),
                };
                Ok(Scalar {
                    value,
                    of: Of::integer(8, signed || *operator == Unary::Minus),
                })
            }
            ExpressionKind::Binary(Binary::And | Binary::Or, a, b) => {
                let operator = match &expression.kind {
                    ExpressionKind::Binary(Binary::And, ..) => Operator::Both,
                    _ => Operator::Either,
                };
                let (a, b) = (self.condition(a)?, self.condition(b)?);
                Ok(boolean(Value::binary(operator, a, b)))
            }
            ExpressionKind::Binary(
                operator @ (Binary::Equal | Binary::NotEqual | Binary::Matches),
                a,
                b,
            ) if [a, b]
                .iter()
                .any(|side| matches!(side.kind, ExpressionKind::Text(_))) =>
            {
                self.text(*operator, a, b, span).map(boolean)
            }
            ExpressionKind::Binary(operator @ (Binary::Equal | Binary::NotEqual), a, b)
                if self.is_nil(a) || self.is_nil(b) =>
            {
                let of = if self.is_nil(a) { b } else { a };
                let value = compare(*operator, self.word_of_nil(of)?, Value::Constant(0), false);
                Ok(boolean(value))
            }
            ExpressionKind::Binary(Binary::Matches, ..) => error(
                span,
                "~ compares with a string that ends in *: NAME ~ \"text*\"",
            ),
            ExpressionKind::Binary(operator, a, b) => self.arithmetic(*operator, a, b),
            _ => error(span, "this is no number"),
        }
    }

    fn is_nil(&self, expression: &Expression) -> bool {
        let is_so_called = matches!(&expression.kind, ExpressionKind::Name(name) if name == "nil");
        is_so_called && self.scope.is_go()
    }

    /// The word of a value of Go that is zero where that is nil.
    fn word_of_nil(&self, of: &Expression) -> Result<Value, SpecError> {
        let thing = self.thing(of)?;
        let kind = match &thing.of {
            Of::Known(kind) => self.go_kind(&kind.shape, &of.span)?,
            _ => None,
        };
        let member = |name| self.loaded_member(&thing, name, &of.span);
        match kind {
            Some(GoKind::Interface) => member("tab").or_else(|_| member("_type")),
            Some(GoKind::Slice) => member("array"),
            Some(GoKind::String) | None => Ok(self.scalar(of)?.value),
        }
    }

    /// A condition: what is not zero holds.
    pub(crate) fn condition(&self, expression: &Expression) -> Result<Value, SpecError> {
        Ok(self.scalar(expression)?.value)
    }

    fn arithmetic(
        &self,
        operator: Binary,
        a: &Expression,
        b: &Expression,
    ) -> Result<Scalar, SpecError> {
        let (left, right) = (&a.span, &b.span);
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        let signed = a.of.counts_as_signed() && b.of.counts_as_signed();
        let number = Of::integer(8, signed);
        let (operator, of) = match operator {
            Binary::Add | Binary::Subtract => {
                return self.sum(operator, (a, left), (b, right), number)
            }
            Binary::Multiply => (Operator::Multiply, number),
            Binary::Divide if signed => (Operator::DivideSigned, number),
            Binary::Divide => (Operator::Divide, number),
            Binary::Modulo if signed => (Operator::ModuloSigned, number),
            Binary::Modulo => (Operator::Modulo, number),
            Binary::BitAnd => (Operator::And, number),
            Binary::BitOr => (Operator::Or, number),
            Binary::BitXor => (Operator::ExclusiveOr, number),
            Binary::ShiftLeft => (Operator::ShiftLeft, number),
            Binary::ShiftRight if a.of.counts_as_signed() => (Operator::ShiftRightSigned, number),
            Binary::ShiftRight => (Operator::ShiftRight, number),
            comparison => return Ok(boolean(compare(comparison, a.value, b.value, signed))),
        };
        Ok(Scalar {
            value: Value::binary(operator, a.value, b.value),
            of,
        })
    }

    /// A sum or difference; a pointer moves by what it points to.
    fn sum(
        &self,
        operator: Binary,
        (a, left): (Scalar, &Span),
        (b, right): (Scalar, &Span),
        number: Of,
    ) -> Result<Scalar, SpecError> {
        let is_sum = operator == Binary::Add;
        let operator = match is_sum {
            true => Operator::Add,
            false => Operator::Subtract,
        };
        // Void counts in bytes, as GNU C has it.
        let unit = |pointer: &Of, span: &Span| -> Result<Value, SpecError> {
            let target = self.target(pointer, span)?;
            Ok(Value::Constant(self.bytes(&target).unwrap_or(1).max(1)))
        };
        let (value, of) = match (a.of.is_pointer(), b.of.is_pointer()) {
            (true, false) => {
                let b = Value::binary(Operator::Multiply, b.value, unit(&a.of, left)?);
                (Value::binary(operator, a.value, b), a.of)
            }
            (false, true) if is_sum => {
                let a = Value::binary(Operator::Multiply, a.value, unit(&b.of, right)?);
                (Value::binary(operator, a, b.value), b.of)
            }
            (true, true) if is_sum => return error(right, "two addresses cannot be added"),
            (true, true) => {
                let bytes = Value::binary(operator, a.value, b.value);
                let distance = Value::binary(Operator::DivideSigned, bytes, unit(&a.of, left)?);
                (distance, Of::integer(8, true))
            }
            _ => (Value::binary(operator, a.value, b.value), number),
        };
        Ok(Scalar { value, of })
    }

    /// A comparison with a string.
    fn text(
        &self,
        operator: Binary,
        a: &Expression,
        b: &Expression,
        span: &Span,
    ) -> Result<Value, SpecError> {
        let (of, text, text_span) = match (&a.kind, &b.kind) {
            (ExpressionKind::Text(_), ExpressionKind::Text(_)) => {
                return error(span, "these are two constants")
            }
            (ExpressionKind::Text(text), _) => (b, text, &a.span),
            (_, ExpressionKind::Text(text)) => (a, text, &b.span),
            _ => return error(span, "here a string should stand"),
        };
        let (text, whole) = match (operator, text.strip_suffix(b"*")) {
            (Binary::Matches, Some(beginning)) => (beginning, false),
            (Binary::Matches, None) => {
                return error(text_span, "what stands behind ~ must end in *")
            }
            _ => (text.as_slice(), true),
        };
        if text.len() > BYTES_MAX {
            return error(
                text_span,
                format!("no more than {BYTES_MAX} bytes are compared"),
            );
        }
        let equal = match &of.kind {
            ExpressionKind::Comm => comm_is(text, whole, text_span)?,
            _ => self.text_of(of)?.compare(text, whole),
        };
        Ok(match operator {
            Binary::NotEqual => Value::IsZero(Box::new(equal)),
            _ => equal,
        })
    }

    /// The address of a string; refuses characters of more than one byte.
    pub(crate) fn text_address(&self, of: &Expression) -> Result<Value, SpecError> {
        let thing = self.thing(of)?;
        let target = self.target(&thing.of, &of.span).ok();
        let width = target.and_then(|target| target.wide_number());
        if let Some(bytes) = width {
            return error(
                &of.span,
                format!(
                    "this points to numbers of {bytes} bytes, and a string has characters of one: \
                     a cast to (char *) shows the bytes as a string"
                ),
            );
        }
        self.bytes_address(of)
    }

    /// The address of bytes, whatever they are.
    pub(crate) fn bytes_address(&self, of: &Expression) -> Result<Value, SpecError> {
        if matches!(of.kind, ExpressionKind::Number(_)) {
            return error(&of.span, "a number is no string");
        }
        let thing = self.thing(of)?;
        if thing.of_entry && matches!(thing.of.shape(), Some(Shape::Array { .. })) {
            return error(
                &of.span,
                "this array lies on the stack of a call that is over; entry(...) compares it in \
                 time",
            );
        }
        let scalar = self.load(thing, &of.span)?;
        let is_address = scalar.of.is_pointer()
            || scalar.of.is_word()
            || matches!(scalar.of.shape(), Some(Shape::Integer { bytes: 8, .. }));
        match is_address {
            true => Ok(scalar.value),
            false => error(&of.span, "this is neither a string nor an address"),
        }
    }
}

fn boolean(value: Value) -> Scalar {
    Scalar {
        value,
        of: Of::boolean(),
    }
}

fn compare(operator: Binary, a: Value, b: Value, signed: bool) -> Value {
    let (less, less_or_equal) = match signed {
        true => (Operator::Less, Operator::LessOrEqual),
        false => (Operator::Below, Operator::BelowOrEqual),
    };
    match operator {
        Binary::Less => Value::binary(less, a, b),
        Binary::LessOrEqual => Value::binary(less_or_equal, a, b),
        Binary::Greater => Value::binary(less, b, a),
        Binary::GreaterOrEqual => Value::binary(less_or_equal, b, a),
        Binary::NotEqual => Value::IsZero(Box::new(Value::binary(Operator::Equal, a, b))),
        _ => Value::binary(Operator::Equal, a, b),
    }
}

/// Whether the thread's name, which is 15 bytes and a NUL at most, is a text or
/// begins with it.
fn comm_is(text: &[u8], whole: bool, span: &Span) -> Result<Value, SpecError> {
    if text.len() > 15 {
        return error(span, "a thread's name has 15 bytes at most");
    }
    let mut wanted = [0u8; 16];
    let mut mask = [0u8; 16];
    for (index, byte) in text.iter().enumerate() {
        if let (Some(to), Some(bits)) = (wanted.get_mut(index), mask.get_mut(index)) {
            (*to, *bits) = (*byte, 0xff);
        }
    }
    if whole {
        mask = [0xff; 16];
    }
    let half = |from: usize, context: Context| {
        let word = |bytes: &[u8; 16]| {
            let half = bytes.get(from..).and_then(|half| half.first_chunk());
            u64::from_le_bytes(half.copied().unwrap_or_default())
        };
        let masked = Value::binary(
            Operator::And,
            Value::Context(context),
            Value::Constant(word(&mask)),
        );
        Value::binary(Operator::Equal, masked, Value::Constant(word(&wanted)))
    };
    Ok(Value::binary(
        Operator::And,
        half(0, Context::CommLow),
        half(8, Context::CommHigh),
    ))
}
