// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::testing::{apply, Made};
use nsprobe_common::task::{TASK_BARE, TASK_CGROUP, TASK_FORK, TASK_NAME};

fn id(tid: u32, start_ns: u64) -> TaskId {
    TaskId { tid, start_ns }
}

fn ends(tasks: &Tasks, of: TaskId) -> Option<EndCause> {
    tasks.get(of).unwrap().end.map(|end| end.cause)
}

#[test]
fn a_task_is_what_it_was_at_each_moment() {
    let mut tasks = Tasks::default();
    let fork = Made::of(TASK_FORK, 10, 7, 10).made_by(3);
    apply(&mut tasks, &fork.named("sh").in_group(1));
    apply(
        &mut tasks,
        &Made::of(TASK_NAME, 20, 7, 10).named("web").in_group(1),
    );
    apply(
        &mut tasks,
        &Made::of(TASK_CGROUP, 30, 7, 10).named("web").in_group(2),
    );
    let mut exit = Made::of(TASK_EXIT, 40, 7, 10).named("web").in_group(2);
    exit.record.flags |= TASK_BARE | TASK_LAST;
    exit.record.value = 0x100;
    apply(&mut tasks, &exit);
    let task = tasks.get(id(7, 10)).unwrap();
    assert_eq!(task.origin, Origin::Fork);
    assert_eq!(task.maker[0].tid, 3);
    assert_eq!(task.comm(), b"web");
    assert_eq!(task.names.at(15).map(|name| &name[..3]), Some(&b"sh\0"[..]));
    assert_eq!([15, 35].map(|time| *task.cgroups.at(time).unwrap()), [1, 2]);
    assert_eq!(task.namespaces.changes().len(), 1, "the dead tell of none");
    let cause = EndCause::Exit {
        code: 0x100,
        last: true,
    };
    assert_eq!(task.end, Some(End { time_ns: 40, cause }));
    assert!(tasks.at(7, 25).is_some() && tasks.at(7, 5).is_none() && tasks.at(7, 41).is_none());
}

#[test]
fn a_number_that_comes_back_is_another_thread() {
    let mut tasks = Tasks::default();
    apply(&mut tasks, &Made::of(TASK_FORK, 10, 7, 10));
    apply(&mut tasks, &Made::of(TASK_FORK, 50, 7, 50));
    assert_eq!(ends(&tasks, id(7, 10)), Some(EndCause::Reused));
    assert_eq!(tasks.at(7, 30).unwrap().id, id(7, 10));
    assert_eq!(tasks.at(7, 60).unwrap().id, id(7, 50));
    // The end was not lost after all, it was late.
    apply(&mut tasks, &Made::of(TASK_EXIT, 40, 7, 10));
    assert_eq!(tasks.get(id(7, 10)).unwrap().end.unwrap().time_ns, 40);
}

#[test]
fn an_older_thread_that_shows_up_later_has_ended() {
    let mut tasks = Tasks::default();
    apply(&mut tasks, &Made::of(TASK_FORK, 50, 7, 50));
    apply(&mut tasks, &Made::of(TASK_NAME, 20, 7, 10));
    assert_eq!(ends(&tasks, id(7, 10)), Some(EndCause::Reused));
    assert_eq!(tasks.get(id(7, 10)).unwrap().origin, Origin::Late);
    assert_eq!(tasks.living().count(), 1);
}

#[test]
fn a_thread_that_executes_takes_the_first_ones_place() {
    for late in [false, true] {
        let mut tasks = Tasks::default();
        let thread = Made::of(TASK_FORK, 20, 9, 20).of_process(7);
        let mut exec = Made::of(TASK_EXEC, 40, 7, 10);
        exec.record.value = 9;
        apply(&mut tasks, &Made::of(TASK_FORK, 10, 7, 10));
        if !late {
            apply(&mut tasks, &thread);
        }
        apply(&mut tasks, &Made::of(TASK_EXIT, 30, 7, 10));
        assert!(ends(&tasks, id(7, 10)).is_some());
        apply(&mut tasks, &exec);
        if late {
            apply(&mut tasks, &thread);
        }
        assert_eq!(ends(&tasks, id(7, 10)), None);
        assert_eq!(
            ends(&tasks, id(9, 20)),
            Some(EndCause::BecameFirst),
            "{late}"
        );
        // The number is free for others.
        apply(&mut tasks, &Made::of(TASK_FORK, 50, 9, 50));
        assert_eq!(ends(&tasks, id(9, 50)), None);
    }
}

