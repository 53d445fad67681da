// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verbs of the command line, a module each. `run` of a module does what a plan says, and
//! returns the exit code.
//!
//! | modules | what they need |
//! |---|---|
//! | `agent`, `trace`, `aggregate` (`count`, `hist`, `stacks`, `profile`, `lock`), `leak`, `record`, `verify` | probes that they attach |
//! | `script`, `report`, `info`, `export` | a capsule |
//! | `list`, `symbolize` | files |
//! | `ps`, `tree`, `top`, `containers`, `status`, `doctor` | this machine |

mod agent;
mod aggregate;
mod containers;
mod doctor;
mod export;
mod info;
mod leak;
mod list;
mod ps;
mod record;
mod report;
mod script;
mod status;
mod symbolize;
mod top;
mod trace;
mod tree;
mod verify;

use crate::args::{print_completions, write_man_pages, Plan};
use anyhow::Context;
use std::process::ExitCode;

/// Does what a plan says.
pub(crate) fn run(plan: Plan) -> anyhow::Result<ExitCode> {
    match plan {
        Plan::Trace(plan) => trace::run(&plan),
        Plan::Aggregate(plan) => aggregate::run(&plan),
        Plan::Agent(plan) => agent::run(&plan),
        Plan::Leak(plan) => leak::run(&plan),
        Plan::Record(plan) => record::run(&plan),
        Plan::Script(plan) => script::run(&plan),
        Plan::Report(plan) => report::run(&plan),
        Plan::Info(plan) => info::run(&plan),
        Plan::Export(plan) => export::run(&plan),
        Plan::Symbolize(plan) => symbolize::run(&plan),
        Plan::List(plan) => list::run(&plan),
        Plan::Verify(plan) => verify::run(&plan),
        Plan::Containers(plan) => containers::run(&plan),
        Plan::Ps(plan) => ps::run(&plan),
        Plan::Tree(plan) => tree::run(&plan),
        Plan::Top(plan) => top::run(&plan),
        Plan::Status(plan) => status::run(&plan),
        Plan::Doctor => doctor::run(),
        Plan::Completions(shell) => {
            print_completions(shell)?;
            Ok(ExitCode::SUCCESS)
        }
        Plan::Man(directory) => {
            let written = write_man_pages(&directory);
            written.with_context(|| format!("cannot write into {}", directory.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
