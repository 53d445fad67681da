// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: what was typed ([`Arguments`]), and what it means
//! ([`Plan`]). Nothing below sees raw arguments.

mod agent;
mod aggregate;
mod candidates;
mod capsule;
mod export;
mod help;
mod leak;
mod limits;
mod lock;
mod plan;
mod probe;
mod profile;
mod tasks;
mod trace;
mod value;

pub(crate) use plan::{
    AgentConfig, AgentPlan, Aggregate, AggregatePlan, BeltsPlan, ContainersPlan, CtfPlan, Detail,
    ExportPlan, HitKey, InfoPlan, Join, LeakPlan, ListPlan, MetricPlan, OutputsPlan, PicturePlan,
    ProfilePlan, PsColumn, PsPlan, RecordPlan, RecordingPlan, ReportKey, ReportPlan, ScriptPlan,
    StackOutput, StatusPlan, SymbolizePlan, TopPlan, TopSort, TracePlan, TreePlan, VerifyPlan,
};

use nsprobe_trace::options::TraceOptions;

use agent::AgentArguments;
use aggregate::{CountArguments, HistArguments, StacksArguments};
use capsule::{
    InfoArguments, RecordArguments, ReportArguments, ScriptArguments, SymbolizeArguments,
};
use clap::{Args, FromArgMatches, Parser, Subcommand};
use export::ExportArguments;
use help::{definition, LIMITS, OUTPUT, TARGET};
pub(crate) use help::{print_completions, write_man_pages};
use leak::LeakArguments;
use lock::LockArguments;
use nsprobe_text::escaped;
use probe::{DebuginfodArguments, SandboxArguments, WhoArguments};
use profile::ProfileArguments;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use tasks::{PsArguments, TopArguments, TreeArguments};
use trace::{SetArguments, TraceArguments};

/// Trace and profile programs in containers.
#[derive(Debug, Parser)]
#[command(
    name = "nsprobe",
    version,
    max_term_width = 100,
    after_help = "Tracing needs the module nsprobe, and root. `nsprobe VERB -h` has an example."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print a line, or a stack, for each call of a function
    Trace(TraceArguments),
    /// Change arguments, results and variables of a running program
    Set(SetArguments),
    /// Count calls by function or by any expression
    Count(CountArguments),
    /// Print a histogram of call times, or of a value
    Hist(HistArguments),
    /// Count calls by stack
    Stacks(StacksArguments),
    /// Print the functions that take the CPU time, or that wait
    Profile(ProfileArguments),
    /// Show the locks that threads wait for, and who holds them
    Lock(LockArguments),
    /// Show what is allocated and not freed, by stack
    Leak(LeakArguments),
    /// Record calls, samples or tasks into a file, a capsule
    Record(RecordArguments),
    /// Print a capsule as `trace` prints calls
    Script(ScriptArguments),
    /// Count the hits of a capsule by stack or function
    Report(ReportArguments),
    /// Print a capsule's origin, probes, files and losses
    Info(InfoArguments),
    /// Write a capsule as CTF, flame graph, pprof, OTLP and others
    Export(ExportArguments),
    /// Name offsets in files, or a capsule without names
    Symbolize(SymbolizeArguments),
    /// List the functions of a file that can be probed
    List(ListArguments),
    /// Attach probes, and list the processes with a breakpoint
    Verify(VerifyArguments),
    /// List the containers of all runtimes
    #[command(visible_alias = "ls")]
    Containers(ContainersArguments),
    /// List tasks by container, with their pids in it
    Ps(PsArguments),
    /// Measure all the time, for Prometheus and stores of profiles
    Agent(AgentArguments),
    /// Print the tree of pid namespaces and containers
    Tree(TreeArguments),
    /// Show CPU time by container, task and thread
    Top(TopArguments),
    /// Print the module's sessions, probes and counters
    Status(StatusArguments),
    /// Check what nsprobe needs of this machine, and say what mends it
    #[command(
        after_help = "The exit code is 1 if nsprobe cannot trace here.\n\nExample:\n  nsprobe doctor"
    )]
    Doctor,
    /// Print a shell's completions
    Completions(CompletionsArguments),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe list -c web /usr/bin/redis-server:'*Command'")]
