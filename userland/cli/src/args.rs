// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: what was typed ([`Arguments`]), and what it means
//! ([`Plan`]). Nothing below sees raw arguments.

mod aggregate;
mod capsule;
mod export;
mod limits;
mod plan;
mod probe;
mod profile;
pub(crate) mod servers;
pub(crate) mod spec;
mod tasks;
mod trace;
mod value;

pub(crate) use plan::{
    Aggregate, AggregatePlan, ContainersPlan, CtfPlan, Detail, ExportPlan, HitKey, InfoPlan,
    ListPlan, PicturePlan, Plan, ProbeOptions, PsColumn, PsPlan, RecordPlan, ReportKey, ReportPlan,
    Returns, RowsOptions, ScriptPlan, Shown, StatusPlan, SymbolizePlan, TargetSpec, Tasks, TopPlan,
    TopSort, TracePlan, TreePlan,
};

use aggregate::{CountArguments, HistArguments, StacksArguments};
use capsule::{
    InfoArguments, RecordArguments, ReportArguments, ScriptArguments, SymbolizeArguments,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use export::ExportArguments;
use libnsprobe::Limits;
use nsprobe_symbolize::escaped;
use probe::{DebuginfodArguments, SandboxArguments, WhoArguments};
use profile::ProfileArguments;
use std::ffi::OsString;
use std::process::ExitCode;
use std::str::FromStr;
use tasks::{PsArguments, TopArguments, TreeArguments};
use trace::{SetArguments, TraceArguments};

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
    /// Sample what runs on the CPUs: which functions take the time
    Profile(ProfileArguments),
    /// Record calls, or tasks alone, into a file, a capsule, that can be printed anywhere
    Record(RecordArguments),
    /// Print what a capsule has, as `trace` would have
    Script(ScriptArguments),
    /// Count what a capsule has, by stacks
    Report(ReportArguments),
    /// Show what a capsule is: where and when it was recorded, its probes, files and losses
    Info(InfoArguments),
    /// Write what a capsule has in a format that other programs read
    Export(ExportArguments),
    /// Name places in files, or in a capsule that was recorded without names
    Symbolize(SymbolizeArguments),
    /// List the functions of a program or library that can be probed
    List(ListArguments),
    /// Attach probes, see in which processes they are really armed and why not in others, and detach
    Verify(VerifyArguments),
    /// List the containers of this machine, whatever runs them
    #[command(visible_alias = "ls")]
    Containers(ContainersArguments),
    /// List tasks by container, with their numbers in it
    Ps(PsArguments),
    /// Show the tree of pid namespaces, and the containers in it
    Tree(TreeArguments),
    /// Show who takes the CPUs, by container
    Top(TopArguments),
    /// Show the module, its sessions, their probes and counters
    Status(StatusArguments),
    /// Stop, and when continued, become another program
    #[command(hide = true)]
    ExecStopped(ExecArguments),
}

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    who: WhoArguments,
    #[command(flatten)]
    sandbox: SandboxArguments,
    #[command(flatten)]
    servers: DebuginfodArguments,
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
    #[command(flatten)]
    sandbox: SandboxArguments,
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
            samples_hz: None,
            timeout: None,
            json: self.json,
            quiet: false,
            verbose: false,
            frame_pointers: false,
            debuginfod: false,
            rows: RowsOptions::default(),
            follow: false,
            max_probes: self.max_probes as usize,
            inlined: false,
            exact: false,
            limits: Limits::default(),
            returns: Returns::Auto,
            force: false,
            sandbox: self.sandbox.plan(),
            triggers: Vec::new(),
        })
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Needs no module. What root alone may read is not known to others.")]
struct ContainersArguments {
    /// Also those that do not run, and pid namespaces that nobody has named
    #[arg(short, long)]
    all: bool,
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

/// The plan of this process's command line; an exit code when there is none to
/// be run: help was printed, or an error.
pub(crate) fn plan() -> Result<Plan, ExitCode> {
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
        let mut command = Arguments::command();
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
            Verb::ExecStopped(arguments) => Plan::ExecStopped(arguments.command),
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
mod tests {
    use super::value::{ring_bytes, seconds};
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    /// Prints the words that each line of its second argument gives to `nsprobe`. Lines that
    /// write files write them in the folder of the first. No other program can be run.
    const SHELL: &str = r#"exec 3>&1; cd "$1"; PATH=
        sudo() { "$@"; }
        nsprobe() { printf '%s\0' nsprobe "$@" '' >&3; }
        eval "$2""#;

    /// The command lines of nsprobe in a text, as a shell takes them apart.
    fn command_lines(text: &str) -> Vec<Vec<String>> {
        let folder = std::env::temp_dir().join(format!("nsprobe-lines-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", SHELL, "sh"]).arg(&folder).arg(text);
        let told = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let lines = told.split_terminator("\0\0");
        lines
            .map(|line| line.split('\0').map(str::to_owned).collect())
            .collect()
    }

    /// The shell code of a page.
    fn shell_code(page: &str) -> String {
        let blocks = page.split("```sh\n").skip(1);
        blocks
            .filter_map(|block| block.split("```").next())
            .collect()
    }

    /// The examples in the help of a verb, and in that of those below.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let behind = help.split_once("Example").map(|(_, behind)| behind);
        let lines = behind.into_iter().flat_map(|text| text.lines().skip(1));
        let own = lines.map(|line| line.trim().to_owned());
        own.chain(command.get_subcommands().flat_map(examples))
            .collect()
    }

    fn trace(words: &[&str]) -> Result<TracePlan, clap::Error> {
        let words = ["nsprobe", "trace"].iter().chain(words);
        match Plan::of_words(words)? {
            Plan::Trace(plan) => Ok(plan),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn command_lines_of_the_documents_and_of_help_are_understood() {
        let examples = examples(&Arguments::command());
        let begins = |line: &&str| {
            let line = line.trim_start_matches("sudo ");
            line.starts_with("nsprobe ") || line.contains("| nsprobe ")
        };
        for text in [
            shell_code(include_str!("../../../README.md")),
            shell_code(include_str!("../../../docs/spec.md"))
                + &shell_code(include_str!("../../../docs/profiles.md")),
            examples.join("\n"),
        ] {
            let lines = command_lines(&text);
            let there = text.lines().filter(begins).count();
            assert!(there >= 8 && lines.len() == there, "{lines:#?} of {text}");
            for words in lines {
                let plan = Plan::of_words(&words);
                assert!(plan.is_ok(), "{words:?}: {}", plan.unwrap_err());
            }
        }
    }

    #[test]
    fn targets_are_told_apart() {
        assert_eq!(trace(&["a:f"]).unwrap().options.who, TargetSpec::Host);
        assert_eq!(
            trace(&["-p", "7", "a:f"]).unwrap().options.who,
            TargetSpec::Process(7)
        );
        assert_eq!(
            trace(&["a:f", "-c", "web", "b:g"]).unwrap().options.who,
            TargetSpec::Container("web".into())
        );
        let plan = trace(&["a:f", "--", "sleep", "--stack"]).unwrap();
        assert_eq!(
            plan.options.who,
            TargetSpec::Command(vec!["sleep".into(), "--stack".into()])
        );
        assert!(!plan.stack);
        assert!(trace(&["-p", "1", "-c", "web", "a:f"]).is_err());
        assert!(trace(&["-p", "1", "a:f", "--", "true"]).is_err());
        assert!(trace(&["-p", "0", "a:f"]).is_err());
        assert!(trace(&[]).is_err());
        let glob = trace(&["-c", "web-*", "a:f"]).unwrap_err().to_string();
        assert!(glob.contains("-c web-*: a glob needs --follow"), "{glob}");
        assert!(trace(&["-c", "web-*", "--follow", "a:f"]).is_ok());
    }

    #[test]
    fn a_record_without_a_probe_takes_what_concerns_tasks() {
        let record = |words: &[&str]| {
            let given = ["nsprobe", "record", "-o", "x"].iter().chain(words);
            Plan::of_words(given).map_err(|error| error.to_string())
        };
        for words in [&["--all"][..], &["-c", "web", "-t", "1"], &["--", "true"]] {
            assert!(record(words).is_ok(), "{words:?}");
        }
        for (words, why) in [
            (&[][..], "no PROBE, and no target"),
            (&["--all", "--every", "3"], "--every goes with a PROBE"),
            (&["--all", "--stack"], "--stack goes with a PROBE"),
            (&["--all", "--no-tasks"], "--no-tasks goes with a PROBE"),
            (&["--all", "--follow"], "--follow without a PROBE"),
        ] {
            let error = record(words).unwrap_err();
            assert!(error.contains(why), "{words:?}: {error}");
        }
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
