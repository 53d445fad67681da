// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe record`, and what is done with its capsules.

use super::candidates::hit_keys;
use super::help::{LIMITS, OUTPUT, SHOW, TARGET};
use super::plan::{
    Detail, HitKey, InfoPlan, RecordPlan, ReportKey, ReportPlan, ScriptPlan, StackOutput,
    SymbolizePlan,
};
use super::profile::frequency;
use super::raw;
use super::trace::RecordsArguments;
use super::value::rows;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use libnsprobe::common::abi::{
    TASKS_LIFE, TASKS_MOVES, TASKS_NAMES, TASKS_SWITCHES, TASKS_UNFILTERED, TASKS_WAKEUPS,
};
use libnsprobe::SetupOptions;
use nsprobe_trace::options::{RecordOptions, TargetSpec};
use nsprobe_trace::placeless::Placeless;
use nsprobe_trace::rights;
use std::path::PathBuf;

/// Bytes of each CPU's ring without a PROBE: every context switch is an event.
const TASK_RING_BYTES: u64 = 2 << 20;
/// Options of `record` that do not need a PROBE.
const WITHOUT_PROBE: [&str; 19] = [
    "output",
    "replace",
    "switches",
    "wakeups",
    "all",
    "container",
    "pid",
    "tid",
    "children",
    "comm",
    "uid",
    "cgroup",
    "timeout",
    "json",
    "quiet",
    "verbose",
    "follow",
    "ring_size",
    "command",
];

#[derive(Debug, Args)]
#[command(
    override_usage = "nsprobe record -o FILE [OPTIONS] [-c NAME | -p PID] PROBE...\n       \
                      nsprobe record -o FILE [OPTIONS] PROBE... -- COMMAND [ARGUMENT]...\n       \
                      nsprobe record -o FILE [OPTIONS] -c NAME | -p PID | --all\n       \
                      nsprobe record -o FILE [OPTIONS] -- COMMAND [ARGUMENT]...",
    after_help = "Example:\n  \
                  nsprobe record -o web.nsprobe -c web /usr/bin/redis-server:setCommand --stack -t 10",
    after_long_help = "Without a PROBE, nsprobe records tasks: forks, execs, names, exits, context \
                  switches and wake-ups.\n\n\
                  `nsprobe script`, `report`, `info` and `export` read a capsule on any machine.\n\n\
                  Examples:\n  \
                  nsprobe record -o tasks.nsprobe --all -t 10\n  \
                  nsprobe record -o web.nsprobe -c web /usr/bin/redis-server:setCommand --stack -t 10\n  \
                  nsprobe record -o - libc.so.6:malloc --stack -n 1000 | ssh host 'cat > m.nsprobe'",
    mut_args(unlike_trace)
)]
pub(super) struct RecordArguments {
    /// Record CPU samples with stacks, as `nsprobe profile`
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["flight", "count"])]
    profile: bool,
    /// With --profile: samples a second on each CPU
    #[arg(short = 'F', long, help_heading = SHOW, value_name = "HZ", default_value = "99", value_parser = frequency,
          allow_negative_numbers = true, requires = "profile")]
    frequency: u32,
    /// Also record context switches; there may be many
    #[arg(long, help_heading = SHOW, conflicts_with = "flight")]
    switches: bool,
    /// Also record wake-ups; there may be many
    #[arg(long, help_heading = SHOW, conflicts_with = "flight")]
    wakeups: bool,
    /// Record no tasks: no forks, execs, exits and containers
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["switches", "wakeups"])]
    no_tasks: bool,
    #[command(flatten)]
    records: RecordsArguments,
    /// Without a PROBE: tasks of the whole machine
    #[arg(long, help_heading = TARGET, conflicts_with_all = ["container", "pid", "tid", "comm", "uid", "cgroup", "command"])]
    all: bool,
    /// The capsule to write; `-` is standard output, to a pipe
    #[arg(short, long, help_heading = OUTPUT, display_order = 0, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long, help_heading = OUTPUT)]
    replace: bool,
    /// Leave names to `nsprobe symbolize`
    #[arg(long, help_heading = OUTPUT)]
    no_names: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe script web.nsprobe")]
pub(super) struct ScriptArguments {
    /// A capsule that `nsprobe record` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Print only errors and losses on standard error
    #[arg(short, long, help_heading = OUTPUT, conflicts_with = "verbose")]
    quiet: bool,
    /// Print counters of each probe, and the sources of names
    #[arg(short, long, help_heading = OUTPUT)]
    verbose: bool,
}

