// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of a hit, and the keys of rows, back into values.

use crate::go_interface::held;
use crate::layout::Layout;
use crate::syntax::ValueFormat;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// A field, and how it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldFormat {
    /// Its name.
    pub name: String,
    /// What its words are.
    pub shape: WordShape,
}

/// What the words of a field are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordShape {
    /// A number of which nothing is known.
    Word,
    /// A number that is shown so.
    Number(ValueFormat),
    /// A character, by its number in Unicode.
    Character,
    /// A number that may have a name.
    Enumeration {
        /// The names, each with its number extended to 64 bits.
        names: Rc<[(Rc<str>, u64)]>,
    },
    /// A floating-point number of 2, 4 or 8 bytes.
    Float {
        /// Bytes.
        bytes: u8,
    },
    /// A string of at most this number of bytes.
    Text {
        /// Bytes.
        most: u16,
    },
    /// A string of at most this number of bytes, after how many it really has: two fields.
    Slice {
        /// Bytes.
        most: u16,
    },
    /// Bytes.
    Bytes {
        /// How many.
        count: u16,
    },
    /// The thread's name, which is two fields.
    Comm,
    /// An address, and the same by the probed file's own count: two fields.
    Symbol,
    /// An interface of Go: what it holds, which may be a string of at most this number of bytes.
    /// The address of its type, or of a table that has it; that of the type by the probed file's own
    /// count; the address of the value; the first word there; and a string there, which takes two
    /// fields.
    Interface {
        /// Bytes.
        most: u16,
    },
    /// Elements in memory, at most this number of bytes of them, after how many bytes they really
    /// have: two fields.
    Elements {
        /// Bytes.
        most: u16,
        /// Bytes of each.
        stride: u16,
        /// What each is.
        of: Box<Layout>,
    },
    /// A map of Go: its address, and how many elements it has: two fields.
    Map,
    /// A struct or an array.
    Object {
        /// Bytes of it.
        bytes: u16,
        /// What they are.
        layout: Layout,
    },
    /// An object in registers: a field for each eight bytes.
    Split {
        /// Bytes of it.
        bytes: u16,
        /// What they are.
        layout: Layout,
    },
    /// Nothing: it is not in the record.
    Missing,
}

/// A value that was fetched.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    /// Its memory could not be read, or it was divided by zero.
    Absent,
    /// A number without a sign.
    Unsigned(u64),
    /// A number with a sign.
    Signed(i64),
    /// An address, or what else is hexadecimal.
    Hex(u64),
    /// Shown in binary digits.
    Bits(u64),
    /// An address, maybe of a function.
    Symbol {
        /// Where it is in the process.
        address: u64,
        /// What that is by the probed file's own count, if it is in that file.
        in_file: u64,
    },
    /// What an interface of Go holds.
    Interface {
        /// The address of its type by the probed file's own count, if it is in that file.
        type_in_file: u64,
        /// The address of the value.
        data: u64,
        /// The first word there.
        first: Option<u64>,
        /// The string there, if it is one.
        text: Box<FieldValue>,
    },
    /// A character of one byte.
    Char(u8),
    /// A character of Unicode.
    Character(char),
    /// True or false.
    Bool(bool),
    /// A string; it was cut when it is as long as it may be.
    Text {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Whether there was more.
        cut: bool,
    },
    /// Bytes.
    Bytes(Vec<u8>),
    /// A floating-point number.
    Float(f64),
    /// A value with a name.
    Named(String, i64),
    /// The members of a struct.
    Struct(Vec<(Rc<str>, FieldValue)>),
    /// The one of several variants that is there: its name, and what it has.
    Variant(Rc<str>, Box<FieldValue>),
    /// The elements of an array.
    List(Vec<FieldValue>),
}

impl FieldValue {
    /// Go's `nil`.
    fn nil() -> FieldValue {
        FieldValue::Named("nil".to_owned(), 0)
    }

    /// Puts the names of functions and of Go's types in place of their addresses, as far as `name`
    /// knows them by the probed file's own count.
    pub fn with_names(self, name: impl Fn(u64) -> Option<String>) -> FieldValue {
        match self {
            FieldValue::Symbol { address, in_file } => match name(in_file) {
                Some(name) => FieldValue::Named(name, address as i64),
                None => self,
            },
            FieldValue::Interface {
                type_in_file,
                data,
                first,
                text,
            } => {
                let (name, held) = match name(type_in_file) {
                    Some(name) => {
                        let held = held(&name, data, first, *text);
                        (name, held)
                    }
                    None => ("?".to_owned(), FieldValue::Hex(data)),
                };
                // As a tuple has it, which is written in parentheses.
                let held = FieldValue::Struct(vec![("__0".into(), held)]);
                FieldValue::Variant(name.into(), Box::new(held))
            }
            value => value,
        }
    }
}

