// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all verbs that probe have in common: whom, what, and for how long.

use super::limits::LimitArguments;
use super::plan::{ProbeOptions, Returns, RowsOptions, TargetSpec, Tasks};
use super::value::seconds;
use super::{raw, spec};
use clap::Args;
use libnsprobe::Limits;
use nsprobe_worker::Sandbox;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct WhoArguments {
    /// Only this container: a name or id (as `nsprobe containers` lists them), also RUNTIME:NAME,
    /// POD/CONTAINER or NAMESPACE/POD/CONTAINER; a pid namespace's inode number; NAME.service; or a
    /// control group's path
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Only this process
    #[arg(short, long, value_name = "PID", conflicts_with = "container",
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
}

/// What goes with stacks.
#[derive(Debug, Args)]
pub(super) struct RowsArguments {
    /// Compile how functions are left from each file anew. Without it that is kept for later runs
    /// in the directory that NSPROBE_CACHE names, else, for root, in /var/cache/nsprobe/rows
    #[arg(long)]
    no_cache: bool,
    /// Begin at once, also when that is not known yet of files that the target has mapped: the first
    /// stacks may be cut. Without it the start waits, for at most 30 seconds; of the whole machine
    /// for 1
    #[arg(long)]
    no_wait: bool,
    /// Drop what the module has of a file for this when no stack has gone through it for S
    /// seconds; it comes again when one does
    #[arg(
        long,
        value_name = "S",
        value_parser = seconds,
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
    /// End after S seconds, such as 0.5
    #[arg(short, long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Print one JSON object a line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Print nothing on standard error but errors and losses
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more on standard error: the counters of each probe, where names and unwind rows came
    /// from
    #[arg(short, long)]
    verbose: bool,
    /// Start this command, trace it alone, and end with it; a command that still runs at the end is
    /// terminated
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["container", "pid"])]
    command: Vec<OsString>,
}

/// What all verbs that probe have in common, but for the probes.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    target: TargetArguments,
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
    /// Do what may harm the program: probe places that may be in the middle of an instruction, and
    /// returns by --return uretprobe
    #[arg(long)]
    force: bool,
}

/// How stacks are followed, and where names are found.
#[derive(Debug, Args)]
pub(super) struct StackArguments {
    /// Follow frame pointers in stacks, and do not look into the files for how their functions are
    /// left
    #[arg(long)]
    frame_pointers: bool,
    #[command(flatten)]
    servers: DebuginfodArguments,
}

/// Who is asked for debug information.
#[derive(Debug, Args)]
pub(super) struct DebuginfodArguments {
    /// Ask the servers of DEBUGINFOD_URLS for debug information that is neither in the target nor
    /// on this machine; what comes is kept where elfutils keeps it (DEBUGINFOD_CACHE_PATH). The
    /// servers learn which programs run here
    #[arg(long)]
    debuginfod: bool,
}

/// Probes, and what goes with them.
#[derive(Debug, Args)]
pub(super) struct ProbeArguments {
    /// What to probe (docs/spec.md): BINARY:FUNCTION, where BINARY is a path as the target sees it,
    /// or the name of a library that it has mapped, and FUNCTION a name, raw or readable, that may
    /// hold * and ?; behind it `(FIELD, ...)` and `if CONDITION`
    #[arg(value_name = "PROBE", required = true)]
    probes: Vec<String>,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    stacks: StackArguments,
    /// Also in containers that start later: where they have a file at the same path, or with the
    /// same build-id. With -c, which then may be a glob, only in containers of that name, and when
    /// there is none, wait for the first
    #[arg(long, conflicts_with_all = ["pid", "tid", "command"])]
    follow: bool,
    #[command(flatten)]
    run: RunArguments,
}

/// Which tasks of the target count.
#[derive(Debug, Args)]
pub(super) struct TaskArguments {
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

impl WhoArguments {
    pub(super) fn plan(self, command: Vec<OsString>) -> TargetSpec {
        match (self.container, self.pid) {
            (Some(container), _) => TargetSpec::Container(container),
            (None, Some(pid)) => TargetSpec::Process(pid),
            (None, None) if !command.is_empty() => TargetSpec::Command(command),
            (None, None) => TargetSpec::Host,
        }
    }
}

impl ProbeArguments {
    pub(super) fn plan(self) -> Result<ProbeOptions, clap::Error> {
        let limits = self.limits.plan();
        let options = self.stacks.plan(self.run.plan(&self.probes)?)?;
        following(self.follow, ProbeOptions { limits, ..options })
    }
}

impl StackArguments {
    /// The options with these.
    pub(super) fn plan(self, options: ProbeOptions) -> Result<ProbeOptions, clap::Error> {
        Ok(ProbeOptions {
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
            super::servers::urls().map_err(|why| raw(&why))?;
        }
        Ok(self.debuginfod)
    }
}

/// The options, of containers that start later, too, if it is to `follow` them.
pub(super) fn following(follow: bool, options: ProbeOptions) -> Result<ProbeOptions, clap::Error> {
    Ok(ProbeOptions {
        follow,
        who: match options.who {
            TargetSpec::Container(pattern) if follow => TargetSpec::Group(pattern),
            TargetSpec::Container(pattern) if pattern.contains(['*', '?']) => {
                return Err(raw(&format!("-c {pattern}: a glob needs --follow")));
            }
            who => who,
        },
        ..options
    })
}

impl RunArguments {
    pub(super) fn plan(self, probes: &[String]) -> Result<ProbeOptions, clap::Error> {
        let probes = probes.iter().map(|text| spec(text));
        if self.returns == Returns::Uretprobe && !self.force {
            return Err(raw(
                "--return uretprobe replaces return addresses: a program that throws, is cancelled \
                 or switches its stack in a traced call dies or hangs. The default probes the \
                 function's exits instead; --force allows return probes",
            ));
        }
        Ok(ProbeOptions {
            probes: probes.collect::<Result<_, _>>()?,
            max_probes: self.max_probes as usize,
            inlined: self.inlined,
            exact: self.exact,
            returns: self.returns,
            force: self.force,
            ..self.target.plan()?
        })
    }
}

impl TargetArguments {
    pub(super) fn plan(self) -> Result<ProbeOptions, clap::Error> {
        let who = self.who.plan(self.command);
        let tasks = self.tasks.plan(&who)?;
        Ok(ProbeOptions {
            who,
            tasks,
            probes: Vec::new(),
            samples_hz: None,
            timeout: self.timeout,
            json: self.json,
            quiet: self.quiet,
            verbose: self.verbose,
            frame_pointers: false,
            debuginfod: false,
            rows: RowsOptions::default(),
            follow: false,
            max_probes: 0,
            inlined: false,
            exact: false,
            limits: Limits::default(),
            returns: Returns::default(),
            force: false,
            sandbox: self.sandbox.plan(),
            triggers: Vec::new(),
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
        let lists =
            !self.tid.is_empty() || matches!(who, TargetSpec::Process(_) | TargetSpec::Command(_));
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
