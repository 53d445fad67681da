// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all verbs that probe have in common: whom, what, and for how long.

use super::candidates::containers;
use super::help::{LIMITS, OUTPUT, PROBES, STACKS, TARGET};
use super::limits::LimitArguments;
use super::plan::{Detail, Printing};
use super::value::{hold_time, time_span};
use super::{raw, spec};
use clap::Args;
use nsprobe_text::is_glob;
use nsprobe_trace::options::{
    ContainerGroup, Returns, RowsOptions, TargetSpec, Tasks, TraceOptions, HOLD,
};
use nsprobe_worker::Sandbox;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct WhoArguments {
    /// Only this container, by name, id or glob; may be repeated
    ///
    /// NAME is a name or id as `nsprobe containers` lists them, also RUNTIME:NAME, POD/CONTAINER or
    /// NAMESPACE/POD/CONTAINER; a pid namespace's inode number; UNIT.service; or a control group's
    /// path. A glob stands for all containers that run.
    #[arg(short, long, value_name = "NAME", add = containers(), help_heading = TARGET)]
    container: Vec<String>,
    /// Only this process; may be repeated
    #[arg(short, long, value_name = "PID", conflicts_with = "container", help_heading = TARGET,
          value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
}

/// Containers that come later.
#[derive(Debug, Args)]
pub(super) struct FollowArguments {
    /// Also trace containers that start later
    ///
    /// nsprobe probes a file of theirs at the same path or with the same build-id. -c selects them
    /// by name or glob; without a match nsprobe waits for the first.
    #[arg(long, help_heading = TARGET, conflicts_with_all = ["pid", "tid", "command"])]
    follow: bool,
    /// Longest wait of a program in a new container for its probes; 0 turns it off
    ///
    /// A program that starts in a mount namespace younger than the trace waits before its first
    /// instruction, once, until its probes are attached or nsprobe has found that it is not traced. So
    /// its first calls are seen. The default is 0.1.
    #[arg(long, help_heading = TARGET, value_name = "S", requires = "follow", hide_short_help = true,
          value_parser = hold_time)]
    hold: Option<Duration>,
}

impl FollowArguments {
    /// The options, of containers that start later, too, if these are to be followed.
    pub(super) fn plan(&self, options: TraceOptions) -> TraceOptions {
        let follow = self.follow;
        TraceOptions {
            follow,
            hold: self.hold.unwrap_or(HOLD),
            who: match options.who {
                TargetSpec::Container(name) if follow => TargetSpec::Group(ContainerGroup {
                    patterns: vec![name],
                    follow,
                }),
                TargetSpec::Group(group) => TargetSpec::Group(ContainerGroup { follow, ..group }),
                who => who,
            },
            ..options
        }
    }
}

/// What goes with stacks.
#[derive(Debug, Args)]
pub(super) struct RowsArguments {
    /// Neither read nor write the cache of unwind rows
    ///
    /// The cache is the directory that NSPROBE_CACHE names; without it, root's is
    /// /var/cache/nsprobe/rows.
    #[arg(long, help_heading = STACKS, hide_short_help = true)]
    no_cache: bool,
    /// Begin before the target's files have unwind rows
    ///
    /// The first stacks may then be truncated. The default waits at most 30 seconds; for the whole
    /// machine 1.
    #[arg(long, help_heading = STACKS, hide_short_help = true)]
    no_wait: bool,
    /// Unload a file's unwind rows after S seconds without a stack
    ///
    /// The next stack that goes through the file loads them again.
    #[arg(
        long,
        help_heading = STACKS,
        hide_short_help = true,
        value_name = "S",
        value_parser = time_span,
        allow_negative_numbers = true,
        default_value = "300"
    )]
    keep_rows: Duration,
    /// Memory for names, and for the files that they come from, as long as one file is not larger
    #[arg(long, value_name = "MB", default_value = "256", hide = true,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    names_memory: u64,
}

impl RowsArguments {
    pub(super) fn plan(&self) -> RowsOptions {
        RowsOptions {
            cache: !self.no_cache,
            wait: !self.no_wait,
            keep: self.keep_rows,
            names_bytes: self.names_memory << 20,
        }
    }
}

/// How files are parsed.
#[derive(Debug, Args)]
pub(super) struct SandboxArguments {
    /// Parse files of containers with all of our privileges, where the kernel has no seccomp
    #[arg(long, hide = true)]
    no_sandbox: bool,
}

