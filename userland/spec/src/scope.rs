// SPDX-License-Identifier: MIT OR Apache-2.0
//! What names mean at a probe's place: the border between specs and whatever
//! knows about the binary (DWARF, calling conventions, USDT notes).

use crate::types::{GoKind, Member, Type, TypeId, Variants};
use crate::Value;
use std::rc::Rc;

/// Where something is at the hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// It is this value: in a register, or computed. Sign or zero extended to 64
    /// bits as its type says.
    Value(Value),
    /// In memory, at this address.
    Memory(Value),
    /// In parts, such as a struct in two registers; what no part covers is not
    /// available.
    Pieces(Rc<[ValuePart]>),
}

/// A part of something that lies in several places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePart {
    /// Bytes from the beginning of the whole.
    pub offset: u64,
    /// Bytes of this part.
    pub bytes: u64,
    /// Where it is: a value holds the part in its low bytes.
    pub place: ValuePlace,
}

/// Something of the program: where it is, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// Where.
    pub place: ValuePlace,
    /// What.
    pub kind: Type,
}

/// What a variable is to its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableRole {
    /// An argument. In a return probe its value at the entry is meant.
    Parameter,
    /// A result of a function of Go; it is there at the return alone.
    Result,
    /// A local variable; gone when the function has returned.
    Local,
    /// There at any time.
    Global,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name. From the file: to be escaped when it is printed.
    pub name: Rc<str>,
    /// What it is to the function.
    pub role: VariableRole,
    /// Where it is; or why it is not to be had, such as optimized out.
    pub value: Result<Typed, ScopeError>,
}

/// Why a scope has no answer. Names in it come from the file: it is escaped when printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScopeError {
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// What can be done, if anything.
    pub help: Option<String>,
    /// Similar names that exist, best first.
    pub nearest: Vec<String>,
}

impl ScopeError {
    /// An error with nothing but a message.
    pub fn new(message: impl Into<String>) -> ScopeError {
        ScopeError {
            message: message.into(),
            ..ScopeError::default()
        }
    }

    /// Adds an advice to the error.
    pub fn with_help(mut self, help: impl Into<String>) -> ScopeError {
        self.help = Some(help.into());
        self
    }
}

pub(crate) fn no_goroutine() -> ScopeError {
    ScopeError::new("$goid: only code of Go's compiler has a goroutine")
}

/// What names mean at one place of one binary.
///
/// For a return probe it is the scope of the function's entry: the compiler wraps
/// what is of the entry into [`Value::AtEntry`] itself.
pub trait Scope {
    /// The address of the place as the file's own headers count it: what
    /// [`Value::Image`] is relative to.
    fn address(&self) -> u64;

    /// The variable of that name which the source would mean at the place.
    fn variable(&self, name: &str) -> Result<Variable, ScopeError>;

    /// All parameters, in order.
    fn parameters(&self) -> Result<Vec<Variable>, ScopeError>;

    /// All local variables that are visible at the place, without the parameters.
    fn locals(&self) -> Result<Vec<Variable>, ScopeError>;

    /// Argument `number`, from 1 on, by the calling convention or the USDT note.
    fn argument(&self, number: usize) -> Result<Typed, ScopeError>;

    /// Whether arguments and results have their types, and are not words of the convention.
    fn has_types(&self) -> bool {
        true
    }

    /// What the function returns, as found right after the return: result `number`, from 1 on, of
    /// which only Go's functions have several.
    fn result(&self, number: usize) -> Result<Typed, ScopeError>;

    /// The number of the goroutine that runs the function.
    fn goid(&self) -> Result<Value, ScopeError> {
        Err(no_goroutine())
    }

    /// Whether the file's C++ uses libc++, not libstdc++.
    fn has_libcxx(&self) -> bool {
        false
    }

    /// What a type is.
    fn resolve(&self, id: TypeId) -> Result<Type, ScopeError>;

    /// What a struct is to a programmer of Go; `None` for one of his own, and of other languages.
    fn go_kind(&self, _id: TypeId) -> Result<Option<GoKind>, ScopeError> {
        Ok(None)
    }

    /// Whether the function is one of Go's.
    fn is_go(&self) -> bool {
        false
    }

    /// The members of a struct, class or union, in order.
    fn members(&self, id: TypeId) -> Result<Rc<[Member]>, ScopeError>;

    /// The variants of a struct, if it has any.
    fn variants(&self, _id: TypeId) -> Result<Option<Variants>, ScopeError> {
        Ok(None)
    }
}