/// What hits of a capsule are counted by.
#[derive(Debug, Args)]
pub(super) struct ReportKeyArguments {
    /// Also count by keys, such as comm,path
    #[arg(short, long, help_heading = SHOW, value_name = "KEYS", value_delimiter = ',',
          add = hit_keys(), long_help = format!(
        "Also count by keys, such as comm,path\n\nSeparated by commas: {}, or the name of a recorded \
         field, such as arg1 or path.", HitKey::names().join(", ")))]
    pub(super) by: Vec<ReportKey>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe report web.nsprobe --by comm",
    after_long_help = "Examples:\n  \
                  nsprobe report web.nsprobe --by comm,path\n  \
                  nsprobe report web.nsprobe --folded > web.folded"
)]
pub(super) struct ReportArguments {
    /// A capsule that `nsprobe record` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    keys: ReportKeyArguments,
    /// Print stacks; the default, but for CPU samples
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["json", "folded", "functions", "callers"])]
    stacks: bool,
    /// Print functions; the default for CPU samples
    ///
    /// Hits in each function itself, and with the functions that it calls.
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["json", "folded"])]
    functions: bool,
    /// Print functions with their callers
    #[arg(long, help_heading = SHOW, conflicts_with_all = ["json", "folded"])]
    callers: bool,
    /// Print all stacks folded, one a line
    ///
    /// The functions of a stack from the outermost on, and its count, or of samples nanoseconds of
    /// CPU time: what flame graphs are made of.
    #[arg(long, help_heading = OUTPUT, conflicts_with_all = ["json", "top"])]
    folded: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Print only errors and losses on standard error
    #[arg(short, long, help_heading = OUTPUT, conflicts_with = "verbose")]
    quiet: bool,
    /// Print counters of each probe, and the sources of names
    #[arg(short, long, help_heading = OUTPUT)]
    verbose: bool,
    /// Print only the N greatest
    ///
    /// Without it, 20; all of them with --json and --folded.
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nsprobe info web.nsprobe")]
pub(super) struct InfoArguments {
    /// A capsule that `nsprobe record` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nsprobe symbolize --capsule web.nsprobe --debug-dir /srv/debug",
    after_long_help = "Without --capsule, each line of standard input is a place: `BUILDID+0xOFFSET`, \
                  `BUILDID OFFSET`, or with --json an object with `build_id` and `offset`. OFFSET is \
                  in the file, not an address; it is hexadecimal with 0x, else decimal.\n\n\
                  Examples:\n  \
                  nsprobe symbolize --capsule web.nsprobe --debug-dir /srv/debug\n  \
                  echo 5e5b51f4c39af9ac589408c1dc432ba390a273cc+0x29ca8 | nsprobe symbolize --debug-dir /usr/lib"
)]
pub(super) struct SymbolizeArguments {
    /// Add the names to this capsule
    #[arg(long, help_heading = TARGET, value_name = "FILE", conflicts_with_all = ["json", "return_addresses"])]
    capsule: Option<PathBuf>,
    /// A directory with the files or their debug files
    ///
    /// Found by build-id, in its .build-id or anywhere below. May be given several times.
    #[arg(long = "debug-dir", help_heading = TARGET, value_name = "DIRECTORY", required = true)]
    directories: Vec<PathBuf>,
    /// Offsets are return addresses: name the call before them
    #[arg(long, help_heading = TARGET)]
    return_addresses: bool,
    /// Read and print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

impl RecordArguments {
    pub(super) fn plan(self) -> Result<RecordPlan, clap::Error> {
        let mut tasks = self.tasks();
        let mut trace = self.records.plan()?;
        if self.profile {
            trace.options.placeless = Some(Placeless::Samples { hz: self.frequency });
            trace.stack = true;
            trace.kernel_stack |= rights::may_see_kernel();
            // Most of what a command does, its children do.
            trace.options.tasks.children |= matches!(trace.options.who, TargetSpec::Command(_));
        } else if trace.options.probes.is_empty() {
            tasks |= TASKS_SWITCHES | TASKS_WAKEUPS;
            if trace.setup.ring_bytes == 0 {
                trace.setup = SetupOptions::with_ring_bytes(TASK_RING_BYTES);
            }
            let options = &mut trace.options;
            let all_of_host = options.who == TargetSpec::Host && options.tasks.are_all();
            if all_of_host && !self.all {
                return Err(raw(
                    "no PROBE, and no target whose tasks are recorded: give a PROBE to record its \
                     calls; or -c NAME, -p PID or -- COMMAND to record tasks of these, or --all \
                     to record those of the whole machine",
                ));
            }
            if options.follow && options.who == TargetSpec::Host {
                return Err(raw(
                    "--follow without a PROBE goes with -c NAME; --all has tasks of all containers",
                ));
            }
            if self.all {
                // The time that nsprobe takes itself is no idle time.
                tasks |= TASKS_UNFILTERED;
            }
            // Most of what a command does, its children do.
            options.tasks.children |= matches!(options.who, TargetSpec::Command(_));
        }
        if trace.printing.json {
            return Err(raw(
                "--json: it is `nsprobe script --json` that prints a capsule so",
            ));
        }
        Ok(RecordPlan {
            record: RecordOptions {
                output: self.output,
                replace: self.replace,
                names: !self.no_names,
                // A flight recorder's rings are for hits, and who lives at its end is another matter.
                tasks: if trace.setup.overwrite { 0 } else { tasks },
            },
            trace,
        })
    }

