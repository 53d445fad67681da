// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe ps`, `tree` and `top`.

use super::candidates::containers;
use super::help::{LIMITS, OUTPUT, SHOW, TARGET};
use super::plan::{PsColumn, PsPlan, TopPlan, TopSort, TreePlan};
use super::value::time_span;
use clap::Args;
use nsprobe_trace::options::TargetSpec;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe ps -c web --threads",
    after_long_help = "A narrow terminal drops the columns that matter least, and truncates the command \
                  line; --columns and --json print all.\n\n\
                  Examples:\n  \
                  nsprobe ps -c web --threads\n  \
                  nsprobe ps --columns container,pid,nspid,comm"
)]
pub(super) struct PsArguments {
    /// Print a line for each thread
    #[arg(long, help_heading = SHOW)]
    threads: bool,
    /// Print a task's pid in all its pid namespaces
    #[arg(short, long, help_heading = SHOW)]
    verbose: bool,
    /// Columns to print, separated by commas
    #[arg(long, help_heading = SHOW, value_name = "COLUMNS", value_delimiter = ',', value_enum)]
    columns: Vec<PsColumn>,
    /// Only this container
    #[arg(short, long, help_heading = TARGET, value_name = "CONTAINER", add = containers())]
    container: Option<String>,
    /// Also tasks in no container, and kernel threads
    #[arg(short, long, help_heading = TARGET)]
    all: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT, conflicts_with = "columns")]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe tree -c web --tasks")]
pub(super) struct TreeArguments {
    /// All tasks of this capsule instead of this machine's
    #[arg(value_name = "FILE", conflicts_with = "container")]
    file: Option<PathBuf>,
    /// Also print processes
    #[arg(long, help_heading = SHOW)]
    tasks: bool,
    /// Also print processes and threads
    #[arg(long, help_heading = SHOW)]
    threads: bool,
    /// Only this container
    #[arg(short, long, help_heading = TARGET, value_name = "CONTAINER", add = containers())]
    container: Option<String>,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe top --sort tasks",
    after_long_help = "Keys: arrows and Enter to move and unfold, c n t s to sort, / to filter, \
                  space to pause, ? for help, q to quit.\n\n\
                  Examples:\n  \
                  nsprobe top --sort tasks\n  \
                  nsprobe top --batch -n 1 -d 5 | head"
)]
pub(super) struct TopArguments {
    /// Sort rows by this
    #[arg(long, help_heading = SHOW, value_name = "KEY", value_enum, default_value = "cpu")]
    sort: TopSort,
    /// Only rows with TEXT in name, runtime or command
    #[arg(long, help_heading = SHOW, value_name = "TEXT")]
    filter: Option<String>,
    /// Also print processes; with --json also threads
    #[arg(long, help_heading = SHOW)]
    processes: bool,
    /// Only this container
    #[arg(short, long, help_heading = TARGET, value_name = "CONTAINER", add = containers())]
    container: Option<String>,
    /// Print tables, for pipes
    #[arg(long, help_heading = OUTPUT)]
    batch: bool,
    /// Print one JSON object for each interval (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// End after N intervals
    #[arg(short = 'n', long, help_heading = LIMITS, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Length of an interval in seconds, such as 0.5
    #[arg(short, long, help_heading = LIMITS, value_name = "SECONDS", value_parser = time_span,
          allow_negative_numbers = true, default_value = "2")]
    delay: Duration,
}

fn who(container: Option<String>) -> TargetSpec {
    container.map_or(TargetSpec::Host, TargetSpec::Container)
}

impl PsArguments {
    pub(super) fn plan(self) -> PsPlan {
        PsPlan {
            who: who(self.container),
            all: self.all,
            threads: self.threads,
            levels: self.verbose,
            columns: self.columns,
            json: self.json,
        }
    }
}

impl TreeArguments {
    pub(super) fn plan(self) -> TreePlan {
        TreePlan {
            file: self.file,
            who: who(self.container),
            tasks: self.tasks || self.threads,
            threads: self.threads,
            json: self.json,
        }
    }
}

impl TopArguments {
    pub(super) fn plan(self) -> TopPlan {
        TopPlan {
            who: who(self.container),
            batch: self.batch,
            count: self.count,
            delay: self.delay,
            sort: self.sort,
            filter: self.filter.unwrap_or_default(),
            processes: self.processes,
            json: self.json,
        }
    }
}
