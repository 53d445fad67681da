// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of static probes.
//!
//! Each is `SIZE@OPERAND` (`sys/sdt.h` of SystemTap): bytes, negative for a signed
//! number, and an operand of the assembler in AT&T syntax: `%edi`, `$5`, `-8(%rbp)`,
//! `8(%rax,%rbx,4)`, `counter+8(%rip)`.

use crate::plain::Plain;
use crate::syntax::register_of;
use crate::types::{Member, Shape, Type, TypeId};
use crate::value::BinaryOperator;
use crate::{Scope, ScopeError, Typed, Value, ValuePlace, Variable};
use nsprobe_symbolize::{Binary, Usdt};
use std::rc::Rc;

/// Most arguments of a probe: `sys/sdt.h` has twelve.
const ARGUMENTS_MAX: usize = 32;

/// The place of a static probe.
#[derive(Debug)]
pub struct UsdtScope<'a> {
    plain: Plain<'a>,
    arguments: Vec<Result<Typed, String>>,
}

impl<'a> UsdtScope<'a> {
    /// What is known at a static probe of a file.
    pub fn new(probe: &Usdt, binary: &'a Binary) -> UsdtScope<'a> {
        let operands = operands(&probe.arguments);
        let address_of = |name: &str| {
            let found = binary.find_data(name);
            let found = found.map_err(|_| format!("the symbol table has no `{name}`"))?;
            let mut found: Vec<u64> = found.iter().map(|symbol| symbol.address.0).collect();
            found.sort_unstable();
            found.dedup();
            match found.as_slice() {
                // Of a stripped file it may be another file's variable.
                [] | [_] if !binary.has_symbol_table() => Err(format!(
                    "it is the variable `{name}`, and the file's symbol table was stripped"
                )),
                [one] => Ok(*one),
                [] => Err(format!("the symbol table has no `{name}`")),
                several => Err(format!(
                    "it is the variable `{name}`, and the symbol table has {} of that name",
                    several.len()
                )),
            }
        };
        UsdtScope {
            plain: Plain {
                address: probe.address.0,
                at_function: false,
                changes_arguments: false,
                binary: Some(binary),
                why: "a static probe has arguments: arg1 and so on".into(),
            },
            arguments: operands
                .take(ARGUMENTS_MAX)
                .map(|operand| typed(operand, &address_of))
                .collect(),
        }
    }

    /// How many arguments it has.
    pub fn argument_count(probe: &Usdt) -> usize {
        operands(&probe.arguments).count()
    }
}

/// The arguments one by one: a blank may stand inside of brackets only.
fn operands(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ' ' && depth <= 0
    })
    .filter(|operand| !operand.is_empty())
}

/// Where a symbol is; an error says why that is not known.
type AddressOf<'a> = &'a dyn Fn(&str) -> Result<u64, String>;

/// What an argument is, and where; an error says why it cannot be fetched.
fn typed(text: &str, address_of: AddressOf<'_>) -> Result<Typed, String> {
    let failed = || format!("its operand `{text}` is not understood");
    let register = |operand: &str| register_of(operand.strip_prefix('%')?);
    let (size, operand) = match (text.split_once('@'), register(text)) {
        (Some(parts), _) => parts,
        // Old notes have no size; a register has its own.
        (None, Some((_, 8))) => ("8", text),
        (None, Some((_, 4))) => ("4", text),
        (None, Some((_, 2))) => ("2", text),
        (None, Some((_, 1))) => ("1", text),
        (None, _) if text.starts_with('$') => ("8", text),
        (None, _) => {
            return Err(format!(
                "its note does not tell how many bytes `{text}` has"
            ))
        }
    };
    if size.ends_with('f') {
        return Err(format!("it is a floating-point number (`{text}`)"));
    }
    let size: i64 = size.parse().map_err(|_| failed())?;
    let (bytes, signed) = (size.unsigned_abs(), size < 0);
    if !matches!(bytes, 1 | 2 | 4 | 8) {
        return Err(format!("it has {bytes} bytes (`{text}`)"));
    }
    let kind = match (bytes, signed) {
        // A word: an address more often than not.
        (8, false) => crate::plain::word(),
        _ => Type::new("", Shape::Integer { bytes, signed }),
    };
    let cut = |value| match bytes {
        8 => value,
        bytes => Value::Truncate {
            value: Box::new(value),
            bits: bytes as u8 * 8,
            signed,
        },
    };
    let place = if let Some(number) = operand.strip_prefix('$') {
        ValuePlace::Value(cut(Value::Constant(number_of(number).ok_or_else(failed)?)))
    } else if let Some(name) = operand.strip_prefix('%') {
        let (register, width) = register_of(name).ok_or_else(failed)?;
        let is_high = name.len() == 2 && name.ends_with('h');
        if is_high || bytes > u64::from(width) {
            return Err(failed());
        }
        ValuePlace::Value(cut(Value::Register(register)))
    } else {
        ValuePlace::Memory(address(operand, address_of)?.ok_or_else(failed)?)
    };
    Ok(Typed { place, kind })
}

