// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks by stack, of processes that run and of those that ended.

use crate::output::leaks::{Amount, Leak, Look};
use libnsprobe::common::task::{TaskLevel, TaskRecord, TASK_EXEC, TASK_EXIT, TASK_LAST};
use libnsprobe::{Rows, TableRow};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// The frames of a stack, and why it ends.
type StackKey = (Rc<[u64]>, u8);
/// The blocks of stacks, and the age of the oldest of each.
type Sums = HashMap<StackKey, (Amount, Duration)>;

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Blocks from before this time are not shown: not all functions were probed yet.
    since_ns: u64,
    /// Only older blocks are shown.
    older_than: Duration,
    /// Bytes allocated per sample; zero for all blocks.
    sample: u64,
    /// When processes ended, or started another program, in the clock of the records, as long as
    /// the table may have blocks of theirs.
    ended: BTreeMap<u64, u64>,
    /// What these had allocated.
    of_ended: Sums,
    of_ended_before: Sums,
    before: Sums,
}

impl Blocks {
    /// Takes blocks since a time that are older than a duration, sampled once per `sample` bytes.
    pub(super) fn new(since_ns: u64, older_than: Duration, sample: u64) -> Blocks {
        Blocks {
            since_ns,
            older_than,
            sample,
            ..Blocks::default()
        }
    }

    /// Notes the end of a process, or of its program.
    pub(super) fn note(&mut self, task: &TaskRecord, levels: &[TaskLevel]) {
        let is_last = task.what == TASK_EXIT && task.flags & TASK_LAST != 0;
        if let (true, Some(level)) = (is_last || task.what == TASK_EXEC, levels.first()) {
            self.ended.insert(level.pid.into(), task.time_ns);
        }
    }

    /// Takes the blocks of processes that ended out of these rows. Returns those processes, whose
    /// blocks the table need not keep any more.
    pub(super) fn take_ended(
        &mut self,
        rows: &mut Rows,
        mut stack: impl FnMut(u32) -> Option<Rc<[u64]>>,
    ) -> BTreeMap<u64, u64> {
        let ended = std::mem::take(&mut self.ended);
        rows.rows.retain(|row| {
            let owner = row.key.first().and_then(|pid| ended.get(pid));
            match owner.filter(|end| row.time_ns <= **end) {
                Some(end) => add(self.filter(), &mut self.of_ended, row, *end, &mut stack),
                None => return true,
            }
            false
        });
        ended
    }

    /// Whether processes have ended since the table was looked at.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    fn filter(&self) -> (u64, Duration, u64) {
        (self.since_ns, self.older_than, self.sample)
    }

    /// Adds up the blocks that are allocated at `now_ns`, of processes that run.
    pub(super) fn look(
        &mut self,
        rows: &Rows,
        now_ns: u64,
        mut stack: impl FnMut(u32) -> Option<Rc<[u64]>>,
    ) -> Look {
        let mut running = Sums::new();
        for row in &rows.rows {
            add(self.filter(), &mut running, row, now_ns, &mut stack);
        }
        let look = Look {
            growth: sum(&running).less(sum(&self.before)),
            running: leaks(&running, &self.before),
            ended: leaks(&self.of_ended, &self.of_ended_before),
            turned_away: rows.turned_away,
            is_sampled: self.sample != 0,
            unknown_frees: 0,
        };
        self.before = running;
        self.of_ended_before = self.of_ended.clone();
        look
    }
}

/// Adds a block, as it was at `at_ns`.
fn add(
    (since_ns, older_than, sample): (u64, Duration, u64),
    sums: &mut Sums,
    row: &TableRow,
    at_ns: u64,
    stack: &mut impl FnMut(u32) -> Option<Rc<[u64]>>,
) {
    let age = Duration::from_nanos(at_ns.saturating_sub(row.time_ns));
    if age < older_than || row.time_ns < since_ns {
        return;
    }
    // A block whose stack found no room has no frames.
    let words = stack(row.least as u32).unwrap_or_default();
    let (amount, oldest) = sums.entry((words, row.stack_end)).or_default();
    amount.add_block(row.sum as f64, sample as f64);
    *oldest = age.max(*oldest);
}

fn sum(sums: &Sums) -> Amount {
    let amounts = sums.values().map(|(amount, _)| *amount);
    amounts.fold(Amount::default(), Amount::plus)
}

