// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe trace` and `set`.

use super::plan::{ProbeOptions, TracePlan};
use super::probe::{ProbeArguments, RowsArguments, RunArguments};
use super::value::ring_bytes;
use super::{pointing, spec};
use clap::Args;
use libnsprobe::SetupOptions;
use nsprobe_spec::syntax::Assignment;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    override_usage = "nsprobe trace [OPTIONS] [-c CONTAINER | -p PID] PROBE...\n       \
                      nsprobe trace [OPTIONS] PROBE... -- COMMAND [ARGUMENT]...",
    after_help = "Without -c, -p and COMMAND, BINARY is a file of this machine, and calls by any \
                  process are traced.\n\n\
                  Examples:\n  \
                  nsprobe trace -c web /usr/bin/redis-server:setCommand --stack\n  \
                  nsprobe trace -p 1234 'libc.so.6:malloc(size=arg1, $retval) if arg1 > 4096'\n  \
                  nsprobe trace ./app:'parse_*' -- ./app --once"
)]
pub(super) struct TraceArguments {
    #[command(flatten)]
    records: RecordsArguments,
    /// Print to this file; what is in it already is lost
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What goes with records of hits, wherever they go.
#[derive(Debug, Args)]
pub(super) struct RecordsArguments {
    #[command(flatten)]
    common: ProbeArguments,
    /// Print the stack of each call
    #[arg(short, long)]
    stack: bool,
    /// Print the kernel's stack of each call, too: where the program was stopped
    #[arg(long)]
    kernel_stack: bool,
    #[command(flatten)]
    rows: RowsArguments,
    /// End after the first N calls
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Keep the newest calls only, as many as the rings hold, and print them in the end: when a
    /// trigger is hit, at Ctrl-C, or when the time is over
    #[arg(long, conflicts_with = "count")]
    flight: bool,
    /// End a --flight when this probe is hit, whose condition must hold
    #[arg(
        long,
        value_name = "PROBE",
        requires = "flight",
        conflicts_with = "follow"
    )]
    trigger: Vec<String>,
    /// Bytes of each CPU's ring: a power of two; K and M are understood. Without it all rings
    /// together take 4M, each 256K to 2M
    #[arg(long, value_name = "BYTES", value_parser = ring_bytes)]
    ring_size: Option<u64>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "nsprobe set [OPTIONS] [-c CONTAINER | -p PID] PROBE CHANGE...\n       \
                      nsprobe set [OPTIONS] PROBE CHANGE... -- COMMAND [ARGUMENT]...",
    after_help = "The module must have been loaded with allow_modify=1. Each change is printed, with \
                  what was there before.\n\n\
                  Examples:\n  \
                  nsprobe set -p 1234 './app:parse if depth > 100' 'return 0'\n  \
                  nsprobe set -c web './app:read_config' '$retval = -1' --max-writes 3\n  \
                  nsprobe set -p 1234 './app:main_loop' 'verbose = 1'"
)]
pub(super) struct SetArguments {
    /// Where, and in which calls: BINARY:FUNCTION, and `if CONDITION`
    #[arg(value_name = "PROBE")]
    probe: String,
    /// What: `PLACE = EXPRESSION`, where PLACE is an argument, a variable, a register, `$retval` or
    /// memory; or `return EXPRESSION`, which leaves the call out. All expressions have the values of
    /// before the first change
    #[arg(value_name = "CHANGE", required = true)]
    changes: Vec<String>,
    /// Change no more than N times; a probe with two changes makes two at each call
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_writes: u32,
    #[command(flatten)]
    run: RunArguments,
}

impl TraceArguments {
    pub(super) fn plan(self) -> Result<TracePlan, clap::Error> {
        Ok(TracePlan {
            output: self.output,
            ..self.records.plan()?
        })
    }
}

impl RecordsArguments {
    pub(super) fn plan(self) -> Result<TracePlan, clap::Error> {
        let triggers = self.trigger.iter().map(|text| spec(text));
        let triggers = triggers.collect::<Result<_, _>>()?;
        Ok(TracePlan {
            options: ProbeOptions {
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