/// `-8(%rbp)`, `8(%rax,%rbx,4)`, `name+8(%rip)`, `name`; none for what is not understood.
fn address(operand: &str, address_of: AddressOf<'_>) -> Result<Option<Value>, String> {
    match named(operand) {
        Some((name, distance)) => Ok(Some(Value::Image(address_of(name)?.wrapping_add(distance)))),
        None => Ok(computed(operand)),
    }
}

/// The symbol of `name+8(%rip)` or `name`, and the distance from it.
fn named(operand: &str) -> Option<(&str, u64)> {
    let displacement = match operand.split_once('(') {
        Some((displacement, "%rip)")) => displacement,
        Some(_) => return None,
        None => operand,
    };
    match displacement.rfind(['+', '-']).filter(|at| *at > 0) {
        Some(at) => Some((displacement.get(..at)?, number_of(displacement.get(at..)?)?)),
        None => Some((displacement, 0)),
    }
}

/// An address from registers.
fn computed(operand: &str) -> Option<Value> {
    let (displacement, inside) = match operand.split_once('(') {
        Some((displacement, rest)) => (displacement, Some(rest.strip_suffix(')')?)),
        None => (operand, None),
    };
    let mut parts = inside.unwrap_or("").split(',').map(str::trim);
    let register = |name: Option<&str>| match name {
        None | Some("") => Some(None),
        Some(name) => Some(Some(register_of(name.strip_prefix('%')?)?)),
    };
    let (base, index) = (parts.next(), parts.next());
    let whole = |(register, bytes)| (bytes == 8).then_some(Value::Register(register));
    let mut sum = match register(base)? {
        Some(base) => whole(base)?,
        None => Value::Constant(0),
    };
    if let Some(index) = register(index)? {
        let scale = match parts.next() {
            Some(scale) => number_of(scale)?,
            None => 1,
        };
        let scaled = Value::binary(
            BinaryOperator::Multiply,
            whole(index)?,
            Value::Constant(scale),
        );
        sum = Value::binary(BinaryOperator::Add, sum, scaled);
    }
    match displacement {
        "" => Some(sum),
        displacement => Some(sum.plus(number_of(displacement)?)),
    }
}

/// A number with a sign, decimal or hexadecimal, as 64 bits.
fn number_of(text: &str) -> Option<u64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

