// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values as bytes (CTF 1.8, section 4). All types are aligned to bytes, so an event is the
//! same bytes wherever it lies.

use crate::error::CtfError;
use crate::types::{Field, Type, Value};
use nsprobe_text::escaped;

/// Appends the values of `fields`; `event` is what an error is about.
pub(crate) fn fields(
    event: &str,
    fields: &[Field],
    values: &[Value<'_>],
    out: &mut Vec<u8>,
) -> Result<(), CtfError> {
    let mismatch = |field: &str| CtfError::Mismatch {
        event: event.to_owned(),
        field: field.to_owned(),
    };
    if fields.len() != values.len() {
        return Err(mismatch(&format!("{} fields", values.len())));
    }
    for (field, value) in fields.iter().zip(values) {
        value_of(field.kind(), value, out).ok_or_else(|| mismatch(field.name()))?;
    }
    Ok(())
}

/// Appends `value`; none when it is not of that type.
fn value_of(kind: &Type, value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    match (kind, value) {
        (Type::Integer { bits, signed, .. }, Value::Unsigned(number)) => {
            integer(*bits, *signed, i128::from(*number), out)
        }
        (Type::Integer { bits, signed, .. }, Value::Signed(number)) => {
            integer(*bits, *signed, i128::from(*number), out)
        }
        (Type::Float, Value::Float(number)) => {
            out.extend(number.to_le_bytes());
            Some(())
        }
        // A NUL cannot be in what is escaped.
        (Type::Text, Value::Text(text)) => {
            out.extend(escaped(text).to_string().into_bytes());
            out.push(0);
            Some(())
        }
        (Type::Name { bytes }, Value::Text(text)) => {
            let mut name = harmless(text);
            name.resize((*bytes).into(), 0);
            out.extend(name);
            Some(())
        }
        (
            Type::Sequence {
                length_bits,
                element,
            },
            Value::List(elements),
        ) => {
            integer(*length_bits, false, elements.len() as i128, out)?;
            elements
                .iter()
                .try_for_each(|value| value_of(element, value, out))
        }
        _ => None,
    }
}

/// Appends a number, if it has room in `bits` bits.
fn integer(bits: u8, signed: bool, number: i128, out: &mut Vec<u8>) -> Option<()> {
    let (least, most) = match signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    if !(least..=most).contains(&number) {
        return None;
    }
    out.extend(number.to_le_bytes().iter().take(usize::from(bits / 8)));
    Some(())
}

/// `name` up to its first NUL, with a `?` in place of each byte that [`escaped`] would
/// escape: it must not become longer.
fn harmless(name: &[u8]) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == 0);
    let name = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
    let mut harmless = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            let bytes = character.to_string().into_bytes();
            match character == '\\' || escaped(&bytes).to_string().as_bytes() == bytes {
                true => harmless.extend(bytes),
                false => harmless.resize(harmless.len() + bytes.len(), b'?'),
            }
        }
        harmless.resize(harmless.len() + chunk.invalid().len(), b'?');
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_refused() {
        for (bits, signed, number) in [
            (8, false, 256),
            (8, true, 128),
            (8, true, -129),
            (32, false, -1),
            (64, true, 1 << 63),
        ] {
            assert_eq!(integer(bits, signed, number, &mut Vec::new()), None);
        }
        let mut out = Vec::new();
        integer(32, true, -2, &mut out).unwrap();
        integer(16, false, 0xfffe, &mut out).unwrap();
        assert_eq!(out, [0xfe, 0xff, 0xff, 0xff, 0xfe, 0xff]);
    }

    #[test]
    fn a_thread_s_name_deceives_nobody_and_keeps_its_length() {
        for (name, shown) in [
            (&b"a\\b c"[..], &b"a\\b c"[..]),
            (b"a\x1b[31m\xff", b"a?[31m?"),
            (b"ab\0secret", b"ab"),
            ("x\u{202e}y".as_bytes(), b"x???y"),
            ("\u{e4}".as_bytes(), "\u{e4}".as_bytes()),
            (b"cut\xc3", b"cut?"),
        ] {
            assert_eq!(harmless(name), shown);
        }
    }
}
