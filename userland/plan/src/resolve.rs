// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expressions into values, by what a scope knows.

use crate::scope::Scope;
use crate::syntax::{Binary, CastType, Expression, Format, Kind, Span, SpecError, Unary};
use crate::types::{Meaning, Member, Place, Target, Type, Typed};
use crate::value::BinaryOperator as Operator;
use crate::{Value, Width};
use nsprobe_common::program::{Context, Register, BYTES_MAX};
use std::rc::Rc;

type Result<T> = std::result::Result<T, SpecError>;

/// Looks up the names of one probe's expressions.
pub(crate) struct Resolver<'a> {
    pub(crate) scope: &'a dyn Scope,
    /// The probe is hit at returns: arguments and variables are those of the entry.
    pub(crate) at_return: bool,
}

/// A number, ready to be computed.
pub(crate) struct Scalar {
    pub(crate) value: Value,
    pub(crate) of: Type,
}

fn error<T>(span: &Span, message: impl Into<String>) -> Result<T> {
    Err(SpecError::new(span.clone(), message))
}

impl Resolver<'_> {
    /// What an expression is and where.
    pub(crate) fn typed(&self, expression: &Expression) -> Result<Typed> {
        let span = &expression.span;
        let said = |result: std::result::Result<Typed, String>| {
            result.map_err(|why| SpecError::new(span.clone(), why))
        };
        match &expression.kind {
            Kind::Number(value) => Ok(Typed::value(
                Value::Constant(*value),
                Type::integer(8, true),
            )),
            Kind::Name(name) => said(self.scope.variable(name)).map(|found| self.then(found)),
            Kind::Argument(number) => {
                said(self.scope.argument(*number)).map(|found| self.then(found))
            }
            Kind::Returned => match self.at_return {
                true => said(self.scope.returned()),
                false => error(span, "$retval is there at the return only"),
            },
            Kind::Register(register, bytes) => {
                let value = Value::Register(*register);
                Ok(match bytes {
                    8 => Typed::value(value, Type::Word),
                    bytes => Typed::value(value, Type::integer(*bytes, false)),
                })
            }
            Kind::StackWord(number) => {
                let address = Value::Register(Register::Rsp).plus(u64::from(*number) * 8);
                Ok(Typed::memory(address, Type::Word))
            }
            Kind::Context(Context::Elapsed) if !self.at_return => {
                error(span, "$elapsed is there at the return only")
            }
            Kind::Context(context) => Ok(Typed::value(
                Value::Context(*context),
                Type::integer(8, false),
            )),
            Kind::Member { of, name } => self.member(of, name, span),
            Kind::Element { of, index } => self.element(of, index, span),
            Kind::Unary(Unary::Load, of) => self.pointee(of),
            Kind::Unary(Unary::Address, of) => self.address(of),
            Kind::Cast(cast, of) => self.cast(cast, of),
            Kind::AtEntry(of) => {
                let inner = Resolver {
                    scope: self.scope,
                    at_return: false,
                };
                let scalar = inner.scalar(of)?;
                let value = match self.at_return {
                    true => scalar.value.at_entry(),
                    false => scalar.value,
                };
                Ok(Typed::value(value, scalar.of))
            }
            Kind::Unary(Unary::Minus | Unary::BitNot | Unary::Not, _) | Kind::Binary(..) => {
                let scalar = self.computed(expression)?;
                Ok(Typed::value(scalar.value, scalar.of))
            }
            Kind::Text(_) => error(span, "a string can only be compared: NAME == \"text\""),
            Kind::Comm => error(span, "$comm can only be compared, shown, or counted by"),
            Kind::All { .. } => error(span, "this stands for several values: only as a field"),
        }
    }

    /// What was found, as it is at the return.
    fn then(&self, found: Typed) -> Typed {
        match self.at_return {
            true => found.at_entry(),
            false => found,
        }
    }

    /// The number that an expression is.
    pub(crate) fn scalar(&self, expression: &Expression) -> Result<Scalar> {
        let typed = self.typed(expression)?;
        self.load(typed, &expression.span)
    }

    /// The number that is at a place.
    fn load(&self, typed: Typed, span: &Span) -> Result<Scalar> {
        let Typed { place, of } = typed;
        let (value, of) = match (place, of) {
            (_, Type::Record { name, .. }) => {
                return error(
                    span,
                    format!("this is a {name}: one of its members must be named"),
                )
            }
            (_, Type::Other(what)) => {
                return error(span, format!("this is {what}, which cannot be fetched"))
            }
            // An array is the address of its first element.
            (Place::Memory(address), Type::Array { of, .. }) => (address, Type::Pointer(of)),
            (Place::Value(_), Type::Array { .. }) => {
                return error(span, "this array is not in memory")
            }
            (Place::Memory(address), of) => {
                let width = width_of(&of);
                (address.load(width.bytes, width.signed), of)
            }
            (Place::Value(value), of) => (cut(value, width_of(&of)), of),
        };
        Ok(Scalar { value, of })
    }

    fn member(&self, of: &Expression, name: &str, span: &Span) -> Result<Typed> {
        let mut typed = self.typed(of)?;
        // `.` and `->` may both stand for both.
        for _ in 0..2 {
            if let Type::Pointer(target) = &typed.of {
                let target = self
                    .scope
                    .target(target)
                    .map_err(|why| SpecError::new(of.span.clone(), why))?;
                let address = self.load(typed, &of.span)?.value;
                typed = Typed::memory(address, target);
            }
        }
        let id =
            match &typed.of {
                Type::Record { id, .. } => *id,
                Type::Word => return error(
                    span,
                    "nothing is known of this word; *(u32 *)(arg1 + 8) reads what lies behind it",
                ),
                _ => return error(span, "this has no members"),
            };
        let member = self
            .scope
            .member(id, name)
            .map_err(|why| SpecError::new(span.clone(), why))?;
        match typed.place {
            Place::Memory(address) => Ok(member_at(address.plus(member.offset), member)),
            Place::Value(value) => {
                let value = Value::binary(
                    Operator::ShiftRight,
                    value,
                    Value::Constant(member.offset.saturating_mul(8)),
                );
                match (member.offset, member.of.scalar_bytes()) {
                    (0, Some(_)) => Ok(Typed::value(bits(cut_back(value), &member), member.of)),
                    (1..=7, Some(_)) => Ok(Typed::value(bits(value, &member), member.of)),
                    _ => error(span, "this member is not in the register that is known"),
                }
            }
        }
    }

    fn element(&self, of: &Expression, index: &Expression, span: &Span) -> Result<Typed> {
        let array = self.typed(of)?;
        let target = match &array.of {
            Type::Array { of, .. } | Type::Pointer(of) => of.clone(),
            _ => return error(&of.span, "this is neither an array nor a pointer"),
        };
        let target = self
            .scope
            .target(&target)
            .map_err(|why| SpecError::new(of.span.clone(), why))?;
        let base = self.load(array, &of.span)?.value;
        let index = self.scalar(index)?.value;
        let Some(bytes) = self.scope.bytes(&target) else {
            return error(span, "nobody knows how long an element is");
        };
        let distance = Value::binary(Operator::Multiply, index, Value::Constant(bytes));
        Ok(Typed::memory(
            Value::binary(Operator::Add, base, distance),
            target,
        ))
    }

    fn pointee(&self, of: &Expression) -> Result<Typed> {
        let scalar = self.scalar(of)?;
        let target = match &scalar.of {
            Type::Pointer(target) => self
                .scope
                .target(target)
                .map_err(|why| SpecError::new(of.span.clone(), why))?,
            // As perf and bpftrace have it: a word.
            Type::Word | Type::Integer { .. } => Type::Word,
            _ => return error(&of.span, "this is no pointer"),
        };
        Ok(Typed::memory(scalar.value, target))
    }

    fn address(&self, of: &Expression) -> Result<Typed> {
        let typed = self.typed(of)?;
        match typed.place {
            Place::Memory(address) => Ok(Typed::value(
                address,
                Type::Pointer(Target::Known(Rc::new(typed.of))),
            )),
            Place::Value(_) => error(&of.span, "this has no address: it is in a register"),
        }
    }

    fn cast(&self, cast: &CastType, of: &Expression) -> Result<Typed> {
        let mut to = match cast.is_char {
            true => Type::character(),
            false => Type::integer(cast.bytes, cast.signed),
        };
        for _ in 0..cast.pointers {
            to = Type::Pointer(Target::Known(Rc::new(to)));
        }
        let value = self.scalar(of)?.value;
        Ok(Typed::value(value, to))
    }

    /// An operator's result.
    fn computed(&self, expression: &Expression) -> Result<Scalar> {
        let span = &expression.span;
        match &expression.kind {
            Kind::Unary(Unary::Not, of) => {
                Ok(boolean(Value::IsZero(Box::new(self.condition(of)?))))
            }
            Kind::Unary(operator, of) => {
                let scalar = self.scalar(of)?;
                let signed = is_signed(&scalar.of);
                let value = match operator {
                    Unary::Minus => {
                        Value::binary(Operator::Subtract, Value::Constant(0), scalar.value)
                    }
                    _ => Value::Not(Box::new(scalar.value)),
                };
                Ok(Scalar {
                    value,
                    of: Type::integer(8, signed || *operator == Unary::Minus),
                })
            }
            Kind::Binary(Binary::And | Binary::Or, a, b) => {
                let operator = match &expression.kind {
                    Kind::Binary(Binary::And, ..) => Operator::Both,
                    _ => Operator::Either,
                };
                let (a, b) = (self.condition(a)?, self.condition(b)?);
                Ok(boolean(Value::binary(operator, a, b)))
            }
            Kind::Binary(operator @ (Binary::Equal | Binary::NotEqual | Binary::Matches), a, b)
                if [a, b].iter().any(|side| matches!(side.kind, Kind::Text(_))) =>
            {
                self.text(*operator, a, b, span).map(boolean)
            }
            Kind::Binary(Binary::Matches, ..) => error(
                span,
                "~ compares with a string that ends in *: NAME ~ \"text*\"",
            ),
            Kind::Binary(operator, a, b) => self.arithmetic(*operator, a, b),
            _ => error(span, "this is no number"),
        }
    }

    /// A condition: what is not zero holds.
    pub(crate) fn condition(&self, expression: &Expression) -> Result<Value> {
        Ok(self.scalar(expression)?.value)
    }

    fn arithmetic(&self, operator: Binary, a: &Expression, b: &Expression) -> Result<Scalar> {
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        let signed = is_signed(&a.of) && is_signed(&b.of);
        let number = Type::integer(8, signed);
        let (operator, of) = match operator {
            Binary::Add | Binary::Subtract => return self.sum(operator, a, b, number),
            Binary::Multiply => (Operator::Multiply, number),
            Binary::Divide if signed => (Operator::DivideSigned, number),
            Binary::Divide => (Operator::Divide, number),
            Binary::Modulo if signed => (Operator::ModuloSigned, number),
            Binary::Modulo => (Operator::Modulo, number),
            Binary::BitAnd => (Operator::And, number),
            Binary::BitOr => (Operator::Or, number),
            Binary::BitXor => (Operator::ExclusiveOr, number),
            Binary::ShiftLeft => (Operator::ShiftLeft, number),
            Binary::ShiftRight if is_signed(&a.of) => (Operator::ShiftRightSigned, number),
            Binary::ShiftRight => (Operator::ShiftRight, number),
            comparison => return Ok(boolean(compare(comparison, a.value, b.value, signed))),
        };
        Ok(Scalar {
            value: Value::binary(operator, a.value, b.value),
            of,
        })
    }

    /// A sum or difference; a pointer moves by what it points to.
    fn sum(&self, operator: Binary, a: Scalar, b: Scalar, number: Type) -> Result<Scalar> {
        let operator = match operator {
            Binary::Add => Operator::Add,
            _ => Operator::Subtract,
        };
        let scaled = |pointer: &Type, value: Value| match pointer {
            Type::Pointer(target) => {
                let target = self.scope.target(target).ok();
                let bytes = target.and_then(|target| self.scope.bytes(&target));
                Value::binary(
                    Operator::Multiply,
                    value,
                    Value::Constant(bytes.unwrap_or(1)),
                )
            }
            _ => value,
        };
        let (value, of) = match (&a.of, &b.of) {
            (Type::Pointer(_), Type::Pointer(_)) => {
                (Value::binary(operator, a.value, b.value), number)
            }
            (Type::Pointer(_), _) => {
                let b = scaled(&a.of, b.value);
                (Value::binary(operator, a.value, b), a.of)
            }
            (_, Type::Pointer(_)) => {
                let a = scaled(&b.of, a.value);
                (Value::binary(operator, a, b.value), b.of)
            }
            _ => (Value::binary(operator, a.value, b.value), number),
        };
        Ok(Scalar { value, of })
    }

    /// A comparison with a string.
    fn text(&self, operator: Binary, a: &Expression, b: &Expression, span: &Span) -> Result<Value> {
        let (of, text, text_span) = match (&a.kind, &b.kind) {
            (Kind::Text(_), Kind::Text(_)) => return error(span, "these are two constants"),
            (Kind::Text(text), _) => (b, text, &a.span),
            (_, Kind::Text(text)) => (a, text, &b.span),
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
            Kind::Comm => comm_is(text, whole, text_span)?,
            _ => Value::Compare {
                address: Box::new(self.text_address(of)?),
                text: text.to_vec(),
                whole,
            },
        };
        Ok(match operator {
            Binary::NotEqual => Value::IsZero(Box::new(equal)),
            _ => equal,
        })
    }

    /// Where a string is.
    pub(crate) fn text_address(&self, of: &Expression) -> Result<Value> {
        let scalar = self.scalar(of)?;
        match &scalar.of {
            Type::Pointer(_) | Type::Word => Ok(scalar.value),
            Type::Integer { width, .. } if width.bytes == 8 => Ok(scalar.value),
            _ => error(&of.span, "this is neither a string nor an address"),
        }
    }

    /// How a value of a type is shown when the spec does not say; `None` for a number
    /// of unknown meaning.
    pub(crate) fn format(&self, of: &Type) -> Option<Format> {
        match of {
            Type::Integer {
                meaning: Meaning::Char,
                ..
            } => Some(Format::Char),
            Type::Integer {
                meaning: Meaning::Bool,
                ..
            } => Some(Format::Bool),
            Type::Integer { width, .. } | Type::Enumeration { width, .. } => {
                Some(Format::Decimal {
                    bytes: width.bytes,
                    signed: width.signed,
                })
            }
            Type::Pointer(target) => match self.scope.target(target) {
                Ok(target) if target.is_char() => Some(Format::Text {
                    most: crate::syntax::TEXT_BYTES,
                }),
                _ => Some(Format::Hex { bytes: 8 }),
            },
            _ => None,
        }
    }
}

