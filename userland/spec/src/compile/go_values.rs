// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of Go's own types that are shown as its programmers write them: interfaces by the type
//! and value that they hold, slices by their elements, maps by their length.

use super::Compiler;
use crate::decode::{FieldFormat, WordShape};
use crate::layout::Layout;
use crate::resolve::{Of, Thing};
use crate::syntax::{Field, SpecError, TEXT_BYTES};
use crate::types::{GoKind, Shape};
use crate::value::BinaryOperator::{Multiply, Subtract};
use crate::Value;
use nsprobe_common::program::Operation;

/// Bytes of a slice's elements that are shown.
const ELEMENTS_BYTES: u64 = 64;
/// Where a table of methods has the type that it is for (`internal/abi.ITab`).
const TYPE_OF_TABLE: u64 = 8;

impl Compiler<'_> {
    /// The field, if its value is of such a type.
    pub(super) fn go_value(&mut self, field: &Field) -> Result<Option<FieldFormat>, SpecError> {
        let thing = self.resolver.thing(&field.value)?;
        let Of::Known(kind) = &thing.of else {
            return Ok(None);
        };
        let is_map = kind.name.starts_with("map[") && matches!(kind.shape, Shape::Pointer { .. });
        let shape = match self.resolver.go_kind(&kind.shape, &field.span)? {
            Some(GoKind::Interface) => Some(self.interface(&thing, field)?),
            Some(GoKind::Slice) => self.slice(&thing, field)?,
            None if is_map && self.resolver.scope.is_go() => Some(self.map(field)?),
            Some(GoKind::String) | None => None,
        };
        Ok(shape.map(|shape| FieldFormat::new(&field.name, shape)))
    }

    fn word(&mut self, value: &Value, field: &Field) -> Result<(), SpecError> {
        self.steps.effect(Operation::Field, value, 0, &field.span)
    }

    fn interface(&mut self, thing: &Thing, field: &Field) -> Result<WordShape, SpecError> {
        let member = |name| self.resolver.loaded_member(thing, name, &field.span);
        let data = member("data")?;
        // One without methods has the type itself.
        let (first, of) = match (member("tab"), member("_type")) {
            (Ok(table), _) => (table.clone(), table.plus(TYPE_OF_TABLE).load(8, false)),
            (Err(_), of) => (of.clone()?, of?),
        };
        let in_file = Value::binary(Subtract, of, Value::Image(0));
        // What it points at: a number, or, of most errors, the address and length of their text.
        let pointed = data.clone().load(8, false);
        let length = data.clone().plus(8).load(8, false);
        for value in [&first, &in_file, &data, &pointed] {
            self.word(value, field)?;
        }
        self.bytes(&pointed, &length, TEXT_BYTES, field)?;
        Ok(WordShape::Interface { most: TEXT_BYTES })
    }

    fn slice(&mut self, thing: &Thing, field: &Field) -> Result<Option<WordShape>, SpecError> {
        let resolver = &self.resolver;
        let Some((of, stride)) = resolver.elements(thing, "array", &field.span)? else {
            return Ok(None);
        };
        let is_number = matches!(of, Layout::Number { bytes: 1..=8, .. });
        if !is_number || !(1..=8).contains(&stride) {
            return Ok(None);
        }
        let address = resolver.loaded_member(thing, "array", &field.span)?;
        let count = resolver.loaded_member(thing, "len", &field.span)?;
        let length = Value::binary(Multiply, count, Value::Constant(stride));
        let most = (ELEMENTS_BYTES / stride * stride) as u16;
        self.bytes(&address, &length, most, field)?;
        Ok(Some(WordShape::Elements {
            most,
            stride: stride as u16,
            of: Box::new(of),
        }))
    }

    /// Both kinds of maps that there were begin with the number of their elements
    /// (`runtime.hmap`, `internal/runtime/maps.Map`).
    fn map(&mut self, field: &Field) -> Result<WordShape, SpecError> {
        let address = self.resolver.scalar(&field.value)?.value;
        self.word(&address, field)?;
        self.word(&address.load(8, false), field)?;
        Ok(WordShape::Map)
    }

    /// A field of at most `most` bytes at an address, after how many there are.
    fn bytes(
        &mut self,
        address: &Value,
        length: &Value,
        most: u16,
        field: &Field,
    ) -> Result<(), SpecError> {
        self.word(length, field)?;
        self.steps.effect_of_two(
            Operation::FieldSlice,
            address,
            Some(length),
            most.into(),
            &field.span,
        )
    }
}
