// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expressions into values, by what a scope knows.

mod access;
mod bits;
mod library_strings;
mod operators;
mod strings;

use crate::plain::word;
use crate::scope::{Scope, ScopeError, Typed, ValuePlace, VariableRole};
use crate::syntax::{is_dollar, Expression, ExpressionKind, Span, SpecError, Unary, ValueFormat};
use crate::types::{Shape, Type};
use crate::Value;
use nsprobe_common::program::{Context, Register, BYTES_MAX};

/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 16;

/// Looks up the names of one probe's expressions.
pub(crate) struct Resolver<'a> {
    pub(crate) scope: &'a dyn Scope,
    /// The probe is hit at returns: arguments and variables are those of the entry.
    pub(crate) at_return: bool,
    /// Its hits are waits.
    pub(crate) of_wait: bool,
}

/// What something is: as the scope says, or as a cast does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// As the scope says.
    Known(Type),
    /// A pointer to something that has no number in the scope.
    PointerTo(Box<Of>),
}

/// Something, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Thing {
    pub(crate) place: ValuePlace,
    pub(crate) of: Of,
    /// It lies in memory that belongs to the call, and what was there at the entry is
    /// meant: at the return the stack may hold anything.
    pub(crate) of_entry: bool,
}

/// A number, ready to be computed.
pub(crate) struct Scalar {
    pub(crate) value: Value,
    pub(crate) of: Of,
}

impl Of {
    pub(crate) fn integer(bytes: u64, signed: bool) -> Of {
        let name = match (bytes, signed) {
            (8, true) => "s64",
            (8, false) => "u64",
            _ => "number",
        };
        Of::Known(Type::new(name, Shape::Integer { bytes, signed }))
    }

    fn boolean() -> Of {
        Of::Known(Type::new("bool", Shape::Boolean { bytes: 8 }))
    }

    /// What the scope says; a pointer for what it does not know.
    pub(crate) fn shape(&self) -> Option<&Shape> {
        match self {
            Of::Known(of) => Some(&of.shape),
            Of::PointerTo(_) => None,
        }
    }

    /// Eight bytes of which nothing is known.
    fn is_word(&self) -> bool {
        matches!(self.shape(), Some(Shape::Word))
    }

    fn is_pointer(&self) -> bool {
        matches!(self.shape(), None | Some(Shape::Pointer { .. }))
    }

    /// Whether it is a character of one byte.
    pub(crate) fn is_char(&self) -> bool {
        matches!(self.shape(), Some(Shape::Character { bytes: 1, .. }))
    }

    /// Size in bytes of a number that is wider than one byte.
    pub(crate) fn wide_number(&self) -> Option<u64> {
        match self.shape()? {
            Shape::Character { bytes, .. }
            | Shape::Integer { bytes, .. }
            | Shape::Float { bytes } => Some(*bytes).filter(|bytes| *bytes > 1),
            _ => None,
        }
    }

    /// Bytes of a number or pointer in memory.
    pub(crate) fn scalar_bytes(&self) -> Option<u8> {
        let bytes = match self {
            Of::PointerTo(_) => Some(8),
            Of::Known(of) => match of.shape {
                Shape::Struct { .. } | Shape::Array { .. } | Shape::Opaque { .. } => None,
                _ => of.bytes(),
            },
        };
        bytes
            .filter(|bytes| matches!(bytes, 1 | 2 | 4 | 8))
            .map(|bytes| bytes as u8)
    }

    fn is_negative(&self) -> bool {
        matches!(self, Of::Known(of) if of.is_signed())
    }

    /// Whether computing with it has a sign: all but unsigned numbers of eight bytes,
    /// which would not fit. A word of which nothing is known counts as signed.
    fn counts_as_signed(&self) -> bool {
        match self {
            Of::PointerTo(_) => false,
            Of::Known(of) => match of.shape {
                Shape::Pointer { .. } => false,
                Shape::Integer { bytes: 8, signed } => signed,
                _ => true,
            },
        }
    }
}

fn error<T>(span: &Span, message: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError::new(span.clone(), message))
}

