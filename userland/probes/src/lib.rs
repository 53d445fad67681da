// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a spec and a file to probes: where they are, their programs, and how their fields
//! are read.
//!
//! Nothing is opened here. What is asked ([`ProbeQuery`]) and what comes of it ([`Probes`],
//! [`Refused`]) is data, so that the file may be parsed by another process, which has no
//! privileges; then what comes of it is as hostile as the file.
#![forbid(unsafe_code)]

mod answer;
mod boundary;
pub mod breakpoint;
mod exits;
mod find;
mod list;
mod place;
mod planner;
mod probe_query;
mod spot;

pub use answer::{ExitProbes, Probe, Probes, Refused};
pub use list::{list, ListedFunction, ListedUsdt, Listing};
pub use planner::{plan, DebugFiles};
pub use probe_query::{OwnedSink, ProbeQuery};

use nsprobe_symbolize::demangle::demangle_without_parameters;
use nsprobe_symbolize::{Address, AtOffset, Binary};

/// The variable that holds an address by the file's own count, and the distance from its
/// beginning.
pub fn variable_at(binary: &Binary, address: u64) -> Option<String> {
    let (name, distance) = binary.variable_at(Address(address)).ok()??;
    let name = demangle_without_parameters(&name);
    Some(match distance {
        0 => name,
        distance => format!("{name}+{distance:#x}"),
    })
}

/// The function that holds an address by the file's own count, and the distance from its
/// beginning; or the type of Go that is described there.
pub fn function_at(binary: &Binary, address: u64) -> Option<String> {
    let function = match binary.code_at(binary.offset_of(Address(address))?) {
        AtOffset::Function(function) => function,
        AtOffset::Data => return binary.go_type_at(Address(address)),
        _ => return None,
    };
    let name = demangle_without_parameters(&function.name);
    Some(match address.checked_sub(function.address.0)? {
        0 => name,
        distance => format!("{name}+{distance:#x}"),
    })
}
