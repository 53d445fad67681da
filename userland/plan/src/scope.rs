// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the names of a spec are looked up.

use crate::types::{Member, Target, Type, TypeId, Typed};
use crate::Value;
use nsprobe_common::program::Register;

/// What is known of the place that is probed. Errors are sentences: why the name
/// means nothing there, and what could be used instead.
pub trait Scope {
    /// A variable: a parameter, a local or a global one.
    fn variable(&self, name: &str) -> Result<Typed, String>;

    /// The function's argument of that number, from 1 on, or the static probe's.
    fn argument(&self, number: u32) -> Result<Typed, String>;

    /// What the function returns.
    fn returned(&self) -> Result<Typed, String>;

    /// The names of the function's parameters, and of its local variables when they
    /// are wanted.
    fn names(&self, locals: bool) -> Result<Vec<String>, String>;

    /// A member of a record.
    fn member(&self, record: TypeId, name: &str) -> Result<Member, String>;

    /// A type by its number.
    fn of_id(&self, id: TypeId) -> Result<Type, String>;

    /// Bytes of a type in memory.
    fn bytes(&self, of: &Type) -> Option<u64>;

    /// What a target is.
    fn target(&self, target: &Target) -> Result<Type, String> {
        match target {
            Target::Unknown => Err("nothing is known of what this points to; a cast, such as \
                                    (u32 *), says it"
                .to_owned()),
            Target::Known(of) => Ok(of.as_ref().clone()),
            Target::Id(id) => self.of_id(*id),
        }
    }
}

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

/// A place of which nothing is known but the calling convention.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// Whether the probe is at the beginning of a function.
    pub at_function: bool,
}

const NO_DEBUG_INFO: &str = "no debug information tells of it; what there is without: arg1 to \
                             argN, $retval, $stackN and registers such as %rdi";

impl Scope for Plain {
    fn variable(&self, name: &str) -> Result<Typed, String> {
        Err(format!("`{name}`: {NO_DEBUG_INFO}"))
    }

    fn argument(&self, number: u32) -> Result<Typed, String> {
        argument(number, self.at_function)
    }

    fn returned(&self) -> Result<Typed, String> {
        Ok(Typed::value(Value::Register(Register::Rax), Type::Word))
    }

    fn names(&self, _locals: bool) -> Result<Vec<String>, String> {
        Err(NO_DEBUG_INFO.to_owned())
    }

    fn member(&self, _record: TypeId, name: &str) -> Result<Member, String> {
        Err(format!("`{name}`: {NO_DEBUG_INFO}"))
    }

    fn of_id(&self, _id: TypeId) -> Result<Type, String> {
        Err(NO_DEBUG_INFO.to_owned())
    }

    fn bytes(&self, of: &Type) -> Option<u64> {
        of.scalar_bytes().map(u64::from)
    }
}

/// The argument of that number by the calling convention alone: integers and
/// pointers, the first six in registers, the others on the stack above the return
/// address.
pub(crate) fn argument(number: u32, at_function: bool) -> Result<Typed, String> {
    if !at_function {
        return Err(
            "arguments are where the calling convention puts them only at the \
                    beginning of a function; here there are registers, such as %rdi"
                .to_owned(),
        );
    }
    let index = number
        .checked_sub(1)
        .ok_or("arguments are counted from 1: arg1")?;
    let value = match ARGUMENTS.get(index as usize) {
        Some(register) => Value::Register(*register),
        None if index < 64 => {
            let above = u64::from(index - ARGUMENTS.len() as u32 + 1) * 8;
            Value::Register(Register::Rsp).plus(above).load(8, false)
        }
        None => return Err("no function has so many arguments".to_owned()),
    };
    Ok(Typed::value(value, Type::Word))
}
