// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers whose names fit, more of which may come.

use super::view::{FileView, Opened};
use crate::args::spec::BinaryName;
use crate::attach::mapped::Mapped;
use anyhow::{bail, Context};
use libnsprobe::Filter;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_containers::{Container, Containers, Execs, Process, Running};
use nsprobe_symbolize::{escaped, glob_fits};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Interval between looks at the clock while we wait for a container, in milliseconds.
const WAIT: u8 = 100;

/// Containers whose names fit.
#[derive(Debug)]
pub(crate) struct Group {
    /// Pattern for their names, with `*` and `?`.
    pub(crate) pattern: String,
    /// Those that run; never empty.
    pub(crate) members: Vec<Running>,
}

impl Group {
    /// The containers that run, or the first one that starts before the deadline.
    pub(super) fn find(pattern: &str, limit: Option<Duration>) -> anyhow::Result<Group> {
        let fits = |name: &str| glob_fits(pattern, name);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let execs = Execs::new()?;
        let mut members = Running::all(fits)?;
        let mut containers = Containers::take()?;
        if members.is_empty() {
            let mut running = containers.iter().filter(|one| one.is_running());
            if let Some(one) = running.find(|one| one.is_called(fits) && !may_join(one, fits)) {
                bail!(
                    "container {} shares its pid namespace with others: with --follow it cannot \
                     be told from them",
                    one.name
                );
            }
            eprintln!(
                "nsprobe: no container {} runs: waiting for one",
                escaped(pattern)
            );
        }
        while members.is_empty() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                bail!("no container {pattern} has started");
            }
            let mut fds = [PollFd::new(execs.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(WAIT))?;
            let executed = execs.take();
            let started = executed.pids.into_iter();
            let started = started.filter_map(|pid| Process::open(pid).ok());
            for process in started {
                let container = containers.of_process(&process).cloned();
                if let Some(container) = container.filter(|one| may_join(one, fits)) {
                    // Its first process may have ended.
                    members.extend(Running::hold(container).ok());
                    break;
                }
            }
            if executed.missed && members.is_empty() {
                members = Running::all(fits)?;
            }
        }
        Ok(Group {
            pattern: pattern.to_owned(),
            members,
        })
    }

    /// Opens a binary in all of them that have it.
    pub(super) fn open(&self, binary: &BinaryName, mapped: &Mapped) -> anyhow::Result<Opened> {
        let mut all = Opened::default();
        let mut why = None;
        for container in &self.members {
            match FileView::of_container(container).and_then(|view| view.open(binary, mapped)) {
                Ok(opened) => all.add(opened),
                Err(error) => why = why.or(Some((container, error))),
            }
        }
        match (all.files.is_empty(), why) {
            (true, Some((container, error))) => {
                Err(error).with_context(|| format!("in container {}", container.name()))
            }
            _ => Ok(all),
        }
    }

    /// Their pid namespaces, each with a process in it.
    pub(super) fn filter(&self) -> anyhow::Result<Filter> {
        let mut all = Vec::new();
        for container in &self.members {
            all.push((container.init.pid(), container.pid_namespace()?.id));
        }
        Ok(Filter::any_pid_namespace(all))
    }
}

/// Whether a container belongs to a group: the pid namespace does not distinguish containers that
/// share it.
pub(crate) fn may_join(container: &Container, fits: impl Fn(&str) -> bool) -> bool {
    container.init.is_some_and(|init| init.owns_namespace) && container.is_called(fits)
}
