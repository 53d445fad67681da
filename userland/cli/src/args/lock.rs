// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe lock`.

use super::aggregate::{of_stacks, TableArguments};
use super::help::{LIMITS, SHOW};
use super::plan::{Aggregate, AggregatePlan, Join, StackOutput};
use super::probe::{FollowArguments, RowsArguments, StackArguments, TargetArguments};
use super::raw;
use super::value::{output_file, wait};
use clap::{Arg, Args};
use nsprobe_spec::Compiled;
use nsprobe_trace::options::TargetSpec;
use nsprobe_trace::placeless::Placeless;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe lock -c web -t 10",
    after_long_help = "For each lock: how often and how long threads waited for it, the stacks of those, which \
                  thread held it when a wait began, and the stack by which that thread released it. The \
                  holder is shown where it is proven: of pthread mutexes of glibc within a process, and \
                  of PI and robust mutexes. Of other locks (rwlocks, semaphores, those of Rust's std, \
                  parking_lot, Go and Java, which keep no owner) the thread that woke the one that \
                  waited is shown instead.\n\n\
                  Examples:\n  \
                  nsprobe lock -c web -t 10\n  \
                  nsprobe lock -p 1234 -t 10 -o locks.svg\n  \
                  nsprobe lock --min 1ms -- ./server --once",
    mut_arg("output", of_stacks),
    mut_arg("by", |by: Arg| by
        .help("Also count by keys, such as comm")
        .long_help("Count by these keys, by process and by lock; without this option also by \
                    container, where there may be several")),
    mut_arg("rows", |rows: Arg| rows.hide(true))
)]
pub(super) struct LockArguments {
    /// Leave out waits shorter than this
    ///
    /// They are counted, and the time that they took together is said.
    #[arg(long, help_heading = SHOW, value_name = "TIME", default_value = "100us", value_parser = wait,
          allow_negative_numbers = true)]
    min: Duration,
    /// Also show condition variables, joins and barriers
    ///
    /// Threads wait there for something to happen, and none holds what they wait for.
    #[arg(long, help_heading = SHOW)]
    all: bool,
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    later: FollowArguments,
    #[command(flatten)]
    stack: StackArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Most frames of a stack
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N", default_value = "127",
          value_parser = clap::value_parser!(u32).range(1..=127))]
    max_frames: u32,
    #[command(flatten)]
    rows: RowsArguments,
}

impl LockArguments {
    pub(super) fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let mut printing = self.target.printing();
        let mut options = self.later.plan(self.stack.plan(self.target.plan()?)?);
        output_file(self.table.output.as_deref(), true, &mut printing.json)?;
        // Most of what a command does, its children do.
        options.tasks.children |= matches!(options.who, TargetSpec::Command(_));
        options.rows = self.rows.plan();
        options.placeless = Some(Placeless::Waits {
            min_ns: u64::try_from(self.min.as_nanos())
                .map_err(|_| raw("--min: that is longer than any wait"))?,
        });
        let mut table = self.table;
        // A lock is that of its process.
        let usual = match options.who {
            TargetSpec::Host | TargetSpec::Group(_) => "container,pid",
            _ => "pid",
        };
        table.by = Some(match table.by {
            Some(by) if by.split(',').any(|key| key.trim() == "pid") => by,
            Some(by) => format!("{by},pid"),
            None => usual.to_owned(),
        });
        let what = Aggregate::Stacks {
            max_frames: self.max_frames,
            shown: StackOutput::Locks,
        };
        let mut plan = table.plan(options, printing, what, None)?;
        plan.join = Some(Join::Holder { all: self.all });
        Compiled::placeless(&plan.by, true).map_err(|error| raw(&format!("--by: {error}")))?;
        Ok(plan)
    }
}
