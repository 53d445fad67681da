// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time between two readings, by container, process and thread.
//!
//! The kernel accounts a container's time exactly. The time of each of its threads follows from two
//! dumps, and from the records of threads that ended in between; the remainder is a row of its own.

use nsprobe_containers::PidSpace;
use nsprobe_tasks::{Origin, Task, TaskId, Tasks};
use nsprobe_trace::tasks::{space_of, CpuReading, Place, Places, SelectedTasks};
use std::collections::{BTreeMap, HashMap};

/// A thread, and how long it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadUse {
    pub(super) id: TaskId,
    pub(super) own_tid: u32,
    pub(super) comm: Vec<u8>,
    pub(super) cpu_ns: u64,
    pub(super) has_ended: bool,
}

/// A process, and how long its threads ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessUse {
    pub(super) pid: u32,
    pub(super) own_pid: u32,
    pub(super) comm: Vec<u8>,
    pub(super) cpu_ns: u64,
    /// The most busy first.
    pub(super) threads: Vec<ThreadUse>,
}

/// CPU use of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupUse {
    pub(super) place: Place,
    pub(super) cpu_ns: u64,
    /// Number of context switches.
    pub(super) switches: u64,
    /// Number of living threads.
    pub(super) threads: usize,
    /// Number of living processes.
    pub(super) living: usize,
    /// Those that ran, or live; the most busy first.
    pub(super) processes: Vec<ProcessUse>,
}

impl GroupUse {
    /// CPU time that belongs to no listed process: of threads that ended without being seen, and
    /// between a dump and the reading beside it.
    pub(super) fn remainder_ns(&self) -> u64 {
        let told: u64 = self.processes.iter().map(|process| process.cpu_ns).sum();
        self.cpu_ns.saturating_sub(told)
    }
}

/// CPU use in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    /// Length of the interval.
    pub(super) elapsed_ns: u64,
    /// Number of CPUs.
    pub(super) cpus: u32,
    /// CPU time that the kernel had no room to attribute.
    pub(super) unaccounted_ns: u64,
    /// Records of tasks that were lost.
    pub(super) lost: u64,
    /// By place.
    pub(super) groups: Vec<GroupUse>,
}

impl Interval {
    /// All CPU time.
    pub(super) fn cpu_ns(&self) -> u64 {
        let groups: u64 = self.groups.iter().map(|group| group.cpu_ns).sum();
        groups + self.unaccounted_ns
    }

    /// A time as a part of one CPU, in percent.
    pub(super) fn percent(&self, cpu_ns: u64) -> f64 {
        match self.elapsed_ns {
            0 => 0.0,
            elapsed => 100.0 * cpu_ns as f64 / elapsed as f64,
        }
    }

    /// Share of all CPUs together, in percent.
    pub(super) fn percent_of_all(&self, cpu_ns: u64) -> f64 {
        self.percent(cpu_ns) / f64::from(self.cpus.max(1))
    }
}

/// Knows the containers, and which of them are requested.
pub(super) struct Wanted<'a, P> {
    pub(super) places: &'a P,
    pub(super) scope: &'a SelectedTasks,
}

/// State kept from one reading to the next.
#[derive(Debug, Default)]
pub(super) struct Meter {
    cpus: u32,
    before: Option<CpuReading>,
    boot_ns: u64,
    threads: HashMap<TaskId, u64>,
    /// The pid namespaces around each, the opener's first, and itself.
    paths: HashMap<u64, Vec<PidSpace>>,
}

impl Meter {
    /// For a machine with `cpus` CPUs.
    pub(super) fn new(cpus: u32) -> Meter {
        Meter {
            cpus,
            ..Meter::default()
        }
    }

    /// Takes a reading, and what is known of tasks right after it; what ran since the one
    /// before. `boot_ns` is CLOCK_BOOTTIME of the reading.
    pub(super) fn read(
        &mut self,
        cpu: CpuReading,
        tasks: &Tasks,
        boot_ns: u64,
        wanted: &Wanted<'_, impl Places>,
    ) -> Option<Interval> {
        self.note_paths(tasks);
        let before = self.before.replace(cpu.clone());
        let most_ns = before
            .as_ref()
            .map_or(u64::MAX, |before| elapsed_ns(before, &cpu));
        let interval = before.map(|before| self.since(&before, &cpu, tasks, wanted));
        // Tasks are asked for after the reading, later than usual when the machine pauses:
        // what ran meanwhile is of the next interval.
        let times = tasks.living().map(|task| {
            let later_ns = self.ran(task).saturating_sub(most_ns);
            (task.id, task.times.cpu_ns.saturating_sub(later_ns))
        });
        self.threads = times.collect();
        self.boot_ns = boot_ns;
        interval
    }

