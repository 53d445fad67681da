// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command line means.

mod tasks;

pub(crate) use tasks::{PsColumn, PsPlan, TopPlan, TopSort, TreePlan};

use libnsprobe::common::histogram::Scale;
use libnsprobe::SetupOptions;
use nsprobe_ctf::kernel::StatedumpShape;
use nsprobe_spec::syntax::{Assignment, Field};
use nsprobe_telemetry::Endpoint;
use nsprobe_trace::options::{RecordOptions, TargetSpec, TraceOptions};
use nsprobe_trace::spec::ListSpec;
use nsprobe_worker::Sandbox;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How much goes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Errors and losses.
    Quiet,
    /// What is needed to judge the output.
    Usual,
    /// All there is.
    Verbose,
}

impl Detail {
    /// By the options `-q` and `-v`.
    pub(crate) fn new(quiet: bool, verbose: bool) -> Detail {
        match (quiet, verbose) {
            (true, _) => Detail::Quiet,
            (false, false) => Detail::Usual,
            (false, true) => Detail::Verbose,
        }
    }
}

/// How a verb prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printing {
    /// JSON objects, not text.
    pub(crate) json: bool,
    pub(crate) detail: Detail,
}

/// Where to look for breakpoints.
#[derive(Debug)]
pub(crate) struct VerifyPlan {
    pub(crate) options: TraceOptions,
    pub(crate) json: bool,
}

/// How to trace.
#[derive(Debug)]
pub(crate) struct TracePlan {
    pub(crate) options: TraceOptions,
    pub(crate) printing: Printing,
    /// Where hits are printed to; standard output without one.
    pub(crate) output: Option<PathBuf>,
    pub(crate) stack: bool,
    /// Whether the kernel's stacks are printed.
    pub(crate) kernel_stack: bool,
    pub(crate) count: Option<u64>,
    pub(crate) setup: SetupOptions,
    /// What is changed at each hit, and how often at most.
    pub(crate) changes: Vec<Assignment>,
    pub(crate) max_writes: u32,
}

/// How to record.
#[derive(Debug)]
pub(crate) struct RecordPlan {
    pub(crate) trace: TracePlan,
    pub(crate) record: RecordOptions,
}

/// How to print a capsule.
#[derive(Debug)]
pub(crate) struct ScriptPlan {
    pub(crate) file: PathBuf,
    pub(crate) json: bool,
    pub(crate) detail: Detail,
}

/// How to count what a capsule has.
#[derive(Debug)]
pub(crate) struct ReportPlan {
    pub(crate) file: PathBuf,
    pub(crate) by: Vec<ReportKey>,
    pub(crate) top: usize,
    /// What is printed of stacks: what suits the recording when nothing is said.
    pub(crate) shown: Option<StackOutput>,
    pub(crate) json: bool,
    pub(crate) detail: Detail,
}

/// What hits in a capsule are counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportKey {
    /// What every hit has.
    Known(HitKey),
    /// A field that was recorded, by its name.
    Field(String),
}

/// What every hit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HitKey {
    /// The probe
    Func,
    /// The process
    Pid,
    /// The thread
    Tid,
    /// The process, as its container numbers it
    Nspid,
    /// The thread, as its container numbers it
    Nstid,
    /// The thread's name
    Comm,
    /// The CPU
    Cpu,
    /// The pid namespace
    Container,
}

impl HitKey {
    /// The names of all.
    pub(crate) fn names() -> Vec<String> {
        let values = <HitKey as clap::ValueEnum>::value_variants().iter();
        let names = values.filter_map(clap::ValueEnum::to_possible_value);
        names.map(|name| name.get_name().to_owned()).collect()
    }
}

impl FromStr for ReportKey {
    type Err = Infallible;

    /// A name that every hit knows, with or without the dollar sign that it has in specs, else
    /// that of a field.
    fn from_str(text: &str) -> Result<ReportKey, Infallible> {
        let text = text.trim();
        let name = text.strip_prefix('$').unwrap_or(text);
        let known = <HitKey as clap::ValueEnum>::from_str(name, false);
        Ok(known.map_or_else(|_| ReportKey::Field(text.to_owned()), ReportKey::Known))
    }
}

/// How to tell what a capsule is.
#[derive(Debug)]
pub(crate) struct InfoPlan {
    pub(crate) file: PathBuf,
    pub(crate) json: bool,
}

/// What to make of a capsule.
#[derive(Debug)]
pub(crate) enum ExportPlan {
    /// A trace in the Common Trace Format.
    Ctf(CtfPlan),
    /// Its stacks as a profile.
    Picture(PicturePlan),
}

/// How to write stacks as a profile.
#[derive(Debug)]
pub(crate) struct PicturePlan {
    pub(crate) file: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) format: nsprobe_profile::Format,
    /// Whether it may take the place of another file.
    pub(crate) replace: bool,
    pub(crate) by: Vec<ReportKey>,
    pub(crate) detail: Detail,
}

/// How to write a trace in the Common Trace Format.
#[derive(Debug)]
pub(crate) struct CtfPlan {
    pub(crate) file: PathBuf,
    /// The trace: a folder that is not there yet.
    pub(crate) directory: PathBuf,
    pub(crate) shape: StatedumpShape,
    pub(crate) quiet: bool,
}

/// How to name places in files.
#[derive(Debug)]
pub(crate) struct SymbolizePlan {
    /// The capsule whose places are named; without it they come from standard input.
    pub(crate) capsule: Option<PathBuf>,
    /// Where files are.
    pub(crate) directories: Vec<PathBuf>,
    /// Whether offsets are those of what follows a call.
    pub(crate) return_addresses: bool,
    pub(crate) json: bool,
}

