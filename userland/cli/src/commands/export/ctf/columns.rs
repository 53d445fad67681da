// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of hits as fields of events. These have one type each, whatever a value turns
//! out to be.

use crate::output::fields;
use nsprobe_ctf::{Field, FieldNames, Type, Value};
use nsprobe_spec::decode::{FieldFormat, FieldValue, WordShape};
use nsprobe_spec::syntax::ValueFormat;

/// Encoding of a field of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// A number, in two's complement where it has a sign.
    Number {
        /// Whether it has a sign.
        signed: bool,
    },
    /// A number, and the name that it stands for, in a field of its own.
    Named {
        /// Whether the number has a sign.
        signed: bool,
    },
    /// A floating-point number.
    Float,
    /// Text; of structs and arrays all that is in them.
    Text,
    /// Bytes.
    Bytes,
    /// Not written: it is not in the record.
    Missing,
}

impl Column {
    /// The encoding of a field of that shape, and its types: none, one, or two.
    pub(super) fn of(shape: &WordShape) -> (Column, Vec<Type>) {
        let number = |signed, kind| (Column::Number { signed }, vec![kind]);
        let base = |base| Type::Integer {
            bits: 64,
            signed: false,
            base,
        };
        match shape {
            WordShape::Number(ValueFormat::Decimal { signed: false, .. }) => {
                number(false, base(10))
            }
            WordShape::Number(ValueFormat::Hex { .. }) => number(false, base(16)),
            WordShape::Number(ValueFormat::Bits) => number(false, base(2)),
            WordShape::Character | WordShape::Number(ValueFormat::Char | ValueFormat::Bool) => {
                number(false, base(10))
            }
            WordShape::Word | WordShape::Number(_) => number(true, Type::signed(64)),
            WordShape::Enumeration { .. } => (
                Column::Named { signed: true },
                vec![Type::signed(64), Type::Text],
            ),
            WordShape::Symbol => (
                Column::Named { signed: false },
                vec![Type::hex(), Type::Text],
            ),
            WordShape::Float { .. } => (Column::Float, vec![Type::Float]),
            WordShape::Text { .. }
            | WordShape::Slice { .. }
            | WordShape::Comm
            | WordShape::Interface { .. }
            | WordShape::Elements { .. }
            | WordShape::Map
            | WordShape::Object { .. }
            | WordShape::Split { .. } => (Column::Text, vec![Type::Text]),
            WordShape::Bytes { .. } => {
                let byte = Type::Integer {
                    bits: 8,
                    signed: false,
                    base: 16,
                };
                (Column::Bytes, vec![Type::sequence(byte)])
            }
            WordShape::Missing => (Column::Missing, Vec::new()),
        }
    }

    /// Appends a value, or what stands in its place; whether there was one.
    pub(super) fn push(self, value: &FieldValue, values: &mut Vec<Value<'static>>) -> bool {
        let bits = number(value);
        let in_bits = |signed| match signed {
            true => Value::Signed(bits.unwrap_or(0) as i64),
            false => Value::Unsigned(bits.unwrap_or(0)),
        };
        let is_absent = matches!(value, FieldValue::Absent);
        match self {
            Column::Number { signed } => {
                values.push(in_bits(signed));
                return bits.is_some();
            }
            Column::Named { signed } => {
                values.push(in_bits(signed));
                let name = match value {
                    FieldValue::Named(name, _) => name.clone(),
                    _ => String::new(),
                };
                values.push(owned(name.into_bytes()));
                return bits.is_some();
            }
            Column::Float => values.push(Value::Float(match value {
                FieldValue::Float(number) => *number,
                _ => f64::NAN,
            })),
            Column::Text => values.push(owned(match value {
                FieldValue::Absent => Vec::new(),
                FieldValue::Text { bytes, cut: true } => [bytes, &b"..."[..]].concat(),
                FieldValue::Text { bytes, cut: false } => bytes.clone(),
                value => fields::text(value).into_bytes(),
            })),
            Column::Bytes => values.push(Value::List(match value {
                FieldValue::Bytes(bytes) => {
                    let bytes = bytes.iter().map(|byte| Value::Unsigned((*byte).into()));
                    bytes.collect()
                }
                _ => Vec::new(),
            })),
            Column::Missing => {}
        }
        !is_absent
    }
}

/// The encodings of a hit's fields, and the fields of its event, under names that are free.
pub(super) fn of(formats: &[FieldFormat], names: &mut FieldNames) -> (Vec<Column>, Vec<Field>) {
    let (mut columns, mut all) = (Vec::new(), Vec::new());
    for format in formats {
        let (column, kinds) = Column::of(&format.shape);
        columns.push(column);
        let text = [format.name.clone(), format!("{}_name", format.name)];
        for (kind, text) in kinds.into_iter().zip(text) {
            all.push(Field::new(names.name(&text), kind));
        }
    }
    (columns, all)
}

/// A text value that owns its bytes.
pub(super) fn owned(text: Vec<u8>) -> Value<'static> {
    Value::Text(text.into())
}

/// The bits of a number.
fn number(value: &FieldValue) -> Option<u64> {
    Some(match value {
        FieldValue::Unsigned(number) | FieldValue::Hex(number) | FieldValue::Bits(number) => {
            *number
        }
        FieldValue::Signed(number) | FieldValue::Named(_, number) => *number as u64,
        FieldValue::Symbol { address, .. } => *address,
        FieldValue::Char(byte) => (*byte).into(),
        FieldValue::Character(character) => u32::from(*character).into(),
        FieldValue::Bool(value) => (*value).into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(shape: &WordShape, value: &FieldValue) -> (Vec<Value<'static>>, bool) {
        let (column, kinds) = Column::of(shape);
        let mut values = Vec::new();
        let is_there = column.push(value, &mut values);
        assert_eq!(values.len(), kinds.len(), "{shape:?}");
        (values, is_there)
    }

    #[test]
    fn numbers_keep_their_bits() {
        let word = |value| told(&WordShape::Word, &value);
        assert_eq!(
            word(FieldValue::Signed(-5)),
            (vec![Value::Signed(-5)], true)
        );
        assert_eq!(
            word(FieldValue::Hex(u64::MAX - 1)),
            (vec![Value::Signed(-2)], true)
        );
        let hex = WordShape::Number(ValueFormat::Hex { bytes: 8 });
        assert_eq!(
            told(&hex, &FieldValue::Hex(u64::MAX)),
            (vec![Value::Unsigned(u64::MAX)], true)
        );
    }

    #[test]
    fn what_is_absent_has_something_in_its_place() {
        let symbol = (vec![Value::Unsigned(0), owned(Vec::new())], false);
        assert_eq!(told(&WordShape::Symbol, &FieldValue::Absent), symbol);
        let text = told(&WordShape::Text { most: 8 }, &FieldValue::Absent);
        assert_eq!(text, (vec![owned(Vec::new())], false));
        let bytes = told(&WordShape::Bytes { count: 8 }, &FieldValue::Absent);
        assert_eq!(bytes, (vec![Value::List(Vec::new())], false));
    }
}