impl Scope for UsdtScope<'_> {
    fn address(&self) -> u64 {
        self.plain.address()
    }

    fn has_libcxx(&self) -> bool {
        self.plain.has_libcxx()
    }

    fn variable(&self, name: &str) -> Result<Variable, ScopeError> {
        let mut own = self.parameters()?.into_iter();
        match own.find(|argument| *argument.name == *name) {
            Some(argument) => Ok(argument),
            None => self.plain.variable(name).map_err(|why| match why.help {
                None => why,
                // What there is in functions without debug information.
                Some(_) => ScopeError::new(format!(
                    "there is no variable `{name}`: a static probe has its arguments, arg1 and so \
                     on, and the globals of the symbol table"
                )),
            }),
        }
    }

    fn parameters(&self) -> Result<Vec<Variable>, ScopeError> {
        let arguments = self.arguments.iter().enumerate();
        let variable = |(index, typed): (usize, &Result<Typed, String>)| Variable {
            name: format!("arg{}", index + 1).into(),
            role: crate::VariableRole::Parameter,
            value: typed.clone().map_err(ScopeError::new),
        };
        Ok(arguments.map(variable).collect())
    }

    fn locals(&self) -> Result<Vec<Variable>, ScopeError> {
        Err(ScopeError::new(
            "a static probe has arguments alone: `$params` stands for them",
        ))
    }

    fn argument(&self, number: usize) -> Result<Typed, ScopeError> {
        let argument = number.checked_sub(1).and_then(|at| self.arguments.get(at));
        match argument {
            Some(argument) => argument.clone().map_err(|why| {
                ScopeError::new(format!("argument {number} cannot be fetched: {why}"))
            }),
            None => Err(ScopeError::new(format!(
                "the static probe has {} arguments, counted from 1: there is no arg{number}",
                self.arguments.len()
            ))),
        }
    }

    fn result(&self, _number: usize) -> Result<Typed, ScopeError> {
        Err(ScopeError::new("a static probe does not return"))
    }

    fn resolve(&self, id: TypeId) -> Result<Type, ScopeError> {
        self.plain.resolve(id)
    }

    fn members(&self, id: TypeId) -> Result<Rc<[Member]>, ScopeError> {
        self.plain.members(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_common::program::Register::{Rax, Rbp, Rbx, Rdi};
    use proptest::prelude::*;

    fn place(text: &str) -> Option<ValuePlace> {
        let address_of = |name: &str| match name {
            "counter" => Ok(0x4000),
            _ => Err("there is none".to_owned()),
        };
        typed(text, &address_of).ok().map(|typed| typed.place)
    }

    fn register(register: nsprobe_common::program::Register) -> Value {
        Value::Register(register)
    }

    #[test]
    fn a_static_probe_has_its_arguments_alone() {
        let scope = UsdtScope {
            plain: Plain {
                address: 0,
                at_function: false,
                changes_arguments: false,
                binary: None,
                why: "".into(),
            },
            arguments: Vec::new(),
        };
        let why = scope.locals().unwrap_err().to_string();
        assert!(why.contains("arguments alone"), "{why}");
        let unknown = scope.variable("x").unwrap_err();
        assert!(unknown.message.contains("no variable `x`"), "{unknown:?}");
        assert_eq!(unknown.help, None);
    }

    #[test]
    fn operands_of_the_assembler_are_understood() {
        let cut = |value, bits, signed| {
            Some(ValuePlace::Value(Value::Truncate {
                value: Box::new(value),
                bits,
                signed,
            }))
        };
        let memory = |value| Some(ValuePlace::Memory(value));
        assert_eq!(place("-4@%edi"), cut(register(Rdi), 32, true));
        assert_eq!(place("1@%dil"), cut(register(Rdi), 8, false));
        assert_eq!(place("8@%rax"), Some(ValuePlace::Value(register(Rax))));
        assert_eq!(
            place("8@$-5"),
            Some(ValuePlace::Value(Value::Constant(-5i64 as u64)))
        );
        assert_eq!(
            place("4@-20(%rbp)"),
            memory(register(Rbp).plus(-20i64 as u64))
        );
        assert_eq!(place("8@(%rax)"), memory(register(Rax)));
        let scaled = Value::binary(BinaryOperator::Multiply, register(Rbx), Value::Constant(4));
        let sum = Value::binary(BinaryOperator::Add, register(Rax), scaled);
        assert_eq!(place("8@8(%rax,%rbx,4)"), memory(sum.clone().plus(8)));
        assert_eq!(place("8@8(%rax, %rbx, 4)"), memory(sum.plus(8)));
        assert_eq!(place("4@counter(%rip)"), memory(Value::Image(0x4000)));
        assert_eq!(place("4@counter+8(%rip)"), memory(Value::Image(0x4008)));
        assert_eq!(place("%rax"), Some(ValuePlace::Value(register(Rax))));
        assert_eq!(place("%eax"), cut(register(Rax), 32, false));
        assert_eq!(place("%dil"), cut(register(Rdi), 8, false));
        for bad in [
            "8f@%xmm0",
            "16@%rax",
            "8@%xyz",
            "8@(%eax)",
            "x@%rax",
            "8@",
            "4@other(%rip)",
            "1@%ah",
            "8@%eax",
            // An old note: of how many bytes?
            "-20(%rbp)",
        ] {
            assert_eq!(place(bad), None, "{bad}");
        }
        let all: Vec<&str> = operands("-4@%edi 8@8(%rax, %rbx, 4)  1@$0").collect();
        assert_eq!(all, ["-4@%edi", "8@8(%rax, %rbx, 4)", "1@$0"]);
    }

    proptest! {
        #[test]
        fn no_operand_panics(text in "[-0-9@$%(),a-z+ ]{0,24}") {
            for operand in operands(&text) {
                let _ = typed(operand, &|_| Ok(7));
            }
        }
    }
}
