// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: what was typed ([`Arguments`]), and what it means
//! ([`Plan`]). Nothing below sees raw arguments.

mod limits;
mod plan;
mod value;

pub(crate) use plan::{
    Aggregate, AggregatePlan, ListPlan, Plan, ProbeOptions, Returns, RowsOptions, StatusPlan,
    Tasks, TracePlan, Who,
};

use clap::{Args, Parser, Subcommand};
use libnsprobe::common::abi::ROWS_MAX;
use libnsprobe::common::histogram::Scale;
use libnsprobe::{Limits, SetupOptions};
use limits::LimitArguments;
use nsprobe_plan::syntax::{Assignment, Field};
use nsprobe_symbolize::escaped;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use value::{linear, ring_bytes, seconds};

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
    /// Change arguments, results and variables of a running program, or leave calls out
    Set(SetArguments),
    /// Count calls in the kernel, by function or by whatever is wanted
    Count(CountArguments),
    /// Show how values, or the times of calls, are spread
    Hist(HistArguments),
    /// Count calls by their stacks
    Stacks(StacksArguments),
    /// List the functions of a program or library that can be probed
    List(ListArguments),
    /// Attach probes, see in which processes they are really armed and why not in others, and detach
    Verify(VerifyArguments),
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
    override_usage = "nsprobe trace [OPTIONS] [-c CONTAINER | -p PID] PROBE...\n       \
                      nsprobe trace [OPTIONS] PROBE... -- COMMAND [ARGUMENT]...",
    after_help = "Without -c, -p and COMMAND, BINARY is a file of this machine, and calls by any \
                  process are traced.\n\n\
                  Examples:\n  \
                  nsprobe trace -c web /usr/bin/redis-server:setCommand --stack\n  \
                  nsprobe trace -p 1234 'libc.so.6:malloc(size=arg1, $retval) if arg1 > 4096'\n  \
                  nsprobe trace ./app:'parse_*' -- ./app --once"
)]
struct TraceArguments {
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
    /// End after N calls
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

/// What goes with stacks.
#[derive(Debug, Args)]
struct RowsArguments {
    /// Compile how functions are left from each file anew. Without it that is kept for later runs
    /// in the directory that NSPROBE_CACHE names, else, for root, in /var/cache/nsprobe/rows
    #[arg(long)]
    no_cache: bool,
    /// Drop what the module has of a file for this when no stack has gone through it for S
    /// seconds; it comes again when one does
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true, default_value = "300")]
    keep_rows: Duration,
}

impl RowsArguments {
    fn plan(&self) -> RowsOptions {
        RowsOptions {
            cache: !self.no_cache,
            keep: self.keep_rows,
        }
    }
}

/// What all verbs that probe have in common, but for the probes.
#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    who: WhoArguments,
    #[command(flatten)]
    tasks: TaskArguments,
    /// End after S seconds, such as 0.5
    #[arg(short, long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Print nothing on standard error but errors
    #[arg(short, long)]
    quiet: bool,
    /// Most places that one PROBE may stand for
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_probes: u32,
    /// Probe functions also where the compiler inlined them; needs debug information
    #[arg(long)]
    inlined: bool,
    /// Put breakpoints at the very beginning of functions, not at a cheaper instruction behind it
    /// that means the same
    #[arg(long)]
    exact: bool,
    /// How the returns of functions are seen
    #[arg(
        long = "return",
        value_name = "HOW",
        value_enum,
        default_value = "auto"
    )]
    returns: Returns,
    /// Start this command, trace it alone, and end with it; a command that still runs at the end is
    /// terminated
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["container", "pid"])]
    command: Vec<OsString>,
}