impl SandboxArguments {
    pub(super) fn plan(&self) -> Sandbox {
        match self.no_sandbox {
            true => Sandbox::None,
            false => Sandbox::Whole,
        }
    }
}

/// What all verbs that trace have in common.
#[derive(Debug, Args)]
pub(super) struct TargetArguments {
    #[command(flatten)]
    who: WhoArguments,
    #[command(flatten)]
    sandbox: SandboxArguments,
    #[command(flatten)]
    tasks: TaskArguments,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Print only errors and losses on standard error
    #[arg(short, long, conflicts_with = "verbose", help_heading = OUTPUT)]
    quiet: bool,
    /// Print counters of each probe, and the sources of names
    #[arg(short, long, help_heading = OUTPUT)]
    verbose: bool,
    /// End after S seconds, such as 0.5 or 200ms
    #[arg(short, long, value_name = "S", help_heading = LIMITS, value_parser = time_span, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Start this command as the target, and end with it
    ///
    /// A command that still runs at the end is terminated.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["container", "pid"])]
    command: Vec<OsString>,
}

/// What all verbs that probe have in common, but for the probes.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Most places that one PROBE may match
    #[arg(long, value_name = "N", default_value = "1000", help_heading = LIMITS,
          hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_probes: u32,
    /// Also probe inlined calls; needs debug information
    #[arg(long, help_heading = PROBES, hide_short_help = true)]
    inlined: bool,
    /// Put the breakpoint on a function's first instruction
    ///
    /// The default takes a later instruction where the kernel handles it faster and all that the
    /// probe reads is unchanged.
    #[arg(long, help_heading = PROBES, hide_short_help = true)]
    exact: bool,
    /// Probe ten-byte nops, too: fast, but a program that moves such code dies
    #[arg(long, help_heading = PROBES, hide_short_help = true)]
    fast_nops: bool,
    /// How to see a function's return
    #[arg(
        long = "return",
        help_heading = PROBES,
        hide_short_help = true,
        value_name = "HOW",
        value_enum,
        default_value = "auto"
    )]
    returns: HowReturns,
    /// Allow probes that may harm the program
    ///
    /// Such are places that may be inside an instruction, returns by --return uretprobe, and files
    /// of FUSE, NFS and the like: while their server does not answer, no process here can fork.
    #[arg(long, help_heading = PROBES, hide_short_help = true)]
    force: bool,
}

/// How stacks are followed, and where names are found.
#[derive(Debug, Args)]
pub(super) struct StackArguments {
    /// Walk stacks by frame pointers, without unwind rows
    #[arg(long, help_heading = STACKS, hide_short_help = true)]
    frame_pointers: bool,
    #[command(flatten)]
    servers: DebuginfodArguments,
}

/// Servers that are asked for debug information.
#[derive(Debug, Args)]
pub(super) struct DebuginfodArguments {
    /// Fetch missing debug information from DEBUGINFOD_URLS
    ///
    /// nsprobe asks the servers when neither the target nor this machine has it, and keeps the
    /// answers where elfutils does (DEBUGINFOD_CACHE_PATH). The servers learn which programs run
    /// here.
    #[arg(long, help_heading = STACKS, hide_short_help = true)]
    debuginfod: bool,
}

/// Probes, and what goes with them.
#[derive(Debug, Args)]
pub(super) struct ProbeArguments {
    /// What to probe, such as libc.so.6:malloc (docs/spec.md)
    ///
    /// BINARY:FUNCTION, where BINARY is a path as the target sees it, or the name of a library that
    /// it has mapped, and FUNCTION a symbol or a readable name, in which * and ? match others.
    /// `(FIELD, ...)` and `if CONDITION` may follow.
    #[arg(value_name = "PROBE", required = true)]
    probes: Vec<String>,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    later: FollowArguments,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    stacks: StackArguments,
}

/// Which tasks of the target count.
#[derive(Debug, Args)]
pub(super) struct TaskArguments {
    /// Only these threads
    #[arg(long, help_heading = TARGET, value_name = "TID", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    tid: Vec<u32>,
    /// Also processes that the target forks from now on
    #[arg(long, help_heading = TARGET)]
    children: bool,
    /// Only threads of this name
    #[arg(long, help_heading = TARGET, hide_short_help = true, value_name = "NAME")]
    comm: Option<OsString>,
    /// Only this effective user
    #[arg(long, help_heading = TARGET, hide_short_help = true, value_name = "UID")]
    uid: Option<u32>,
    /// Only this control group and those below it
    ///
    /// DIRECTORY is one of the cgroup v2 file system.
    #[arg(long, help_heading = TARGET, hide_short_help = true, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
}

