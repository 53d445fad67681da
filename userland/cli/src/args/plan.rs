// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command line means.

use crate::spec::{ListSpec, ProbeSpec};
use libnsprobe::common::histogram::Scale;
use libnsprobe::{Limits, SetupOptions};
use nsprobe_plan::syntax::{Assignment, Field};
use nsprobe_worker::Sandbox;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Name places in files.
    Symbolize(SymbolizePlan),
    /// Count.
    Aggregate(AggregatePlan),
    /// List functions.
    List(ListPlan),
    /// See where probes are armed.
    Verify(ProbeOptions),
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
    /// Containers whose name, id or namespace fits this glob, also those that come later.
    Group(String),
    /// A process.
    Process(u32),
    /// A command that we start: its words, never empty.
    Command(Vec<OsString>),
}

/// What to probe, and for how long.
#[derive(Debug)]
pub(crate) struct ProbeOptions {
    pub(crate) who: Who,
    pub(crate) tasks: Tasks,
    pub(crate) probes: Vec<ProbeSpec>,
    /// Whose hits freeze the record.
    pub(crate) triggers: Vec<ProbeSpec>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// Whether stacks follow frame pointers alone.
    pub(crate) frame_pointers: bool,
    /// Of the unwind rows of files.
    pub(crate) rows: RowsOptions,
    /// Whether debuginfod servers are asked for debug information.
    pub(crate) debuginfod: bool,
    /// Whether containers that come later are traced, too.
    pub(crate) follow: bool,
    pub(crate) max_probes: usize,
    pub(crate) inlined: bool,
    pub(crate) exact: bool,
    /// How many of the hits are wanted.
    pub(crate) limits: Limits,
    /// How returns are seen.
    pub(crate) returns: Returns,
}

/// How the returns of functions are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Returns {
    /// By a return probe, unless that may break the program
    #[default]
    Auto,
    /// By a return probe of the kernel's: it follows 64 nested calls, and puts an address of its
    /// own on the stack
    Uretprobe,
    /// By probes on the instructions that leave the function
    Ret,
}

/// Which tasks of the target count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) tids: Vec<u32>,
    pub(crate) children: bool,
    pub(crate) comm: Option<Vec<u8>>,
    pub(crate) uid: Option<u32>,
    pub(crate) cgroup: Option<PathBuf>,
}

/// How to trace.
#[derive(Debug)]
pub(crate) struct TracePlan {
    pub(crate) options: ProbeOptions,
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
    /// The capsule; `-` for standard output.
    pub(crate) output: PathBuf,
    /// Whether it may take the place of another file.
    pub(crate) force: bool,
    /// Whether names are looked up.
    pub(crate) names: bool,
}

/// How to print a capsule.
#[derive(Debug)]
pub(crate) struct ScriptPlan {
    pub(crate) file: PathBuf,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

/// How to count what a capsule has.
#[derive(Debug)]
pub(crate) struct ReportPlan {
    pub(crate) file: PathBuf,
    pub(crate) by: Vec<ReportKey>,
    pub(crate) top: usize,
    pub(crate) folded: bool,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

/// What hits in a capsule are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReportKey {
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

/// How to tell what a capsule is.
#[derive(Debug)]
pub(crate) struct InfoPlan {
    pub(crate) file: PathBuf,
    pub(crate) json: bool,
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

/// How to count.
#[derive(Debug)]
pub(crate) struct AggregatePlan {
    pub(crate) options: ProbeOptions,
    pub(crate) what: Aggregate,
    pub(crate) by: Vec<Field>,
    /// What is added up, or spread over buckets.
    pub(crate) value: Option<Field>,
    pub(crate) interval: Option<Duration>,
    pub(crate) top: usize,
    pub(crate) rows: u32,
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
        /// As flame graphs want it.
        folded: bool,
    },
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

/// What becomes of unwind rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowsOptions {
    /// They are kept for later runs.
    pub(crate) cache: bool,
    /// How long the module keeps those that no stack goes through.
    pub(crate) keep: Duration,
    /// How the processes that parse files of containers are kept in.
    pub(crate) sandbox: Sandbox,
}