/// Why a scope has no answer, at a place of the spec.
pub(crate) fn said(span: &Span, why: ScopeError) -> SpecError {
    let mut message = why.message;
    if let Some(help) = why.help {
        message = format!("{message}; {help}");
    }
    if !why.nearest.is_empty() {
        message = format!("{message} (did you mean {}?)", why.nearest.join(", "));
    }
    SpecError::new(span.clone(), message)
}

impl Thing {
    fn value(value: Value, of: Of) -> Thing {
        Thing {
            place: ValuePlace::Value(value),
            of,
            of_entry: false,
        }
    }

    fn memory(address: Value, of: Of) -> Thing {
        Thing {
            place: ValuePlace::Memory(address),
            of,
            of_entry: false,
        }
    }
}

impl From<Typed> for Thing {
    fn from(typed: Typed) -> Thing {
        Thing {
            place: typed.place,
            of: Of::Known(typed.kind),
            of_entry: false,
        }
    }
}

/// The place, with the value that it had at the entry of the call.
fn at_entry(place: ValuePlace) -> ValuePlace {
    match place {
        ValuePlace::Value(value) => ValuePlace::Value(value.at_entry()),
        // It is found and read at once: see `Thing::of_entry`.
        ValuePlace::Memory(address) => ValuePlace::Memory(address),
        ValuePlace::Pieces(pieces) => {
            let pieces = pieces.iter().cloned().map(|mut piece| {
                piece.place = at_entry(piece.place);
                piece
            });
            ValuePlace::Pieces(pieces.collect())
        }
    }
}

