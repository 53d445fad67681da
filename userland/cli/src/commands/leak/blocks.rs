// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks by stack, of processes that run and of those that ended.

use crate::output::leaks::{Amount, Leak, Look};
use libnsprobe::common::task::{TaskLevel, TaskRecord, TASK_EXEC, TASK_EXIT, TASK_LAST};
use libnsprobe::Rows;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// The frames of a stack, and why it ends.
type StackKey = (Rc<[u64]>, u8);
/// The blocks of stacks, and the age of the oldest of each.
type Sums = HashMap<StackKey, (Amount, Duration)>;

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// When processes ended, or started another program, in the clock of the records.
    ended: HashMap<u64, u64>,
    before: Sums,
}

impl Blocks {
    /// Notes the end of a process, or of its program.
    pub(super) fn note(&mut self, task: &TaskRecord, levels: &[TaskLevel]) {
        let is_last = task.what == TASK_EXIT && task.flags & TASK_LAST != 0;
        if let (true, Some(level)) = (is_last || task.what == TASK_EXEC, levels.first()) {
            self.ended.insert(level.pid.into(), task.time_ns);
        }
    }

    /// Adds up the blocks that are older than `least` at `now_ns`.
    pub(super) fn look(
        &mut self,
        rows: &Rows,
        now_ns: u64,
        least: Duration,
        mut stack: impl FnMut(u32) -> Option<Rc<[u64]>>,
    ) -> Look {
        let (mut running, mut ended) = (Sums::new(), Sums::new());
        for row in &rows.rows {
            let age = Duration::from_nanos(now_ns.saturating_sub(row.time_ns));
            if age < least {
                continue;
            }
            let pid = row.key.first().copied().unwrap_or(0);
            let is_gone = self.ended.get(&pid).is_some_and(|end| row.time_ns <= *end);
            // A block whose stack found no room has no frames.
            let words = stack(row.least as u32).unwrap_or_default();
            let sums = if is_gone { &mut ended } else { &mut running };
            let (amount, oldest) = sums.entry((words, row.stack_end)).or_default();
            amount.blocks += 1;
            amount.bytes = amount.bytes.saturating_add(row.sum);
            *oldest = age.max(*oldest);
        }
        let leaks = |sums: &Sums, before: &Sums| {
            let mut leaks: Vec<Leak> = sums.iter().map(|sum| leak(sum, before)).collect();
            leaks.sort_by(|a, b| {
                let amount = |leak: &Leak| (leak.amount.bytes, leak.amount.blocks);
                let order = amount(b).cmp(&amount(a));
                order.then_with(|| a.stack.cmp(&b.stack))
            });
            leaks
        };
        let sum = |sums: &Sums| Amount::of(&leaks(sums, sums));
        let look = Look {
            growth: sum(&running).less(sum(&self.before)),
            running: leaks(&running, &self.before),
            ended: leaks(&ended, &Sums::new()),
            turned_away: rows.turned_away,
            unknown_frees: 0,
        };
        self.before = running;
        look
    }
}

fn leak((key, (amount, oldest)): (&StackKey, &(Amount, Duration)), before: &Sums) -> Leak {
    let before = before.get(key).map(|(amount, _)| *amount);
    Leak {
        stack: key.0.to_vec(),
        stack_end: key.1,
        amount: *amount,
        growth: amount.less(before.unwrap_or_default()),
        oldest: *oldest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::TableRow;

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

    fn amount(blocks: i64, bytes: i64) -> Amount {
        Amount { blocks, bytes }
    }

    #[test]
    fn blocks_are_added_up_by_stack_and_age() {
        // Two numbers may stand for one stack.
        let stack = |id: u32| (id != 0).then(|| Rc::from(vec![u64::from(id % 10)]));
        let mut blocks = Blocks::default();
        let first = rows(vec![
            block(7, 1, 10, 100),
            block(7, 11, 30, 50),
            block(7, 2, 5, 900),
        ]);
        let look = blocks.look(&first, 1000, Duration::from_nanos(200), stack);
        let [leak] = &look.running[..] else {
            panic!("{look:?}");
        };
        assert_eq!((&leak.stack[..], leak.amount), (&[1][..], amount(2, 40)));
        assert_eq!(leak.oldest, Duration::from_nanos(950));
        let second = rows(vec![
            block(7, 1, 10, 100),
            block(7, 2, 5, 900),
            block(7, 0, 1, 950),
        ]);
        let look = blocks.look(&second, 2000, Duration::ZERO, stack);
        let stacks: Vec<&[u64]> = look.running.iter().map(|leak| &leak.stack[..]).collect();
        assert_eq!(stacks, [&[1][..], &[2], &[]]);
        assert_eq!(look.running[0].growth, amount(-1, -30));
        assert_eq!(look.growth, amount(1, -24));
    }

    #[test]
    fn blocks_of_a_process_that_ended_are_apart_from_its_successor() {
        let stack = |_: u32| None;
        let mut blocks = Blocks::default();
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
        let all = [7, 8, 9].map(|pid| [block(pid, 1, 10, 400), block(pid, 1, 1, 600)]);
        let look = blocks.look(&rows(all.concat()), 1000, Duration::ZERO, stack);
        let [running, ended] = [&look.running, &look.ended].map(|leaks| Amount::of(leaks));
        assert_eq!((running, ended), (amount(4, 13), amount(2, 20)));
    }
}
