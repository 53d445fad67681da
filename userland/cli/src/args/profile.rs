// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe profile`.

use super::aggregate::{known_keys, TableArguments};
use super::help::{LIMITS, OUTPUT, SHOW};
use super::plan::{Aggregate, AggregatePlan, Join, RecordPlan, StackOutput, TracePlan};
use super::probe::{FollowArguments, RowsArguments, StackArguments, TargetArguments};
use super::value::wait;
use super::{raw, Plan};
use clap::{Arg, Args};
use libnsprobe::common::abi::{SAMPLE_HZ_MAX, TASKS_LIFE, TASKS_MOVES, TASKS_NAMES};
use libnsprobe::SetupOptions;
use nsprobe_profile::Format;
use nsprobe_spec::Compiled;
use nsprobe_trace::options::{RecordOptions, TargetSpec};
use nsprobe_trace::placeless::Placeless;
use nsprobe_trace::rights;
use nsprobe_trace::spec::WAIT_KEYS;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rows of the table: stacks with kernel frames are many.
const ROWS: &str = "16384";

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe profile -c web -t 10 -o web.svg",
    after_long_help = "Without -c, -p and COMMAND nsprobe samples the whole machine, but for itself.\n\n\
                  Examples:\n  \
                  nsprobe profile -c web -t 10\n  \
                  nsprobe profile -t 5 --by container\n  \
                  nsprobe profile --off-cpu -c web -t 10 --by comm,kind\n  \
                  nsprobe profile --off-cpu --wakers -t 10 -o waits.svg\n  \
                  nsprobe profile -c web -t 10 -o web.svg",
    mut_arg("by", by_of_profile),
    mut_arg("output", of_profile),
    mut_arg("rows", |rows| rows.default_value(ROWS))
)]
pub(super) struct ProfileArguments {
    /// Samples a second on each CPU
    #[arg(short = 'F', long, help_heading = SHOW, value_name = "HZ", default_value = "99", value_parser = frequency,
          allow_negative_numbers = true)]
    frequency: u32,
    /// Count the time that threads wait, not the CPU time
    ///
    /// What they wait for: locks, sockets, pipes, files, a CPU and so on (docs/profiles.md).
    #[arg(long, help_heading = SHOW, conflicts_with = "frequency")]
    off_cpu: bool,
    /// With --off-cpu: leave out waits shorter than this
    ///
    /// They are counted, and the time that they took together is said.
    #[arg(long, help_heading = SHOW, value_name = "TIME", requires = "off_cpu", default_value = "1ms",
          value_parser = wait, allow_negative_numbers = true)]
    min: Duration,
    /// With --off-cpu: also show what ended each wait, with its stack
    ///
    /// Threads of any container, threads of the kernel, and interrupts. In pictures the stack of the
    /// one that waited comes first; on top of it, upside down, that of the one that woke it.
    #[arg(long, help_heading = SHOW, requires = "off_cpu", conflicts_with = "kernel_stack")]
    wakers: bool,
    /// Print stacks, not functions
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["json", "folded", "callers"])]
    stacks: bool,
    /// Also print the callers of each function
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["json", "folded"])]
    callers: bool,
    /// Also take kernel stacks; the default with CAP_SYSLOG, but not of waits
    #[arg(long, help_heading = SHOW, hide_short_help = true, overrides_with = "no_kernel_stack")]
    kernel_stack: bool,
    /// Count samples in the kernel for the user stack that called it
    #[arg(long, help_heading = SHOW, hide_short_help = true)]
    no_kernel_stack: bool,
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    later: FollowArguments,
    #[command(flatten)]
    stack: StackArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Print folded stacks, one a line
    ///
    /// The functions of a stack from the outermost on, and its nanoseconds of CPU time: what flame
    /// graphs are made of.
    #[arg(long, help_heading = OUTPUT, conflicts_with_all = ["json", "interval", "top"])]
    folded: bool,
    /// Most frames of a stack
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N", default_value = "127",
          value_parser = clap::value_parser!(u32).range(1..=127))]
    max_frames: u32,
    #[command(flatten)]
    rows: RowsArguments,
}

