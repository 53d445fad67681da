// SPDX-License-Identifier: GPL-2.0-only
//! How long each container ran on each CPU.
//!
//! Counted at context switches, from the kernel's own account of each task (`se.sum_exec_runtime`,
//! from which `cpu.stat` of its control group is counted, too): the growth since the task got the
//! CPU goes to the container that the task was in then. A task that is moved to another control
//! group while it runs is counted at that moment.
//!
//! The rows of a CPU have a lock of their own, for which only readers and moved tasks ever contend:
//! a switch takes it with the run queue's lock held.

use crate::{
    common::abi::CpuTime,
    sys::{
        any_task::{AnyTask, Home},
        each_cpu,
        lock::{raw_lock, RawLock},
        memory,
        rcu_slot::Reading,
        task::Current, //
    },
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

/// Rows that are searched for a container before the table counts as full.
const PROBES_MAX: usize = 64;

/// A container's time on one CPU.
#[derive(Clone, Copy, Default)]
struct Row {
    /// Free rows have the control group id 0, which no group has.
    home: Home,
    runtime_ns: u64,
    switches: u64,
}

/// The row for a task's time.
#[derive(Clone, Copy)]
enum Account {
    Row(usize),
    /// There was no free row.
    TurnedAway,
}

/// The task that runs on a CPU.
#[derive(Clone, Copy)]
enum Running {
    /// Not known yet, before the first switch.
    Unknown,
    /// The idle task.
    Idle,
    Task {
        /// Its address, for comparison.
        address: usize,
        account: Account,
        /// Its run time when it was last counted.
        counted_ns: u64,
    },
}

struct OnCpu {
    rows: KVVec<Row>,
    running: Running,
    turned_away_ns: u64,
}

/// The times of a session.
pub(crate) struct CpuTable(KVVec<RawLock<OnCpu>>);

impl CpuTable {
    /// Makes `rows` rows for each CPU.
    pub(crate) fn new(rows: usize) -> Result<Self> {
        let all = memory::made_for_each_cpu(|| {
            let on = OnCpu {
                rows: memory::made(rows, |_| Ok(Row::default()))?,
                running: Running::Unknown,
                turned_away_ns: 0,
            };
            Ok(raw_lock!(on))
        });
        Ok(CpuTable(all?))
    }

    /// `prev` yields its CPU, which is this one, to `next`. Under the run queue's lock.
    #[inline]
    pub(crate) fn switched(&self, cpu: u32, prev: &AnyTask<'_>, next: &AnyTask<'_>) {
        let Some(on) = self.0.get(cpu as usize) else {
            return;
        };
        let mut on = on.lock();
        on.settle(prev, 1);
        on.begin(next);
    }

    /// Handles a task that was moved to another control group. Any context but NMI.
    pub(crate) fn moved(&self, task: &AnyTask<'_>) {
        // If it migrates meanwhile, it starts there in its new group.
        if let Some(on) = self.0.get(task.cpu() as usize) {
            let mut on = on.lock();
            if on.settle(task, 0) {
                on.begin(task);
            }
        }
    }

    /// Counts the running tasks up to this moment, on all CPUs. Task context, sleeps.
    pub(crate) fn settle(&self) {
        each_cpu(&|| {
            let guard = rcu::read_lock();
            let current = AnyTask::current(Reading::under_rcu(&guard));
            let Some(on) = self.0.get(Current::get().cpu_hint() as usize) else {
                return;
            };
            let mut on = on.lock();
            match on.running {
                Running::Unknown => on.begin(&current),
                _ => {
                    on.settle(&current, 0);
                }
            }
        });
    }

    /// The number of rows of all CPUs.
    pub(crate) fn places(&self) -> usize {
        let rows = self.0.first().map_or(0, |on| on.lock().rows.len());
        rows.saturating_mul(self.0.len())
    }

    /// Passes the rows from place `from` on to `take`, at most `most` places of one CPU. Returns
    /// the place to continue from.
    pub(crate) fn read(&self, from: usize, most: usize, mut take: impl FnMut(CpuTime)) -> usize {
        let rows = self.0.first().map_or(0, |on| on.lock().rows.len());
        let (Some(cpu), Some(first)) = (from.checked_div(rows), from.checked_rem(rows)) else {
            return from.saturating_add(most);
        };
        let end = first.saturating_add(most).min(rows);
        let Some(on) = self.0.get(cpu) else {
            return from.saturating_add(most);
        };
        let on = on.lock();
        for row in on.rows.get(first..end).unwrap_or(&[]) {
            if row.home.cgroup != 0 {
                take(CpuTime {
                    cgroup: row.home.cgroup,
                    pidns_id: row.home.pidns_id,
                    pidns_inum: row.home.pidns_inum,
                    cpu: cpu as u32,
                    runtime_ns: row.runtime_ns,
                    switches: row.switches,
                });
            }
        }
        from.saturating_add(end.wrapping_sub(first))
    }

    /// Nanoseconds for which there was no row.
    pub(crate) fn turned_away_ns(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum: u64, on| sum.wrapping_add(on.lock().turned_away_ns))
    }
}

impl OnCpu {
    /// Counts the run time of `task` if it runs on this CPU; returns whether it does.
    #[inline]
    fn settle(&mut self, task: &AnyTask<'_>, switches: u64) -> bool {
        let Running::Task {
            address,
            account,
            counted_ns,
        } = &mut self.running
        else {
            return false;
        };
        if *address != task.address() {
            return false;
        }
        let total = task.cpu_ns();
        let grown = total.wrapping_sub(*counted_ns);
        *counted_ns = total;
        match *account {
            Account::TurnedAway => {
                self.turned_away_ns = self.turned_away_ns.wrapping_add(grown);
            }
            Account::Row(index) => {
                if let Some(row) = self.rows.get_mut(index) {
                    row.runtime_ns = row.runtime_ns.wrapping_add(grown);
                    row.switches = row.switches.wrapping_add(switches);
                }
            }
        }
        true
    }

    /// Notes that `task` runs on the CPU from here on.
    #[inline]
    fn begin(&mut self, task: &AnyTask<'_>) {
        self.running = match task.is_idle() {
            true => Running::Idle,
            false => Running::Task {
                address: task.address(),
                account: self.account(task.home()),
                counted_ns: task.cpu_ns(),
            },
        };
    }

    /// Finds the row of a container, or takes one for it.
    #[inline]
    fn account(&mut self, home: Home) -> Account {
        let count = self.rows.len();
        let hash = home.hash() as usize;
        // The upper half of a product replaces a division: it is below `count`.
        let mut index = (hash & 0xffff_ffff).wrapping_mul(count) >> 32;
        for _ in 0..PROBES_MAX.min(count) {
            let Some(row) = self.rows.get_mut(index) else {
                break;
            };
            if row.home == home {
                return Account::Row(index);
            }
            if row.home.cgroup == 0 {
                row.home = home;
                return Account::Row(index);
            }
            index = index.wrapping_add(1);
            if index >= count {
                index = 0;
            }
        }
        Account::TurnedAway
    }
}
