// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of `nsprobe`: finds a target, probes it, and names its hits.
//!
//! A [`Tracer`] finds the target of [`TraceOptions`], plans the probes and starts a [`Run`], which
//! the caller follows to its end and sums up. [`Wants`] says what the caller does with hits:
//! records, counts, tables, stacks. Printing is the caller's; notes and progress go to standard
//! error unless the options are quiet. `examples/calls.rs` is a complete program.
//!
//! The engine executes its own program again: to parse files of containers without privileges, and
//! to hold a command before its first instruction. So `main` begins with [`run_as_helper`].

pub mod attach;
pub mod hits;
pub mod names;
pub mod options;
pub mod placeless;
pub mod recording;
pub mod rights;
pub mod signals;
pub mod spec;
pub mod summary;
pub mod tasks;

pub use attach::run::{Ended, Pace, Run, Sinks, TakenHits};
pub use attach::tracer::{Tracer, Wants};
pub use options::{TargetSpec, TraceOptions};

use attach::command;
use std::process::ExitCode;

/// Runs this process as the parser or the held command that the engine started it as; `None` if it
/// was started otherwise.
pub fn run_as_helper() -> Option<anyhow::Result<ExitCode>> {
    if nsprobe_worker::is_asked_for() {
        return Some(Ok(nsprobe_worker::serve()));
    }
    let command = command::asked_for()?;
    Some(command::exec_stopped(&command))
}