/// Probes, and what goes with them.
#[derive(Debug, Args)]
struct ProbeArguments {
    /// What to probe (docs/spec.md): BINARY:FUNCTION, where BINARY is a path as the target sees it,
    /// or the name of a library that it has mapped, and FUNCTION a name, raw or readable, that may
    /// hold * and ?; behind it `(FIELD, ...)` and `if CONDITION`
    #[arg(value_name = "PROBE", required = true)]
    probes: Vec<String>,
    #[command(flatten)]
    limits: LimitArguments,
    /// Follow frame pointers in stacks, and do not look into the files for how their functions are
    /// left
    #[arg(long)]
    frame_pointers: bool,
    /// Also in containers that start later: where they have a file at the same path, or with the
    /// same build-id. With -c, which then may be a glob, only in containers of that name, and when
    /// there is none, wait for the first
    #[arg(long, conflicts_with_all = ["pid", "tid", "command"])]
    follow: bool,
    #[command(flatten)]
    run: RunArguments,
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
struct SetArguments {
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

/// Which tasks of the target count.
#[derive(Debug, Args)]
struct TaskArguments {
    /// Only these threads
    #[arg(long, value_name = "TID", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    tid: Vec<u32>,
    /// Also what the process, the threads or the command fork from now on
    #[arg(long)]
    children: bool,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    comm: Option<OsString>,
    /// Only this effective user
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// Only this control group and those below: a directory of the cgroup v2 file system
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
}

/// What all verbs that count have in common.
#[derive(Debug, Args)]
struct TableArguments {
    /// Count by these, separated by commas: func, pid, tid, comm, uid, cpu, container (its pid
    /// namespace), or any expression, such as arg1 or name=arg2:string[16]
    #[arg(short, long, value_name = "KEYS")]
    by: Option<String>,
    /// Print what there is every S seconds, since the last time
    #[arg(short, long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    interval: Option<Duration>,
    /// Print the N greatest only
    #[arg(long, value_name = "N", default_value = "20",
          value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Rows that the kernel keeps; calls that find none are counted
    #[arg(long, value_name = "N", default_value = "4096",
          value_parser = clap::value_parser!(u32).range(1..=ROWS_MAX as i64))]
    rows: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  nsprobe count -c web 'libssl.so.3:SSL_*'\n  \
                  nsprobe count libc.so.6:malloc --by comm,arg1 -t 5")]
struct CountArguments {
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Add up this, too
    #[arg(long, value_name = "EXPRESSION")]
    sum: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --of it is the time from the entry of a function to its return.\n\n\
                  Examples:\n  \
                  nsprobe hist -c web /usr/bin/redis-server:processCommand\n  \
                  nsprobe hist libc.so.6:malloc --of arg1 --by comm"
)]
struct HistArguments {
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Which value
    #[arg(long, value_name = "EXPRESSION")]
    of: Option<String>,
    /// COUNT equal buckets of STEP each from LOW on, instead of powers of two
    #[arg(long, value_name = "LOW:STEP:COUNT", value_parser = linear, allow_hyphen_values = true)]
    linear: Option<Scale>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
                  nsprobe stacks -c web libc.so.6:malloc --sum arg1 -t 10")]
struct StacksArguments {
    #[command(flatten)]
    common: ProbeArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Add up this, too
    #[arg(long, value_name = "EXPRESSION")]
    sum: Option<String>,
    /// Most frames of a stack
    #[arg(long, value_name = "N", default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..=127))]
    max_frames: u32,
    /// Print one line for each stack, its functions from the outermost on and its count, as flame
    /// graphs are made of
    #[arg(long, conflicts_with = "json")]
    folded: bool,
    #[command(flatten)]
    rows: RowsArguments,
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
#[command(
    after_help = "Exit code 1 when a probe is not armed in a mapping that it should be in.\n\n\
                        Example:\n  \
                        nsprobe verify -c web libssl.so.3:SSL_read"
)]
struct VerifyArguments {
    #[command(flatten)]
    who: WhoArguments,
    /// What to probe (docs/spec.md)
    #[arg(value_name = "PROBE", required = true)]
    probes: Vec<String>,
    /// Most places that one PROBE may stand for
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_probes: u32,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
}

