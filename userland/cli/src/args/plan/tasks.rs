// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ps`, `tree` and `top` have to do.

use super::TargetSpec;
use std::path::PathBuf;
use std::time::Duration;

/// How to list tasks.
#[derive(Debug)]
pub(crate) struct PsPlan {
    pub(crate) who: TargetSpec,
    /// Also tasks that are in no container.
    pub(crate) all: bool,
    /// Whether each thread has a line.
    pub(crate) threads: bool,
    /// Whether numbers of all inner namespaces are shown.
    pub(crate) levels: bool,
    /// Which columns; the usual ones when there is none.
    pub(crate) columns: Vec<PsColumn>,
    pub(crate) json: bool,
}

/// What `ps` tells of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PsColumn {
    /// The container
    Container,
    /// What runs the container
    Runtime,
    /// The process
    Pid,
    /// The thread
    Tid,
    /// The process, as its container numbers it
    Nspid,
    /// The thread, as its container numbers it
    Nstid,
    /// The parent process
    Ppid,
    /// How many threads
    Threads,
    /// The real user
    Uid,
    /// What it does, as ps(1) calls it
    State,
    /// How long it has run on CPUs, in minutes; of a process, its living threads
    Time,
    /// How long ago it was made
    Age,
    /// The thread's name
    Comm,
    /// The arguments
    Command,
    /// The control group's id
    Cgroup,
    /// The pid namespace
    Pidns,
}

impl PsPlan {
    /// The columns that are shown.
    pub(crate) fn columns(&self) -> Vec<PsColumn> {
        use PsColumn::{
            Age, Comm, Command, Container, Nspid, Nstid, Pid, Ppid, State, Threads, Tid, Time, Uid,
        };
        match (self.columns.as_slice(), self.threads) {
            ([], false) => vec![
                Container, Pid, Nspid, Ppid, Threads, Uid, State, Time, Age, Comm, Command,
            ],
            ([], true) => vec![
                Container, Pid, Tid, Nspid, Nstid, Ppid, Uid, State, Time, Age, Comm, Command,
            ],
            (chosen, _) => chosen.to_vec(),
        }
    }
}

/// How to show the tree.
#[derive(Debug)]
pub(crate) struct TreePlan {
    /// A capsule; without it the tasks of this machine are shown.
    pub(crate) file: Option<PathBuf>,
    pub(crate) who: TargetSpec,
    /// Whether processes are shown.
    pub(crate) tasks: bool,
    /// And their threads.
    pub(crate) threads: bool,
    pub(crate) json: bool,
}

/// How to show who takes the CPUs.
#[derive(Debug)]
pub(crate) struct TopPlan {
    pub(crate) who: TargetSpec,
    pub(crate) batch: bool,
    /// After how many intervals it ends.
    pub(crate) count: Option<u64>,
    pub(crate) delay: Duration,
    pub(crate) sort: TopSort,
    /// What rows must have in them.
    pub(crate) filter: String,
    /// Whether tables show processes.
    pub(crate) processes: bool,
    pub(crate) json: bool,
}

/// What rows of `top` are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TopSort {
    /// CPU time, the most first
    #[default]
    Cpu,
    /// Name
    Name,
    /// Threads, the most first
    Tasks,
    /// Context switches, the most first
    Switches,
}
