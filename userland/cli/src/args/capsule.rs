// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe record`, and what is done with its capsules.

use super::plan::{
    Detail, InfoPlan, RecordPlan, ReportKey, ReportPlan, ScriptPlan, Shown, SymbolizePlan,
    TargetSpec,
};
use super::profile::frequency;
use super::raw;
use super::trace::RecordsArguments;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use libnsprobe::common::abi::{
    TASKS_LIFE, TASKS_MOVES, TASKS_NAMES, TASKS_SWITCHES, TASKS_UNFILTERED, TASKS_WAKEUPS,
};
use libnsprobe::SetupOptions;
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
    override_usage = "nsprobe record -o FILE [OPTIONS] [-c CONTAINER | -p PID] PROBE...\n       \
                      nsprobe record -o FILE [OPTIONS] PROBE... -- COMMAND [ARGUMENT]...\n       \
                      nsprobe record -o FILE [OPTIONS] -c CONTAINER | -p PID | --all\n       \
                      nsprobe record -o FILE [OPTIONS] -- COMMAND [ARGUMENT]...",
    after_help = "Without a PROBE, tasks are recorded: their forks, programs, names and ends, context switches \
                  and wake-ups.\n\n\
                  What is recorded can be printed on any machine: `nsprobe script`, `report`, `info`, \
                  `export`.\n\n\
                  Examples:\n  \
                  nsprobe record -o tasks.nsprobe --all -t 10\n  \
                  nsprobe record -o web.nsprobe -c web /usr/bin/redis-server:setCommand --stack -t 10\n  \
                  nsprobe record -o - libc.so.6:malloc --stack -n 1000 | ssh host 'cat > m.nsprobe'",
    mut_args(unlike_trace)
)]
pub(super) struct RecordArguments {
    /// The capsule to write; `-` for standard output, to a pipe
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    replace: bool,
    /// Look up no names: `nsprobe symbolize` does it later, from the files
    #[arg(long)]
    no_names: bool,
    /// Record no tasks. Without this, the capsule has who lived, came and went, in which container
    #[arg(long, conflicts_with_all = ["switches", "wakeups"])]
    no_tasks: bool,
    /// Record samples of what runs on the CPUs, with stacks, as `nsprobe profile` counts them
    #[arg(long, conflicts_with_all = ["flight", "count"])]
    profile: bool,
    /// With --profile: samples a second of each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value = "99", value_parser = frequency,
          allow_negative_numbers = true, requires = "profile")]
    frequency: u32,
    /// Record tasks of the whole machine, without a PROBE
    #[arg(long, conflicts_with_all = ["container", "pid", "tid", "comm", "uid", "cgroup", "command"])]
    all: bool,
    /// Record context switches, too, as without a PROBE: there may be many
    #[arg(long, conflicts_with = "flight")]
    switches: bool,
    /// Record wake-ups, too, as without a PROBE: there may be many
    #[arg(long, conflicts_with = "flight")]
    wakeups: bool,
    #[command(flatten)]
    records: RecordsArguments,
}

