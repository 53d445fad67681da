// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an interface of Go holds, by the name of its type.

use crate::decode::FieldValue;

/// Types of Go's library whose values begin with their text.
const WITH_TEXT: [&str; 4] = [
    "string",
    "*errors.errorString",
    "*fmt.wrapError",
    "*fmt.wrapErrors",
];

/// The value of a type of Go that an interface holds, by its address, the word there, and the
/// string there.
pub(crate) fn held(name: &str, data: u64, first: Option<u64>, text: FieldValue) -> FieldValue {
    if WITH_TEXT.contains(&name) {
        return text;
    }
    let number: fn(u64) -> FieldValue = match name {
        "int" | "int64" => |word| FieldValue::Signed(word as i64),
        "int32" => |word| FieldValue::Signed((word as i32).into()),
        "int16" => |word| FieldValue::Signed((word as i16).into()),
        "int8" => |word| FieldValue::Signed((word as i8).into()),
        "uint" | "uint64" | "uintptr" => FieldValue::Unsigned,
        "uint32" => |word| FieldValue::Unsigned((word as u32).into()),
        "uint16" => |word| FieldValue::Unsigned((word as u16).into()),
        "uint8" => |word| FieldValue::Unsigned((word as u8).into()),
        "bool" => |word| FieldValue::Bool(word as u8 != 0),
        "float64" => |word| FieldValue::Float(f64::from_bits(word)),
        _ => return FieldValue::Hex(data),
    };
    first.map_or(FieldValue::Absent, number)
}
