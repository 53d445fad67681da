// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to trace, and how.

use crate::placeless::Placeless;
use crate::signals::Stop;
use crate::spec::ProbeSpec;
use libnsprobe::HitLimits;
use nsprobe_text::glob_fits;
use nsprobe_worker::Sandbox;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Most places that one probe stands for, unless more are asked for.
const PLACES_MAX: usize = 1000;

/// How long a program that starts in a container waits at most, unless the user says so.
pub const HOLD: Duration = Duration::from_millis(100);

/// Whose files are meant and who is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// This machine, all processes.
    Host,
    /// A container, by name, id or namespace.
    Container(String),
    /// Containers by names and globs.
    Group(ContainerGroup),
    /// Processes, at least one.
    Processes(Vec<u32>),
    /// A command that we start: its words, never empty.
    Command(Vec<OsString>),
}

/// Containers by names and globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerGroup {
    /// Names as of one container, or globs for a name, id or namespace; at least one.
    pub patterns: Vec<String>,
    /// Whether those that come later are traced, too.
    pub follow: bool,
}

impl ContainerGroup {
    /// Whether a name, id or namespace is that of one of them.
    pub(crate) fn fits(&self, name: &str) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|pattern| glob_fits(pattern, name))
    }

    /// The patterns, for people.
    pub(crate) fn text(&self) -> String {
        self.patterns.join(", ")
    }
}

/// What to trace, and how.
#[derive(Debug)]
pub struct TraceOptions {
    /// The processes that are traced.
    pub who: TargetSpec,
    /// Which of their tasks count.
    pub tasks: Tasks,
    /// What is probed.
    pub probes: Vec<ProbeSpec>,
    /// What is taken beside `probes`, or in their place.
    pub placeless: Option<Placeless>,
    /// Probes whose hits freeze the rings.
    pub triggers: Vec<ProbeSpec>,
    /// How long to trace at most.
    pub timeout: Option<Duration>,
    /// Whether notes and what is waited for are not printed on standard error.
    pub quiet: bool,
    /// Whether stacks follow frame pointers alone.
    pub frame_pointers: bool,
    /// How the unwind rows of files are kept.
    pub rows: RowsOptions,
    /// Whether debuginfod servers are asked for debug information.
    pub debuginfod: bool,
    /// Whether containers that come later are traced, too.
    pub follow: bool,
    /// How long a program that starts in a container waits at most for its probes, with `follow`;
    /// zero for not at all.
    pub hold: Duration,
    /// Most places that one of `probes` stands for.
    pub max_probes: usize,
    /// Whether inlined calls are probed, too.
    pub inlined: bool,
    /// Whether breakpoints go to the very first instruction of functions.
    pub exact: bool,
    /// Whether breakpoints may go to ten-byte nops.
    pub fast_nops: bool,
    /// How many of the hits are taken.
    pub limits: HitLimits,
    /// How returns are seen.
    pub returns: Returns,
    /// Whether what may harm the program is not refused.
    pub force: bool,
    /// How the processes that parse files of containers are kept in.
    pub sandbox: Sandbox,
    /// Ends the run in the place of signals, in a program that runs several.
    pub stop: Option<Stop>,
}

impl Default for TraceOptions {
    /// All processes, and nothing that is probed.
    fn default() -> TraceOptions {
        TraceOptions {
            who: TargetSpec::Host,
            tasks: Tasks::default(),
            probes: Vec::new(),
            placeless: None,
            triggers: Vec::new(),
            timeout: None,
            quiet: false,
            frame_pointers: false,
            rows: RowsOptions::default(),
            debuginfod: false,
            follow: false,
            hold: HOLD,
            max_probes: PLACES_MAX,
            inlined: false,
            exact: false,
            fast_nops: false,
            limits: HitLimits::default(),
            returns: Returns::default(),
            force: false,
            sandbox: Sandbox::Whole,
            stop: None,
        }
    }
}

/// How the returns of functions are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// By breakpoints on the instructions that leave the function.
    #[default]
    Auto,
    /// By a return probe of the kernel's, which replaces return addresses: programs that unwind or
    /// switch their stack end or hang.
    Uretprobe,
}

/// Which tasks of the target count.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// These threads; none for all.
    pub tids: Vec<u32>,
    /// Also processes that the target forks from then on.
    pub children: bool,
    /// Threads of this name, of 1 to 15 bytes.
    pub comm: Option<Vec<u8>>,
    /// Threads with this effective user.
    pub uid: Option<u32>,
    /// Threads in this directory of cgroup v2, or below.
    pub cgroup: Option<PathBuf>,
}

impl Tasks {
    /// Whether all tasks of the target count.
    pub fn are_all(&self) -> bool {
        self.tids.is_empty()
            && !self.children
            && self.comm.is_none()
            && self.uid.is_none()
            && self.cgroup.is_none()
    }
}

/// Where unwind rows are kept.
#[derive(Clone, Copy, Debug)]
pub struct RowsOptions {
    /// They are kept for later runs.
    pub cache: bool,
    /// The start waits for those of files that the target has mapped.
    pub wait: bool,
    /// How long the module keeps those that no stack goes through.
    pub keep: Duration,
    /// Memory for names and for the files that they come from, in bytes.
    pub names_bytes: u64,
}

impl Default for RowsOptions {
    fn default() -> RowsOptions {
        RowsOptions {
            cache: true,
            wait: true,
            keep: Duration::from_secs(300),
            names_bytes: 256 << 20,
        }
    }
}

/// Where and what to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The capsule; `-` for standard output.
    pub output: PathBuf,
    /// Whether it may take the place of another file.
    pub replace: bool,
    /// Whether names are looked up.
    pub names: bool,
    /// What is recorded of tasks: `TASKS_*`; zero for nothing.
    pub tasks: u32,
}