impl VerifyArguments {
    fn plan(self) -> Result<ProbeOptions, clap::Error> {
        let probes = self.probes.iter().map(|text| spec(text));
        Ok(ProbeOptions {
            who: self.who.plan(Vec::new()),
            tasks: Tasks::default(),
            probes: probes.collect::<Result<_, _>>()?,
            timeout: None,
            json: self.json,
            quiet: false,
            frame_pointers: false,
            rows: RowsOptions::default(),
            follow: false,
            max_probes: self.max_probes as usize,
            inlined: false,
            exact: false,
            limits: Limits::default(),
            returns: Returns::Auto,
            triggers: Vec::new(),
        })
    }
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
            Verb::Set(arguments) => Plan::Trace(arguments.plan()?),
            Verb::Count(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::Hist(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::Stacks(arguments) => Plan::Aggregate(arguments.plan()?),
            Verb::List(arguments) => Plan::List(ListPlan {
                who: arguments.who.plan(Vec::new()),
                spec: spec(&arguments.binary)?,
                json: arguments.json,
            }),
            Verb::Verify(arguments) => Plan::Verify(arguments.plan()?),
            Verb::Status(StatusArguments { json }) => Plan::Status(StatusPlan { json }),
            Verb::ExecStopped(arguments) => Plan::ExecStopped(arguments.command),
        })
    }
}

