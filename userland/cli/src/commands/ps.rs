// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe ps`: the tasks of this machine, or of a container, by container.

use crate::args::{PsColumn, PsPlan};
use crate::output::columns::{self, Head};
use crate::output::json;
use libnsprobe::common::task::TaskLevel;
use nsprobe_tasks::{Task, Tasks, Times};
use nsprobe_text::escaped;
use nsprobe_trace::options::TargetSpec;
use nsprobe_trace::tasks::{
    command_line, is_there, state_letter, Clocks, Dump, LivePlaces, Place, SelectedTasks, TaskLine,
    TaskSource,
};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Columns that go where lines have no room, those that matter least first.
const LEAST: [&str; 9] = [
    "PPID", "UID", "THREADS", "AGE", "NSTID", "COMMAND", "NSPID", "S", "TID",
];
/// Characters of the last column that lines have room for.
const LAST: usize = 20;
/// Longest command line where no terminal says how long lines are.
const COMMAND: usize = 80;

pub(crate) fn run(plan: &PsPlan) -> anyhow::Result<ExitCode> {
    let scope = SelectedTasks::find(&plan.who)?;
    let mut source = TaskSource::open(false)?;
    let mut tasks = Tasks::default();
    source.dump(&mut tasks, Dump { args: true })?;
    let clocks = Clocks::now()?;
    let mut places = LivePlaces::default();
    places.refresh()?;
    let all = tasks.all();
    let all = all.filter(|task| is_there(task) && scope.has(task, &places));
    let shown = shown(all, plan.threads);
    let placed = shown
        .into_iter()
        .map(|one| (Place::of(one.task, &places), one));
    // Naming a container selects everything in it.
    let shows_all = plan.all || matches!(plan.who, TargetSpec::Container(_));
    let mut rows: Vec<(Place, ListedTask<'_>)> = placed
        .filter(|(place, _)| shows_all || place.is_container())
        .collect();
    rows.sort_by(|(place, one), (other_place, other)| {
        let key = |one: &ListedTask<'_>| (one.task.pid(), one.task.id);
        place.cmp(other_place).then(key(one).cmp(&key(other)))
    });
    let is_empty = rows.is_empty();
    let mut out = BufWriter::new(io::stdout().lock());
    if plan.json {
        for (place, one) in &rows {
            json::line(&mut out, &one.line(place, clocks))?;
        }
    } else {
        let (columns, width) = (plan.columns(), columns::output_width());
        // Columns that the user names are all shown, untruncated.
        let is_usual = plan.columns.is_empty();
        let mut heads: Vec<Head> = columns.iter().map(|column| head(*column)).collect();
        let cells = |(place, one): &(Place, ListedTask<'_>)| {
            let cell = |column: &PsColumn| {
                let cell = one.cell(*column, place, clocks, plan.levels);
                match column {
                    PsColumn::Command if is_usual && width.is_none() => {
                        columns::shortened(&cell, COMMAND)
                    }
                    _ => cell,
                }
            };
            columns.iter().map(cell).collect()
        };
        let mut rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        if is_usual {
            columns::fit(&mut heads, &mut rows, width, LAST, &LEAST);
        }
        columns::write(&mut out, &heads, &rows, width)?;
    }
    out.flush()?;
    if is_empty && !shows_all {
        eprintln!("nsprobe: no task is in a container; --all lists the others");
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of the list: a thread, or a process with all its threads.
struct ListedTask<'a> {
    /// The thread, or the process's first one.
    task: &'a Task,
    /// Number of threads, for a process.
    threads: Option<usize>,
    /// CPU time used.
    times: Times,
}

/// Selects the tasks to list. A process whose first thread is unknown is represented by another
/// one.
fn shown<'a>(all: impl Iterator<Item = &'a Task>, threads: bool) -> Vec<ListedTask<'a>> {
    if threads {
        let thread = |task: &'a Task| ListedTask {
            times: task.times,
            threads: None,
            task,
        };
        return all.map(thread).collect();
    }
    let mut processes: BTreeMap<u32, ListedTask<'a>> = BTreeMap::new();
    for task in all {
        let process = processes.entry(task.pid()).or_insert_with(|| ListedTask {
            task,
            threads: Some(0),
            times: Times::default(),
        });
        process.threads = process.threads.map(|count| count + 1);
        process.times.cpu_ns += task.times.cpu_ns;
        process.times.user_ns += task.times.user_ns;
        process.times.system_ns += task.times.system_ns;
        if task.is_first() {
            process.task = task;
        }
    }
    processes.into_values().collect()
}

