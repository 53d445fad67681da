// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps of programs, as short as tests want them.

use nsprobe_common::program::{Operation, Register, Step};

/// Any step.
pub(crate) const fn step(
    operation: Operation,
    to: u8,
    a: u8,
    b: u8,
    small: i32,
    large: u64,
) -> Step {
    Step {
        operation: operation as u8,
        to,
        a,
        b,
        small,
        large,
    }
}

/// A register's value.
pub(crate) const fn register(to: u8, register: Register) -> Step {
    step(Operation::Register, to, 0, 0, register as i32, 0)
}

/// A number.
pub(crate) const fn constant(to: u8, value: u64) -> Step {
    step(Operation::Constant, to, 0, 0, 0, value)
}

/// A field.
pub(crate) const fn field(a: u8) -> Step {
    step(Operation::Field, 0, a, 0, 0, 0)
}

/// A word of the key.
pub(crate) const fn key(a: u8) -> Step {
    step(Operation::Key, 0, a, 0, 0, 0)
}

/// The value for the table.
pub(crate) const fn value(a: u8) -> Step {
    step(Operation::Value, 0, a, 0, 0, 0)
}
