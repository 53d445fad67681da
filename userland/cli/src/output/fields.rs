// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that were fetched, for people and for machines.

use nsprobe_spec::decode::{FieldFormat, FieldValue};
use nsprobe_text::escaped;
use serde::ser::{SerializeMap, Serializer};
use serde::Serialize;

/// A value as text. What comes from the traced program is escaped.
pub(crate) fn text(value: &FieldValue) -> String {
    match value {
        FieldValue::Absent => "?".to_owned(),
        FieldValue::Unsigned(number) => number.to_string(),
        FieldValue::Signed(number) => number.to_string(),
        FieldValue::Hex(number) => format!("{number:#x}"),
        FieldValue::Bits(number) => format!("{number:#b}"),
        FieldValue::Symbol { address, .. } => format!("{address:#x}"),
        FieldValue::Interface { data, .. } => format!("{data:#x}"),
        FieldValue::Char(byte) => format!("'{}'", escaped(&[*byte][..])),
        FieldValue::Character(character) => {
            format!("'{}'", escaped(character.encode_utf8(&mut [0; 4])))
        }
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::Text { bytes, cut } => {
            let more = if *cut { "..." } else { "" };
            format!("\"{}\"{more}", quoted(bytes))
        }
        FieldValue::Bytes(bytes) => hex(bytes),
        FieldValue::Named(name, _) => escaped(name).to_string(),
        FieldValue::Float(number) => float(*number),
        FieldValue::Struct(members) => {
            let shown = members
                .iter()
                .map(|(name, value)| format!("{}={}", escaped(name.as_bytes()), text(value)));
            format!("{{{}}}", list(shown))
        }
        FieldValue::Variant(name, value) => {
            let name = escaped(name.as_bytes());
            match (value.as_ref(), unnamed(value)) {
                (FieldValue::Struct(members), _) if members.is_empty() => name.to_string(),
                (_, Some(members)) => format!("{name}({})", list(members.map(text))),
                (value, None) => format!("{name}{}", text(value)),
            }
        }
        FieldValue::List(elements) => format!("[{}]", list(elements.iter().map(text))),
    }
}

/// Very great and small ones with an exponent.
fn float(number: f64) -> String {
    match number.abs() {
        0.0 | 1e-5..1e16 => number.to_string(),
        _ => format!("{number:?}"),
    }
}

/// The members of a tuple of Rust, whose names are numbers.
fn unnamed(value: &FieldValue) -> Option<impl Iterator<Item = &FieldValue>> {
    let FieldValue::Struct(members) = value else {
        return None;
    };
    let mut numbered = members.iter().enumerate();
    let is_tuple = numbered.all(|(at, (name, _))| **name == *format!("__{at}"));
    is_tuple.then(|| members.iter().map(|(_, value)| value))
}

/// Formats it without quotes around text, where its position identifies it.
pub(crate) fn bare(value: &FieldValue) -> String {
    match value {
        FieldValue::Text { bytes, cut: false } => escaped(bytes).to_string(),
        value => text(value),
    }
}

fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Escaped, quotes too.
fn quoted(bytes: &[u8]) -> String {
    escaped(bytes).to_string().replace('"', "\\\"")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time span in the unit that suits it.
pub(crate) fn duration(ns: u64) -> String {
    let in_units = |unit: f64| ns as f64 / unit;
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{:.3} us", in_units(1e3)),
        1_000_000..=999_999_999 => format!("{:.3} ms", in_units(1e6)),
        _ => format!("{:.3} s", in_units(1e9)),
    }
}

/// Fields and their values as one object of JSON. Addresses, which JSON's numbers
/// do not hold, are strings; bytes are hexadecimal; what is absent is null.
pub(crate) struct Json<'a> {
    pub(crate) formats: &'a [FieldFormat],
    pub(crate) values: &'a [FieldValue],
}

impl<'a> Json<'a> {
    /// Names of the strings of which there may be more.
    pub(crate) fn truncated(&self) -> Vec<&'a str> {
        let is_cut = |value: &FieldValue| matches!(value, FieldValue::Text { cut: true, .. });
        let all = self.formats.iter().zip(self.values);
        let cut = all.filter(|(_, value)| is_cut(value));
        cut.map(|(field, _)| field.name.as_str()).collect()
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.values.len()))?;
        for (field, value) in self.formats.iter().zip(self.values) {
            map.serialize_entry(&field.name, &JsonValue(value))?;
        }
        map.end()
    }
}

