// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place of which nothing is known but the calling convention.

use crate::types::{Member, Shape, Type, TypeId};
use crate::{Scope, ScopeError, Typed, Value, ValuePlace, Variable, VariableRole};
use nsprobe_common::program::Register;
use nsprobe_symbolize::Binary;
use std::borrow::Cow;
use std::rc::Rc;

/// The registers that carry integer arguments (System V psABI for x86-64, section
/// 3.2.3), in order.
pub(crate) const ARGUMENTS: [Register; 6] = [
    Register::Rdi,
    Register::Rsi,
    Register::Rdx,
    Register::Rcx,
    Register::R8,
    Register::R9,
];
/// Most arguments that are looked for.
const ARGUMENTS_MAX: usize = 64;

/// A place without debug information.
#[derive(Clone, Debug)]
pub struct Plain<'a> {
    /// Its address by the file's own count.
    pub address: u64,
    /// Whether it is the beginning of a function.
    pub at_function: bool,
    /// Whether the function is a copy that the compiler may have given other arguments.
    pub changes_arguments: bool,
    /// The file, whose symbol table knows global variables.
    pub binary: Option<&'a Binary>,
    /// Why nothing more is known.
    pub why: Cow<'a, str>,
}

impl Plain<'_> {
    fn unknown(&self, name: &str) -> ScopeError {
        ScopeError::new(format!("`{name}`: {}", self.why)).with_help(
            "without, there are arg1 to argN, $retval, $stackN, registers such as %rdi, and \
             casts: *(u32 *)(arg1 + 8)",
        )
    }
}

/// Eight bytes of which nothing is known.
pub(crate) fn word() -> Type {
    Type::new("", Shape::Word)
}

impl Scope for Plain<'_> {
    fn address(&self) -> u64 {
        self.address
    }

    fn variable(&self, name: &str) -> Result<Variable, ScopeError> {
        let binary = self.binary.ok_or_else(|| self.unknown(name))?;
        match crate::dwarf::symbol(binary, name)? {
            Some(typed) => Ok(Variable {
                name: name.into(),
                role: VariableRole::Global,
                value: Ok(typed),
            }),
            None => Err(self.unknown(name)),
        }
    }

    fn parameters(&self) -> Result<Vec<Variable>, ScopeError> {
        Err(self.unknown("$params"))
    }

    fn locals(&self) -> Result<Vec<Variable>, ScopeError> {
        Err(self.unknown("$vars"))
    }

    fn argument(&self, number: usize) -> Result<Typed, ScopeError> {
        if !self.at_function {
            return Err(ScopeError::new(
                "arguments are where the calling convention puts them only at the beginning of a \
                 function",
            )
            .with_help("here there are registers, such as %rdi"));
        }
        if self.changes_arguments {
            return Err(ScopeError::new(
                "this is a copy of the function that may have other arguments than the function",
            )
            .with_help("its debug information tells where they are; registers are written %rdi"));
        }
        if self.binary.is_some_and(Binary::is_go) {
            return Err(ScopeError::new(
                "Go passes arguments in registers of its own, by their types: without debug \
                 information it is not known in which",
            )
            .with_help("registers are written %rax; the debug information names the arguments"));
        }
        let index = number
            .checked_sub(1)
            .ok_or_else(|| ScopeError::new("arguments are counted from 1: arg1"))?;
        let value = match ARGUMENTS.get(index) {
            Some(register) => Value::Register(*register),
            // Above the return address.
            None if index < ARGUMENTS_MAX => {
                let above = (index - ARGUMENTS.len() + 1) as u64 * 8;
                Value::Register(Register::Rsp).plus(above).load(8, false)
            }
            None => return Err(ScopeError::new("no function has so many arguments")),
        };
        Ok(Typed {
            place: ValuePlace::Value(value),
            kind: word(),
        })
    }

    fn has_types(&self) -> bool {
        false
    }

    fn retval(&self) -> Result<Typed, ScopeError> {
        Ok(Typed {
            place: ValuePlace::Value(Value::Register(Register::Rax)),
            kind: word(),
        })
    }

    fn has_libcxx(&self) -> bool {
        self.binary.is_some_and(Binary::has_libcxx)
    }

    fn resolve(&self, _id: TypeId) -> Result<Type, ScopeError> {
        Err(self.unknown("the type"))
    }

    fn members(&self, _id: TypeId) -> Result<Rc<[Member]>, ScopeError> {
        Err(self.unknown("the members"))
    }
}
