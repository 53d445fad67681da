// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe tree`: the pid namespaces, which is in which, and what containers they are.

use crate::args::TreePlan;
use crate::output::columns::{self, cpu_time};
use crate::output::json;
use nsprobe_capsule::Contents;
use nsprobe_tasks::{PidNamespace, Task, Tasks, Tree};
use nsprobe_text::escaped;
use nsprobe_trace::recording::capsule::{Capsule, CapsulePlaces};
use nsprobe_trace::tasks::{
    command_line, is_there, Clocks, Dump, LivePlaces, Place, PlaceLine, Places, SelectedTasks,
    TaskLine, TaskSource,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) fn run(plan: &TreePlan) -> anyhow::Result<ExitCode> {
    if let Some(file) = &plan.file {
        let capsule = Capsule::open(file)?;
        TreeView::of_capsule(&capsule.contents).print(plan, None)?;
        return Ok(ExitCode::from(u8::from(!capsule.is_whole())));
    }
    let scope = SelectedTasks::find(&plan.who)?;
    let mut source = TaskSource::open(false)?;
    let mut tasks = Tasks::default();
    source.dump(&mut tasks, Dump { args: plan.tasks })?;
    let clocks = Clocks::now()?;
    let mut places = LivePlaces::default();
    places.refresh()?;
    let wanted = tasks.all();
    let wanted = wanted.filter(|task| is_there(task) && scope.has(task, &places));
    TreeView::new(&tasks, wanted, &places).print(plan, Some(clocks))?;
    Ok(ExitCode::SUCCESS)
}

/// What to show of each namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    /// Shows processes.
    pub(crate) tasks: bool,
    /// Shows their threads, too.
    pub(crate) threads: bool,
}

/// The tree of some tasks, with their containers.
pub(crate) struct TreeView<'a> {
    tasks: &'a Tasks,
    tree: Tree,
    nodes: BTreeMap<u64, NamespaceNode<'a>>,
}

/// The tasks of a namespace, by where they are.
#[derive(Default)]
struct NamespaceNode<'a> {
    parts: BTreeMap<Place, TaskGroup<'a>>,
}

/// Tasks of one place.
#[derive(Default)]
struct TaskGroup<'a> {
    tasks: Vec<&'a Task>,
    processes: BTreeSet<u32>,
    cpu_ns: u64,
}