struct ListArguments {
    #[command(flatten)]
    who: WhoArguments,
    #[command(flatten)]
    sandbox: SandboxArguments,
    #[command(flatten)]
    servers: DebuginfodArguments,
    /// The file, and which of its functions
    ///
    /// BINARY is a path as the target sees it, or the name of a library that it has mapped. PATTERN
    /// is a part of a function's name, or a glob with * and ?.
    #[arg(value_name = "BINARY[:PATTERN]")]
    binary: String,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is 1 if a breakpoint is missing in a mapping of the target.\n\n\
                  Example:\n  nsprobe verify -c web libssl.so.3:SSL_read"
)]
struct VerifyArguments {
    /// What to probe (docs/spec.md)
    #[arg(value_name = "PROBE", required = true)]
    probes: Vec<String>,
    #[command(flatten)]
    who: WhoArguments,
    #[command(flatten)]
    sandbox: SandboxArguments,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Most places that one PROBE may match
    #[arg(long, value_name = "N", default_value = "1000", help_heading = LIMITS,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_probes: u32,
    /// Accept ten-byte nops, as --fast-nops of the probing verbs does
    #[arg(long, help_heading = LIMITS)]
    fast_nops: bool,
}

impl VerifyArguments {
    fn plan(self) -> Result<VerifyPlan, clap::Error> {
        let probes = self.probes.iter().map(|text| spec(text));
        let options = TraceOptions {
            who: self.who.plan(Vec::new()),
            probes: probes.collect::<Result<_, _>>()?,
            max_probes: self.max_probes as usize,
            fast_nops: self.fast_nops,
            sandbox: self.sandbox.plan(),
            ..TraceOptions::default()
        };
        Ok(VerifyPlan {
            options,
            json: self.json,
        })
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Needs no module. Without root, names in files that only root may read are missing.\n\n\
                  Example:\n  nsprobe containers --all"
)]
struct ContainersArguments {
    /// Also stopped ones, and pid namespaces without a name
    #[arg(short, long, help_heading = TARGET)]
    all: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe status")]
struct StatusArguments {
    /// Print one JSON object (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe completions bash > /etc/bash_completion.d/nsprobe")]
struct CompletionsArguments {
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
struct ManArguments {
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Trace.
    Trace(TracePlan),
    /// Record into a capsule.
    Record(RecordPlan),
    /// Print what a capsule has.
    Script(ScriptPlan),
    /// Count what a capsule has.
    Report(ReportPlan),
    /// Tell what a capsule is.
    Info(InfoPlan),
    /// Write what a capsule has in a format of others.
    Export(ExportPlan),
    /// Name places in files.
    Symbolize(SymbolizePlan),
    /// Count.
    Aggregate(AggregatePlan),
    /// Measure all the time.
    Agent(AgentPlan),
    /// Show what is allocated.
    Leak(LeakPlan),
    /// List functions.
    List(ListPlan),
    /// See where probes are armed.
    Verify(VerifyPlan),
    /// List containers.
    Containers(ContainersPlan),
    /// List tasks.
    Ps(PsPlan),
    /// Show the tree of pid namespaces.
    Tree(TreePlan),
    /// Show who takes the CPUs.
    Top(TopPlan),
    /// Show the module's state.
    Status(StatusPlan),
    /// Check this machine.
    Doctor,
    /// Print completions for this shell.
    Completions(clap_complete::Shell),
    /// Write man pages into this directory.
    Man(PathBuf),
}

/// The plan of this process's command line; an exit code when there is none to
/// be run: help was printed, or an error.
pub(crate) fn plan() -> Result<Plan, ExitCode> {
    help::complete();
    Plan::of_words(std::env::args_os()).map_err(|error| {
        if !error.use_stderr() {
            // Nothing is left to be said when even this cannot be printed.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        // As all errors begin.
        let text = error.render().to_string();
        match text.strip_prefix("error: ") {
            Some(why) => eprint!("nsprobe: {why}"),
            // Without a verb it is the help.
            None => eprint!("{text}"),
        }
        ExitCode::from(2)
    })
}

impl Plan {
    fn of_words<W>(words: impl IntoIterator<Item = W>) -> Result<Plan, clap::Error>
    where
        W: Into<OsString> + Clone,
    {
        let mut command = definition();
        let matches = command.try_get_matches_from_mut(words)?;
        if let Some(("record", given)) = matches.subcommand() {
            capsule::check_options(&command, given)?;
        }
        let arguments = Arguments::from_arg_matches(&matches);
        Plan::new(arguments.map_err(|error| error.format(&mut command))?)
    }

    fn new(arguments: Arguments) -> Result<Plan, clap::Error> {
        Ok(match arguments.verb {
            Verb::Trace(arguments) => Plan::Trace(arguments.plan()?),
            Verb::Set(arguments) => Plan::Trace(arguments.plan()?),
            Verb::Count(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::Hist(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::Stacks(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::Profile(arguments) => arguments.plan()?,
            Verb::Lock(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::Agent(arguments) => Plan::Agent(arguments.plan()),
            Verb::Leak(arguments) => Plan::Leak(arguments.plan()?),
            Verb::Record(arguments) => Plan::Record(arguments.plan()?),
            Verb::Script(arguments) => Plan::Script(arguments.plan()),
            Verb::Report(arguments) => Plan::Report(arguments.plan()),
            Verb::Info(arguments) => Plan::Info(arguments.plan()),
            Verb::Export(arguments) => Plan::Export(arguments.plan()?),
            Verb::Symbolize(arguments) => Plan::Symbolize(arguments.plan()),
            Verb::List(arguments) => Plan::List(ListPlan {
                who: arguments.who.plan(Vec::new()),
                spec: spec(&arguments.binary)?,
                debuginfod: arguments.servers.plan()?,
                sandbox: arguments.sandbox.plan(),
                json: arguments.json,
            }),
            Verb::Verify(arguments) => Plan::Verify(arguments.plan()?),
            Verb::Containers(ContainersArguments { all, json }) => {
                Plan::Containers(ContainersPlan { all, json })
            }
            Verb::Ps(arguments) => Plan::Ps(arguments.plan()),
            Verb::Tree(arguments) => Plan::Tree(arguments.plan()),
            Verb::Top(arguments) => Plan::Top(arguments.plan()),
            Verb::Status(StatusArguments { json }) => Plan::Status(StatusPlan { json }),
            Verb::Doctor => Plan::Doctor,
            Verb::Completions(CompletionsArguments { shell }) => Plan::Completions(shell),
            Verb::Man(ManArguments { directory }) => Plan::Man(directory),
        })
    }
}

/// What is wrong with a text, and where.
fn pointing(what: &str, text: &str, error: &nsprobe_spec::SpecError) -> clap::Error {
    let before = text.get(..error.span.start).unwrap_or(text);
    let (before, shown) = (escaped(before).to_string(), escaped(text));
    let column = before.chars().count();
    raw(&format!(
        "{what}: {error}\n    {shown}\n    {:column$}^",
        ""
    ))
}

fn spec<T: FromStr<Err: ToString>>(text: &str) -> Result<T, clap::Error> {
    text.parse()
        .map_err(|error: T::Err| raw(&error.to_string()))
}

/// Raw: a caret says more than a usage line would.
fn raw(message: &str) -> clap::Error {
    let kind = clap::error::ErrorKind::ValueValidation;
    clap::Error::raw(kind, format!("{message}\n"))
}

#[cfg(test)]
mod tests;
