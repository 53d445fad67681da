// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree of pid namespaces that threads span.

use crate::task::{Task, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// A pid namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PidNamespace {
    /// Its id, which no other ever gets.
    pub id: u64,
    /// Its inode number.
    pub inum: u32,
    /// The id of the one around it; none for the opener's.
    pub parent: Option<u64>,
    /// How deep below the opener's, which is 0.
    pub depth: usize,
    /// The ids of those directly inside.
    pub children: BTreeSet<u64>,
    /// Its first thread, the one that it calls 1; none when that is gone, or not known.
    pub init: Option<TaskId>,
    /// Its own processes, by the opener's numbers; those of namespaces inside are not
    /// among them.
    pub processes: BTreeSet<u32>,
    /// Its own threads, in the order of their numbers.
    pub tasks: Vec<TaskId>,
    /// How long these have run, in nanoseconds.
    pub cpu_ns: u64,
    /// Time of the first record of one of them.
    pub first_ns: u64,
}

/// Pid namespaces, and what is in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The opener's; none when there is no thread.
    pub root: Option<u64>,
    /// All, by their ids.
    pub namespaces: BTreeMap<u64, PidNamespace>,
}

impl Tree {
    /// The tree of these threads.
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Tree {
        let mut tasks: Vec<&Task> = tasks.into_iter().collect();
        // What does not fit together follows the first, whatever order they come in.
        tasks.sort_unstable_by_key(|task| task.id);
        let mut tree = Tree::default();
        for task in tasks {
            tree.add(task);
        }
        tree
    }

    /// From the outermost to the innermost, each followed by those inside.
    pub fn walk(&self) -> Vec<&PidNamespace> {
        let mut order = Vec::new();
        let mut left: Vec<u64> = self.root.into_iter().collect();
        while let Some(namespace) = left.pop().and_then(|id| self.namespaces.get(&id)) {
            left.extend(namespace.children.iter().rev());
            order.push(namespace);
        }
        order
    }

    fn add(&mut self, task: &Task) {
        let Some(levels) = task.levels.last() else {
            return;
        };
        let mut parent: Option<u64> = None;
        for (depth, level) in levels.iter().enumerate() {
            // Records that name a namespace inside of itself, or in two places, are not the
            // kernel's; a walk must end nevertheless.
            let known = self.namespaces.get(&level.id);
            if known.is_some_and(|known| known.depth != depth || known.parent != parent) {
                return;
            }
            if depth == 0 && *self.root.get_or_insert(level.id) != level.id {
                return;
            }
            let node = self
                .namespaces
                .entry(level.id)
                .or_insert_with(|| PidNamespace {
                    id: level.id,
                    inum: level.inum,
                    parent,
                    depth,
                    first_ns: u64::MAX,
                    ..PidNamespace::default()
                });
            node.first_ns = node.first_ns.min(task.first_ns);
            if level.tid == 1 && depth + 1 == levels.len() {
                let is_later = |init: TaskId| init.start_ns < task.id.start_ns;
                if node.init.is_none_or(is_later) {
                    node.init = Some(task.id);
                }
            }
            if let Some(outside) = parent.and_then(|id| self.namespaces.get_mut(&id)) {
                outside.children.insert(level.id);
            }
            parent = Some(level.id);
        }
        if let Some(own) = parent.and_then(|id| self.namespaces.get_mut(&id)) {
            own.processes.insert(task.pid());
            own.tasks.push(task.id);
            own.cpu_ns = own.cpu_ns.saturating_add(task.times.cpu_ns);
        }
    }
}

#[cfg(test)]
mod tests;
