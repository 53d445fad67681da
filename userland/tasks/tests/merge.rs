// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever order the two streams come in, and whatever is lost: those live that the records
//! say live.
//!
//! A world of a few numbers is played: processes and threads are made, end, and execute.
//! Meanwhile dumps walk over the numbers as the kernel does, one after the other. The world
//! knows who lives in it.

#![expect(clippy::unwrap_used, reason = "tests")]

use nsprobe_common::task::{
    TaskDetails, TaskLevel, TaskRecord, TASK_ALIVE, TASK_ENDING, TASK_EXEC, TASK_EXIT, TASK_FORK,
    TASK_NAME, TASK_ZOMBIE,
};
use nsprobe_tasks::{HistoryLimits, TaskId, Tasks};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NUMBERS: u32 = 9;

#[derive(Clone, Copy, Debug)]
struct Event {
    what: u16,
    time: u64,
    id: TaskId,
    pid: u32,
    value: u32,
    is_zombie: bool,
    is_ending: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    NewProcess,
    NewThread(usize),
    End(usize),
    Execute(usize),
    Rename(usize),
    /// A dump goes on by so many numbers, and begins when there is none.
    Dump(u32),
}

#[derive(Debug, Default)]
struct World {
    time: u64,
    /// By number: start, process, whether it has ended.
    tasks: BTreeMap<u32, (u64, u32, bool)>,
    /// Threads whose end was recorded, and that are still seen: by number, and until when.
    ending: BTreeMap<u32, (Event, u64)>,
    live: Vec<Event>,
    /// For each dump, when it was begun and what it gave.
    dumps: Vec<(u64, Vec<Event>)>,
    next: u32,
}

impl World {
    fn event(&self, what: u16, tid: u32) -> Event {
        let (start_ns, pid, is_zombie) = self.tasks[&tid];
        Event {
            what,
            time: self.time,
            id: TaskId { tid, start_ns },
            pid,
            value: tid,
            is_zombie,
            is_ending: is_zombie,
        }
    }

    fn record(&mut self, what: u16, tid: u32) {
        let event = self.event(what, tid);
        self.live.push(event);
    }

    /// The threads that can do something.
    fn chosen(&self, index: usize) -> Option<u32> {
        let all = self.tasks.iter().filter(|(_, task)| !task.2);
        let all: Vec<u32> = all.map(|(tid, _)| *tid).collect();
        (!all.is_empty()).then(|| all[index % all.len()])
    }

    fn make(&mut self, pid: Option<u32>) {
        let Some(tid) = (1..=NUMBERS).find(|tid| !self.tasks.contains_key(tid)) else {
            return;
        };
        self.tasks
            .insert(tid, (self.time, pid.unwrap_or(tid), false));
        self.record(TASK_FORK, tid);
    }

    fn end(&mut self, tid: u32) {
        self.record(TASK_EXIT, tid);
        let pid = self.tasks[&tid].1;
        match tid == pid {
            true => self.tasks.get_mut(&tid).unwrap().2 = true,
            false => {
                let event = Event {
                    what: TASK_ALIVE,
                    is_ending: true,
                    ..self.event(TASK_ALIVE, tid)
                };
                self.ending.insert(tid, (event, self.time + 8));
                self.tasks.remove(&tid);
            }
        }
        let of_process = self.tasks.values().filter(|task| task.1 == pid && !task.2);
        if of_process.count() == 0 {
            self.tasks.remove(&pid);
        }
    }

    /// All other threads of its process end, and it takes the first one's place.
    fn execute(&mut self, tid: u32) {
        let pid = self.tasks[&tid].1;
        let others = self
            .tasks
            .iter()
            .filter(|(other, task)| task.1 == pid && !task.2 && **other != tid);
        let others: Vec<u32> = others.map(|(other, _)| *other).collect();
        for other in others {
            self.time += 1;
            self.end(other);
        }
        self.time += 1;
        if tid != pid {
            self.tasks.remove(&tid);
            self.tasks.get_mut(&pid).unwrap().2 = false;
        }
        let mut event = self.event(TASK_EXEC, pid);
        event.value = tid;
        self.live.push(event);
    }

    fn dump(&mut self, count: u32) {
        if self.next == 0 {
            self.dumps.push((self.time, Vec::new()));
            self.next = 1;
        }
        for _ in 0..count {
            self.time += 1;
            if self.tasks.contains_key(&self.next) {
                let event = self.event(TASK_ALIVE, self.next);
                self.dumps.last_mut().unwrap().1.push(event);
            } else if let Some((event, until)) = self.ending.get(&self.next) {
                let time = self.time;
                let event = Event { time, ..*event };
                if time <= *until {
                    self.dumps.last_mut().unwrap().1.push(event);
                }
            }
            self.next += 1;
            if self.next > NUMBERS {
                self.next = 0;
                return;
            }
        }
    }

