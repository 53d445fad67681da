// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe trace` and `set`.

use super::help::{LIMITS, OUTPUT, SHOW};
use super::plan::TracePlan;
use super::probe::{ProbeArguments, RowsArguments, RunArguments};
use super::value::{output_file, ring_bytes};
use super::{pointing, spec};
use clap::Args;
use libnsprobe::SetupOptions;
use nsprobe_spec::syntax::Assignment;
use nsprobe_trace::options::TraceOptions;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    override_usage = "nsprobe trace [OPTIONS] [-c NAME | -p PID] PROBE...\n       \
                      nsprobe trace [OPTIONS] PROBE... -- COMMAND [ARGUMENT]...",
    after_help = "Example:\n  nsprobe trace -c web /usr/bin/redis-server:setCommand --stack",
    after_long_help = "Without -c, -p and COMMAND nsprobe traces all processes: a path is that of a \
                  file of this machine, and a library's name stands for each file of that name that a \
                  process of this machine or of a container has mapped.\n\n\
                  Examples:\n  \
                  nsprobe trace -c web /usr/bin/redis-server:setCommand --stack\n  \
                  nsprobe trace -p 1234 'libc.so.6:malloc(size=arg1, $retval) if arg1 > 4096'\n  \
                  nsprobe trace ./app:'parse_*' -- ./app --once"
)]
pub(super) struct TraceArguments {
    #[command(flatten)]
    records: RecordsArguments,
    /// Write to this file instead of standard output
    #[arg(short, long, help_heading = OUTPUT, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What goes with records of hits, wherever they go.
#[derive(Debug, Args)]
pub(super) struct RecordsArguments {
    /// Print the user stack of each call
    #[arg(short, long, help_heading = SHOW)]
    stack: bool,
    /// Also print the kernel stack of each call
    #[arg(long, help_heading = SHOW)]
    kernel_stack: bool,
    /// Keep only the newest calls, and print them at the end
    ///
    /// The rings hold the newest calls. They are printed when a --trigger is hit, at Ctrl-C, or
    /// after --timeout.
    #[arg(long, help_heading = SHOW, conflicts_with = "count")]
    flight: bool,
    /// End --flight at a hit of this probe
    #[arg(
        long,
        help_heading = SHOW,
        value_name = "PROBE",
        requires = "flight",
        conflicts_with = "follow"
    )]
    trigger: Vec<String>,
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    rows: RowsArguments,
    /// End after the first N calls
    #[arg(short = 'n', long, value_name = "N", help_heading = LIMITS, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Size of each CPU's ring
    ///
    /// BYTES is a power of two, with K or M after it or without. By default all rings together
    /// take 4M, each 256K to 2M.
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "BYTES", value_parser = ring_bytes)]
    ring_size: Option<u64>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "nsprobe set [OPTIONS] [-c NAME | -p PID] PROBE CHANGE...\n       \
                      nsprobe set [OPTIONS] PROBE CHANGE... -- COMMAND [ARGUMENT]...",
    after_help = "Example:\n  nsprobe set -p 1234 './app:parse if depth > 100' 'return 0'",
    after_long_help = "The module must be loaded with allow_modify=1. nsprobe prints each change \
                  with the value before it.\n\n\
                  Examples:\n  \
                  nsprobe set -p 1234 './app:parse if depth > 100' 'return 0'\n  \
                  nsprobe set -c web './app:read_config' '$retval = -1' --max-writes 3\n  \
                  nsprobe set -p 1234 './app:main_loop' 'verbose = 1'"
)]
pub(super) struct SetArguments {
    /// Which calls: BINARY:FUNCTION, and `if CONDITION`
    #[arg(value_name = "PROBE")]
    probe: String,
    /// `PLACE = EXPRESSION`, or `return EXPRESSION`
    ///
    /// PLACE is an argument, a variable, a register, `$retval` or memory. `return` skips the
    /// function's body. Expressions see the values before the first change.
    #[arg(value_name = "CHANGE", required = true)]
    changes: Vec<String>,
    #[command(flatten)]
    run: RunArguments,
    /// Make at most N changes
    ///
    /// A probe with two changes makes two at each call.
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_writes: u32,
}

impl TraceArguments {
    pub(super) fn plan(self) -> Result<TracePlan, clap::Error> {
        let mut plan = self.records.plan()?;
        output_file(self.output.as_deref(), false, &mut plan.printing.json)?;
        plan.output = self.output;
        Ok(plan)
    }
}

impl RecordsArguments {
    pub(super) fn plan(self) -> Result<TracePlan, clap::Error> {
        let triggers = self.trigger.iter().map(|text| spec(text));
        let triggers = triggers.collect::<Result<_, _>>()?;
        Ok(TracePlan {
            printing: self.common.printing(),
            options: TraceOptions {
                triggers,
                rows: self.rows.plan(),
                ..self.common.plan()?
            },
            output: None,
            stack: self.stack,
            kernel_stack: self.kernel_stack,
            count: self.count,
            setup: SetupOptions {
                overwrite: self.flight,
                ..self
                    .ring_size
                    .map_or_else(SetupOptions::usual, SetupOptions::with_ring_bytes)
            },
            changes: Vec::new(),
            max_writes: 0,
        })
    }
}

impl SetArguments {
    pub(super) fn plan(self) -> Result<TracePlan, clap::Error> {
        let changes = self
            .changes
            .iter()
            .map(|text| Assignment::parse(text).map_err(|error| pointing("change", text, &error)));
        let changes = changes.collect::<Result<_, _>>()?;
        Ok(TracePlan {
            printing: self.run.printing(),
            options: self.run.plan(&[self.probe])?,
            output: None,
            stack: false,
            kernel_stack: false,
            count: None,
            setup: SetupOptions {
                modify: true,
                ..SetupOptions::default()
            },
            changes,
            max_writes: self.max_writes,
        })
    }
}
