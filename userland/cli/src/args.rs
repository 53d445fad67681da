// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: what was typed ([`Arguments`]), and what it means
//! ([`Plan`]). Nothing below sees raw arguments.

use crate::spec::{ListSpec, ProbeSpec};
use clap::{Args, Parser, Subcommand};
use libnsprobe::SetupOptions;
use std::ffi::OsString;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Trace functions of programs in containers.
#[derive(Debug, Parser)]
#[command(
    name = "nsprobe",
    version,
    max_term_width = 100,
    after_help = "Tracing needs the module nsprobe, and root."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print a line, or a stack, for each call of some functions
    Trace(TraceArguments),
    /// List the functions of a program or library that can be probed
    List(ListArguments),
    /// Show the module, its sessions, their probes and counters
    Status(StatusArguments),
    /// Stop, and when continued, become another program
    #[command(hide = true)]
    ExecStopped(ExecArguments),
}

#[derive(Debug, Args)]
struct WhoArguments {
    /// Only this container: a podman name or id, or a pid namespace's inode number
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Only this process
    #[arg(short, long, value_name = "PID", conflicts_with = "container",
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "nsprobe trace [OPTIONS] [-c CONTAINER | -p PID] BINARY:FUNCTION...\n       \
                      nsprobe trace [OPTIONS] BINARY:FUNCTION... -- COMMAND [ARGUMENT]...",
    after_help = "Without -c, -p and COMMAND, BINARY is a file of this machine, and calls by any \
                  process are traced.\n\n\
                  Examples:\n  \
                  nsprobe trace -c web /usr/bin/redis-server:setCommand --stack\n  \
                  nsprobe trace -p 1234 libc.so.6:malloc --count 10\n  \
                  nsprobe trace ./app:'parse_*' -- ./app --once"
)]
struct TraceArguments {
    #[command(flatten)]
    who: WhoArguments,
    /// Functions to probe. BINARY is a path as the target sees it, or the name of a library that it
    /// has mapped; FUNCTION is a name, raw or readable, and may hold * and ?
    #[arg(value_name = "BINARY:FUNCTION", required = true)]
    probes: Vec<String>,
    /// Print the stack of each call
    #[arg(short, long)]
    stack: bool,
    /// End after N calls
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after S seconds, such as 0.5
    #[arg(short, long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Bytes of each CPU's ring: a power of two; K and M are understood
    #[arg(long, value_name = "BYTES", default_value = "256K", value_parser = ring_bytes)]
    ring_size: u64,
    /// Print nothing on standard error but errors
    #[arg(short, long)]
    quiet: bool,
    /// Start this command, trace it alone, and end with it; a command that still runs at the end is
    /// terminated
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["container", "pid"])]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    who: WhoArguments,
    /// A path as the target sees it, or the name of a library that it has mapped; PATTERN is a part
    /// of the name, or a glob with * and ?
    #[arg(value_name = "BINARY[:PATTERN]")]
    binary: String,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StatusArguments {
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExecArguments {
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Trace.
    Trace(TracePlan),
    /// List functions.
    List(ListPlan),
    /// Show the module's state.
    Status(StatusPlan),
    /// Become another program once continued: the program's path, and its
    /// arguments from the zeroth on.
    ExecStopped(Vec<OsString>),
}

/// Whose files are meant and who is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// This machine, all processes.
    Host,
    /// A container, by name, id or namespace.
    Container(String),
    /// A process.
    Process(u32),
    /// A command that we start: its words, never empty.
    Command(Vec<OsString>),
}

/// How to trace.
#[derive(Debug)]
pub(crate) struct TracePlan {
    pub(crate) who: Who,
    pub(crate) probes: Vec<ProbeSpec>,
    pub(crate) stack: bool,
    pub(crate) count: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) json: bool,
    pub(crate) setup: SetupOptions,
    pub(crate) quiet: bool,
}

/// What to list.
#[derive(Debug)]
pub(crate) struct ListPlan {
    pub(crate) who: Who,
    pub(crate) spec: ListSpec,
    pub(crate) json: bool,
}

/// How to show the state.
#[derive(Debug)]
pub(crate) struct StatusPlan {
    pub(crate) json: bool,
}

/// The plan of this process's command line; an exit code when there is none to
/// be run: help was printed, or an error.
pub(crate) fn plan() -> Result<Plan, ExitCode> {
    Arguments::try_parse().and_then(Plan::new).map_err(|error| {
        // Nothing is left to be said when even this cannot be printed.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { 2 } else { 0 })
    })
}