    /// What is recorded of tasks.
    fn tasks(&self) -> u32 {
        if self.no_tasks {
            return 0;
        }
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        TASKS_LIFE
            | TASKS_NAMES
            | TASKS_MOVES
            | flag(self.switches, TASKS_SWITCHES)
            | flag(self.wakeups, TASKS_WAKEUPS)
    }
}

/// The options that `record` has in common with `trace`, where they are not the same.
fn unlike_trace(option: Arg) -> Arg {
    match option.get_id().as_str() {
        // Refused with what to do instead.
        "json" => option.hide(true),
        "probes" => option.required(false),
        "stack" => option.help("Record the user stack of each call"),
        "kernel_stack" => option.help("Also record the kernel stack of each call"),
        "ring_size" => option.long_help(
            "Size of each CPU's ring\n\nBYTES is a power of two, with K or M behind it or without. By \
             default all rings together take 4M, each 256K to 2M; without a PROBE each takes 2M.",
        ),
        "command" => option.long_help(
            "Start this command as the target, without a PROBE with its children, and end with it\n\nA \
             command that still runs at the end is terminated.",
        ),
        // A screen has no room for these.
        "children" | "every" | "frequency" | "rate" | "tid" | "trigger" | "verbose" | "wakeups" => {
            option.hide_short_help(true)
        }
        _ => option,
    }
}

/// Refuses options of `record` that say something of probes where there is none.
pub(super) fn check_options(command: &Command, given: &ArgMatches) -> Result<(), clap::Error> {
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    if is_given("probes") || is_given("profile") {
        return Ok(());
    }
    let record = command.find_subcommand("record").into_iter();
    let mut useless = record.flat_map(Command::get_arguments).filter(|option| {
        let id = option.get_id().as_str();
        !WITHOUT_PROBE.contains(&id) && given.ids().any(|known| known == id) && is_given(id)
    });
    match useless.next().and_then(|option| option.get_long()) {
        Some(name) => Err(raw(&format!(
            "--{name} goes with a PROBE, and none is given"
        ))),
        None => Ok(()),
    }
}

impl ScriptArguments {
    pub(super) fn plan(self) -> ScriptPlan {
        ScriptPlan {
            file: self.file,
            json: self.json,
            detail: Detail::new(self.quiet, self.verbose),
        }
    }
}

impl ReportArguments {
    pub(super) fn plan(self) -> ReportPlan {
        ReportPlan {
            file: self.file,
            by: self.keys.by,
            top: rows(self.top, self.json || self.folded),
            shown: match (self.folded, self.stacks, self.functions || self.callers) {
                (true, ..) => Some(StackOutput::Folded),
                (_, true, _) => Some(StackOutput::Frames),
                (.., true) => Some(StackOutput::Functions {
                    callers: self.callers,
                }),
                _ => None,
            },
            json: self.json,
            detail: Detail::new(self.quiet, self.verbose),
        }
    }
}

impl InfoArguments {
    pub(super) fn plan(self) -> InfoPlan {
        InfoPlan {
            file: self.file,
            json: self.json,
        }
    }
}

impl SymbolizeArguments {
    pub(super) fn plan(self) -> SymbolizePlan {
        SymbolizePlan {
            capsule: self.capsule,
            directories: self.directories,
            return_addresses: self.return_addresses,
            json: self.json,
        }
    }
}