impl FieldFormat {
    /// A field of that name.
    pub fn new(name: &str, shape: WordShape) -> FieldFormat {
        FieldFormat {
            name: name.to_owned(),
            shape,
        }
    }

    /// Whether it has no more values than a compiled spec may ask for: one that was read
    /// from a file can say anything.
    pub fn is_bounded(&self) -> bool {
        match &self.shape {
            WordShape::Object { layout, .. } | WordShape::Split { layout, .. } => {
                layout.is_bounded()
            }
            _ => true,
        }
    }
}

impl WordShape {
    /// Words of a key that such a part takes.
    pub fn key_words(&self) -> usize {
        match self {
            WordShape::Text { most }
            | WordShape::Slice { most }
            | WordShape::Bytes { count: most } => usize::from(*most).div_ceil(8),
            WordShape::Comm | WordShape::Symbol => 2,
            WordShape::Missing => 0,
            _ => 1,
        }
    }

    /// Whether it has addresses in the probed file that are named by what is there.
    pub fn has_addresses(&self) -> bool {
        matches!(self, WordShape::Symbol | WordShape::Interface { .. })
    }

    /// Fields of a program that such a value takes.
    pub fn field_count(&self) -> usize {
        match self {
            WordShape::Comm
            | WordShape::Symbol
            | WordShape::Slice { .. }
            | WordShape::Elements { .. }
            | WordShape::Map => 2,
            WordShape::Interface { .. } => 6,
            WordShape::Split { bytes, .. } => usize::from(*bytes).div_ceil(8),
            WordShape::Missing => 0,
            _ => 1,
        }
    }

    pub(crate) fn number(&self, word: u64) -> FieldValue {
        match self {
            WordShape::Enumeration { names } => {
                let value = word as i64;
                let known = names.iter().find(|(_, number)| *number == word);
                match known {
                    Some((name, _)) => FieldValue::Named(name.to_string(), value),
                    None => FieldValue::Signed(value),
                }
            }
            WordShape::Character => {
                let character = u32::try_from(word).ok().and_then(char::from_u32);
                character.map_or(FieldValue::Unsigned(word), FieldValue::Character)
            }
            WordShape::Float { bytes: 2 } => FieldValue::Float(half(word as u16)),
            WordShape::Float { bytes: 4 } => FieldValue::Float(f32::from_bits(word as u32).into()),
            WordShape::Float { bytes: 8 } => FieldValue::Float(f64::from_bits(word)),
            // None that a spec has; one that was read from a file can say anything.
            WordShape::Float { .. } => FieldValue::Absent,
            WordShape::Number(format) => formatted(*format, word),
            _ => guessed(word),
        }
    }
}

/// The number that IEEE 754's 2 bytes are (binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff));
    let number = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (fraction + 1024.0) * 2f64.powi(i32::from(exponent) - 25),
    };
    number.copysign(if bits >> 15 == 0 { 1.0 } else { -1.0 })
}

/// Small numbers, also negative ones, are shown as such; others are addresses more
/// often than not.
fn guessed(word: u64) -> FieldValue {
    match word as i64 {
        value @ -0x1_0000..0 => FieldValue::Signed(value),
        _ if word <= u64::from(u32::MAX) => FieldValue::Unsigned(word),
        _ => FieldValue::Hex(word),
    }
}

fn formatted(format: ValueFormat, word: u64) -> FieldValue {
    let unused = |bytes: u8| 64 - u32::from(bytes.clamp(1, 8)) * 8;
    let low = |bytes: u8| (word << unused(bytes)) >> unused(bytes);
    match format {
        ValueFormat::Decimal {
            bytes,
            signed: false,
        } => FieldValue::Unsigned(low(bytes)),
        ValueFormat::Decimal {
            bytes,
            signed: true,
        } => FieldValue::Signed(((word << unused(bytes)) as i64) >> unused(bytes)),
        ValueFormat::Hex { bytes } => FieldValue::Hex(low(bytes)),
        ValueFormat::Bits => FieldValue::Bits(word),
        ValueFormat::Char => FieldValue::Char(word as u8),
        ValueFormat::Bool => FieldValue::Bool(word != 0),
        ValueFormat::Text { .. }
        | ValueFormat::Bytes { .. }
        | ValueFormat::Name
        | ValueFormat::Symbol => guessed(word),
    }
}

