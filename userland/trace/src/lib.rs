// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds a target, probes it, and names what comes: the engine of `nsprobe`.
//!
//! A [`Tracer`] finds what [`TraceOptions`] mean and plans its probes; it starts a
//! [`Run`](attach::run::Run), which is followed to its end and summed up. What a caller [`Wants`]
//! of the hits (records, counts, tables, stacks) is its own matter, as is all printing; notes and
//! what is waited for go to standard error, unless the options are quiet. `examples/calls.rs` is a
//! whole program.
//!
//! Files of containers are parsed by processes without privileges, which are this program again, as
//! is a command until its first instruction: `main` begins with [`run_as_helper`].

pub mod attach;
pub mod hits;
pub mod names;
pub mod options;
pub mod recording;
pub mod rights;
pub mod signals;
pub mod spec;
pub mod summary;
pub mod tasks;

pub use attach::run::{Ended, Pace, Run, Sinks, Taken};
pub use attach::tracer::{Tracer, Wants};
pub use options::{TargetSpec, TraceOptions};

use attach::command;
use std::process::ExitCode;

/// Does what this process was started for by a tracer that is the same program; none when it was
/// started by others.
pub fn run_as_helper() -> Option<anyhow::Result<ExitCode>> {
    if nsprobe_worker::is_asked_for() {
        return Some(Ok(nsprobe_worker::serve()));
    }
    let command = command::asked_for()?;
    Some(command::exec_stopped(&command))
}
