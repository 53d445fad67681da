// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe leak`.

use super::aggregate::of_stacks;
use super::help::{LIMITS, OUTPUT, SHOW};
use super::plan::LeakPlan;
use super::probe::{RowsArguments, StackArguments, TargetArguments};
use super::value::{bytes, output_file, rows, time_span};
use super::{raw, spec};
use clap::{Arg, Args};
use libnsprobe::common::abi::ROWS_MAX;
use nsprobe_spec::syntax::Field;
use nsprobe_text::is_glob;
use nsprobe_trace::options::{TargetSpec, TraceOptions};
use nsprobe_trace::spec::ProbeSpec;
use std::path::PathBuf;
use std::time::Duration;

/// Most functions that a glob of `--alloc` and `--free` may match.
const FUNCTIONS_MAX: usize = 1000;
/// What a function allocates and frees where a spec does not say it.
const ALLOCATED: &str = "block=$retval, bytes=arg1";
const FREED: &str = "freed=arg1";

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe leak -c web --older-than 30s -t 60",
    after_long_help = "nsprobe finds the allocators of the target by their symbols (malloc and free of glibc, \
                  musl and jemalloc), and counts what they hand out and do not get back, from its \
                  start on, by the stack that allocated it. Each malloc and each free costs traps: expect a \
                  program that does little else to run many times slower.\n\n\
                  Examples:\n  \
                  nsprobe leak -c web --older-than 30s -t 60\n  \
                  nsprobe leak -p 1234 -i 10 -o leak.svg\n  \
                  nsprobe leak -- ./server --once\n  \
                  nsprobe leak -p 1234 --alloc './app:pool_get(block=$retval, bytes=arg2)' \
                  --free './app:pool_put(freed=arg2)'",
    mut_arg("output", of_stacks),
    mut_arg("tid", |option: Arg| option.hide(true)),
    mut_arg("comm", |option: Arg| option.hide(true)),
    mut_arg("uid", |option: Arg| option.hide(true))
)]
pub(super) struct LeakArguments {
    /// Only blocks that are older, such as 30s or 5m
    #[arg(long, help_heading = SHOW, value_name = "AGE", value_parser = time_span)]
    older_than: Option<Duration>,
    /// Sample one block per BYTES allocated, such as 512K
    ///
    /// The probability of a block is its size divided by BYTES; larger ones are always taken. The
    /// program is slowed down less, and the figures are estimates with their 95 % confidence
    /// intervals.
    #[arg(long, help_heading = LIMITS, value_name = "BYTES", value_parser = sample_bytes)]
    sample: Option<u64>,
    /// Instead of malloc: a function that allocates (docs/spec.md)
    ///
    /// Its fields are `block`, the address that it hands out, and `bytes`, how much; without fields
    /// `(block=$retval, bytes=arg1)` is meant. With `freed` it takes back a block as well, as
    /// realloc does.
    #[arg(long, help_heading = SHOW, value_name = "PROBE", requires = "free")]
    alloc: Vec<String>,
    /// Instead of free: a function that frees
    ///
    /// Its field is `freed`, the address that it takes back; without fields `(freed=arg1)` is meant.
    #[arg(long, help_heading = SHOW, value_name = "PROBE", requires = "alloc")]
    free: Vec<String>,
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    stack: StackArguments,
    /// Write to this file instead of standard output
    #[arg(short, long, help_heading = OUTPUT, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what is allocated every S seconds, and the growth
    #[arg(short, long, help_heading = OUTPUT, value_name = "S", value_parser = time_span, allow_negative_numbers = true)]
    interval: Option<Duration>,
    /// Print only the N stacks with the most bytes
    ///
    /// Without it, 20; all of them with --json.
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Blocks that the kernel keeps at a time, 107 bytes each
    ///
    /// Blocks beyond are counted, and their frees are those of unknown blocks.
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value = "500000",
          value_parser = clap::value_parser!(u32).range(1..=ROWS_MAX as i64))]
    rows: u32,
    /// Most frames of a stack
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N", default_value = "127",
          value_parser = clap::value_parser!(u32).range(1..=127))]
    max_frames: u32,
    #[command(flatten)]
    unwind: RowsArguments,
}

impl LeakArguments {
    pub(super) fn plan(self) -> Result<LeakPlan, clap::Error> {
        let mut printing = self.target.printing();
        let mut options = self.stack.plan(self.target.plan()?)?;
        check(&options)?;
        output_file(self.output.as_deref(), true, &mut printing.json)?;
        // Most of what a command does, its children do.
        options.tasks.children |= matches!(options.who, TargetSpec::Command(_));
        options.rows = self.unwind.plan();
        options.max_probes = FUNCTIONS_MAX;
        let several = self.alloc.len() > 1 || self.alloc.iter().any(|text| is_glob(text));
        let allocates = self.alloc.iter().map(|text| {
            let probe = with_fields(text, ALLOCATED, ("--alloc", "block"))?;
            Ok(match several {
                true => with_calls_within(probe),
                false => probe,
            })
        });
        let frees = self.free.iter();
        let frees = frees.map(|text| with_fields(text, FREED, ("--free", "freed")));
        options.probes = allocates.chain(frees).collect::<Result<_, _>>()?;
        let top = rows(self.top, printing.json);
        Ok(LeakPlan {
            options,
            printing,
            output: self.output,
            older_than: self.older_than.unwrap_or_default(),
            sample: self.sample.unwrap_or(0),
            interval: self.interval,
            top,
            rows: self.rows,
            max_frames: self.max_frames,
        })
    }
}

/// Bytes allocated per sample.
fn sample_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("0 bytes: omit the option to see all blocks".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Refuses what would show blocks as leaks that are not.
fn check(options: &TraceOptions) -> Result<(), clap::Error> {
    let tasks = &options.tasks;
    if options.who == TargetSpec::Host {
        return Err(raw(
            "leak needs a target: -c NAME (also a control group's path), -p PID or -- COMMAND (each \
             malloc and free of the whole machine would trap)",
        ));
    }
    let some_threads = [
        (!tasks.tids.is_empty(), "--tid"),
        (tasks.comm.is_some(), "--comm"),
        (tasks.uid.is_some(), "--uid"),
    ];
    match some_threads.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(raw(&format!(
            "{option}: any thread of a process may free a block, so leak traces whole processes"
        ))),
        None => Ok(()),
    }
}

/// A spec whose function may have its block from another one: it takes the block over.
fn with_calls_within(mut probe: ProbeSpec) -> ProbeSpec {
    let fields = &mut probe.spec.fields;
    let frees = fields.iter().any(|field| field.name == "freed");
    let block = fields.iter().find(|field| field.name == "block");
    let own = block.filter(|_| !frees).map(|block| Field {
        name: "freed".to_owned(),
        ..block.clone()
    });
    fields.extend(own);
    probe
}

/// A spec, with these fields if it has none; an option needs one of its own.
fn with_fields(
    text: &str,
    fields: &str,
    (option, needed): (&str, &str),
) -> Result<ProbeSpec, clap::Error> {
    let mut parsed: ProbeSpec = spec(text)?;
    if parsed.spec.fields.is_empty() {
        let fields = Field::parse_list(fields);
        parsed.spec.fields = fields.map_err(|error| raw(&error.message))?;
    }
    let mut given = parsed.spec.fields.iter();
    if !given.any(|field| field.name == needed) {
        return Err(raw(&format!(
            "{option} {text}: the field {needed}= is missing"
        )));
    }
    Ok(parsed)
}