/// The values of a hit's fields, in the order of `formats`; `words` are those of the
/// record, the mask first (see `nsprobe_common::program::Output`). What a damaged
/// record does not hold is absent.
pub fn fields(formats: &[FieldFormat], words: &[u64]) -> Vec<FieldValue> {
    let (mask, words) = words.split_first().unwrap_or((&0, &[]));
    let mut reader = FieldReader { mask: *mask, words };
    formats
        .iter()
        .map(|field| reader.field(&field.shape))
        .collect()
}

struct FieldReader<'a> {
    /// Which of the fields that follow are present.
    mask: u64,
    words: &'a [u64],
}

impl FieldReader<'_> {
    fn word(&mut self) -> u64 {
        let (word, rest) = self.words.split_first().unwrap_or((&0, &[]));
        self.words = rest;
        *word
    }

    /// The first word of a field, when the field is present.
    fn present(&mut self) -> Option<u64> {
        let present = self.mask & 1 != 0;
        self.mask >>= 1;
        let word = self.word();
        present.then_some(word)
    }

    /// A field of at most `most` bytes, when it is present.
    fn bytes(&mut self, most: u16) -> Option<Vec<u8>> {
        let length = self.present()?;
        let length = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(most.into());
        let count = length.div_ceil(8).min(self.words.len());
        let (words, rest) = self.words.split_at(count);
        self.words = rest;
        let mut bytes = bytes_of(words);
        bytes.truncate(length);
        Some(bytes)
    }

    /// A string after its length.
    fn text(&mut self, most: u16) -> FieldValue {
        match (self.present(), self.bytes(most)) {
            (Some(length), Some(bytes)) => FieldValue::Text {
                cut: length > bytes.len() as u64,
                bytes,
            },
            _ => FieldValue::Absent,
        }
    }

    fn interface(&mut self, most: u16) -> FieldValue {
        let (table, of, data, first) = (
            self.present(),
            self.present(),
            self.present(),
            self.present(),
        );
        let text = Box::new(self.text(most));
        match (table, of, data) {
            (Some(0), ..) => FieldValue::nil(),
            (Some(_), Some(type_in_file), Some(data)) => FieldValue::Interface {
                type_in_file,
                data,
                first,
                text,
            },
            _ => FieldValue::Absent,
        }
    }

    fn field(&mut self, shape: &WordShape) -> FieldValue {
        match shape {
            WordShape::Comm => match (self.present(), self.present()) {
                (Some(low), Some(high)) => comm(&[low, high]),
                _ => FieldValue::Absent,
            },
            WordShape::Missing => FieldValue::Absent,
            WordShape::Split { layout, .. } => {
                let words = (0..shape.field_count()).map(|_| self.present());
                // All are taken, also after one that is absent.
                let words: Vec<Option<u64>> = words.collect();
                let words: Option<Vec<u64>> = words.into_iter().collect();
                words.map_or(FieldValue::Absent, |words| layout.value(&bytes_of(&words)))
            }
            WordShape::Symbol => match (self.present(), self.present()) {
                (Some(address), Some(in_file)) => FieldValue::Symbol { address, in_file },
                _ => FieldValue::Absent,
            },
            WordShape::Slice { most } => self.text(*most),
            WordShape::Interface { most } => self.interface(*most),
            WordShape::Elements { most, stride, of } => match (self.present(), self.bytes(*most)) {
                (Some(length), Some(bytes)) => elements(length, &bytes, *stride, of),
                _ => FieldValue::Absent,
            },
            WordShape::Map => match (self.present(), self.present()) {
                (Some(0), _) => FieldValue::nil(),
                (Some(_), Some(length)) => {
                    FieldValue::Struct(vec![("len".into(), FieldValue::Unsigned(length))])
                }
                _ => FieldValue::Absent,
            },
            WordShape::Text { most }
            | WordShape::Bytes { count: most }
            | WordShape::Object { bytes: most, .. } => {
                let Some(bytes) = self.bytes(*most) else {
                    return FieldValue::Absent;
                };
                match shape {
                    WordShape::Text { most } => FieldValue::Text {
                        cut: bytes.len() == usize::from(*most),
                        bytes,
                    },
                    WordShape::Object { layout, .. } => layout.value(&bytes),
                    _ => FieldValue::Bytes(bytes),
                }
            }
            shape => match self.present() {
                Some(word) => shape.number(word),
                None => FieldValue::Absent,
            },
        }
    }
}