#[test]
fn who_is_in_no_dump_has_ended() {
    let mut tasks = Tasks::default();
    apply(&mut tasks, &Made::of(TASK_FORK, 10, 7, 10));
    tasks.dump_begun(20);
    apply(&mut tasks, &Made::of(TASK_FORK, 25, 9, 25));
    apply(&mut tasks, &Made::of(TASK_ALIVE, 22, 8, 5));
    tasks.dump_ended();
    assert_eq!(ends(&tasks, id(7, 10)), Some(EndCause::Missed));
    assert_eq!(tasks.get(id(8, 5)).unwrap().origin, Origin::Dump);
    let mut living: Vec<TaskId> = tasks.living().map(|task| task.id).collect();
    living.sort_unstable();
    assert_eq!(living, [id(8, 5), id(9, 25)]);
    // A record that was on its way when the dump was over.
    apply(&mut tasks, &Made::of(TASK_FORK, 19, 6, 19));
    assert_eq!(ends(&tasks, id(6, 19)), Some(EndCause::Missed));
}

#[test]
fn a_zombie_does_not_live() {
    let mut tasks = Tasks::default();
    let mut zombie = Made::of(TASK_ALIVE, 20, 7, 10);
    zombie.record.flags |= TASK_ZOMBIE;
    apply(&mut tasks, &zombie);
    assert_eq!(ends(&tasks, id(7, 10)), Some(EndCause::Zombie));
    assert_eq!(tasks.living().count(), 0);
}

#[test]
fn no_parent_is_guessed() {
    let mut tasks = Tasks::default();
    apply(&mut tasks, &Made::of(TASK_FORK, 10, 7, 10).below(1));
    apply(&mut tasks, &Made::of(TASK_FORK, 20, 8, 20).below(7));
    let parent = |tasks: &Tasks, tid| tasks.parent(tasks.now(tid).unwrap());
    assert_eq!(parent(&tasks, 8), Parent::Process(7));
    assert_eq!(
        parent(&tasks, 7),
        Parent::Process(1),
        "of whom nothing is known"
    );
    apply(&mut tasks, &Made::of(TASK_FORK, 25, 9, 25).of_process(7));
    apply(&mut tasks, &Made::of(TASK_EXIT, 30, 7, 10));
    assert_eq!(
        parent(&tasks, 8),
        Parent::Process(7),
        "another thread lives"
    );
    apply(&mut tasks, &Made::of(TASK_EXIT, 31, 9, 25).of_process(7));
    assert_eq!(parent(&tasks, 8), Parent::Ended(7));
    apply(&mut tasks, &Made::of(TASK_NAME, 40, 8, 20).below(1));
    assert_eq!(parent(&tasks, 8), Parent::Process(1));
}

#[test]
fn what_has_ended_is_forgotten_in_time() {
    let limits = HistoryLimits {
        ended: 2,
        changes: 3,
    };
    let mut tasks = Tasks::new(limits);
    for tid in 1..=5 {
        apply(&mut tasks, &Made::of(TASK_FORK, u64::from(tid), tid, 1));
        apply(
            &mut tasks,
            &Made::of(TASK_EXIT, 100 - u64::from(tid), tid, 1),
        );
    }
    let mut left: Vec<u32> = tasks.all().map(|task| task.id.tid).collect();
    left.sort_unstable();
    assert_eq!((left, tasks.forgotten()), (vec![1, 2], 3));
    for time in 0..10 {
        let named = Made::of(TASK_NAME, 200 + time, 9, 1).named(&time.to_string());
        apply(&mut tasks, &named);
    }
    assert_eq!(tasks.now(9).unwrap().names.changes().len(), 3);
}
