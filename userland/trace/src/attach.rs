// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the binaries and target that the user named to attached probes, and to their end.
//!
//! `target` finds files and tasks, `mapped` the files that processes have mapped; `command` starts
//! the traced command, `held_starts` are programs that wait for their probes. `probes` finds places in files, `unwind_rows` compiles the rows that stacks
//! need, and `run` attaches, waits and ends. `tracer` is the recipe of all that.

pub mod command;
pub(crate) mod held_starts;
pub mod mapped;
pub mod probes;
pub mod run;
pub mod target;
pub mod tracer;
pub mod unwind_rows;
