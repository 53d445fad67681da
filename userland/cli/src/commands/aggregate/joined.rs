// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits with their other side: what ended them, or what held the lock. A wait and the wake-up that
//! ends it are recorded by themselves: a wait says when it was ended and by which thread, and the
//! wake-up has that thread's stack.

use super::addresses::Addresses;
use super::locks::{LockWait, Locks};
use crate::args::Join;
use crate::output::tables::Counterpart;
use libnsprobe::common::program::Context;
use libnsprobe::common::record::{Details, Frame, Hit};
use libnsprobe::common::wait::{WaitKind, Waker};
use libnsprobe::{Rows, TableRow};
use nsprobe_trace::hits::lookup::{words_of, Lookup};
use std::collections::{HashMap, VecDeque};

/// What each wait is recorded with, in front of its keys, to be joined with what ended it.
pub(super) const OF_WAKERS: [Context; 3] = [Context::WokenAt, Context::WokenBy, Context::WaitKind];
/// The same, to be joined with the holder of its lock.
pub(super) const OF_HOLDERS: [Context; 5] = [
    Context::WokenAt,
    Context::WokenBy,
    Context::WaitKind,
    Context::Lock,
    Context::LockHolder,
];
/// Most wake-ups, most threads' names, and most waits without their wake-up, that are kept.
const KEPT_MAX: usize = 1 << 16;
/// How long a wait stays without its wake-up, whose stack may come late.
const PATIENCE_NS: u64 = 2_000_000_000;

/// What a wait says of its end.
#[derive(Clone, Copy)]
struct End {
    at_ns: u64,
    waker: Waker,
    tid: u32,
    kind: u64,
}

/// A wait whose wake-up has not come yet.
struct Open {
    end: End,
    lock: LockWait,
    row: TableRow,
}

/// Each thing once, by its number.
#[derive(Default)]
pub(super) struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + std::hash::Hash> Numbered<T> {
    pub(super) fn number(&mut self, one: T) -> u64 {
        let next = self.all.len();
        let number = *self.numbers.entry(one.clone()).or_insert(next);
        if number == next {
            self.all.push(one);
        }
        number as u64
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.all.get(usize::try_from(number).ok()?)
    }

    pub(super) fn all(&self) -> &[T] {
        &self.all
    }
}

/// Joins waits with their other side.
pub(crate) struct Joined {
    /// The probe of wake-ups.
    probe: u32,
    /// Wake-ups by their time and thread: the number of what woke.
    wakes: HashMap<(u64, u32), u64>,
    /// The keys of `wakes`, the oldest first.
    order: VecDeque<(u64, u32)>,
    open: VecDeque<Open>,
    wakers: Numbered<Counterpart>,
    /// Set if waits are joined with holders of locks.
    locks: Option<Locks>,
    rows: Vec<TableRow>,
    /// How many of these are added up already.
    added_up: usize,
    /// The time of the latest wait.
    latest_ns: u64,
}

impl Joined {
    /// The probe with this id has the wake-ups. `with_tids`: holders are distinguished by their
    /// numbers.
    pub(super) fn new(
        probe: u32,
        join: Join,
        with_tids: bool,
        addresses: impl FnOnce() -> Addresses,
    ) -> Joined {
        Joined {
            probe,
            wakes: HashMap::new(),
            order: VecDeque::new(),
            open: VecDeque::new(),
            wakers: Numbered::default(),
            locks: match join {
                Join::Waker => None,
                Join::Holder { all } => Some(Locks::new(all, with_tids, addresses())),
            },
            rows: Vec::new(),
            added_up: 0,
            latest_ns: 0,
        }
    }