impl WhoArguments {
    pub(super) fn plan(self, command: Vec<OsString>) -> TargetSpec {
        let mut patterns = self.container;
        patterns.dedup();
        match patterns.as_slice() {
            [one] if !is_glob(one) => TargetSpec::Container(one.clone()),
            [_, ..] => TargetSpec::Group(ContainerGroup {
                patterns,
                follow: false,
            }),
            [] if !self.pid.is_empty() => TargetSpec::Processes(self.pid),
            [] if !command.is_empty() => TargetSpec::Command(command),
            [] => TargetSpec::Host,
        }
    }
}

/// How the returns of functions are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HowReturns {
    /// By breakpoints on the instructions that leave the function
    Auto,
    /// By a return probe of the kernel's, which replaces return addresses: programs that unwind or
    /// switch their stack end or hang (needs --force)
    Uretprobe,
}

impl ProbeArguments {
    pub(super) fn printing(&self) -> Printing {
        self.run.printing()
    }

    pub(super) fn plan(self) -> Result<TraceOptions, clap::Error> {
        let limits = self.limits.plan();
        let options = self.stacks.plan(self.run.plan(&self.probes)?)?;
        Ok(self.later.plan(TraceOptions { limits, ..options }))
    }
}

impl StackArguments {
    /// The options with these.
    pub(super) fn plan(self, options: TraceOptions) -> Result<TraceOptions, clap::Error> {
        Ok(TraceOptions {
            frame_pointers: self.frame_pointers,
            debuginfod: self.servers.plan()?,
            ..options
        })
    }
}

impl DebuginfodArguments {
    /// Whether servers are asked.
    pub(super) fn plan(self) -> Result<bool, clap::Error> {
        if self.debuginfod {
            nsprobe_trace::names::debuginfod::servers::urls().map_err(|why| raw(&why))?;
        }
        Ok(self.debuginfod)
    }
}

impl RunArguments {
    pub(super) fn printing(&self) -> Printing {
        self.target.printing()
    }

    pub(super) fn plan(self, probes: &[String]) -> Result<TraceOptions, clap::Error> {
        let probes = probes.iter().map(|text| spec(text));
        if self.returns == HowReturns::Uretprobe && !self.force {
            return Err(raw(
                "--return uretprobe replaces return addresses: a program that throws, is cancelled \
                 or switches its stack in a traced call dies or hangs. The default probes the \
                 function's exits instead; --force allows return probes",
            ));
        }
        Ok(TraceOptions {
            probes: probes.collect::<Result<_, _>>()?,
            max_probes: self.max_probes as usize,
            inlined: self.inlined,
            exact: self.exact,
            fast_nops: self.fast_nops,
            returns: match self.returns {
                HowReturns::Auto => Returns::Auto,
                HowReturns::Uretprobe => Returns::Uretprobe,
            },
            force: self.force,
            ..self.target.plan()?
        })
    }
}

impl TargetArguments {
    pub(super) fn printing(&self) -> Printing {
        Printing {
            json: self.json,
            detail: Detail::new(self.quiet, self.verbose),
        }
    }

    pub(super) fn plan(self) -> Result<TraceOptions, clap::Error> {
        let who = self.who.plan(self.command);
        let tasks = self.tasks.plan(&who)?;
        Ok(TraceOptions {
            who,
            tasks,
            timeout: self.timeout,
            quiet: self.quiet,
            sandbox: self.sandbox.plan(),
            ..TraceOptions::default()
        })
    }
}

impl TaskArguments {
    pub(super) fn plan(self, who: &TargetSpec) -> Result<Tasks, clap::Error> {
        let comm = self.comm.map(|name| name.into_encoded_bytes());
        if comm
            .as_ref()
            .is_some_and(|name| !(1..=15).contains(&name.len()))
        {
            return Err(raw("--comm: a thread's name has 1 to 15 bytes"));
        }
        let lists = !self.tid.is_empty()
            || matches!(who, TargetSpec::Processes(_) | TargetSpec::Command(_));
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
