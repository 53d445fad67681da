// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe export`.

use super::capsule::ReportKeyArguments;
use super::help::OUTPUT;
use super::plan::{CtfPlan, Detail, ExportPlan, PicturePlan};
use super::raw;
use clap::{Args, Subcommand, ValueEnum};
use nsprobe_ctf::kernel::StatedumpShape;
use nsprobe_profile::Format as Picture;
use nsprobe_text::escaped;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe export flamegraph web.nsprobe -o web.svg")]
pub(super) struct ExportArguments {
    #[command(subcommand)]
    format: ExportFormat,
}

#[derive(Debug, Subcommand)]
enum ExportFormat {
    /// Write a trace in the Common Trace Format, for babeltrace2 and Trace Compass
    Ctf(CtfArguments),
    /// Write a flame graph, for browsers
    Flamegraph(PictureArguments),
    /// Write folded stacks, for flamegraph.pl and the like
    Folded(PictureArguments),
    /// Write a profile for `go tool pprof`
    Pprof(PictureArguments),
    /// Write a profile as OpenTelemetry's collectors take it
    Otlp(PictureArguments),
    /// Write a profile for https://www.speedscope.app
    Speedscope(PictureArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe export flamegraph web.nsprobe -o web.svg",
    after_long_help = "The name of the file ends in .svg for flamegraph, .folded, .pb.gz for pprof, \
                  .otlp and .speedscope.json. docs/profiles.md says what is in it.\n\n\
                  Examples:\n  \
                  nsprobe export flamegraph web.nsprobe -o web.svg\n  \
                  nsprobe export pprof web.nsprobe --by container -o web.pb.gz"
)]
struct PictureArguments {
    /// A capsule that `nsprobe record --stack` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    keys: ReportKeyArguments,
    /// The file to write
    #[arg(short, long, help_heading = OUTPUT, value_name = "FILE")]
    output: PathBuf,
    /// Replace it if it exists
    #[arg(long, help_heading = OUTPUT)]
    replace: bool,
    /// Print only errors and losses on standard error
    #[arg(short, long, help_heading = OUTPUT)]
    quiet: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe export ctf web.nsprobe web.ctf && babeltrace2 web.ctf",
    after_long_help = "docs/ctf.md says which events the trace has.\n\n\
                  Examples:\n  \
                  nsprobe export ctf web.nsprobe web.ctf && babeltrace2 web.ctf"
)]
struct CtfArguments {
    /// A capsule that `nsprobe record` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The trace to write: a directory that does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// How to write the tasks that ran at the beginning
    #[arg(long, help_heading = OUTPUT, value_name = "SHAPE", value_enum, default_value = "old")]
    statedump_shape: LttngVersion,
    /// Print only errors on standard error
    #[arg(short, long, help_heading = OUTPUT)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LttngVersion {
    /// As lttng-modules 2.11, once for each pid namespace of a task, for Trace Compass's containers
    Old,
    /// As lttng-modules 2.12 and later
    New,
}

impl ExportArguments {
    pub(super) fn plan(self) -> Result<ExportPlan, clap::Error> {
        match self.format {
            ExportFormat::Ctf(arguments) => Ok(ExportPlan::Ctf(arguments.plan())),
            ExportFormat::Flamegraph(arguments) => arguments.plan(Picture::Flamegraph),
            ExportFormat::Folded(arguments) => arguments.plan(Picture::Folded),
            ExportFormat::Pprof(arguments) => arguments.plan(Picture::Pprof),
            ExportFormat::Otlp(arguments) => arguments.plan(Picture::Otlp),
            ExportFormat::Speedscope(arguments) => arguments.plan(Picture::Speedscope),
        }
    }
}

impl CtfArguments {
    fn plan(self) -> CtfPlan {
        CtfPlan {
            file: self.file,
            directory: self.directory,
            shape: match self.statedump_shape {
                LttngVersion::Old => StatedumpShape::Old,
                LttngVersion::New => StatedumpShape::New,
            },
            quiet: self.quiet,
        }
    }
}

impl PictureArguments {
    /// The format and the ending of the name have to say the same: those that open the file go by
    /// its name.
    fn plan(self, format: Picture) -> Result<ExportPlan, clap::Error> {
        let of_name = Picture::of(&self.output).map_err(|error| raw(&error.to_string()))?;
        if of_name != format {
            return Err(raw(&format!(
                "-o {}: names of this format end in {}",
                escaped(&self.output.display().to_string()),
                format.ending()
            )));
        }
        Ok(ExportPlan::Picture(PicturePlan {
            file: self.file,
            output: self.output,
            format,
            replace: self.replace,
            by: self.keys.by,
            detail: Detail::new(self.quiet, false),
        }))
    }
}