impl ListedTask<'_> {
    fn line(&self, place: &Place, clocks: Clocks) -> TaskLine {
        let line = TaskLine::new(self.task, place, Some(clocks));
        match self.threads {
            Some(threads) => line.of_process(threads, &self.times),
            None => line,
        }
    }

    /// A cell, escaped. With `levels`, numbers in namespaces are those of all, the outermost
    /// inner one first.
    fn cell(&self, column: PsColumn, place: &Place, clocks: Clocks, levels: bool) -> String {
        let task = self.task;
        let number = |of: fn(&TaskLevel) -> u32| inner(task, of, levels);
        match column {
            PsColumn::Container => escaped(&place.name()).to_string(),
            PsColumn::Runtime => place.known().map_or("-", |known| &known.runtime).to_owned(),
            PsColumn::Pid => task.pid().to_string(),
            PsColumn::Tid => task.id.tid.to_string(),
            PsColumn::Nspid => number(|level| level.pid),
            PsColumn::Nstid => number(|level| level.tid),
            PsColumn::Ppid => task.outer().ppid.to_string(),
            PsColumn::Threads => self.threads.unwrap_or(1).to_string(),
            PsColumn::Uid => task.users.last().copied().unwrap_or(0).to_string(),
            PsColumn::State => state_letter(task).to_string(),
            PsColumn::Time => columns::cpu_time(self.times.cpu_ns),
            PsColumn::Age => columns::age(clocks.age(task.id.start_ns)),
            PsColumn::Comm => escaped(task.comm()).to_string(),
            PsColumn::Command => command_line(task),
            PsColumn::Cgroup => task.cgroups.last().copied().unwrap_or(0).to_string(),
            PsColumn::Pidns => task.own().inum.to_string(),
        }
    }
}

/// A task's number as its own pid namespace has it, or as all inner ones have it; none for
/// one in ours alone.
fn inner(task: &Task, of: fn(&TaskLevel) -> u32, levels: bool) -> String {
    let all = task.levels.last().map_or(&[][..], |levels| levels);
    let inside = all.get(1..).unwrap_or_default();
    let from = if levels {
        0
    } else {
        inside.len().saturating_sub(1)
    };
    let numbers: Vec<String> = inside
        .iter()
        .skip(from)
        .map(|level| of(level).to_string())
        .collect();
    match numbers.is_empty() {
        true => "-".to_owned(),
        false => numbers.join("/"),
    }
}

fn head(column: PsColumn) -> Head {
    match column {
        PsColumn::Container => Head::Left("CONTAINER"),
        PsColumn::Runtime => Head::Left("RUNTIME"),
        PsColumn::Pid => Head::Right("PID"),
        PsColumn::Tid => Head::Right("TID"),
        PsColumn::Nspid => Head::Right("NSPID"),
        PsColumn::Nstid => Head::Right("NSTID"),
        PsColumn::Ppid => Head::Right("PPID"),
        PsColumn::Threads => Head::Right("THREADS"),
        PsColumn::Uid => Head::Right("UID"),
        PsColumn::State => Head::Left("S"),
        PsColumn::Time => Head::Right("TIME"),
        PsColumn::Age => Head::Right("AGE"),
        PsColumn::Comm => Head::Left("COMM"),
        PsColumn::Command => Head::Left("COMMAND"),
        PsColumn::Cgroup => Head::Right("CGROUP"),
        PsColumn::Pidns => Head::Right("PIDNS"),
    }
}