/// Those with the most bytes first.
fn leaks(sums: &Sums, before: &Sums) -> Vec<Leak> {
    let leak = |(key, (amount, oldest)): (&StackKey, &(Amount, Duration))| {
        let before = before.get(key).map(|(amount, _)| *amount);
        Leak {
            stack: key.0.to_vec(),
            stack_end: key.1,
            amount: *amount,
            growth: amount.less(before.unwrap_or_default()),
            oldest: *oldest,
        }
    };
    let mut leaks: Vec<Leak> = sums.iter().map(leak).collect();
    leaks.sort_by(|a, b| {
        let order = b.amount.bytes.total_cmp(&a.amount.bytes);
        let order = order.then(b.amount.blocks.total_cmp(&a.amount.blocks));
        order.then_with(|| a.stack.cmp(&b.stack))
    });
    leaks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pid: u64, stack: i64, bytes: i64, time_ns: u64) -> TableRow {
        TableRow {
            key: vec![pid, time_ns],
            least: stack,
            sum: bytes,
            time_ns,
            ..TableRow::default()
        }
    }

    fn rows(rows: Vec<TableRow>) -> Rows {
        Rows {
            rows,
            ..Rows::default()
        }
    }

    fn numbers(amount: Amount) -> (f64, f64) {
        (amount.blocks, amount.bytes)
    }

    #[test]
    fn blocks_are_added_up_by_stack_and_age() {
        // Two numbers may stand for one stack.
        let stack = |id: u32| (id != 0).then(|| Rc::from(vec![u64::from(id % 10)]));
        let mut blocks = Blocks::new(0, Duration::from_nanos(200), 0);
        let first = [(1, 10, 100), (11, 30, 50), (2, 5, 900)];
        let first = first.map(|(stack, bytes, time_ns)| block(7, stack, bytes, time_ns));
        let look = blocks.look(&rows(first.into()), 1000, stack);
        let [leak] = &look.running[..] else {
            panic!("{look:?}");
        };
        assert_eq!(
            (&leak.stack[..], numbers(leak.amount)),
            (&[1][..], (2.0, 40.0))
        );
        assert_eq!(leak.oldest, Duration::from_nanos(950));
        let second = [(1, 10, 100), (2, 5, 900), (0, 1, 950)];
        let second = second.map(|(stack, bytes, time_ns)| block(7, stack, bytes, time_ns));
        let look = blocks.look(&rows(second.into()), 2000, stack);
        let stacks: Vec<&[u64]> = look.running.iter().map(|leak| &leak.stack[..]).collect();
        assert_eq!(stacks, [&[1][..], &[2], &[]]);
        assert_eq!(numbers(look.running[0].growth), (-1.0, -30.0));
        assert_eq!(numbers(look.growth), (1.0, -24.0));
    }

    #[test]
    fn blocks_of_a_process_that_ended_are_apart_from_its_successor() {
        let stack = |_: u32| None;
        let mut blocks = Blocks::new(300, Duration::ZERO, 0);
        let level = |pid| TaskLevel {
            pid,
            ..TaskLevel::default()
        };
        let task = |what, flags| TaskRecord {
            what,
            flags,
            time_ns: 500,
            ..TaskRecord::default()
        };
        blocks.note(&task(TASK_EXIT, TASK_LAST), &[level(7)]);
        blocks.note(&task(TASK_EXEC, 0), &[level(8)]);
        // One of its threads.
        blocks.note(&task(TASK_EXIT, 0), &[level(9)]);
        let all = [7, 8, 9].map(|pid| {
            let early = block(pid, 1, 100, 200);
            [early, block(pid, 1, 10, 400), block(pid, 1, 1, 600)]
        });
        let mut rows = rows(all.concat());
        let ended = blocks.take_ended(&mut rows, stack);
        assert_eq!(ended, BTreeMap::from([(7, 500), (8, 500)]));
        assert!(!blocks.has_ended());
        let look = blocks.look(&rows, 1000, stack);
        let of = |leaks: &[Leak]| numbers(Amount::of(leaks));
        assert_eq!(
            (of(&look.running), of(&look.ended)),
            ((4.0, 13.0), (2.0, 20.0))
        );
        assert_eq!(look.ended[0].oldest, Duration::from_nanos(100));
    }

    #[test]
    fn sampled_blocks_stand_for_others() {
        let stack = |_: u32| None;
        let mut blocks = Blocks::new(0, Duration::ZERO, 1000);
        // One in four, and one of which all are taken.
        let rows = rows(vec![block(7, 1, 250, 100), block(7, 1, 4000, 100)]);
        let look = blocks.look(&rows, 1000, stack);
        let amount = look.running[0].amount;
        assert_eq!(numbers(amount), (5.0, 5000.0));
        // Variance of one of probability 1/4: (1 - p) / p², 12 blocks.
        let wanted = (2.0 * 12f64.sqrt(), 2.0 * 250.0 * 12f64.sqrt());
        let (blocks, bytes) = amount.error();
        assert!((blocks - wanted.0).abs() < 1e-9 && (bytes - wanted.1).abs() < 1e-6);
    }
}