    fn since(
        &self,
        before: &CpuReading,
        now: &CpuReading,
        tasks: &Tasks,
        wanted: &Wanted<'_, impl Places>,
    ) -> Interval {
        let elapsed_ns = elapsed_ns(before, now);
        let mut groups: BTreeMap<Place, GroupUse> = BTreeMap::new();
        let known: HashMap<_, _> = before.rows.iter().map(|row| (row.key(), row)).collect();
        for row in &now.rows {
            let old = known.get(&row.key());
            let since = |of: fn(&nsprobe_trace::tasks::CpuRow) -> u64| {
                of(row).saturating_sub(old.map_or(0, |old| of(old)))
            };
            let (cpu_ns, switches) = (since(|row| row.cpu_ns), since(|row| row.switches));
            let path = self.path(row.pid_namespace);
            let place = Place::found(row.cgroup, path.iter().copied(), wanted.places);
            if (cpu_ns > 0 || switches > 0) && wanted.scope.has_place(&place, row.cgroup, &path) {
                let group = group(&mut groups, place);
                group.cpu_ns += cpu_ns;
                group.switches += switches;
            }
        }
        self.add_tasks(&mut groups, tasks, before.time_ns, elapsed_ns, wanted);
        part_kernel(&mut groups);
        Interval {
            elapsed_ns,
            cpus: self.cpus,
            unaccounted_ns: now.turned_away_ns.saturating_sub(before.turned_away_ns),
            lost: 0,
            groups: groups.into_values().collect(),
        }
    }

    /// Enters threads that live, or ended since.
    fn add_tasks(
        &self,
        groups: &mut BTreeMap<Place, GroupUse>,
        tasks: &Tasks,
        since_ns: u64,
        elapsed_ns: u64,
        wanted: &Wanted<'_, impl Places>,
    ) {
        let mut processes: BTreeMap<(Place, u32), ProcessUse> = BTreeMap::new();
        for task in tasks.all() {
            let ended = task.end.is_some();
            let is_over = task.end.is_some_and(|end| end.time_ns < since_ns);
            if is_over || !wanted.scope.has(task, wanted.places) {
                continue;
            }
            let cpu_ns = self.ran(task).min(elapsed_ns);
            let place = Place::of(task, wanted.places);
            group(groups, place.clone()).threads += usize::from(!ended);
            let process = processes.entry((place, task.pid())).or_insert(ProcessUse {
                pid: task.pid(),
                own_pid: task.own().pid,
                comm: task.comm().to_vec(),
                cpu_ns: 0,
                threads: Vec::new(),
            });
            if task.is_first() {
                process.comm = task.comm().to_vec();
            }
            process.cpu_ns += cpu_ns;
            process.threads.push(ThreadUse {
                id: task.id,
                own_tid: task.own().tid,
                comm: task.comm().to_vec(),
                cpu_ns,
                has_ended: ended,
            });
        }
        for ((place, _), mut process) in processes {
            let lives = process.threads.iter().any(|thread| !thread.has_ended);
            let busy = |thread: &ThreadUse| (std::cmp::Reverse(thread.cpu_ns), thread.id);
            process.threads.sort_by_key(busy);
            let group = group(groups, place);
            group.living += usize::from(lives);
            group.processes.push(process);
        }
        for group in groups.values_mut() {
            let busy = |process: &ProcessUse| (std::cmp::Reverse(process.cpu_ns), process.pid);
            group.processes.sort_by_key(busy);
        }
    }

    /// CPU time of a thread since the previous reading.
    fn ran(&self, task: &Task) -> u64 {
        let before = match self.threads.get(&task.id) {
            Some(before) => *before,
            None if task.origin == Origin::Fork || task.id.start_ns >= self.boot_ns => 0,
            // The thread was alive, but no dump showed it.
            None => task.times.cpu_ns,
        };
        task.times.cpu_ns.saturating_sub(before)
    }

    fn note_paths(&mut self, tasks: &Tasks) {
        for levels in tasks.all().filter_map(|task| task.levels.last()) {
            let spaces = levels.iter().map(space_of);
            if let Some(own) = levels.last() {
                self.paths.entry(own.id).or_insert_with(|| spaces.collect());
            }
        }
    }

    /// The pid namespaces around one, and itself.
    fn path(&self, own: PidSpace) -> Vec<PidSpace> {
        let known = self.paths.get(&own.id).cloned();
        known.unwrap_or_else(|| vec![PidSpace::default(), own])
    }
}

/// Nanoseconds from one reading to the next.
fn elapsed_ns(before: &CpuReading, now: &CpuReading) -> u64 {
    now.time_ns.saturating_sub(before.time_ns)
}

/// The group of a place.
fn group(groups: &mut BTreeMap<Place, GroupUse>, place: Place) -> &mut GroupUse {
    groups.entry(place.clone()).or_insert_with(|| GroupUse {
        place,
        cpu_ns: 0,
        switches: 0,
        threads: 0,
        living: 0,
        processes: Vec::new(),
    })
}

/// The kernel's account by container has its own threads among those of the host: what they
/// ran is theirs.
fn part_kernel(groups: &mut BTreeMap<Place, GroupUse>) {
    let told = |group: &GroupUse| group.processes.iter().map(|process| process.cpu_ns).sum();
    let kernel_ns: u64 = groups.get(&Place::Kernel).map_or(0, told);
    let Some(host) = groups.get_mut(&Place::Host) else {
        return;
    };
    let kernel_ns = kernel_ns.min(host.cpu_ns);
    host.cpu_ns -= kernel_ns;
    if let Some(kernel) = groups.get_mut(&Place::Kernel) {
        kernel.cpu_ns += kernel_ns;
    }
}

#[cfg(test)]
mod tests;
