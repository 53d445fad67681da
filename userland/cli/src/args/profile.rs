// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe profile`.

use super::aggregate::{of_stacks, TableArguments};
use super::plan::{Aggregate, AggregatePlan, Shown, Who};
use super::probe::{following, RowsArguments, StackArguments, TargetArguments};
use super::raw;
use clap::Args;
use libnsprobe::common::abi::SAMPLE_HZ_MAX;
use nsprobe_plan::Compiled;

#[derive(Debug, Args)]
#[command(
    after_help = "Without -c, -p and COMMAND it is the whole machine. A sample in the kernel counts \
                  for the stack that called it.\n\n\
                  Examples:\n  \
                  nsprobe profile -c web -t 10\n  \
                  nsprobe profile -t 5 --by container\n  \
                  nsprobe profile -c web -t 10 -o web.svg",
    mut_arg("output", of_stacks)
)]
pub(super) struct ProfileArguments {
    /// Samples a second of each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value = "99", value_parser = frequency,
          allow_negative_numbers = true)]
    frequency: u32,
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    stack: StackArguments,
    /// Also in containers that start later. With -c, which then may be a glob, only in containers
    /// of that name, and when there is none, wait for the first
    #[arg(long, conflicts_with_all = ["pid", "tid", "command"])]
    follow: bool,
    #[command(flatten)]
    table: TableArguments,
    /// Most frames of a stack
    #[arg(long, value_name = "N", default_value = "127",
          value_parser = clap::value_parser!(u32).range(1..=127))]
    max_frames: u32,
    /// Print stacks, not functions
    #[arg(long, conflicts_with_all = ["json", "folded", "callers"])]
    stacks: bool,
    /// Print who calls each function, too
    #[arg(long, conflicts_with_all = ["json", "folded"])]
    callers: bool,
    /// Print one line for each stack, its functions from the outermost on and its count, as flame
    /// graphs are made of
    #[arg(long, conflicts_with = "json")]
    folded: bool,
    #[command(flatten)]
    rows: RowsArguments,
}

impl ProfileArguments {
    pub(super) fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let mut options = following(self.follow, self.stack.plan(self.target.plan()?)?)?;
        // Most of what a command does, its children do.
        options.tasks.children |= matches!(options.who, Who::Command(_));
        options.rows = self.rows.plan();
        options.samples_hz = Some(self.frequency);
        let what = Aggregate::Stacks {
            max_frames: self.max_frames,
            shown: match (self.folded, self.stacks) {
                (true, _) => Shown::Folded,
                (_, true) => Shown::Frames,
                _ => Shown::Functions {
                    callers: self.callers,
                },
            },
        };
        let plan = self.table.plan(options, what, None)?;
        Compiled::of_samples(&plan.by).map_err(|error| raw(&format!("--by: {error}")))?;
        Ok(plan)
    }
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
