// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::testing::{apply, Made};
use crate::Tasks;
use nsprobe_common::task::{TaskLevel, TASK_ALIVE, TASK_FORK};

fn level(inum: u32, tid: u32) -> TaskLevel {
    TaskLevel {
        id: inum.into(),
        inum,
        tid,
        pid: tid,
        ppid: 0,
    }
}

/// Threads with these levels; the first number is that of the opener's namespace.
fn tasks(all: &[&[(u32, u32)]]) -> Tasks {
    let mut tasks = Tasks::default();
    for levels in all {
        let tid = levels[0].1;
        let mut made = Made::of(TASK_ALIVE, u64::from(tid), tid, u64::from(tid));
        made.record.cpu_ns = 10;
        made.levels = levels
            .iter()
            .map(|(inum, tid)| level(*inum, *tid))
            .collect();
        apply(&mut tasks, &made);
    }
    tasks
}

#[test]
fn namespaces_are_where_their_tasks_say() {
    let tasks = tasks(&[
        &[(100, 1)],
        &[(100, 50), (200, 1)],
        &[(100, 51), (200, 2), (300, 1)],
        &[(100, 52), (200, 3), (300, 2)],
        &[(100, 60), (400, 1)],
    ]);
    let tree = Tree::of(tasks.living());
    let walked: Vec<(u32, usize)> = tree
        .walk()
        .iter()
        .map(|one| (one.inum, one.depth))
        .collect();
    assert_eq!(walked, [(100, 0), (200, 1), (300, 2), (400, 1)]);
    let inner = &tree.namespaces[&300];
    assert_eq!((inner.parent, inner.cpu_ns), (Some(200), 20));
    assert_eq!(inner.init.map(|init| init.tid), Some(51));
    assert_eq!(inner.processes, BTreeSet::from([51, 52]));
    assert_eq!(tree.namespaces[&100].init.map(|init| init.tid), Some(1));
}

#[test]
fn a_namespace_is_there_although_only_those_inside_have_tasks() {
    let tree = Tree::of(tasks(&[&[(100, 51), (200, 2), (300, 1)]]).living());
    assert_eq!(tree.walk().len(), 3);
    assert_eq!(tree.namespaces[&200].init, None);
}

#[test]
fn a_number_that_comes_again_is_another_namespace() {
    let mut tasks = tasks(&[&[(100, 50), (200, 1)]]);
    let mut later = Made::of(TASK_FORK, 60, 60, 60);
    later.levels.push(level(200, 1));
    later.levels[1].id = 201;
    apply(&mut tasks, &later);
    let tree = Tree::of(tasks.living());
    let walked = tree.walk();
    let walked: Vec<_> = walked.iter().map(|one| (one.id, one.inum)).collect();
    assert_eq!(walked, [(100, 100), (200, 200), (201, 200)]);
}

#[test]
fn namespaces_inside_of_themselves_are_not_followed() {
    let tree = Tree::of(
        tasks(&[
            &[(100, 1), (200, 1)],
            &[(100, 2), (200, 2), (100, 1)],
            &[(100, 3), (300, 1), (200, 9)],
            &[(999, 4), (200, 9)],
        ])
        .living(),
    );
    assert_eq!(tree.walk().len(), 3);
    let of = Made::of(TASK_FORK, 1, 1, 1);
    assert!(!of.levels.is_empty());
}
