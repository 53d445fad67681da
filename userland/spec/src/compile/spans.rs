// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations and frees as spans: the key is the process and the address, the value the bytes.

use super::{Compiler, Result};
use crate::steps::End;
use crate::syntax::{Field, Span, Spec, SpecError};
use crate::Value;
use nsprobe_common::program::{Context, Operation};

/// The fields of a spec whose hits begin and end spans.
const FIELDS: [&str; 3] = ["block", "bytes", "freed"];

impl Compiler<'_> {
    /// First ends the span of what is freed, as a call that does both gives the old block back
    /// before it returns: at a return only if the span is older than the call, since another
    /// thread may have got the address meanwhile.
    pub(super) fn spans(&mut self, spec: &Spec) -> Result<()> {
        let [block, bytes, freed] = fields(spec)?;
        if let Some(freed) = freed {
            self.key_of(freed)?;
            let before_call = self.end == End::Return;
            let counts = block.is_none();
            self.steps.end_span(before_call, counts, &freed.span);
        }
        let Some((block, bytes)) = block.zip(bytes) else {
            return Ok(());
        };
        if self.end == End::Entry {
            let message =
                "what a call allocates is known when it returns: add %return to the function";
            return Err(SpecError::new(block.span.clone(), message));
        }
        let address = self.number(block)?;
        let steps = &mut self.steps;
        steps.effect(Operation::Require, &address, 0, &block.span)?;
        self.key_of(block)?;
        let bytes_value = self.number(bytes)?;
        let steps = &mut self.steps;
        steps.effect(Operation::Value, &bytes_value, 0, &bytes.span)
    }

    /// The key of a block.
    fn key_of(&mut self, block: &Field) -> Result<()> {
        let address = self.number(block)?;
        for value in [&Value::Context(Context::Pid), &address] {
            self.steps.effect(Operation::Key, value, 0, &block.span)?;
        }
        Ok(())
    }

    fn number(&self, field: &Field) -> Result<Value> {
        if field.format.is_some() {
            let message = "this takes no format; a cast takes a part of it, as in (u32)arg1";
            return Err(SpecError::new(field.span.clone(), message));
        }
        Ok(self.resolver.scalar(&field.value)?.value)
    }
}

/// The fields by their meaning.
fn fields(spec: &Spec) -> Result<[Option<&Field>; 3]> {
    let refused = |span: &Span, message: &str| Err(SpecError::new(span.clone(), message));
    let mut found = [None; 3];
    for field in &spec.fields {
        let index = FIELDS.iter().position(|name| *name == field.name);
        match index.and_then(|index| found.get_mut(index)) {
            Some(place @ None) => *place = Some(field),
            Some(Some(_)) => return refused(&field.span, "this field is here twice"),
            None => {
                let message = "the fields are block= and bytes= of what is allocated, and freed=";
                return refused(&field.span, message);
            }
        }
    }
    match found {
        [Some(_), Some(_), _] | [None, None, Some(_)] => Ok(found),
        [Some(field), None, _] => refused(&field.span, "its size is missing: add bytes=EXPRESSION"),
        [None, Some(field), _] => {
            let message = "its address is missing: add block=EXPRESSION";
            refused(&field.span, message)
        }
        [None, None, None] => {
            let message = "the fields block= and bytes=, or freed=, are missing";
            refused(&spec.place_span, message)
        }
    }
}