    /// Takes a wait or a wake-up with its whole stack.
    pub(super) fn take(
        &mut self,
        lookup: &mut impl Lookup,
        hit: &Hit,
        frames: &[Frame],
        details: &Details<'_>,
    ) {
        if let Some(locks) = &mut self.locks {
            locks.name_thread(hit);
        }
        let stack = words_of(frames);
        if hit.probe == self.probe {
            let comm = String::from_utf8_lossy(&hit.comm);
            let comm = comm.trim_end_matches('\0');
            let number = self.wakers.number(Counterpart {
                name: match lookup.container(hit) {
                    Some(container) => format!("{comm} in {container}"),
                    None => comm.to_owned(),
                },
                is_holder: false,
                stack,
                stack_end: hit.stack_end,
            });
            return self.keep((hit.time_ns, hit.tid), number);
        }
        // The mask of the fields that are there comes first.
        let Some([_, at_ns, by, kind, rest @ ..]) = details.fields.get(..) else {
            return;
        };
        let mut lock = LockWait::default();
        let mut key = rest;
        if let (Some(_), [address, holder, after @ ..]) = (&self.locks, rest) {
            lock = LockWait::of(hit, details, *address, *holder);
            key = after;
        }
        let took_ns = details.elapsed_ns.unwrap_or(0) as i64;
        self.latest_ns = self.latest_ns.max(hit.time_ns);
        self.open.push_back(Open {
            end: End {
                at_ns: *at_ns,
                waker: Waker::from_u8((by >> 32) as u8).unwrap_or(Waker::Unknown),
                tid: *by as u32,
                kind: *kind,
            },
            lock,
            row: TableRow {
                key: key.to_vec(),
                stack,
                stack_end: hit.stack_end,
                count: 1,
                sum: took_ns,
                least: took_ns,
                greatest: took_ns,
                ..TableRow::default()
            },
        });
        self.join(false);
    }

    fn keep(&mut self, at: (u64, u32), number: u64) {
        if self.wakes.insert(at, number).is_none() {
            self.order.push_back(at);
        }
        if self.order.len() > KEPT_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.wakes.remove(&oldest);
            }
        }
    }

    /// Joins the waits whose wake-up is there, and those that it does not come for.
    fn join(&mut self, is_end: bool) {
        while let Some(Open { end, .. }) = self.open.front() {
            let found = self.wakes.get(&(end.at_ns, end.tid)).copied();
            let is_old = self.latest_ns.saturating_sub(end.at_ns) > PATIENCE_NS;
            let may_come = matches!(end.waker, Waker::Thread | Waker::Sender);
            if found.is_none() && may_come && !is_end && !is_old && self.open.len() < KEPT_MAX {
                return;
            }
            let Some(mut open) = self.open.pop_front() else {
                return;
            };
            let waker = self.ended_by(open.end, found);
            match &mut self.locks {
                Some(locks) => {
                    let released = found.map(|number| (open.end.at_ns, open.end.tid, number));
                    open.row.key.extend(locks.join(&open.lock, released));
                    open.row.key.push(waker);
                }
                None => open.row.key.push(waker),
            }
            self.rows.push(open.row);
        }
        if self.rows.len() > 2 * self.added_up + KEPT_MAX {
            self.add_up();
        }
    }

    fn add_up(&mut self) {
        let rows = Rows {
            rows: std::mem::take(&mut self.rows),
            ..Rows::default()
        };
        self.rows = rows.added_up().rows;
        self.added_up = self.rows.len();
    }

    /// The number of what has ended a wait.
    fn ended_by(&mut self, end: End, found: Option<u64>) -> u64 {
        let known = found.and_then(|number| self.wakers.get(number)).cloned();
        let named = |name: String| Counterpart {
            name,
            ..Counterpart::default()
        };
        let waker = match (end.waker, known) {
            (Waker::Thread, Some(known)) => known,
            (Waker::Sender, Some(known)) => Counterpart {
                name: format!("probably {}", known.name),
                ..known
            },
            (Waker::Thread, None) => named(format!("thread {}", end.tid)),
            (Waker::Sender, None) => named(format!("probably thread {}", end.tid)),
            (Waker::Kernel, _) => named(kernel_thread(end.tid)),
            (Waker::Interrupt, _) if end.kind == WaitKind::Sleep as u64 => named("timer".into()),
            (Waker::Interrupt, _) => named("interrupt".into()),
            // Nothing wakes a thread that could run.
            (Waker::Unknown, _) if end.kind == WaitKind::Cpu as u64 => named(String::new()),
            (Waker::Unknown, _) => named("?".into()),
        };
        self.wakers.number(waker)
    }

    /// All wake-ups have come.
    pub(super) fn end(&mut self) {
        self.join(true);
    }

    /// The rows so far; the last word of their keys is the number of the other side.
    pub(super) fn rows(&mut self, names: &mut impl Lookup) -> Rows {
        self.add_up();
        let rows = Rows {
            rows: self.rows.clone(),
            ..Rows::default()
        };
        match &mut self.locks {
            Some(locks) => locks.rows(names, rows, &mut self.wakers),
            None => rows,
        }
    }

    /// The other sides of waits, by their numbers.
    pub(super) fn counterparts(&self) -> &[Counterpart] {
        self.wakers.all()
    }

    /// The locks, by their numbers in keys, and what is not for a lock.
    pub(super) fn locks(&mut self) -> Option<&mut Locks> {
        self.locks.as_mut()
    }
}

