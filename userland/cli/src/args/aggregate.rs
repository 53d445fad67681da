// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe count`, `hist` and `stacks`.

use super::candidates::keys;
use super::help::{LIMITS, OUTPUT, SHOW};
use super::plan::{Aggregate, AggregatePlan, Printing, StackOutput};
use super::probe::{ProbeArguments, RowsArguments};
use super::value::{linear, output_file, rows, time_span};
use super::{pointing, raw};
use clap::{Arg, Args};
use libnsprobe::common::abi::ROWS_MAX;
use libnsprobe::common::histogram::Scale;
use nsprobe_spec::syntax::Field;
use nsprobe_trace::options::TraceOptions;
use nsprobe_trace::spec::{CountedTexts, KEYS};
use std::path::PathBuf;
use std::time::Duration;

/// What all verbs that count have in common.
#[derive(Debug, Args)]
pub(super) struct TableArguments {
    /// Count by keys, such as comm,arg1
    #[arg(short, long, help_heading = SHOW, value_name = "KEYS", add = keys(), long_help = format!(
        "Count by keys, such as comm,arg1\n\nSeparated by commas: {}, or any expression, such as arg1 \
         or name=arg2:string[16].", known_keys(&[])))]
    pub(super) by: Option<String>,
    /// Write to this file instead of standard output
    #[arg(short, long, help_heading = OUTPUT, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Print a table every S seconds
    #[arg(short, long, help_heading = OUTPUT, value_name = "S", value_parser = time_span, allow_negative_numbers = true)]
    interval: Option<Duration>,
    /// Print only the N greatest
    ///
    /// Without it, 20; all of them with --json and --folded.
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Rows of the kernel's table
    ///
    /// Calls that find no room are counted.
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N", default_value = "4096",
          value_parser = clap::value_parser!(u32).range(1..=ROWS_MAX as i64))]
    rows: u32,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe count -c web 'libssl.so.3:SSL_*'",
    after_long_help = "Examples:\n  \
                  nsprobe count -c web 'libssl.so.3:SSL_*'\n  \
                  nsprobe count libc.so.6:malloc --by comm,arg1 -t 5"
)]
pub(super) struct CountArguments {
    /// Also add up this value
    #[arg(long, help_heading = SHOW, value_name = "EXPRESSION")]
    sum: Option<String>,
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    table: TableArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe hist -c web /usr/bin/redis-server:processCommand",
    after_long_help = "Without --of it is the time from the entry of a function to its return.\n\n\
                  Examples:\n  \
                  nsprobe hist -c web /usr/bin/redis-server:processCommand\n  \
                  nsprobe hist libc.so.6:malloc --of arg1 --by comm"
)]
pub(super) struct HistArguments {
    /// The value; without it, how long calls take
    #[arg(long, help_heading = SHOW, value_name = "EXPRESSION")]
    of: Option<String>,
    /// Equal buckets instead of powers of two
    ///
    /// COUNT buckets of STEP each, from LOW on.
    #[arg(long, help_heading = SHOW, value_name = "LOW:STEP:COUNT", value_parser = linear, allow_hyphen_values = true)]
    linear: Option<Scale>,
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    table: TableArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe stacks -c web libc.so.6:malloc -t 10 -o malloc.svg",
    after_long_help = "Examples:\n  \
                  nsprobe stacks -c web libc.so.6:malloc --sum arg1 -t 10\n  \
                  nsprobe stacks -c web libc.so.6:malloc -t 10 -o malloc.svg",
    mut_arg("output", of_stacks)
)]
pub(super) struct StacksArguments {
    /// Also add up this value
    #[arg(long, help_heading = SHOW, value_name = "EXPRESSION")]
    sum: Option<String>,
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Most frames of a stack
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N", default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..=127))]
    max_frames: u32,
    /// Print folded stacks, one a line
    ///
    /// The functions of a stack from the outermost on, and its count: what flame graphs are made of.
    #[arg(long, help_heading = OUTPUT, conflicts_with_all = ["json", "interval", "top"])]
    folded: bool,
    #[command(flatten)]
    rows: RowsArguments,
}

