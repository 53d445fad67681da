// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a spec, and what it says; nothing here knows a binary.
//!
//! ```text
//! PLACE[%return][(FIELD, …)] [if CONDITION]
//! ```
//!
//! `docs/spec.md` is the language's description.

mod lexer;
mod numbers;
mod parser;
mod place;
mod signature;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use words::{is_dollar, known_register as register_of};

use nsprobe_common::program::{Context, Register};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// A part of the text, in bytes.
pub type Span = Range<usize>;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecError {
    /// The place.
    pub span: Span,
    /// What is wrong there, and what to do.
    pub message: String,
    /// Which text the place is in.
    pub text: SpecText,
}

/// A text that a probe is compiled from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpecText {
    /// The probe itself.
    #[default]
    Probe,
    /// The keys that it is counted by.
    Keys,
    /// The value that is added up or spread over buckets.
    Value,
}

impl SpecError {
    /// Something is wrong with that part of the text.
    pub fn new(span: Span, message: impl Into<String>) -> SpecError {
        SpecError {
            span,
            message: message.into(),
            text: SpecText::Probe,
        }
    }

    /// The same, of a place in that text.
    #[must_use]
    pub fn within(self, text: SpecText) -> SpecError {
        SpecError { text, ..self }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SpecError {}

/// A probe, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Where the probe is.
    pub place: ProbePoint,
    /// The place in the text.
    pub place_span: Span,
    /// Whether it says that the probe is at the function's return.
    pub at_return: bool,
    /// What is fetched.
    pub fields: Vec<Field>,
    /// When a hit counts.
    pub condition: Option<Expression>,
}

/// Where a probe is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbePoint {
    /// In functions of this name, or of names that a glob fits; a number of bytes after
    /// their beginning.
    Functions {
        /// The name or glob.
        name: String,
        /// Bytes.
        offset: u64,
    },
    /// At a line of a source file.
    Line {
        /// The file's name, or the end of its path.
        file: String,
        /// Counted from one.
        line: u32,
    },
    /// At an offset of the file.
    FileOffset(u64),
    /// At a static probe.
    Usdt {
        /// Its provider.
        provider: String,
        /// Its name.
        name: String,
    },
}

/// A value that is fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// How it is called: as the spec says, else as it is written.
    pub name: String,
    /// What it is.
    pub value: Expression,
    /// How it is shown; by its type when the spec does not say.
    pub format: Option<ValueFormat>,
    /// The field in the text.
    pub span: Span,
}

/// Something that a probe changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// What.
    pub target: Changed,
    /// What it becomes.
    pub value: Expression,
    /// As it was written.
    pub text: String,
}

/// What an assignment changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changed {
    /// A variable, a register, memory, or what the function returns.
    Place(Expression),
    /// The function: it returns at once.
    Call,
}

/// How a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueFormat {
    /// A decimal number; its size in bytes.
    Decimal {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A hexadecimal number; its size in bytes.
    Hex {
        /// 1, 2, 4 or 8.
        bytes: u8,
    },
    /// In binary digits.
    Bits,
    /// The name that the number has by its type.
    Name,
    /// The function that it is an address of, when that is in the probed file.
    Symbol,
    /// A character.
    Char,
    /// `true` or `false`.
    Bool,
    /// The string at an address, at most this number of bytes of it.
    Text {
        /// Bytes.
        most: u16,
    },
    /// Bytes at an address.
    Bytes {
        /// How many.
        count: u16,
    },
}

/// Bytes of a string when the spec does not say.
pub const TEXT_BYTES: u16 = 64;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expression {
    /// What it is.
    pub kind: ExpressionKind,
    /// Where it is.
    pub span: Span,
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpressionKind {
    /// A number.
    Number(u64),
    /// A string; only compared.
    Text(Vec<u8>),
    /// A variable of the program.
    Name(String),
    /// The function's argument, from 1 on.
    Argument(u32),
    /// A register, or its low bytes.
    Register(#[serde(with = "numbers::register")] Register, u8),
    /// What is known of the task and the moment.
    Context(#[serde(with = "numbers::context")] Context),
    /// What the function returns: its result of this number, from 1 on.
    Returned(u32),
    /// The number of the goroutine.
    Goroutine,
    /// The thread's name; only compared, or shown.
    Comm,
    /// The stack's word of that number, from 0 at the stack pointer on.
    StackWord(u32),
    /// All parameters, or all variables, of the function: a field only.
    All {
        /// The local variables too.
        locals: bool,
    },
    /// A member of a struct.
    Member {
        /// The struct, or a pointer to it.
        of: Box<Expression>,
        /// The member's name.
        name: String,
    },
    /// An element of an array.
    Element {
        /// The array, or a pointer into it.
        of: Box<Expression>,
        /// Which one.
        index: Box<Expression>,
    },
    /// An operator before its operand.
    Unary(Unary, Box<Expression>),
    /// An operator between two operands.
    Binary(Binary, Box<Expression>, Box<Expression>),
    /// A value taken for one of another type.
    Cast(CastType, Box<Expression>),
    /// The value as it was at the entry of the call.
    AtEntry(Box<Expression>),
}

/// A type that can be named in a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastType {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it has a sign.
    pub signed: bool,
    /// Whether it is a character.
    pub is_char: bool,
    /// How many times it is pointed to.
    pub pointers: u8,
    /// It is a string of C++, by the layout of the standard library that the file uses.
    pub library: Option<LibraryType>,
}

/// A type of the standard library of C++ that can be named in a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryType {
    /// `std::string`
    String,
    /// `std::string_view`
    View,
}

/// An operator before its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unary {
    /// `-`
    Minus,
    /// `~`
    BitNot,
    /// `!`
    Not,
    /// `*`
    Load,
    /// `&`
    Address,
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Binary {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    /// `~`: a string begins with the other, which ends in `*`.
    Matches,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Spec {
    /// Reads a spec: what stands after `BINARY:`.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        parser::spec(text)
    }
}

impl Assignment {
    /// Reads `PLACE = EXPRESSION` or `return EXPRESSION`.
    pub fn parse(text: &str) -> Result<Assignment, SpecError> {
        parser::assignment(text)
    }

    /// Its expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let place = match &self.target {
            Changed::Place(place) => Some(place),
            Changed::Call => None,
        };
        place.into_iter().chain([&self.value])
    }
}

impl Field {
    /// Reads fields that are separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Field>, SpecError> {
        parser::fields(text)
    }
}

impl Expression {
    /// Whether the expression or a part of it fulfils the condition.
    pub fn any(&self, found: &impl Fn(&ExpressionKind) -> bool) -> bool {
        let inside = match &self.kind {
            ExpressionKind::Member { of, .. }
            | ExpressionKind::Unary(_, of)
            | ExpressionKind::Cast(_, of)
            | ExpressionKind::AtEntry(of) => of.any(found),
            ExpressionKind::Element { of, index } => of.any(found) || index.any(found),
            ExpressionKind::Binary(_, a, b) => a.any(found) || b.any(found),
            _ => false,
        };
        inside || found(&self.kind)
    }
}
