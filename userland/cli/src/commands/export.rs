// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe export`: what a capsule has, in formats that others read.

mod ctf;
mod picture;

use crate::args::ExportPlan;
use std::process::ExitCode;

pub(crate) fn run(plan: &ExportPlan) -> anyhow::Result<ExitCode> {
    match plan {
        ExportPlan::Ctf(plan) => ctf::run(plan),
        ExportPlan::Picture(plan) => picture::run(plan),
    }
}
