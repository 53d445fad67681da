// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a dump and the events that follow it tell of each task once, whatever happens
//! meanwhile; what is missed is counted.

use super::task_dump::dump;
use crate::figures;
use crate::module::Module;
use crate::setting::Setting;
use crate::tasks::{Kept, TaskSession, Told};
use crate::victim;
use libnsprobe::{DumpOptions, Reader, TaskOptions};
use nsprobe_common::abi::{
    TASKS_CPU, TASKS_LIFE, TASKS_MOVES, TASKS_NAMES, TASKS_SWITCHES, TASKS_UNFILTERED,
    TASKS_WAKEUPS, TASK_KIND_EXIT, TASK_KIND_FORK,
};
use nsprobe_common::task::{TASK_ALIVE, TASK_ENDING, TASK_EXEC, TASK_EXIT, TASK_FORK};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::time::{Duration, Instant};

/// What names a thread for good.
type Key = (u32, u64);

/// What a session was told of each thread.
#[derive(Default)]
struct Lives {
    made: HashMap<Key, Told>,
    ended: HashMap<Key, Told>,
    /// Those of a dump, when it began, and when it was over.
    dumped: HashMap<Key, Told>,
    begun_ns: u64,
    over_ns: u64,
    renumbered: HashSet<Key>,
}

impl Lives {
    fn add(&mut self, all: Vec<Told>) {
        for told in all {
            let key = told.key();
            match told.task.what {
                TASK_FORK => {
                    let before = self.made.insert(key, told);
                    assert!(before.is_none(), "made twice: {before:?}");
                }
                TASK_EXIT => {
                    let before = self.ended.insert(key, told);
                    assert!(before.is_none(), "ended twice: {before:?}");
                }
                TASK_EXEC if told.task.value != told.tid() => {
                    self.renumbered.insert(key);
                }
                _ => {}
            }
        }
    }

    fn dump(&mut self, session: &TaskSession) {
        self.begun_ns = Reader::now();
        for told in dump(session, DumpOptions::default()) {
            assert_eq!(told.task.what, TASK_ALIVE);
            assert!(told.task.time_ns >= self.begun_ns);
            let before = self.dumped.insert(told.key(), told);
            assert!(before.is_none(), "dumped twice: {before:?}");
        }
        self.over_ns = Reader::now();
    }

    /// Ends the session with another dump, and holds all that it told against that.
    fn end(&mut self, session: &mut TaskSession) -> Lives {
        let mut later = Lives::default();
        later.dump(session);
        self.wait_for_makers_of(&later, session);
        session.set(0, 0);
        self.wait_for_the_rest(&later, session);
        session.check_nothing_lost();
        assert_eq!(self.fault(&later), None);
        later
    }