struct JsonValue<'a>(&'a FieldValue);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FieldValue::Absent => serializer.serialize_unit(),
            FieldValue::Unsigned(number) => serializer.serialize_u64(*number),
            FieldValue::Signed(number) => serializer.serialize_i64(*number),
            FieldValue::Bool(value) => serializer.serialize_bool(*value),
            FieldValue::Float(number) => serializer.serialize_f64(*number),
            FieldValue::Text { bytes, .. } => {
                serializer.serialize_str(&String::from_utf8_lossy(bytes))
            }
            FieldValue::Named(name, _) => serializer.serialize_str(name),
            FieldValue::Hex(number) => serializer.serialize_str(&format!("{number:#x}")),
            FieldValue::Symbol { address: word, .. } | FieldValue::Interface { data: word, .. } => {
                serializer.serialize_str(&format!("{word:#x}"))
            }
            FieldValue::Bits(number) => serializer.serialize_str(&format!("{number:#b}")),
            FieldValue::Char(byte) => serializer.serialize_char(char::from(*byte)),
            FieldValue::Character(character) => serializer.serialize_char(*character),
            FieldValue::Bytes(bytes) => serializer.serialize_str(&hex(bytes)),
            FieldValue::Variant(name, value) => match (value.as_ref(), unnamed(value)) {
                (FieldValue::Struct(members), _) if members.is_empty() => {
                    serializer.serialize_str(name)
                }
                (_, Some(members)) => {
                    let members: Vec<_> = members.map(JsonValue).collect();
                    match members.as_slice() {
                        [one] => serializer.collect_map([(name, one)]),
                        all => serializer.collect_map([(name, all)]),
                    }
                }
                (value, None) => serializer.collect_map([(name, JsonValue(value))]),
            },
            FieldValue::List(elements) => serializer.collect_seq(elements.iter().map(JsonValue)),
            FieldValue::Struct(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| (&**name, JsonValue(value)));
                serializer.collect_map(members)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_says_is_escaped() {
        let value = FieldValue::Text {
            bytes: b"a\"\x1b[31m\n".to_vec(),
            cut: true,
        };
        let text = text(&value);
        assert!(
            text.starts_with("\"a\\\"") && text.ends_with("\"..."),
            "{text}"
        );
        assert!(!text.contains('\x1b') && !text.contains('\n'), "{text}");
    }

    #[test]
    fn numbers_far_from_one_have_an_exponent() {
        let numbers = [0.0, -2.5, 1e15, 1.5e-43, -1e300, f64::INFINITY];
        let shown = ["0", "-2.5", "1000000000000000", "1.5e-43", "-1e300", "inf"];
        assert_eq!(numbers.map(float), shown);
    }

    #[test]
    fn time_spans_have_units() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1500), "1.500 us");
        assert_eq!(duration(2_000_000_000), "2.000 s");
    }

    #[test]
    fn characters_of_unicode_are_shown_as_such() {
        let shown = ['ü', '😀', '\n', '\u{202e}'].map(|one| {
            let value = FieldValue::Character(one);
            (
                text(&value),
                serde_json::to_value(JsonValue(&value)).unwrap(),
            )
        });
        let expected = [
            ("'ü'", "ü"),
            ("'😀'", "😀"),
            ("'\\n'", "\n"),
            ("'\\u{202e}'", "\u{202e}"),
        ];
        assert_eq!(
            shown,
            expected.map(|(text, json)| (text.to_owned(), json.into()))
        );
    }

    #[test]
    fn structs_and_arrays_are_shown_whole() {
        let point = FieldValue::Struct(vec![
            ("x".into(), FieldValue::Signed(-1)),
            ("y".into(), FieldValue::Absent),
        ]);
        let list = FieldValue::List(vec![point, FieldValue::Bits(5)]);
        assert_eq!(text(&list), "[{x=-1, y=?}, 0b101]");
        assert_eq!(
            serde_json::to_string(&JsonValue(&list)).unwrap(),
            "[{\"x\":-1,\"y\":null},\"0b101\"]"
        );
    }

    #[test]
    fn json_keeps_the_order() {
        let formats =
            ["z", "a"].map(|name| FieldFormat::new(name, nsprobe_spec::decode::WordShape::Word));
        let values = [FieldValue::Hex(255), FieldValue::Absent];
        let json = Json {
            formats: &formats,
            values: &values,
        };
        assert_eq!(
            serde_json::to_string(&json).unwrap(),
            "{\"z\":\"0xff\",\"a\":null}"
        );
    }
}