/// Where stacks go.
pub(super) fn of_stacks(output: Arg) -> Arg {
    output
        .help("Write FILE: .svg, .folded, .pb.gz, .otlp, .speedscope.json, or text")
        .long_help(
            "Write to this file. A name that ends in .svg (a flame graph), .folded, .pb.gz (pprof), \
             .otlp or .speedscope.json gets all stacks in that format, and the table goes to standard \
             output; any other name gets the table.",
        )
}

impl TableArguments {
    pub(super) fn plan(
        self,
        options: TraceOptions,
        printing: Printing,
        what: Aggregate,
        value: Option<&str>,
    ) -> Result<AggregatePlan, clap::Error> {
        if let Some(spec) = options
            .probes
            .iter()
            .find(|spec| !spec.spec.fields.is_empty())
        {
            let span = spec
                .spec
                .fields
                .first()
                .map_or(0..0, |field| field.span.clone());
            let message = "fields are for `nsprobe trace`; to count by a value there is --by";
            let error = nsprobe_spec::SpecError::new(span, message);
            let error = spec.error(&error, CountedTexts::default());
            return Err(raw(&error.to_string()));
        }
        let by_text = self.by.as_deref().map(keys_text).unwrap_or_default();
        let by = match self.by {
            Some(_) => fields(&by_text, "--by")?,
            None => Vec::new(),
        };
        let value_text = value.map(keys_text).unwrap_or_default();
        let is_folded = matches!(
            what,
            Aggregate::Stacks {
                shown: StackOutput::Folded,
                ..
            }
        );
        let is_whole = printing.json || is_folded;
        let mut value = match value {
            Some(_) => fields(&value_text, "this option")?,
            None => Vec::new(),
        };
        if value.len() > 1 {
            return Err(raw("only one value can be added up"));
        }
        Ok(AggregatePlan {
            options,
            printing,
            output: self.output,
            what,
            by,
            are_keys_of_picture: false,
            by_text,
            value_text,
            value: value.pop(),
            interval: self.interval,
            top: rows(self.top, is_whole),
            rows: self.rows,
            kernel_stack: false,
            join: None,
        })
    }
}

impl CountArguments {
    pub(super) fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let mut printing = self.common.printing();
        let options = self.common.plan()?;
        output_file(self.table.output.as_deref(), false, &mut printing.json)?;
        self.table
            .plan(options, printing, Aggregate::Count, self.sum.as_deref())
    }
}

impl HistArguments {
    pub(super) fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let mut printing = self.common.printing();
        let options = self.common.plan()?;
        output_file(self.table.output.as_deref(), false, &mut printing.json)?;
        let scale = self.linear.unwrap_or(Scale::Log { bits: 2 });
        self.table.plan(
            options,
            printing,
            Aggregate::Histogram(scale),
            self.of.as_deref(),
        )
    }
}

impl StacksArguments {
    pub(super) fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let what = Aggregate::Stacks {
            max_frames: self.max_frames,
            shown: match self.folded {
                true => StackOutput::Folded,
                false => StackOutput::Frames,
            },
        };
        let mut printing = self.common.printing();
        let mut options = self.common.plan()?;
        output_file(self.table.output.as_deref(), true, &mut printing.json)?;
        options.rows = self.rows.plan();
        self.table
            .plan(options, printing, what, self.sum.as_deref())
    }
}

/// The keys of every hit, but for these.
pub(super) fn known_keys(but: &[&str]) -> String {
    let keys = KEYS.into_iter().filter(|key| !but.contains(key));
    keys.collect::<Vec<_>>().join(", ")
}

/// Keys or values, with what those of [`KEYS`] mean in their place.
fn keys_text(text: &str) -> String {
    let words = text.split(',').map(|word| match word.trim() {
        "func" => "func=$probe".to_owned(),
        "container" => "container=$pidnsid".to_owned(),
        known if KEYS.contains(&known) => format!("{known}=${known}"),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(",")
}

fn fields(text: &str, option: &str) -> Result<Vec<Field>, clap::Error> {
    Field::parse_list(text).map_err(|error| pointing(option, text, &error))
}