impl TraceArguments {
    fn plan(self) -> Result<TracePlan, clap::Error> {
        let triggers = self.trigger.iter().map(|text| spec(text));
        let triggers = triggers.collect::<Result<_, _>>()?;
        Ok(TracePlan {
            options: ProbeOptions {
                triggers,
                rows: self.rows.plan(),
                ..self.common.plan()?
            },
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

impl ProbeArguments {
    fn plan(self) -> Result<ProbeOptions, clap::Error> {
        let limits = self.limits.plan();
        let options = self.run.plan(&self.probes)?;
        Ok(ProbeOptions {
            limits,
            frame_pointers: self.frame_pointers,
            follow: self.follow,
            who: match options.who {
                Who::Container(pattern) if self.follow => Who::Group(pattern),
                who => who,
            },
            ..options
        })
    }
}

impl RunArguments {
    fn plan(self, probes: &[String]) -> Result<ProbeOptions, clap::Error> {
        let probes = probes.iter().map(|text| spec(text));
        let who = self.who.plan(self.command);
        let tasks = self.tasks.plan(&who)?;
        Ok(ProbeOptions {
            who,
            tasks,
            probes: probes.collect::<Result<_, _>>()?,
            timeout: self.timeout,
            json: self.json,
            quiet: self.quiet,
            frame_pointers: false,
            rows: RowsOptions::default(),
            follow: false,
            max_probes: self.max_probes as usize,
            inlined: self.inlined,
            exact: self.exact,
            limits: Limits::default(),
            returns: self.returns,
            triggers: Vec::new(),
        })
    }
}

impl SetArguments {
    fn plan(self) -> Result<TracePlan, clap::Error> {
        let changes = self
            .changes
            .iter()
            .map(|text| Assignment::parse(text).map_err(|error| pointing("change", text, &error)));
        let changes = changes.collect::<Result<_, _>>()?;
        Ok(TracePlan {
            options: self.run.plan(&[self.probe])?,
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

/// What is wrong with a text, and where.
fn pointing(what: &str, text: &str, error: &nsprobe_plan::SpecError) -> clap::Error {
    let before = text.get(..error.span.start).unwrap_or(text);
    let (before, shown) = (escaped(before).to_string(), escaped(text));
    let column = before.chars().count();
    raw(&format!(
        "{what}: {error}\n    {shown}\n    {:column$}^",
        ""
    ))
}

impl TaskArguments {
    fn plan(self, who: &Who) -> Result<Tasks, clap::Error> {
        let comm = self.comm.map(|name| name.into_encoded_bytes());
        if comm
            .as_ref()
            .is_some_and(|name| !(1..=15).contains(&name.len()))
        {
            return Err(raw("--comm: a thread's name has 1 to 15 bytes"));
        }
        let lists = !self.tid.is_empty() || matches!(who, Who::Process(_) | Who::Command(_));
        if self.children && !lists {
            return Err(raw(
                "--children: of what? It goes with -p, --tid or a command",
            ));
        }
        Ok(Tasks {
            tids: self.tid,
            children: self.children,
            comm,
            uid: self.uid,
            cgroup: self.cgroup,
        })
    }
}

impl TableArguments {
    fn plan(
        self,
        common: ProbeArguments,
        what: Aggregate,
        value: Option<&str>,
    ) -> Result<AggregatePlan, clap::Error> {
        let options = common.plan()?;
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
            let error = spec.error(&nsprobe_plan::SpecError::new(span, message));
            return Err(raw(&error.to_string()));
        }
        let by = self
            .by
            .as_deref()
            .map(|text| fields(text, "--by"))
            .transpose()?;
        let mut value = value
            .map(|text| fields(text, "this option"))
            .transpose()?
            .unwrap_or_default();
        if value.len() > 1 {
            return Err(raw("only one value can be added up"));
        }
        Ok(AggregatePlan {
            options,
            what,
            by: by.unwrap_or_default(),
            value: value.pop(),
            interval: self.interval,
            top: self.top as usize,
            rows: self.rows,
        })
    }
}

impl CountArguments {
    fn plan(self) -> Result<AggregatePlan, clap::Error> {
        self.table
            .plan(self.common, Aggregate::Count, self.sum.as_deref())
    }
}

impl HistArguments {
    fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let scale = self.linear.unwrap_or(Scale::Log { bits: 2 });
        self.table
            .plan(self.common, Aggregate::Histogram(scale), self.of.as_deref())
    }
}

impl StacksArguments {
    fn plan(self) -> Result<AggregatePlan, clap::Error> {
        let what = Aggregate::Stacks {
            max_frames: self.max_frames,
            folded: self.folded,
        };
        let rows = self.rows.plan();
        let mut plan = self.table.plan(self.common, what, self.sum.as_deref())?;
        plan.options.rows = rows;
        Ok(plan)
    }
}

/// Keys or values; a few have names that need no dollar sign.
fn fields(text: &str, option: &str) -> Result<Vec<Field>, clap::Error> {
    const PLAIN: [(&str, &str); 10] = [
        ("func", "func=$probe"),
        ("pid", "pid=$pid"),
        ("tid", "tid=$tid"),
        ("nspid", "nspid=$nspid"),
        ("nstid", "nstid=$nstid"),
        ("uid", "uid=$uid"),
        ("cpu", "cpu=$cpu"),
        ("comm", "comm=$comm"),
        ("container", "container=$pidns"),
        ("elapsed", "elapsed=$elapsed"),
    ];
    let words = text.split(',').map(|word| {
        let known = PLAIN.iter().find(|(name, _)| *name == word.trim());
        known.map_or(word, |(_, meaning)| meaning)
    });
    let meaning = words.collect::<Vec<_>>().join(",");
    Field::parse_list(&meaning).map_err(|error| pointing(option, &meaning, &error))
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
    text.parse()
        .map_err(|error: T::Err| raw(&error.to_string()))
}

/// Raw: a caret says more than a usage line would.
fn raw(message: &str) -> clap::Error {
    let kind = clap::error::ErrorKind::ValueValidation;
    clap::Error::raw(kind, format!("{message}\n"))
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
        assert_eq!(trace(&["a:f"]).unwrap().options.who, Who::Host);
        assert_eq!(
            trace(&["-p", "7", "a:f"]).unwrap().options.who,
            Who::Process(7)
        );
        assert_eq!(
            trace(&["a:f", "-c", "web", "b:g"]).unwrap().options.who,
            Who::Container("web".into())
        );
        let plan = trace(&["a:f", "--", "sleep", "--stack"]).unwrap();
        assert_eq!(
            plan.options.who,
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