    /// Whoever began an event before the end of events may not get a CPU in the middle of its
    /// record, and what is after that one in the ring waits for it.
    fn wait_for_the_rest(&mut self, later: &Lives, session: &mut TaskSession) {
        let until = Instant::now() + Duration::from_secs(30);
        self.add(session.told());
        while !self.is_whole(later, session) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
            self.add(session.told());
        }
    }

    /// Whether they are as many as the session has counted in its rings, and nothing is wrong.
    fn is_whole(&self, later: &Lives, session: &TaskSession) -> bool {
        let counters = session.session.task_counters().expect("counters");
        let recorded = |kind: usize| counters.kinds[kind].recorded;
        let told = [self.made.len() as u64, self.ended.len() as u64];
        let has_all = [TASK_KIND_FORK, TASK_KIND_EXIT].map(recorded) == told;
        counters.balance() && has_all && self.fault(later).is_none()
    }

    /// A task is there for a dump a moment before its maker tells of it, and that maker may
    /// not get a CPU meanwhile: events end when it had the time.
    fn wait_for_makers_of(&mut self, later: &Lives, session: &mut TaskSession) {
        let until = Instant::now() + Duration::from_secs(30);
        self.add(session.told());
        while self.missed(later).is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
            self.add(session.told());
        }
    }

    /// A task of the later dump that nothing told of before.
    fn missed<'a>(&self, later: &'a Lives) -> Option<&'a Told> {
        let is_missed = |key: &Key| {
            let is_known = self.dumped.contains_key(key) || self.made.contains_key(key);
            !is_known && !self.renumbered.contains(key)
        };
        let mut missed = later.dumped.iter().filter(|(key, _)| is_missed(key));
        missed.next().map(|(_, told)| told)
    }

    /// What is wrong with them by a later dump of the same session, when its events are all
    /// here.
    fn fault(&self, later: &Lives) -> Option<String> {
        if let Some(missed) = self.missed(later) {
            return Some(format!("missed: {missed:?}"));
        }
        for (key, told) in &self.ended {
            let is_known = self.dumped.contains_key(key) || self.made.contains_key(key);
            // Made before events were asked for, and gone before the dump came to it.
            let was_between =
                told.task.start_ns < self.begun_ns && told.task.time_ns < self.over_ns;
            let is_told = is_known || was_between || self.renumbered.contains(key);
            if !is_told {
                return Some(format!("unknown: {told:?}"));
            }
        }
        let lived = self
            .dumped
            .iter()
            .filter(|(_, told)| told.task.flags & TASK_ENDING == 0);
        let made = self
            .made
            .iter()
            .filter(|(_, told)| told.task.time_ns < later.begun_ns);
        for (key, told) in lived.chain(made) {
            let is_told = self.ended.contains_key(key) || later.dumped.contains_key(key);
            if !is_told {
                return Some(format!("never ended, and is not there: {told:?}"));
            }
        }
        None
    }
}

/// A session of its own, from a dump to another one.
fn look_for(time: Duration) -> usize {
    let mut session = TaskSession::with_rings(8 << 20);
    session.set(TASKS_LIFE | TASKS_UNFILTERED, 0);
    let mut lives = Lives::default();
    lives.dump(&session);
    let until = Instant::now() + time;
    while Instant::now() < until {
        lives.add(session.told());
        std::thread::sleep(Duration::from_millis(10));
    }
    lives.end(&mut session);
    lives.made.len()
}

/// Starts the storm: namespaces, processes and threads in each.
fn storm(counts: [u32; 3]) -> Kept {
    let program = victim::path("task_storm");
    let counts = counts.map(|count| count.to_string());
    let counts: Vec<&str> = counts.iter().map(String::as_str).collect();
    Kept::start(program.to_str().expect("a plain name"), &counts)
}

/// What it printed, once it has ended.
fn made_by(storm: &mut Kept) -> (usize, usize) {
    let mut text = String::new();
    let output = storm.0.stdout.as_mut().expect("it is piped");
    output.read_to_string(&mut text).expect("numbers");
    assert!(storm.0.wait().expect("its end").success());
    let mut numbers = text.split_whitespace().map(|word| word.parse::<usize>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(processes)), Some(Ok(threads))) => (processes, threads),
        _ => panic!("{text}"),
    }
}

/// Pid namespaces of the storm.
const INITS: u32 = 50;

/// Each run makes one of this many parts of the storm.
fn parts() -> u32 {
    figures::parts(20) as u32
}

test! { full, a_fork_storm_is_told_whole, module, cpus = 2, seconds = 400 }
fn a_fork_storm_is_told_whole() {
    let _module = Module::load();
    let mut session = TaskSession::with_rings(8 << 20);
    session.set(TASKS_LIFE | TASKS_UNFILTERED, 0);
    let mut lives = Lives::default();
    lives.dump(&session);
    // 320 processes of which every fourth makes another one are 400.
    let mut running = storm([INITS, 320 / parts(), 200 / parts()]);
    let storm_pid = running.pid();
    let others = std::thread::spawn(|| {
        let looks = (0..12).map(|look| look_for(Duration::from_millis(100 + 150 * (look % 4))));
        looks.collect::<Vec<usize>>()
    });
    while running.0.try_wait().expect("a child").is_none() {
        lives.add(session.told());
        std::thread::sleep(Duration::from_millis(10));
    }
    let looks = others.join().expect("no task was missed");
    println!("forks that other sessions saw: {looks:?}");
    lives.end(&mut session);
    let (processes, threads) = made_by(&mut running);
    let all = (20_000 / parts() as usize, 10_000 / parts() as usize);
    assert_eq!((processes, threads), all);
    check_storm(&lives, storm_pid, processes, threads);
    let counters = session.session.task_counters().expect("counters");
    let seen = |kind: usize| counters.kinds[kind].seen;
    assert_eq!(seen(TASK_KIND_FORK), lives.made.len() as u64);
    assert_eq!(seen(TASK_KIND_EXIT), lives.ended.len() as u64);
}