    fn play(steps: &[Step]) -> World {
        let mut world = World::default();
        for step in steps {
            world.time += 1;
            match *step {
                Step::NewProcess => world.make(None),
                Step::NewThread(of) => {
                    let pid = world.chosen(of).map(|tid| world.tasks[&tid].1);
                    pid.into_iter().for_each(|pid| world.make(Some(pid)));
                }
                Step::End(of) => world.chosen(of).into_iter().for_each(|tid| world.end(tid)),
                Step::Execute(of) => world
                    .chosen(of)
                    .into_iter()
                    .for_each(|tid| world.execute(tid)),
                Step::Rename(of) => world
                    .chosen(of)
                    .into_iter()
                    .for_each(|tid| world.record(TASK_NAME, tid)),
                Step::Dump(count) => world.dump(count),
            }
        }
        while world.next > 0 {
            world.time += 1;
            world.dump(NUMBERS);
        }
        world
    }

    fn living(&self) -> BTreeSet<TaskId> {
        let living = self.tasks.iter().filter(|(_, task)| !task.2);
        let id = |(tid, task): (&u32, &(u64, u32, bool))| TaskId {
            tid: *tid,
            start_ns: task.0,
        };
        living.map(id).collect()
    }
}

/// Who lives, as all records together tell, whatever order they came in.
fn told(live: &[Event], dumps: &[(u64, Vec<Event>)]) -> BTreeSet<TaskId> {
    let all = || live.iter().chain(dumps.iter().flat_map(|(_, dump)| dump));
    let ids: BTreeSet<TaskId> = all().map(|event| event.id).collect();
    let lives = |id: &TaskId| {
        let own = || all().filter(|event| event.id == *id);
        let told_ns = own().map(|event| event.time).max().unwrap();
        let active = own().filter(|event| !event.is_ending || event.what == TASK_EXIT);
        let zombies = own().filter(|event| event.is_zombie);
        let last = active.chain(zombies).max_by_key(|event| event.time);
        let first = own().map(|event| event.time).min().unwrap();
        let is_reused = ids
            .iter()
            .any(|o| o.tid == id.tid && o.start_ns > id.start_ns);
        let has_moved = live.iter().any(|event| {
            event.what == TASK_EXEC
                && event.value == id.tid
                && event.id.tid != id.tid
                && event.time > first
        });
        let is_missed = dumps
            .iter()
            .any(|(begun, dump)| told_ns < *begun && dump.iter().all(|event| event.id != *id));
        let has_ended = last.is_some_and(|last| last.what == TASK_EXIT || last.is_zombie);
        !(has_ended || is_reused || has_moved || is_missed)
    };
    ids.iter().copied().filter(lives).collect()
}

fn flags(event: &Event) -> u32 {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    flag(event.is_zombie, TASK_ZOMBIE) | flag(event.is_ending, TASK_ENDING)
}

fn apply(tasks: &mut Tasks, event: &Event) {
    let record = TaskRecord {
        what: event.what,
        time_ns: event.time,
        start_ns: event.id.start_ns,
        value: event.value,
        flags: flags(event),
        ..TaskRecord::default()
    };
    let level = TaskLevel {
        id: 1,
        inum: 1,
        tid: event.id.tid,
        pid: event.pid,
        ppid: 0,
    };
    let details = TaskDetails {
        levels: &[level],
        parent: &[],
        args: &[],
    };
    tasks.apply(&record, &details);
}

/// Both streams, merged as `takes_live` says.
fn merge(live: &[Event], dumps: &[(u64, Vec<Event>)], takes_live: &[bool]) -> Tasks {
    let mut tasks = Tasks::new(HistoryLimits::default());
    let mut live = live.iter();
    let mut order = takes_live.iter().cycle();
    let mut between = |tasks: &mut Tasks| {
        while *order.next().unwrap_or(&false) {
            match live.next() {
                Some(event) => apply(tasks, event),
                None => return,
            }
        }
    };
    for (begun, dump) in dumps {
        between(&mut tasks);
        tasks.dump_begun(*begun);
        for event in dump {
            between(&mut tasks);
            apply(&mut tasks, event);
        }
        between(&mut tasks);
        tasks.dump_ended();
    }
    live.for_each(|event| apply(&mut tasks, event));
    tasks
}

fn living(tasks: &Tasks) -> BTreeSet<TaskId> {
    tasks.living().map(|task| task.id).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>();
    prop_oneof![
        3 => Just(Step::NewProcess),
        3 => any.prop_map(Step::NewThread),
        3 => any.prop_map(Step::End),
        2 => any.prop_map(Step::Execute),
        1 => any.prop_map(Step::Rename),
        2 => (1..4u32).prop_map(Step::Dump),
    ]
}

/// Some of each, not all the same: a merge must come to its end.
fn order() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(any::<bool>(), 1..40).prop_map(|mut order| {
        order.push(false);
        order
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn without_losses_those_live_who_live(
        steps in prop::collection::vec(step(), 0..60),
        order in order(),
    ) {
        let world = World::play(&steps);
        let tasks = merge(&world.live, &world.dumps, &order);
        prop_assert_eq!(living(&tasks), world.living());
    }

    #[test]
    fn with_losses_those_live_whom_the_records_tell_of(
        steps in prop::collection::vec(step(), 0..60),
        order in order(),
        kept in prop::collection::vec(prop::bool::weighted(0.7), 1..40),
    ) {
        let mut world = World::play(&steps);
        let mut kept = kept.iter().cycle();
        world.live.retain(|_| *kept.next().unwrap());
        let tasks = merge(&world.live, &world.dumps, &order);
        prop_assert_eq!(living(&tasks), told(&world.live, &world.dumps));
    }
}
