// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations and frees as spans: the key is the process and the address, the value the bytes.

use super::Compiler;
use crate::steps::End;
use crate::syntax::{Field, Span, Spec, SpecError};
use crate::{BinaryOperator, Value};
use nsprobe_common::program::{Context, Operation};

/// The fields of a spec whose hits begin and end spans.
const FIELDS: [&str; 3] = ["block", "bytes", "freed"];

impl Compiler<'_> {
    /// First ends the span of what is freed, as a call that does both gives the old block back
    /// before it returns: at a return only if the span is older than the call, since another
    /// thread may have got the address meanwhile. Returns what the entry already requires.
    ///
    /// A function whose `freed` is its `block` may have it from another one that is probed: with
    /// `sample` it ends that one's span and draws itself.
    pub(super) fn spans(
        &mut self,
        spec: &Spec,
        sample: u64,
    ) -> Result<Option<(Value, Span)>, SpecError> {
        let [block, bytes, freed] = fields(spec)?;
        let takes_over = match block.zip(freed) {
            Some((block, freed)) => self.number(block)? == self.number(freed)?,
            None => false,
        };
        if let Some(freed) = freed.filter(|_| !takes_over) {
            let (before_call, counts) = (self.end == End::Return, block.is_none());
            if counts {
                let address = self.number(freed)?;
                self.require(&address, freed)?;
            }
            self.key_of(freed)?;
            self.steps.end_span(before_call, counts, &freed.span);
        }
        let Some((block, bytes)) = block.zip(bytes) else {
            return Ok(None);
        };
        if self.end == End::Entry {
            let message =
                "what a call allocates is known when it returns: add %return to the function";
            return Err(SpecError::new(block.span.clone(), message));
        }
        let (address, size) = (self.number(block)?, self.number(bytes)?);
        let mut early = None;
        if sample != 0 {
            let taken = is_taken(&size, sample);
            // The entry need not keep what is not taken, unless the return ends spans.
            match freed.is_none() && taken.is_known_at_entry() {
                true => early = Some((taken, bytes.span.clone())),
                false => {
                    self.key_of(block)?;
                    self.steps.end_span(false, false, &block.span);
                    self.require(&taken, bytes)?;
                }
            }
        }
        self.require(&address, block)?;
        self.key_of(block)?;
        self.steps.effect(Operation::Value, &size, 0, &bytes.span)?;
        Ok(early)
    }

    fn require(&mut self, value: &Value, field: &Field) -> Result<(), SpecError> {
        self.steps.effect(Operation::Require, value, 0, &field.span)
    }

    /// The key of a block.
    fn key_of(&mut self, block: &Field) -> Result<(), SpecError> {
        let address = self.number(block)?;
        for value in [&Value::Context(Context::Pid), &address] {
            self.steps.effect(Operation::Key, value, 0, &block.span)?;
        }
        Ok(())
    }

    fn number(&self, field: &Field) -> Result<Value, SpecError> {
        if field.format.is_some() {
            let message = "this takes no format; a cast takes a part of it, as in (u32)arg1";
            return Err(SpecError::new(field.span.clone(), message));
        }
        Ok(self.resolver.scalar(&field.value)?.value)
    }
}

/// Whether a block is taken: with a probability of its size, of `sample` bytes.
fn is_taken(size: &Value, sample: u64) -> Value {
    let random = Value::Context(Context::Random);
    let below = Value::binary(BinaryOperator::Modulo, random, Value::Constant(sample));
    Value::binary(BinaryOperator::Below, below, size.clone())
}

/// The fields by their meaning.
fn fields(spec: &Spec) -> Result<[Option<&Field>; 3], SpecError> {
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
