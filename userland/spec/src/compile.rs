// SPDX-License-Identifier: MIT OR Apache-2.0
//! A spec into the programs of a probe, and how their fields are read.

mod fields;
mod go_values;
mod spans;

use crate::decode::{FieldFormat, WordShape};
use crate::plain::Plain;
use crate::resolve::Resolver;
use crate::scope::{Scope, ValuePlace};
use crate::steps::{End, Steps};
use crate::syntax::{
    self, Assignment, Binary, Changed, Expression, ExpressionKind, Field, Span, Spec, SpecError,
    SpecText, ValueFormat,
};
use crate::{types, Value};
use fields::ShownField;
use nsprobe_common::program::{Context, Operation, Register, Step, KEY_WORDS_MAX};
use serde::{Deserialize, Serialize};

/// The input of the compilation for one place.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// What is known of the reported place.
    pub scope: &'a dyn Scope,
    /// Where hits go.
    pub sink: Sink<'a>,
    /// The probe is hit at returns, whether the spec asks for it or not.
    pub at_return: bool,
    /// What is changed at each hit that counts, with what was there before.
    pub changes: &'a [Assignment],
    /// Bytes from the function's beginning to a `ret` instruction of it.
    pub ret: Option<u64>,
}

/// Where hits go, as far as programs know.
#[derive(Clone, Copy)]
pub enum Sink<'a> {
    /// They are recorded with the spec's fields.
    Record,
    /// They are counted.
    Count,
    /// They go into a table; the spec's fields must be empty.
    Table {
        /// What a row is found by.
        keys: &'a [Field],
        /// What is added up; at a return the time of the call when it is missing.
        value: Option<&'a Expression>,
    },
    /// They begin and end spans of memory: the fields `block` and `bytes` are what a call
    /// allocates, `freed` is what it frees.
    Spans {
        /// Bytes allocated per sample; zero for all blocks.
        sample: u64,
        /// Functions of the file that have probes of their own: a call that one of them goes on
        /// in by a jump is theirs.
        probed: &'a [String],
    },
}

/// The programs of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// The probe is hit when the function returns.
    pub at_return: bool,
    /// What runs at the entry.
    pub entry: Option<StepProgram>,
    /// What runs at the return.
    pub ret: Option<StepProgram>,
    /// The fields of a record.
    pub fields: Vec<FieldFormat>,
    /// The parts of a key.
    pub keys: Vec<FieldFormat>,
    /// Why variables are missing that `$params` or `$vars` stands for. Names in it come
    /// from the file.
    pub notes: Vec<String>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepProgram {
    /// Its steps.
    #[serde(with = "as_bytes")]
    pub steps: Vec<Step>,
    /// Its constant bytes.
    pub data: Vec<u8>,
}

/// Operations whose results are the same before and after a call, for the same operands.
const STAYS: [Operation; 24] = [
    Operation::Constant,
    Operation::Kept,
    Operation::Add,
    Operation::Subtract,
    Operation::Multiply,
    Operation::Modulo,
    Operation::And,
    Operation::Or,
    Operation::ExclusiveOr,
    Operation::Not,
    Operation::ZeroExtend,
    Operation::SignExtend,
    Operation::Equal,
    Operation::Below,
    Operation::BelowOrEqual,
    Operation::Less,
    Operation::LessOrEqual,
    Operation::IsZero,
    Operation::Either,
    Operation::Both,
    Operation::Require,
    Operation::EndSpan,
    Operation::Key,
    Operation::Value,
];

impl StepProgram {
    /// The program that lets a hit through where no condition is zero, of a probe at this
    /// address by the file's own count; none without conditions.
    ///
    /// # Errors
    /// It is too long.
    pub fn requiring(place: u64, conditions: &[Value]) -> Result<Option<StepProgram>, SpecError> {
        let mut steps = Steps::new(End::Entry, place);
        for condition in conditions {
            steps.effect(Operation::Require, condition, 0, &Span::default())?;
        }
        steps.finish()
    }

    /// Whether it changes registers, memory, or the way of the call.
    pub fn changes(&self) -> bool {
        self.has_any(&[Operation::SetRegister, Operation::Store, Operation::Return])
    }

    /// Whether its hits begin spans.
    pub fn begins_spans(&self) -> bool {
        self.has_any(&[Operation::Value])
    }

    /// Whether it ends spans.
    pub fn ends_spans(&self) -> bool {
        self.has_any(&[Operation::EndSpan])
    }

