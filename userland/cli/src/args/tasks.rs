// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe ps`, `tree` and `top`.

use super::plan::{PsColumn, PsPlan, TargetSpec, TopPlan, TopSort, TreePlan};
use super::value::seconds;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Where lines have no room, columns that matter least are left out, and the command line \
                  is cut; --columns and --json have all of it.\n\n\
                  Examples:\n  \
                  nsprobe ps -c web --threads\n  \
                  nsprobe ps --columns container,pid,nspid,comm"
)]
pub(super) struct PsArguments {
    /// Only this container
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Also what is in no container: the host's tasks and the kernel's threads
    #[arg(short, long)]
    all: bool,
    /// A line for each thread
    #[arg(long)]
    threads: bool,
    /// Numbers in all pid namespaces that a task is in, not in its own alone
    #[arg(short, long)]
    verbose: bool,
    /// These columns, separated by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', value_enum)]
    columns: Vec<PsColumn>,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, conflicts_with = "columns")]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct TreeArguments {
    /// All tasks of this capsule, those that ended included, not those of this machine now
    #[arg(value_name = "FILE", conflicts_with = "container")]
    file: Option<PathBuf>,
    /// Only this container
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// With the processes of each namespace
    #[arg(long)]
    tasks: bool,
    /// With their threads, too
    #[arg(long)]
    threads: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Keys: arrows and Enter to move and unfold, c n t s to sort, / to filter, \
                  space to pause, ? for help, q to quit.\n\n\
                  Examples:\n  \
                  nsprobe top --sort tasks\n  \
                  nsprobe top --batch -n 1 -d 5 | head"
)]
pub(super) struct TopArguments {
    /// Only this container
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Print tables, for pipes
    #[arg(long)]
    batch: bool,
    /// End after N intervals
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How long an interval is, in seconds such as 0.5
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds,
          allow_negative_numbers = true, default_value = "2")]
    delay: Duration,
    /// What rows are sorted by
    #[arg(long, value_name = "KEY", value_enum, default_value = "cpu")]
    sort: TopSort,
    /// Only rows that have this in their name, runtime or command
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// With processes; with --json also their threads
    #[arg(long)]
    processes: bool,
    /// Print one JSON object for each interval (docs/json.md)
    #[arg(long)]
    json: bool,
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
