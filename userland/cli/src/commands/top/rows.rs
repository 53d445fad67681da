// SPDX-License-Identifier: MIT OR Apache-2.0
//! An interval as rows: containers, and below those that are unfolded, processes and threads.

use super::interval::{GroupUse, Interval, ProcessUse};
use crate::args::TopSort;
use nsprobe_tasks::TaskId;
use nsprobe_text::escaped;
use nsprobe_trace::tasks::Place;
use std::cmp::Reverse;
use std::collections::HashSet;

/// Identity of a row, which stays the same when the numbers in it change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RowId {
    Group(Place),
    Process(Place, u32),
    Thread(TaskId),
    /// CPU time of a container that belongs to none of its processes.
    Remainder(Place),
    /// CPU time that the kernel had no room to account for.
    Unaccounted,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopRow {
    pub(super) id: RowId,
    /// Depth below a container.
    pub(super) depth: usize,
    /// Whether it is unfolded; `None` if there is nothing below.
    pub(super) unfolded: Option<bool>,
    /// Name, escaped.
    pub(super) name: String,
    pub(super) cpu_ns: u64,
    pub(super) switches: Option<u64>,
    pub(super) processes: Option<usize>,
    pub(super) threads: Option<usize>,
}

/// Selection and order of the rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) sort: TopSort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    pub(super) unfolded: HashSet<RowId>,
    /// Whether all containers are unfolded.
    pub(super) all: bool,
}

impl Choice {
    fn is_unfolded(&self, id: &RowId) -> bool {
        self.all && matches!(id, RowId::Group(_)) || self.unfolded.contains(id)
    }
}

/// The rows of an interval.
pub(super) fn rows(interval: &Interval, choice: &Choice) -> Vec<TopRow> {
    let mut rows = Vec::new();
    for group in groups(interval, choice) {
        add_group(group, choice, &mut rows);
    }
    if interval.unaccounted_ns > 0 {
        rows.push(TopRow {
            name: "(no room to say whose)".to_owned(),
            cpu_ns: interval.unaccounted_ns,
            ..bare(RowId::Unaccounted, 0)
        });
    }
    rows
}

/// The containers and such that are shown, in their order.
pub(super) fn groups<'a>(interval: &'a Interval, choice: &Choice) -> Vec<&'a GroupUse> {
    let mut groups: Vec<&GroupUse> = interval.groups.iter().collect();
    groups.retain(|group| fits_group(group, &choice.filter));
    sort(&mut groups, choice);
    groups
}

fn sort(groups: &mut [&GroupUse], choice: &Choice) {
    let name = |group: &&GroupUse| group.place.clone();
    match choice.sort {
        TopSort::Cpu => groups.sort_by_key(|group| (Reverse(group.cpu_ns), name(group))),
        TopSort::Name => groups.sort_by_key(|group| (group.place.name(), name(group))),
        TopSort::Tasks => groups.sort_by_key(|group| (Reverse(group.threads), name(group))),
        TopSort::Switches => groups.sort_by_key(|group| (Reverse(group.switches), name(group))),
    }
    if choice.reverse {
        groups.reverse();
    }
}

fn add_group(group: &GroupUse, choice: &Choice, rows: &mut Vec<TopRow>) {
    let id = RowId::Group(group.place.clone());
    let is_unfolded = choice.is_unfolded(&id);
    rows.push(TopRow {
        unfolded: Some(is_unfolded),
        name: group_name(group),
        cpu_ns: group.cpu_ns,
        switches: Some(group.switches),
        processes: Some(group.living),
        threads: Some(group.threads),
        ..bare(id, 0)
    });
    if !is_unfolded {
        return;
    }
    // If a container matches as a whole, everything in it is shown.
    let fits = has(&group_name(group), &choice.filter);
    for process in &group.processes {
        if fits || has(&process_name(process), &choice.filter) {
            add_process(&group.place, process, choice, rows);
        }
    }
    let remainder_ns = group.remainder_ns();
    if remainder_ns > 0 {
        rows.push(TopRow {
            name: "(others, ended or between two looks)".to_owned(),
            cpu_ns: remainder_ns,
            ..bare(RowId::Remainder(group.place.clone()), 1)
        });
    }
}

fn add_process(place: &Place, process: &ProcessUse, choice: &Choice, rows: &mut Vec<TopRow>) {
    let id = RowId::Process(place.clone(), process.pid);
    let is_unfolded = choice.is_unfolded(&id);
    let threads = &process.threads;
    rows.push(TopRow {
        unfolded: (threads.len() > 1).then_some(is_unfolded),
        name: process_name(process),
        cpu_ns: process.cpu_ns,
        threads: Some(threads.iter().filter(|thread| !thread.has_ended).count()),
        ..bare(id, 1)
    });
    if !is_unfolded {
        return;
    }
    for thread in threads {
        let numbers = numbers(thread.id.tid, thread.own_tid);
        let ended = if thread.has_ended { " (ended)" } else { "" };
        rows.push(TopRow {
            name: format!("{numbers} {}{ended}", escaped(&thread.comm)),
            cpu_ns: thread.cpu_ns,
            ..bare(RowId::Thread(thread.id), 2)
        });
    }
}

fn bare(id: RowId, depth: usize) -> TopRow {
    TopRow {
        id,
        depth,
        unfolded: None,
        name: String::new(),
        cpu_ns: 0,
        switches: None,
        processes: None,
        threads: None,
    }
}

/// A container's name, and what runs it; escaped.
pub(super) fn group_name(group: &GroupUse) -> String {
    let name = group.place.name();
    match group.place.known() {
        Some(known) => format!("{} ({})", escaped(&name), escaped(&known.runtime)),
        None => escaped(&name).to_string(),
    }
}

fn process_name(process: &ProcessUse) -> String {
    let lives = process.threads.iter().any(|thread| !thread.has_ended);
    let ended = if lives { "" } else { " (ended)" };
    let numbers = numbers(process.pid, process.own_pid);
    format!("{numbers} {}{ended}", escaped(&process.comm))
}

/// A number, and what it is in its own pid namespace.
fn numbers(outer: u32, own: u32) -> String {
    match outer == own {
        true => outer.to_string(),
        false => format!("{outer}/{own}"),
    }
}

/// Whether the name of a container, or of one of its processes, contains the text.
fn fits_group(group: &GroupUse, filter: &str) -> bool {
    let mut processes = group.processes.iter();
    has(&group_name(group), filter) || processes.any(|process| has(&process_name(process), filter))
}

/// Whether a name contains the text, ignoring case.
fn has(name: &str, filter: &str) -> bool {
    filter.is_empty() || name.to_lowercase().contains(&filter.to_lowercase())
}