    /// This program of returns, for a jump to a function that returns its first argument: the
    /// result is in that register already. `None` when it looks at what that function may change.
    pub fn by_argument(&self) -> Option<StepProgram> {
        let step = |step: &Step| {
            let is = |operation: Operation| step.operation == operation as u8;
            let register = |register: Register| step.small == register as i32;
            match () {
                _ if is(Operation::Register) && register(Register::Rax) => Some(Step {
                    small: Register::Rdi as i32,
                    ..*step
                }),
                _ if STAYS.iter().any(|operation| is(*operation)) => Some(*step),
                _ if is(Operation::Context) && step.large != Context::Elapsed as u64 => Some(*step),
                _ => None,
            }
        };
        Some(StepProgram {
            steps: self.steps.iter().map(step).collect::<Option<_>>()?,
            data: self.data.clone(),
        })
    }

    fn has_any(&self, operations: &[Operation]) -> bool {
        let has = |step: &Step| operations.iter().any(|one| *one as u8 == step.operation);
        self.steps.iter().any(has)
    }
}

/// Steps as the bytes that the kernel is given.
mod as_bytes {
    use nsprobe_common::program::Step;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::Serializer;
    use zerocopy::{FromBytes, IntoBytes};

    pub(super) fn serialize<S: Serializer>(
        steps: &[Step],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(steps.as_bytes())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Step>, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        let steps = bytes.chunks(size_of::<Step>());
        let step = |bytes| Step::read_from_bytes(bytes);
        let steps: Result<Vec<Step>, _> = steps.map(step).collect();
        steps.map_err(|_| Error::custom("a part of a step"))
    }
}

impl Spec {
    /// Whether the probe is hit at returns, also because of what `more` asks for.
    pub fn is_at_return<'a>(&'a self, more: impl IntoIterator<Item = &'a Expression>) -> bool {
        let of_return = |kind: &ExpressionKind| {
            matches!(
                kind,
                ExpressionKind::Returned(_) | ExpressionKind::Context(Context::Elapsed)
            )
        };
        let fields = self.fields.iter().map(|field| &field.value);
        self.at_return
            || fields
                .chain(&self.condition)
                .chain(more)
                .any(|expression| expression.any(&of_return))
    }
}

impl Compiled {
    /// Compiles the program of samples or waits, by these keys: they are of a task at any place of
    /// its.
    ///
    /// # Errors
    /// A key wants what only a function or a wait has.
    pub fn placeless(keys: &[Field], are_waits: bool) -> Result<Compiled, SpecError> {
        let sink = Sink::Table { keys, value: None };
        Compiled::without_place(sink, keys, Vec::new(), are_waits)
    }

    /// Compiles the program of waits that are recorded, each with these facts of it, then with the
    /// words of the keys, all as fields.
    ///
    /// # Errors
    /// As of [`placeless`](Compiled::placeless); or a key is a string.
    pub fn recorded_waits(facts: &[Context], keys: &[Field]) -> Result<Compiled, SpecError> {
        let fact = |context: &Context| Field {
            name: format!("{context:?}"),
            value: Expression {
                kind: ExpressionKind::Context(*context),
                span: 0..0,
            },
            format: None,
            span: 0..0,
        };
        let fields = facts.iter().map(fact).chain(keys.iter().cloned());
        let mut compiled = Compiled::without_place(Sink::Record, keys, fields.collect(), true)?;
        compiled.keys = compiled.fields.split_off(facts.len());
        let is_one =
            |format: &FieldFormat| format.shape == WordShape::Comm || format.shape.key_words() == 1;
        let mut all = compiled.keys.iter().zip(keys);
        match all.find(|(format, _)| !is_one(format)) {
            Some((_, key)) => {
                let message = "waits with what ends them cannot be counted by strings";
                Err(SpecError::new(key.span.clone(), message))
            }
            None => Ok(compiled),
        }
    }

    fn without_place(
        sink: Sink<'_>,
        keys: &[Field],
        fields: Vec<Field>,
        are_waits: bool,
    ) -> Result<Compiled, SpecError> {
        let spec = Spec {
            place: syntax::ProbePoint::Functions {
                name: String::new(),
                offset: 0,
            },
            place_span: 0..0,
            at_return: false,
            fields,
            condition: None,
        };
        let of_call = |key: &&Field| spec.is_at_return([&key.value]);
        if let Some(key) = keys.iter().find(of_call) {
            let message = "samples and waits are of no call: they have no result and no time";
            return Err(SpecError::new(key.span.clone(), message));
        }
        let request = Request {
            spec: &spec,
            scope: &Plain {
                address: 0,
                at_function: false,
                changes_arguments: false,
                binary: None,
                why: "samples and waits have no arguments and variables".into(),
            },
            sink,
            at_return: false,
            changes: &[],
            ret: None,
        };
        Compiled::compile(&request, are_waits)
    }

