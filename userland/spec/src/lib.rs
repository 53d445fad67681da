// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what the user wants to know of a hit to the programs that fetch it.
//!
//! A spec is parsed ([`syntax`]), its names are looked up in a [`Scope`] (arguments
//! and variables, registers, static probes' arguments), and what comes out is an
//! expression tree of [`Value`]s, which becomes the steps of
//! `nsprobe_common::program` ([`Compiled`]). Hits are read back by [`decode`].
#![forbid(unsafe_code)]

mod compile;
pub mod decode;
pub mod dwarf;
mod go_interface;
mod layout;
mod plain;
mod resolve;
mod scope;
mod steps;
pub mod syntax;
mod types;
mod usdt;
mod value;

pub use compile::{Compiled, Request, Sink, StepProgram};
pub use layout::Layout;
pub use plain::Plain;
pub use scope::{Scope, ScopeError, Typed, ValuePart, ValuePlace, Variable, VariableRole};
pub use syntax::{Spec, SpecError, SpecText};
pub use types::{Base, Member, Shape, Type, TypeId, Variant, Variants};
pub use usdt::UsdtScope;
pub use value::{BinaryOperator, Value, Width};

/// What names the probe itself in an expression.
pub const PROBE: nsprobe_common::program::Context = nsprobe_common::program::Context::Probe;
