// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what the user named to probes that are attached, and to their end.
//!
//! `target` finds files and tasks, `mapped` what processes have mapped, `command` starts what
//! is to be traced. `probes` finds places in files, `unwind_rows` compiles what stacks need,
//! and `run` attaches, waits and ends.

pub(crate) mod command;
pub(crate) mod mapped;
pub(crate) mod probes;
pub(crate) mod run;
pub(crate) mod target;
pub(crate) mod unwind_rows;