/// The name of a thread of the kernel's: those stay.
fn kernel_thread(tid: u32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{tid}/comm"));
    match comm {
        Ok(comm) if tid != 0 => format!("[{}]", comm.trim_end()),
        _ => "[kernel]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::record::Frames;
    use libnsprobe::common::record::{CodeMapping, StackCopy};
    use nsprobe_symbolize::KernelSymbol;
    use nsprobe_trace::hits::lookup::{NameFrames, Rest};
    use nsprobe_trace::names::named::NamedFrame;
    use std::rc::Rc;

    /// Knows nothing.
    struct Nothing;

    impl NameFrames for Nothing {
        fn name(&mut self, _: Frame) -> Rc<NamedFrame> {
            Rc::default()
        }
    }

    impl Lookup for Nothing {
        fn stack(&mut self, _: u32) -> Option<Rc<[u64]>> {
            None
        }

        fn rest(&mut self, _: &Hit, _: usize) -> Rest {
            Rest::Unknown
        }

        fn note_copy(&mut self, _: &StackCopy, _: &[CodeMapping], _: &[u64]) {}

        fn kernel(&self, _: u64, _: bool) -> Option<&KernelSymbol> {
            None
        }

        fn finished(&self) -> u64 {
            0
        }
    }

    const WAKES: u32 = 1;

    fn take(joined: &mut Joined, probe: u32, (time_ns, tid): (u64, u32), fields: &[u64]) {
        let hit = Hit {
            probe,
            time_ns,
            tid,
            comm: *b"one\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ..Hit::default()
        };
        let details = Details {
            elapsed_ns: Some(40),
            frames: Frames(&[]),
            kernel: &[],
            fields,
        };
        joined.take(&mut Nothing, &hit, &[], &details);
    }

    /// A wait that was ended then, by this thread in this way.
    fn wait(joined: &mut Joined, at_ns: u64, waker: Waker, tid: u32) {
        let by = u64::from(waker as u8) << 32 | u64::from(tid);
        take(
            joined,
            2,
            (at_ns + 10, 9),
            &[0xf, at_ns, by, WaitKind::Sleep as u64, 77],
        );
    }

    /// The names of what ended waits, with their numbers, by key.
    fn ends(joined: &mut Joined) -> Vec<(u64, String, u64)> {
        let rows = joined.rows(&mut Nothing).rows;
        let mut ends: Vec<_> = rows
            .iter()
            .map(|row| {
                let [key, number] = row.key[..] else {
                    panic!("{row:?}");
                };
                let side = &joined.counterparts()[number as usize];
                (key, side.name.clone(), row.count)
            })
            .collect();
        ends.sort();
        ends
    }

    #[test]
    fn a_wait_has_its_own_waker_and_no_other() {
        let mut joined = Joined::new(WAKES, Join::Waker, false, || unreachable!());
        // The wake-up may come later than the wait.
        wait(&mut joined, 100, Waker::Thread, 5);
        wait(&mut joined, 200, Waker::Interrupt, 0);
        assert!(ends(&mut joined).is_empty());
        take(&mut joined, WAKES, (100, 6), &[]);
        assert!(ends(&mut joined).is_empty(), "another thread");
        take(&mut joined, WAKES, (100, 5), &[]);
        // One serves several.
        wait(&mut joined, 100, Waker::Sender, 5);
        wait(&mut joined, 300, Waker::Thread, 8);
        joined.end();
        let wanted = [
            ("one", 1),
            ("probably one", 1),
            ("thread 8", 1),
            ("timer", 1),
        ];
        let wanted = wanted.map(|(name, count)| (77, name.to_owned(), count));
        assert_eq!(ends(&mut joined), wanted);
    }

    #[test]
    fn rows_are_added_up_before_they_are_too_many() {
        let mut joined = Joined::new(WAKES, Join::Waker, false, || unreachable!());
        let count = 3 * KEPT_MAX as u64;
        for at_ns in 1..=count {
            wait(&mut joined, at_ns, Waker::Interrupt, 0);
            assert!(joined.rows.len() <= KEPT_MAX + 3);
        }
        assert_eq!(ends(&mut joined), [(77, "timer".to_owned(), count)]);
    }
}
