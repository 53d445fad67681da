// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strings: those that end in a NUL, and those that are structs of an address and a length.

use super::{Resolver, Result, Thing};
use crate::syntax::{Expression, Kind, Span};
use crate::types::Shape;
use crate::Value;

/// A string in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Where it is.
    pub(crate) address: Value,
    /// How many bytes it has; none when it ends in a NUL.
    pub(crate) length: Option<Value>,
    /// What is there was there at the entry of the call, and nobody changes it.
    pub(crate) of_entry: bool,
}

/// Structs that are strings: their names, and the members that say where and how long.
const STRINGS: [(&str, &str, &str); 2] = [
    // Go
    ("string", "str", "len"),
    // Rust
    ("&str", "data_ptr", "length"),
];

impl Text {
    /// Whether it is this text, or begins with it.
    pub(crate) fn compare(self, text: &[u8], whole: bool) -> Value {
        let equal = Value::Compare {
            address: Box::new(self.address),
            length: self.length.map(Box::new),
            text: text.to_vec(),
            whole,
        };
        match self.of_entry {
            true => equal.at_entry(),
            false => equal,
        }
    }
}

impl Resolver<'_> {
    /// The string that an expression is.
    pub(crate) fn text_of(&self, of: &Expression) -> Result<Text> {
        if !matches!(of.kind, Kind::Number(_)) {
            let thing = self.thing(of)?;
            if let Some(text) = self.counted(&thing, &of.span)? {
                return Ok(text);
            }
        }
        Ok(Text {
            address: self.text_address(of)?,
            length: None,
            of_entry: false,
        })
    }

    /// The string that a struct of an address and a length is; `None` when it is no such.
    pub(crate) fn counted(&self, thing: &Thing, span: &Span) -> Result<Option<Text>> {
        let super::Of::Known(kind) = &thing.of else {
            return Ok(None);
        };
        let known = STRINGS
            .iter()
            .find(|(name, ..)| kind.name.as_ref() == *name);
        let (Some((_, address, length)), Shape::Struct { .. }) = (known, &kind.shape) else {
            return Ok(None);
        };
        let part = |name: &str| {
            let member = self.member_of(thing.clone(), name, span)?;
            Ok(self.load(member, span)?.value)
        };
        Ok(Some(Text {
            address: part(address)?,
            length: Some(part(length)?),
            of_entry: thing.of_entry,
        }))
    }
}
