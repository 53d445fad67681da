// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strings: those that end in a NUL, and those that are structs of an address and a length.

use super::{said, Resolver, Thing};
use crate::syntax::{Expression, ExpressionKind, Span};
use crate::types::{GoKind, Shape};
use crate::SpecError;
use crate::Value;

/// A string in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) address: Value,
    /// How many bytes it has; none when it ends in a NUL.
    pub(crate) length: Option<Value>,
    /// The pointee is read at the entry of the call.
    pub(crate) of_entry: bool,
    /// The object that was asked for owns what is there: it may be gone with the object.
    pub(crate) is_owned: bool,
    /// It is a string without being asked for as one: not some bytes.
    pub(crate) by_default: bool,
}

/// The members of Go's strings that say where and how long.
const GO: [&str; 2] = ["str", "len"];

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
    pub(crate) fn text_of(&self, of: &Expression) -> Result<Text, SpecError> {
        if !matches!(of.kind, ExpressionKind::Number(_)) {
            let thing = self.thing(of)?;
            if let Some(text) = self.counted(&thing, &of.span)? {
                return Ok(text);
            }
        }
        Ok(Text {
            address: self.text_address(of)?,
            length: None,
            of_entry: false,
            is_owned: false,
            by_default: true,
        })
    }

    /// What a type is to a programmer of Go.
    pub(crate) fn go_kind(&self, shape: &Shape, span: &Span) -> Result<Option<GoKind>, SpecError> {
        match shape {
            Shape::Struct { id, .. } => self.scope.go_kind(*id).map_err(|why| said(span, why)),
            _ => Ok(None),
        }
    }

    /// The string that a struct is which knows its length; `None` when it is no such.
    pub(crate) fn counted(&self, thing: &Thing, span: &Span) -> Result<Option<Text>, SpecError> {
        if let super::Of::Known(kind) = &thing.of {
            if self.go_kind(&kind.shape, span)? == Some(GoKind::String) {
                if let Some(text) = self.wide(thing, &[GO], span)? {
                    return Ok(Some(text));
                }
            }
        }
        self.library_text(thing, span)
    }
}
