// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several containers, more of which may come.

use super::view::{FileView, Opened};
use crate::attach::held_starts::HeldStarts;
use crate::attach::mapped::Mapped;
use crate::options::ContainerGroup;
use crate::signals::WaitLimit;
use crate::spec::BinaryName;
use anyhow::{bail, Context};
use libnsprobe::Filter;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nsprobe_containers::{Container, Containers, Execs, Process, Running};
use nsprobe_text::is_glob;
use nsprobe_text::{escaped, glob_fits};
use std::os::fd::AsFd;

/// Interval between looks at the clock while we wait for a container, in milliseconds.
const WAIT: u8 = 100;

/// Containers by names and globs.
#[derive(Debug)]
pub struct Group {
    pub(crate) asked: ContainerGroup,
    /// Those that run; never empty.
    pub members: Vec<Running>,
}

impl Group {
    /// The containers that run; with `follow` at least the first one that starts before the
    /// limit, whose program may be among the `held`.
    pub(super) fn find(
        asked: &ContainerGroup,
        limit: &WaitLimit,
        held: &mut Option<HeldStarts>,
    ) -> anyhow::Result<Group> {
        let members = match asked.follow {
            true => first_of(asked, limit, held)?,
            false => all_of(asked)?,
        };
        Ok(Group {
            asked: asked.clone(),
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

    /// The files in them that may be allocators.
    pub(super) fn allocator_files(&self, mapped: &Mapped) -> anyhow::Result<Opened> {
        let mut all = Opened::default();
        for container in &self.members {
            all.add(FileView::of_container(container)?.allocator_files(mapped)?);
        }
        Ok(all)
    }

    /// Their pid namespaces, each with a process in it.
    pub(super) fn filter(&self) -> anyhow::Result<Filter> {
        let mut all = Vec::new();
        for container in &self.members {
            match container.pid_namespace() {
                Ok(space) => all.push((container.init.pid(), space.id)),
                // Others may come.
                Err(_) if self.asked.follow => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filter_of(all))
    }
}

/// The filter for pid namespaces, each with a process in it; there may be none.
pub(crate) fn filter_of(all: Vec<(u32, u64)>) -> Filter {
    match all.is_empty() {
        true => Filter::nothing(),
        false => Filter::any_pid_namespace(all),
    }
}

/// All that run.
fn all_of(asked: &ContainerGroup) -> anyhow::Result<Vec<Running>> {
    let containers = Containers::take()?;
    let mut members: Vec<Running> = Vec::new();
    for pattern in &asked.patterns {
        let found = match is_glob(pattern) {
            true => fitting(&containers, |name| glob_fits(pattern, name)),
            false => vec![containers.find(pattern)?],
        };
        if found.is_empty() {
            bail!("no container that runs fits -c {pattern}");
        }
        for one in found {
            if members
                .iter()
                .all(|known| known.init.pid() != one.init.pid())
            {
                members.push(one);
            }
        }
    }
    if members.len() == 1 {
        return Ok(members);
    }
    let (members, shared): (Vec<_>, Vec<_>) = members.into_iter().partition(is_apart);
    let names: Vec<&str> = shared.iter().map(Running::name).collect();
    let is_glob = asked.patterns.iter().all(|pattern| is_glob(pattern));
    match (names.is_empty(), is_glob && !members.is_empty()) {
        (true, _) => {}
        (false, true) => eprintln!("nsprobe: {}", escaped(&sharing_note(&names))),
        (false, false) => bail!("{}", sharing_note(&names)),
    }
    Ok(members)
}

/// Those that run and are called so.
fn fitting(containers: &Containers, fits: impl Fn(&str) -> bool) -> Vec<Running> {
    let running = containers.iter().filter(|one| one.is_running());
    let called = running.filter(|one| one.is_called(&fits));
    // Those that end meanwhile are none.
    called
        .filter_map(|one| Running::hold(one.clone()).ok())
        .collect()
}

/// Those that run, or else the first one that starts before the limit.
fn first_of(
    asked: &ContainerGroup,
    limit: &WaitLimit,
    held: &mut Option<HeldStarts>,
) -> anyhow::Result<Vec<Running>> {
    let fits = |name: &str| asked.fits(name);
    let pattern = asked.text();
    let execs = Execs::new()?;
    let mut containers = Containers::take()?;
    let (mut members, shared): (Vec<_>, Vec<_>) =
        fitting(&containers, fits).into_iter().partition(is_apart);
    if !members.is_empty() {
        // None waits while these are looked at.
        *held = None;
    } else {
        // With members, those that come are said with them.
        if !shared.is_empty() {
            let names: Vec<&str> = shared.iter().map(Running::name).collect();
            eprintln!("nsprobe: {}", escaped(&sharing_note(&names)));
        }
        eprintln!(
            "nsprobe: no container {} runs: waiting for one",
            escaped(&pattern)
        );
    }
    while members.is_empty() {
        if limit.is_over() {
            bail!("no container {pattern} has started");
        }
        let held_fd = held.as_ref().map(AsFd::as_fd);
        let fds = [Some(execs.as_fd()), held_fd].into_iter().flatten();
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::from(WAIT))?;
        let mut member = |pid: u32| {
            let process = Process::open(pid).ok()?;
            let container = containers.of_process(&process).cloned();
            let container = container.filter(|one| may_join(one, fits))?;
            // Its first process may have ended.
            Running::hold(container).ok()
        };
        if let Some(held) = held {
            while let Some(pid) = held.next()? {
                members.extend(member(pid));
                if !members.is_empty() {
                    // It waits until it is probed.
                    return Ok(members);
                }
            }
        }
        let executed = execs.take();
        members.extend(executed.pids.into_iter().find_map(member));
        if executed.missed && members.is_empty() {
            members = Running::all(fits)?;
        }
    }
    Ok(members)
}

/// Whether its pid namespace is no other's: what the kernel tells several containers by.
fn is_apart(one: &Running) -> bool {
    let init = one.container.init;
    init.is_some_and(|init| init.owns_namespace)
}

/// What is said of those that cannot be told from others.
pub(crate) fn sharing_note(names: &[&str]) -> String {
    let (are, each) = match names {
        [one] => (format!("container {one} shares its"), "it"),
        _ => (
            format!("containers {} share their", names.join(", ")),
            "each",
        ),
    };
    format!(
        "{are} pid namespace with others and cannot be traced beside others: trace {each} alone, \
         with one -c NAME and without --follow"
    )
}

/// Whether a container belongs to a group: the pid namespace does not distinguish containers that
/// share it.
pub(crate) fn may_join(container: &Container, fits: impl Fn(&str) -> bool) -> bool {
    container.init.is_some_and(|init| init.owns_namespace) && container.is_called(fits)
}
