// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe export`.

use super::plan::{CtfPlan, ExportPlan};
use clap::{Args, Subcommand, ValueEnum};
use nsprobe_ctf::kernel::StatedumpShape;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Format {
    /// A trace in the Common Trace Format, for babeltrace2 and Trace Compass
    Ctf(CtfArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "docs/ctf.md says which events the trace has.\n\n\
                  Examples:\n  \
                  nsprobe export ctf web.nsprobe web.ctf && babeltrace2 web.ctf")]
struct CtfArguments {
    /// A capsule, as `nsprobe record` writes them
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The trace: a directory, which must not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// How the tasks that were there at the beginning are told
    #[arg(long, value_name = "SHAPE", value_enum, default_value = "old")]
    statedump_shape: Shape,
    /// Print nothing on standard error but errors
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shape {
    /// As lttng-modules 2.11, once for each pid namespace of a task, for Trace Compass's containers
    Old,
    /// As lttng-modules 2.12 and later
    New,
}

impl ExportArguments {
    pub(super) fn plan(self) -> ExportPlan {
        let Format::Ctf(arguments) = self.format;
        ExportPlan::Ctf(CtfPlan {
            file: arguments.file,
            directory: arguments.directory,
            shape: match arguments.statedump_shape {
                Shape::Old => StatedumpShape::Old,
                Shape::New => StatedumpShape::New,
            },
            quiet: arguments.quiet,
        })
    }
}