impl Plan {
    fn new(arguments: Arguments) -> Result<Plan, clap::Error> {
        Ok(match arguments.verb {
            Verb::Trace(arguments) => Plan::Trace(arguments.plan()?),
            Verb::List(arguments) => Plan::List(ListPlan {
                who: arguments.who.plan(Vec::new()),
                spec: spec(&arguments.binary)?,
                json: arguments.json,
            }),
            Verb::Status(StatusArguments { json }) => Plan::Status(StatusPlan { json }),
            Verb::ExecStopped(arguments) => Plan::ExecStopped(arguments.command),
        })
    }
}

impl TraceArguments {
    fn plan(self) -> Result<TracePlan, clap::Error> {
        let probes = self.probes.iter().map(|text| spec(text));
        Ok(TracePlan {
            who: self.who.plan(self.command),
            probes: probes.collect::<Result<_, _>>()?,
            stack: self.stack,
            count: self.count,
            timeout: self.timeout,
            json: self.json,
            setup: SetupOptions::with_ring_bytes(self.ring_size),
            quiet: self.quiet,
        })
    }
}

impl WhoArguments {
    fn plan(self, command: Vec<OsString>) -> Who {
        match (self.container, self.pid) {
            (Some(container), _) => Who::Container(container),
            (None, Some(pid)) => Who::Process(pid),
            (None, None) if !command.is_empty() => Who::Command(command),
            (None, None) => Who::Host,
        }
    }
}

fn spec<T: FromStr<Err: ToString>>(text: &str) -> Result<T, clap::Error> {
    text.parse().map_err(|error: T::Err| {
        // Raw: the caret says more than a usage line would.
        let kind = clap::error::ErrorKind::ValueValidation;
        clap::Error::raw(kind, format!("{}\n", error.to_string()))
    })
}

/// Seconds, with a fraction if need be.
fn seconds(text: &str) -> Result<Duration, String> {
    const TEN_YEARS: f64 = 10.0 * 365.0 * 86400.0;
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    if seconds > 0.0 && seconds <= TEN_YEARS {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not a time span: it must be more than 0 and less than ten years".to_owned())
    }
}

/// A ring size that a session can have.
fn ring_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes() {
        [digits @ .., b'K' | b'k'] => (digits.len(), 1 << 10),
        [digits @ .., b'M' | b'm'] => (digits.len(), 1 << 20),
        digits => (digits.len(), 1u64),
    };
    let number: Option<u64> = text.get(..digits).and_then(|digits| digits.parse().ok());
    let bytes = number
        .ok_or("not a number of bytes, such as 262144 or 256K")?
        .saturating_mul(unit);
    let options = SetupOptions::with_ring_bytes(bytes);
    options.check().map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn trace(words: &[&str]) -> Result<TracePlan, clap::Error> {
        let words = ["nsprobe", "trace"].iter().chain(words);
        match Arguments::try_parse_from(words).and_then(Plan::new)? {
            Plan::Trace(plan) => Ok(plan),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn targets_are_told_apart() {
        assert_eq!(trace(&["a:f"]).unwrap().who, Who::Host);
        assert_eq!(trace(&["-p", "7", "a:f"]).unwrap().who, Who::Process(7));
        assert_eq!(
            trace(&["a:f", "-c", "web", "b:g"]).unwrap().who,
            Who::Container("web".into())
        );
        let plan = trace(&["a:f", "--", "sleep", "--stack"]).unwrap();
        assert_eq!(
            plan.who,
            Who::Command(vec!["sleep".into(), "--stack".into()])
        );
        assert!(!plan.stack);
        assert!(trace(&["-p", "1", "-c", "web", "a:f"]).is_err());
        assert!(trace(&["-p", "1", "a:f", "--", "true"]).is_err());
        assert!(trace(&["-p", "0", "a:f"]).is_err());
        assert!(trace(&[]).is_err());
    }

    #[test]
    fn time_spans_may_have_fractions() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "x", "0", "-1", "NaN", "inf", "1e300", "1s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ring_sizes_are_refused_with_a_reason() {
        assert_eq!(ring_bytes("4096"), Ok(4096));
        assert_eq!(ring_bytes("1M"), Ok(1 << 20));
        for bad in [
            "0",
            "1000",
            "2048",
            "99999999999999999999",
            "1024M",
            "K",
            "-1",
        ] {
            assert!(ring_bytes(bad).is_err(), "{bad}");
        }
    }
}