fn width_of(of: &Type) -> Width {
    match of {
        Type::Integer { width, .. } | Type::Enumeration { width, .. } => *width,
        _ => Width {
            bytes: 8,
            signed: false,
        },
    }
}

/// The low bytes of a register.
fn cut(value: Value, width: Width) -> Value {
    match (width.bytes, value) {
        (8.., value) | (_, value @ Value::Load { .. }) => value,
        (bytes, value) => Value::Truncate {
            value: Box::new(value),
            bits: bytes * 8,
            signed: width.signed,
        },
    }
}

/// Undoes a shift by nothing.
fn cut_back(value: Value) -> Value {
    match value {
        Value::Binary(Operator::ShiftRight, value, by) if *by == Value::Constant(0) => *value,
        value => value,
    }
}

fn member_at(address: Value, member: Member) -> Typed {
    match (member.bits, member.of.scalar_bytes()) {
        (Some(_), Some(bytes)) => {
            let whole = address.load(bytes, false);
            Typed::value(bits(whole, &member), member.of)
        }
        _ => Typed::memory(address, member.of),
    }
}

/// The bits of a bit-field.
fn bits(value: Value, member: &Member) -> Value {
    let Some((lowest, count)) = member.bits else {
        return value;
    };
    let value = match lowest {
        0 => value,
        lowest => Value::binary(Operator::ShiftRight, value, Value::Constant(lowest.into())),
    };
    match count {
        1..=63 => Value::Truncate {
            value: Box::new(value),
            bits: count,
            signed: width_of(&member.of).signed,
        },
        _ => value,
    }
}

/// Whether a number may be less than zero: all but unsigned ones of eight bytes,
/// which would not fit. A word of which nothing is known counts as signed.
fn is_signed(of: &Type) -> bool {
    match of {
        Type::Integer { width, .. } | Type::Enumeration { width, .. } => {
            width.signed || width.bytes < 8
        }
        Type::Pointer(_) => false,
        _ => true,
    }
}

fn boolean(value: Value) -> Scalar {
    Scalar {
        value,
        of: Type::Integer {
            width: Width {
                bytes: 8,
                signed: true,
            },
            meaning: Meaning::Bool,
        },
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
fn comm_is(text: &[u8], whole: bool, span: &Span) -> Result<Value> {
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