impl ProfileArguments {
    pub(super) fn plan(self) -> Result<Plan, clap::Error> {
        let printing = self.target.printing();
        let mut options = self.later.plan(self.stack.plan(self.target.plan()?)?);
        // Most of what a command does, its children do.
        options.tasks.children |= matches!(options.who, TargetSpec::Command(_));
        options.rows = self.rows.plan();
        options.placeless = Some(match self.off_cpu {
            true => Placeless::Waits {
                min_ns: u64::try_from(self.min.as_nanos()).unwrap_or(u64::MAX),
            },
            false => Placeless::Samples { hz: self.frequency },
        });
        let what = Aggregate::Stacks {
            max_frames: self.max_frames,
            shown: match (self.folded, self.stacks) {
                (true, _) => StackOutput::Folded,
                (_, true) => StackOutput::Frames,
                _ => StackOutput::Functions {
                    callers: self.callers,
                },
            },
        };
        let mut table = self.table;
        let is_picture = table
            .output
            .as_deref()
            .is_some_and(|path| Format::of(path).is_ok());
        let are_keys_of_picture = is_picture && table.by.is_none();
        if are_keys_of_picture {
            let by = match options.who {
                TargetSpec::Host | TargetSpec::Group(_) => "container,comm",
                _ => "comm",
            };
            table.by = Some(match self.off_cpu {
                true => format!("{by},kind"),
                false => by.to_owned(),
            });
        }
        let usual = self.off_cpu.then_some("kind");
        table.by = table.by.as_deref().or(usual).map(keys_of_waits);
        let mut plan = table.plan(options, printing, what, None)?;
        plan.are_keys_of_picture = are_keys_of_picture;
        let is_usual = !self.off_cpu && !self.no_kernel_stack && rights::may_see_kernel();
        plan.kernel_stack = self.kernel_stack || is_usual;
        plan.join = self.wakers.then_some(Join::Waker);
        Compiled::placeless(&plan.by, self.off_cpu)
            .map_err(|error| raw(&format!("--by: {error}")))?;
        let output = plan.output.as_deref().filter(|path| {
            let extension = path.extension();
            extension.is_some_and(|extension| extension == "nsprobe")
        });
        match output.map(Path::to_owned) {
            Some(_) if self.off_cpu => Err(raw(
                "-o: waits cannot be recorded yet: .svg, .folded, .pb.gz, .otlp and .speedscope.json have \
                 all stacks",
            )),
            Some(output) => recording(plan, output, self.folded || self.stacks || self.callers),
            None => {
                if let Some(Err(why)) = plan.output.as_deref().map(Format::of) {
                    return Err(raw(&format!("-o: {why}, .nsprobe")));
                }
                Ok(Plan::Aggregate(plan))
            }
        }
    }
}

/// The keys of waits, with what is known of waits alone.
fn keys_of_waits(text: &str) -> String {
    let keys = text.split(',').map(|word| match word.trim() {
        known if WAIT_KEYS.contains(&known) => format!("{known}=${known}"),
        _ => word.to_owned(),
    });
    keys.collect::<Vec<_>>().join(",")
}

/// What a sample can be counted by.
fn by_of_profile(by: Arg) -> Arg {
    by.help("Count by keys, such as container,comm").long_help(format!(
        "Count by keys, such as container,comm\n\nSeparated by commas: {}; with --off-cpu also {}, and \
         kind without this option. Samples and waits have no arguments and variables.",
        known_keys(&["func", "elapsed"]),
        WAIT_KEYS.join(", ")
    ))
}

/// Where a profile goes.
fn of_profile(output: Arg) -> Arg {
    output
        .help("Write FILE: .svg, .folded, .pb.gz, .otlp, .speedscope.json, .nsprobe")
        .long_help(
            "Write all stacks to this file, in the format that its name says: .svg (a flame graph), \
             .folded, .pb.gz (pprof), .otlp or .speedscope.json, with the table on standard output; \
             .nsprobe records the samples instead.",
        )
}

/// What is to be counted, recorded instead.
fn recording(plan: AggregatePlan, output: PathBuf, is_shown: bool) -> Result<Plan, clap::Error> {
    if is_shown || plan.printing.json || plan.interval.is_some() || !plan.by.is_empty() {
        return Err(raw(
            "-o: a recording has all samples, and nothing is printed: it is `nsprobe report` that \
             counts them by keys, and shows functions, callers and stacks",
        ));
    }
    Ok(Plan::Record(RecordPlan {
        record: RecordOptions {
            output,
            replace: true,
            names: true,
            tasks: TASKS_LIFE | TASKS_NAMES | TASKS_MOVES,
        },
        trace: TracePlan {
            options: plan.options,
            printing: plan.printing,
            output: None,
            stack: true,
            kernel_stack: plan.kernel_stack,
            count: None,
            setup: SetupOptions::usual(),
            changes: Vec::new(),
            max_writes: 0,
        },
    }))
}

/// How many samples a second.
pub(super) fn frequency(text: &str) -> Result<u32, String> {
    let hz: f64 = text.parse().map_err(|_| "no number of samples a second")?;
    match hz {
        1.0.. if hz > SAMPLE_HZ_MAX as f64 => Err(format!(
            "at most {SAMPLE_HZ_MAX} a second: beyond, a CPU does little but take samples"
        )),
        1.0.. if hz.fract() == 0.0 => Ok(hz as u32),
        1.0.. => Err("a whole number of samples a second".to_owned()),
        _ => Err("at least 1 a second".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::frequency;

    #[test]
    fn frequencies_have_bounds() {
        assert_eq!(frequency("99"), Ok(99));
        assert_eq!(frequency("10000"), Ok(10_000));
        for (bad, why) in [
            ("0", "at least 1"),
            ("-5", "at least 1"),
            ("NaN", "at least 1"),
            ("1000000", "at most 10000"),
            ("inf", "at most"),
            ("1.5", "whole"),
            ("fast", "no number"),
        ] {
            assert!(frequency(bad).unwrap_err().contains(why), "{bad}");
        }
    }
}
