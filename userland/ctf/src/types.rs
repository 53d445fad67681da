// SPDX-License-Identifier: MIT OR Apache-2.0
//! What events look like, and what is in them.

use std::borrow::Cow;
use std::collections::HashSet;

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number of 8, 16, 32 or 64 bits.
    Integer {
        /// Its size.
        bits: u8,
        /// Whether it has a sign.
        signed: bool,
        /// How it is shown: 2, 8, 10 or 16.
        base: u8,
    },
    /// A floating-point number of 64 bits (IEEE 754).
    Float,
    /// Text of any length.
    Text,
    /// Text in this number of bytes, padded with NULs, as the kernel keeps a thread's name.
    Name {
        /// How many.
        bytes: u8,
    },
    /// Elements of one type, their number in front of them, in a field of its own.
    Sequence {
        /// Size of that number: 8, 16 or 32.
        length_bits: u8,
        /// What they are; no sequence.
        element: Box<Type>,
    },
}

impl Type {
    /// A decimal number with a sign.
    pub const fn signed(bits: u8) -> Type {
        Type::Integer {
            bits,
            signed: true,
            base: 10,
        }
    }

    /// A decimal number without a sign.
    pub const fn unsigned(bits: u8) -> Type {
        Type::Integer {
            bits,
            signed: false,
            base: 10,
        }
    }

    /// A hexadecimal number of 64 bits: an address, or an offset.
    pub const fn hex() -> Type {
        Type::Integer {
            bits: 64,
            signed: false,
            base: 16,
        }
    }

    /// At most 65,535 elements.
    pub fn sequence(element: Type) -> Type {
        Type::Sequence {
            length_bits: 16,
            element: Box::new(element),
        }
    }
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, as readers show it.
    name: String,
    /// Its type.
    kind: Type,
}

impl Field {
    /// A field. Its name must be one that [`FieldNames`] gave, or one like these.
    pub fn new(name: impl Into<String>, kind: Type) -> Field {
        Field {
            name: name.into(),
            kind,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn kind(&self) -> &Type {
        &self.kind
    }
}

/// The longest name of a field, in characters.
const NAME_CHARACTERS_MAX: usize = 80;

/// Makes names of fields out of any text: letters, digits and single underlines, each name
/// once.
#[derive(Debug, Default)]
pub struct FieldNames {
    taken: HashSet<String>,
}

impl FieldNames {
    /// Reserves these names, so that no other field gets them.
    pub fn reserve(&mut self, names: &[&str]) {
        self.taken
            .extend(names.iter().map(|name| (*name).to_owned()));
    }

    /// A name like `text`.
    pub fn name(&mut self, text: &str) -> String {
        let mut name = String::new();
        for character in text.chars().take(NAME_CHARACTERS_MAX) {
            match character {
                'a'..='z' | 'A'..='Z' | '0'..='9' => name.push(character),
                _ if name.is_empty() || name.ends_with('_') => {}
                _ => name.push('_'),
            }
        }
        let name = match name.trim_end_matches('_') {
            "" => "field",
            name => name,
        };
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.taken.contains(name));
        let free = free.unwrap_or_default();
        self.taken.insert(free.clone());
        free
    }
}

/// Events that look alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventClass {
    /// What they are called.
    pub name: String,
    /// Their fields.
    pub fields: Vec<Field>,
}

/// Events that are recorded together: one stream for each CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// What its files are called.
    pub name: String,
    /// Fields that all of its events have in front of their own.
    pub context: Vec<Field>,
}

/// Names a channel of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) u32);

/// Names a class of events of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    pub(crate) channel: ChannelId,
    /// Its number in its channel.
    pub(crate) number: u32,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number that is not negative.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// Text, of which nothing is expected: it need not be UTF-8.
    Text(Cow<'a, [u8]>),
    /// Elements of a sequence.
    List(Vec<Value<'a>>),
}

impl<'a> Value<'a> {
    /// Text.
    pub fn text<T: AsRef<[u8]> + ?Sized>(text: &'a T) -> Value<'a> {
        Value::Text(Cow::Borrowed(text.as_ref()))
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Unsigned(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Value::Unsigned(number.into())
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Signed(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_fields_are_made_of_anything() {
        let mut names = FieldNames::default();
        names.reserve(&["absent"]);
        for (text, name) in [
            ("c->cmd->proc", "c_cmd_proc"),
            ("$elapsed", "elapsed"),
            ("elapsed", "elapsed_2"),
            ("absent", "absent_2"),
            ("", "field"),
            ("*", "field_2"),
            ("größe[0].x", "gr_e_0_x"),
        ] {
            assert_eq!(names.name(text), name);
        }
    }

    proptest! {
        #[test]
        fn no_name_comes_twice_and_each_is_an_identifier(
            texts in proptest::collection::vec(".{0,8}", 0..40),
        ) {
            let mut names = FieldNames::default();
            let mut seen = HashSet::new();
            for text in texts {
                let name = names.name(&text);
                prop_assert!(!name.is_empty());
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
                prop_assert!(!name.starts_with('_'));
                prop_assert!(seen.insert(name));
            }
        }
    }
}
