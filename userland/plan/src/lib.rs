// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what the user wants to know of a hit to the programs that fetch it.
//!
//! A spec is parsed, its names are looked up (arguments and variables by DWARF,
//! registers, USDT arguments), and what comes out is an expression tree of
//! [`Value`]s, which becomes the steps of `nsprobe_common::program`.
#![forbid(unsafe_code)]

pub mod debug;
mod scope;
mod types;
mod value;

pub use scope::{Piece, Place, Role, Scope, ScopeError, Typed, Variable};
pub use types::{Member, Shape, Type, TypeId};
pub use value::{BinaryOperator, Value, Width};
