// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is computed at a hit, as a tree: the common ground of everything that
//! finds values (DWARF locations, calling conventions, USDT operands) and of what
//! makes steps of them.

use nsprobe_common::program::{Context, Register};

/// How a value lies in memory, or in the low part of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether its highest bit is a sign.
    pub signed: bool,
}

/// A computation on 64-bit words; anything in it that cannot be read at the hit
/// makes the whole absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// This number.
    Constant(u64),
    /// A register of the task.
    Register(Register),
    /// What is known of the task and the moment.
    Context(Context),
    /// The address, in the traced process, of an address of the probed file as its
    /// own headers count it (`nm` prints it): globals.
    Image(u64),
    /// What the entry of the call had as this value; outside of returns the same
    /// as the value itself.
    AtEntry(Box<Value>),
    /// What lies in memory at an address.
    Load {
        /// Where.
        address: Box<Value>,
        /// How much, and how it is extended to 64 bits.
        width: Width,
    },
    /// The low part of a value, extended to 64 bits.
    Truncate {
        /// What is cut.
        value: Box<Value>,
        /// Bits that are kept: 1 to 63.
        bits: u8,
        /// Whether the highest of them is a sign.
        signed: bool,
    },
    /// Two values joined by an operator.
    Binary(BinaryOperator, Box<Value>, Box<Value>),
    /// All bits of the value inverted.
    Not(Box<Value>),
    /// 1 when the value is zero, else 0.
    IsZero(Box<Value>),
    /// 1 when the string at an address is this one, or begins with it, else 0.
    Compare {
        /// Where the string is.
        address: Box<Value>,
        /// How many bytes it has; none when it ends in a NUL.
        length: Option<Box<Value>>,
        /// What it is compared with.
        text: Vec<u8>,
        /// Whether it must end there.
        whole: bool,
    },
}

/// What joins two values; comparisons give 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    /// Unsigned; absent when divided by zero.
    Divide,
    /// Unsigned; absent when divided by zero.
    Modulo,
    /// Absent when divided by zero.
    DivideSigned,
    /// Absent when divided by zero.
    ModuloSigned,
    And,
    Or,
    ExclusiveOr,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    Equal,
    Below,
    BelowOrEqual,
    /// Signed.
    Less,
    /// Signed.
    LessOrEqual,
    /// The first when it is present and not zero, else the second.
    Either,
    /// The second when the first is not zero, else zero.
    Both,
}

impl Value {
    /// `a OPERATOR b`, at once when both are constants.
    pub fn binary(operator: BinaryOperator, a: Value, b: Value) -> Value {
        use BinaryOperator::*;
        match (operator, &a, &b) {
            (Add, Value::Constant(a), Value::Constant(b)) => Value::Constant(a.wrapping_add(*b)),
            (Subtract, Value::Constant(a), Value::Constant(b)) => {
                Value::Constant(a.wrapping_sub(*b))
            }
            (Multiply, Value::Constant(a), Value::Constant(b)) => {
                Value::Constant(a.wrapping_mul(*b))
            }
            (Add | Subtract, _, Value::Constant(0)) => a,
            (Multiply | Divide | DivideSigned, _, Value::Constant(1)) => a,
            _ => Value::Binary(operator, Box::new(a), Box::new(b)),
        }
    }

    /// The value plus a number.
    pub fn plus(self, distance: u64) -> Value {
        Value::binary(BinaryOperator::Add, self, Value::Constant(distance))
    }

    /// What lies at this address.
    pub fn load(self, bytes: u8, signed: bool) -> Value {
        Value::Load {
            address: Box::new(self),
            width: Width { bytes, signed },
        }
    }

    /// As it was at the entry of the call.
    pub fn at_entry(self) -> Value {
        match self {
            Value::AtEntry(_) | Value::Constant(_) | Value::Image(_) => self,
            value => Value::AtEntry(Box::new(value)),
        }
    }

    /// Whether the value is the same at the entry of a call as at its return: it consists only of
    /// constants, values at the entry, and the task's identity.
    pub fn is_known_at_entry(&self) -> bool {
        match self {
            Value::Constant(_) | Value::Image(_) | Value::AtEntry(_) => true,
            Value::Context(context) => {
                !matches!(context, Context::Cpu | Context::Time | Context::Elapsed)
            }
            Value::Register(_) | Value::Load { .. } | Value::Compare { .. } => false,
            Value::Truncate { value, .. } | Value::Not(value) | Value::IsZero(value) => {
                value.is_known_at_entry()
            }
            Value::Binary(_, a, b) => a.is_known_at_entry() && b.is_known_at_entry(),
        }
    }
}