/// The tasks of the storm are those that it made, and each has ended.
fn check_storm(lives: &Lives, storm: u32, processes: usize, threads: usize) {
    let first = |told: &&Told| told.maker[0].pid == storm;
    let inits: HashSet<u32> = lives.made.values().filter(first).map(Told::pid).collect();
    assert_eq!(inits.len(), INITS as usize);
    let namespaces: HashSet<u32> = lives
        .made
        .values()
        .filter(first)
        .map(|told| told.levels[1].inum)
        .collect();
    let of_storm =
        |told: &&Told| told.levels.len() == 2 && namespaces.contains(&told.levels[1].inum);
    let made: Vec<&Told> = lives.made.values().filter(of_storm).collect();
    let new_threads = made.iter().filter(|told| told.tid() != told.pid()).count();
    assert_eq!(new_threads, threads);
    assert_eq!(made.len() - new_threads - inits.len(), processes);
    for told in made {
        let ended = lives.ended.get(&told.key());
        let ended = ended.unwrap_or_else(|| panic!("no end: {told:?}"));
        assert_eq!(ended.levels.len(), told.levels.len());
        assert_eq!(ended.levels[1].tid, told.levels[1].tid);
        assert_eq!(ended.task.value, 0, "{ended:?}");
        assert!(ended.task.time_ns > told.task.time_ns);
    }
}

test! { full, numbers_that_come_back_are_other_tasks, seconds = 120 }
fn numbers_that_come_back_are_other_tasks() {
    let _module = Module::load();
    let _few = Setting::new("/proc/sys/kernel/pid_max", "1000");
    let mut session = TaskSession::with_rings(8 << 20);
    session.set(TASKS_LIFE | TASKS_UNFILTERED, 0);
    let mut lives = Lives::default();
    lives.dump(&session);
    let mut running = storm([2, 1600, 400]);
    let (processes, threads) = made_by(&mut running);
    lives.end(&mut session);
    let numbers: HashSet<u32> = lives.made.keys().map(|key| key.0).collect();
    assert!(lives.made.len() >= processes + threads);
    assert!(numbers.len() <= 1000, "{}", numbers.len());
}

test! { full, sessions_close_and_the_module_goes_under_a_storm, cpus = 2, seconds = 200 }
fn sessions_close_and_the_module_goes_under_a_storm() {
    let mut running = storm([10, 400, 200]);
    let all = TASKS_LIFE
        | TASKS_NAMES
        | TASKS_MOVES
        | TASKS_SWITCHES
        | TASKS_WAKEUPS
        | TASKS_CPU
        | TASKS_UNFILTERED;
    for round in 0..6 {
        let module = Module::load();
        let sessions: Vec<TaskSession> = (0..3)
            .map(|_| {
                let mut session = TaskSession::with_rings(64 << 10);
                let options = TaskOptions {
                    flags: all,
                    args_bytes: 256,
                    cpu_rows: 64,
                };
                session.session.set_tasks(&options).expect("TASKS");
                session
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50 * (round % 3)));
        for mut session in sessions {
            session.told();
            let times = session.session.cpu_times().expect("CPU_TIMES");
            assert!(!times.rows.is_empty());
            drop(session);
        }
        drop(module);
    }
    made_by(&mut running);
}
