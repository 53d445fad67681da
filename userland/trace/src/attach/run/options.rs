// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the options of a run mean for its session.

use crate::attach::command::find_in_path;
use crate::options::{TargetSpec, Tasks, TraceOptions};
use anyhow::{bail, Context};
use libnsprobe::Filter;
use nsprobe_text::escaped;
use nsprobe_unwind::Cache;
use nsprobe_worker::{Options, Worker};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

impl Tasks {
    /// The filter of the target, as far as these tasks go.
    fn narrow(&self, filter: Option<Filter>) -> anyhow::Result<Option<Filter>> {
        if self.are_all() {
            return Ok(filter);
        }
        let mut filter = filter.unwrap_or_default();
        if !self.tids.is_empty() {
            filter = filter.with_threads(self.tids.iter().copied());
        }
        if self.children {
            filter = filter.with_children();
        }
        if let Some(name) = &self.comm {
            let named = filter.with_comm(name);
            filter = named.context("no thread can have the name that --comm gives")?;
        }
        if let Some(uid) = self.uid {
            filter = filter.with_uid(uid);
        }
        if let Some(directory) = &self.cgroup {
            if filter.cgroup().is_some() {
                bail!("--cgroup: the container is itself told by its control group alone");
            }
            filter = filter.with_cgroup(cgroup_id(directory)?);
        }
        Ok(Some(filter))
    }
}

/// Whether a command's first word is this program.
fn is_this_program(word: &OsStr) -> bool {
    let path = match word.as_encoded_bytes().contains(&b'/') {
        true => Some(PathBuf::from(word)),
        false => find_in_path(Path::new(word)),
    };
    let program = path.and_then(|path| path.canonicalize().ok());
    program.is_some() && program == std::fs::read_link("/proc/self/exe").ok()
}

/// The number of a control group: that of its directory.
fn cgroup_id(directory: &Path) -> anyhow::Result<u64> {
    let shown = directory.display();
    let metadata = std::fs::metadata(directory)
        .with_context(|| format!("cannot look at the control group {shown}"))?;
    if !directory.join("cgroup.procs").is_file() {
        bail!("{shown} is no directory of the cgroup v2 file system");
    }
    Ok(metadata.ino())
}

impl TraceOptions {
    /// The filter of the target, as far as these options go: neither this program nor its parsers
    /// are in a profile, unless they are what it is of.
    pub(crate) fn narrow(&self, filter: Option<Filter>) -> anyhow::Result<Option<Filter>> {
        let filter = self.tasks.narrow(filter)?;
        let is_named = match &self.who {
            TargetSpec::Processes(_) => true,
            // Until it executes its program, a command is ours.
            TargetSpec::Command(words) => words.first().is_some_and(|word| is_this_program(word)),
            TargetSpec::Host | TargetSpec::Container(_) | TargetSpec::Group(_) => false,
        };
        if self.placeless.is_none() || is_named {
            return Ok(filter);
        }
        let own = File::open("/proc/self/exe").context("cannot open this program")?;
        Ok(Some(filter.unwrap_or_default().without_program(own)))
    }

    /// The cache of tables of earlier runs, if it is requested and available.
    pub(crate) fn open_cache(&self) -> Option<Cache> {
        if !self.rows.cache {
            return None;
        }
        Cache::usual().unwrap_or_else(|error| {
            self.note(&format!("no cache of unwind rows: {error}"));
            None
        })
    }

    /// Options of the processes that parse files of containers.
    pub(crate) fn parsers(&self) -> Options {
        Options {
            sandbox: self.sandbox,
            ..Options::default()
        }
    }

    /// Template of the parsers of probed files.
    pub(crate) fn parser(&self) -> Worker {
        Worker::new(self.parsers())
    }

    /// Whose children are not traced, though nothing but being another process keeps them out.
    pub(crate) fn untraced(&self) -> Option<Untraced> {
        match self.who {
            _ if !self.tasks.are_all() => None,
            TargetSpec::Command(_) => Some(Untraced::ChildrenOfCommand),
            TargetSpec::Processes(_) => Some(Untraced::ChildrenOfProcess),
            TargetSpec::Host | TargetSpec::Container(_) | TargetSpec::Group(_) => None,
        }
    }

    /// Prints a note, which is not an error, for the user.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("nsprobe: {}", escaped(text));
        }
    }
}

/// Whose children are not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untraced {
    /// Children of the command.
    ChildrenOfCommand,
    /// Children of a process.
    ChildrenOfProcess,
}

impl Untraced {
    /// Advice on how to trace them.
    pub fn advice(self) -> &'static str {
        match self {
            Untraced::ChildrenOfCommand => "--children also traces those that the command starts",
            Untraced::ChildrenOfProcess => {
                "--children also traces those that the process starts from then on"
            }
        }
    }
}