/// The elements that bytes hold; with their number, where these are not all.
fn elements(length: u64, bytes: &[u8], stride: u16, of: &Layout) -> FieldValue {
    let each = bytes.chunks_exact(usize::from(stride).max(1));
    let list = FieldValue::List(each.map(|bytes| of.value(bytes)).collect());
    if length <= bytes.len() as u64 {
        return list;
    }
    let count = length / u64::from(stride).max(1);
    FieldValue::Struct(vec![
        ("len".into(), FieldValue::Unsigned(count)),
        ("first".into(), list),
    ])
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Words as a string that ends at its first NUL.
fn comm(words: &[u64]) -> FieldValue {
    let mut bytes = bytes_of(words);
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    FieldValue::Text { bytes, cut: false }
}

/// The values of a key, in the order of `formats`.
pub fn key(formats: &[FieldFormat], words: &[u64]) -> Vec<FieldValue> {
    let mut words = words;
    let mut take = |count: usize| {
        let (taken, rest) = words.split_at(count.min(words.len()));
        words = rest;
        taken
    };
    formats
        .iter()
        .map(|field| {
            let words = take(field.shape.key_words());
            match &field.shape {
                WordShape::Comm => comm(words),
                WordShape::Text { most } | WordShape::Slice { most } => match comm(words) {
                    FieldValue::Text { bytes, .. } => FieldValue::Text {
                        cut: bytes.len() >= usize::from(*most),
                        bytes,
                    },
                    value => value,
                },
                shape => shape.number(words.first().copied().unwrap_or(0)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(shape: WordShape) -> FieldFormat {
        FieldFormat::new("x", shape)
    }

    #[test]
    fn fields_are_read_in_order() {
        let formats = [
            field(WordShape::Word),
            field(WordShape::Text { most: 8 }),
            field(WordShape::Number(ValueFormat::Decimal {
                bytes: 4,
                signed: true,
            })),
            field(WordShape::Comm),
            field(WordShape::Bytes { count: 3 }),
        ];
        let comm = [
            u64::from_le_bytes(*b"redis-se"),
            u64::from_le_bytes(*b"rver\0\0\0\0"),
        ];
        let hello = u64::from_le_bytes(*b"hello\0\0\0");
        let words = [
            0b110_1110,
            0,
            5,
            hello,
            0xffff_ffff,
            comm[0],
            comm[1],
            3,
            0x030201,
        ];
        let text = |text: &str| FieldValue::Text {
            bytes: text.into(),
            cut: false,
        };
        assert_eq!(
            fields(&formats, &words),
            [
                FieldValue::Absent,
                text("hello"),
                FieldValue::Signed(-1),
                // The mask has no fifth bit: one half is missing.
                FieldValue::Absent,
                FieldValue::Bytes(vec![1, 2, 3]),
            ]
        );
        let words = [0b111_1110, 0, 5, hello, 7, comm[0], comm[1], 3, 0x030201];
        assert_eq!(fields(&formats, &words)[3], text("redis-server"));
    }

    #[test]
    fn slices_know_whether_they_were_cut() {
        let formats = [field(WordShape::Slice { most: 8 }), field(WordShape::Word)];
        let hello = u64::from_le_bytes(*b"hello, w");
        let text = |cut| FieldValue::Text {
            bytes: b"hello, w".to_vec(),
            cut,
        };
        let after = FieldValue::Unsigned(7);
        for (words, expected) in [
            (&[0b111, 8, 8, hello, 7][..], text(false)),
            (&[0b111, 12, 8, hello, 7], text(true)),
            (&[0b101, 12, 0, 7], FieldValue::Absent),
        ] {
            assert_eq!(fields(&formats, words), [expected, after.clone()]);
        }
        let count: usize = formats.iter().map(|one| one.shape.field_count()).sum();
        assert_eq!(count, 3);
    }

    #[test]
    fn words_are_guessed_at() {
        assert_eq!(guessed(-1i64 as u64), FieldValue::Signed(-1));
        assert_eq!(guessed(4096), FieldValue::Unsigned(4096));
        assert_eq!(guessed(0x7fff_1234_5678), FieldValue::Hex(0x7fff_1234_5678));
    }

    proptest! {
        #[test]
        fn no_record_panics(words in prop::collection::vec(any::<u64>(), 0..12)) {
            let formats = [
                field(WordShape::Text { most: 256 }),
                field(WordShape::Slice { most: 24 }),
                field(WordShape::Comm),
                field(WordShape::Bytes { count: 7 }),
                field(WordShape::Word),
            ];
            prop_assert_eq!(fields(&formats, &words).len(), 5);
            prop_assert_eq!(key(&formats, &words).len(), 5);
        }
    }
}