    /// Compiles the programs of a probe.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn new(request: &Request<'_>) -> Result<Compiled, SpecError> {
        Compiled::compile(request, false)
    }

    fn compile(request: &Request<'_>, of_wait: bool) -> Result<Compiled, SpecError> {
        let (keys, value): (&[Field], _) = match request.sink {
            Sink::Table { keys, value } => (keys, value),
            Sink::Record | Sink::Count | Sink::Spans { .. } => (&[], None),
        };
        let changes = request.changes.iter().flat_map(Assignment::expressions);
        let more = keys
            .iter()
            .map(|key| &key.value)
            .chain(value)
            .chain(changes);
        let at_return = request.at_return || request.spec.is_at_return(more);
        let mut compiler = Compiler {
            resolver: Resolver {
                scope: request.scope,
                at_return,
                of_wait,
            },
            end: if at_return { End::Return } else { End::Entry },
            steps: Steps::new(
                if at_return { End::Return } else { End::Entry },
                request.scope.address(),
            ),
            notes: Vec::new(),
        };
        compiler.notes.extend(library_note(request));
        let mut early = compiler.conditions(request.spec.condition.as_ref())?;
        let fields = match request.sink {
            Sink::Record => compiler.fields(&request.spec.fields)?,
            _ => Vec::new(),
        };
        let keys = compiler.keys(keys);
        let keys = keys.map_err(|error| error.within(SpecText::Keys))?;
        if let Sink::Spans { sample, .. } = request.sink {
            early.extend(compiler.spans(request.spec, sample)?);
        }
        if let Some(value) = value {
            let scalar = compiler.resolver.scalar(value);
            let steps = &mut compiler.steps;
            scalar
                .and_then(|scalar| steps.effect(Operation::Value, &scalar.value, 0, &value.span))
                .map_err(|error| error.within(SpecText::Value))?;
        }
        for change in request.changes {
            compiler.change(change, request).map_err(|error| {
                // Its place is one in another text than the spec's.
                let message = format!("`{}`: {}", change.text, error.message);
                SpecError::new(request.spec.place_span.clone(), message)
            })?;
        }
        compiler.finish(request, early, fields, keys)
    }
}

struct Compiler<'a> {
    resolver: Resolver<'a>,
    end: End,
    steps: Steps,
    notes: Vec<String>,
}