/// How to run the agent.
#[derive(Debug)]
pub(crate) struct AgentPlan {
    /// The file that says what it does.
    pub(crate) config: PathBuf,
    /// Only to say whether that is right.
    pub(crate) check: bool,
}

/// What the agent does.
#[derive(Debug, Default)]
pub(crate) struct AgentConfig {
    /// Where metrics are asked for.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) metrics: Vec<MetricPlan>,
    pub(crate) profiles: Vec<ProfilePlan>,
    pub(crate) recordings: Vec<RecordingPlan>,
    pub(crate) outputs: OutputsPlan,
    pub(crate) belts: BeltsPlan,
}

/// What the agent may take of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BeltsPlan {
    /// Of one CPU.
    pub(crate) cpu_percent: f64,
    pub(crate) memory_bytes: u64,
}

impl Default for BeltsPlan {
    fn default() -> BeltsPlan {
        BeltsPlan {
            cpu_percent: 1.0,
            memory_bytes: 200 << 20,
        }
    }
}

/// Where the agent sends what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputsPlan {
    /// The server that takes pprof's profiles, and what it calls the application.
    pub(crate) pprof: Option<(Endpoint, String)>,
    /// The collector that takes metrics, and how often it gets them.
    pub(crate) otlp_metrics: Option<(Endpoint, Duration)>,
    /// The collector that takes profiles.
    pub(crate) otlp_profiles: Option<Endpoint>,
}

/// A profile of the agent.
#[derive(Debug)]
pub(crate) struct ProfilePlan {
    pub(crate) name: String,
    /// The command line of what takes it.
    pub(crate) command: String,
    /// What that means.
    pub(crate) counted: AggregatePlan,
    /// How often it is sent.
    pub(crate) interval: Duration,
}

/// A metric of the agent.
#[derive(Debug)]
pub(crate) struct MetricPlan {
    pub(crate) name: String,
    pub(crate) help: String,
    /// What counts.
    pub(crate) counted: AggregatePlan,
}

/// A recording of the agent, in several files.
#[derive(Debug)]
pub(crate) struct RecordingPlan {
    pub(crate) name: String,
    /// Its file is none of those.
    pub(crate) record: RecordPlan,
    pub(crate) directory: PathBuf,
    /// How long a file is written to.
    pub(crate) rotate: Duration,
    /// Most bytes of all files.
    pub(crate) max_bytes: u64,
    /// How long a file is kept.
    pub(crate) max_age: Duration,
}

/// How to count.
#[derive(Debug)]
pub(crate) struct AggregatePlan {
    pub(crate) options: TraceOptions,
    pub(crate) printing: Printing,
    /// Where rows are printed to; standard output without one. Stacks go there as a profile when
    /// its name ends as one.
    pub(crate) output: Option<PathBuf>,
    pub(crate) what: Aggregate,
    pub(crate) by: Vec<Field>,
    /// Whether `by` is for a picture only, whose stacks are those of several programs.
    pub(crate) are_keys_of_picture: bool,
    /// The text of `by`.
    pub(crate) by_text: String,
    /// The text of `value`.
    pub(crate) value_text: String,
    /// What is added up, or spread over buckets.
    pub(crate) value: Option<Field>,
    pub(crate) interval: Option<Duration>,
    pub(crate) top: usize,
    pub(crate) rows: u32,
    /// Whether stacks have the kernel's frames.
    pub(crate) kernel_stack: bool,
    /// What waits are joined with.
    pub(crate) join: Option<Join>,
}

/// The other side of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// What ended it.
    Waker,
    /// What held the lock that it was for; `all` also has waits that are for no lock.
    Holder {
        /// Condition variables, joins and barriers, too.
        all: bool,
    },
}

/// How to show what is allocated.
#[derive(Debug)]
pub(crate) struct LeakPlan {
    /// Its probes take the place of the allocators that are found.
    pub(crate) options: TraceOptions,
    pub(crate) printing: Printing,
    /// As of [`AggregatePlan`].
    pub(crate) output: Option<PathBuf>,
    /// Blocks that are not older are not shown.
    pub(crate) older_than: Duration,
    /// Bytes allocated per sample; zero for all blocks.
    pub(crate) sample: u64,
    pub(crate) interval: Option<Duration>,
    pub(crate) top: usize,
    /// Rows of the kernel's table: blocks.
    pub(crate) rows: u32,
    pub(crate) max_frames: u32,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    /// Calls, and sums.
    Count,
    /// How values are spread.
    Histogram(Scale),
    /// Calls by their stacks.
    Stacks {
        /// Most frames.
        max_frames: u32,
        shown: StackOutput,
    },
}

/// What is printed of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackOutput {
    /// Their frames.
    Frames,
    /// Locks, each with the stacks that wait for it.
    Locks,
    /// A line for each, as flame graphs want it.
    Folded,
    /// The functions in them, with what each takes.
    Functions {
        /// And who calls them.
        callers: bool,
    },
}

/// What to list.
#[derive(Debug)]
pub(crate) struct ListPlan {
    pub(crate) who: TargetSpec,
    pub(crate) spec: ListSpec,
    /// Whether debuginfod servers are asked for debug information.
    pub(crate) debuginfod: bool,
    /// How the processes that parse files of containers are kept in.
    pub(crate) sandbox: Sandbox,
    pub(crate) json: bool,
}

/// Which containers to list.
#[derive(Debug)]
pub(crate) struct ContainersPlan {
    /// Also those that do not run, and namespaces without a name.
    pub(crate) all: bool,
    pub(crate) json: bool,
}

/// How to show the state.
#[derive(Debug)]
pub(crate) struct StatusPlan {
    pub(crate) json: bool,
}
