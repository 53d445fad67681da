// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place of which nothing is known but the calling convention.

use crate::scope::no_goroutine;
use crate::types::{Member, Shape, Type, TypeId};
use crate::{Scope, ScopeError, Typed, Value, ValuePlace, Variable, VariableRole};
use nsprobe_common::program::Register;
use nsprobe_symbolize::{Address, Binary, GoCode};
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
/// Those that carry Go's arguments, and its results (`src/cmd/compile/abi-internal.md`), in order.
pub(crate) const GO_WORDS: [Register; 9] = [
    Register::Rax,
    Register::Rbx,
    Register::Rcx,
    Register::Rdi,
    Register::Rsi,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
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

impl Plain<'_> {
    /// Whether the place is in code of Go's compiler, which has conventions of its own.
    fn is_compiled_go(&self) -> Result<bool, ScopeError> {
        let Some(binary) = self.binary.filter(|binary| binary.is_go()) else {
            return Ok(false);
        };
        match binary.go_code(Address(self.address)) {
            Some(GoCode::Compiled) => Ok(true),
            Some(GoCode::Assembly) => Err(ScopeError::new(
                "the function is written in Go's assembly language: its arguments and results are on \
                 the stack, by their types",
            )
            .with_help("words of the stack are written $stack1, registers %rax")),
            None if binary.has_go_names() => Ok(false),
            None => Err(ScopeError::new(
                "this is a program of a Go before 1.18, or its table of functions cannot be read: \
                 where its arguments and results are is not known",
            )
            .with_help("registers are written %rax")),
        }
    }

    /// The number of the goroutine, whose `g` is in %r14: at this offset of that, if it is known.
    pub(crate) fn goid_at(&self, offset: Option<u64>) -> Result<Value, ScopeError> {
        if !self.is_compiled_go()? {
            return Err(no_goroutine());
        }
        let offset = offset.ok_or_else(|| {
            ScopeError::new(
                "$goid: where this version of Go has the number of a goroutine is not known without \
                 its debug information",
            )
        })?;
        Ok(Value::Register(Register::R14).plus(offset).load(8, false))
    }
}

/// A word of the arguments or results of a function of Go: of types that need no more than these
/// registers.
fn go_word(index: usize, what: &str) -> Result<Typed, ScopeError> {
    GO_WORDS
        .get(index)
        .map(|register| in_register(*register))
        .ok_or_else(|| {
            ScopeError::new(format!(
                "Go passes {} words of {what} in registers; where more are depends on their types, \
                 which debug information tells",
                GO_WORDS.len()
            ))
        })
}

fn in_register(register: Register) -> Typed {
    Typed {
        place: ValuePlace::Value(Value::Register(register)),
        kind: word(),
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
        let index = number
            .checked_sub(1)
            .ok_or_else(|| ScopeError::new("arguments are counted from 1: arg1"))?;
        if self.is_compiled_go()? {
            return go_word(index, "arguments");
        }
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

    fn result(&self, number: usize) -> Result<Typed, ScopeError> {
        let index = number
            .checked_sub(1)
            .ok_or_else(|| ScopeError::new("results are counted from 1: $retval1"))?;
        match self.is_compiled_go()? {
            true => go_word(index, "results"),
            false if index == 0 => Ok(in_register(Register::Rax)),
            false => Err(ScopeError::new("only functions of Go have several results")),
        }
    }

    fn goid(&self) -> Result<Value, ScopeError> {
        self.goid_at(self.binary.and_then(Binary::goid_offset))
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