#[derive(Debug, Args)]
pub(super) struct ScriptArguments {
    /// A capsule, as `nsprobe record` writes them
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Print nothing on standard error but errors and losses
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more on standard error: the counters of each probe, where names came from
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  nsprobe report web.nsprobe --by comm,path\n  \
                  nsprobe report web.nsprobe --folded > web.folded")]
pub(super) struct ReportArguments {
    /// A capsule, as `nsprobe record` writes them
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Count by these, too, separated by commas: func, pid, tid, nspid, nstid, comm, cpu, container,
    /// or the name of a field that was recorded, such as arg1 or path
    #[arg(short, long, value_name = "KEYS", value_delimiter = ',')]
    by: Vec<ReportKey>,
    /// Print the N greatest only
    #[arg(long, value_name = "N", default_value = "20",
          value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Print one line for each stack, its functions from the outermost on and its count, as flame
    /// graphs are made of; all of them
    #[arg(long, conflicts_with_all = ["json", "top"])]
    folded: bool,
    /// Print stacks, also of a recording of CPU samples
    #[arg(long, conflicts_with_all = ["json", "folded", "functions", "callers"])]
    stacks: bool,
    /// Print how many hits are in each function itself, and with what it calls; without it that is
    /// printed of CPU samples
    #[arg(long, conflicts_with_all = ["json", "folded"])]
    functions: bool,
    /// The same, and who calls each function
    #[arg(long, conflicts_with_all = ["json", "folded"])]
    callers: bool,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Print nothing on standard error but errors and losses
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more on standard error: the counters of each probe, where names came from
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
pub(super) struct InfoArguments {
    /// A capsule, as `nsprobe record` writes them
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --capsule, each line of standard input is a place: `BUILDID+0xOFFSET`, \
                  `BUILDID OFFSET`, or with --json an object with `build_id` and `offset`. OFFSET is \
                  in the file, not an address; it is hexadecimal with 0x, else decimal.\n\n\
                  Examples:\n  \
                  nsprobe symbolize --capsule web.nsprobe --debug-dir /srv/debug\n  \
                  echo 5e5b51f4c39af9ac589408c1dc432ba390a273cc+0x29ca8 | nsprobe symbolize --debug-dir /usr/lib"
)]
pub(super) struct SymbolizeArguments {
    /// Name what is recorded in this capsule: the names are added to it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "return_addresses"])]
    capsule: Option<PathBuf>,
    /// Where the files are: in its .build-id, or anywhere in it, found by their build-ids; may be
    /// given several times
    #[arg(long = "debug-dir", value_name = "DIRECTORY", required = true)]
    directories: Vec<PathBuf>,
    /// Offsets are return addresses, as of all frames but the innermost: look in front of them
    #[arg(long)]
    return_addresses: bool,
    /// Read and print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
}

impl RecordArguments {
    pub(super) fn plan(self) -> Result<RecordPlan, clap::Error> {
        let mut tasks = self.tasks();
        let mut trace = self.records.plan()?;
        if self.profile {
            trace.options.samples_hz = Some(self.frequency);
            trace.stack = true;
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
                     calls; or -c CONTAINER, -p PID or -- COMMAND to record tasks of these, or --all \
                     to record those of the whole machine",
                ));
            }
            if options.follow && options.who == TargetSpec::Host {
                return Err(raw(
                    "--follow without a PROBE goes with -c CONTAINER; --all has tasks of all containers",
                ));
            }
            if self.all {
                // The time that nsprobe takes itself is no idle time.
                tasks |= TASKS_UNFILTERED;
            }
            // Most of what a command does, its children do.
            options.tasks.children |= matches!(options.who, TargetSpec::Command(_));
        }
        if trace.options.json {
            return Err(raw(
                "--json: it is `nsprobe script --json` that prints a capsule so",
            ));
        }
        Ok(RecordPlan {
            output: self.output,
            replace: self.replace,
            names: !self.no_names,
            // A flight recorder's rings are for hits, and who lives at its end is another matter.
            tasks: if trace.setup.overwrite { 0 } else { tasks },
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
        "ring_size" => option.help(
            "Bytes of each CPU's ring: a power of two; K and M are understood. Without it all rings \
             together take 4M, each 256K to 2M; without a PROBE each takes 2M",
        ),
        "follow" => option.help(
            "Also in containers that start later: where they have a file at the same path, or with \
             the same build-id. With -c, which then may be a glob, only in containers of that name, \
             and when there is none, wait for the first. Without a PROBE it goes with -c",
        ),
        "command" => option.help(
            "Start this command, trace it alone, without a PROBE with what it starts, and end with \
             it; a command that still runs at the end is terminated",
        ),
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
            by: self.by,
            top: if self.folded {
                usize::MAX
            } else {
                self.top as usize
            },
            shown: match (self.folded, self.stacks, self.functions || self.callers) {
                (true, ..) => Some(Shown::Folded),
                (_, true, _) => Some(Shown::Frames),
                (.., true) => Some(Shown::Functions {
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