impl Compiler<'_> {
    /// The conditions of a spec: those that are decided at the entry already are
    /// given back, with their places.
    fn conditions(
        &mut self,
        condition: Option<&Expression>,
    ) -> Result<Vec<(Value, Span)>, SpecError> {
        let mut parts = Vec::new();
        if let Some(condition) = condition {
            conjuncts(condition, &mut parts);
        }
        let mut early = Vec::new();
        for part in parts {
            let value = self.resolver.condition(part)?;
            if self.end == End::Return && value.is_known_at_entry() {
                early.push((value, part.span.clone()));
                continue;
            }
            self.steps
                .effect(Operation::Require, &value, 0, &part.span)?;
        }
        Ok(early)
    }

    /// Changes something in the traced task.
    fn change(&mut self, change: &Assignment, request: &Request<'_>) -> Result<(), SpecError> {
        let span = &change.value.span;
        let value = self.resolver.scalar(&change.value)?.value;
        let refused = |message: &str| Err(SpecError::new(span.clone(), message));
        let place = match (&change.target, request.ret) {
            (Changed::Place(place), _) => place,
            (Changed::Call, _) if self.end == End::Return => {
                return refused(
                    "a function is ended at its entry; at its return there is $retval = EXPRESSION",
                )
            }
            (Changed::Call, None) => {
                return refused("the function has no `ret` instruction by which it could be left")
            }
            (Changed::Call, Some(ret)) => return self.steps.leave(&value, ret, span),
        };
        let thing = self.resolver.thing(place)?;
        let span = &place.span;
        let is_number = !matches!(thing.of.shape(), Some(types::Shape::Float { .. }));
        let (bytes, true) = (thing.of.scalar_bytes(), is_number) else {
            let message = "only whole numbers and pointers can be set";
            return Err(SpecError::new(span.clone(), message));
        };
        match (thing.place, bytes) {
            (ValuePlace::Memory(address), Some(bytes)) => {
                self.steps.store(&address, &value, bytes, span)
            }
            (ValuePlace::Value(old), Some(_)) => match register_of(&old) {
                // The rest of the register belongs to other members.
                Some(register) if !matches!(place.kind, ExpressionKind::Member { .. }) => {
                    self.steps.set(register, &value, span)
                }
                _ => Err(SpecError::new(
                    span.clone(),
                    "this cannot be set: it is neither in memory nor alone in a register (of an \
                     argument, at the return it is over)",
                )),
            },
            _ => Err(SpecError::new(
                span.clone(),
                "this cannot be set at once: name one of its parts",
            )),
        }
    }

    /// The parts of a key.
    fn keys(&mut self, keys: &[Field]) -> Result<Vec<FieldFormat>, SpecError> {
        let mut formats = Vec::new();
        let mut words = 0;
        for field in keys {
            let span = &field.span;
            if field.format == Some(ValueFormat::Symbol) {
                let message = "symbols cannot be counted by; addresses can: EXPR:hex";
                return Err(SpecError::new(span.clone(), message));
            }
            let shape = if field.value.kind == ExpressionKind::Comm {
                for context in [Context::CommLow, Context::CommHigh] {
                    self.steps
                        .effect(Operation::Key, &Value::Context(context), 0, span)?;
                }
                WordShape::Comm
            } else {
                let ShownField {
                    value,
                    length,
                    shape,
                } = self.shaped(field)?;
                match &shape {
                    WordShape::Text { most } | WordShape::Slice { most } => {
                        let operation = match length {
                            Some(_) => Operation::KeySlice,
                            None => Operation::KeyString,
                        };
                        let bytes = i32::from(most.next_multiple_of(8));
                        let length = length.as_ref();
                        self.steps
                            .effect_of_two(operation, &value, length, bytes, span)?;
                    }
                    WordShape::Bytes { .. }
                    | WordShape::Object { .. }
                    | WordShape::Split { .. } => {
                        let message = "bytes cannot be counted by; a string can";
                        return Err(SpecError::new(span.clone(), message));
                    }
                    _ => self.steps.effect(Operation::Key, &value, 0, span)?,
                }
                shape
            };
            words += shape.key_words();
            if words > KEY_WORDS_MAX {
                return Err(SpecError::new(
                    span.clone(),
                    format!(
                        "with this the key is {words} words long, and {KEY_WORDS_MAX} are the \
                         most; string[32] takes four"
                    ),
                ));
            }
            formats.push(FieldFormat::new(&field.name, shape));
        }
        Ok(formats)
    }

    /// Puts entry and return together.
    fn finish(
        self,
        request: &Request<'_>,
        early: Vec<(Value, Span)>,
        fields: Vec<FieldFormat>,
        keys: Vec<FieldFormat>,
    ) -> Result<Compiled, SpecError> {
        let mut compiled = Compiled {
            at_return: self.end == End::Return,
            fields,
            keys,
            notes: self.notes,
            ..Compiled::default()
        };
        if self.end == End::Entry {
            compiled.entry = self.steps.finish()?;
            return Ok(compiled);
        }
        let mut entry = Steps::new(End::Entry, request.scope.address());
        for (value, span) in &early {
            entry.effect(Operation::Require, value, 0, span)?;
        }
        for (index, (value, span)) in self.steps.kept.iter().enumerate() {
            entry.effect(Operation::Keep, value, index as i32, span)?;
        }
        compiled.entry = entry.finish()?;
        compiled.ret = self.steps.finish()?;
        Ok(compiled)
    }
}

/// What is said where a cast names a string of C++: its layout is taken on the user's word.
fn library_note(request: &Request<'_>) -> Option<String> {
    let keys = match request.sink {
        Sink::Table { keys, .. } => keys,
        _ => &[],
    };
    let fields = request.spec.fields.iter().chain(keys);
    let fields = fields.map(|field| &field.value);
    let mut all = fields.chain(&request.spec.condition);
    let is_library =
        |kind: &ExpressionKind| matches!(kind, ExpressionKind::Cast(to, _) if to.library.is_some());
    all.any(|value| value.any(&is_library)).then(|| {
        let library = match request.scope.has_libcxx() {
            true => "libc++",
            false => "libstdc++",
        };
        format!("strings of C++ are read as {library} lays them out, without debug information")
    })
}

/// The parts of a condition that must all hold.
fn conjuncts<'a>(condition: &'a Expression, parts: &mut Vec<&'a Expression>) {
    match &condition.kind {
        ExpressionKind::Binary(Binary::And, a, b) => {
            conjuncts(a, parts);
            conjuncts(b, parts);
        }
        _ => parts.push(condition),
    }
}

/// The register that a value is, or the low part of.
fn register_of(value: &Value) -> Option<Register> {
    match value {
        Value::Register(register) => Some(*register),
        Value::Truncate { value, .. } => register_of(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
