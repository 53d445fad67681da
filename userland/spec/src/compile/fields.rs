// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of a spec: what is fetched for each, and how it is shown.

use super::Compiler;
use crate::decode::{FieldFormat, WordShape};
use crate::resolve::{Of, Thing};
use crate::scope::ValuePlace;
use crate::steps::End;
use crate::syntax::{Expression, ExpressionKind, Field, Span, SpecError, ValueFormat, TEXT_BYTES};
use crate::value::BinaryOperator;
use crate::{types, Value};
use nsprobe_common::program::{Context, Operation, BYTES_MAX};

/// Most bytes of a struct in registers that is shown as a whole.
const SPLIT_BYTES_MAX: u16 = 64;

/// What is fetched for a field, and how it is shown.
pub(super) struct ShownField {
    pub(super) value: Value,
    /// Of a string that says how long it is.
    pub(super) length: Option<Value>,
    pub(super) shape: WordShape,
}

impl ShownField {
    fn new(value: Value, shape: WordShape) -> ShownField {
        ShownField {
            value,
            length: None,
            shape,
        }
    }
}

impl Compiler<'_> {
    pub(super) fn fields(&mut self, fields: &[Field]) -> Result<Vec<FieldFormat>, SpecError> {
        let mut formats = Vec::new();
        for field in fields {
            if let ExpressionKind::All { locals } = field.value.kind {
                self.all(field, locals, &mut formats)?;
                continue;
            }
            let format = self.field(field)?;
            if formats.iter().any(|known| known.name == format.name) {
                let message = format!(
                    "two fields are called `{}`; give one another name: other={}",
                    format.name, format.name
                );
                return Err(SpecError::new(field.span.clone(), message));
            }
            formats.push(format);
        }
        Ok(formats)
    }

    /// All parameters or variables. Those that cannot be fetched are absent from every
    /// record, and a note says why.
    fn all(
        &mut self,
        field: &Field,
        locals: bool,
        formats: &mut Vec<FieldFormat>,
    ) -> Result<(), SpecError> {
        let scope = self.resolver.scope;
        let failed = |why| crate::resolve::said(&field.span, why);
        let mut variables = scope.parameters().map_err(failed)?;
        // Those of a call that is over are gone.
        if locals && self.end == End::Entry {
            variables.extend(scope.locals().map_err(failed)?);
        }
        for variable in variables {
            let name = variable.name.to_string();
            // Of several variables of one name the innermost is meant, which comes once.
            if formats.iter().any(|known| known.name == name) {
                continue;
            }
            let one = Field {
                name: name.clone(),
                value: Expression {
                    kind: ExpressionKind::Name(name.clone()),
                    span: field.span.clone(),
                },
                format: None,
                span: field.span.clone(),
            };
            match self.field(&one) {
                Ok(format) => formats.push(format),
                Err(error) => {
                    // Most messages begin with the name, in quotes.
                    self.notes
                        .push(match error.message.contains(&format!("`{name}`")) {
                            true => error.message,
                            false => format!("{name}: {error}"),
                        });
                    formats.push(FieldFormat::new(&name, WordShape::Missing));
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field) -> Result<FieldFormat, SpecError> {
        let span = &field.span;
        if field.value.kind == ExpressionKind::Comm {
            for context in [Context::CommLow, Context::CommHigh] {
                self.steps
                    .effect(Operation::Field, &Value::Context(context), 0, span)?;
            }
            return Ok(FieldFormat::new(&field.name, WordShape::Comm));
        }
        if field.format == Some(ValueFormat::Symbol) {
            let address = self.resolver.scalar(&field.value)?.value;
            let file = Value::Image(0);
            let in_file = Value::binary(BinaryOperator::Subtract, address.clone(), file);
            for value in [address, in_file] {
                self.steps.effect(Operation::Field, &value, 0, span)?;
            }
            return Ok(FieldFormat::new(&field.name, WordShape::Symbol));
        }
        if field.format.is_none() {
            if let Some(format) = self.go_value(field)? {
                return Ok(format);
            }
        }
        let ShownField {
            value,
            length,
            shape,
        } = self.shaped(field)?;
        if let WordShape::Split { bytes, .. } = &shape {
            let thing = self.resolver.thing(&field.value)?;
            for word in split(&thing.place, *bytes, span)? {
                self.steps.effect(Operation::Field, &word, 0, span)?;
            }
            return Ok(FieldFormat::new(&field.name, shape));
        }
        if let (WordShape::Slice { .. }, Some(length)) = (&shape, &length) {
            self.steps.effect(Operation::Field, length, 0, span)?;
        }
        let (operation, bytes) = match &shape {
            WordShape::Slice { most: bytes } => (Operation::FieldSlice, i32::from(*bytes)),
            WordShape::Bytes { count: bytes } if length.is_some() => {
                (Operation::FieldSlice, i32::from(*bytes))
            }
            WordShape::Text { most } => (Operation::FieldString, i32::from(*most)),
            WordShape::Bytes { count: bytes } | WordShape::Object { bytes, .. } => {
                (Operation::FieldBytes, i32::from(*bytes))
            }
            _ => (Operation::Field, 0),
        };
        let second = length.as_ref();
        self.steps
            .effect_of_two(operation, &value, second, bytes, span)?;
        Ok(FieldFormat::new(&field.name, shape))
    }

    /// What is fetched for a field, and how it is shown.
    pub(super) fn shaped(&self, field: &Field) -> Result<ShownField, SpecError> {
        let expression = &field.value;
        let thing = self.resolver.thing(expression)?;
        let text = self.resolver.counted(&thing, &expression.span)?;
        if let Some(text) = text.filter(|text| text.by_default || field.format.is_some()) {
            if text.is_owned && text.of_entry {
                let message = "what this string held at the entry may be gone now: here it can be \
                               compared, and at the entry it can be shown";
                return Err(SpecError::new(expression.span.clone(), message));
            }
            let shape = match field.format {
                None => Some(WordShape::Slice { most: TEXT_BYTES }),
                Some(ValueFormat::Text { most }) => Some(WordShape::Slice { most }),
                Some(ValueFormat::Bytes { count }) => Some(WordShape::Bytes { count }),
                // The error that it is no number.
                Some(_) => None,
            };
            if let Some(shape) = shape {
                return Ok(ShownField {
                    value: text.address,
                    length: text.length,
                    shape,
                });
            }
        }
        if field.format.is_none() {
            if let Some(whole) = self.whole(&thing, &expression.span)? {
                return Ok(whole);
            }
        }
        let is_named = matches!(thing.of.shape(), Some(types::Shape::Enumeration { .. }));
        let format = field.format.or_else(|| self.resolver.format(&thing.of));
        match format {
            Some(ValueFormat::Text { most }) => Ok(ShownField::new(
                self.resolver.text_address(expression)?,
                WordShape::Text { most },
            )),
            Some(ValueFormat::Bytes { count }) => Ok(ShownField::new(
                self.bytes_address(field, thing)?,
                WordShape::Bytes { count },
            )),
            Some(ValueFormat::Name) if !is_named => {
                let message = "this has no names for its numbers: it is no enumeration";
                Err(SpecError::new(expression.span.clone(), message))
            }
            _ => {
                let value = self.resolver.scalar(expression)?.value;
                let is_wide = matches!(
                    thing.of.shape(),
                    Some(types::Shape::Character { bytes: 2.., .. })
                );
                let shape = match field.format {
                    None | Some(ValueFormat::Name) => self.resolver.shape(&thing.of),
                    Some(ValueFormat::Char) if is_wide => self.resolver.shape(&thing.of),
                    Some(format) => WordShape::Number(format),
                };
                Ok(ShownField::new(value, shape))
            }
        }
    }

    /// A struct or array that is shown as a whole.
    fn whole(&self, thing: &Thing, span: &Span) -> Result<Option<ShownField>, SpecError> {
        let Of::Known(kind) = &thing.of else {
            return Ok(None);
        };
        let is_struct = matches!(kind.shape, types::Shape::Struct { .. });
        let is_array = matches!(kind.shape, types::Shape::Array { .. });
        let address = match &thing.place {
            ValuePlace::Memory(address) => address,
            ValuePlace::Pieces(_) if is_struct => return self.in_registers(thing, kind, span),
            _ => return Ok(None),
        };
        if !is_struct && !is_array || thing.of_entry || self.resolver.is_text(&thing.of) {
            return Ok(None);
        }
        let bytes = self.resolver.bytes(&thing.of).unwrap_or(0);
        let message = match usize::try_from(bytes) {
            Ok(1..=BYTES_MAX) => {
                let layout = self.resolver.layout(kind, span)?;
                let bytes = bytes as u16;
                let shape = WordShape::Object { bytes, layout };
                return Ok(Some(ShownField::new(address.clone(), shape)));
            }
            // As C has it: an array is the address of its first element.
            Ok(0) if is_array => return Ok(None),
            Ok(0) => format!("nothing is known of {} but its name", kind.name),
            _ => format!(
                "this {} has {bytes} bytes, and {BYTES_MAX} are the most that is shown at once: \
                 name a member or an element",
                kind.name
            ),
        };
        Err(SpecError::new(span.clone(), message))
    }

    /// A struct in registers that is shown as a whole.
    fn in_registers(
        &self,
        thing: &Thing,
        kind: &types::Type,
        span: &Span,
    ) -> Result<Option<ShownField>, SpecError> {
        let bytes = self.resolver.bytes(&thing.of).unwrap_or(0);
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        if !(1..=SPLIT_BYTES_MAX).contains(&bytes) {
            return Ok(None);
        }
        let layout = self.resolver.layout(kind, span)?;
        split(&thing.place, bytes, span)?;
        let shape = WordShape::Split { bytes, layout };
        Ok(Some(ShownField::new(Value::Constant(0), shape)))
    }

    /// The address of bytes: where a struct or array lies, else what a pointer or word
    /// holds.
    fn bytes_address(&self, field: &Field, thing: Thing) -> Result<Value, SpecError> {
        let is_whole = matches!(
            thing.of.shape(),
            Some(types::Shape::Struct { .. } | types::Shape::Opaque { bytes: Some(_) })
        );
        match thing.place {
            ValuePlace::Memory(address) if is_whole && !thing.of_entry => Ok(address),
            _ => self.resolver.bytes_address(&field.value),
        }
    }
}

/// The words of something that lies in pieces, which must be in registers and have all of it.
fn split(place: &ValuePlace, bytes: u16, span: &Span) -> Result<Vec<Value>, SpecError> {
    let message = "some of it is not available here: name one of its members";
    let missing = || SpecError::new(span.clone(), message);
    let ValuePlace::Pieces(pieces) = place else {
        return Err(missing());
    };
    let word = |from: u64| {
        let mut end = from;
        let mut word = Value::Constant(0);
        for piece in pieces.iter().filter(|piece| piece.offset / 8 == from / 8) {
            let ValuePlace::Value(value) = &piece.place else {
                return None;
            };
            let bits = u8::try_from(piece.bytes * 8).ok()?;
            if piece.offset != end || piece.offset + piece.bytes > from + 8 {
                return None;
            }
            end += piece.bytes;
            let value = match bits {
                64.. => value.clone(),
                bits => Value::Truncate {
                    value: Box::new(value.clone()),
                    bits,
                    signed: false,
                },
            };
            let distance = Value::Constant((piece.offset - from) * 8);
            let value = Value::binary(BinaryOperator::ShiftLeft, value, distance);
            word = Value::binary(BinaryOperator::Or, word, value);
        }
        Some((word, end))
    };
    let mut words = Vec::new();
    let bytes = u64::from(bytes);
    for from in (0..bytes).step_by(8) {
        let (value, end) = word(from).ok_or_else(missing)?;
        if end < bytes.min(from + 8) {
            return Err(missing());
        }
        words.push(value);
    }
    Ok(words)
}