impl<'a> TreeView<'a> {
    /// The tree of some of these tasks.
    pub(crate) fn new(
        tasks: &'a Tasks,
        some: impl Iterator<Item = &'a Task>,
        places: &impl Places,
    ) -> TreeView<'a> {
        let some: Vec<&Task> = some.collect();
        let tree = Tree::of(some.iter().copied());
        let mut nodes: BTreeMap<u64, NamespaceNode<'_>> = BTreeMap::new();
        for task in some {
            let node = nodes.entry(task.own().id).or_default();
            let part = node.parts.entry(Place::of(task, places)).or_default();
            part.tasks.push(task);
            part.processes.insert(task.pid());
            part.cpu_ns = part.cpu_ns.saturating_add(task.times.cpu_ns);
        }
        let parts = nodes.values_mut().flat_map(|node| node.parts.values_mut());
        parts.for_each(|part| {
            part.tasks
                .sort_unstable_by_key(|task| (task.pid(), task.id))
        });
        TreeView { tasks, tree, nodes }
    }

    /// The tree of all tasks that a capsule knows, those that ended included.
    pub(crate) fn of_capsule(contents: &'a Contents) -> TreeView<'a> {
        let (tasks, places) = (&contents.tasks, CapsulePlaces::new(&contents.containers));
        TreeView::new(tasks, tasks.all(), &places)
    }

    fn print(&self, plan: &TreePlan, clocks: Option<Clocks>) -> io::Result<()> {
        let mut out = BufWriter::new(io::stdout().lock());
        let detail = Detail {
            tasks: plan.tasks,
            threads: plan.threads,
        };
        match plan.json {
            true => self.json(&mut out, detail, clocks)?,
            false => self.text(&mut out, detail, columns::output_width())?,
        }
        out.flush()
    }

    /// Writes it for people.
    pub(crate) fn text(
        &self,
        out: &mut impl Write,
        detail: Detail,
        width: Option<usize>,
    ) -> io::Result<()> {
        for namespace in self.tree.walk() {
            let indent = "  ".repeat(namespace.depth);
            let place = self.place(namespace);
            let place = place.map_or(String::new(), |place| {
                format!(" {}", called(place, namespace.id))
            });
            let line = format!(
                "{indent}pid:[{}]{place}: {}{}",
                namespace.inum,
                self.init(namespace),
                amounts(
                    namespace.processes.len(),
                    namespace.tasks.len(),
                    namespace.cpu_ns
                )
            );
            writeln!(out, "{}", columns::cut(&line, width))?;
            self.parts_text(out, namespace, detail, width)?;
        }
        Ok(())
    }

    /// Writes what is in a namespace, when that is more than one thing, and its tasks.
    fn parts_text(
        &self,
        out: &mut impl Write,
        namespace: &PidNamespace,
        detail: Detail,
        width: Option<usize>,
    ) -> io::Result<()> {
        let Some(node) = self.nodes.get(&namespace.id) else {
            return Ok(());
        };
        let has_parts = node.parts.len() > 1;
        for (place, part) in &node.parts {
            let mut indent = "  ".repeat(namespace.depth + 1);
            if has_parts {
                let line = format!(
                    "{indent}. {}: {}",
                    called(place, namespace.id),
                    amounts(part.processes.len(), part.tasks.len(), part.cpu_ns)
                );
                writeln!(out, "{}", columns::cut(&line, width))?;
                indent.push_str("  ");
            }
            let shown = |task: &&&Task| detail.tasks && (detail.threads || task.is_first());
            for task in part.tasks.iter().filter(shown) {
                let line = format!("{indent}- {}", task_text(task));
                writeln!(out, "{}", columns::cut(&line, width))?;
            }
        }
        Ok(())
    }

    /// Writes it for machines: a line for each namespace, the outer ones first.
    pub(crate) fn json(
        &self,
        out: &mut impl Write,
        detail: Detail,
        clocks: Option<Clocks>,
    ) -> io::Result<()> {
        let lines = self.lines(detail, clocks);
        lines.iter().try_for_each(|one| json::line(out, one))
    }

    /// The lines for machines.
    pub(crate) fn lines(&self, detail: Detail, clocks: Option<Clocks>) -> Vec<NamespaceLine> {
        let walked = self.tree.walk().into_iter();
        walked
            .map(|namespace| self.namespace_line(namespace, detail, clocks))
            .collect()
    }

    fn namespace_line(
        &self,
        namespace: &PidNamespace,
        detail: Detail,
        clocks: Option<Clocks>,
    ) -> NamespaceLine {
        let node = self.nodes.get(&namespace.id);
        let parts = || node.into_iter().flat_map(|node| &node.parts);
        let shown = |task: &&&Task| detail.threads || task.is_first();
        let tasks = parts().flat_map(|(place, part)| {
            let shown = part.tasks.iter().filter(shown);
            shown.map(move |task| TaskLine::new(task, place, clocks))
        });
        let init = namespace.init.and_then(|id| self.tasks.get(id));
        let around = namespace.parent;
        let around = around.and_then(|id| self.tree.namespaces.get(&id));
        NamespaceLine {
            r#type: "pid_namespace",
            pid_namespace: namespace.inum,
            pid_namespace_id: namespace.id,
            parent: around.map(|around| around.inum),
            parent_id: namespace.parent,
            depth: namespace.depth,
            init: init.map(InitLine::new),
            place: self.place(namespace).map(PlaceLine::new),
            processes: namespace.processes.len(),
            threads: namespace.tasks.len(),
            cpu_ns: namespace.cpu_ns,
            parts: parts().map(PartLine::new).collect(),
            tasks: detail.tasks.then(|| tasks.collect()),
        }
    }

    /// The place of a namespace: that of its first process, else that of all processes in it.
    fn place(&self, namespace: &PidNamespace) -> Option<&Place> {
        let node = self.nodes.get(&namespace.id)?;
        let has_init = |part: &TaskGroup<'_>| {
            let mut tasks = part.tasks.iter();
            tasks.any(|task| Some(task.id) == namespace.init)
        };
        let of_init = node.parts.iter().find(|(_, part)| has_init(part));
        let only = node.parts.iter().next().filter(|_| node.parts.len() == 1);
        of_init.or(only).map(|(place, _)| place)
    }

    fn init(&self, namespace: &PidNamespace) -> String {
        let init = namespace.init.and_then(|id| self.tasks.get(id));
        match init {
            Some(init) => format!("init {} {}; ", init.id.tid, escaped(init.comm())),
            None => "no init; ".to_owned(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct NamespaceLine {
    r#type: &'static str,
    pid_namespace: u32,
    pid_namespace_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<u64>,
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    init: Option<InitLine>,
    #[serde(flatten)]
    place: Option<PlaceLine>,
    processes: usize,
    threads: usize,
    cpu_ns: u64,
    parts: Vec<PartLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<TaskLine>>,
}

#[derive(Serialize)]
struct InitLine {
    pid: u32,
    start_ns: u64,
    comm: String,
}

#[derive(Serialize)]
struct PartLine {
    #[serde(flatten)]
    place: PlaceLine,
    processes: usize,
    threads: usize,
    cpu_ns: u64,
}

impl InitLine {
    fn new(task: &Task) -> InitLine {
        InitLine {
            pid: task.pid(),
            start_ns: task.id.start_ns,
            comm: String::from_utf8_lossy(task.comm()).into_owned(),
        }
    }
}

impl PartLine {
    fn new((place, part): (&Place, &TaskGroup<'_>)) -> PartLine {
        PartLine {
            place: PlaceLine::new(place),
            processes: part.processes.len(),
            threads: part.tasks.len(),
            cpu_ns: part.cpu_ns,
        }
    }
}

/// The display name of a place, with its runtime; empty if its number was shown already.
fn called(place: &Place, id: u64) -> String {
    match place {
        Place::Container(known) => {
            format!("{} ({})", escaped(&known.name), escaped(&known.runtime))
        }
        Place::Namespace(own) if own.id == id => "(no container)".to_owned(),
        place => escaped(&place.name()).to_string(),
    }
}

fn amounts(processes: usize, threads: usize, cpu_ns: u64) -> String {
    let plural = |count, what: &str, more: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}{more}"),
    };
    format!(
        "{}, {}, CPU {}",
        plural(processes, "process", "es"),
        plural(threads, "thread", "s"),
        cpu_time(cpu_ns)
    )
}

fn task_text(task: &Task) -> String {
    let (own, outer) = (task.own(), task.outer());
    let inner = match own == outer {
        true => String::new(),
        false => format!("/{}", own.tid),
    };
    format!(
        "{}{inner} {} {} {}",
        outer.tid,
        escaped(task.comm()),
        cpu_time(task.times.cpu_ns),
        command_line(task)
    )
}