impl Resolver<'_> {
    /// What an expression is and where; a reference is what it refers to.
    pub(crate) fn thing(&self, expression: &Expression) -> Result<Thing, SpecError> {
        let thing = self.named(expression)?;
        let Some(Shape::Pointer {
            reference: true, ..
        }) = thing.of.shape()
        else {
            return Ok(thing);
        };
        let target = self.target(&thing.of, &expression.span)?;
        if matches!(target.shape(), Some(Shape::Function)) {
            return Ok(thing);
        }
        let address = self.load(thing, &expression.span)?.value;
        Ok(Thing::memory(address, target))
    }

    fn named(&self, expression: &Expression) -> Result<Thing, SpecError> {
        let span = &expression.span;
        match &expression.kind {
            ExpressionKind::Number(value) => {
                Ok(Thing::value(Value::Constant(*value), Of::integer(8, true)))
            }
            ExpressionKind::Name(name) => self.variable(name, span),
            ExpressionKind::Argument(number) => {
                let found = self.scope.argument(*number as usize);
                let thing = Thing::from(found.map_err(|why| said(span, why))?);
                Ok(self.of_entry(thing))
            }
            ExpressionKind::Returned(number) => match self.at_return {
                true => {
                    let found = self.scope.result(*number as usize);
                    Ok(found.map_err(|why| said(span, why))?.into())
                }
                false => error(span, "$retval is there at the return only"),
            },
            ExpressionKind::Goroutine => {
                let found = self.scope.goid().map_err(|why| said(span, why))?;
                Ok(Thing::value(found, Of::integer(8, false)))
            }
            ExpressionKind::Register(register, bytes) => {
                let value = Value::Register(*register);
                Ok(match bytes {
                    8 => Thing::value(value, Of::Known(word())),
                    bytes => {
                        let of = Of::integer((*bytes).into(), false);
                        Thing::value(cut(value, *bytes, false), of)
                    }
                })
            }
            ExpressionKind::StackWord(number) => {
                let address = Value::Register(Register::Rsp).plus(u64::from(*number) * 8);
                Ok(Thing::memory(address, Of::Known(word())))
            }
            ExpressionKind::Context(Context::Elapsed) if !self.at_return => {
                error(span, "$elapsed is there at the return only")
            }
            ExpressionKind::Context(
                Context::WaitKind
                | Context::WaitCall
                | Context::WaitFile
                | Context::WaitedForCpu
                | Context::WokenAt
                | Context::WokenBy
                | Context::Lock
                | Context::LockHolder,
            ) if !self.of_wait => error(span, "only a wait has that: `nsprobe profile --off-cpu`"),
            ExpressionKind::Context(context) => Ok(Thing::value(
                Value::Context(*context),
                Of::integer(8, false),
            )),
            ExpressionKind::Member { of, name } => self.member(of, name, span),
            ExpressionKind::Element { of, index } => self.element(of, index, span),
            ExpressionKind::Unary(Unary::Load, of) => self.pointee(of),
            ExpressionKind::Unary(Unary::Address, of) => self.address(of),
            ExpressionKind::Cast(cast, of) => self.cast(cast, of),
            ExpressionKind::AtEntry(of) => {
                let inner = Resolver {
                    scope: self.scope,
                    at_return: false,
                    of_wait: self.of_wait,
                };
                let scalar = inner.scalar(of)?;
                let value = match self.at_return {
                    true => scalar.value.at_entry(),
                    false => scalar.value,
                };
                Ok(Thing::value(value, scalar.of))
            }
            ExpressionKind::Unary(Unary::Minus | Unary::BitNot | Unary::Not, _)
            | ExpressionKind::Binary(..) => {
                let scalar = self.computed(expression)?;
                Ok(Thing::value(scalar.value, scalar.of))
            }
            ExpressionKind::Text(_) => {
                error(span, "a string can only be compared: NAME == \"text\"")
            }
            ExpressionKind::Comm => error(span, "$comm can only be compared, shown, or counted by"),
            ExpressionKind::All { .. } => {
                error(span, "this stands for several values: only as a field")
            }
        }
    }

    fn variable(&self, name: &str, span: &Span) -> Result<Thing, SpecError> {
        let variable = self.scope.variable(name).map_err(|mut why| {
            if is_dollar(name) {
                why.nearest.insert(0, format!("${name}"));
            }
            said(span, why)
        })?;
        let thing = Thing::from(variable.value.map_err(|why| said(span, why))?);
        match variable.role {
            VariableRole::Parameter => Ok(self.of_entry(thing)),
            VariableRole::Local if self.at_return => error(
                span,
                format!("`{name}` is a local variable: it is gone when the function has returned"),
            ),
            VariableRole::Result if !self.at_return => error(
                span,
                format!(
                    "`{name}` is a result, which has no value at the entry; FUNCTION%return sees it"
                ),
            ),
            VariableRole::Result | VariableRole::Local | VariableRole::Global => Ok(thing),
        }
    }

    /// What was found at the entry, for a return.
    fn of_entry(&self, thing: Thing) -> Thing {
        match self.at_return {
            true => Thing {
                place: at_entry(thing.place),
                of_entry: true,
                ..thing
            },
            false => thing,
        }
    }

    /// The number that an expression is.
    pub(crate) fn scalar(&self, expression: &Expression) -> Result<Scalar, SpecError> {
        let thing = self.thing(expression)?;
        self.load(thing, &expression.span)
    }

    /// The number that is at a place.
    fn load(&self, thing: Thing, span: &Span) -> Result<Scalar, SpecError> {
        let Thing {
            place,
            of,
            of_entry,
        } = thing;
        let then = |value: Value| match of_entry {
            true => value.at_entry(),
            false => value,
        };
        if let Of::Known(known) = &of {
            let name = &known.name;
            match &known.shape {
                Shape::Struct { .. } => {
                    return error(
                        span,
                        format!("this is a {name}: one of its members must be named"),
                    )
                }
                Shape::Array { of, .. } => {
                    let ValuePlace::Memory(address) = place else {
                        return error(span, "this array is not in memory");
                    };
                    // The address of its first element.
                    let pointer = Shape::Pointer {
                        to: *of,
                        reference: false,
                    };
                    return Ok(Scalar {
                        value: then(address),
                        of: Of::Known(Type::new(name, pointer)),
                    });
                }
                _ => {}
            }
        }
        let Some(bytes) = of.scalar_bytes() else {
            let message = match &of {
                Of::Known(Type {
                    name,
                    shape: Shape::Opaque { bytes: Some(bytes) },
                }) => format!(
                    "a {name} cannot be fetched as a number; its {bytes} bytes can: :bytes[{bytes}]"
                ),
                _ => "this is not of 1, 2, 4 or 8 bytes: it cannot be fetched".to_owned(),
            };
            return error(span, message);
        };
        let value = match place {
            ValuePlace::Memory(address) => then(address.load(bytes, of.is_negative())),
            ValuePlace::Value(value) => value,
            ValuePlace::Pieces(_) => {
                return error(
                    span,
                    "this lies in several places: it cannot be fetched at once",
                )
            }
        };
        Ok(Scalar { value, of })
    }

    /// What a pointer or an array leads to.
    fn target(&self, of: &Of, span: &Span) -> Result<Of, SpecError> {
        let id = match of {
            Of::PointerTo(of) => return Ok(of.as_ref().clone()),
            Of::Known(of) => match of.shape {
                Shape::Pointer { to, .. } => to,
                Shape::Array { of, .. } => of,
                // As perf and bpftrace have it: a word.
                Shape::Word | Shape::Integer { bytes: 8, .. } => return Ok(Of::Known(word())),
                _ => return error(span, "this is neither a pointer nor an array"),
            },
        };
        self.scope
            .resolve(id)
            .map(Of::Known)
            .map_err(|why| said(span, why))
    }

    /// Bytes of something in memory.
    pub(crate) fn bytes(&self, of: &Of) -> Option<u64> {
        let Of::Known(known) = of else {
            return Some(8);
        };
        let (mut kind, mut count) = (known.clone(), 1u64);
        // A file that lies may have arrays of themselves.
        for _ in 0..DIMENSIONS_MAX {
            let Shape::Array { of, count: more } = kind.shape else {
                return kind.bytes()?.checked_mul(count);
            };
            count = count.checked_mul(more?)?;
            kind = self.scope.resolve(of).ok()?;
        }
        None
    }

    /// Whether it points to characters.
    pub(crate) fn is_text(&self, of: &Of) -> bool {
        let points = of.is_pointer() || matches!(of.shape(), Some(Shape::Array { .. }));
        points && self.target(of, &(0..0)).is_ok_and(|of| of.is_char())
    }

    /// How a number is shown when the spec does not say.
    pub(crate) fn shape(&self, of: &Of) -> crate::decode::WordShape {
        use crate::decode::WordShape as Shown;
        match of.shape() {
            Some(Shape::Enumeration { values, .. }) => Shown::Enumeration {
                names: values.clone(),
            },
            Some(Shape::Character { bytes: 2.., .. }) => Shown::Character,
            Some(Shape::Float { bytes }) => Shown::Float {
                bytes: *bytes as u8,
            },
            Some(Shape::Pointer { .. }) | None => Shown::Number(ValueFormat::Hex { bytes: 8 }),
            _ => match self.format(of) {
                Some(format) => Shown::Number(format),
                None => Shown::Word,
            },
        }
    }

    /// How a value is shown when the spec does not say; `None` for a number of
    /// unknown meaning.
    pub(crate) fn format(&self, of: &Of) -> Option<ValueFormat> {
        let Of::Known(known) = of else {
            return Some(match self.is_text(of) {
                true => ValueFormat::Text {
                    most: crate::syntax::TEXT_BYTES,
                },
                false => ValueFormat::Hex { bytes: 8 },
            });
        };
        match known.shape {
            Shape::Character { .. } => Some(ValueFormat::Char),
            Shape::Boolean { .. } => Some(ValueFormat::Bool),
            Shape::Integer { bytes, signed } | Shape::Enumeration { bytes, signed, .. } => {
                Some(ValueFormat::Decimal {
                    bytes: bytes.clamp(1, 8) as u8,
                    signed,
                })
            }
            Shape::Array {
                count: Some(count), ..
            } if self.is_text(of) => Some(ValueFormat::Text {
                most: count.clamp(1, BYTES_MAX as u64) as u16,
            }),
            Shape::Array { .. } | Shape::Pointer { .. } => Some(match self.is_text(of) {
                true => ValueFormat::Text {
                    most: crate::syntax::TEXT_BYTES,
                },
                false => ValueFormat::Hex { bytes: 8 },
            }),
            _ => None,
        }
    }
}

/// The low bytes of a value, extended.
fn cut(value: Value, bytes: u8, signed: bool) -> Value {
    match (bytes, value) {
        (8.., value) => value,
        (bytes, value) => Value::Truncate {
            value: Box::new(value),
            bits: bytes * 8,
            signed,
        },
    }
}
