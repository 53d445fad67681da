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
}
